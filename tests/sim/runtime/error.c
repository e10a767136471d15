/* SPDX-License-Identifier: MIT */
/*
 * Error codes: the driver's and the runtime's have had the same numbers since CUDA 10.1; the last
 * error is the thread's.
 */
#include <stddef.h>

#include "tests/sim/runtime/runtime.h"

static _Thread_local cudaError_t last_error;

static const struct error_text {
	cudaError_t error;
	const char *name, *text;
} error_texts[] = {
#define TEXT(error, text) \
	{ \
		error, #error, text \
	}
	TEXT(cudaSuccess, "no error"),
	TEXT(cudaErrorInvalidValue, "invalid argument"),
	TEXT(cudaErrorMemoryAllocation, "out of memory"),
	TEXT(cudaErrorInitializationError, "initialization error"),
	TEXT(cudaErrorCudartUnloading, "driver shutting down"),
	TEXT(cudaErrorInvalidMemcpyDirection, "invalid copy direction for memcpy"),
	TEXT(cudaErrorInsufficientDriver,
	     "CUDA driver version is insufficient for CUDA runtime version"),
	TEXT(cudaErrorNoDevice, "no CUDA-capable device is detected"),
	TEXT(cudaErrorInvalidDevice, "invalid device ordinal"),
	TEXT(cudaErrorDeviceUninitialized, "invalid device context"),
	TEXT(cudaErrorInvalidResourceHandle, "invalid resource handle"),
	TEXT(cudaErrorSymbolNotFound, "named symbol not found"),
	TEXT(cudaErrorNotReady, "device not ready"),
	TEXT(cudaErrorIllegalAddress, "an illegal memory access was encountered"),
	TEXT(cudaErrorContextIsDestroyed, "context is destroyed"),
	TEXT(cudaErrorHostMemoryAlreadyRegistered,
	     "part or all of the requested memory range is already mapped"),
	TEXT(cudaErrorHostMemoryNotRegistered,
	     "pointer does not correspond to a registered memory region"),
	TEXT(cudaErrorLaunchFailure, "unspecified launch failure"),
	TEXT(cudaErrorNotPermitted, "operation not permitted"),
	TEXT(cudaErrorNotSupported, "operation not supported"),
	TEXT(cudaErrorStreamCaptureUnsupported, "operation not permitted when stream is capturing"),
	TEXT(cudaErrorStreamCaptureInvalidated,
	     "operation failed due to a previous error during capture"),
	TEXT(cudaErrorStreamCaptureUnjoined, "capturing stream has unjoined work"),
	TEXT(cudaErrorStreamCaptureImplicit,
	     "operation would make the legacy stream depend on a capturing blocking stream"),
	TEXT(cudaErrorUnknown, "unknown error"),
#undef TEXT
};

static const struct error_text *
find(cudaError_t error)
{
	for (size_t i = 0; i < sizeof(error_texts) / sizeof(error_texts[0]); i++) {
		if (error_texts[i].error == error)
			return &error_texts[i];
	}
	return NULL;
}

cudaError_t
runtime_record_error(cudaError_t error)
{
	if (error != cudaSuccess)
		last_error = error;
	return error;
}

cudaError_t
runtime_record(CUresult status)
{
	return runtime_record_error((cudaError_t)status);
}

RUNTIME_EXPORT cudaError_t
cudaGetLastError(void)
{
	cudaError_t error = last_error;

	last_error = cudaSuccess;
	return error;
}

RUNTIME_EXPORT cudaError_t
cudaPeekAtLastError(void)
{
	return last_error;
}

RUNTIME_EXPORT const char *
cudaGetErrorName(cudaError_t error)
{
	const struct error_text *found = find(error);

	return found ? found->name : "unrecognized error code";
}

RUNTIME_EXPORT const char *
cudaGetErrorString(cudaError_t error)
{
	const struct error_text *found = find(error);

	return found ? found->text : "unrecognized error code";
}
