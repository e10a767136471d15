/* SPDX-License-Identifier: MIT */
#include "tests/sim/sim_internal.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/*
 * IPC of cuMemAlloc memory. A handle names the exporter's memfd and the pages in it, which an
 * importer opens through /proc. As with the driver: an interior pointer opens the base of its
 * allocation, the last 8 bytes of a handle are zero and ignored, changed ones do not open, opens
 * are counted, and the memory of one process opens in one context of a device.
 */

struct ipc_handle {
	uint32_t magic;
	int32_t pid, fd, ordinal;
	uint32_t first_page, n_pages;
	uint64_t offset_bytes, size_bytes, alloc_id;
	uint64_t check; /* of all the above */
};

_Static_assert(sizeof(struct ipc_handle) <= CU_IPC_HANDLE_SIZE - 8,
	       "the handle's tail is not ours");

enum {
	IPC_MAGIC = 0x43495043,
};

static uint64_t
check_of(const struct ipc_handle *h)
{
	const unsigned char *bytes = (const unsigned char *)h;
	uint64_t check = 0xcbf29ce484222325;

	for (size_t i = 0; i < offsetof(struct ipc_handle, check); i++)
		check = (check ^ bytes[i]) * 0x100000001b3;
	return check;
}

CUresult
cuIpcGetMemHandle(CUipcMemHandle *ret_handle, CUdeviceptr ptr)
{
	CUresult r = sim_enter(E_cuIpcGetMemHandle, NEED_CONTEXT);
	const struct phys *phys;
	const struct alloc *a;
	struct ipc_handle h;

	if (r != CUDA_SUCCESS)
		return r;
	a = alloc_find_requested(ptr);
	if (!ret_handle || !a || a->kind != ALLOC_DEVICE)
		return sim_leave(CUDA_ERROR_INVALID_VALUE);
	phys = a->chunk ? a->chunk->phys : a->phys;
	if (phys->n_extents != 1) /* a handle has room for one run of pages */
		return sim_leave(CUDA_ERROR_NOT_SUPPORTED);
	h = (struct ipc_handle){
		.magic = IPC_MAGIC,
		.pid = getpid(),
		.fd = a->dev->memfd,
		.ordinal = a->dev->ordinal,
		.first_page = (uint32_t)phys->extents[0].first,
		.n_pages = (uint32_t)phys->n_pages,
		.offset_bytes = a->chunk ? a->base - a->chunk->base : 0,
		.size_bytes = a->size_bytes,
		.alloc_id = a->id,
	};
	h.check = check_of(&h);
	memset(ret_handle, 0, sizeof(*ret_handle));
	memcpy(ret_handle, &h, sizeof(h));
	return sim_leave(CUDA_SUCCESS);
}

static bool
is_opened(struct alloc *a, void *arg)
{
	const struct ipc_handle *h = arg;

	/* An import keeps the exporter's numbers where an own allocation keeps other things. */
	return a->kind == ALLOC_IPC && a->phys_first == h->alloc_id && a->flags == (unsigned)h->pid;
}

struct find {
	const struct ipc_handle *h;
	struct alloc *found;
	bool is_elsewhere; /* memory of that process is open in another context of the device */
};

static bool
find_opened(struct alloc *a, void *arg)
{
	struct find *find = arg;

	if (is_opened(a, (void *)find->h))
		find->found = a;
	if (a->kind == ALLOC_IPC && a->flags == (unsigned)find->h->pid &&
	    a->dev->ordinal == find->h->ordinal && a->ctx != ctx_current_root())
		find->is_elsewhere = true;
	return find->found != NULL;
}

static CUresult
map_import(const struct ipc_handle *h, uint64_t addr)
{
	CUresult r = CUDA_SUCCESS;
	char path[64];
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/fd/%d", h->pid, h->fd);
	fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0)
		return CUDA_ERROR_INVALID_VALUE;
	if (mmap((void *)addr, h->n_pages * SIM_PAGE, PROT_READ | PROT_WRITE,
		 MAP_SHARED | MAP_FIXED, fd, (off_t)(h->first_page * SIM_PAGE)) == MAP_FAILED)
		r = CUDA_ERROR_MAP_FAILED;
	close(fd);
	return r;
}

static CUresult
import(const struct ipc_handle *h, CUdeviceptr *ret_ptr)
{
	struct alloc init = {.kind = ALLOC_IPC, .ctx = ctx_current_root(), .n_opens = 1};
	struct alloc *a;
	CUresult r;

	r = va_take(h->n_pages, SIM_PAGE, &init.map_base);
	if (r != CUDA_SUCCESS)
		return r;
	r = map_import(h, init.map_base);
	if (r != CUDA_SUCCESS)
		goto undo_va;
	init.dev = &sim.devices[h->ordinal];
	init.n_mapped = h->n_pages;
	init.base = init.map_base + h->offset_bytes;
	init.size_bytes = h->size_bytes;
	init.span_bytes = h->size_bytes;
	init.phys_first = h->alloc_id;
	init.flags = (unsigned)h->pid;
	r = alloc_insert(&init, &a);
	if (r != CUDA_SUCCESS)
		goto undo_map;
	*ret_ptr = a->base;
	return CUDA_SUCCESS;

undo_map:
	phys_unmap(init.map_base, h->n_pages);
undo_va:
	va_give(init.map_base, h->n_pages);
	return r;
}

/* A second open in the same process gives the same address. */
static CUresult
open_handle(enum entry_id e, CUdeviceptr *ret_ptr, CUipcMemHandle handle, unsigned int flags)
{
	CUresult r = sim_enter(e, NEED_CONTEXT);
	struct ipc_handle h;
	struct find find = {.h = &h};

	if (r != CUDA_SUCCESS)
		return r;
	memcpy(&h, &handle, sizeof(h));
	if (!ret_ptr || !(flags & CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) || h.magic != IPC_MAGIC ||
	    h.check != check_of(&h) || h.ordinal < 0 || h.ordinal >= sim.n_devices)
		return sim_leave(CUDA_ERROR_INVALID_VALUE);
	if (h.pid == getpid())
		return sim_leave(CUDA_ERROR_INVALID_CONTEXT);
	alloc_for_each(find_opened, &find);
	if (find.is_elsewhere)
		return sim_leave(CUDA_ERROR_INVALID_HANDLE);
	if (!find.found)
		return sim_leave(import(&h, ret_ptr));
	find.found->n_opens++;
	*ret_ptr = find.found->base;
	return sim_leave(CUDA_SUCCESS);
}

CUresult
cuIpcOpenMemHandle(CUdeviceptr *ptr, CUipcMemHandle handle, unsigned int flags)
{
	return open_handle(E_cuIpcOpenMemHandle, ptr, handle, flags);
}

CUresult
cuIpcOpenMemHandle_v2(CUdeviceptr *ptr, CUipcMemHandle handle, unsigned int flags)
{
	return open_handle(E_cuIpcOpenMemHandle_v2, ptr, handle, flags);
}

void
ipc_release(struct alloc *a)
{
	phys_unmap(a->map_base, a->n_mapped);
	va_give(a->map_base, a->n_mapped);
}

CUresult
cuIpcCloseMemHandle(CUdeviceptr ptr)
{
	CUresult r = sim_enter(E_cuIpcCloseMemHandle, NEED_CONTEXT);
	struct alloc *a;

	if (r != CUDA_SUCCESS)
		return r;
	a = alloc_find(ptr);
	if (!a || a->kind != ALLOC_IPC || a->base != ptr)
		return sim_leave(CUDA_ERROR_INVALID_VALUE);
	if (--a->n_opens == 0)
		alloc_release(a);
	return sim_leave(CUDA_SUCCESS);
}

/* A descriptor of the device's memory stands for the dma-buf: it can be mapped and closed. */
CUresult
cuMemGetHandleForAddressRange(void *handle, CUdeviceptr ptr, size_t size, CUmemRangeHandleType type,
			      unsigned long long flags)
{
	CUresult r = sim_enter(E_cuMemGetHandleForAddressRange, NEED_CONTEXT);
	const struct alloc *a;
	uint64_t end;
	int fd;

	if (r != CUDA_SUCCESS)
		return r;
	if (!handle || type != CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD || !ptr || !size ||
	    size % 4096 || ptr % 4096)
		return sim_leave(CUDA_ERROR_INVALID_VALUE);
	*(int *)handle = -1; /* measured: from here on also when the call fails */
	a = alloc_find(ptr);
	if (!a || a->kind != ALLOC_DEVICE)
		return sim_leave(CUDA_ERROR_INVALID_VALUE);
	if (flags)
		return sim_leave(CUDA_ERROR_NOT_SUPPORTED);
	/* Measured: as far as the pages go, whoever has what else is in them. */
	end = a->chunk ? a->chunk->base + SIM_PAGE : a->base + a->span_bytes;
	if (size > end - ptr)
		return sim_leave(CUDA_ERROR_INVALID_VALUE);
	fd = fcntl(a->dev->memfd, F_DUPFD_CLOEXEC, 0);
	if (fd < 0)
		return sim_leave(CUDA_ERROR_OPERATING_SYSTEM);
	*(int *)handle = fd;
	return sim_leave(CUDA_SUCCESS);
}
