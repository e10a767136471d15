/* SPDX-License-Identifier: MIT */
/*
 * What gives memory to others than the program's streams: IPC handles, dma-bufs, the wishes of
 * those who hand it to network cards.
 *
 * A block that others may reach is not handed out again, see heap_mark_exported(). It is marked
 * when the driver has answered: before, nobody else has a handle.
 */
#include "policy/ipc_handle.h"
#include "shim/context.h"
#include "shim/hooks.h"
#include "shim/imports.h"
#include "shim/init.h"
#include "shim/outside.h"
#include "shim/seen.h"
#include "shim/serve.h"

_Static_assert(IPC_HANDLE_BYTES == CU_IPC_HANDLE_SIZE, "a handle of another size");

static void
mark(const struct seen *seen, CUresult status)
{
	if (status == CUDA_SUCCESS && seen->kind == SEEN_BLOCK)
		heap_mark_exported(&context_pool, seen->addr);
}

/* The handle of a segment, sealed; where it cannot be, the driver's answer to an address that it
 * does not know. */
static CUresult
get_sealed_handle(const struct seen *seen, CUipcMemHandle *ret_handle)
{
	const struct ipc_part part = {
		.offset_bytes = seen->addr - seen->info.segment_addr,
		.size_bytes = seen->size_bytes,
		.generation = seen->serial,
	};
	CUipcMemHandle handle;
	CUresult r = real.cuIpcGetMemHandle(&handle, seen->info.segment_addr);

	if (r != CUDA_SUCCESS)
		return r;
	if (!ipc_handle_seal((unsigned char *)handle.reserved, &part))
		return real.cuIpcGetMemHandle(ret_handle, 0);
	*ret_handle = handle;
	return CUDA_SUCCESS;
}

CUresult
cuIpcGetMemHandle(CUipcMemHandle *pHandle, CUdeviceptr dptr)
{
	struct seen seen;
	CUresult r;

	hooks_ready();
	seen_at(dptr, &seen);
	if (seen.kind == SEEN_BLOCK && seen.info.is_async) /* natively such memory has no handle */
		r = real.cuIpcGetMemHandle(pHandle, seen_nobodys_addr(dptr));
	else if (pHandle && seen_shares(&seen) && seen.info.kind == HEAP_DEVICE)
		r = get_sealed_handle(&seen, pHandle);
	else
		r = real.cuIpcGetMemHandle(pHandle, seen.driver_addr);
	mark(&seen, r);
	return r;
}

/* Who called the hook whose body is running: what it opens is counted as asked for by that one. */
static _Thread_local const void *asker;

/* Whatever the driver maps for this process passes these three, and is counted. */
static CUresult
open_counted(CUdeviceptr *pdptr, CUipcMemHandle handle, unsigned int flags,
	     imports_open_fn *real_open)
{
	const struct outside_scope scope = outside_scope(asker);
	CUresult r = real_open(pdptr, handle, flags);

	if (outside_counts(r))
		outside_count_ipc(&scope, *pdptr);
	return r;
}

static CUresult
open_v1(CUdeviceptr *pdptr, CUipcMemHandle handle, unsigned int flags)
{
	return open_counted(pdptr, handle, flags, real.cuIpcOpenMemHandle);
}

static CUresult
open_v2(CUdeviceptr *pdptr, CUipcMemHandle handle, unsigned int flags)
{
	return open_counted(pdptr, handle, flags, real.cuIpcOpenMemHandle_v2);
}

static CUresult
close_any(CUdeviceptr dptr)
{
	struct external_record *record = outside_claim(EXTERNAL_BY_IPC, dptr);
	CUresult r = real.cuIpcCloseMemHandle(dptr);

	external_settle(record, r == CUDA_SUCCESS);
	return r;
}

static CUresult
open_handle(CUdeviceptr *pdptr, CUipcMemHandle handle, unsigned int flags, imports_open_fn *open)
{
	CUipcMemHandle unsealed = handle;
	struct ipc_part part;

	if (!pdptr || !init_is_active() ||
	    !ipc_handle_unseal((unsigned char *)unsealed.reserved, &part))
		return open(pdptr, handle, flags);
	return imports_open(&unsealed, &part, flags, open, close_any, pdptr);
}

CUresult
cuIpcOpenMemHandle(CUdeviceptr *pdptr, CUipcMemHandle handle, unsigned int Flags)
{
	hooks_ready();
	asker = HOOK_RETURN_ADDRESS();
	return open_handle(pdptr, handle, Flags, open_v1);
}

CUresult
cuIpcOpenMemHandle_v2(CUdeviceptr *pdptr, CUipcMemHandle handle, unsigned int Flags)
{
	hooks_ready();
	asker = HOOK_RETURN_ADDRESS();
	return open_handle(pdptr, handle, Flags, open_v2);
}

CUresult
cuIpcCloseMemHandle(CUdeviceptr dptr)
{
	CUresult r;

	hooks_ready();
	if (init_is_on() && serve_refusal() == CUDA_SUCCESS && imports_close(dptr, close_any, &r))
		return r;
	return close_any(dptr);
}

enum { DMA_BUF_UNIT_BYTES = 4096 };

/* Where the pages of a block end. */
static CUdeviceptr
end_of_pages(const struct seen *seen)
{
	const bool is_whole = seen->kind == SEEN_BLOCK && seen->info.is_whole;
	const CUdeviceptr end = seen->addr + (is_whole ? seen->info.size_bytes : seen->size_bytes);

	return (end + DMA_BUF_UNIT_BYTES - 1) / DMA_BUF_UNIT_BYTES * DMA_BUF_UNIT_BYTES;
}

/*
 * Go over the blocks of a range, which ends within the last page of one: the driver gives whole
 * pages, of several allocations if they lie side by side. True: all of it is the program's, or not
 * the pool's. visit may be NULL.
 */
static bool
for_each_in_range(CUdeviceptr addr, size_t size_bytes, void (*visit)(const struct seen *seen))
{
	const CUdeviceptr end = addr + size_bytes;
	struct seen seen;

	for (; addr < end; addr = end_of_pages(&seen)) {
		seen_at(addr, &seen);
		if (seen.kind == SEEN_NOTHING)
			return false;
		if (seen.kind == SEEN_AS_IS)
			break; /* the driver's to judge */
		if (visit)
			visit(&seen);
	}
	return true;
}

static void
mark_block(const struct seen *seen)
{
	mark(seen, CUDA_SUCCESS);
}

CUresult
cuMemGetHandleForAddressRange(void *handle, CUdeviceptr dptr, size_t size,
			      CUmemRangeHandleType handleType, unsigned long long flags)
{
	bool is_programs;
	CUresult r;

	hooks_ready();
	is_programs = for_each_in_range(dptr, size, NULL);
	r = real.cuMemGetHandleForAddressRange(handle, is_programs ? dptr : seen_nobodys_addr(dptr),
					       size, handleType, flags);
	if (r == CUDA_SUCCESS)
		for_each_in_range(dptr, size, mark_block);
	return r;
}

/*
 * The driver keeps the wish for its whole allocation. Where blocks share one it stays set until the
 * segment goes back: synchronous copies and memsets of the others wait a little longer, and none
 * waits less than its program wants. Each block answers for itself.
 */
static CUresult
set_sync_memops(const struct seen *seen, unsigned value)
{
	unsigned driver_value = value;
	CUresult r =
		value ? real.cuPointerSetAttribute(&value, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS,
						   seen->driver_addr)
		      : real.cuPointerGetAttribute(&driver_value, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS,
						   seen->driver_addr);

	if (r == CUDA_SUCCESS)
		heap_set_sync_memops(&context_pool, seen->addr, value != 0);
	return r;
}

CUresult
cuPointerSetAttribute(const void *value, CUpointer_attribute attribute, CUdeviceptr ptr)
{
	const bool is_sync_memops = value && attribute == CU_POINTER_ATTRIBUTE_SYNC_MEMOPS;
	struct seen seen;
	CUresult r;

	hooks_ready();
	seen_at(ptr, &seen);
	if (is_sync_memops && seen_shares(&seen))
		r = set_sync_memops(&seen, *(const unsigned *)value);
	else
		r = real.cuPointerSetAttribute(value, attribute, seen.driver_addr);
	if (is_sync_memops && *(const unsigned *)value)
		mark(&seen, r); /* it is set for a network card */
	return r;
}
