/* SPDX-License-Identifier: MIT */
/*
 * The cells' operations over the runtime that this file is linked with, by plain calls. Part of the
 * programs that link a runtime and of the plug-ins that bring one.
 */
#include "tests/preload/routes/cells/cell.h"

#include <cuda_runtime_api.h>
#include <string.h>

/* The bodies that nvcc --default-stream per-thread would call. */
cudaError_t cudaMallocAsync_ptsz(void **ret_ptr, size_t n_bytes, cudaStream_t stream);
cudaError_t cudaFreeAsync_ptsz(void *ptr, cudaStream_t stream);

static struct cell_driver driver;

static void *
find_by_runtime(const char *symbol, const char *query, int version)
{
	enum cudaDriverEntryPointQueryResult result;
	void *found = NULL;

	(void)symbol;
	if (query[0])
		cudaGetDriverEntryPointByVersion(query, &found, (unsigned int)version,
						 cudaEnableDefault, &result);
	return found;
}

static int
start(void)
{
	cell_fill_driver(&driver, find_by_runtime);
	return (int)cudaSetDevice(0);
}

static int
synchronize(void)
{
	return (int)cudaDeviceSynchronize();
}

static int
device_alloc(void **ret_ptr, size_t n_bytes)
{
	return (int)cudaMalloc(ret_ptr, n_bytes);
}

static int
device_free(void *ptr)
{
	return (int)cudaFree(ptr);
}

static int
host_alloc_with_flags(void **ret_ptr, size_t n_bytes)
{
	return (int)cudaHostAlloc(ret_ptr, n_bytes, cudaHostAllocPortable);
}

static int
host_alloc(void **ret_ptr, size_t n_bytes)
{
	return (int)cudaMallocHost(ret_ptr, n_bytes);
}

static int
host_free(void *ptr)
{
	return (int)cudaFreeHost(ptr);
}

static int
async_alloc(void **ret_ptr, size_t n_bytes)
{
	return (int)cudaMallocAsync(ret_ptr, n_bytes, NULL);
}

static int
async_alloc_ptsz(void **ret_ptr, size_t n_bytes)
{
	return (int)cudaMallocAsync_ptsz(ret_ptr, n_bytes, NULL);
}

static int
async_free(void *ptr)
{
	return (int)cudaFreeAsync(ptr, NULL);
}

static int
async_free_ptsz(void *ptr)
{
	return (int)cudaFreeAsync_ptsz(ptr, NULL);
}

static int
pitch_alloc(void **ret_ptr, size_t *ret_pitch, size_t width_bytes, size_t height)
{
	return (int)cudaMallocPitch(ret_ptr, ret_pitch, width_bytes, height);
}

static int
pitch_alloc_3d(void **ret_ptr, size_t *ret_pitch, size_t width_bytes, size_t height)
{
	const struct cudaExtent extent = {.width = width_bytes, .height = height, .depth = 1};
	struct cudaPitchedPtr pitched = {0};
	int r = (int)cudaMalloc3D(&pitched, extent);

	*ret_ptr = pitched.ptr;
	*ret_pitch = pitched.pitch;
	return r;
}

static int
managed_alloc(void **ret_ptr, size_t n_bytes)
{
	return (int)cudaMallocManaged(ret_ptr, n_bytes, cudaMemAttachGlobal);
}

static int
array_create(enum cell_array form, struct cell_extent extent, void **ret_array)
{
	const struct cudaChannelFormatDesc format = {32, 32, 32, 32, cudaChannelFormatKindFloat};
	const struct cudaExtent size = {extent.width, extent.height, extent.depth};

	switch (form) {
	case CELL_ARRAY_PLAIN:
		return (int)cudaMallocArray((cudaArray_t *)ret_array, &format, extent.width,
					    extent.height, cudaArrayDefault);
	case CELL_ARRAY_3D:
		return (int)cudaMalloc3DArray((cudaArray_t *)ret_array, &format, size,
					      cudaArrayDefault);
	default:
		return (int)cudaMallocMipmappedArray((cudaMipmappedArray_t *)ret_array, &format,
						     size, 3, cudaArrayDefault);
	}
}

static int
array_destroy(enum cell_array form, void *array)
{
	if (form == CELL_ARRAY_MIPMAPPED)
		return (int)cudaFreeMipmappedArray(array);
	return (int)cudaFreeArray(array);
}

static int
last_error(void)
{
	return (int)cudaGetLastError();
}

static int
fill(void *ptr, int byte, size_t n_bytes)
{
	return (int)cudaMemset(ptr, byte, n_bytes);
}

static int
read_back(void *host, const void *ptr, size_t n_bytes)
{
	return (int)cudaMemcpy(host, ptr, n_bytes, cudaMemcpyDefault);
}

static int
memory_info(size_t *ret_free_bytes, size_t *ret_total_bytes)
{
	return (int)cudaMemGetInfo(ret_free_bytes, ret_total_bytes);
}

static int
pointer_facts(const void *ptr, struct cell_pointer_facts *ret_facts)
{
	struct cudaPointerAttributes attributes = {0};
	int r = (int)cudaPointerGetAttributes(&attributes, ptr);

	ret_facts->type = (unsigned int)attributes.type;
	ret_facts->device = attributes.device;
	ret_facts->is_managed = attributes.type == cudaMemoryTypeManaged;
	return r;
}

int
cell_plugin_version(void)
{
	int version = 0;

	cudaRuntimeGetVersion(&version);
	return version;
}

const struct cell_ops *
cell_plugin_ops(void)
{
	static const struct cell_ops ops = {
		.start = start,
		.synchronize = synchronize,
		.device_alloc = device_alloc,
		.device_free = device_free,
		.host_alloc = {host_alloc_with_flags, host_alloc},
		.host_free = host_free,
		.async_alloc = {async_alloc, async_alloc_ptsz},
		.async_free = {async_free, async_free_ptsz},
		.pitch_alloc = {pitch_alloc, pitch_alloc_3d},
		.managed_alloc = managed_alloc,
		.array_create = array_create,
		.array_destroy = array_destroy,
		.fill = fill,
		.read = read_back,
		.memory_info = memory_info,
		.last_error = last_error,
		.pointer_facts = pointer_facts,
		.driver = &driver,
	};

	return &ops;
}
