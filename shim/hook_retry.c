/* SPDX-License-Identifier: MIT */
/*
 * Calls that take device memory past the pool: what the pool holds and does not need must not make
 * them fail. The driver is asked; when it has no memory the pool gives back what is idle, and the
 * driver is asked once more.
 */
#include "shim/hooks.h"
#include "shim/managed.h"
#include "shim/serve.h"

#define RETRY(name, parameters, arguments) \
	CUresult name parameters \
	{ \
		CUresult r; \
\
		hooks_ready(); \
		r = real.name arguments; \
		if (r == CUDA_ERROR_OUT_OF_MEMORY && serve_made_room()) \
			r = real.name arguments; \
		return r; \
	}
/* The legacy and the per-thread body. */
#define RETRY_PAIR(name, parameters, arguments) \
	RETRY(name, parameters, arguments) \
	RETRY(name##_ptsz, parameters, arguments)

RETRY(cuMemAllocPitch_v2,
      (CUdeviceptr * dptr, size_t *pPitch, size_t WidthInBytes, size_t Height,
       unsigned int ElementSizeBytes),
      (dptr, pPitch, WidthInBytes, Height, ElementSizeBytes))
RETRY(cuMemCreate,
      (CUmemGenericAllocationHandle * handle, size_t size, const CUmemAllocationProp *prop,
       unsigned long long flags),
      (handle, size, prop, flags))
RETRY(cuArrayCreate_v2, (CUarray * pHandle, const CUDA_ARRAY_DESCRIPTOR *pAllocateArray),
      (pHandle, pAllocateArray))
RETRY(cuArray3DCreate_v2, (CUarray * pHandle, const CUDA_ARRAY3D_DESCRIPTOR *pAllocateArray),
      (pHandle, pAllocateArray))
RETRY(cuMipmappedArrayCreate,
      (CUmipmappedArray * pHandle, const CUDA_ARRAY3D_DESCRIPTOR *pMipmappedArrayDesc,
       unsigned int numMipmapLevels),
      (pHandle, pMipmappedArrayDesc, numMipmapLevels))
RETRY_PAIR(cuMemAllocAsync, (CUdeviceptr * dptr, size_t bytesize, CUstream hStream),
	   (dptr, bytesize, hStream))
RETRY_PAIR(cuMemAllocFromPoolAsync,
	   (CUdeviceptr * dptr, size_t bytesize, CUmemoryPool pool, CUstream hStream),
	   (dptr, bytesize, pool, hStream))

CUresult
cuMemAllocManaged(CUdeviceptr *dptr, size_t bytesize, unsigned int flags)
{
	CUresult r;

	hooks_ready();
	r = real.cuMemAllocManaged(dptr, bytesize, flags);
	if (r == CUDA_ERROR_OUT_OF_MEMORY && serve_made_room())
		r = real.cuMemAllocManaged(dptr, bytesize, flags);
	if (r == CUDA_SUCCESS)
		managed_add(*dptr);
	return r;
}
