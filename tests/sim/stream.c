/* SPDX-License-Identifier: MIT */
#include "tests/sim/sim_internal.h"

#include <stdlib.h>

/*
 * Streams: a queue of operations each. Handles 1 and 2 mean the legacy stream and the calling
 * thread's stream of the current context; 0 means one of the two, by the form of the function.
 */

struct CUstream_st *
stream_new(struct CUctx_st *owner, enum stream_kind kind, int priority)
{
	struct CUstream_st *s = calloc(1, sizeof(*s));

	if (!s)
		return NULL;
	if ((kind == STREAM_BLOCKING || kind == STREAM_NON_BLOCKING) &&
	    handle_add(s, HANDLE_STREAM) != CUDA_SUCCESS) {
		free(s);
		return NULL;
	}
	s->ctx = owner->root;
	s->owner = owner;
	s->kind = kind;
	s->priority = priority;
	s->id = ++sim.next_id;
	s->thread = sim_thread_id();
	s->next = owner->root->streams;
	owner->root->streams = s;
	return s;
}

void
stream_unref(struct CUstream_st *s)
{
	s->refs--;
	stream_free_if_idle(s);
}

/* A destroyed stream lives on until its last operation is complete. */
void
stream_free_if_idle(struct CUstream_st *s)
{
	struct CUstream_st **link = &s->ctx->streams;

	if (!s->is_destroyed || s->head || s->refs > 0)
		return;
	while (*link != s)
		link = &(*link)->next;
	*link = s->next;
	order_end_stream(s);
	node_set_clear(&s->capture_waits);
	free(s);
}

static CUresult
thread_stream(struct CUctx_st *owner, struct CUstream_st **ret_stream)
{
	for (struct CUstream_st *s = owner->root->streams; s; s = s->next) {
		if (s->kind == STREAM_THREAD && s->owner == owner && s->thread == sim_thread_id() &&
		    !s->is_destroyed) {
			*ret_stream = s;
			return CUDA_SUCCESS;
		}
	}
	*ret_stream = stream_new(owner, STREAM_THREAD, 0);
	return *ret_stream ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult
stream_resolve(enum entry_id e, CUstream handle, struct CUstream_st **ret_stream)
{
	struct CUctx_st *ctx = ctx_current();

	if (!handle)
		handle = entries[e].stream0 == STREAM0_THREAD ? CU_STREAM_PER_THREAD
							      : CU_STREAM_LEGACY;
	if (handle == CU_STREAM_LEGACY || handle == CU_STREAM_PER_THREAD) {
		if (!ctx)
			return CUDA_ERROR_INVALID_CONTEXT;
		if (handle == CU_STREAM_PER_THREAD)
			return thread_stream(ctx, ret_stream);
		*ret_stream = ctx->root->legacy;
		return CUDA_SUCCESS;
	}
	if (!handle_is(handle, HANDLE_STREAM))
		return CUDA_ERROR_INVALID_HANDLE;
	*ret_stream = handle;
	return CUDA_SUCCESS;
}

static CUresult
create(enum entry_id e, CUstream *ret_stream, unsigned flags, int priority)
{
	CUresult r = sim_enter(e, NEED_CONTEXT);

	if (r != CUDA_SUCCESS)
		return r;
	if (!ret_stream || flags > CU_STREAM_NON_BLOCKING)
		return sim_leave(CUDA_ERROR_INVALID_VALUE);
	*ret_stream = stream_new(
		ctx_current(),
		flags == CU_STREAM_NON_BLOCKING ? STREAM_NON_BLOCKING : STREAM_BLOCKING, priority);
	return sim_leave(*ret_stream ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY);
}

CUresult
cuStreamCreate(CUstream *stream, unsigned int flags)
{
	return create(E_cuStreamCreate, stream, flags, 0);
}

CUresult
cuStreamCreateWithPriority(CUstream *stream, unsigned int flags, int priority)
{
	return create(E_cuStreamCreateWithPriority, stream, flags, priority);
}

static CUresult
destroy(enum entry_id e, CUstream handle)
{
	CUresult r = sim_enter(e, NEED_INIT);

	if (r != CUDA_SUCCESS)
		return r;
	if (!handle_is(handle, HANDLE_STREAM))
		return sim_leave(CUDA_ERROR_INVALID_HANDLE);
	capture_leave(handle);
	handle->is_destroyed = true;
	handle_remove(handle);
	stream_free_if_idle(handle);
	return sim_leave(CUDA_SUCCESS);
}

CUresult
cuStreamDestroy(CUstream stream)
{
	return destroy(E_cuStreamDestroy, stream);
}

CUresult
cuStreamDestroy_v2(CUstream stream)
{
	return destroy(E_cuStreamDestroy_v2, stream);
}

/* A call that a capturing stream cannot serve ends the capture. */
static CUresult
check_not_capturing(struct CUstream_st *s)
{
	if (!s->capture)
		return capture_check_legacy(s);
	capture_invalidate(s->capture);
	return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

/* The newest of what the stream and, for the legacy stream, all blocking streams hold. */
static bool
is_busy(const struct CUstream_st *s)
{
	if (s->head)
		return true;
	for (const struct CUstream_st *t = s->ctx->streams; s->kind == STREAM_LEGACY && t;
	     t = t->next) {
		if (t->kind != STREAM_NON_BLOCKING && t->head)
			return true;
	}
	return false;
}

static CUresult
query(enum entry_id e, CUstream handle)
{
	CUresult r = sim_enter(e, NEED_CONTEXT);
	struct CUstream_st *s;

	if (r != CUDA_SUCCESS)
		return r;
	r = stream_resolve(e, handle, &s);
	if (r == CUDA_SUCCESS)
		r = check_not_capturing(s);
	if (r != CUDA_SUCCESS)
		return sim_leave(r);
	if (is_busy(s))
		return sim_leave(CUDA_ERROR_NOT_READY);
	exec_wait_stream(s, sim.seq); /* nothing to wait for: the host has been shown that */
	report_mark(CUSIM_OP_SYNC_STREAM, s->ctx, s, 0, 0, 0);
	return sim_leave(CUDA_SUCCESS);
}

SIM_PAIR(cuStreamQuery, _ptsz, (CUstream stream), query, stream)

/*
 * The legacy stream stands for all blocking streams of its context: waiting for it waits for what
 * they held when the call was made, which an empty operation in it expresses.
 */
static CUresult
synchronize(enum entry_id e, CUstream handle)
{
	CUresult r = sim_enter(e, NEED_CONTEXT);
	struct CUstream_st *s;

	if (r != CUDA_SUCCESS)
		return r;
	r = stream_resolve(e, handle, &s);
	if (r == CUDA_SUCCESS)
		r = check_not_capturing(s);
	if (r != CUDA_SUCCESS)
		return sim_leave(r);
	if (s->kind == STREAM_LEGACY && is_busy(s)) {
		struct op *op = op_new(CUSIM_OP_NOTHING);

		if (!op)
			return sim_leave(CUDA_ERROR_OUT_OF_MEMORY);
		exec_enqueue(s, op);
	}
	s->refs++;
	exec_wait_stream(s, sim.seq);
	report_mark(CUSIM_OP_SYNC_STREAM, s->ctx, s, 0, 0, 0);
	r = s->ctx->sticky;
	stream_unref(s);
	return sim_leave(r);
}

SIM_PAIR(cuStreamSynchronize, _ptsz, (CUstream stream), synchronize, stream)

static CUresult
wait_event(enum entry_id e, CUstream handle, CUevent event, unsigned flags)
{
	CUresult r = sim_enter(e, NEED_CONTEXT);
	struct CUstream_st *s;
	struct op *op;

	if (r != CUDA_SUCCESS)
		return r;
	r = stream_resolve(e, handle, &s);
	if (r != CUDA_SUCCESS)
		return sim_leave(r);
	if (!handle_is(event, HANDLE_EVENT))
		return sim_leave(CUDA_ERROR_INVALID_HANDLE);
	if (flags > CU_EVENT_WAIT_EXTERNAL)
		return sim_leave(CUDA_ERROR_INVALID_VALUE);
	if (!event->record && flags == 0)
		return sim_leave(CUDA_SUCCESS);
	op = op_new(CUSIM_OP_EVENT_WAIT);
	if (!op)
		return sim_leave(CUDA_ERROR_OUT_OF_MEMORY);
	if (flags == CU_EVENT_WAIT_EXTERNAL)
		op->event = event;
	else
		op->waited = record_get(event->record);
	if (op->waited && (op->waited->capture || s->capture))
		return sim_leave(capture_wait(s, op->waited, op));
	return sim_leave(exec_submit(s, op));
}

SIM_PAIR(cuStreamWaitEvent, _ptsz, (CUstream stream, CUevent event, unsigned int flags), wait_event,
	 stream, event, flags)
