/* SPDX-License-Identifier: MIT */
#include "tests/sim/sim_internal.h"

#include <sys/mman.h>

/* Pinned host memory: allocated here or registered. The device reaches it at the host's address. */

enum {
	HOST_PAGE = 4096,
};

void
host_release(struct alloc *a)
{
	if (a->kind == ALLOC_HOST)
		munmap((void *)a->base, a->span_bytes);
}

bool
host_is_pinned(uint64_t addr)
{
	const struct alloc *a = alloc_find_requested(addr);

	return a && (a->kind == ALLOC_HOST || a->kind == ALLOC_REGISTERED);
}

static CUresult
host_alloc(enum entry_id e, void **ret_ptr, size_t size_bytes, unsigned flags, unsigned known_flags)
{
	CUresult r = sim_enter(e, NEED_CONTEXT);
	struct alloc init = {.kind = ALLOC_HOST, .size_bytes = size_bytes, .flags = flags};
	struct alloc *a;
	void *p;

	if (r != CUDA_SUCCESS)
		return r;
	if (!ret_ptr)
		return sim_leave(CUDA_ERROR_INVALID_VALUE);
	*ret_ptr = NULL; /* measured: also when the call fails */
	if (size_bytes == 0 || (flags & ~known_flags))
		return sim_leave(CUDA_ERROR_INVALID_VALUE);
	r = capture_check_unsafe();
	if (r != CUDA_SUCCESS)
		return sim_leave(r);
	if (size_bytes > sim.va_bytes)
		return sim_leave(CUDA_ERROR_OUT_OF_MEMORY);
	init.ctx = ctx_current_root();
	init.span_bytes = (size_bytes + HOST_PAGE - 1) & ~(uint64_t)(HOST_PAGE - 1);
	p = mmap(NULL, init.span_bytes, PROT_READ | PROT_WRITE,
		 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (p == MAP_FAILED)
		return sim_leave(CUDA_ERROR_OUT_OF_MEMORY);
	init.base = (uint64_t)p;
	r = alloc_insert(&init, &a);
	if (r != CUDA_SUCCESS) {
		munmap(p, init.span_bytes);
		return sim_leave(r);
	}
	report_mark(CUSIM_OP_ALLOC, a->ctx, NULL, 0, a->base, a->size_bytes);
	*ret_ptr = p;
	return sim_leave(CUDA_SUCCESS);
}

CUresult
cuMemHostAlloc(void **pp, size_t bytesize, unsigned int flags)
{
	return host_alloc(E_cuMemHostAlloc, pp, bytesize, flags,
			  CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP |
				  CU_MEMHOSTALLOC_WRITECOMBINED);
}

CUresult
cuMemAllocHost(void **pp, unsigned int bytesize)
{
	return host_alloc(E_cuMemAllocHost, pp, bytesize, 0, 0);
}

CUresult
cuMemAllocHost_v2(void **pp, size_t bytesize)
{
	return host_alloc(E_cuMemAllocHost_v2, pp, bytesize, 0, 0);
}

/* Both free and unregister wait for the context that owns the memory, as cuMemFree does. A free
 * needs no current context (measured). */
static CUresult
host_end(enum entry_id e, void *ptr, enum alloc_kind kind, CUresult if_unknown)
{
	CUresult r = sim_enter(e, kind == ALLOC_HOST && ptr ? NEED_NO_ERROR : NEED_CONTEXT);
	struct alloc *a;
	uint64_t id;

	if (r != CUDA_SUCCESS)
		return r;
	if (!ptr)
		return sim_leave(kind == ALLOC_HOST ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
	r = capture_check_unsafe();
	if (r != CUDA_SUCCESS)
		return sim_leave(r);
	a = alloc_find((uint64_t)ptr);
	if (!a || a->base != (uint64_t)ptr || a->kind != kind || a->is_freeing)
		return sim_leave(if_unknown);
	a->is_freeing = true;
	id = a->id;
	report_mark(CUSIM_OP_FREE, a->ctx, NULL, 0, a->base, a->size_bytes);
	if (a->ctx->is_alive)
		exec_wait_free(a->ctx);
	a = alloc_find((uint64_t)ptr);
	if (a && a->id == id)
		alloc_release(a);
	return sim_leave(CUDA_SUCCESS);
}

CUresult
cuMemFreeHost(void *p)
{
	return host_end(E_cuMemFreeHost, p, ALLOC_HOST, CUDA_ERROR_INVALID_VALUE);
}

CUresult
cuMemHostUnregister(void *p)
{
	return host_end(E_cuMemHostUnregister, p, ALLOC_REGISTERED,
			CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
}

static CUresult
host_register(enum entry_id e, void *p, size_t bytesize, unsigned int flags)
{
	CUresult r = sim_enter(e, NEED_CONTEXT);
	struct alloc init = {
		.kind = ALLOC_REGISTERED,
		.base = (uint64_t)p,
		.size_bytes = bytesize,
		.span_bytes = bytesize,
		.flags = flags,
	};
	struct alloc *a;

	if (r != CUDA_SUCCESS)
		return r;
	if (!p || bytesize == 0 || va_is_device((uint64_t)p))
		return sim_leave(CUDA_ERROR_INVALID_VALUE);
	init.ctx = ctx_current_root();
	r = alloc_insert(&init, &a);
	if (r == CUDA_ERROR_INVALID_VALUE)
		r = CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
	return sim_leave(r);
}

CUresult
cuMemHostRegister(void *p, size_t bytesize, unsigned int flags)
{
	return host_register(E_cuMemHostRegister, p, bytesize, flags);
}

CUresult
cuMemHostRegister_v2(void *p, size_t bytesize, unsigned int flags)
{
	return host_register(E_cuMemHostRegister_v2, p, bytesize, flags);
}

CUresult
cuMemHostGetDevicePointer_v2(CUdeviceptr *ret_ptr, void *p, unsigned int flags)
{
	CUresult r = sim_enter(E_cuMemHostGetDevicePointer_v2, NEED_CONTEXT);

	if (r != CUDA_SUCCESS)
		return r;
	if (!ret_ptr || flags != 0 || !host_is_pinned((uint64_t)p))
		return sim_leave(CUDA_ERROR_INVALID_VALUE);
	*ret_ptr = (CUdeviceptr)p;
	return sim_leave(CUDA_SUCCESS);
}

CUresult
cuMemHostGetFlags(unsigned int *flags, void *p)
{
	CUresult r = sim_enter(E_cuMemHostGetFlags, NEED_CONTEXT);
	const struct alloc *a;

	if (r != CUDA_SUCCESS)
		return r;
	a = alloc_find_requested((uint64_t)p);
	if (!flags || !a || a->kind != ALLOC_HOST)
		return sim_leave(CUDA_ERROR_INVALID_VALUE);
	/* Under unified addressing all pinned memory is mapped. */
	*flags = a->flags | CU_MEMHOSTALLOC_DEVICEMAP;
	return sim_leave(CUDA_SUCCESS);
}
