/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * Stream capture: while any stream captures, the shim records and asks about no fence.
 *
 * Driver fact: cuCtxRecordEvent answers 900 and invalidates the captures of its context, in all
 * modes. A capture can spread to streams of other contexts by event waits, so one that is open
 * anywhere stops fences everywhere. A begin raises the count first and then waits for the shim's
 * own calls in flight; a call announces itself first and then looks at the count: one of the two
 * always sees the other (both sequentially consistent). A context that may be ending shuts a gate
 * of its own in the same way.
 *
 * Locking: none for the gates; the set of capturing streams has a lock of its own (a leaf).
 */
#include <stdatomic.h>
#include <stdbool.h>

#include "shim/hooks.h"

enum { CAPTURE_N_STREAMS = 1024 };

/*
 * Driver calls that must not be made while the gate is shut: how many are in flight, who shuts it.
 */
struct capture_gate {
	atomic_uint n_shut, n_calls;
};

extern struct capture_gate capture_everywhere;

/*
 * Announce a driver call on a context. False: something captures or it is ending, do not make it.
 */
bool capture_enter_call(struct capture_gate *context);
void capture_leave_call(struct capture_gate *context);

/*
 * Around calls that may end a context. Shutting waits until no announced call of it is in flight.
 */
void capture_shut(struct capture_gate *context);
void capture_unshut(struct capture_gate *context);

static inline bool
capture_is_open(void)
{
	return atomic_load_explicit(&capture_everywhere.n_shut, memory_order_seq_cst) > 0;
}

/*
 * Around the driver's begin: raise before it, then either keep (it succeeded: the stream captures)
 * or lower (it failed). Raising waits until no announced call is in flight anywhere; those are
 * short. owner: the stream's context, or NULL if it is not known.
 */
void capture_raise(void);
void capture_lower(void);
void capture_keep(const void *owner, CUstream stream, enum hook_stream0 stream0);

/* The stream captures no more, or is destroyed; nothing happens if it did not capture. */
void capture_end(const void *owner, CUstream stream, enum hook_stream0 stream0);

/* The context is gone, and its captures with it. */
void capture_reset(const void *owner);
