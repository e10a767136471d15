/* SPDX-License-Identifier: MIT */
#include "tests/sim/sim_internal.h"

#include <sys/mman.h>

/* cuMemAlloc and its kin, cuMemFree, and what they say about memory. */

static CUresult
mem_alloc(uint64_t size_bytes, CUdeviceptr *ret_ptr)
{
	struct CUctx_st *ctx = ctx_current_root();
	struct alloc init = {.kind = ALLOC_DEVICE, .ctx = ctx};
	struct alloc *a;
	CUresult r;

	r = capture_check_unsafe();
	if (r == CUDA_SUCCESS)
		r = alloc_device(&ctx->arena, size_bytes, &init, &a);
	if (r != CUDA_SUCCESS)
		return r;
	report_mark(CUSIM_OP_ALLOC, ctx, NULL, 0, a->base, a->size_bytes);
	*ret_ptr = a->base;
	return CUDA_SUCCESS;
}

CUresult
cuMemAlloc_v2(CUdeviceptr *dptr, size_t bytesize)
{
	CUresult r = sim_enter(E_cuMemAlloc_v2, NEED_CONTEXT);

	if (r != CUDA_SUCCESS)
		return r;
	if (!dptr || bytesize == 0)
		return sim_leave(CUDA_ERROR_INVALID_VALUE);
	return sim_leave(mem_alloc(bytesize, dptr));
}

CUresult
cuMemAllocPitch_v2(CUdeviceptr *dptr, size_t *ret_pitch, size_t width, size_t height,
		   unsigned int element_bytes)
{
	CUresult r = sim_enter(E_cuMemAllocPitch_v2, NEED_CONTEXT);
	size_t pitch = (width + 511) & ~(size_t)511, bytes;

	if (r != CUDA_SUCCESS)
		return r;
	if (!dptr || !ret_pitch || width == 0 || height == 0 || pitch < width)
		return sim_leave(CUDA_ERROR_INVALID_VALUE);
	if (element_bytes != 4 && element_bytes != 8 && element_bytes != 16)
		return sim_leave(CUDA_ERROR_INVALID_VALUE);
	if (__builtin_mul_overflow(pitch, height, &bytes))
		return sim_leave(CUDA_ERROR_OUT_OF_MEMORY);
	r = mem_alloc(bytes, dptr);
	if (r == CUDA_SUCCESS)
		*ret_pitch = pitch;
	return sim_leave(r);
}

/* Managed memory is host memory in the device's window of addresses; it takes no device pages. */
CUresult
managed_alloc(struct CUctx_st *ctx, uint64_t size_bytes, unsigned flags, CUdeviceptr *ret_ptr)
{
	uint64_t n_pages = (size_bytes + SIM_PAGE - 1) / SIM_PAGE;
	struct alloc init = {
		.kind = ALLOC_MANAGED,
		.ctx = ctx,
		.dev = ctx->dev,
		.size_bytes = size_bytes,
		.span_bytes = n_pages * SIM_PAGE,
		.flags = flags,
	};
	struct alloc *a;
	CUresult r;

	r = va_take(n_pages, SIM_PAGE, &init.base);
	if (r != CUDA_SUCCESS)
		return r;
	if (mmap((void *)init.base, init.span_bytes, PROT_READ | PROT_WRITE,
		 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) == MAP_FAILED)
		r = CUDA_ERROR_OUT_OF_MEMORY;
	if (r == CUDA_SUCCESS)
		r = alloc_insert(&init, &a);
	if (r != CUDA_SUCCESS) {
		phys_unmap(init.base, n_pages);
		va_give(init.base, n_pages);
		return r;
	}
	*ret_ptr = a->base;
	return CUDA_SUCCESS;
}

CUresult
cuMemAllocManaged(CUdeviceptr *dptr, size_t bytesize, unsigned int flags)
{
	CUresult r = sim_enter(E_cuMemAllocManaged, NEED_CONTEXT);

	if (r != CUDA_SUCCESS)
		return r;
	if (!dptr || bytesize == 0 ||
	    (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST))
		return sim_leave(CUDA_ERROR_INVALID_VALUE);
	if (bytesize > sim.va_bytes)
		return sim_leave(CUDA_ERROR_OUT_OF_MEMORY);
	r = capture_check_unsafe();
	if (r == CUDA_SUCCESS)
		r = managed_alloc(ctx_current_root(), bytesize, flags, dptr);
	return sim_leave(r);
}

/* Waits for all work of the context that owns the pointer, whatever it touches. */
CUresult
cuMemFree_v2(CUdeviceptr dptr)
{
	CUresult r = sim_enter(E_cuMemFree_v2, NEED_NO_ERROR);
	struct alloc *a;
	uint64_t id;

	if (r != CUDA_SUCCESS)
		return r;
	if (dptr == 0)
		return sim_leave(CUDA_SUCCESS);
	r = capture_check_unsafe();
	if (r != CUDA_SUCCESS)
		return sim_leave(r);
	a = alloc_find(dptr);
	if (!a || a->base != dptr || a->is_freeing || a->is_graph ||
	    (a->kind != ALLOC_DEVICE && a->kind != ALLOC_ASYNC && a->kind != ALLOC_MANAGED &&
	     a->kind != ALLOC_POOL_IMPORT))
		return sim_leave(CUDA_ERROR_INVALID_VALUE);
	a->is_freeing = true;
	id = a->id;
	report_mark(CUSIM_OP_FREE, a->ctx, NULL, 0, a->base, a->size_bytes);
	if (a->ctx && a->ctx->is_alive)
		exec_wait_free(a->ctx);
	/* Its context may have ended meanwhile and taken it along. */
	a = alloc_find(dptr);
	if (a && a->id == id)
		alloc_release(a);
	return sim_leave(CUDA_SUCCESS);
}

CUresult
cuMemGetInfo_v2(size_t *ret_free, size_t *ret_total)
{
	CUresult r = sim_enter(E_cuMemGetInfo_v2, NEED_CONTEXT);
	const struct device *dev;

	if (r != CUDA_SUCCESS)
		return r;
	dev = ctx_current_root()->dev;
	if (ret_free)
		*ret_free = (dev->n_pages - dev->n_used_pages) * SIM_PAGE;
	if (ret_total)
		*ret_total = dev->n_pages * SIM_PAGE;
	return sim_leave(CUDA_SUCCESS);
}

/* As measured: an unknown pointer has the empty range, and nobody asking is no error. */
CUresult
cuMemGetAddressRange_v2(CUdeviceptr *ret_base, size_t *ret_size, CUdeviceptr dptr)
{
	CUresult r = sim_enter(E_cuMemGetAddressRange_v2, NEED_CONTEXT);
	const struct alloc *a;

	if (r != CUDA_SUCCESS)
		return r;
	a = alloc_find(dptr);
	if (a && dptr - a->base >= a->size_bytes)
		a = NULL;
	if (ret_base)
		*ret_base = a ? a->base : 0;
	if (ret_size)
		*ret_size = a ? a->size_bytes : 0;
	return sim_leave(a || (!ret_base && !ret_size) ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND);
}

/* Advice changes nothing here, and reaches managed memory only. */
static CUresult
advise(enum entry_id e, CUdeviceptr ptr)
{
	CUresult r = sim_enter(e, NEED_CONTEXT);
	const struct alloc *a;

	if (r != CUDA_SUCCESS)
		return r;
	a = alloc_find(ptr);
	return sim_leave(a && a->kind == ALLOC_MANAGED ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
}

CUresult
cuMemAdvise(CUdeviceptr ptr, size_t n, CUmem_advise advice, CUdevice dev)
{
	(void)n, (void)advice, (void)dev;
	return advise(E_cuMemAdvise, ptr);
}

CUresult
cuMemAdvise_v2(CUdeviceptr ptr, size_t n, CUmem_advise advice, CUmemLocation where)
{
	(void)n, (void)advice, (void)where;
	return advise(E_cuMemAdvise_v2, ptr);
}
