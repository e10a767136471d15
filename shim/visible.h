/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * Work whose end the CPU can see without a synchronise, and the frees that must wait for it.
 *
 * The driver's free waits for all work of the context, and programs use it as a barrier without
 * knowing. The pool's free does not wait for plain kernels, which write device memory only; it does
 * wait for
 *  - copies and memsets to host memory, host functions, stream writes, and graphs, which may hold
 * any of these: one event recorded after each such call, in its stream;
 *  - everything, while the process holds managed memory, or on a device whose kernels write
 * pageable memory. Known gap, in the README: kernels that write pinned memory through its device
 * pointer.
 *
 * Locking: a lock per context, never held across a driver call.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "shim/hooks.h"

struct context;

enum { VISIBLE_N_OPS = 64 };

struct visible {
	atomic_uint n_ops; /* slots in use: the free's fast look */
	/* Calls that got no event: a free waits for the whole context until as many are settled as
	 * were noted. */
	atomic_uint n_unrecorded, n_settled;
	pthread_mutex_t lock;
	struct visible_op {
		CUevent event;       /* NULL: free slot */
		unsigned generation; /* of the context, when the event was got */
		unsigned serial;     /* which of the operations that this slot has had */
		unsigned n_users;    /* frees that wait for it now */
		bool is_done;
	} ops[VISIBLE_N_OPS];
};

void visible_init(struct visible *visible);

/* The context is gone. */
void visible_reset(struct visible *visible);

/* May the CPU read what is written to this address? */
bool visible_is_host(CUdeviceptr addr);

/* Where a 2D or 3D copy writes: an address of either kind, or an array, which is device memory. */
static inline bool
visible_writes_host(CUmemorytype type, CUdeviceptr dst_device)
{
	return type == CU_MEMORYTYPE_HOST ||
	       (type != CU_MEMORYTYPE_ARRAY && visible_is_host(dst_device));
}

/* A call that the CPU can see the end of was submitted to stream; stream0 says what stream 0 and
 * the handles mean. */
void visible_note(CUstream stream, enum hook_stream0 stream0);

/*
 * Wait, before memory of context is freed, as far as the driver's free would have been seen to
 * wait. True: all work submitted to the context before the call is complete.
 */
bool visible_wait(struct context *context);
