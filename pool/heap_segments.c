/* SPDX-License-Identifier: MIT */
/*
 * Segments of a heap: getting them, giving them back, and the end of a context.
 *
 * A segment leaves the map before the backend may hand its addresses to somebody else, and enters
 * it before a block of it is handed out. While the backend is called the segment is on no list and
 * the heap has it in transit.
 */
#include "pool/heap_internal.h"

#include <assert.h>
#include <stdlib.h>

/*
 * Requests that are large, but not very, share segments: each of its own would be a driver call for
 * every size that is new.
 */
size_t
heap_segment_bytes(const struct heap *heap, size_t requested_bytes)
{
	enum { SHARED_REQUEST_MAX_BYTES = 8 << 20, SHARED_SEGMENT_BYTES = 16 << 20 };

	if (heap_is_arena_request(heap, requested_bytes))
		return SEGMENT_ARENA_BYTES;
	if (heap->config.kind == HEAP_DEVICE && heap_splits(heap) &&
	    requested_bytes <= SHARED_REQUEST_MAX_BYTES)
		return SHARED_SEGMENT_BYTES;
	return heap_segment_bytes_min(heap, requested_bytes);
}

size_t
heap_segment_bytes_min(const struct heap *heap, size_t requested_bytes)
{
	const size_t size_bytes = heap_round(heap, requested_bytes);

	if (heap->config.kind != HEAP_DEVICE || heap->config.is_account ||
	    heap_is_arena_request(heap, requested_bytes))
		return size_bytes;
	return (size_bytes + SEGMENT_ARENA_BYTES - 1) / SEGMENT_ARENA_BYTES * SEGMENT_ARENA_BYTES;
}

static size_t
unit_bytes(const struct heap *heap, size_t requested_bytes)
{
	if (heap_is_arena_request(heap, requested_bytes))
		return BLOCK_UNIT_BYTES;
	return heap->config.kind == HEAP_DEVICE && heap_splits(heap) ? BLOCK_LARGE_UNIT_BYTES : 0;
}

static struct segment *
segment_new(struct pool *pool)
{
	struct segment *segment = NULL;

	thread_lock(&pool->lock);
	if (!list_is_empty(&pool->spare_segments)) {
		segment = list_entry(pool->spare_segments.next, struct segment, link);
		list_remove(&segment->link);
	}
	thread_unlock(&pool->lock);
	if (segment)
		return segment;

	segment = calloc(1, sizeof(*segment));
	if (!segment)
		return NULL;
	list_init(&segment->link);
	list_init(&segment->idle_link);
	return segment;
}

/* The segment is in no map and has no heap. */
static void
segment_free(struct pool *pool, struct segment *segment)
{
	thread_lock(&pool->lock);
	list_append(&pool->spare_segments, &segment->link);
	thread_unlock(&pool->lock);
}

static int
from_backend(int r)
{
	return r == BACKEND_E_NO_MEMORY ? HEAP_E_NO_MEMORY : r;
}

static int
from_map(int r)
{
	return r == ADDR_MAP_OK ? HEAP_OK : HEAP_E_METADATA;
}

static bool
enter_transit(struct heap *heap)
{
	bool is_open;

	thread_lock(&heap->lock);
	is_open = heap_is_open_locked(heap);
	if (is_open)
		heap_enter_transit_locked(heap);
	thread_unlock(&heap->lock);
	return is_open;
}

static void
leave_transit(struct heap *heap)
{
	thread_lock(&heap->lock);
	heap_leave_transit_locked(heap);
	thread_unlock(&heap->lock);
}

/* Make a fresh segment part of the heap, in transit until then, and hand out its block. */
static int
adopt(struct heap *heap, struct segment *segment, size_t requested_bytes, unsigned tag)
{
	struct pool *pool = heap->pool;
	int r = HEAP_E_METADATA;

	thread_lock(&heap->lock);
	if (!segment_set_up(segment, &heap->blocks, unit_bytes(heap, requested_bytes)))
		goto unlock;
	/* Release: whoever finds the segment in the map finds its heap set up. */
	atomic_store_explicit(&segment->heap, heap, memory_order_release);
	r = from_map(addr_map_insert(&pool->map, segment->addr, segment->size_bytes, segment));
	if (r != HEAP_OK) {
		atomic_store_explicit(&segment->heap, NULL, memory_order_relaxed);
		segment_tear_down(segment, &heap->blocks);
		goto unlock;
	}
	segment->is_exported = false;
	segment->n_held = 0;
	list_append(&heap->segments, &segment->link);
	STATS_RAISE(heap->config.stats, total_bytes, segment->size_bytes);
	STATS_RAISE(heap->config.stats, n_segments, 1);
	stats_count(&heap->config.stats->driver_alloc_count, 1);
	heap_hand_out_locked(heap, segment->first, NULL, 0, requested_bytes, tag);
unlock:
	thread_unlock(&heap->lock);
	return r;
}

int
heap_grow(struct heap *heap, size_t requested_bytes, size_t segment_bytes, unsigned tag,
	  uint64_t *ret_addr)
{
	struct backend *backend = heap->config.backend;
	struct segment *segment;
	int r = HEAP_E_METADATA;

	if (heap_round(heap, requested_bytes) == 0 ||
	    segment_bytes < heap_round(heap, requested_bytes))
		return HEAP_E_TOO_LARGE;
	if (!enter_transit(heap))
		return HEAP_E_CLOSED;
	segment = segment_new(heap->pool);
	if (!segment)
		goto leave;
	r = from_backend(backend->ops->map(
		backend, heap->config.is_account ? requested_bytes : segment_bytes,
		&segment->addr));
	if (r != HEAP_OK)
		goto undo_segment;
	segment->size_bytes = segment_bytes;
	r = adopt(heap, segment, requested_bytes, tag);
	if (r != HEAP_OK)
		goto undo_map;
	*ret_addr = segment->addr;
	leave_transit(heap);
	return HEAP_OK;

undo_map:
	backend->ops->unmap(backend, segment->addr, segment_bytes);
undo_segment:
	segment_free(heap->pool, segment);
leave:
	leave_transit(heap);
	return r;
}

/* Take a segment, whose blocks are on no list, out of the heap and the map. */
static void
detach_locked(struct heap *heap, struct segment *segment)
{
	list_remove(&segment->link);
	addr_map_remove(&heap->pool->map, segment->addr, segment->size_bytes, segment);
	atomic_store_explicit(&segment->heap, NULL, memory_order_release);
}

/* Undo detach_locked(). The map kept its tables and the nodes it had, so this fails only when
 * another thread took them. */
static bool
reattach_locked(struct heap *heap, struct segment *segment)
{
	atomic_store_explicit(&segment->heap, heap, memory_order_release);
	if (addr_map_insert(&heap->pool->map, segment->addr, segment->size_bytes, segment) !=
	    ADDR_MAP_OK) {
		atomic_store_explicit(&segment->heap, NULL, memory_order_relaxed);
		return false;
	}
	list_append(&heap->segments, &segment->link);
	return true;
}

static void
forget_locked(struct heap *heap, struct segment *segment)
{
	struct stats *stats = heap->config.stats;

	segment_tear_down(segment, &heap->blocks);
	stats_lower(&stats->total_bytes, segment->size_bytes);
	stats_lower(&stats->n_segments, 1);
	segment_free(heap->pool, segment);
}

/* Call the backend's unmap for a detached segment. Called with the lock, which it lets go in
 * between. */
static int
unmap_locked(struct heap *heap, struct segment *segment)
{
	struct backend *backend = heap->config.backend;
	int r;

	heap_enter_transit_locked(heap);
	thread_unlock(&heap->lock);
	r = backend->ops->unmap(backend, segment->addr, segment->size_bytes);
	thread_lock(&heap->lock);
	heap_leave_transit_locked(heap);
	if (r == BACKEND_OK)
		stats_count(&heap->config.stats->driver_free_count, 1);
	return r;
}

int
heap_give_back(struct pool *pool, uint64_t addr, enum heap_kind kind,
	       int (*unmap)(void *arg, uint64_t addr), void *arg, size_t *ret_freed_bytes)
{
	struct heap *heap;
	struct segment *segment = pool_lock_segment(pool, addr, &heap);
	struct block *block;
	int r = HEAP_E_INVALID;

	if (!segment)
		return HEAP_E_NOT_OURS;
	block = segment->first;
	if (addr != segment->addr || block->state != BLOCK_LIVE || block->next ||
	    heap->config.kind != kind)
		goto unlock;

	heap_take_back_locked(heap, block);
	detach_locked(heap, segment);
	heap_step_out_locked(heap);
	thread_unlock(&heap->lock);
	r = unmap(arg, addr);
	thread_lock(&heap->lock);
	heap_step_in_locked(heap);
	if (r != 0 && reattach_locked(heap, segment)) {
		heap_relive_locked(heap, block);
		goto unlock;
	}
	stats_count(&heap->config.stats->driver_free_count, 1);
	stats_count(&heap->config.stats->free_count, 1);
	*ret_freed_bytes = segment->size_bytes;
	forget_locked(heap, segment);
unlock:
	thread_unlock(&heap->lock);
	return r;
}

/* Record a fence and wait for it: HEAP_OK, HEAP_E_TIMEOUT, HEAP_E_MISS (nothing may be asked now)
 * or a status. */
static int
await_idle_locked(struct heap *heap, uint64_t bound_ns)
{
	struct backend *backend = heap->config.backend;
	struct fence *fence;
	uint64_t begin_ns;
	int r;

	heap_step_out_locked(heap);
	thread_unlock(&heap->lock);
	begin_ns = backend->ops->now_ns(backend);
	r = backend->ops->fence_record(backend, heap->config.kind == HEAP_HOST, &fence);
	if (r == BACKEND_OK) {
		for (unsigned n_tries = 0;; n_tries++) {
			r = backend->ops->fence_query(backend, fence);
			if (r != BACKEND_E_NOT_READY ||
			    backend->ops->now_ns(backend) - begin_ns >= bound_ns)
				break;
			backend->ops->pause(backend, n_tries);
		}
		backend->ops->fence_free(backend, fence);
		stats_count(&heap->config.stats->fence_count, 1);
	}
	thread_lock(&heap->lock);
	heap_step_in_locked(heap);
	if (r == BACKEND_E_NOT_READY)
		return HEAP_E_TIMEOUT;
	return r > 0 ? HEAP_E_MISS : r;
}

/* Give the segment that is idle longest back. On failure it is idle as before. */
static int
trim_one_locked(struct heap *heap, size_t *ret_freed_bytes)
{
	struct segment *segment = list_entry(heap->idle.next, struct segment, idle_link);
	int r;

	heap_withdraw_locked(heap, segment->first);
	detach_locked(heap, segment);
	r = unmap_locked(heap, segment);
	if (r != BACKEND_OK) {
		if (reattach_locked(heap, segment))
			heap_retire_block_locked(heap, segment->first);
		return r;
	}
	*ret_freed_bytes = segment->size_bytes;
	forget_locked(heap, segment);
	return HEAP_OK;
}

int
heap_trim_told(struct heap *heap, size_t want_bytes, uint64_t bound_ns,
	       void (*tell)(void *arg, size_t freed_bytes), void *arg, size_t *ret_freed_bytes)
{
	size_t freed_bytes = 0, one_bytes;
	int r = HEAP_OK;

	thread_lock(&heap->lock);
	if (!heap_is_open_locked(heap) || list_is_empty(&heap->idle))
		goto unlock;
	r = await_idle_locked(heap, bound_ns);
	while (r == HEAP_OK && heap->state == HEAP_OPEN && freed_bytes < want_bytes &&
	       !list_is_empty(&heap->idle)) {
		r = trim_one_locked(heap, &one_bytes);
		if (r == HEAP_OK) {
			tell(arg, one_bytes);
			freed_bytes += one_bytes;
		}
	}
	if (freed_bytes) {
		stats_count(&heap->config.stats->trim_count, 1);
		stats_count(&heap->config.stats->trim_bytes, freed_bytes);
	}
unlock:
	thread_unlock(&heap->lock);
	*ret_freed_bytes = freed_bytes;
	return r < 0 ? r : HEAP_OK;
}

static void
tell_nobody(void *arg, size_t freed_bytes)
{
	(void)arg;
	(void)freed_bytes;
}

int
heap_trim(struct heap *heap, size_t want_bytes, uint64_t bound_ns, size_t *ret_freed_bytes)
{
	return heap_trim_told(heap, want_bytes, bound_ns, tell_nobody, NULL, ret_freed_bytes);
}

void
heap_close(struct heap *heap)
{
	thread_lock(&heap->lock);
	if (heap_is_open_locked(heap)) {
		heap->state = HEAP_CLOSING;
		/* Those who wait for transit wait for the end of the closing instead. */
		pthread_cond_broadcast(&heap->changed);
		while (heap->n_outside > 0)
			heap_await_change_locked(heap);
	}
	thread_unlock(&heap->lock);
}

void
heap_reopen(struct heap *heap)
{
	thread_lock(&heap->lock);
	if (heap->state == HEAP_CLOSING)
		heap->state = HEAP_OPEN;
	pthread_cond_broadcast(&heap->changed);
	thread_unlock(&heap->lock);
}

/* Undo what the block counts in the gauges and take it off its list. */
static void
abandon_block_locked(struct heap *heap, struct block *block)
{
	struct stats *stats = heap->config.stats;

	switch (block->state) {
	case BLOCK_LIVE:
		heap_take_back_locked(heap, block);
		break;
	case BLOCK_PENDING:
		stats_lower(&stats->pending_bytes, block->size_bytes);
		stats_lower(&stats->n_free_blocks, 1);
		break;
	case BLOCK_FREE:
		heap_withdraw_locked(heap, block);
		break;
	case BLOCK_HELD:
		break;
	case BLOCK_SPARE:
		assert(false);
	}
	list_remove(&block->link);
	list_remove(&block->epoch_link);
}

static void
abandon_segment_locked(struct heap *heap, struct segment *segment)
{
	for (struct block *block = segment->first; block; block = block->next)
		abandon_block_locked(heap, block);
	detach_locked(heap, segment);
	forget_locked(heap, segment);
}

uint64_t
heap_drop(struct heap *heap)
{
	struct pool *pool = heap->pool;
	uint64_t dropped_bytes = 0;

	thread_lock(&heap->lock);
	while (!list_is_empty(&heap->segments)) {
		struct segment *segment = list_entry(heap->segments.next, struct segment, link);

		dropped_bytes += segment->size_bytes;
		abandon_segment_locked(heap, segment);
	}
	heap->state = HEAP_GONE;
	pthread_cond_broadcast(&heap->changed);
	thread_unlock(&heap->lock);
	epoch_drop_all(heap);

	thread_lock(&pool->lock);
	list_append(&pool->spare_heaps, &heap->link);
	thread_unlock(&pool->lock);
	return dropped_bytes;
}

void
heap_free(struct heap *heap)
{
	struct backend *backend = heap->config.backend;

	for (struct list *at = heap->segments.next; at != &heap->segments; at = at->next) {
		struct segment *segment = list_entry(at, struct segment, link);

		backend->ops->unmap(backend, segment->addr, segment->size_bytes);
	}
	heap_drop(heap);
}
