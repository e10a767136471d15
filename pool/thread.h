/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * Threads: a small number for the calling one (never reused, never 0, no system call), and a lock
 * with a bound.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

uint32_t thread_self(void);

/*
 * The libc function that locks with a bound: its version differs between libcs, so whoever may look
 * for it hands it down. Before that, a bound is not kept.
 */
typedef int thread_timedlock_fn(pthread_mutex_t *lock, const struct timespec *deadline);
void thread_set_timedlock(thread_timedlock_fn *fn);

/* Lock, at the latest at that time (CLOCK_REALTIME; NULL: whenever). False: it was not to be had.
 */
bool thread_lock_until(pthread_mutex_t *lock, const struct timespec *deadline);
