/* SPDX-License-Identifier: MIT */
#include "pool/thread.h"

uint32_t
thread_self(void)
{
	static _Atomic uint32_t last;
	static _Thread_local uint32_t self;

	if (!self) /* relaxed: only uniqueness matters */
		self = atomic_fetch_add_explicit(&last, 1, memory_order_relaxed) + 1;
	return self;
}

__thread struct thread_busy thread_busy;

/* Written once, before there is a deadline to keep. */
static thread_timedlock_fn *timedlock;

void
thread_set_timedlock(thread_timedlock_fn *fn)
{
	timedlock = fn;
}

bool
thread_lock_until(pthread_mutex_t *lock, const struct timespec *deadline)
{
	int r;

	thread_hold();
	r = deadline && timedlock ? timedlock(lock, deadline) : pthread_mutex_lock(lock);
	if (r != 0)
		thread_release();
	return r == 0;
}
