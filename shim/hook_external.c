/* SPDX-License-Identifier: MIT */
/*
 * Calls that get memory past the pool, and those that end it: counted (outside.h).
 *
 * What the pool holds and does not need must not make them fail: when the driver has no memory the
 * pool gives back what is idle, and the driver is asked once more.
 */
#include "shim/hooks.h"
#include "shim/managed.h"
#include "shim/outside.h"
#include "shim/serve.h"
#include "shim/submit.h"
#include "shim/vendors.h"

/* The driver's answer; after an out of memory the second one, if the pool made room. */
#define ASK(call) \
	({ \
		CUresult asked = call; \
		asked == CUDA_ERROR_OUT_OF_MEMORY &&serve_made_room() ? call : asked; \
	})

CUresult
cuMemAllocPitch_v2(CUdeviceptr *dptr, size_t *pPitch, size_t WidthInBytes, size_t Height,
		   unsigned int ElementSizeBytes)
{
	struct outside_scope scope;
	CUresult r;

	hooks_ready();
	scope = OUTSIDE_SCOPE();
	r = ASK(real.cuMemAllocPitch_v2(dptr, pPitch, WidthInBytes, Height, ElementSizeBytes));
	if (outside_counts(r))
		outside_count(&scope, EXTERNAL_BY_ADDRESS, *dptr, EXTERNAL_pitched,
			      *pPitch * Height);
	return r;
}

CUresult
cuMemAllocManaged(CUdeviceptr *dptr, size_t bytesize, unsigned int flags)
{
	struct outside_scope scope;
	CUresult r;

	hooks_ready();
	scope = OUTSIDE_SCOPE();
	r = ASK(real.cuMemAllocManaged(dptr, bytesize, flags));
	if (r == CUDA_SUCCESS && init_is_on() && !vendors_is_caller(HOOK_RETURN_ADDRESS()))
		managed_add(*dptr);
	if (outside_counts(r))
		outside_count(&scope, EXTERNAL_BY_ADDRESS, *dptr, EXTERNAL_managed, bytesize);
	return r;
}

/* Arrays */

/* The first forms differ in the width of their numbers. */
#define CREATE_ARRAY(name, descriptor, depth, flags) \
	CUresult name(CUarray *pHandle, const descriptor *pAllocateArray) \
	{ \
		struct outside_scope scope; \
		CUresult r; \
\
		hooks_ready(); \
		scope = OUTSIDE_SCOPE(); \
		r = ASK(real.name(pHandle, pAllocateArray)); \
		if (outside_counts(r)) \
			outside_count_array(&scope, *pHandle, \
					    &(CUDA_ARRAY3D_DESCRIPTOR){ \
						    .Width = pAllocateArray->Width, \
						    .Height = pAllocateArray->Height, \
						    .Depth = (depth), \
						    .Format = pAllocateArray->Format, \
						    .NumChannels = pAllocateArray->NumChannels, \
						    .Flags = (flags)}); \
		return r; \
	}

CREATE_ARRAY(cuArrayCreate, CUDA_ARRAY_DESCRIPTOR_v1, 0, 0)
CREATE_ARRAY(cuArrayCreate_v2, CUDA_ARRAY_DESCRIPTOR, 0, 0)
CREATE_ARRAY(cuArray3DCreate, CUDA_ARRAY3D_DESCRIPTOR_v1, pAllocateArray->Depth,
	     pAllocateArray->Flags)
CREATE_ARRAY(cuArray3DCreate_v2, CUDA_ARRAY3D_DESCRIPTOR, pAllocateArray->Depth,
	     pAllocateArray->Flags)

CUresult
cuMipmappedArrayCreate(CUmipmappedArray *pHandle,
		       const CUDA_ARRAY3D_DESCRIPTOR *pMipmappedArrayDesc,
		       unsigned int numMipmapLevels)
{
	struct outside_scope scope;
	CUresult r;

	hooks_ready();
	scope = OUTSIDE_SCOPE();
	r = ASK(real.cuMipmappedArrayCreate(pHandle, pMipmappedArrayDesc, numMipmapLevels));
	if (outside_counts(r))
		outside_count_mipmap(&scope, *pHandle, pMipmappedArrayDesc, numMipmapLevels);
	return r;
}

CUresult
cuArrayDestroy(CUarray hArray)
{
	struct external_record *record;
	CUresult r;

	hooks_ready();
	record = outside_claim(EXTERNAL_BY_ARRAY, (uintptr_t)hArray);
	r = real.cuArrayDestroy(hArray);
	external_settle(record, r == CUDA_SUCCESS);
	return r;
}

CUresult
cuMipmappedArrayDestroy(CUmipmappedArray hMipmappedArray)
{
	struct external_record *record;
	CUresult r;

	hooks_ready();
	record = outside_claim(EXTERNAL_BY_MIPMAP, (uintptr_t)hMipmappedArray);
	r = real.cuMipmappedArrayDestroy(hMipmappedArray);
	external_settle(record, r == CUDA_SUCCESS);
	return r;
}

/* Stream-ordered memory, where the pool does not serve it. Its free is counted when it is called.
 */

#define ASYNC(name, suffix, stream0, memory_pool, parameters, arguments) \
	CUresult name##suffix parameters \
	{ \
		CUresult r; \
\
		hooks_ready(); \
		if (dptr && bytesize && \
		    serve_alloc_async(bytesize, &(struct stream_handle){hStream, stream0}, \
				      memory_pool, HOOK_RETURN_ADDRESS(), dptr, &r)) \
			return r; \
		r = ASK(SUBMIT_CALL(hStream, stream0, real.name##suffix arguments)); \
		if (outside_counts(r)) \
			outside_count_async(*dptr, bytesize, hStream, stream0, \
					    HOOK_RETURN_ADDRESS()); \
		return r; \
	}
#define ASYNC_PAIR(name, memory_pool, parameters, arguments) \
	ASYNC(name, , HOOK_STREAM0_LEGACY, memory_pool, parameters, arguments) \
	ASYNC(name, _ptsz, HOOK_STREAM0_PER_THREAD, memory_pool, parameters, arguments)

ASYNC_PAIR(cuMemAllocAsync, NULL, (CUdeviceptr * dptr, size_t bytesize, CUstream hStream),
	   (dptr, bytesize, hStream))
ASYNC_PAIR(cuMemAllocFromPoolAsync, pool,
	   (CUdeviceptr * dptr, size_t bytesize, CUmemoryPool pool, CUstream hStream),
	   (dptr, bytesize, pool, hStream))

/* Host memory that the program registers */

#define REGISTER(name) \
	CUresult name(void *p, size_t bytesize, unsigned int Flags) \
	{ \
		struct outside_scope scope; \
		CUresult r; \
\
		hooks_ready(); \
		scope = OUTSIDE_SCOPE(); \
		r = real.name(p, bytesize, Flags); \
		if (outside_counts(r)) \
			outside_count(&scope, EXTERNAL_BY_REGISTERED, (uintptr_t)p, \
				      EXTERNAL_registered, bytesize); \
		return r; \
	}

REGISTER(cuMemHostRegister)
REGISTER(cuMemHostRegister_v2)

CUresult
cuMemHostUnregister(void *p)
{
	struct external_record *record;
	CUresult r;

	hooks_ready();
	record = outside_claim(EXTERNAL_BY_REGISTERED, (uintptr_t)p);
	r = real.cuMemHostUnregister(p);
	external_settle(record, r == CUDA_SUCCESS);
	return r;
}
