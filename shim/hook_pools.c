/* SPDX-License-Identifier: MIT */
/*
 * The driver's memory pools: the default one of a device answers for what is served here in its
 * name, too.
 */
#include "shim/async.h"
#include "shim/context.h"
#include "shim/hooks.h"
#include "shim/init.h"
#include "shim/seen.h"

CUresult
cuDeviceSetMemPool(CUdevice dev, CUmemoryPool pool)
{
	CUresult r;

	hooks_ready();
	r = real.cuDeviceSetMemPool(dev, pool);
	async_forget_current();
	return r;
}

CUresult
cuMemSetMemPool(CUmemLocation *location, CUmemAllocationType type, CUmemoryPool pool)
{
	CUresult r;

	hooks_ready();
	r = real.cuMemSetMemPool(location, type, pool);
	async_forget_current();
	return r;
}

/* In place of a pool that is gone the default one is current. */
CUresult
cuMemPoolDestroy(CUmemoryPool pool)
{
	CUresult r;

	hooks_ready();
	r = real.cuMemPoolDestroy(pool);
	async_forget_current();
	return r;
}

static bool
is_for_others(const CUmemAccessDesc *map, size_t n, int device)
{
	for (size_t i = 0; i < n; i++)
		if (map[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
		    map[i].location.id != device)
			return true;
	return false;
}

CUresult
cuMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc *map, size_t count)
{
	const struct device *device;
	CUresult r;

	hooks_ready();
	r = real.cuMemPoolSetAccess(pool, map, count);
	device = r == CUDA_SUCCESS ? async_find_device(pool) : NULL;
	if (device && is_for_others(map, count, device->index))
		async_leave(device);
	return r;
}

CUresult
cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attr, void *value)
{
	const struct device *device;
	struct async_bytes bytes;
	CUresult r;

	hooks_ready();
	r = real.cuMemPoolGetAttribute(pool, attr, value);
	device = r == CUDA_SUCCESS ? async_find_device(pool) : NULL;
	if (!device)
		return r;
	bytes = async_read(device);
	if (attr == CU_MEMPOOL_ATTR_USED_MEM_CURRENT)
		*(cuuint64_t *)value += bytes.used;
	else if (attr == CU_MEMPOOL_ATTR_USED_MEM_HIGH)
		*(cuuint64_t *)value += bytes.peak_used;
	else if (attr == CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT)
		*(cuuint64_t *)value += bytes.reserved;
	else if (attr == CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH)
		*(cuuint64_t *)value += bytes.peak_reserved;
	return r;
}

/*
 * The attributes that forbid reuse across streams forbid nothing that is done here: what another
 * stream freed is complete before it is handed out, and nobody waits for it.
 */
CUresult
cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attr, void *value)
{
	struct device *device;
	CUresult r;

	hooks_ready();
	r = real.cuMemPoolSetAttribute(pool, attr, value);
	device = r == CUDA_SUCCESS ? async_find_device(pool) : NULL;
	if (device && attr == CU_MEMPOOL_ATTR_USED_MEM_HIGH)
		async_reset_peak_used(device);
	else if (device && attr == CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH)
		async_reset_peak_reserved(device);
	return r;
}

CUresult
cuMemPoolTrimTo(CUmemoryPool pool, size_t minBytesToKeep)
{
	struct device *device;
	CUresult r;

	hooks_ready();
	r = real.cuMemPoolTrimTo(pool, minBytesToKeep);
	device = r == CUDA_SUCCESS ? async_find_device(pool) : NULL;
	if (device)
		async_trim(device, minBytesToKeep);
	return r;
}

/* The driver has no handle for what is served here, so what comes next is the driver's. */
CUresult
cuMemPoolExportPointer(CUmemPoolPtrExportData *shareData_out, CUdeviceptr ptr)
{
	struct seen seen;

	hooks_ready();
	seen_at(ptr, &seen);
	if (seen.kind == SEEN_BLOCK && seen.info.is_async)
		async_leave(((const struct context *)seen.info.owner)->device);
	return real.cuMemPoolExportPointer(shareData_out, ptr);
}
