/* SPDX-License-Identifier: MIT */
/*
 * The allocation and free pairs. Size 0, NULL and unknown pointers go to the driver untouched.
 */
#include "shim/hooks.h"
#include "shim/init.h"
#include "shim/managed.h"
#include "shim/serve.h"

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
	CUresult r;

	hooks_ready();
	if (dptr && bytesize && serve_device_alloc(bytesize, HOOK_RETURN_ADDRESS(), dptr, &r))
		return r;
	return real.cuMemAlloc_v2(dptr, bytesize);
}

CUresult
cuMemFree_v2(CUdeviceptr dptr)
{
	CUresult r;

	hooks_ready();
	if (dptr && serve_free(dptr, HEAP_DEVICE, &r))
		return r;
	r = real.cuMemFree_v2(dptr);
	if (r == CUDA_SUCCESS)
		managed_remove(dptr);
	return r;
}

CUresult
cuMemFreeAsync(CUdeviceptr dptr, CUstream hStream)
{
	CUresult r;

	hooks_ready();
	if (dptr && serve_free_async(dptr, hStream, HOOK_STREAM0_LEGACY, real.cuMemFreeAsync, &r))
		return r;
	return real.cuMemFreeAsync(dptr, hStream);
}

CUresult
cuMemFreeAsync_ptsz(CUdeviceptr dptr, CUstream hStream)
{
	CUresult r;

	hooks_ready();
	if (dptr &&
	    serve_free_async(dptr, hStream, HOOK_STREAM0_PER_THREAD, real.cuMemFreeAsync_ptsz, &r))
		return r;
	return real.cuMemFreeAsync_ptsz(dptr, hStream);
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
	CUresult r;

	hooks_ready();
	if (pp && bytesize && !(Flags & ~(unsigned)POOLED_HOST_FLAGS) &&
	    serve_host_alloc(BACKEND_HOST_ALLOC, Flags, bytesize, HOOK_RETURN_ADDRESS(), pp, &r))
		return r;
	return real.cuMemHostAlloc(pp, bytesize, Flags);
}

CUresult
cuMemAllocHost_v2(void **pp, size_t bytesize)
{
	CUresult r;

	hooks_ready();
	if (pp && bytesize &&
	    serve_host_alloc(BACKEND_ALLOC_HOST, 0, bytesize, HOOK_RETURN_ADDRESS(), pp, &r))
		return r;
	return real.cuMemAllocHost_v2(pp, bytesize);
}

CUresult
cuMemFreeHost(void *p)
{
	CUresult r;

	hooks_ready();
	if (p && serve_free((uint64_t)(uintptr_t)p, HEAP_HOST, &r))
		return r;
	return real.cuMemFreeHost(p);
}

CUresult
cuLibraryGetManaged(CUdeviceptr *dptr, size_t *bytes, CUlibrary library, const char *name)
{
	CUresult r;

	hooks_ready();
	r = real.cuLibraryGetManaged(dptr, bytes, library, name);
	if (r == CUDA_SUCCESS)
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
	if (r == CUDA_SUCCESS && dptr && init_is_active() &&
	    real.cuPointerGetAttribute(&is_managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, *dptr) ==
		    CUDA_SUCCESS &&
	    is_managed)
		managed_add_variable();
	return r;
}
