/* SPDX-License-Identifier: MIT */
#include "shim/capture.h"

#include <pthread.h>
#include <sched.h>
#include <stdint.h>

#include "pool/thread.h"

struct capturing {
	const void *owner;
	CUstream handle;
	uint32_t thread; /* 0, or the thread whose per-thread stream it is */
};

struct capture_gate capture_everywhere;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct capturing streams[CAPTURE_N_STREAMS]; /* under lock, as are the counts */
static unsigned n_streams;
static unsigned n_unlisted; /* captures that found no room in the set */

static void
shut(struct capture_gate *gate)
{
	atomic_fetch_add_explicit(&gate->n_shut, 1, memory_order_seq_cst);
	/* Not for the call that this thread was interrupted in. */
	while (atomic_load_explicit(&gate->n_calls, memory_order_seq_cst) > 0 &&
	       !thread_is_at_step())
		sched_yield();
}

static void
unshut(struct capture_gate *gate)
{
	atomic_fetch_sub_explicit(&gate->n_shut, 1, memory_order_seq_cst);
}

bool
capture_enter_call(struct capture_gate *context)
{
	thread_begin_step();
	/* Sequentially consistent, as in shut(): first say, then look. */
	atomic_fetch_add_explicit(&capture_everywhere.n_calls, 1, memory_order_seq_cst);
	atomic_fetch_add_explicit(&context->n_calls, 1, memory_order_seq_cst);
	if (!capture_is_open() && atomic_load_explicit(&context->n_shut, memory_order_seq_cst) == 0)
		return true;
	capture_leave_call(context);
	return false;
}

void
capture_leave_call(struct capture_gate *context)
{
	/* Release: the driver call came before this. */
	atomic_fetch_sub_explicit(&context->n_calls, 1, memory_order_release);
	atomic_fetch_sub_explicit(&capture_everywhere.n_calls, 1, memory_order_release);
	thread_end_step();
}

void
capture_shut(struct capture_gate *context)
{
	shut(context);
}

void
capture_unshut(struct capture_gate *context)
{
	unshut(context);
}

void
capture_raise(void)
{
	shut(&capture_everywhere);
}

void
capture_lower(void)
{
	unshut(&capture_everywhere);
}

/* The thread's own stream has two names, and each of them is another stream in every thread. */
static struct capturing
stream_of(const void *owner, CUstream stream, enum hook_stream0 stream0)
{
	const bool is_own =
		stream == CU_STREAM_PER_THREAD || (!stream && stream0 == HOOK_STREAM0_PER_THREAD);

	return is_own ? (struct capturing){owner, CU_STREAM_PER_THREAD, thread_self()}
		      : (struct capturing){owner, stream, 0};
}

void
capture_keep(const void *owner, CUstream stream, enum hook_stream0 stream0)
{
	thread_lock(&lock);
	if (n_streams < CAPTURE_N_STREAMS)
		streams[n_streams++] = stream_of(owner, stream, stream0);
	else
		n_unlisted++;
	thread_unlock(&lock);
}

static bool
remove_locked(struct capturing stream)
{
	for (unsigned i = 0; i < n_streams; i++) {
		if (streams[i].owner == stream.owner && streams[i].handle == stream.handle &&
		    streams[i].thread == stream.thread) {
			streams[i] = streams[--n_streams];
			return true;
		}
	}
	return false;
}

void
capture_end(const void *owner, CUstream stream, enum hook_stream0 stream0)
{
	bool was_capturing;

	if (!capture_is_open())
		return;
	thread_lock(&lock);
	was_capturing = remove_locked(stream_of(owner, stream, stream0));
	if (!was_capturing && n_unlisted > 0) {
		n_unlisted--;
		was_capturing = true;
	}
	thread_unlock(&lock);
	if (was_capturing)
		capture_lower();
}

void
capture_reset(const void *owner)
{
	unsigned n_ended = 0;

	thread_lock(&lock);
	for (unsigned i = 0; i < n_streams;) {
		if (streams[i].owner == owner) {
			streams[i] = streams[--n_streams];
			n_ended++;
		} else {
			i++;
		}
	}
	thread_unlock(&lock);
	while (n_ended-- > 0)
		capture_lower();
}
