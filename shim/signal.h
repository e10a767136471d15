/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * The signal that asks for a dump, and the thread that writes it.
 *
 * The handler only counts and posts a semaphore. The helper thread has all signals blocked, so it
 * is never the one that is interrupted, and makes no CUDA call. In a child process the handler does
 * what the signal would have done without it, until the child starts CUDA itself.
 */
#include <time.h>

/*
 * Install the handler if the signal's disposition is default or ignore; else leave it to its owner.
 */
void signal_install(int number);

/*
 * Write the dump that was asked for, if one was and is not written yet: the helper's work, and at
 * the end of the process what it has not come to. Waits for a dump that is being written, until the
 * deadline (CLOCK_REALTIME; NULL: for ever).
 */
void signal_serve(const struct timespec *deadline);

/* Start the thread; once. Without one (no memory for a thread) the signal does nothing. */
void signal_start_helper(void);
