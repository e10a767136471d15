/* SPDX-License-Identifier: MIT */
#include <pthread.h>

#include "tests/sim/test_sim.h"

/* Capture: what is refused, what makes a capture invalid, and that its graph does the work. */

static CUcontext ctx;

static CUstreamCaptureStatus
capture_status(CUstream s)
{
	CUstreamCaptureStatus now = CU_STREAM_CAPTURE_STATUS_NONE;

	cuStreamIsCapturing(s, &now);
	return now;
}

static bool
ends_with(CUstream s, CUresult want)
{
	CUgraph graph = NULL;
	CUresult r = cuStreamEndCapture(s, &graph);

	if (graph)
		cuGraphDestroy(graph);
	return r == want;
}

static const char *
mode_name(CUstreamCaptureMode mode)
{
	static const char *const names[] = {"global", "thread-local", "relaxed"};

	return names[mode];
}

static void
calls_by_mode(CUstreamCaptureMode mode)
{
	bool is_relaxed = mode == CU_STREAM_CAPTURE_MODE_RELAXED;
	CUresult want = is_relaxed ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	CUresult at_end = is_relaxed ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	CUstream s = new_stream(CU_STREAM_NON_BLOCKING), other = new_stream(CU_STREAM_NON_BLOCKING);
	CUstreamCaptureMode relaxed = CU_STREAM_CAPTURE_MODE_RELAXED;
	CUevent event = new_event();
	CUdeviceptr p;
	CUresult r;

	cuStreamBeginCapture_v2(s, mode);
	status(cuEventRecord(event, other), CUDA_SUCCESS, "another stream's event can be recorded");
	ok(capture_status(s) == CU_STREAM_CAPTURE_STATUS_ACTIVE, "%s: the capture goes on",
	   mode_name(mode));
	r = cuEventQuery(event);
	ok(is_relaxed ? r == CUDA_SUCCESS || r == CUDA_ERROR_NOT_READY : r == want,
	   "%s: querying it answers %d", mode_name(mode), r);
	ok(ends_with(s, at_end), "%s: and the capture is as that says", mode_name(mode));

	cuStreamBeginCapture_v2(s, mode);
	r = cuMemAlloc_v2(&p, 512);
	ok(r == want, "%s: an allocation answers %d", mode_name(mode), r);
	ok(ends_with(s, at_end), "%s: and the capture is as that says", mode_name(mode));
	if (is_relaxed)
		cuMemFree_v2(p);

	cuStreamBeginCapture_v2(s, mode);
	cuThreadExchangeStreamCaptureMode(&relaxed);
	ok(cuMemAlloc_v2(&p, 512) == CUDA_SUCCESS, "%s: a relaxed thread may allocate",
	   mode_name(mode));
	ok(cuCtxRecordEvent(ctx, event) == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
	   "%s: but not record the context's event", mode_name(mode));
	cuThreadExchangeStreamCaptureMode(&relaxed);
	ok(ends_with(s, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED),
	   "%s: which makes the capture invalid", mode_name(mode));
	status(cuMemFree_v2(p), CUDA_SUCCESS, "after the capture all is as before");
	cuStreamDestroy_v2(s);
	cuStreamDestroy_v2(other);
	cuEventDestroy_v2(event);
}

static void *
allocate(void *ret_r)
{
	CUdeviceptr p;

	cuCtxSetCurrent(ctx);
	*(CUresult *)ret_r = cuMemAlloc_v2(&p, 512);
	return NULL;
}

static CUresult
allocate_in_thread(void)
{
	CUresult r = CUDA_ERROR_UNKNOWN;
	pthread_t thread;

	pthread_create(&thread, NULL, allocate, &r);
	pthread_join(thread, NULL);
	return r;
}

static void
other_threads(void)
{
	CUstream s = new_stream(CU_STREAM_NON_BLOCKING);

	cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
	status(allocate_in_thread(), CUDA_SUCCESS,
	       "a thread-local capture lets other threads allocate");
	ok(ends_with(s, CUDA_SUCCESS), "and is none the worse");
	cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_GLOBAL);
	status(allocate_in_thread(), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
	       "a global one does not");
	ok(ends_with(s, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED), "and is invalid then");
	cuStreamDestroy_v2(s);
}

static void
refused_uses(void)
{
	CUstream s = new_stream(CU_STREAM_NON_BLOCKING), blocking = new_stream(CU_STREAM_DEFAULT);
	CUgraph graph;
	CUevent event = new_event();

	status(cuStreamEndCapture(s, &graph), CUDA_ERROR_ILLEGAL_STATE, "no capture to end");
	status(cuStreamBeginCapture_v2(NULL, 0), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
	       "the legacy stream cannot");
	cuStreamBeginCapture_v2(s, 0);
	status(cuStreamSynchronize(s), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
	       "a capturing stream is not waited for");
	status(spin(s, 0, 1), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED,
	       "an invalid capture takes no work");
	ok(capture_status(s) == CU_STREAM_CAPTURE_STATUS_INVALIDATED, "and says so");
	ok(ends_with(s, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED), "also at its end");
	cuStreamBeginCapture_v2(s, 0);
	cuEventRecord(event, s);
	status(cuEventQuery(event), CUDA_ERROR_CAPTURED_EVENT, "a captured event is not queried");
	ok(ends_with(s, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED),
	   "which the capture does not survive");
	cuStreamBeginCapture_v2(blocking, CU_STREAM_CAPTURE_MODE_RELAXED);
	status(spin(NULL, 0, 1), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT,
	       "the legacy stream would depend on a capture");
	ok(ends_with(blocking, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED), "which is invalid for that");
	cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_RELAXED);
	status(cuCtxSynchronize(), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
	       "the context cannot be waited for");
	cuStreamDestroy_v2(s);
	status(cuCtxSynchronize(), CUDA_SUCCESS, "a destroyed stream takes its capture along");
	cuStreamDestroy_v2(blocking);
	cuEventDestroy_v2(event);
}

static void
fork_and_join(void)
{
	CUstream a = new_stream(CU_STREAM_NON_BLOCKING), b = new_stream(CU_STREAM_NON_BLOCKING);
	CUevent fork_event = new_event(), join_event = new_event();
	CUgraph graph = NULL;

	cuStreamBeginCapture_v2(a, CU_STREAM_CAPTURE_MODE_GLOBAL);
	cuEventRecord(fork_event, a);
	status(cuStreamWaitEvent(b, fork_event, 0), CUDA_SUCCESS,
	       "a stream joins by waiting for a captured event");
	ok(capture_status(b) == CU_STREAM_CAPTURE_STATUS_ACTIVE, "and captures then");
	spin(b, 0, 1);
	status(cuStreamEndCapture(a, &graph), CUDA_ERROR_STREAM_CAPTURE_UNJOINED,
	       "it has to come back");
	ok(capture_status(b) == CU_STREAM_CAPTURE_STATUS_NONE, "the end frees all streams");
	cuStreamBeginCapture_v2(a, CU_STREAM_CAPTURE_MODE_GLOBAL);
	cuEventRecord(fork_event, a);
	cuStreamWaitEvent(b, fork_event, 0);
	spin(b, 0, 1);
	cuEventRecord(join_event, b);
	cuStreamWaitEvent(a, join_event, 0);
	status(cuStreamEndCapture(b, &graph), CUDA_ERROR_STREAM_CAPTURE_UNMATCHED,
	       "only the first stream may end it");
	ok(ends_with(a, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED), "and trying breaks it");
	cuStreamBeginCapture_v2(a, CU_STREAM_CAPTURE_MODE_GLOBAL);
	cuEventRecord(fork_event, a);
	cuStreamWaitEvent(b, fork_event, 0);
	spin(b, 0, 1);
	cuEventRecord(join_event, b);
	cuStreamWaitEvent(a, join_event, 0);
	ok(ends_with(a, CUDA_SUCCESS), "joined, it ends well");
	cuStreamDestroy_v2(a);
	cuStreamDestroy_v2(b);
	cuEventDestroy_v2(fork_event);
	cuEventDestroy_v2(join_event);
}

static void
graphs(void)
{
	CUstream s = new_stream(CU_STREAM_NON_BLOCKING);
	CUgraphExec exec;
	CUgraph graph;
	CUdeviceptr p, inside = 0;
	size_t n_nodes = 0;
	char *pinned;

	cuMemAlloc_v2(&p, 512);
	cuMemHostAlloc((void **)&pinned, 512, 0);
	cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_GLOBAL);
	fill(s, p, 9, 512);
	cuMemcpyDtoHAsync_v2(pinned, p, 512, s);
	status(cuMemAllocAsync(&inside, 512, s), CUDA_SUCCESS,
	       "memory can be allocated in a capture");
	fill(s, inside, 1, 512);
	status(cuMemFreeAsync(inside, s), CUDA_SUCCESS, "and freed in it");
	status(cuMemFreeAsync(p, s), CUDA_ERROR_INVALID_VALUE, "other memory cannot");
	status(cuStreamEndCapture(s, &graph), CUDA_SUCCESS, "the capture gives a graph");
	cuCtxSynchronize();
	cuGraphGetNodes(graph, NULL, &n_nodes);
	ok(n_nodes == 5, "of five nodes");
	ok(pinned[0] == 0, "nothing was run by that");
	status(cuGraphInstantiateWithFlags(&exec, graph, 0), CUDA_SUCCESS,
	       "it can be made executable");
	status(cuGraphLaunch(exec, s), CUDA_SUCCESS, "and launched");
	cuStreamSynchronize(s);
	ok(pinned[0] == 9 && pinned[511] == 9, "then its work is done");
	cuGraphLaunch(exec, s);
	cuGraphDestroy(graph);
	cuGraphLaunch(exec, s);
	cuStreamSynchronize(s);
	cuGraphExecDestroy(exec);
	status(cuMemFree_v2(inside), CUDA_ERROR_INVALID_VALUE, "the graph's memory ends with it");
	cuMemFree_v2(p);
	cuMemFreeHost(pinned);
	cuStreamDestroy_v2(s);
}

int
main(void)
{
	ctx = start(CUSIM_AUTO);
	for (int mode = CU_STREAM_CAPTURE_MODE_GLOBAL; mode <= CU_STREAM_CAPTURE_MODE_RELAXED;
	     mode++)
		calls_by_mode((CUstreamCaptureMode)mode);
	other_threads();
	refused_uses();
	fork_and_join();
	graphs();
	ok(cusim_violations() == 0, "no operation touched memory that was gone");
	return finish();
}
