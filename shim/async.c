/* SPDX-License-Identifier: MIT */
#include "shim/async.h"

#include "policy/exhaust.h"
#include "shim/context.h"
#include "shim/init.h"
#include "shim/order.h"
#include "shim/submit.h"

/* Goes up when a pool may have become, or be no more, the current one of a device. */
static _Atomic uint64_t n_changes = 1;

static struct {
	_Atomic(CUmemoryPool) pool;  /* NULL: not asked yet; threads that meet write the same */
	_Atomic uint64_t current_at; /* n_changes when the default pool was found current */
	atomic_bool is_left;
} defaults[DEVICE_N_MAX];

CUmemoryPool
async_default_pool(int device)
{
	CUmemoryPool found = atomic_load_explicit(&defaults[device].pool, memory_order_relaxed);

	if (!found && real.cuDeviceGetDefaultMemPool &&
	    real.cuDeviceGetDefaultMemPool(&found, device) == CUDA_SUCCESS)
		atomic_store_explicit(&defaults[device].pool, found, memory_order_relaxed);
	return found;
}

CUmemoryPool
async_pool_of(const struct context *context)
{
	return async_default_pool(context->device->index);
}

static bool
is_current(int device)
{
	/* acquire: the driver is asked after the change that was counted */
	const uint64_t n = atomic_load_explicit(&n_changes, memory_order_acquire);
	CUmemoryPool current;

	if (atomic_load_explicit(&defaults[device].current_at, memory_order_relaxed) == n)
		return true;
	if (!real.cuDeviceGetMemPool || real.cuDeviceGetMemPool(&current, device) != CUDA_SUCCESS ||
	    current != async_default_pool(device))
		return false;
	atomic_store_explicit(&defaults[device].current_at, n, memory_order_relaxed);
	return true;
}

/*
 * Memory of the driver's pools outlives contexts, this library's does not: a primary context lives
 * as long as the program uses the device, others are left to the driver.
 */
bool
async_serves(const struct context *context, CUmemoryPool pool, const struct stream_handle *stream,
	     struct order_place *ret_place)
{
	const int index = context->device->index;

	if (init_options()->async != OPTION_ASYNC_POOL || !context->is_primary ||
	    !order_is_early() ||
	    atomic_load_explicit(&defaults[index].is_left, memory_order_relaxed))
		return false;
	return (pool ? pool == async_default_pool(index) : is_current(index)) &&
	       order_find_stream(stream->stream, stream->stream0, context, ret_place) &&
	       backend_ask_capture(stream) == BACKEND_STREAM_RUNS;
}

/* Pools of devices that nobody used yet are not asked for. */
struct device *
async_find_device(CUmemoryPool pool)
{
	if (!pool || !init_is_active() || init_options()->mode != OPTION_MODE_POOL ||
	    init_options()->async != OPTION_ASYNC_POOL)
		return NULL;
	for (int i = 0; i < DEVICE_N_MAX; i++)
		if (device_find(i) && async_default_pool(i) == pool)
			return device_find(i);
	return NULL;
}

/*
 * The driver's requests and frees are operations in their streams, and one in the legacy stream, or
 * in one that waits for it, orders what was submitted to other streams before and after it. Where
 * there may be such work an event is left in place of the operation.
 */
CUresult
async_mark(struct context *context, struct heap *heap, const struct stream_handle *stream,
	   const struct order_place *place)
{
	unsigned generation;
	CUevent event;
	CUresult r;

	if (!place->is_blocking || heap_is_alone(heap, place->key))
		return CUDA_SUCCESS;
	generation = atomic_load_explicit(&context->generation, memory_order_acquire);
	r = backend_event_get(context, &event);
	if (r != CUDA_SUCCESS)
		return r;
	r = SUBMIT_CALL(stream->stream, stream->stream0,
			stream->stream0 == HOOK_STREAM0_PER_THREAD
				? real.cuEventRecord_ptsz(event, stream->stream)
				: real.cuEventRecord(event, stream->stream));
	backend_event_put(context, event, generation);
	return r;
}

CUresult
async_check_free(CUstream stream, enum hook_stream0 stream0)
{
	CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
	CUresult r = CUDA_SUCCESS;

	if (stream0 == HOOK_STREAM0_PER_THREAD && real.cuStreamIsCapturing_ptsz)
		r = real.cuStreamIsCapturing_ptsz(stream, &status);
	else if (real.cuStreamIsCapturing)
		r = real.cuStreamIsCapturing(stream, &status);
	if (r == CUDA_SUCCESS && status != CU_STREAM_CAPTURE_STATUS_NONE)
		return CUDA_ERROR_INVALID_VALUE; /* the driver's answer for memory that is no node
						    of the graph */
	return r;
}

void
async_forget_current(void)
{
	/* release: after the driver's change */
	atomic_fetch_add_explicit(&n_changes, 1, memory_order_release);
}

void
async_leave(const struct device *device)
{
	atomic_store(&defaults[device->index].is_left, true);
}

struct sum {
	const struct device *device;
	struct async_bytes bytes;
};

static void
add(struct context *context, struct heap *heap, enum heap_kind kind, void *arg)
{
	struct sum *sum = arg;
	struct heap_async async;

	if (kind != HEAP_DEVICE || context->device != sum->device)
		return;
	heap_read_async(heap, &async);
	sum->bytes.used += async.used_bytes;
	sum->bytes.peak_used += async.peak_used_bytes;
	sum->bytes.peak_reserved += async.peak_reserved_bytes;
}

/* Figures of one moment each: memory that is freed meanwhile counts on either side. */
struct async_bytes
async_read(const struct device *device)
{
	const uint64_t used_bytes = stats_read(&device->stats->used_bytes);
	const uint64_t total_bytes = stats_read(&device->stats->total_bytes);
	struct sum sum = {.device = device};

	context_for_each_heap(add, &sum);
	sum.bytes.reserved = sum.bytes.used;
	/* Nothing was ever asked for here: what is held is none of the pool's. */
	if (sum.bytes.peak_used > 0 && total_bytes > used_bytes)
		sum.bytes.reserved += total_bytes - used_bytes;
	if (sum.bytes.peak_reserved < sum.bytes.reserved)
		sum.bytes.peak_reserved = sum.bytes.reserved;
	return sum.bytes;
}

static void
reset_used(struct context *context, struct heap *heap, enum heap_kind kind, void *arg)
{
	if (kind == HEAP_DEVICE && context->device == arg)
		heap_reset_async_used(heap);
}

static void
reset_reserved(struct context *context, struct heap *heap, enum heap_kind kind, void *arg)
{
	if (kind == HEAP_DEVICE && context->device == arg)
		heap_reset_async_reserved(heap);
}

void
async_reset_peak_used(struct device *device)
{
	context_for_each_heap(reset_used, device);
}

void
async_reset_peak_reserved(struct device *device)
{
	context_for_each_heap(reset_reserved, device);
}

struct trim {
	struct device *device;
	uint64_t want_bytes;
};

static void
trim_heap(struct context *context, struct heap *heap, enum heap_kind kind, void *arg)
{
	struct trim *trim = arg;
	size_t freed_bytes;

	if (kind != HEAP_DEVICE || context->device != trim->device || trim->want_bytes == 0)
		return;
	heap_settle(heap); /* an error is the next request's to find */
	freed_bytes = exhaust_trim(heap, &trim->device->account, trim->want_bytes, 0);
	trim->want_bytes -= freed_bytes < trim->want_bytes ? freed_bytes : trim->want_bytes;
}

void
async_trim(struct device *device, uint64_t keep_bytes)
{
	const struct async_bytes bytes = async_read(device);
	struct trim trim = {device, 0};

	if (bytes.reserved > keep_bytes)
		trim.want_bytes = bytes.reserved - keep_bytes;
	context_for_each_heap(trim_heap, &trim);
}
