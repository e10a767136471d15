/* SPDX-License-Identifier: MIT */
/*
 * Copies and fills: the direction chooses the driver function, as in NVIDIA's runtime.
 */
#include <stddef.h>
#include <stdint.h>

#include "tests/sim/runtime/runtime.h"

static CUdeviceptr
device(const void *pointer)
{
	return (CUdeviceptr)(uintptr_t)pointer;
}

static cudaError_t
copy(bool is_per_thread, void *dst, const void *src, size_t n_bytes, enum cudaMemcpyKind kind)
{
	switch (kind) {
	case cudaMemcpyHostToDevice:
		return RUNTIME_CALL(BODY(is_per_thread, cuMemcpyHtoD_v2, _ptds), device(dst), src,
				    n_bytes);
	case cudaMemcpyDeviceToHost:
		return RUNTIME_CALL(BODY(is_per_thread, cuMemcpyDtoH_v2, _ptds), dst, device(src),
				    n_bytes);
	case cudaMemcpyDeviceToDevice:
		return RUNTIME_CALL(BODY(is_per_thread, cuMemcpyDtoD_v2, _ptds), device(dst),
				    device(src), n_bytes);
	case cudaMemcpyHostToHost:
	case cudaMemcpyDefault:
		return RUNTIME_CALL(BODY(is_per_thread, cuMemcpy, _ptds), device(dst), device(src),
				    n_bytes);
	}
	return runtime_record_error(cudaErrorInvalidMemcpyDirection);
}

static cudaError_t
copy_async(bool is_per_thread, void *dst, const void *src, size_t n_bytes, enum cudaMemcpyKind kind,
	   cudaStream_t stream)
{
	switch (kind) {
	case cudaMemcpyHostToDevice:
		return RUNTIME_CALL(BODY(is_per_thread, cuMemcpyHtoDAsync_v2, _ptsz), device(dst),
				    src, n_bytes, stream);
	case cudaMemcpyDeviceToHost:
		return RUNTIME_CALL(BODY(is_per_thread, cuMemcpyDtoHAsync_v2, _ptsz), dst,
				    device(src), n_bytes, stream);
	case cudaMemcpyDeviceToDevice:
		return RUNTIME_CALL(BODY(is_per_thread, cuMemcpyDtoDAsync_v2, _ptsz), device(dst),
				    device(src), n_bytes, stream);
	case cudaMemcpyHostToHost:
	case cudaMemcpyDefault:
		return RUNTIME_CALL(BODY(is_per_thread, cuMemcpyAsync, _ptsz), device(dst),
				    device(src), n_bytes, stream);
	}
	return runtime_record_error(cudaErrorInvalidMemcpyDirection);
}

RUNTIME_EXPORT cudaError_t
cudaMemcpy(void *dst, const void *src, size_t n_bytes, enum cudaMemcpyKind kind)
{
	return copy(false, dst, src, n_bytes, kind);
}

RUNTIME_EXPORT cudaError_t
cudaMemcpy_ptds(void *dst, const void *src, size_t n_bytes, enum cudaMemcpyKind kind)
{
	return copy(true, dst, src, n_bytes, kind);
}

RUNTIME_EXPORT cudaError_t
cudaMemcpyAsync(void *dst, const void *src, size_t n_bytes, enum cudaMemcpyKind kind,
		cudaStream_t stream)
{
	return copy_async(false, dst, src, n_bytes, kind, stream);
}

RUNTIME_EXPORT cudaError_t
cudaMemcpyAsync_ptsz(void *dst, const void *src, size_t n_bytes, enum cudaMemcpyKind kind,
		     cudaStream_t stream)
{
	return copy_async(true, dst, src, n_bytes, kind, stream);
}

RUNTIME_EXPORT cudaError_t
cudaMemset(void *dst, int value, size_t n_bytes)
{
	return RUNTIME_CALL(driver.cuMemsetD8_v2, device(dst), (unsigned char)value, n_bytes);
}

RUNTIME_EXPORT cudaError_t
cudaMemset_ptds(void *dst, int value, size_t n_bytes)
{
	return RUNTIME_CALL(driver.cuMemsetD8_v2_ptds, device(dst), (unsigned char)value, n_bytes);
}

RUNTIME_EXPORT cudaError_t
cudaMemsetAsync(void *dst, int value, size_t n_bytes, cudaStream_t stream)
{
	return RUNTIME_CALL(driver.cuMemsetD8Async, device(dst), (unsigned char)value, n_bytes,
			    stream);
}

RUNTIME_EXPORT cudaError_t
cudaMemsetAsync_ptsz(void *dst, int value, size_t n_bytes, cudaStream_t stream)
{
	return RUNTIME_CALL(driver.cuMemsetD8Async_ptsz, device(dst), (unsigned char)value, n_bytes,
			    stream);
}
