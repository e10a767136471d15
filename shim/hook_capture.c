/* SPDX-License-Identifier: MIT */
/*
 * Begin and end of capture, in all forms, and streams that are destroyed while they capture.
 */
#include "shim/context.h"
#include "shim/hooks.h"
#include "shim/init.h"
#include "shim/order.h"

/* A begin under way. */
struct begin {
	bool is_raised;
	struct context *context; /* NULL: not known, which stops fences all the same */
};

static struct begin
raise_for(CUstream stream)
{
	struct begin begin = {.is_raised = init_is_active()};

	if (begin.is_raised) {
		capture_raise();
		begin.context = context_of_stream(stream);
	}
	return begin;
}

static CUresult
after_begin(struct begin begin, CUstream stream, enum hook_stream0 stream0, CUresult r)
{
	if (begin.is_raised && r == CUDA_SUCCESS)
		capture_keep(begin.context, stream, stream0);
	else if (begin.is_raised)
		capture_lower();
	return r;
}

/* One row a driver function: its legacy and its per-thread body, which differ in nothing but what
 * stream 0 means. */
#define CAPTURE_BEGIN(name, suffix, stream0, parameters, arguments) \
	CUresult name##suffix parameters \
	{ \
		struct begin begin; \
\
		hooks_ready(); \
		begin = raise_for(hStream); \
		return after_begin(begin, hStream, stream0, real.name##suffix arguments); \
	}
#define CAPTURE_BEGIN_PAIR(name, parameters, arguments) \
	CAPTURE_BEGIN(name, , HOOK_STREAM0_LEGACY, parameters, arguments) \
	CAPTURE_BEGIN(name, _ptsz, HOOK_STREAM0_PER_THREAD, parameters, arguments)

CAPTURE_BEGIN_PAIR(cuStreamBeginCapture, (CUstream hStream), (hStream))
CAPTURE_BEGIN_PAIR(cuStreamBeginCapture_v2, (CUstream hStream, CUstreamCaptureMode mode),
		   (hStream, mode))
CAPTURE_BEGIN_PAIR(cuStreamBeginCaptureToGraph,
		   (CUstream hStream, CUgraph hGraph, const CUgraphNode *dependencies,
		    const CUgraphEdgeData *dependencyData, size_t numDependencies,
		    CUstreamCaptureMode mode),
		   (hStream, hGraph, dependencies, dependencyData, numDependencies, mode))

/* An end may fail and still end the capture (it was invalid), or not (another thread's): the stream
 * knows. */
static CUresult
after_capture_end(CUstream stream, enum hook_stream0 stream0, CUresult r)
{
	CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
	CUresult asked = CUDA_SUCCESS;

	if (!init_is_active())
		return r;
	if (stream0 == HOOK_STREAM0_PER_THREAD && real.cuStreamIsCapturing_ptsz)
		asked = real.cuStreamIsCapturing_ptsz(stream, &status);
	else if (real.cuStreamIsCapturing)
		asked = real.cuStreamIsCapturing(stream, &status);
	if (r == CUDA_SUCCESS || (asked == CUDA_SUCCESS && status == CU_STREAM_CAPTURE_STATUS_NONE))
		capture_end(context_of_stream(stream), stream, stream0);
	return r;
}

CUresult
cuStreamEndCapture(CUstream hStream, CUgraph *phGraph)
{
	hooks_ready();
	return after_capture_end(hStream, HOOK_STREAM0_LEGACY,
				 real.cuStreamEndCapture(hStream, phGraph));
}

CUresult
cuStreamEndCapture_ptsz(CUstream hStream, CUgraph *phGraph)
{
	hooks_ready();
	return after_capture_end(hStream, HOOK_STREAM0_PER_THREAD,
				 real.cuStreamEndCapture_ptsz(hStream, phGraph));
}

/* The handle means nothing after the call, so the context is looked up before it. */
static CUresult
destroy_stream(CUstream stream, CUresult (*real_destroy)(CUstream))
{
	const bool may_capture = init_is_active() && capture_is_open();
	struct context *context = may_capture ? context_of_stream(stream) : NULL;
	CUresult r;

	order_before_destroy(stream);
	r = real_destroy(stream);
	if (may_capture && r == CUDA_SUCCESS)
		capture_end(context, stream, HOOK_STREAM0_LEGACY);
	return r;
}

CUresult
cuStreamDestroy(CUstream hStream)
{
	hooks_ready();
	return destroy_stream(hStream, real.cuStreamDestroy);
}

CUresult
cuStreamDestroy_v2(CUstream hStream)
{
	hooks_ready();
	return destroy_stream(hStream, real.cuStreamDestroy_v2);
}
