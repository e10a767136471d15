/* SPDX-License-Identifier: MIT */
#include "shim/visible.h"

#include "pool/thread.h"
#include "shim/context.h"
#include "shim/init.h"
#include "shim/managed.h"

void
visible_init(struct visible *visible)
{
	pthread_mutex_init(&visible->lock, NULL);
}

void
visible_reset(struct visible *visible)
{
	thread_lock(&visible->lock);
	for (size_t i = 0; i < VISIBLE_N_OPS; i++)
		visible->ops[i].event = NULL;
	atomic_store(&visible->n_ops, 0);
	atomic_store(&visible->n_settled, atomic_load(&visible->n_unrecorded));
	thread_unlock(&visible->lock);
}

bool
visible_is_host(CUdeviceptr addr)
{
	CUmemorytype type;
	enum heap_kind kind;

	if (pool_kind_at(&context_pool, addr, &kind))
		return kind == HEAP_HOST;
	if (real.cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, addr) !=
	    CUDA_SUCCESS)
		return true; /* pageable memory, or unknown */
	return type == CU_MEMORYTYPE_HOST || managed_is_held();
}

static bool
record(struct context *context, CUstream stream, enum hook_stream0 stream0,
       struct visible_op *ret_op)
{
	struct visible_op op = {
		.generation = atomic_load_explicit(&context->generation, memory_order_acquire)};
	CUresult r;

	if (stream0 == HOOK_STREAM0_PER_THREAD && !real.cuEventRecord_ptsz)
		return false;
	if (backend_event_get(context, &op.event) != CUDA_SUCCESS)
		return false;
	r = stream0 == HOOK_STREAM0_PER_THREAD ? real.cuEventRecord_ptsz(op.event, stream)
					       : real.cuEventRecord(op.event, stream);
	if (r != CUDA_SUCCESS) {
		backend_event_put(context, op.event, op.generation);
		return false;
	}
	*ret_op = op;
	return true;
}

/* False: no slot is free. */
static bool
keep(struct visible *visible, struct visible_op op)
{
	bool is_kept = false;

	thread_lock(&visible->lock);
	for (size_t i = 0; i < VISIBLE_N_OPS && !is_kept; i++) {
		if (visible->ops[i].event)
			continue;
		op.serial = visible->ops[i].serial + 1;
		visible->ops[i] = op;
		atomic_fetch_add(&visible->n_ops, 1);
		is_kept = true;
	}
	thread_unlock(&visible->lock);
	return is_kept;
}

/* An operation that is done leaves with its last user. The lock is held. */
static void
settle_locked(struct context *context, size_t i)
{
	struct visible *visible = &context->visible;
	struct visible_op *op = &visible->ops[i];

	if (!op->event || !op->is_done || op->n_users > 0)
		return;
	backend_event_put(context, op->event, op->generation);
	op->event = NULL;
	atomic_fetch_sub(&visible->n_ops, 1);
}

/* Use operation i. False: there is nothing to ask. */
static bool
enter_op(struct visible *visible, size_t i, struct visible_op *ret_op)
{
	bool is_open;

	thread_lock(&visible->lock);
	is_open = visible->ops[i].event && !visible->ops[i].is_done;
	if (is_open) {
		visible->ops[i].n_users++;
		*ret_op = visible->ops[i];
	}
	thread_unlock(&visible->lock);
	return is_open;
}

/* The slot may be another operation's by now, of the next context. */
static void
leave_op(struct context *context, size_t i, const struct visible_op *op, bool is_done)
{
	struct visible *visible = &context->visible;

	thread_lock(&visible->lock);
	if (visible->ops[i].event && visible->ops[i].serial == op->serial) {
		visible->ops[i].n_users--;
		visible->ops[i].is_done |= is_done;
		settle_locked(context, i);
	}
	thread_unlock(&visible->lock);
}

/* Free the slots of operations that are complete. */
static void
sweep(struct context *context)
{
	for (size_t i = 0; i < VISIBLE_N_OPS; i++) {
		struct visible_op op;

		if (enter_op(&context->visible, i, &op))
			leave_op(context, i, &op,
				 backend_query_event(op.event) != CUDA_ERROR_NOT_READY);
	}
}

void
visible_note(CUstream stream, enum hook_stream0 stream0)
{
	struct context *context = init_is_active() ? context_of_stream(stream) : NULL;
	const struct stream_handle handle = {stream, stream0};
	enum backend_capture answer;
	struct visible_op op;

	if (!context)
		return;
	answer = backend_ask_capture(&handle);
	if (answer == BACKEND_STREAM_CAPTURES)
		return; /* nothing runs now; the graph's launch is noted */
	if (answer == BACKEND_STREAM_RUNS && record(context, stream, stream0, &op)) {
		if (keep(&context->visible, op))
			return;
		sweep(context);
		if (keep(&context->visible, op))
			return;
		backend_event_put(context, op.event, op.generation);
	}
	atomic_fetch_add(&context->visible.n_unrecorded, 1);
}

static void
wait_for_ops(struct context *context)
{
	for (size_t i = 0; i < VISIBLE_N_OPS; i++) {
		struct visible_op op;

		if (!enter_op(&context->visible, i, &op))
			continue;
		/* An error is sticky, and the program's next call gets it from the driver. */
		backend_await_event(op.event);
		leave_op(context, i, &op, true);
	}
}

/* All calls noted up to n are complete; another thread may have got further. */
static void
settle_unrecorded(struct visible *visible, unsigned n)
{
	unsigned settled = atomic_load(&visible->n_settled);

	while ((int)(n - settled) > 0 &&
	       !atomic_compare_exchange_weak(&visible->n_settled, &settled, n))
		;
}

static bool
must_wait_for_all(const struct context *context, unsigned n_unrecorded)
{
	return n_unrecorded != atomic_load(&context->visible.n_settled) || !backend_has_fences() ||
	       context->device->reads_pageable || managed_is_held();
}

bool
visible_wait(struct context *context)
{
	struct visible *visible = &context->visible;
	const unsigned n_unrecorded = atomic_load(&visible->n_unrecorded);
	const bool is_for_all = must_wait_for_all(context, n_unrecorded);
	struct stats *stats = context->device->stats;
	bool is_complete = false;
	uint64_t begin_ns;

	if (!is_for_all && atomic_load(&visible->n_ops) == 0)
		return false;
	begin_ns = backend_now_ns();
	if (is_for_all) {
		is_complete = backend_wait_for_context(context);
		if (is_complete)
			settle_unrecorded(visible, n_unrecorded);
	}
	/* While a capture is open only what has an event of its own can be waited for. */
	if (!is_complete)
		wait_for_ops(context);
	stats_count(&stats->free_wait_count, 1);
	stats_count(&stats->free_wait_ns, backend_now_ns() - begin_ns);
	return is_complete;
}
