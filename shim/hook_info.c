/* SPDX-License-Identifier: MIT */
/*
 * What a program can see of its memory: the answers are those it would get without the pool.
 */
#include "shim/context.h"
#include "shim/hooks.h"
#include "shim/init.h"
#include "shim/seen.h"
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

/* The device of the current context, of whatever kind; NULL: none, or the shim is not active. */
static struct device *
current_device(void)
{
	CUdevice device;

	return init_is_active() && real.cuCtxGetDevice(&device) == CUDA_SUCCESS ? device_get(device)
										: NULL;
}

/* total: the limit if it is lower. free: what the driver or the limit still allows, and what the
 * pool can give in one piece. */
static void
correct_info(const struct device *device, size_t *free_bytes, size_t *total)
{
	const uint64_t limit_bytes = limit_get(&device->account);
	struct idle_sum idle = {.device = device};

	if (total)
		*total = at_most(*total, limit_bytes);
	if (!free_bytes)
		return;
	context_for_each_heap(add_idle, &idle);
	*free_bytes = at_most(limit_free_bytes(&device->account, *free_bytes) + idle.bytes,
			      at_most(device->total_bytes, limit_bytes));
}

CUresult
cuMemGetInfo_v2(size_t *free_bytes, size_t *total)
{
	const struct device *device;
	CUresult r;

	hooks_ready();
	r = real.cuMemGetInfo_v2(free_bytes, total);
	device = r == CUDA_SUCCESS ? current_device() : NULL;
	if (device)
		correct_info(device, free_bytes, total);
	return r;
}

CUresult
cuDeviceTotalMem_v2(size_t *bytes, CUdevice dev)
{
	const struct device *device;
	CUresult r;

	hooks_ready();
	r = real.cuDeviceTotalMem_v2(bytes, dev);
	device = r == CUDA_SUCCESS && init_is_active() ? device_get(dev) : NULL;
	if (device && bytes)
		*bytes = at_most(*bytes, limit_get(&device->account));
	return r;
}

CUresult
cuMemGetAddressRange_v2(CUdeviceptr *pbase, size_t *psize, CUdeviceptr dptr)
{
	struct seen seen;

	hooks_ready();
	seen_at(dptr, &seen);
	if ((seen.kind != SEEN_BLOCK && seen.kind != SEEN_IMPORT) ||
	    serve_refusal() != CUDA_SUCCESS)
		return real.cuMemGetAddressRange_v2(pbase, psize, seen.driver_addr);
	if (pbase)
		*pbase = seen.addr;
	if (psize)
		*psize = seen.size_bytes;
	return CUDA_SUCCESS;
}

CUresult
cuPointerGetAttribute(void *data, CUpointer_attribute attribute, CUdeviceptr ptr)
{
	struct seen seen;
	CUresult r;

	hooks_ready();
	seen_at(ptr, &seen);
	r = real.cuPointerGetAttribute(data, attribute, seen.driver_addr);
	if (r != CUDA_SUCCESS)
		return r;
	seen_correct(&seen, attribute, data);
	if (attribute == CU_POINTER_ATTRIBUTE_P2P_TOKENS)
		seen_give_to_device(&seen);
	return r;
}

CUresult
cuPointerGetAttributes(unsigned int numAttributes, CUpointer_attribute *attributes, void **data,
		       CUdeviceptr ptr)
{
	struct seen seen;
	CUresult r;

	hooks_ready();
	seen_at(ptr, &seen);
	r = real.cuPointerGetAttributes(numAttributes, attributes, data, seen.driver_addr);
	for (unsigned i = 0; r == CUDA_SUCCESS && i < numAttributes; i++)
		seen_correct(&seen, attributes[i], data[i]);
	return r;
}

CUresult
cuMemHostGetDevicePointer_v2(CUdeviceptr *pdptr, void *p, unsigned int Flags)
{
	struct seen seen;

	hooks_ready();
	seen_at((CUdeviceptr)(uintptr_t)p, &seen);
	return real.cuMemHostGetDevicePointer_v2(pdptr, (void *)(uintptr_t)seen.driver_addr, Flags);
}

CUresult
cuMemHostGetFlags(unsigned int *pFlags, void *p)
{
	struct seen seen;

	hooks_ready();
	seen_at((CUdeviceptr)(uintptr_t)p, &seen);
	return real.cuMemHostGetFlags(pFlags, (void *)(uintptr_t)seen.driver_addr);
}
