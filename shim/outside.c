/* SPDX-License-Identifier: MIT */
#include "shim/outside.h"

#include "shim/async.h"
#include "shim/callers.h"
#include "shim/capture.h"
#include "shim/context.h"
#include "shim/hook_runtime.h"

_Atomic uint64_t outside_graph_devices;

static unsigned
tag_of(const void *return_address)
{
	return callers_tag(runtime_call_site(return_address));
}

struct outside_scope
outside_scope(const void *return_address)
{
	struct outside_scope scope = {0};
	struct context *context = init_is_active() ? context_of_stream(CU_STREAM_LEGACY) : NULL;

	if (!context)
		return scope;
	scope.device = context->device;
	scope.life = &context->generation;
	/* acquire: the generation of the context that was just found, not of one before it */
	scope.generation = atomic_load_explicit(scope.life, memory_order_acquire);
	scope.tag = tag_of(return_address);
	return scope;
}

static void
place(const struct outside_scope *scope, struct external_item *item)
{
	const bool is_on_host = external_kinds[item->kind].place == EXTERNAL_ON_HOST;

	item->place = is_on_host ? device_host_external() : scope->device->external;
	/* Whose context registered it is told with that device; it lies on the host. */
	item->via = item->kind == EXTERNAL_registered ? scope->device->external : NULL;
	item->life = scope->life;
	item->generation = scope->generation;
	item->tag = scope->tag;
}

void
outside_count(const struct outside_scope *scope, enum external_space space, uint64_t key,
	      enum external_kind kind, uint64_t bytes)
{
	struct external_item item = {.space = space, .key = key, .kind = kind, .bytes = bytes};

	if (!scope->device)
		return;
	place(scope, &item);
	external_add(&item);
}

static struct external *
place_of(const CUmemLocation *location)
{
	struct device *device;

	if (location->type != CU_MEM_LOCATION_TYPE_DEVICE)
		return device_host_external();
	device = device_get(location->id);
	return device ? device->external : NULL;
}

void
outside_count_created(CUmemGenericAllocationHandle handle, uint64_t bytes,
		      const CUmemAllocationProp *how, const void *return_address)
{
	struct external_item item = {
		.space = EXTERNAL_BY_VMM,
		.key = handle,
		.kind = EXTERNAL_vmm,
		.bytes = bytes,
	};

	if (!init_is_active())
		return;
	item.place = place_of(&how->location);
	item.tag = tag_of(return_address);
	external_add(&item);
}

/* The importing process is told the place, not the size: what it maps of it is counted. */
void
outside_count_imported(CUmemGenericAllocationHandle handle, const void *return_address)
{
	struct external_item item = {
		.space = EXTERNAL_BY_VMM,
		.key = handle,
		.kind = EXTERNAL_imported,
		.is_shared = true,
	};
	CUmemAllocationProp how;

	if (!init_is_active() || !real.cuMemGetAllocationPropertiesFromHandle ||
	    real.cuMemGetAllocationPropertiesFromHandle(&how, handle) != CUDA_SUCCESS)
		return;
	item.place = place_of(&how.location);
	item.tag = tag_of(return_address);
	external_add(&item);
}

static void
ask_size(CUdeviceptr addr, struct external_item *item)
{
	CUdeviceptr base;
	size_t bytes;

	if (real.cuMemGetAddressRange_v2(&base, &bytes, addr) == CUDA_SUCCESS)
		item->bytes = bytes;
	else
		item->is_unmeasured = true;
}

/* Opened once more in the same process it is the same address, and one more to close. */
void
outside_count_ipc(const struct outside_scope *scope, CUdeviceptr addr)
{
	struct external_item item = {
		.space = EXTERNAL_BY_IPC,
		.key = addr,
		.kind = EXTERNAL_imported,
		.is_shared = true,
	};

	if (!scope->device)
		return;
	place(scope, &item);
	ask_size(addr, &item);
	external_add(&item);
}

void
outside_count_imported_pointer(CUdeviceptr addr, const void *return_address)
{
	struct external_item item = {
		.space = EXTERNAL_BY_ADDRESS,
		.key = addr,
		.kind = EXTERNAL_imported,
	};
	struct device *device;
	int ordinal;

	if (real.cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, addr) !=
	    CUDA_SUCCESS)
		return;
	device = device_get(ordinal);
	if (!device)
		return;
	item.tag = tag_of(return_address);
	item.place = device->external;
	ask_size(addr, &item);
	external_add(&item);
}

static bool
is_capturing(CUstream stream, enum hook_stream0 stream0)
{
	CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;

	if (!capture_is_open())
		return false;
	if (stream0 == HOOK_STREAM0_PER_THREAD && real.cuStreamIsCapturing_ptsz)
		real.cuStreamIsCapturing_ptsz(stream, &status);
	else if (real.cuStreamIsCapturing)
		real.cuStreamIsCapturing(stream, &status);
	return status != CU_STREAM_CAPTURE_STATUS_NONE;
}

/* The driver is asked for pool and place: which pool is current, and where pools lie, is changed by
 * calls that need not be watched then. */
static bool
ask_pool(CUdeviceptr addr, struct external_item *item)
{
	CUmemoryPool pool = NULL;
	unsigned memory_type = 0;
	int ordinal = -1;
	CUpointer_attribute names[] = {
		CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE,
		CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
		CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
	};
	void *values[] = {&pool, &memory_type, &ordinal};
	struct device *device;

	if (real.cuPointerGetAttributes(3, names, values, addr) != CUDA_SUCCESS)
		return false;
	if (memory_type == CU_MEMORYTYPE_HOST) {
		item->kind = EXTERNAL_user_pools;
		item->place = device_host_external();
		return true;
	}
	device = device_get(ordinal);
	if (!device)
		return false;
	item->kind = pool == async_default_pool(ordinal) ? EXTERNAL_async : EXTERNAL_user_pools;
	item->place = device->external;
	return true;
}

void
outside_count_async(CUdeviceptr addr, uint64_t bytes, CUstream stream, enum hook_stream0 stream0,
		    const void *return_address)
{
	struct external_item item = {
		.space = EXTERNAL_BY_ADDRESS,
		.key = addr,
		.kind = EXTERNAL_async,
		.bytes = bytes,
	};
	struct context *context;

	if (!init_is_active())
		return;
	item.tag = tag_of(return_address);
	if (!is_capturing(stream, stream0) && ask_pool(addr, &item)) {
		external_add(&item);
		return;
	}
	context = context_of_stream(stream);
	if (!context)
		return;
	if (is_capturing(stream, stream0)) {
		outside_note_graph_node(context->device->index);
		return;
	}
	item.place = context->device->external;
	external_add(&item);
}

void
outside_note_graph_node(int device)
{
	if (init_is_active() && device >= 0 && device < DEVICE_N_MAX && device_get(device))
		/* relaxed: see outside_read_graphs() */
		atomic_fetch_or_explicit(&outside_graph_devices, UINT64_C(1) << device,
					 memory_order_relaxed);
}

void
outside_note_graph_params(const CUgraphNodeParams *params)
{
	if (params && params->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC)
		outside_note_graph_node(params->alloc.poolProps.location.id);
}

void
outside_read_graphs_slow(void)
{
	uint64_t devices = atomic_load_explicit(&outside_graph_devices, memory_order_relaxed);
	cuuint64_t bytes;

	if (!init_is_active() || !real.cuDeviceGetGraphMemAttribute)
		return;
	for (; devices; devices &= devices - 1) {
		const int index = __builtin_ctzll(devices);

		if (real.cuDeviceGetGraphMemAttribute(index, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT,
						      &bytes) == CUDA_SUCCESS)
			external_set(device_find(index)->external, EXTERNAL_graph, bytes);
	}
}
