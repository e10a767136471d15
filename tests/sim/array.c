/* SPDX-License-Identifier: MIT */
#include "tests/sim/sim_internal.h"

#include <stdlib.h>

/*
 * Arrays and mipmaps: memory that is taken and given back; nothing reads or writes it. As measured:
 * only one with deferred mapping tells its memory requirements, and they are those of the same
 * array without it; it takes no memory itself, and neither does a sparse one; each destruction
 * waits for the work of the context.
 */

enum {
	NO_MEMORY_FLAGS = CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING,
	KNOWN_FLAGS = NO_MEMORY_FLAGS | CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP |
		      CUDA_ARRAY3D_SURFACE_LDST | CUDA_ARRAY3D_TEXTURE_GATHER,
	GRAIN_BYTES = 64 << 10,
};

struct array {
	struct CUctx_st *ctx;
	CUDA_ARRAY3D_DESCRIPTOR how;
	unsigned n_levels;
	uint64_t base; /* 0: it has no memory */
};

static uint64_t
at_least_1(uint64_t n)
{
	return n ? n : 1;
}

static uint64_t
element_bytes(const CUDA_ARRAY3D_DESCRIPTOR *how)
{
	switch (how->Format) {
	case CU_AD_FORMAT_UNSIGNED_INT8:
	case CU_AD_FORMAT_SIGNED_INT8:
		return how->NumChannels;
	case CU_AD_FORMAT_UNSIGNED_INT16:
	case CU_AD_FORMAT_SIGNED_INT16:
	case CU_AD_FORMAT_HALF:
		return 2 * how->NumChannels;
	case CU_AD_FORMAT_UNSIGNED_INT32:
	case CU_AD_FORMAT_SIGNED_INT32:
	case CU_AD_FORMAT_FLOAT:
		return 4 * how->NumChannels;
	default:
		return 0;
	}
}

static uint64_t
needed_bytes(const CUDA_ARRAY3D_DESCRIPTOR *how, unsigned n_levels)
{
	uint64_t n = 0;

	for (unsigned level = 0; level < n_levels; level++)
		n += at_least_1(how->Width >> level) * at_least_1(how->Height >> level) *
		     at_least_1(how->Depth >> level) * element_bytes(how);
	return (n + GRAIN_BYTES - 1) / GRAIN_BYTES * GRAIN_BYTES;
}

static CUresult
take_memory(struct array *array)
{
	struct alloc init = {.kind = ALLOC_DEVICE, .ctx = array->ctx};
	struct alloc *a;
	CUresult r;

	if (array->how.Flags & NO_MEMORY_FLAGS)
		return CUDA_SUCCESS;
	r = alloc_device(&array->ctx->arena, needed_bytes(&array->how, array->n_levels), &init, &a);
	if (r == CUDA_SUCCESS)
		array->base = a->base;
	return r;
}

static CUresult
check(const CUDA_ARRAY3D_DESCRIPTOR *how, unsigned n_levels)
{
	if (!how || how->Width == 0 || n_levels == 0 || (how->Flags & ~(unsigned)KNOWN_FLAGS) ||
	    (how->Flags & NO_MEMORY_FLAGS) == NO_MEMORY_FLAGS || element_bytes(how) == 0)
		return CUDA_ERROR_INVALID_VALUE;
	return capture_check_unsafe();
}

static CUresult
create(enum entry_id e, void **ret_array, const CUDA_ARRAY3D_DESCRIPTOR *how, unsigned n_levels,
       enum handle_kind kind)
{
	CUresult r = sim_enter(e, NEED_CONTEXT);
	struct array *array;

	if (r != CUDA_SUCCESS)
		return r;
	r = ret_array ? check(how, n_levels) : CUDA_ERROR_INVALID_VALUE;
	if (r != CUDA_SUCCESS)
		return sim_leave(r);
	array = calloc(1, sizeof(*array));
	if (!array)
		return sim_leave(CUDA_ERROR_OUT_OF_MEMORY);
	array->ctx = ctx_current_root();
	array->how = *how;
	array->n_levels = n_levels;
	r = take_memory(array);
	if (r == CUDA_SUCCESS)
		r = handle_add(array, kind);
	if (r != CUDA_SUCCESS) {
		if (array->base)
			alloc_release(alloc_find(array->base));
		free(array);
		return sim_leave(r);
	}
	*ret_array = array;
	return sim_leave(CUDA_SUCCESS);
}

/* One whose context has ended keeps its handle, and is refused. */
static CUresult
destroy(enum entry_id e, struct array *array, enum handle_kind kind)
{
	CUresult r = sim_enter(e, NEED_CONTEXT);

	if (r != CUDA_SUCCESS)
		return r;
	r = capture_check_unsafe();
	if (r != CUDA_SUCCESS)
		return sim_leave(r);
	if (!handle_is(array, kind))
		return sim_leave(CUDA_ERROR_INVALID_HANDLE);
	if (!array->ctx->is_alive)
		return sim_leave(CUDA_ERROR_CONTEXT_IS_DESTROYED);
	handle_remove(array);
	exec_wait_free(array->ctx);
	if (array->base && alloc_find(array->base))
		alloc_release(alloc_find(array->base));
	free(array);
	return sim_leave(CUDA_SUCCESS);
}

static CUresult
requirements(enum entry_id e, CUDA_ARRAY_MEMORY_REQUIREMENTS *ret_needs, const struct array *array,
	     enum handle_kind kind, CUdevice device)
{
	CUresult r = sim_enter(e, NEED_CONTEXT);
	struct device *dev;

	if (r != CUDA_SUCCESS)
		return r;
	if (!ret_needs || !handle_is(array, kind) || device_find(device, &dev) != CUDA_SUCCESS ||
	    !(array->how.Flags & CUDA_ARRAY3D_DEFERRED_MAPPING))
		return sim_leave(CUDA_ERROR_INVALID_VALUE);
	*ret_needs = (CUDA_ARRAY_MEMORY_REQUIREMENTS){
		.size = needed_bytes(&array->how, array->n_levels),
		.alignment = GRAIN_BYTES,
	};
	return sim_leave(CUDA_SUCCESS);
}

CUresult
cuArrayCreate(CUarray *ret_array, const CUDA_ARRAY_DESCRIPTOR_v1 *how)
{
	const CUDA_ARRAY3D_DESCRIPTOR full = {.Width = how ? how->Width : 0,
					      .Height = how ? how->Height : 0,
					      .Format = how ? how->Format : 0,
					      .NumChannels = how ? how->NumChannels : 0};

	return create(E_cuArrayCreate, (void **)ret_array, how ? &full : NULL, 1, HANDLE_ARRAY);
}

CUresult
cuArray3DCreate(CUarray *ret_array, const CUDA_ARRAY3D_DESCRIPTOR_v1 *how)
{
	const CUDA_ARRAY3D_DESCRIPTOR full = {.Width = how ? how->Width : 0,
					      .Height = how ? how->Height : 0,
					      .Depth = how ? how->Depth : 0,
					      .Format = how ? how->Format : 0,
					      .NumChannels = how ? how->NumChannels : 0,
					      .Flags = how ? how->Flags : 0};

	return create(E_cuArray3DCreate, (void **)ret_array, how ? &full : NULL, 1, HANDLE_ARRAY);
}

CUresult
cuArrayCreate_v2(CUarray *ret_array, const CUDA_ARRAY_DESCRIPTOR *how)
{
	CUDA_ARRAY3D_DESCRIPTOR full = {0};

	if (how) {
		full.Width = how->Width;
		full.Height = how->Height;
		full.Format = how->Format;
		full.NumChannels = how->NumChannels;
	}
	return create(E_cuArrayCreate_v2, (void **)ret_array, how ? &full : NULL, 1, HANDLE_ARRAY);
}

CUresult
cuArray3DCreate_v2(CUarray *ret_array, const CUDA_ARRAY3D_DESCRIPTOR *how)
{
	return create(E_cuArray3DCreate_v2, (void **)ret_array, how, 1, HANDLE_ARRAY);
}

CUresult
cuMipmappedArrayCreate(CUmipmappedArray *ret_array, const CUDA_ARRAY3D_DESCRIPTOR *how,
		       unsigned n_levels)
{
	return create(E_cuMipmappedArrayCreate, (void **)ret_array, how, n_levels, HANDLE_MIPMAP);
}

CUresult
cuArrayDestroy(CUarray array)
{
	return destroy(E_cuArrayDestroy, (struct array *)array, HANDLE_ARRAY);
}

CUresult
cuMipmappedArrayDestroy(CUmipmappedArray array)
{
	return destroy(E_cuMipmappedArrayDestroy, (struct array *)array, HANDLE_MIPMAP);
}

CUresult
cuArrayGetMemoryRequirements(CUDA_ARRAY_MEMORY_REQUIREMENTS *ret_needs, CUarray array,
			     CUdevice device)
{
	return requirements(E_cuArrayGetMemoryRequirements, ret_needs, (struct array *)array,
			    HANDLE_ARRAY, device);
}

CUresult
cuMipmappedArrayGetMemoryRequirements(CUDA_ARRAY_MEMORY_REQUIREMENTS *ret_needs,
				      CUmipmappedArray array, CUdevice device)
{
	return requirements(E_cuMipmappedArrayGetMemoryRequirements, ret_needs,
			    (struct array *)array, HANDLE_MIPMAP, device);
}

CUresult
cuArray3DGetDescriptor_v2(CUDA_ARRAY3D_DESCRIPTOR *ret_how, CUarray array)
{
	CUresult r = sim_enter(E_cuArray3DGetDescriptor_v2, NEED_CONTEXT);

	if (r != CUDA_SUCCESS)
		return r;
	if (!ret_how || !handle_is(array, HANDLE_ARRAY))
		return sim_leave(CUDA_ERROR_INVALID_VALUE);
	*ret_how = ((struct array *)array)->how;
	return sim_leave(CUDA_SUCCESS);
}
