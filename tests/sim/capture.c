/* SPDX-License-Identifier: MIT */
#include "tests/sim/sim_internal.h"

#include <stdlib.h>

/*
 * Stream capture. A capture belongs to a context; streams join it by waiting for an event that was
 * recorded inside it, and must be waited for again before it ends. What may be called meanwhile
 * depends on the mode the capture began with and on the calling thread's own mode:
 *   global        unsafe calls of any thread fail;
 *   thread-local  those of the thread that began it;
 *   relaxed       none.
 * An unsafe call fails with 900 and makes the captures that forbade it invalid.
 */

static void
detach_streams(const struct capture *capture)
{
	for (struct CUstream_st *s = capture->ctx->streams; s; s = s->next) {
		if (s->capture == capture) {
			s->capture = NULL;
			s->capture_last = NULL;
			node_set_clear(&s->capture_waits);
		}
	}
}

void
capture_put(struct capture *capture)
{
	if (--capture->refs == 0)
		free(capture);
}

void
capture_invalidate(struct capture *capture)
{
	if (capture->is_invalid)
		return;
	capture->is_invalid = true;
	sim.report.n_invalidated++;
}

/* End it without a result: its origin, or its context, is gone. */
static void
drop(struct capture *capture)
{
	struct capture **link = &sim.captures;

	detach_streams(capture);
	while (*link != capture)
		link = &(*link)->next;
	*link = capture->next;
	capture->is_over = true;
}

static void
drop_graph(struct capture *capture)
{
	if (capture->is_own_graph)
		graph_unref(capture->graph);
	capture_put(capture);
}

void
capture_leave(struct CUstream_st *s)
{
	struct capture *capture = s->capture;

	if (!capture)
		return;
	capture_invalidate(capture);
	s->capture = NULL;
	if (s != capture->origin)
		return;
	drop(capture);
	drop_graph(capture);
}

/* True when the context had a capture open: all of them are invalid now. */
bool
capture_invalidate_context(struct CUctx_st *root)
{
	bool found = false;

	for (struct capture *c = sim.captures; c; c = c->next) {
		if (c->ctx != root)
			continue;
		found = true;
		capture_invalidate(c);
	}
	return found;
}

/* May the calling thread make a call that could break captures? */
CUresult
capture_check_unsafe(void)
{
	CUresult r = CUDA_SUCCESS;

	if (sim_thread.mode == CU_STREAM_CAPTURE_MODE_RELAXED)
		return CUDA_SUCCESS;
	for (struct capture *c = sim.captures; c; c = c->next) {
		bool is_own = c->thread == sim_thread_id();

		if (c->mode == CU_STREAM_CAPTURE_MODE_RELAXED ||
		    (c->mode == CU_STREAM_CAPTURE_MODE_THREAD_LOCAL && !is_own))
			continue;
		if (sim_thread.mode == CU_STREAM_CAPTURE_MODE_THREAD_LOCAL && !is_own)
			continue;
		capture_invalidate(c);
		r = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	}
	return r;
}

/* Work in the legacy stream would order itself against a blocking stream that captures. */
CUresult
capture_check_legacy(struct CUstream_st *s)
{
	CUresult r = CUDA_SUCCESS;

	for (struct CUstream_st *t = s->kind == STREAM_LEGACY && sim.captures ? s->ctx->streams
									      : NULL;
	     t; t = t->next) {
		if (t->capture && t->kind != STREAM_NON_BLOCKING) {
			capture_invalidate(t->capture);
			r = CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
		}
	}
	return r;
}

/* Takes op over. */
CUresult
capture_append(struct CUstream_st *s, struct op *op)
{
	struct capture *capture = s->capture;

	if (capture->is_invalid) {
		op_free(op);
		return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	}
	if (op->made) {
		/* An event recorded here only marks the newest node. */
		op->made->capture = capture;
		op->made->node = s->capture_last;
		node_set_join(&op->made->waits, &s->capture_waits);
		op->made->capture_stream = s;
		capture->refs++;
		op_free(op);
		return CUDA_SUCCESS;
	}
	graph_append(capture->graph, s, op);
	s->capture_last = capture->graph->last;
	s->capture_joined = false;
	return CUDA_SUCCESS;
}

/* A wait where the stream, the event or both are part of a capture. Takes op over. */
CUresult
capture_wait(struct CUstream_st *s, struct record *record, struct op *op)
{
	struct capture *capture = record->capture;
	CUresult r = CUDA_SUCCESS;

	if (!capture && s->capture) {
		/* In a capture only what was recorded in it, or is external, can be waited for. */
		capture_invalidate(s->capture);
		r = CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
	} else if (capture->is_over) {
		if (s->capture) {
			capture_invalidate(s->capture);
			r = CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
		}
	} else if (capture->is_invalid) {
		r = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	} else if (s->capture && s->capture != capture) {
		capture_invalidate(capture);
		capture_invalidate(s->capture);
		r = CUDA_ERROR_STREAM_CAPTURE_MERGE;
	} else if (s->kind == STREAM_LEGACY || s->ctx != capture->ctx) {
		capture_invalidate(capture);
		r = CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
	} else {
		if (!s->capture) {
			s->capture = capture;
			s->capture_last = record->node;
			node_set_clear(&s->capture_waits);
			s->capture_joined = false;
		} else if (record->node && record->node != s->capture_last) {
			node_set_add(&s->capture_waits, record->node);
		}
		node_set_join(&s->capture_waits, &record->waits);
		if (record->capture_stream != s && record->capture_stream->capture == capture &&
		    record->capture_stream->capture_last == record->node)
			record->capture_stream->capture_joined = true;
	}
	op_free(op);
	return r;
}

static CUresult
begin(enum entry_id e, CUstream handle, CUgraph graph, CUstreamCaptureMode mode)
{
	CUresult r = sim_enter(e, NEED_CONTEXT);
	struct capture *capture;
	struct CUstream_st *s;

	if (r != CUDA_SUCCESS)
		return r;
	if ((unsigned)mode > CU_STREAM_CAPTURE_MODE_RELAXED ||
	    (graph && !handle_is(graph, HANDLE_GRAPH)))
		return sim_leave(CUDA_ERROR_INVALID_VALUE);
	r = stream_resolve(e, handle, &s);
	if (r != CUDA_SUCCESS)
		return sim_leave(r);
	if (s->kind == STREAM_LEGACY)
		return sim_leave(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	if (s->capture) {
		capture_invalidate(s->capture);
		return sim_leave(CUDA_ERROR_ILLEGAL_STATE);
	}
	capture = calloc(1, sizeof(*capture));
	if (!capture)
		return sim_leave(CUDA_ERROR_OUT_OF_MEMORY);
	*capture = (struct capture){
		.next = sim.captures,
		.id = ++sim.next_id,
		.ctx = s->ctx,
		.origin = s,
		.mode = mode,
		.thread = sim_thread_id(),
		.is_own_graph = !graph,
		.graph = graph ? graph : graph_new(),
		.refs = 1,
	};
	if (!capture->graph) {
		free(capture);
		return sim_leave(CUDA_ERROR_OUT_OF_MEMORY);
	}
	sim.captures = capture;
	s->capture = capture;
	s->capture_last = NULL;
	node_set_clear(&s->capture_waits);
	return sim_leave(CUDA_SUCCESS);
}

SIM_PAIR(cuStreamBeginCapture, _ptsz, (CUstream s), begin, s, NULL, CU_STREAM_CAPTURE_MODE_GLOBAL)
SIM_PAIR(cuStreamBeginCapture_v2, _ptsz, (CUstream s, CUstreamCaptureMode mode), begin, s, NULL,
	 mode)
SIM_PAIR(cuStreamBeginCaptureToGraph, _ptsz,
	 (CUstream s, CUgraph graph, const CUgraphNode *deps __attribute__((unused)),
	  const CUgraphEdgeData *data __attribute__((unused)),
	  size_t n_deps __attribute__((unused)), CUstreamCaptureMode mode),
	 begin, s, graph, mode)

static bool
is_unjoined(const struct capture *capture)
{
	for (const struct CUstream_st *s = capture->ctx->streams; s; s = s->next) {
		if (s->capture == capture && s != capture->origin && !s->capture_joined)
			return true;
	}
	return false;
}

static CUresult
end(enum entry_id e, CUstream handle, CUgraph *ret_graph)
{
	CUresult r = sim_enter(e, NEED_CONTEXT);
	struct capture *capture;
	struct CUstream_st *s;

	if (r != CUDA_SUCCESS)
		return r;
	r = stream_resolve(e, handle, &s);
	if (r != CUDA_SUCCESS)
		return sim_leave(r);
	capture = s->capture;
	if (!ret_graph)
		return sim_leave(CUDA_ERROR_INVALID_VALUE);
	if (!capture)
		return sim_leave(CUDA_ERROR_ILLEGAL_STATE);
	if (capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED && capture->thread != sim_thread_id())
		return sim_leave(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
	if (s != capture->origin) {
		capture_invalidate(capture);
		return sim_leave(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
	}
	if (capture->is_invalid)
		r = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	else if (is_unjoined(capture))
		r = CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
	drop(capture);
	*ret_graph = r == CUDA_SUCCESS ? capture->graph : NULL;
	if (r != CUDA_SUCCESS)
		drop_graph(capture);
	else
		capture_put(capture);
	return sim_leave(r);
}

SIM_PAIR(cuStreamEndCapture, _ptsz, (CUstream s, CUgraph *graph), end, s, graph)

/* Asking about the legacy stream while a blocking one captures is an error that breaks nothing. */
static CUresult
status_of(const struct CUstream_st *s, CUstreamCaptureStatus *ret_status)
{
	for (const struct CUstream_st *t = s->ctx->streams; s->kind == STREAM_LEGACY && t;
	     t = t->next) {
		if (t->capture && t->kind != STREAM_NON_BLOCKING)
			return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
	}
	*ret_status = !s->capture              ? CU_STREAM_CAPTURE_STATUS_NONE
		      : s->capture->is_invalid ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
					       : CU_STREAM_CAPTURE_STATUS_ACTIVE;
	return CUDA_SUCCESS;
}

static CUresult
is_capturing(enum entry_id e, CUstream handle, CUstreamCaptureStatus *ret_status)
{
	CUresult r = sim_enter(e, NEED_CONTEXT);
	struct CUstream_st *s;

	if (r != CUDA_SUCCESS)
		return r;
	if (!ret_status)
		return sim_leave(CUDA_ERROR_INVALID_VALUE);
	r = stream_resolve(e, handle, &s);
	return sim_leave(r == CUDA_SUCCESS ? status_of(s, ret_status) : r);
}

SIM_PAIR(cuStreamIsCapturing, _ptsz, (CUstream s, CUstreamCaptureStatus *status), is_capturing, s,
	 status)

struct capture_info {
	CUstreamCaptureStatus *status;
	cuuint64_t *id;
	CUgraph *graph;
	const CUgraphNode **deps;
	const CUgraphEdgeData **data;
	size_t *n_deps;
};

static CUresult
get_info(enum entry_id e, CUstream handle, struct capture_info out)
{
	CUresult r = sim_enter(e, NEED_CONTEXT);
	struct CUstream_st *s;

	if (r != CUDA_SUCCESS)
		return r;
	if (!out.status)
		return sim_leave(CUDA_ERROR_INVALID_VALUE);
	r = stream_resolve(e, handle, &s);
	if (r == CUDA_SUCCESS)
		r = status_of(s, out.status);
	if (r != CUDA_SUCCESS || !s->capture || s->capture->is_invalid)
		return sim_leave(r);
	if (out.id)
		*out.id = s->capture->id;
	if (out.graph)
		*out.graph = s->capture->graph;
	if (out.data)
		*out.data = NULL;
	if (out.n_deps)
		*out.n_deps = s->capture_last ? 1 : 0;
	if (out.deps)
		*out.deps = s->capture_last ? (const CUgraphNode *)&s->capture_last : NULL;
	return sim_leave(CUDA_SUCCESS);
}

SIM_PAIR(cuStreamGetCaptureInfo, _ptsz, (CUstream s, CUstreamCaptureStatus *status, cuuint64_t *id),
	 get_info, s, (struct capture_info){status, id, NULL, NULL, NULL, NULL})

/* Written out: a parameter list of this form is too long for SIM_PAIR to read well. */
CUresult
cuStreamGetCaptureInfo_v2(CUstream s, CUstreamCaptureStatus *status, cuuint64_t *id, CUgraph *graph,
			  const CUgraphNode **deps, size_t *n_deps)
{
	return get_info(E_cuStreamGetCaptureInfo_v2, s,
			(struct capture_info){status, id, graph, deps, NULL, n_deps});
}

CUresult
cuStreamGetCaptureInfo_v2_ptsz(CUstream s, CUstreamCaptureStatus *status, cuuint64_t *id,
			       CUgraph *graph, const CUgraphNode **deps, size_t *n_deps)
{
	return get_info(E_cuStreamGetCaptureInfo_v2_ptsz, s,
			(struct capture_info){status, id, graph, deps, NULL, n_deps});
}

CUresult
cuStreamGetCaptureInfo_v3(CUstream s, CUstreamCaptureStatus *status, cuuint64_t *id, CUgraph *graph,
			  const CUgraphNode **deps, const CUgraphEdgeData **data, size_t *n_deps)
{
	return get_info(E_cuStreamGetCaptureInfo_v3, s,
			(struct capture_info){status, id, graph, deps, data, n_deps});
}

CUresult
cuStreamGetCaptureInfo_v3_ptsz(CUstream s, CUstreamCaptureStatus *status, cuuint64_t *id,
			       CUgraph *graph, const CUgraphNode **deps,
			       const CUgraphEdgeData **data, size_t *n_deps)
{
	return get_info(E_cuStreamGetCaptureInfo_v3_ptsz, s,
			(struct capture_info){status, id, graph, deps, data, n_deps});
}

CUresult
cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode)
{
	CUresult r = sim_enter(E_cuThreadExchangeStreamCaptureMode, NEED_INIT);
	CUstreamCaptureMode old = sim_thread.mode;

	if (r != CUDA_SUCCESS)
		return r;
	if (!mode || (unsigned)*mode > CU_STREAM_CAPTURE_MODE_RELAXED)
		return sim_leave(CUDA_ERROR_INVALID_VALUE);
	sim_thread.mode = *mode;
	*mode = old;
	return sim_leave(CUDA_SUCCESS);
}
