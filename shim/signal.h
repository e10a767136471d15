/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * The signal that asks for a dump, and the thread that writes it.
 *
 * The handler only posts a semaphore. The helper thread has all signals blocked, so it is never the
 * one that is interrupted, and makes no CUDA call.
 */

/*
 * Install the handler if the signal's disposition is default or ignore; else leave it to its owner.
 */
void signal_install(int number);

/* Start the thread; once. Without one (no memory for a thread) the signal does nothing. */
void signal_start_helper(void);
