/* SPDX-License-Identifier: MIT */
/*
 * Physical memory by handle: it is there until its last handle is released and its last mapping
 * unmapped, so both are followed.
 */
#include "shim/hooks.h"
#include "shim/outside.h"
#include "shim/serve.h"

CUresult
cuMemCreate(CUmemGenericAllocationHandle *handle, size_t size, const CUmemAllocationProp *prop,
	    unsigned long long flags)
{
	CUresult r;

	hooks_ready();
	r = real.cuMemCreate(handle, size, prop, flags);
	if (r == CUDA_ERROR_OUT_OF_MEMORY && serve_made_room())
		r = real.cuMemCreate(handle, size, prop, flags);
	if (outside_counts(r))
		outside_count_created(*handle, size, prop, HOOK_RETURN_ADDRESS());
	return r;
}

CUresult
cuMemRelease(CUmemGenericAllocationHandle handle)
{
	struct external_record *record;
	CUresult r;

	hooks_ready();
	record = outside_claim(EXTERNAL_BY_VMM, handle);
	r = real.cuMemRelease(handle);
	external_settle(record, r == CUDA_SUCCESS);
	return r;
}

/* The driver answers with the handle that the memory was mapped by (cuda.h). */
CUresult
cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *addr)
{
	CUresult r;

	hooks_ready();
	r = real.cuMemRetainAllocationHandle(handle, addr);
	if (outside_counts(r))
		outside_retain(EXTERNAL_BY_VMM, *handle);
	return r;
}

CUresult
cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle, void *osHandle,
			       CUmemAllocationHandleType shHandleType)
{
	CUresult r;

	hooks_ready();
	r = real.cuMemImportFromShareableHandle(handle, osHandle, shHandleType);
	if (outside_counts(r))
		outside_count_imported(*handle, HOOK_RETURN_ADDRESS());
	return r;
}

CUresult
cuMemMap(CUdeviceptr ptr, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
	 unsigned long long flags)
{
	struct external_record *memory;
	CUresult r;

	hooks_ready();
	memory = outside_map_begin(handle);
	r = real.cuMemMap(ptr, size, offset, handle, flags);
	external_map_end(memory, ptr, offset, size, r == CUDA_SUCCESS);
	return r;
}

CUresult
cuMemUnmap(CUdeviceptr ptr, size_t size)
{
	struct external_record *mappings;
	CUresult r;

	hooks_ready();
	mappings = outside_unmap_begin(ptr, size);
	r = real.cuMemUnmap(ptr, size);
	external_unmap_end(mappings, r == CUDA_SUCCESS);
	return r;
}
