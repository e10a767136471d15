/* SPDX-License-Identifier: MIT */
/*
 * Memory of other owners that a program opens: counted while it is open. IPC is in hook_share.c,
 * handles of cuMemCreate are in hook_vmm.c.
 */
#include "shim/hooks.h"
#include "shim/outside.h"

/* Ended as memory of a pool is, by cuMemFreeAsync or cuMemFree. */
CUresult
cuMemPoolImportPointer(CUdeviceptr *ptr_out, CUmemoryPool pool, CUmemPoolPtrExportData *shareData)
{
	CUresult r;

	hooks_ready();
	r = real.cuMemPoolImportPointer(ptr_out, pool, shareData);
	if (outside_counts(r))
		outside_count_imported_pointer(*ptr_out, HOOK_RETURN_ADDRESS());
	return r;
}

CUresult
cuImportExternalMemory(CUexternalMemory *extMem_out,
		       const CUDA_EXTERNAL_MEMORY_HANDLE_DESC *memHandleDesc)
{
	struct outside_scope scope;
	CUresult r;

	hooks_ready();
	scope = OUTSIDE_SCOPE();
	r = real.cuImportExternalMemory(extMem_out, memHandleDesc);
	if (outside_counts(r))
		outside_count(&scope, EXTERNAL_BY_FOREIGN, (uintptr_t)*extMem_out,
			      EXTERNAL_imported, memHandleDesc->size);
	return r;
}

CUresult
cuDestroyExternalMemory(CUexternalMemory extMem)
{
	struct external_record *record;
	CUresult r;

	hooks_ready();
	record = outside_claim(EXTERNAL_BY_FOREIGN, (uintptr_t)extMem);
	r = real.cuDestroyExternalMemory(extMem);
	external_settle(record, r == CUDA_SUCCESS);
	return r;
}
