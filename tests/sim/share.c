/* SPDX-License-Identifier: MIT */
#include "tests/sim/sim_internal.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/*
 * Memory of other owners: pools and their pointers, which are imported in the process that exported
 * them, and external memory, which is a size and no bytes.
 */

enum {
	SHARE_MAGIC = 0x43505348,
};

struct shared_pointer {
	uint32_t magic, pad;
	uint64_t base;
};

_Static_assert(sizeof(struct shared_pointer) <= sizeof(CUmemPoolPtrExportData), "too large");

CUresult
cuMemPoolExportToShareableHandle(void *ret_handle, CUmemoryPool pool,
				 CUmemAllocationHandleType type, unsigned long long flags)
{
	CUresult r = sim_enter(E_cuMemPoolExportToShareableHandle, NEED_INIT);
	int fd;

	if (r != CUDA_SUCCESS)
		return r;
	if (!ret_handle || flags != 0 || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR ||
	    !handle_is(pool, HANDLE_POOL))
		return sim_leave(CUDA_ERROR_INVALID_VALUE);
	fd = memfd_create("cusim-pool", MFD_CLOEXEC);
	if (fd < 0 || pwrite(fd, &pool, sizeof(pool), 0) != sizeof(pool)) {
		close(fd);
		return sim_leave(CUDA_ERROR_OPERATING_SYSTEM);
	}
	*(int *)ret_handle = fd;
	return sim_leave(CUDA_SUCCESS);
}

CUresult
cuMemPoolImportFromShareableHandle(CUmemoryPool *ret_pool, void *handle,
				   CUmemAllocationHandleType type, unsigned long long flags)
{
	CUresult r = sim_enter(E_cuMemPoolImportFromShareableHandle, NEED_INIT);
	CUmemoryPool of;

	if (r != CUDA_SUCCESS)
		return r;
	if (!ret_pool || flags != 0 || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR ||
	    pread((int)(intptr_t)handle, &of, sizeof(of), 0) != sizeof(of) ||
	    !handle_is(of, HANDLE_POOL))
		return sim_leave(CUDA_ERROR_INVALID_VALUE);
	*ret_pool = pool_new(of->dev);
	return sim_leave(*ret_pool ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY);
}

CUresult
cuMemPoolExportPointer(CUmemPoolPtrExportData *ret_data, CUdeviceptr ptr)
{
	CUresult r = sim_enter(E_cuMemPoolExportPointer, NEED_INIT);
	const struct shared_pointer shared = {.magic = SHARE_MAGIC, .base = ptr};
	const struct alloc *a;

	if (r != CUDA_SUCCESS)
		return r;
	a = alloc_find(ptr);
	if (!ret_data || !a || a->base != ptr || a->kind != ALLOC_ASYNC)
		return sim_leave(CUDA_ERROR_INVALID_VALUE);
	memset(ret_data, 0, sizeof(*ret_data));
	memcpy(ret_data, &shared, sizeof(shared));
	return sim_leave(CUDA_SUCCESS);
}

/* The pages of an allocation at another address. */
static CUresult
map_again(const struct alloc *of, CUmemoryPool pool, struct alloc **ret_alloc)
{
	struct phys *phys = of->chunk ? of->chunk->phys : of->phys;
	const uint64_t offset = of->chunk ? of->base - of->chunk->base : 0;
	struct alloc init = {
		.kind = ALLOC_POOL_IMPORT,
		.size_bytes = of->size_bytes,
		.span_bytes = of->span_bytes,
		.dev = of->dev,
		.pool = pool,
		.phys = phys,
		.n_mapped = phys->n_pages,
	};
	CUresult r = va_take(phys->n_pages, SIM_PAGE, &init.map_base);

	if (r != CUDA_SUCCESS)
		return r;
	init.base = init.map_base + offset;
	r = phys_map(phys, init.map_base, 0, phys->n_pages, PROT_READ | PROT_WRITE);
	if (r == CUDA_SUCCESS)
		r = alloc_insert(&init, ret_alloc);
	if (r != CUDA_SUCCESS) {
		phys_unmap(init.map_base, phys->n_pages);
		va_give(init.map_base, phys->n_pages);
		return r;
	}
	phys_ref(phys);
	return CUDA_SUCCESS;
}

CUresult
cuMemPoolImportPointer(CUdeviceptr *ret_ptr, CUmemoryPool pool, CUmemPoolPtrExportData *data)
{
	CUresult r = sim_enter(E_cuMemPoolImportPointer, NEED_INIT);
	struct shared_pointer shared;
	const struct alloc *of;
	struct alloc *a;

	if (r != CUDA_SUCCESS)
		return r;
	if (!ret_ptr || !data || !handle_is(pool, HANDLE_POOL))
		return sim_leave(CUDA_ERROR_INVALID_VALUE);
	memcpy(&shared, data, sizeof(shared));
	of = shared.magic == SHARE_MAGIC ? alloc_find(shared.base) : NULL;
	if (!of || of->kind != ALLOC_ASYNC)
		return sim_leave(CUDA_ERROR_INVALID_VALUE);
	r = map_again(of, pool, &a);
	if (r == CUDA_SUCCESS)
		*ret_ptr = a->base;
	return sim_leave(r);
}

void
share_release(struct alloc *a)
{
	phys_unmap(a->map_base, a->n_mapped);
	va_give(a->map_base, a->n_mapped);
	phys_unref(a->phys);
}

struct foreign {
	CUDA_EXTERNAL_MEMORY_HANDLE_DESC how;
};

CUresult
cuImportExternalMemory(CUexternalMemory *ret_memory, const CUDA_EXTERNAL_MEMORY_HANDLE_DESC *how)
{
	CUresult r = sim_enter(E_cuImportExternalMemory, NEED_CONTEXT);
	struct foreign *foreign;

	if (r != CUDA_SUCCESS)
		return r;
	if (!ret_memory || !how || how->type != CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD ||
	    how->size == 0)
		return sim_leave(CUDA_ERROR_INVALID_VALUE);
	foreign = calloc(1, sizeof(*foreign));
	if (!foreign || handle_add(foreign, HANDLE_FOREIGN) != CUDA_SUCCESS) {
		free(foreign);
		return sim_leave(CUDA_ERROR_OUT_OF_MEMORY);
	}
	foreign->how = *how;
	*ret_memory = (CUexternalMemory)foreign;
	return sim_leave(CUDA_SUCCESS);
}

CUresult
cuDestroyExternalMemory(CUexternalMemory memory)
{
	CUresult r = sim_enter(E_cuDestroyExternalMemory, NEED_CONTEXT);

	if (r != CUDA_SUCCESS)
		return r;
	if (!handle_is(memory, HANDLE_FOREIGN))
		return sim_leave(CUDA_ERROR_INVALID_HANDLE);
	handle_remove(memory);
	free(memory);
	return sim_leave(CUDA_SUCCESS);
}
