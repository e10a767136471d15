/* SPDX-License-Identifier: MIT */
/*
 * The driver's functions as pointers: how a look-up fills them, and the cells' operations over
 * them.
 */
#include "tests/preload/routes/cells/cell.h"

#include <stdint.h>
#include <string.h>

static const struct row {
	const char *symbol, *query;
	int version;
	size_t offset;
} rows[] = {
#define CELL_DRIVER(symbol, query, version, kind) \
	{#symbol, query, version, offsetof(struct cell_driver, symbol)},
#include "tests/preload/routes/cells/cell_driver.def"
#undef CELL_DRIVER
};

enum {
	N_ROWS = sizeof(rows) / sizeof(rows[0]),
};

void
cell_fill_driver(struct cell_driver *driver, cell_find_fn *find)
{
	for (size_t i = 0; i < N_ROWS; i++) {
		void *found = find(rows[i].symbol, rows[i].query, rows[i].version);

		memcpy((char *)driver + rows[i].offset, &found, sizeof(found));
	}
}

static const struct cell_driver *driver;

static int
start(void)
{
	CUcontext context = NULL;
	CUdevice device = 0;
	int r = (int)driver->cuInit(0);

	if (!r)
		r = (int)driver->cuDeviceGet(&device, 0);
	if (!r)
		r = (int)driver->cuDevicePrimaryCtxRetain(&context, device);
	return r ? r : (int)driver->cuCtxSetCurrent(context);
}

static int
synchronize(void)
{
	int r = (int)driver->cuStreamSynchronize(CU_STREAM_LEGACY);

	return r ? r : (int)driver->cuStreamSynchronize(CU_STREAM_PER_THREAD);
}

static int
device_alloc(void **ret_ptr, size_t n_bytes)
{
	return (int)driver->cuMemAlloc_v2((CUdeviceptr *)ret_ptr, n_bytes);
}

static int
device_free(void *ptr)
{
	return (int)driver->cuMemFree_v2((CUdeviceptr)(uintptr_t)ptr);
}

static int
host_alloc_with_flags(void **ret_ptr, size_t n_bytes)
{
	return (int)driver->cuMemHostAlloc(ret_ptr, n_bytes, CU_MEMHOSTALLOC_PORTABLE);
}

static int
host_alloc(void **ret_ptr, size_t n_bytes)
{
	return (int)driver->cuMemAllocHost_v2(ret_ptr, n_bytes);
}

static int
host_free(void *ptr)
{
	return (int)driver->cuMemFreeHost(ptr);
}

static int
async_alloc(void **ret_ptr, size_t n_bytes)
{
	return (int)driver->cuMemAllocAsync((CUdeviceptr *)ret_ptr, n_bytes, NULL);
}

static int
async_alloc_ptsz(void **ret_ptr, size_t n_bytes)
{
	return (int)driver->cuMemAllocAsync_ptsz((CUdeviceptr *)ret_ptr, n_bytes, NULL);
}

static int
async_free(void *ptr)
{
	return (int)driver->cuMemFreeAsync((CUdeviceptr)(uintptr_t)ptr, NULL);
}

static int
async_free_ptsz(void *ptr)
{
	return (int)driver->cuMemFreeAsync_ptsz((CUdeviceptr)(uintptr_t)ptr, NULL);
}

static int
pitch_alloc(void **ret_ptr, size_t *ret_pitch, size_t width_bytes, size_t height)
{
	return (int)driver->cuMemAllocPitch_v2((CUdeviceptr *)ret_ptr, ret_pitch, width_bytes,
					       height, 4);
}

static int
managed_alloc(void **ret_ptr, size_t n_bytes)
{
	return (int)driver->cuMemAllocManaged((CUdeviceptr *)ret_ptr, n_bytes,
					      CU_MEM_ATTACH_GLOBAL);
}

static int
array_create(enum cell_array form, struct cell_extent extent, void **ret_array)
{
	const CUDA_ARRAY_DESCRIPTOR flat = {
		.Width = extent.width,
		.Height = extent.height,
		.Format = CU_AD_FORMAT_FLOAT,
		.NumChannels = 4,
	};
	const CUDA_ARRAY3D_DESCRIPTOR deep = {
		.Width = extent.width,
		.Height = extent.height,
		.Depth = extent.depth,
		.Format = CU_AD_FORMAT_FLOAT,
		.NumChannels = 4,
	};

	switch (form) {
	case CELL_ARRAY_PLAIN:
		return (int)driver->cuArrayCreate_v2((CUarray *)ret_array, &flat);
	case CELL_ARRAY_3D:
		return (int)driver->cuArray3DCreate_v2((CUarray *)ret_array, &deep);
	default:
		return (int)driver->cuMipmappedArrayCreate((CUmipmappedArray *)ret_array, &deep, 3);
	}
}

static int
array_destroy(enum cell_array form, void *array)
{
	if (form == CELL_ARRAY_MIPMAPPED)
		return (int)driver->cuMipmappedArrayDestroy(array);
	return (int)driver->cuArrayDestroy(array);
}

static int
fill(void *ptr, int byte, size_t n_bytes)
{
	return (int)driver->cuMemsetD8_v2((CUdeviceptr)(uintptr_t)ptr, (unsigned char)byte,
					  n_bytes);
}

static int
read_back(void *host, const void *ptr, size_t n_bytes)
{
	return (int)driver->cuMemcpyDtoH_v2(host, (CUdeviceptr)(uintptr_t)ptr, n_bytes);
}

static int
memory_info(size_t *ret_free_bytes, size_t *ret_total_bytes)
{
	return (int)driver->cuMemGetInfo_v2(ret_free_bytes, ret_total_bytes);
}

static int
pointer_facts(const void *ptr, struct cell_pointer_facts *ret_facts)
{
	unsigned int is_managed = 0;
	CUpointer_attribute names[] = {CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
				       CU_POINTER_ATTRIBUTE_IS_MANAGED};
	void *values[] = {&ret_facts->device, &is_managed};
	int r = (int)driver->cuPointerGetAttribute(
		&ret_facts->type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, (CUdeviceptr)(uintptr_t)ptr);

	if (!r)
		r = (int)driver->cuPointerGetAttributes(2, names, values,
							(CUdeviceptr)(uintptr_t)ptr);
	ret_facts->is_managed = is_managed;
	return r;
}

struct cell_ops
cell_ops_of_driver(const struct cell_driver *found)
{
	const bool has_both = found->cuMemAllocAsync_ptsz && found->cuMemFreeAsync_ptsz;

	driver = found;
	return (struct cell_ops){
		.start = start,
		.synchronize = synchronize,
		.device_alloc = device_alloc,
		.device_free = device_free,
		.host_alloc = {host_alloc_with_flags, host_alloc},
		.host_free = host_free,
		.async_alloc = {async_alloc, has_both ? async_alloc_ptsz : NULL},
		.async_free = {async_free, has_both ? async_free_ptsz : NULL},
		.pitch_alloc = {pitch_alloc, NULL},
		.managed_alloc = managed_alloc,
		.array_create = array_create,
		.array_destroy = array_destroy,
		.fill = fill,
		.read = read_back,
		.memory_info = memory_info,
		.pointer_facts = pointer_facts,
		.driver = found,
	};
}
