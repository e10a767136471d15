/* SPDX-License-Identifier: MIT */
#include "shim/serve.h"

#include <unistd.h>

#include "policy/exhaust.h"
#include "policy/size.h"
#include "shim/async.h"
#include "shim/callers.h"
#include "shim/context.h"
#include "shim/hook_runtime.h"
#include "shim/init.h"
#include "shim/log.h"
#include "shim/order.h"
#include "shim/sharing.h"
#include "shim/submit.h"
#include "shim/visible.h"

struct context *
serve_context(void)
{
	return init_is_active() ? context_current() : NULL;
}

struct peer_trim {
	struct context *context; /* of the request */
	struct heap *except;
	size_t want_bytes;
	uint64_t bound_ns;
};

static void
trim_peer(struct context *context, struct heap *heap, enum heap_kind kind, void *arg)
{
	struct peer_trim *trim = arg;
	size_t freed_bytes;

	if (heap == trim->except || kind != HEAP_DEVICE ||
	    context->device != trim->context->device || trim->want_bytes == 0)
		return;
	heap_await_transit(heap);
	heap_release_held(heap);
	freed_bytes = exhaust_make_room(heap, &context->device->account, trim->want_bytes,
					trim->bound_ns);
	trim->want_bytes -= freed_bytes < trim->want_bytes ? freed_bytes : trim->want_bytes;
}

/* struct exhaust_peers: the heaps that other contexts have on the same device. */
static void
trim_peers(void *arg, struct heap *except, size_t want_bytes, uint64_t bound_ns)
{
	struct peer_trim trim = {arg, except, want_bytes, bound_ns};

	context_for_each_heap(trim_peer, &trim);
}

/*
 * The driver needs device memory of its own beside the pool: code that is loaded at a first launch,
 * local memory, what libraries get in other ways. While the pool holds memory that is not in use it
 * leaves the driver a fiftieth of the device, at most 1 GiB.
 */
static bool
is_tight(void *arg, size_t grow_bytes)
{
	enum { SHARE = 50, MOST_BYTES = 1 << 30 };
	const struct context *context = arg;
	const struct stats *stats = context->device->stats;
	const uint64_t share_bytes = context->device->total_bytes / SHARE;
	const uint64_t reserve_bytes = share_bytes < MOST_BYTES ? share_bytes : MOST_BYTES;
	size_t free_bytes, total_bytes;

	if (stats_read(&stats->total_bytes) == stats_read(&stats->used_bytes) ||
	    real.cuMemGetInfo_v2(&free_bytes, &total_bytes) != CUDA_SUCCESS)
		return false;
	return free_bytes < grow_bytes || free_bytes - grow_bytes < reserve_bytes;
}

static void
tell_out_of_memory(const struct context *context, struct heap *heap, size_t size_bytes)
{
	const struct stats *stats = heap_stats(heap);
	const uint64_t limit_bytes = limit_get(&context->device->account);
	struct heap_snapshot snapshot;
	struct frag_figures figures;

	heap_snapshot(heap, &snapshot);
	frag_compute(&snapshot.frag, snapshot.largest_partial_bytes, &figures);
	log_line(OPTION_LOG_WARN,
		 "out of memory: requested %zu, used %llu, cached %llu, limit %s%.0llu, largest "
		 "free block %llu bytes, "
		 "fragmentation %.2f (%s)",
		 size_bytes, (unsigned long long)stats_read(&stats->used_bytes),
		 (unsigned long long)(stats_read(&stats->total_bytes) -
				      stats_read(&stats->used_bytes)),
		 limit_bytes == LIMIT_NONE ? "none" : "",
		 limit_bytes == LIMIT_NONE ? 0ULL : (unsigned long long)limit_bytes,
		 (unsigned long long)figures.largest_free_bytes, figures.entropy,
		 frag_level_name(figures.level));
}

static uint64_t
host_total_bytes(void)
{
	static _Atomic uint64_t known_bytes; /* threads that meet write the same */
	uint64_t bytes = atomic_load_explicit(&known_bytes, memory_order_relaxed);

	if (bytes == 0) {
		bytes = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
		atomic_store_explicit(&known_bytes, bytes, memory_order_relaxed);
	}
	return bytes;
}

/* A share of little is nothing that a program would notice, and waiting costs time. */
static uint64_t
run_ahead_bytes(const struct stats *stats)
{
	enum { LEAST_BYTES = 64 << 20 };
	const struct option_amount *amount = &init_options()->run_ahead;
	uint64_t bytes;

	if (!amount->is_share)
		return amount->bytes;
	bytes = size_of_share(amount->share_ppb, stats_read(&stats->peak_used_bytes));
	return bytes > LEAST_BYTES ? bytes : LEAST_BYTES;
}

static struct exhaust_peers
peers_of(struct context *context, struct heap *heap)
{
	struct exhaust_peers peers = {.trim = trim_peers, .arg = context};

	if (heap_kind(heap) == HEAP_HOST) { /* takes none of the device */
		peers.most_bytes = host_total_bytes();
	} else {
		peers.is_tight = is_tight;
		peers.most_bytes = context->device->total_bytes;
	}
	peers.run_ahead_bytes = run_ahead_bytes(heap_stats(heap));
	return peers;
}

static bool
serve_alloc(struct context *context, struct heap *heap, struct account *account,
	    const struct order_stream *stream, size_t size_bytes, const void *return_address,
	    uint64_t *ret_addr, CUresult *ret_status)
{
	struct exhaust_peers peers;
	unsigned tag;
	int r;

	if (!heap)
		return false;
	order_heed_doubt();
	sharing_look(); /* not in a free: it takes some microseconds */
	tag = callers_tag(runtime_call_site(return_address));
	peers = peers_of(context, heap);
	if (init_options()->mode == OPTION_MODE_ACCOUNT)
		r = exhaust_count_alloc(heap, account, size_bytes, tag, ret_addr);
	else
		r = exhaust_alloc_in(heap, account, &peers, stream, size_bytes, tag, ret_addr);
	if (r == EXHAUST_PASS)
		return false;
	if (r == EXHAUST_E_NO_MEMORY)
		tell_out_of_memory(context, heap, size_bytes);
	else if (r == EXHAUST_OK)
		init_on_first_request();
	*ret_status = r == EXHAUST_OK ? CUDA_SUCCESS
		      : r < 0         ? (CUresult)-r
				      : CUDA_ERROR_OUT_OF_MEMORY;
	return true;
}

bool
serve_device_alloc(size_t size_bytes, const void *return_address, CUdeviceptr *ret_addr,
		   CUresult *ret_status)
{
	struct context *context = serve_context();
	uint64_t addr;

	if (!context ||
	    !serve_alloc(context, context_device_heap(context), &context->device->account, NULL,
			 size_bytes, return_address, &addr, ret_status))
		return false;
	*ret_addr = *ret_status == CUDA_SUCCESS ? addr : 0;
	return true;
}

bool
serve_alloc_async(size_t size_bytes, const struct stream_handle *stream, CUmemoryPool pool,
		  const void *return_address, CUdeviceptr *ret_addr, CUresult *ret_status)
{
	struct context *context = serve_context();
	struct order_place place;
	struct heap *heap;
	uint64_t addr;

	if (!context || !async_serves(context, pool, stream, &place))
		return false;
	heap = context_device_heap(context);
	if (!heap || async_mark(context, heap, stream, &place) != CUDA_SUCCESS ||
	    !serve_alloc(context, heap, &context->device->account, &place.key, size_bytes,
			 return_address, &addr, ret_status))
		return false;
	if (*ret_status == CUDA_SUCCESS) {
		heap_mark_async(&context_pool, addr);
		*ret_addr = addr;
	}
	return true;
}

bool
serve_host_alloc(enum backend_memory memory, unsigned flags, size_t size_bytes,
		 const void *return_address, void **ret_addr, CUresult *ret_status)
{
	struct context *context = serve_context();
	uint64_t addr;

	if (!context ||
	    !serve_alloc(context, context_host_heap(context, memory, flags), &device_host_account,
			 NULL, size_bytes, return_address, &addr, ret_status))
		return false;
	*ret_addr = *ret_status == CUDA_SUCCESS ? (void *)(uintptr_t)addr : NULL;
	return true;
}

static struct account *
account_of(const struct context *context, enum heap_kind kind)
{
	return kind == HEAP_DEVICE ? &context->device->account : &device_host_account;
}

/* What the driver is asked for a block that is a whole allocation of the driver's. */
struct driver_free {
	enum heap_kind kind;
	CUresult (*free_async)(CUdeviceptr, CUstream); /* NULL: the plain form */
	CUstream stream;
	enum hook_stream0 stream0;
	CUresult answer; /* the driver's; until it was asked: of a block that another thread freed
			    first */
};

static int
free_by_driver(void *arg, uint64_t addr)
{
	struct driver_free *how = arg;

	if (how->free_async)
		how->answer =
			SUBMIT_CALL(how->stream, how->stream0, how->free_async(addr, how->stream));
	else if (how->kind == HEAP_DEVICE)
		how->answer = real.cuMemFree_v2(addr);
	else
		how->answer = real.cuMemFreeHost((void *)(uintptr_t)addr);
	return (int)how->answer;
}

/* Returns the driver's status. */
static CUresult
give_back(const struct block_info *info, struct driver_free *how)
{
	size_t freed_bytes = 0;

	how->answer = CUDA_ERROR_INVALID_VALUE;
	heap_give_back(&context_pool, info->addr, how->kind, free_by_driver, how, &freed_bytes);
	limit_release(account_of(info->owner, how->kind), freed_bytes);
	return how->answer;
}

static bool
is_freeable(const struct block_info *info, uint64_t addr, enum heap_kind kind)
{
	return info->is_live && info->addr == addr && info->kind == kind;
}

static int
wait_for_one(struct context *context, void *arg)
{
	(void)arg;
	return backend_wait_for_context(context) ? 0 : 1;
}

/* Without fences a free waits for all that may use the block. True: it did. */
static bool
wait_without_fences(enum heap_kind kind)
{
	return kind == HEAP_HOST && !backend_has_fences() &&
	       context_for_each(wait_for_one, NULL) == 0;
}

/*
 * A block that others than the program's streams may reach goes back to the driver, in a call that
 * waits as the driver's does: at once if it is a whole allocation of the driver's, else with the
 * last of its segment, see heap_mark_exported().
 */
static CUresult
free_exported(const struct block_info *info, struct driver_free *how)
{
	uint64_t withheld_bytes;
	bool is_complete;
	int r;

	if (info->is_whole)
		return give_back(info, how);
	is_complete = backend_wait_for_context(info->owner);
	r = heap_give(&context_pool, info->addr, how->kind, false, is_complete);
	if (r != HEAP_OK)
		return CUDA_ERROR_INVALID_VALUE;
	withheld_bytes = heap_withheld_bytes(info->heap);
	if (withheld_bytes)
		exhaust_trim(info->heap, account_of(info->owner, how->kind), withheld_bytes, 0);
	return CUDA_SUCCESS;
}

/* True: all work submitted to the context before the call is complete. */
static bool
wait_before_free(struct context *context)
{
	switch (init_options()->reuse) {
	case OPTION_REUSE_STRICT:
		return backend_wait_for_context(context);
	case OPTION_REUSE_RELAXED:
		return !backend_has_fences() && visible_wait(context);
	default:
		return visible_wait(context);
	}
}

static CUresult
free_to_pool(const struct block_info *info, uint64_t addr, enum heap_kind kind)
{
	/* Pinned memory may be in use by any context's streams: what one context has completed says
	 * nothing of it. */
	const bool is_complete = wait_before_free(info->owner) && kind == HEAP_DEVICE;
	int r = heap_give(&context_pool, addr, kind, kind == HEAP_HOST,
			  is_complete || wait_without_fences(kind));

	return r == HEAP_OK ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult
serve_refusal(void)
{
	CUcontext current = NULL;
	CUresult r = real.cuCtxGetCurrent(&current);

	if (r == CUDA_SUCCESS && !current)
		r = CUDA_ERROR_INVALID_CONTEXT;
	return r;
}

/* The error that broke the block's context. A free needs no current context (measured). */
static CUresult
error_of(const struct context *owner)
{
	return (CUresult)atomic_load_explicit(&owner->broken, memory_order_relaxed);
}

/*
 * The free of a block in a signal handler that interrupted the shim, where nothing may be waited
 * for: the block stays what it is and is never handed out again.
 */
static bool
leave_block(uint64_t addr, CUresult *ret_status)
{
	if (!init_is_on() || !(thread_holds() || thread_is_at_step()) ||
	    !pool_may_hold(&context_pool, addr))
		return false;
	*ret_status = CUDA_SUCCESS;
	return true;
}

bool
serve_free(uint64_t addr, enum heap_kind kind, CUresult *ret_status)
{
	struct driver_free how = {.kind = kind};
	struct block_info info;
	bool is_freed;

	if (!init_is_active() || pool_find(&context_pool, addr, &info) != HEAP_OK)
		return leave_block(addr, ret_status);
	is_freed = is_freeable(&info, addr, kind);
	if (info.is_account && !is_freed)
		return false; /* the driver's own allocation: it knows what to answer */
	*ret_status = info.is_account ? CUDA_SUCCESS : error_of(info.owner);
	if (*ret_status != CUDA_SUCCESS)
		return true;
	if (!is_freed)
		*ret_status = CUDA_ERROR_INVALID_VALUE;
	else if (info.is_account)
		*ret_status = give_back(&info, &how);
	else if (info.is_exported)
		*ret_status = free_exported(&info, &how);
	else
		*ret_status = free_to_pool(&info, addr, kind);
	return true;
}

/* A stream of another context is covered by that context's fence only. */
static CUresult
free_in_stream(const struct block_info *info, const struct stream_handle *stream)
{
	struct context *context = info->owner;
	struct order_place place = {0};
	const bool is_own = order_find_stream(stream->stream, stream->stream0, context, &place);
	CUresult r = is_own ? async_mark(context, info->heap, stream, &place) : CUDA_SUCCESS;

	if (r == CUDA_SUCCESS &&
	    heap_give_in(&context_pool, info->addr, !is_own, place.key) != HEAP_OK)
		r = CUDA_ERROR_INVALID_VALUE;
	return r;
}

bool
serve_free_async(uint64_t addr, CUstream stream, enum hook_stream0 stream0,
		 CUresult (*free_async)(CUdeviceptr, CUstream), CUresult *ret_status)
{
	struct driver_free how = {.kind = HEAP_DEVICE,
				  .free_async = free_async,
				  .stream = stream,
				  .stream0 = stream0};
	struct block_info info;
	bool is_freed;

	if (!init_is_active() || pool_find(&context_pool, addr, &info) != HEAP_OK)
		return leave_block(addr, ret_status);
	is_freed = is_freeable(&info, addr, HEAP_DEVICE);
	if (info.is_account && !is_freed)
		return false;
	/* Exported: an importer may still read it, so no other block may ever lie there. One that
	 * shares a segment is freed below, and held. */
	if (is_freed && (info.is_account || (info.is_exported && info.is_whole))) {
		*ret_status = give_back(&info, &how);
		return true;
	}
	*ret_status = error_of(info.owner);
	if (*ret_status == CUDA_SUCCESS)
		*ret_status =
			is_freed ? async_check_free(stream, stream0) : CUDA_ERROR_INVALID_VALUE;
	if (*ret_status == CUDA_SUCCESS)
		*ret_status = free_in_stream(&info, &(struct stream_handle){stream, stream0});
	return true;
}

enum { TRIM_WAIT_NS = 10000000 };

struct trim_all {
	enum heap_kind kind;
	const struct device *device;
};

static void
trim_heap(struct context *context, struct heap *heap, enum heap_kind kind, void *arg)
{
	const struct trim_all *trim = arg;

	if (kind != trim->kind || (kind == HEAP_DEVICE && context->device != trim->device))
		return;
	exhaust_make_room(heap, account_of(context, kind), SIZE_MAX, TRIM_WAIT_NS);
}

void
serve_trim_device(int device)
{
	struct trim_all trim = {HEAP_DEVICE, device_find(device)};

	if (init_is_active() && trim.device)
		context_for_each_heap(trim_heap, &trim);
}

void
serve_trim_host(void)
{
	struct trim_all trim = {HEAP_HOST, NULL};

	if (init_is_active())
		context_for_each_heap(trim_heap, &trim);
}

bool
serve_made_room(void)
{
	struct context *context = serve_context();
	const struct stats *stats = context ? context->device->stats : NULL;

	if (!stats || stats_read(&stats->total_bytes) == stats_read(&stats->used_bytes))
		return false;
	trim_peers(context, NULL, SIZE_MAX, EXHAUST_WAIT_BOUND_NS);
	return true;
}
