/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * The call site of the runtime call that this thread is in.
 *
 * Locking: none; the state belongs to the thread.
 */

/* Where the program called cudaMalloc and the like; NULL outside of such a call. */
const void *runtime_call_site(void);
