/* SPDX-License-Identifier: MIT */
#include "tests/sim/sim_internal.h"

#include <stdlib.h>

/*
 * Events. What an event names is a record: one recording of it, or the coverage of a context.
 * A wait keeps the record that the event named when it was submitted.
 */

struct record *
record_new(void)
{
	struct record *record = calloc(1, sizeof(*record));

	if (record) {
		record->refs = 1;
		record->id = ++sim.next_id;
	}
	return record;
}

struct record *
record_get(struct record *record)
{
	record->refs++;
	return record;
}

void
record_put(struct record *record)
{
	if (!record || --record->refs > 0)
		return;
	if (record->capture)
		capture_put(record->capture);
	node_set_clear(&record->waits);
	clock_fini(&record->clock);
	free(record);
}

void
record_complete(struct record *record)
{
	record->is_complete = true;
	record->op = NULL;
	record->complete_ns = sim.clock_ns;
}

/* What has to complete before the record is, NULL when it is complete. */
struct op *
record_blocker(void *arg)
{
	struct record *record = arg;
	struct op *op;

	if (record->is_complete)
		return NULL;
	if (!record->cover)
		return record->op;
	op = exec_context_blocker(record->cover, record->owner, record->seq);
	if (!op)
		record_complete(record);
	return op;
}

bool
record_is_complete(struct record *record)
{
	record_blocker(record);
	return record->is_complete;
}

/* The host has been told that it is complete. */
void
record_show(const struct record *record)
{
	if (sim.check)
		order_show(&record->clock);
}

CUresult
cuEventCreate(CUevent *ret_event, unsigned int flags)
{
	CUresult r = sim_enter(E_cuEventCreate, NEED_CONTEXT);
	struct CUevent_st *event;

	if (r != CUDA_SUCCESS)
		return r;
	if (!ret_event ||
	    flags > (CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS))
		return sim_leave(CUDA_ERROR_INVALID_VALUE);
	event = calloc(1, sizeof(*event));
	if (!event || handle_add(event, HANDLE_EVENT) != CUDA_SUCCESS) {
		free(event);
		return sim_leave(CUDA_ERROR_OUT_OF_MEMORY);
	}
	event->ctx = ctx_current_root();
	event->n_ends = event->ctx->n_ends;
	event->flags = flags;
	*ret_event = event;
	return sim_leave(CUDA_SUCCESS);
}

/* An event ends with its context; its handle may still be destroyed. */
static CUresult
check_event(const struct CUevent_st *event)
{
	if (!handle_is(event, HANDLE_EVENT))
		return CUDA_ERROR_INVALID_HANDLE;
	return event->n_ends == event->ctx->n_ends ? CUDA_SUCCESS : CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

static CUresult
destroy(enum entry_id e, CUevent event)
{
	CUresult r = sim_enter(e, NEED_INIT);

	if (r != CUDA_SUCCESS)
		return r;
	if (!handle_is(event, HANDLE_EVENT))
		return sim_leave(CUDA_ERROR_INVALID_HANDLE);
	handle_remove(event);
	record_put(event->record);
	free(event);
	return sim_leave(CUDA_SUCCESS);
}

CUresult
cuEventDestroy(CUevent event)
{
	return destroy(E_cuEventDestroy, event);
}

CUresult
cuEventDestroy_v2(CUevent event)
{
	return destroy(E_cuEventDestroy_v2, event);
}

static CUresult
record_in_stream(enum entry_id e, CUevent event, CUstream handle, unsigned flags)
{
	CUresult r = sim_enter(e, NEED_CONTEXT);
	struct CUstream_st *s;
	struct record *record;
	struct op *op;

	if (r != CUDA_SUCCESS)
		return r;
	r = check_event(event);
	if (r != CUDA_SUCCESS)
		return sim_leave(r);
	r = stream_resolve(e, handle, &s);
	if (r != CUDA_SUCCESS)
		return sim_leave(r);
	if (event->ctx != s->ctx)
		return sim_leave(CUDA_ERROR_INVALID_HANDLE);
	op = op_new(CUSIM_OP_EVENT_RECORD);
	record = op ? record_new() : NULL;
	if (!record) {
		op_free(op);
		return sim_leave(CUDA_ERROR_OUT_OF_MEMORY);
	}
	if (s->capture && flags == CU_EVENT_RECORD_EXTERNAL) {
		record_put(record);
		op->event = event;
		return sim_leave(exec_submit(s, op));
	}
	op->made = record_get(record);
	r = exec_submit(s, op);
	if (r != CUDA_SUCCESS) {
		record_put(record);
		return sim_leave(r);
	}
	record_put(event->record);
	event->record = record;
	return sim_leave(CUDA_SUCCESS);
}

SIM_PAIR(cuEventRecord, _ptsz, (CUevent event, CUstream stream), record_in_stream, event, stream, 0)
SIM_PAIR(cuEventRecordWithFlags, _ptsz, (CUevent event, CUstream stream, unsigned int flags),
	 record_in_stream, event, stream, flags)

/* Covers all streams of the context (of a green one: only its own) and orders nothing. */
static CUresult
record_context(CUcontext ctx, CUevent event)
{
	CUresult r = check_event(event);
	struct record *record;

	if (r != CUDA_SUCCESS)
		return r;
	if (!ctx_is_known(ctx) || !ctx->is_alive)
		return CUDA_ERROR_INVALID_CONTEXT;
	if (ctx->root->sticky != CUDA_SUCCESS)
		return ctx->root->sticky;
	if (event->ctx != ctx->root)
		return CUDA_ERROR_INVALID_HANDLE;
	if (capture_invalidate_context(ctx->root))
		return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	record = record_new();
	if (!record)
		return CUDA_ERROR_OUT_OF_MEMORY;
	record->cover = ctx->root;
	record->owner = ctx == ctx->root ? NULL : ctx;
	record->seq = sim.seq;
	if (sim.check)
		order_of_context(record->cover, record->owner, &record->clock);
	record_put(event->record);
	event->record = record;
	sim.report.n_ctx_records++;
	report_mark(CUSIM_OP_CTX_RECORD, ctx, NULL, record->id, 0, 0);
	return CUDA_SUCCESS;
}

CUresult
cuCtxRecordEvent(CUcontext ctx, CUevent event)
{
	CUresult r = sim_enter(E_cuCtxRecordEvent, ctx ? NEED_INIT : NEED_CONTEXT);

	return r != CUDA_SUCCESS ? r : sim_leave(record_context(ctx ? ctx : ctx_current(), event));
}

CUresult
cuGreenCtxRecordEvent(CUgreenCtx green, CUevent event)
{
	CUresult r = sim_enter(E_cuGreenCtxRecordEvent, NEED_INIT);

	if (r != CUDA_SUCCESS)
		return r;
	if (!handle_is(green, HANDLE_GREEN))
		return sim_leave(CUDA_ERROR_INVALID_HANDLE);
	return sim_leave(record_context(green->ctx, event));
}

/* Every stream of the context waits for the event before what it is given from now on. */
CUresult
cuCtxWaitEvent(CUcontext ctx, CUevent event)
{
	CUresult r = sim_enter(E_cuCtxWaitEvent, ctx ? NEED_INIT : NEED_CONTEXT);
	struct op *op;

	if (r != CUDA_SUCCESS)
		return r;
	if (!ctx)
		ctx = ctx_current();
	r = check_event(event);
	if (r != CUDA_SUCCESS)
		return sim_leave(r);
	if (!ctx_is_known(ctx) || !ctx->is_alive)
		return sim_leave(CUDA_ERROR_INVALID_CONTEXT);
	if (capture_invalidate_context(ctx->root))
		return sim_leave(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	for (struct CUstream_st *s = ctx->root->streams; event->record && s; s = s->next) {
		if (s->is_destroyed || (ctx != ctx->root && s->owner != ctx))
			continue;
		op = op_new(CUSIM_OP_EVENT_WAIT);
		if (!op)
			return sim_leave(CUDA_ERROR_OUT_OF_MEMORY);
		op->waited = record_get(event->record);
		exec_enqueue(s, op);
	}
	return sim_leave(CUDA_SUCCESS);
}

/* Query and synchronise: refused for captured events, unsafe while a capture is open. */
static CUresult
check_capture(const struct CUevent_st *event)
{
	if (event->record && event->record->capture) {
		if (!event->record->capture->is_over)
			capture_invalidate(event->record->capture);
		return CUDA_ERROR_CAPTURED_EVENT;
	}
	return capture_check_unsafe();
}

CUresult
cuEventQuery(CUevent event)
{
	CUresult r = sim_enter(E_cuEventQuery, NEED_INIT);

	if (r != CUDA_SUCCESS)
		return r;
	r = check_event(event);
	if (r != CUDA_SUCCESS)
		return sim_leave(r);
	r = check_capture(event);
	if (r == CUDA_SUCCESS)
		r = event->ctx->sticky;
	if (r != CUDA_SUCCESS || !event->record)
		return sim_leave(r);
	if (!record_is_complete(event->record))
		return sim_leave(CUDA_ERROR_NOT_READY);
	record_show(event->record);
	report_mark(CUSIM_OP_SYNC_EVENT, event->ctx, NULL, event->record->id, 0, 0);
	return sim_leave(CUDA_SUCCESS);
}

CUresult
cuEventSynchronize(CUevent event)
{
	CUresult r = sim_enter(E_cuEventSynchronize, NEED_INIT);
	struct CUctx_st *ctx;
	struct record *record;

	if (r != CUDA_SUCCESS)
		return r;
	r = check_event(event);
	if (r != CUDA_SUCCESS)
		return sim_leave(r);
	r = check_capture(event);
	if (r == CUDA_SUCCESS)
		r = event->ctx->sticky;
	if (r != CUDA_SUCCESS || !event->record)
		return sim_leave(r);
	ctx = event->ctx;
	record = record_get(event->record);
	exec_wait(record_blocker, record);
	record_show(record);
	report_mark(CUSIM_OP_SYNC_EVENT, ctx, NULL, record->id, 0, 0);
	record_put(record);
	return sim_leave(ctx->sticky);
}

static CUresult
elapsed(enum entry_id e, float *ret_ms, CUevent start, CUevent end)
{
	CUresult r = sim_enter(e, NEED_INIT);

	if (r != CUDA_SUCCESS)
		return r;
	if (!ret_ms)
		return sim_leave(CUDA_ERROR_INVALID_VALUE);
	if (!handle_is(start, HANDLE_EVENT) || !handle_is(end, HANDLE_EVENT))
		return sim_leave(CUDA_ERROR_INVALID_HANDLE);
	if (!start->record || !end->record ||
	    ((start->flags | end->flags) & CU_EVENT_DISABLE_TIMING))
		return sim_leave(CUDA_ERROR_INVALID_HANDLE);
	if (!record_is_complete(start->record) || !record_is_complete(end->record))
		return sim_leave(CUDA_ERROR_NOT_READY);
	record_show(start->record);
	record_show(end->record);
	*ret_ms = (float)((double)end->record->complete_ns - (double)start->record->complete_ns) /
		  1e6f;
	return sim_leave(CUDA_SUCCESS);
}

CUresult
cuEventElapsedTime(float *ms, CUevent start, CUevent end)
{
	return elapsed(E_cuEventElapsedTime, ms, start, end);
}

CUresult
cuEventElapsedTime_v2(float *ms, CUevent start, CUevent end)
{
	return elapsed(E_cuEventElapsedTime_v2, ms, start, end);
}
