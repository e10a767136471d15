/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * Threads: a small number for the calling one (never reused, never 0, no system call), locks, and
 * what the calling thread is in the middle of.
 *
 * A signal handler may run in the middle of anything and call exit(), whose handlers come back to
 * this library on the same thread. Whoever comes back so must wait for nothing that only the
 * interrupted call could end; natively the program ends. While a lock is held nothing calls out, so
 * thread_holds() tells an interruption. A step calls the driver, which may itself come back, so
 * thread_is_at_step() is no reason to do anything but not to wait for steps.
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

/* All locks are taken by these. */
extern __thread struct thread_busy {
	_Atomic unsigned n_held, n_steps; /* written by their thread alone */
} thread_busy __attribute__((tls_model("initial-exec")));

static inline void
thread_add(_Atomic unsigned *count, unsigned n)
{
	/* relaxed, between compiler barriers: only handlers on the same thread read it */
	atomic_signal_fence(memory_order_seq_cst);
	atomic_store_explicit(count, atomic_load_explicit(count, memory_order_relaxed) + n,
			      memory_order_relaxed);
	atomic_signal_fence(memory_order_seq_cst);
}

/* Around what others wait for as for a lock. */
static inline void
thread_hold(void)
{
	thread_add(&thread_busy.n_held, 1);
}

static inline void
thread_release(void)
{
	thread_add(&thread_busy.n_held, -1U);
}

static inline void
thread_lock(pthread_mutex_t *lock)
{
	thread_hold();
	pthread_mutex_lock(lock);
}

static inline void
thread_unlock(pthread_mutex_t *lock)
{
	pthread_mutex_unlock(lock);
	thread_release();
}

/* Around what others wait for, and that calls the driver. */
static inline void
thread_begin_step(void)
{
	thread_add(&thread_busy.n_steps, 1);
}

static inline void
thread_end_step(void)
{
	thread_add(&thread_busy.n_steps, -1U);
}

static inline bool
thread_holds(void)
{
	return atomic_load_explicit(&thread_busy.n_held, memory_order_relaxed) != 0;
}

static inline bool
thread_is_at_step(void)
{
	return atomic_load_explicit(&thread_busy.n_steps, memory_order_relaxed) != 0;
}

/* Lock, at the latest at that time (CLOCK_REALTIME; NULL: whenever). False: it was not to be had.
 */
bool thread_lock_until(pthread_mutex_t *lock, const struct timespec *deadline);
