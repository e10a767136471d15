/* SPDX-License-Identifier: MIT */
/*
 * What a program can see of its memory: the answers are those it would get without the pool.
 */
#include "shim/context.h"
#include "shim/hooks.h"
#include "shim/init.h"
#include "shim/serve.h"

struct idle_sum {
	const struct device *device;
	uint64_t bytes;
};

static void
add_idle(struct context *context, struct heap *heap, enum heap_kind kind, void *arg)
{
	struct idle_sum *sum = arg;
	uint64_t idle_bytes, pending_bytes;

	if (kind != HEAP_DEVICE || context->device != sum->device)
		return;
	heap_idle_bytes(heap, &idle_bytes, &pending_bytes);
	sum->bytes += idle_bytes + pending_bytes;
}

static size_t
at_most(uint64_t value, uint64_t bound)
{
	return value < bound ? value : bound;
}

/* total: the limit if it is lower. free: what the driver or the limit still allows, and what the
 * pool can give in one piece. */
CUresult
cuMemGetInfo_v2(size_t *free_bytes, size_t *total)
{
	struct context *context;
	struct idle_sum idle = {0};
	CUresult r;

	hooks_ready();
	r = real.cuMemGetInfo_v2(free_bytes, total);
	if (r != CUDA_SUCCESS || !free_bytes || !total)
		return r;
	context = serve_context();
	if (!context)
		return r;
	idle.device = context->device;
	context_for_each_heap(add_idle, &idle);
	*total = at_most(*total, limit_get(&context->device->account));
	*free_bytes = at_most(limit_free_bytes(&context->device->account, *free_bytes) + idle.bytes,
			      *total);
	return r;
}

static bool
find_block(CUdeviceptr addr, struct block_info *ret_info)
{
	return init_is_active() && pool_find(&context_pool, addr, ret_info) == HEAP_OK &&
	       !ret_info->is_account;
}

CUresult
cuMemGetAddressRange_v2(CUdeviceptr *pbase, size_t *psize, CUdeviceptr dptr)
{
	struct block_info info;
	CUresult r;

	hooks_ready();
	r = find_block(dptr, &info) ? serve_refusal() : CUDA_ERROR_NOT_FOUND;
	if (r != CUDA_SUCCESS)
		return real.cuMemGetAddressRange_v2(pbase, psize, dptr);
	/* Freed: the driver would not know it. Its answer to an address that it does not know,
	 * then. */
	if (!info.is_live || dptr - info.addr >= info.requested_bytes)
		return real.cuMemGetAddressRange_v2(pbase, psize, 0);
	if (pbase)
		*pbase = info.addr;
	if (psize)
		*psize = info.requested_bytes;
	return CUDA_SUCCESS;
}

/*
 * A handle names the driver's whole allocation, so only a block that is one may be exported: any
 * other would show the importer somebody else's bytes. From then on the importer may read it, and
 * it is not used again.
 */
static bool
may_export(CUdeviceptr addr)
{
	struct block_info info;

	if (!find_block(addr, &info) || info.kind != HEAP_DEVICE)
		return true; /* the driver's to refuse, or its own allocation */
	if (!info.is_live || !info.is_whole)
		return false;
	heap_mark_exported(&context_pool, addr);
	return true;
}

CUresult
cuIpcGetMemHandle(CUipcMemHandle *pHandle, CUdeviceptr dptr)
{
	hooks_ready();
	return real.cuIpcGetMemHandle(pHandle, may_export(dptr) ? dptr : 0);
}

CUresult
cuMemGetHandleForAddressRange(void *handle, CUdeviceptr dptr, size_t size,
			      CUmemRangeHandleType handleType, unsigned long long flags)
{
	hooks_ready();
	return real.cuMemGetHandleForAddressRange(handle, may_export(dptr) ? dptr : 0, size,
						  handleType, flags);
}
