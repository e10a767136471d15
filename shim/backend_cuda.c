/* SPDX-License-Identifier: MIT */
#include "shim/backend_cuda.h"

#include <sched.h>
#include <stdlib.h>
#include <time.h>

#include "pool/thread.h"
#include "shim/context.h"
#include "shim/order.h"

/*
 * One event for each context that the fence covers. A context that is gone has no unfinished work.
 */
struct fence_part {
	CUevent event;
	struct context *context;
	unsigned generation;
	bool is_complete; /* only ever goes to true; several askers may set it */
};

struct fence {
	size_t n_parts, n_room;
	struct fence_part *parts;
	struct fence_part own; /* parts points here for a fence of one context */
};

static struct backend_cuda *
self_of(struct backend *backend)
{
	return (struct backend_cuda *)backend;
}

/* It says something of the moment, and nothing of the context. */
static bool
is_passing(CUresult status)
{
	return status == CUDA_ERROR_OUT_OF_MEMORY ||
	       (status >= CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED &&
		status <= CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
}

/*
 * What the pool is told of a status that is no answer to the question: the context is broken. Only
 * the memory's own context hands it on; a foreign one that is broken runs nothing any more, so it
 * is covered, and natively its error is not seen from here.
 */
static int
give_up(const struct context *own, struct context *context, CUresult status)
{
	context_break(context, status);
	return context == own ? -(int)status : BACKEND_OK;
}

static int
cuda_map(struct backend *backend, size_t size_bytes, uint64_t *ret_addr)
{
	struct backend_cuda *self = self_of(backend);
	CUdeviceptr addr = 0;
	void *host = NULL;
	CUresult r;

	switch (self->memory) {
	case BACKEND_DEVICE:
		r = real.cuMemAlloc_v2(&addr, size_bytes);
		break;
	case BACKEND_HOST_ALLOC:
		r = real.cuMemHostAlloc(&host, size_bytes, self->flags);
		break;
	default:
		r = real.cuMemAllocHost_v2(&host, size_bytes);
	}
	if (r == CUDA_ERROR_OUT_OF_MEMORY)
		return BACKEND_E_NO_MEMORY;
	if (r != CUDA_SUCCESS)
		return -(int)r;
	*ret_addr = self->memory == BACKEND_DEVICE ? addr : (uint64_t)(uintptr_t)host;
	return BACKEND_OK;
}

static int
cuda_unmap(struct backend *backend, uint64_t addr, size_t size_bytes)
{
	struct backend_cuda *self = self_of(backend);
	struct context_scope scope;
	CUresult r;

	(void)size_bytes;
	if (!capture_enter_call(&self->context->gate))
		return BACKEND_E_BUSY;
	r = context_enter(atomic_load(&self->context->handle), &scope);
	if (r == CUDA_SUCCESS) {
		r = self->memory == BACKEND_DEVICE ? real.cuMemFree_v2(addr)
						   : real.cuMemFreeHost((void *)(uintptr_t)addr);
		context_leave(&scope);
	}
	capture_leave_call(&self->context->gate);
	return -(int)r;
}

/* Without cuCtxRecordEvent: wait for everything, so that there is nothing left to record. */
static CUresult
synchronize(struct context *context)
{
	struct context_scope scope;
	CUresult r = context_enter(atomic_load(&context->handle), &scope);

	if (r != CUDA_SUCCESS)
		return r;
	r = real.cuCtxSynchronize();
	context_leave(&scope);
	return r;
}

/* The gate is entered. */
static CUresult
record_part(struct context *context, struct fence_part *part)
{
	CUresult r;

	part->context = context;
	part->generation = atomic_load_explicit(&context->generation, memory_order_acquire);
	part->is_complete = false;
	if (!backend_has_fences()) {
		part->is_complete = true;
		part->event = NULL;
		return synchronize(context);
	}
	r = backend_event_get(context, &part->event);
	if (r != CUDA_SUCCESS)
		return r;
	r = real.cuCtxRecordEvent(atomic_load(&context->handle), part->event);
	if (r != CUDA_SUCCESS)
		backend_event_put(context, part->event, part->generation);
	return r;
}

static bool
has_room(struct fence *fence)
{
	struct fence_part *parts;

	if (fence->n_parts < fence->n_room)
		return true;
	parts = realloc(fence->parts == &fence->own ? NULL : fence->parts,
			(fence->n_room + 8) * sizeof(*parts));
	if (!parts)
		return false;
	if (fence->parts == &fence->own)
		parts[0] = fence->own;
	fence->parts = parts;
	fence->n_room += 8;
	return true;
}

struct covering {
	struct fence *fence;
	const struct context *own; /* of the memory */
};

/* BACKEND_OK, BACKEND_E_BUSY or a status. */
static int
cover(struct context *context, void *arg)
{
	const struct covering *covering = arg;
	struct fence *fence = covering->fence;
	CUresult r;

	/* A broken context runs nothing any more. */
	if (atomic_load_explicit(&context->broken, memory_order_relaxed))
		return BACKEND_OK;
	if (!has_room(fence) || !capture_enter_call(&context->gate))
		return BACKEND_E_BUSY;
	if (!atomic_load(&context->handle)) { /* gone since it was listed */
		capture_leave_call(&context->gate);
		return BACKEND_OK;
	}
	r = record_part(context, &fence->parts[fence->n_parts]);
	capture_leave_call(&context->gate);
	if (r == CUDA_SUCCESS) {
		fence->n_parts++;
		return BACKEND_OK;
	}
	if (is_passing(r))
		return BACKEND_E_BUSY;
	return give_up(covering->own, context, r);
}

static void
cuda_fence_free(struct backend *backend, struct fence *fence)
{
	(void)backend;
	for (size_t i = 0; i < fence->n_parts; i++) {
		struct fence_part *part = &fence->parts[i];

		if (part->event)
			backend_event_put(part->context, part->event, part->generation);
	}
	if (fence->parts != &fence->own)
		free(fence->parts);
	free(fence);
}

static int
cuda_fence_record(struct backend *backend, bool is_wide, struct fence **ret_fence)
{
	struct context *context = self_of(backend)->context;
	struct fence *fence = calloc(1, sizeof(*fence));
	struct covering covering = {fence, context};
	int r;

	if (!fence)
		return BACKEND_E_BUSY;
	fence->parts = &fence->own;
	fence->n_room = 1;
	if (atomic_load_explicit(&context->broken, memory_order_relaxed))
		r = -atomic_load_explicit(&context->broken, memory_order_relaxed);
	else
		r = is_wide ? context_for_each(cover, &covering) : cover(context, &covering);
	if (r != BACKEND_OK) {
		cuda_fence_free(backend, fence);
		return r;
	}
	*ret_fence = fence;
	return BACKEND_OK;
}

/*
 * A question about an event, or a free, breaks the captures that forbid it, of whatever context,
 * unless the thread's own mode is relaxed; so it is, for the length of the call.
 */
static CUstreamCaptureMode
relax(void)
{
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;

	if (real.cuThreadExchangeStreamCaptureMode)
		real.cuThreadExchangeStreamCaptureMode(&mode);
	return mode;
}

static void
put_back(CUstreamCaptureMode mode)
{
	if (real.cuThreadExchangeStreamCaptureMode)
		real.cuThreadExchangeStreamCaptureMode(&mode);
}

CUresult
backend_query_event(CUevent event)
{
	const CUstreamCaptureMode mode = relax();
	CUresult r = real.cuEventQuery(event);

	put_back(mode);
	return r;
}

static int
query_part(const struct context *own, struct fence_part *part)
{
	struct context *context = part->context;
	struct context_scope scope;
	CUresult r;

	if (__atomic_load_n(&part->is_complete, __ATOMIC_RELAXED))
		return BACKEND_OK;
	if (context != own && atomic_load_explicit(&context->broken, memory_order_relaxed))
		return BACKEND_OK;
	if (!capture_enter_call(&context->gate))
		return BACKEND_E_BUSY;
	/* Inside the gate: the context cannot go away between this look and the query. */
	r = CUDA_SUCCESS;
	if (atomic_load_explicit(&context->generation, memory_order_acquire) == part->generation) {
		r = context_enter(atomic_load(&context->handle), &scope);
		if (r == CUDA_SUCCESS) {
			r = backend_query_event(part->event);
			context_leave(&scope);
		}
	}
	capture_leave_call(&context->gate);
	if (r == CUDA_ERROR_NOT_READY)
		return BACKEND_E_NOT_READY;
	if (is_passing(r))
		return BACKEND_E_BUSY;
	if (r != CUDA_SUCCESS)
		return give_up(own, context, r);
	__atomic_store_n(&part->is_complete, true, __ATOMIC_RELAXED);
	return BACKEND_OK;
}

static int
cuda_fence_query(struct backend *backend, struct fence *fence)
{
	for (size_t i = 0; i < fence->n_parts; i++) {
		int r = query_part(self_of(backend)->context, &fence->parts[i]);

		if (r != BACKEND_OK)
			return r;
	}
	return BACKEND_OK;
}

enum backend_capture
backend_ask_capture(const struct stream_handle *stream)
{
	CUstreamCaptureStatus status;
	CUresult r;

	if (!capture_is_open())
		return BACKEND_STREAM_RUNS;
	if (!real.cuStreamIsCapturing || !real.cuStreamIsCapturing_ptsz)
		return BACKEND_STREAM_UNKNOWN;
	r = stream->stream0 == HOOK_STREAM0_PER_THREAD
		    ? real.cuStreamIsCapturing_ptsz(stream->stream, &status)
		    : real.cuStreamIsCapturing(stream->stream, &status);
	if (r != CUDA_SUCCESS)
		return BACKEND_STREAM_UNKNOWN;
	return status == CU_STREAM_CAPTURE_STATUS_NONE ? BACKEND_STREAM_RUNS
						       : BACKEND_STREAM_CAPTURES;
}

/* Edges are fences of one context. A stream that captures runs nothing now: the graph's launch is
 * the submission. */
static int
cuda_edge_wait(struct backend *backend, const struct stream_handle *stream, struct fence *fence)
{
	const struct fence_part *part = fence->parts;
	struct context *context = self_of(backend)->context;
	CUresult r;

	if (__atomic_load_n(&part->is_complete, __ATOMIC_RELAXED) ||
	    atomic_load_explicit(&context->generation, memory_order_acquire) != part->generation)
		return BACKEND_OK;
	if (backend_ask_capture(stream) == BACKEND_STREAM_CAPTURES)
		return BACKEND_E_BUSY;
	r = stream->stream0 == HOOK_STREAM0_PER_THREAD
		    ? real.cuStreamWaitEvent_ptsz(stream->stream, part->event, 0)
		    : real.cuStreamWaitEvent(stream->stream, part->event, 0);
	return -(int)r;
}

static void
cuda_look(struct backend *backend, void (*enter)(void *arg, struct order_stream stream), void *arg)
{
	(void)backend;
	order_look(enter, arg);
}

static uint64_t
cuda_n_submissions(struct backend *backend)
{
	(void)backend;
	return submit_n_submissions();
}

static uint64_t
cuda_n_begun(struct backend *backend)
{
	(void)backend;
	return submit_n_begun();
}

static uint64_t
cuda_coarse_ns(struct backend *backend)
{
	struct timespec now;

	(void)backend;
	clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

uint64_t
backend_now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static uint64_t
cuda_now_ns(struct backend *backend)
{
	(void)backend;
	return backend_now_ns();
}

static void
cuda_pause(struct backend *backend, unsigned n_tries)
{
	enum { N_SHORT = 64, LONG_NS = 50000 };
	const struct timespec a_while = {.tv_nsec = LONG_NS};
	int before, none;

	(void)backend;
	if (n_tries < N_SHORT) {
		sched_yield();
		return;
	}
	/* A thread that ended in here would leave its step open for ever; no driver call is a point
	 * of cancellation either. */
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
	nanosleep(&a_while, NULL);
	pthread_setcancelstate(before, &none);
}

static const struct backend_ops cuda_ops = {
	.map = cuda_map,
	.unmap = cuda_unmap,
	.fence_record = cuda_fence_record,
	.fence_query = cuda_fence_query,
	.fence_free = cuda_fence_free,
	.edge_wait = cuda_edge_wait,
	.look = cuda_look,
	.n_submissions = cuda_n_submissions,
	.n_begun = cuda_n_begun,
	.now_ns = cuda_now_ns,
	.coarse_ns = cuda_coarse_ns,
	.pause = cuda_pause,
};

void
backend_cuda_init(struct backend_cuda *backend, struct context *context, enum backend_memory memory,
		  unsigned flags)
{
	backend->base.ops = &cuda_ops;
	backend->context = context;
	backend->memory = memory;
	backend->flags = flags;
}

bool
backend_has_fences(void)
{
	return real.cuCtxRecordEvent != NULL;
}

CUresult
backend_await_event(CUevent event)
{
	const CUstreamCaptureMode mode = relax();
	CUresult r = real.cuEventSynchronize(event);

	put_back(mode);
	return r;
}

bool
backend_wait_for_context(struct context *context)
{
	struct backend_cuda backend;
	struct fence *fence;
	unsigned generation;
	CUresult r = CUDA_SUCCESS;

	generation = atomic_load_explicit(&context->generation, memory_order_acquire);
	backend_cuda_init(&backend, context, BACKEND_DEVICE, 0);
	if (cuda_fence_record(&backend.base, false, &fence) != BACKEND_OK)
		return false;
	if (fence->n_parts > 0 && !fence->parts[0].is_complete)
		r = backend_await_event(fence->parts[0].event);
	cuda_fence_free(&backend.base, fence);
	/*
	 * A context that ended meanwhile took its event along; the next in its slot is not broken.
	 */
	if (r != CUDA_SUCCESS && !is_passing(r) &&
	    atomic_load_explicit(&context->generation, memory_order_acquire) == generation)
		context_break(context, r);
	return r == CUDA_SUCCESS;
}
