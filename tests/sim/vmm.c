/* SPDX-License-Identifier: MIT */
#include "tests/sim/sim_internal.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

/*
 * Virtual memory management: reserved addresses, physical handles, mappings, access. Everything
 * is in pages of 2 MiB. A mapping that no access was set for faults. Neither mapping nor
 * unmapping waits for work. A handle is the address of its struct phys.
 */

struct reservation {
	struct reservation *next;
	uint64_t addr, size_bytes;
	bool is_in_window; /* else it has a mapping of its own */
};

static struct reservation *reservations;

static struct reservation *
reservation_of(uint64_t addr)
{
	struct reservation *v;

	for (v = reservations; v; v = v->next) {
		if (addr - v->addr < v->size_bytes)
			return v;
	}
	return NULL;
}

bool
vmm_is_reserved(uint64_t addr)
{
	return reservation_of(addr) != NULL;
}

static bool
is_whole(uint64_t v)
{
	return v != 0 && v % SIM_PAGE == 0;
}

/* Small ones in the device's window; large ones would fill it and get their own addresses. */
static CUresult
take_addresses(struct reservation *v, uint64_t align_bytes)
{
	uint64_t extra = align_bytes > SIM_PAGE ? align_bytes : SIM_PAGE, base, end;
	void *p;

	v->is_in_window = v->size_bytes <= sim.va_bytes / 8 &&
			  va_take(v->size_bytes / SIM_PAGE, align_bytes, &v->addr) == CUDA_SUCCESS;
	if (v->is_in_window)
		return CUDA_SUCCESS;
	p = mmap(NULL, v->size_bytes + extra, PROT_NONE,
		 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (p == MAP_FAILED)
		return CUDA_ERROR_OUT_OF_MEMORY;
	base = (uint64_t)p;
	end = base + v->size_bytes + extra;
	v->addr = (base + extra - 1) / extra * extra;
	if (v->addr > base)
		munmap(p, v->addr - base);
	munmap((void *)(v->addr + v->size_bytes), end - v->addr - v->size_bytes);
	return CUDA_SUCCESS;
}

CUresult
cuMemAddressReserve(CUdeviceptr *ret_ptr, size_t size, size_t alignment, CUdeviceptr hint,
		    unsigned long long flags)
{
	CUresult r = sim_enter(E_cuMemAddressReserve, NEED_INIT);
	struct reservation *v;

	(void)hint;
	if (r != CUDA_SUCCESS)
		return r;
	if (!ret_ptr || flags != 0 || !is_whole(size) || (alignment & (alignment - 1)))
		return sim_leave(CUDA_ERROR_INVALID_VALUE);
	v = calloc(1, sizeof(*v));
	if (!v)
		return sim_leave(CUDA_ERROR_OUT_OF_MEMORY);
	v->size_bytes = size;
	r = take_addresses(v, alignment);
	if (r != CUDA_SUCCESS) {
		free(v);
		return sim_leave(r);
	}
	v->next = reservations;
	reservations = v;
	*ret_ptr = v->addr;
	return sim_leave(CUDA_SUCCESS);
}

static bool
has_mapping(uint64_t addr, uint64_t size_bytes)
{
	for (uint64_t at = addr; at < addr + size_bytes; at += SIM_PAGE) {
		if (alloc_find(at))
			return true;
	}
	return false;
}

CUresult
cuMemAddressFree(CUdeviceptr ptr, size_t size)
{
	CUresult r = sim_enter(E_cuMemAddressFree, NEED_INIT);
	struct reservation *v, **link = &reservations;

	if (r != CUDA_SUCCESS)
		return r;
	v = reservation_of(ptr);
	if (!v || v->addr != ptr || v->size_bytes != size || has_mapping(ptr, size))
		return sim_leave(CUDA_ERROR_INVALID_VALUE);
	while (*link != v)
		link = &(*link)->next;
	*link = v->next;
	if (v->is_in_window)
		va_give(v->addr, v->size_bytes / SIM_PAGE);
	else
		munmap((void *)v->addr, v->size_bytes);
	free(v);
	return sim_leave(CUDA_SUCCESS);
}

static CUresult
device_of(const CUmemAllocationProp *prop, struct device **ret_dev)
{
	if (!prop || prop->type != CU_MEM_ALLOCATION_TYPE_PINNED)
		return CUDA_ERROR_INVALID_VALUE;
	switch (prop->location.type) {
	case CU_MEM_LOCATION_TYPE_DEVICE:
		return device_find(prop->location.id, ret_dev);
	case CU_MEM_LOCATION_TYPE_HOST:
	case CU_MEM_LOCATION_TYPE_HOST_NUMA:
		*ret_dev = phys_host();
		return *ret_dev ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}

CUresult
cuMemCreate(CUmemGenericAllocationHandle *ret_handle, size_t size, const CUmemAllocationProp *prop,
	    unsigned long long flags)
{
	CUresult r = sim_enter(E_cuMemCreate, NEED_INIT);
	struct device *dev;
	struct phys *phys;

	if (r != CUDA_SUCCESS)
		return r;
	if (!ret_handle || flags != 0 || !is_whole(size))
		return sim_leave(CUDA_ERROR_INVALID_VALUE);
	r = device_of(prop, &dev);
	if (r == CUDA_SUCCESS)
		r = phys_new(dev, size / SIM_PAGE, &phys);
	if (r != CUDA_SUCCESS)
		return sim_leave(r);
	r = handle_add(phys, HANDLE_PHYS);
	if (r != CUDA_SUCCESS) {
		phys_unref(phys);
		return sim_leave(r);
	}
	phys->n_handles = 1;
	*ret_handle = (CUmemGenericAllocationHandle)(uintptr_t)phys;
	return sim_leave(CUDA_SUCCESS);
}

/* The pages stay as long as they are mapped somewhere. */
CUresult
cuMemRelease(CUmemGenericAllocationHandle handle)
{
	CUresult r = sim_enter(E_cuMemRelease, NEED_INIT);
	struct phys *phys = (struct phys *)(uintptr_t)handle;

	if (r != CUDA_SUCCESS)
		return r;
	if (!handle_is(phys, HANDLE_PHYS))
		return sim_leave(CUDA_ERROR_INVALID_VALUE);
	if (--phys->n_handles == 0)
		handle_remove(phys);
	phys_unref(phys);
	return sim_leave(CUDA_SUCCESS);
}

CUresult
cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *ret_handle, void *addr)
{
	CUresult r = sim_enter(E_cuMemRetainAllocationHandle, NEED_INIT);
	const struct alloc *a;

	if (r != CUDA_SUCCESS)
		return r;
	a = alloc_find((uint64_t)addr);
	if (!ret_handle || !a || a->kind != ALLOC_VMM)
		return sim_leave(CUDA_ERROR_INVALID_VALUE);
	if (a->phys->n_handles == 0)
		r = handle_add(a->phys, HANDLE_PHYS);
	if (r != CUDA_SUCCESS)
		return sim_leave(r);
	a->phys->n_handles++;
	phys_ref(a->phys);
	*ret_handle = (CUmemGenericAllocationHandle)(uintptr_t)a->phys;
	return sim_leave(CUDA_SUCCESS);
}

CUresult
cuMemMap(CUdeviceptr ptr, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
	 unsigned long long flags)
{
	CUresult r = sim_enter(E_cuMemMap, NEED_INIT);
	struct phys *phys = (struct phys *)(uintptr_t)handle;
	const struct reservation *v;
	struct alloc init = {
		.kind = ALLOC_VMM,
		.base = ptr,
		.size_bytes = size,
		.span_bytes = size,
		.phys = phys,
		.phys_first = offset / SIM_PAGE,
	};
	struct alloc *a;

	if (r != CUDA_SUCCESS)
		return r;
	v = reservation_of(ptr);
	if (flags != 0 || !is_whole(size) || offset % SIM_PAGE || ptr % SIM_PAGE ||
	    !handle_is(phys, HANDLE_PHYS) || !v || size > v->addr + v->size_bytes - ptr)
		return sim_leave(CUDA_ERROR_INVALID_VALUE);
	if (offset > phys->n_pages * SIM_PAGE || size > phys->n_pages * SIM_PAGE - offset ||
	    has_mapping(ptr, size))
		return sim_leave(CUDA_ERROR_INVALID_VALUE);
	init.dev = phys->dev;
	r = alloc_insert(&init, &a);
	if (r == CUDA_SUCCESS)
		phys_ref(phys);
	return sim_leave(r);
}

/*
 * A descriptor stands for the memory inside this process only: it holds the handle's number, and
 * the handle must not have been released before it is imported. As measured, an import is another
 * handle of the same memory.
 */
CUresult
cuMemExportToShareableHandle(void *ret_os_handle, CUmemGenericAllocationHandle handle,
			     CUmemAllocationHandleType type, unsigned long long flags)
{
	CUresult r = sim_enter(E_cuMemExportToShareableHandle, NEED_INIT);
	int fd;

	if (r != CUDA_SUCCESS)
		return r;
	if (!ret_os_handle || flags != 0 || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR ||
	    !handle_is((void *)(uintptr_t)handle, HANDLE_PHYS))
		return sim_leave(CUDA_ERROR_INVALID_VALUE);
	fd = memfd_create("cusim-handle", MFD_CLOEXEC);
	if (fd < 0 || pwrite(fd, &handle, sizeof(handle), 0) != sizeof(handle)) {
		close(fd);
		return sim_leave(CUDA_ERROR_OPERATING_SYSTEM);
	}
	*(int *)ret_os_handle = fd;
	return sim_leave(CUDA_SUCCESS);
}

CUresult
cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *ret_handle, void *os_handle,
			       CUmemAllocationHandleType type)
{
	CUresult r = sim_enter(E_cuMemImportFromShareableHandle, NEED_INIT);
	CUmemGenericAllocationHandle of = 0;
	struct phys *phys;

	if (r != CUDA_SUCCESS)
		return r;
	if (!ret_handle || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR ||
	    pread((int)(intptr_t)os_handle, &of, sizeof(of), 0) != sizeof(of) ||
	    !handle_is((void *)(uintptr_t)of, HANDLE_PHYS))
		return sim_leave(CUDA_ERROR_INVALID_VALUE);
	r = phys_alias((struct phys *)(uintptr_t)of, &phys);
	if (r != CUDA_SUCCESS)
		return sim_leave(r);
	r = handle_add(phys, HANDLE_PHYS);
	if (r != CUDA_SUCCESS) {
		phys_unref(phys);
		return sim_leave(r);
	}
	phys->n_handles = 1;
	*ret_handle = (CUmemGenericAllocationHandle)(uintptr_t)phys;
	return sim_leave(CUDA_SUCCESS);
}

/* Mappings may only be named whole: [ptr, ptr + size) is a row of them, without a hole. */
static CUresult
check_row(uint64_t ptr, uint64_t size_bytes)
{
	uint64_t at = ptr;

	if (!is_whole(size_bytes))
		return CUDA_ERROR_INVALID_VALUE;
	while (at < ptr + size_bytes) {
		const struct alloc *a = alloc_find(at);

		if (!a || a->kind != ALLOC_VMM || a->base != at)
			return CUDA_ERROR_INVALID_VALUE;
		at += a->size_bytes;
	}
	return at == ptr + size_bytes ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult
cuMemUnmap(CUdeviceptr ptr, size_t size)
{
	CUresult r = sim_enter(E_cuMemUnmap, NEED_INIT);
	uint64_t at = ptr;

	if (r != CUDA_SUCCESS)
		return r;
	r = check_row(ptr, size);
	while (r == CUDA_SUCCESS && at < ptr + size) {
		struct alloc *a = alloc_find(at);

		at += a->size_bytes;
		phys_unmap(a->base, a->size_bytes / SIM_PAGE);
		alloc_release(a);
	}
	return sim_leave(r);
}

static CUresult
set_access(struct alloc *a, const CUmemAccessDesc *desc, size_t n)
{
	unsigned access = a->access;

	for (size_t i = 0; i < n; i++) {
		struct device *dev;

		if (desc[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
		    device_find(desc[i].location.id, &dev) != CUDA_SUCCESS)
			return CUDA_ERROR_INVALID_VALUE;
		access &= ~(1u << dev->ordinal);
		if (desc[i].flags != CU_MEM_ACCESS_FLAGS_PROT_NONE)
			access |= 1u << dev->ordinal;
	}
	a->access = access;
	return phys_map(a->phys, a->base, a->phys_first, a->size_bytes / SIM_PAGE,
			access ? PROT_READ | PROT_WRITE : PROT_NONE);
}

CUresult
cuMemSetAccess(CUdeviceptr ptr, size_t size, const CUmemAccessDesc *desc, size_t count)
{
	CUresult r = sim_enter(E_cuMemSetAccess, NEED_INIT);
	uint64_t at = ptr;

	if (r != CUDA_SUCCESS)
		return r;
	r = desc && count > 0 ? check_row(ptr, size) : CUDA_ERROR_INVALID_VALUE;
	while (r == CUDA_SUCCESS && at < ptr + size) {
		struct alloc *a = alloc_find(at);

		at += a->size_bytes;
		r = set_access(a, desc, count);
	}
	return sim_leave(r);
}

CUresult
cuMemGetAccess(unsigned long long *flags, const CUmemLocation *location, CUdeviceptr ptr)
{
	CUresult r = sim_enter(E_cuMemGetAccess, NEED_INIT);
	const struct alloc *a;
	struct device *dev;

	if (r != CUDA_SUCCESS)
		return r;
	a = alloc_find(ptr);
	if (!flags || !location || !a || a->kind != ALLOC_VMM ||
	    device_find(location->id, &dev) != CUDA_SUCCESS)
		return sim_leave(CUDA_ERROR_INVALID_VALUE);
	*flags = a->access >> dev->ordinal & 1 ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE
					       : CU_MEM_ACCESS_FLAGS_PROT_NONE;
	return sim_leave(CUDA_SUCCESS);
}

CUresult
cuMemGetAllocationGranularity(size_t *ret_bytes, const CUmemAllocationProp *prop,
			      CUmemAllocationGranularity_flags option)
{
	CUresult r = sim_enter(E_cuMemGetAllocationGranularity, NEED_INIT);
	struct device *dev;

	if (r != CUDA_SUCCESS)
		return r;
	if (!ret_bytes || (option != CU_MEM_ALLOC_GRANULARITY_MINIMUM &&
			   option != CU_MEM_ALLOC_GRANULARITY_RECOMMENDED))
		return sim_leave(CUDA_ERROR_INVALID_VALUE);
	r = device_of(prop, &dev);
	if (r == CUDA_SUCCESS)
		*ret_bytes = SIM_PAGE;
	return sim_leave(r);
}

CUresult
cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp *prop,
				       CUmemGenericAllocationHandle handle)
{
	CUresult r = sim_enter(E_cuMemGetAllocationPropertiesFromHandle, NEED_INIT);
	const struct phys *phys = (struct phys *)(uintptr_t)handle;

	if (r != CUDA_SUCCESS)
		return r;
	if (!prop || !handle_is(phys, HANDLE_PHYS))
		return sim_leave(CUDA_ERROR_INVALID_VALUE);
	*prop = (CUmemAllocationProp){
		.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.location = {.type = phys->dev->is_host ? CU_MEM_LOCATION_TYPE_HOST_NUMA
							: CU_MEM_LOCATION_TYPE_DEVICE,
			     .id = phys->dev->ordinal},
	};
	return sim_leave(CUDA_SUCCESS);
}
