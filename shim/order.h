/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * The order of submissions and early hand-outs (pool/stream_order.h), as hooks and backends need
 * it.
 *
 * Watched are contexts that have a heap of device memory, once the process is active. A stream's
 * context is remembered with its handle until a stream or a context ends.
 *
 * Locking: none of its own; see heap.h and submit.h.
 */
#include <stdbool.h>

#include "pool/heap.h"
#include "shim/submit.h"

struct context;

/* Is early reuse chosen? Once the options are read. */
bool order_is_early(void);

/*
 * A submission is announced, and the driver not called yet. True: the order need not hear of this
 * stream's next one unless the attention moves. touch: all the memory that the work touches; NULL:
 * not known. can_wait: the work can wait for others; *ret_blocked, for order_after_blocker() once
 * it is submitted, or NULL.
 */
bool order_before_submission(struct submit_target target, const struct heap_touch *touch,
			     bool can_wait, struct heap **ret_blocked);
void order_after_blocker(struct heap *blocked);

/*
 * Must a dependent launch, announced, be a plain one, because memory was handed out early or a wait
 * put in since the last one of its stream that was?
 */
bool order_must_not_overlap(CUstream stream, enum hook_stream0 stream0);

/* A stream, as heaps tell it from others. */
struct order_place {
	struct order_stream key;
	bool is_blocking; /* it waits for the legacy stream, and the other way round */
};

/* False: it is none of the context's, or the driver does not know it. */
bool order_find_stream(CUstream stream, enum hook_stream0 stream0, const struct context *context,
		       struct order_place *ret_place);

/* Around the program's own synchronise: covers what was freed before, and takes in what it has
 * shown complete. */
void order_before_sync(void);
void order_after_sync(void);

/* A stream is about to be destroyed, or its handle may mean another one from now on. */
void order_before_destroy(CUstream stream);

/* A green context is gone, and its streams with it; the primary one has its heap. */
void order_after_green_destroy(struct context *primary);

/* Contexts or streams have come or gone: nothing that is remembered of a handle holds. */
void order_forget_handles(void);

/* struct backend_ops: look(). */
void order_look(void (*enter)(void *arg, struct order_stream stream), void *arg);

/*
 * If submissions may go past this library: completed blocks only from now on, after what was handed
 * out early is complete. Before memory is handed out, and before something unknown is.
 */
void order_heed_doubt(void);

/* Why there is no early reuse, for the dump; NULL: there is. */
const char *order_why_off(void);
