/* SPDX-License-Identifier: MIT */
/*
 * The allocation and free pairs. Size 0, NULL and unknown pointers go to the driver untouched. What
 * the pool does not serve is counted (outside.h).
 */
#include "shim/hooks.h"
#include "shim/init.h"
#include "shim/managed.h"
#include "shim/outside.h"
#include "shim/serve.h"
#include "shim/submit.h"
#include "shim/vendors.h"

CUresult
cuInit(unsigned int Flags)
{
	CUresult r;

	hooks_ready();
	r = real.cuInit(Flags);
	if (r == CUDA_SUCCESS)
		init_on_cu_init();
	return r;
}

CUresult
cuMemAlloc_v2(CUdeviceptr *dptr, size_t bytesize)
{
	struct outside_scope scope;
	CUresult r;

	hooks_ready();
	if (dptr && bytesize && serve_device_alloc(bytesize, HOOK_RETURN_ADDRESS(), dptr, &r))
		return r;
	scope = OUTSIDE_SCOPE();
	r = real.cuMemAlloc_v2(dptr, bytesize);
	if (outside_counts(r))
		outside_count(&scope, EXTERNAL_BY_ADDRESS, *dptr, EXTERNAL_plain, bytesize);
	return r;
}

CUresult
cuMemFree_v2(CUdeviceptr dptr)
{
	struct external_record *record;
	CUresult r;

	hooks_ready();
	if (dptr && serve_free(dptr, HEAP_DEVICE, &r))
		return r;
	record = outside_claim(EXTERNAL_BY_ADDRESS, dptr);
	r = real.cuMemFree_v2(dptr);
	external_settle(record, r == CUDA_SUCCESS);
	if (r == CUDA_SUCCESS)
		managed_remove(dptr);
	return r;
}

static CUresult
free_async(CUdeviceptr addr, CUstream stream, enum hook_stream0 stream0,
	   CUresult (*real_free)(CUdeviceptr, CUstream))
{
	struct external_record *record;
	CUresult r;

	if (addr && serve_free_async(addr, stream, stream0, real_free, &r))
		return r;
	record = outside_claim(EXTERNAL_BY_ADDRESS, addr);
	r = SUBMIT_CALL(stream, stream0, real_free(addr, stream));
	external_settle(record, r == CUDA_SUCCESS);
	return r;
}

CUresult
cuMemFreeAsync(CUdeviceptr dptr, CUstream hStream)
{
	hooks_ready();
	return free_async(dptr, hStream, HOOK_STREAM0_LEGACY, real.cuMemFreeAsync);
}

CUresult
cuMemFreeAsync_ptsz(CUdeviceptr dptr, CUstream hStream)
{
	hooks_ready();
	return free_async(dptr, hStream, HOOK_STREAM0_PER_THREAD, real.cuMemFreeAsync_ptsz);
}

/* Flags that only say how the memory is mapped. Others ask for something that the pool does not
 * know. */
enum {
	POOLED_HOST_FLAGS = CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP |
			    CU_MEMHOSTALLOC_WRITECOMBINED,
};

CUresult
cuMemHostAlloc(void **pp, size_t bytesize, unsigned int Flags)
{
	struct outside_scope scope;
	CUresult r;

	hooks_ready();
	if (pp && bytesize && !(Flags & ~(unsigned)POOLED_HOST_FLAGS) &&
	    serve_host_alloc(BACKEND_HOST_ALLOC, Flags, bytesize, HOOK_RETURN_ADDRESS(), pp, &r))
		return r;
	scope = OUTSIDE_SCOPE();
	r = real.cuMemHostAlloc(pp, bytesize, Flags);
	if (outside_counts(r))
		outside_count(&scope, EXTERNAL_BY_PINNED, (uintptr_t)*pp, EXTERNAL_pinned,
			      bytesize);
	return r;
}

/* The form of CUDA 2, which the pool does not know. */
CUresult
cuMemAllocHost(void **pp, unsigned int bytesize)
{
	struct outside_scope scope;
	CUresult r;

	hooks_ready();
	scope = OUTSIDE_SCOPE();
	r = real.cuMemAllocHost(pp, bytesize);
	if (outside_counts(r))
		outside_count(&scope, EXTERNAL_BY_PINNED, (uintptr_t)*pp, EXTERNAL_pinned,
			      bytesize);
	return r;
}

CUresult
cuMemAllocHost_v2(void **pp, size_t bytesize)
{
	struct outside_scope scope;
	CUresult r;

	hooks_ready();
	if (pp && bytesize &&
	    serve_host_alloc(BACKEND_ALLOC_HOST, 0, bytesize, HOOK_RETURN_ADDRESS(), pp, &r))
		return r;
	scope = OUTSIDE_SCOPE();
	r = real.cuMemAllocHost_v2(pp, bytesize);
	if (outside_counts(r))
		outside_count(&scope, EXTERNAL_BY_PINNED, (uintptr_t)*pp, EXTERNAL_pinned,
			      bytesize);
	return r;
}

CUresult
cuMemFreeHost(void *p)
{
	struct external_record *record;
	CUresult r;

	hooks_ready();
	if (p && serve_free((uint64_t)(uintptr_t)p, HEAP_HOST, &r))
		return r;
	record = outside_claim(EXTERNAL_BY_PINNED, (uintptr_t)p);
	r = real.cuMemFreeHost(p);
	external_settle(record, r == CUDA_SUCCESS);
	return r;
}

CUresult
cuLibraryGetManaged(CUdeviceptr *dptr, size_t *bytes, CUlibrary library, const char *name)
{
	CUresult r;

	hooks_ready();
	r = real.cuLibraryGetManaged(dptr, bytes, library, name);
	if (r == CUDA_SUCCESS && !vendors_is_caller(HOOK_RETURN_ADDRESS()))
		managed_add_variable();
	return r;
}

CUresult
cuModuleGetGlobal_v2(CUdeviceptr *dptr, size_t *bytes, CUmodule hmod, const char *name)
{
	unsigned is_managed = 0;
	CUresult r;

	hooks_ready();
	r = real.cuModuleGetGlobal_v2(dptr, bytes, hmod, name);
	if (r == CUDA_SUCCESS && dptr && init_is_on() &&
	    real.cuPointerGetAttribute(&is_managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, *dptr) ==
		    CUDA_SUCCESS &&
	    is_managed && !vendors_is_caller(HOOK_RETURN_ADDRESS()))
		managed_add_variable();
	return r;
}
