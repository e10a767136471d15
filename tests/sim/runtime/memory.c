/* SPDX-License-Identifier: MIT */
/*
 * Allocation, free and what can be asked of a pointer: one driver call each.
 *
 * Size 0 succeeds with a null pointer and no driver call; a request that fails sets the pointer to
 * NULL.
 */
#include <stddef.h>
#include <stdint.h>

#include "tests/sim/runtime/runtime.h"

static cudaError_t
give(cudaError_t error, const CUdeviceptr *address, void **ret_pointer)
{
	*ret_pointer = error ? NULL : (void *)(uintptr_t)*address;
	return error;
}

RUNTIME_EXPORT cudaError_t
cudaMalloc(void **ret_pointer, size_t size)
{
	CUdeviceptr address = 0;

	if (!ret_pointer)
		return runtime_record_error(cudaErrorInvalidValue);
	if (!size)
		return give(runtime_enter(), &address, ret_pointer);
	return give(RUNTIME_CALL(driver.cuMemAlloc_v2, &address, size), &address, ret_pointer);
}

RUNTIME_EXPORT cudaError_t
cudaFree(void *pointer)
{
	return RUNTIME_CALL(driver.cuMemFree_v2, (CUdeviceptr)(uintptr_t)pointer);
}

RUNTIME_EXPORT cudaError_t
cudaMallocPitch(void **ret_pointer, size_t *ret_pitch, size_t width, size_t height)
{
	CUdeviceptr address = 0;

	if (!ret_pointer || !ret_pitch)
		return runtime_record_error(cudaErrorInvalidValue);
	if (!width || !height) {
		*ret_pitch = 0;
		return give(runtime_enter(), &address, ret_pointer);
	}
	return give(RUNTIME_CALL(driver.cuMemAllocPitch_v2, &address, ret_pitch, width, height, 4),
		    &address, ret_pointer);
}

/* Layers lie one behind the other: a volume is depth times as many rows. */
RUNTIME_EXPORT cudaError_t
cudaMalloc3D(struct cudaPitchedPtr *ret_pitched, struct cudaExtent extent)
{
	cudaError_t error;
	void *pointer;
	size_t pitch;

	if (!ret_pitched)
		return runtime_record_error(cudaErrorInvalidValue);
	error = cudaMallocPitch(&pointer, &pitch, extent.width, extent.height * extent.depth);
	if (error)
		return error;
	*ret_pitched = (struct cudaPitchedPtr){
		.ptr = pointer,
		.pitch = pitch,
		.xsize = extent.width,
		.ysize = extent.height,
	};
	return cudaSuccess;
}

RUNTIME_EXPORT cudaError_t
cudaMallocManaged(void **ret_pointer, size_t size, unsigned int flags)
{
	CUdeviceptr address = 0;

	if (!ret_pointer)
		return runtime_record_error(cudaErrorInvalidValue);
	return give(RUNTIME_CALL(driver.cuMemAllocManaged, &address, size, flags), &address,
		    ret_pointer);
}

static cudaError_t
host_alloc(void **ret_pointer, size_t size, unsigned int flags)
{
	void *address = NULL;
	cudaError_t error;

	if (!ret_pointer)
		return runtime_record_error(cudaErrorInvalidValue);
	if (size)
		error = RUNTIME_CALL(driver.cuMemHostAlloc, &address, size, flags);
	else
		error = runtime_enter();
	*ret_pointer = error ? NULL : address;
	return error;
}

RUNTIME_EXPORT cudaError_t
cudaHostAlloc(void **ret_pointer, size_t size, unsigned int flags)
{
	return host_alloc(ret_pointer, size, flags);
}

RUNTIME_EXPORT cudaError_t
cudaMallocHost(void **ret_pointer, size_t size)
{
	return host_alloc(ret_pointer, size, cudaHostAllocDefault);
}

RUNTIME_EXPORT cudaError_t
cudaFreeHost(void *pointer)
{
	cudaError_t error = runtime_enter();

	if (error || !pointer)
		return error;
	return RUNTIME_CALL(driver.cuMemFreeHost, pointer);
}

RUNTIME_EXPORT cudaError_t
cudaHostRegister(void *pointer, size_t size, unsigned int flags)
{
	return RUNTIME_CALL(driver.cuMemHostRegister_v2, pointer, size, flags);
}

RUNTIME_EXPORT cudaError_t
cudaHostUnregister(void *pointer)
{
	return RUNTIME_CALL(driver.cuMemHostUnregister, pointer);
}

RUNTIME_EXPORT cudaError_t
cudaHostGetDevicePointer(void **ret_pointer, void *host, unsigned int flags)
{
	CUdeviceptr address = 0;

	if (!ret_pointer)
		return runtime_record_error(cudaErrorInvalidValue);
	return give(RUNTIME_CALL(driver.cuMemHostGetDevicePointer_v2, &address, host, flags),
		    &address, ret_pointer);
}

static cudaError_t
malloc_async(bool is_per_thread, void **ret_pointer, size_t size, cudaStream_t stream)
{
	CUdeviceptr address = 0;

	if (!ret_pointer)
		return runtime_record_error(cudaErrorInvalidValue);
	if (!size)
		return give(runtime_enter(), &address, ret_pointer);
	return give(
		RUNTIME_CALL(BODY(is_per_thread, cuMemAllocAsync, _ptsz), &address, size, stream),
		&address, ret_pointer);
}

static cudaError_t
free_async(bool is_per_thread, void *pointer, cudaStream_t stream)
{
	return RUNTIME_CALL(BODY(is_per_thread, cuMemFreeAsync, _ptsz),
			    (CUdeviceptr)(uintptr_t)pointer, stream);
}

RUNTIME_EXPORT cudaError_t
cudaMallocAsync(void **ret_pointer, size_t size, cudaStream_t stream)
{
	return malloc_async(false, ret_pointer, size, stream);
}

RUNTIME_EXPORT cudaError_t
cudaMallocAsync_ptsz(void **ret_pointer, size_t size, cudaStream_t stream)
{
	return malloc_async(true, ret_pointer, size, stream);
}

RUNTIME_EXPORT cudaError_t
cudaFreeAsync(void *pointer, cudaStream_t stream)
{
	return free_async(false, pointer, stream);
}

RUNTIME_EXPORT cudaError_t
cudaFreeAsync_ptsz(void *pointer, cudaStream_t stream)
{
	return free_async(true, pointer, stream);
}

RUNTIME_EXPORT cudaError_t
cudaMemGetInfo(size_t *ret_free_bytes, size_t *ret_total_bytes)
{
	return RUNTIME_CALL(driver.cuMemGetInfo_v2, ret_free_bytes, ret_total_bytes);
}

RUNTIME_EXPORT cudaError_t
cudaPointerGetAttributes(struct cudaPointerAttributes *attributes, const void *pointer)
{
	unsigned int memory_type = 0, is_managed = 0;
	int ordinal = -2;
	CUdeviceptr device_address = 0;
	void *host_address = NULL;
	CUpointer_attribute names[] = {
		CU_POINTER_ATTRIBUTE_MEMORY_TYPE,    CU_POINTER_ATTRIBUTE_IS_MANAGED,
		CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, CU_POINTER_ATTRIBUTE_DEVICE_POINTER,
		CU_POINTER_ATTRIBUTE_HOST_POINTER,
	};
	void *values[] = {&memory_type, &is_managed, &ordinal, &device_address, &host_address};
	cudaError_t error;

	if (!attributes)
		return runtime_record_error(cudaErrorInvalidValue);
	error = RUNTIME_CALL(driver.cuPointerGetAttributes, sizeof(names) / sizeof(names[0]), names,
			     values, (CUdeviceptr)(uintptr_t)pointer);
	if (error)
		return error;

	*attributes = (struct cudaPointerAttributes){
		.type = is_managed ? cudaMemoryTypeManaged : (enum cudaMemoryType)memory_type,
		.device = ordinal,
		.devicePointer = (void *)(uintptr_t)device_address,
		.hostPointer = host_address,
	};
	if (!memory_type) /* memory that CUDA does not know is the host's */
		attributes->hostPointer = (void *)(uintptr_t)pointer;
	return cudaSuccess;
}
