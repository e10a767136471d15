/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * The call site of the runtime call that this thread is in.
 *
 * Locking: none; the state belongs to the thread.
 */

/*
 * Who asked, for a driver hook that returns to return_address: where the program called cudaMalloc
 * and the like, if it is that call's runtime which calls the driver; else return_address.
 */
const void *runtime_call_site(const void *return_address);
