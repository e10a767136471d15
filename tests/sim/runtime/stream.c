/* SPDX-License-Identifier: MIT */
/*
 * Streams, events, capture and graphs: one driver call each.
 */
#include "tests/sim/runtime/runtime.h"

RUNTIME_EXPORT cudaError_t
cudaStreamCreate(cudaStream_t *ret_stream)
{
	return RUNTIME_CALL(driver.cuStreamCreate, ret_stream, CU_STREAM_DEFAULT);
}

RUNTIME_EXPORT cudaError_t
cudaStreamCreateWithFlags(cudaStream_t *ret_stream, unsigned int flags)
{
	return RUNTIME_CALL(driver.cuStreamCreate, ret_stream, flags);
}

RUNTIME_EXPORT cudaError_t
cudaStreamDestroy(cudaStream_t stream)
{
	return RUNTIME_CALL(driver.cuStreamDestroy_v2, stream);
}

RUNTIME_EXPORT cudaError_t
cudaEventCreate(cudaEvent_t *ret_event)
{
	return RUNTIME_CALL(driver.cuEventCreate, ret_event, CU_EVENT_DEFAULT);
}

RUNTIME_EXPORT cudaError_t
cudaEventCreateWithFlags(cudaEvent_t *ret_event, unsigned int flags)
{
	return RUNTIME_CALL(driver.cuEventCreate, ret_event, flags);
}

RUNTIME_EXPORT cudaError_t
cudaEventQuery(cudaEvent_t event)
{
	return RUNTIME_CALL(driver.cuEventQuery, event);
}

RUNTIME_EXPORT cudaError_t
cudaEventSynchronize(cudaEvent_t event)
{
	return RUNTIME_CALL(driver.cuEventSynchronize, event);
}

RUNTIME_EXPORT cudaError_t
cudaEventDestroy(cudaEvent_t event)
{
	return RUNTIME_CALL(driver.cuEventDestroy_v2, event);
}

RUNTIME_EXPORT cudaError_t
cudaGraphInstantiate(cudaGraphExec_t *ret_exec, cudaGraph_t graph, unsigned long long flags)
{
	return RUNTIME_CALL(driver.cuGraphInstantiateWithFlags, ret_exec, graph, flags);
}

RUNTIME_EXPORT cudaError_t
cudaGraphExecDestroy(cudaGraphExec_t exec)
{
	return RUNTIME_CALL(driver.cuGraphExecDestroy, exec);
}

RUNTIME_EXPORT cudaError_t
cudaGraphDestroy(cudaGraph_t graph)
{
	return RUNTIME_CALL(driver.cuGraphDestroy, graph);
}

RUNTIME_EXPORT cudaError_t
cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode *mode)
{
	return RUNTIME_CALL(driver.cuThreadExchangeStreamCaptureMode, (CUstreamCaptureMode *)mode);
}

/* The calls with a stream, once for each meaning of stream 0. */
#define STREAM_CALLS(form) \
	RUNTIME_EXPORT cudaError_t cudaStreamSynchronize##form(cudaStream_t stream) \
	{ \
		return RUNTIME_CALL(driver.cuStreamSynchronize##form, stream); \
	} \
	RUNTIME_EXPORT cudaError_t cudaStreamQuery##form(cudaStream_t stream) \
	{ \
		return RUNTIME_CALL(driver.cuStreamQuery##form, stream); \
	} \
	RUNTIME_EXPORT cudaError_t cudaStreamWaitEvent##form( \
		cudaStream_t stream, cudaEvent_t event, unsigned int flags) \
	{ \
		return RUNTIME_CALL(driver.cuStreamWaitEvent##form, stream, event, flags); \
	} \
	RUNTIME_EXPORT cudaError_t cudaEventRecord##form(cudaEvent_t event, cudaStream_t stream) \
	{ \
		return RUNTIME_CALL(driver.cuEventRecord##form, event, stream); \
	} \
	RUNTIME_EXPORT cudaError_t cudaLaunchHostFunc##form(cudaStream_t stream, \
							    cudaHostFn_t function, void *data) \
	{ \
		return RUNTIME_CALL(driver.cuLaunchHostFunc##form, stream, function, data); \
	} \
	RUNTIME_EXPORT cudaError_t cudaStreamBeginCapture##form(cudaStream_t stream, \
								enum cudaStreamCaptureMode mode) \
	{ \
		return RUNTIME_CALL(driver.cuStreamBeginCapture_v2##form, stream, \
				    (CUstreamCaptureMode)mode); \
	} \
	RUNTIME_EXPORT cudaError_t cudaStreamEndCapture##form(cudaStream_t stream, \
							      cudaGraph_t *ret_graph) \
	{ \
		return RUNTIME_CALL(driver.cuStreamEndCapture##form, stream, ret_graph); \
	} \
	RUNTIME_EXPORT cudaError_t cudaStreamIsCapturing##form( \
		cudaStream_t stream, enum cudaStreamCaptureStatus *ret_status) \
	{ \
		return RUNTIME_CALL(driver.cuStreamIsCapturing##form, stream, \
				    (CUstreamCaptureStatus *)ret_status); \
	} \
	RUNTIME_EXPORT cudaError_t cudaGraphLaunch##form(cudaGraphExec_t exec, \
							 cudaStream_t stream) \
	{ \
		return RUNTIME_CALL(driver.cuGraphLaunch##form, exec, stream); \
	}

STREAM_CALLS()
STREAM_CALLS(_ptsz)
