/* SPDX-License-Identifier: MIT */
/*
 * Blocks: handing out, freeing, merging; the pool that holds all heaps.
 *
 * A block's life: FREE (in the index) -> LIVE (heap_take) -> PENDING (heap_give: in an epoch) ->
 * FREE (its fence is complete, see epoch.c), or LIVE again at once (see heap_order.c). Only FREE
 * blocks merge, so a pending block's borders move by a split alone. One that others may reach is
 * HELD in between, see heap_exported.c.
 */
#include "pool/heap_internal.h"

#include <assert.h>
#include <stdlib.h>

#include "pool/thread.h"

enum {
	ARENA_REQUEST_MAX_BYTES = 1 << 20,
	HOST_UNIT_MAX_BYTES = 4096, /* up to here pinned requests are rounded to 512 */
};

static const size_t request_max_bytes = (size_t)1 << 46;

void
pool_init(struct pool *pool)
{
	addr_map_init(&pool->map);
	pthread_mutex_init(&pool->lock, NULL);
	list_init(&pool->spare_segments);
	list_init(&pool->spare_heaps);
}

void
pool_fini(struct pool *pool)
{
	addr_map_fini(&pool->map);
	pthread_mutex_destroy(&pool->lock);
}

bool
pool_kind_at(struct pool *pool, uint64_t addr, enum heap_kind *ret_kind)
{
	struct segment *segment = addr_map_find(&pool->map, addr);
	struct heap *heap =
		segment ? atomic_load_explicit(&segment->heap, memory_order_acquire) : NULL;

	if (!heap)
		return false;
	*ret_kind = atomic_load_explicit(&heap->kind, memory_order_relaxed);
	return true;
}

void
heap_await_change_locked(struct heap *heap)
{
	int before, none;

	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
	pthread_cond_wait(&heap->changed, &heap->lock);
	pthread_setcancelstate(before, &none);
}

bool
heap_is_open_locked(struct heap *heap)
{
	while (heap->state == HEAP_CLOSING && !thread_is_at_step())
		heap_await_change_locked(heap);
	return heap->state == HEAP_OPEN;
}

struct segment *
pool_lock_segment(struct pool *pool, uint64_t addr, struct heap **ret_heap)
{
	for (;;) {
		struct segment *segment = addr_map_find(&pool->map, addr);
		struct heap *heap;
		bool is_closing;

		if (!segment)
			return NULL;
		/* Acquire: the heap was set up before the segment was given to it. */
		heap = atomic_load_explicit(&segment->heap, memory_order_acquire);
		if (!heap)
			continue; /* it left the map in this moment */
		thread_lock(&heap->lock);
		/* Heaps and segments are type-stable, so the lock was a lock; now see whether it is
		 * the right one. */
		if (heap_is_open_locked(heap) && addr_map_find(&pool->map, addr) == segment &&
		    atomic_load_explicit(&segment->heap, memory_order_relaxed) == heap) {
			*ret_heap = heap;
			return segment;
		}
		is_closing = heap->state == HEAP_CLOSING;
		thread_unlock(&heap->lock);
		if (is_closing)
			return NULL; /* this thread is at a step of it */
	}
}

bool
pool_may_hold(struct pool *pool, uint64_t addr)
{
	struct segment *segment;

	return !addr_map_try_find(&pool->map, addr, &segment) || segment;
}

int
pool_find(struct pool *pool, uint64_t addr, struct block_info *ret_info)
{
	struct heap *heap;
	struct segment *segment = pool_lock_segment(pool, addr, &heap);
	struct block *block;

	if (!segment)
		return HEAP_E_NOT_OURS;
	block = segment_block_holding(segment, addr);
	*ret_info = (struct block_info){
		.heap = heap,
		.owner = heap->config.owner,
		.kind = heap->config.kind,
		.is_account = heap->config.is_account,
		.is_exported = block->is_exported,
		.is_live = block->state == BLOCK_LIVE,
		.is_whole = block->size_bytes == segment->size_bytes,
		.addr = block->addr,
		.size_bytes = block->size_bytes,
		.requested_bytes = block->state == BLOCK_LIVE ? block->requested_bytes : 0,
		.serial = block->state == BLOCK_LIVE ? block->serial : 0,
		.has_sync_memops = block->has_sync_memops,
		.is_async = block->state == BLOCK_LIVE && block->is_async,
		.segment_addr = segment->addr,
		.segment_bytes = segment->size_bytes,
	};
	thread_unlock(&heap->lock);
	return HEAP_OK;
}

static struct heap *
heap_alloc(struct pool *pool)
{
	struct heap *heap = NULL;

	thread_lock(&pool->lock);
	if (!list_is_empty(&pool->spare_heaps)) {
		heap = list_entry(pool->spare_heaps.next, struct heap, link);
		list_remove(&heap->link);
	}
	thread_unlock(&pool->lock);
	if (heap)
		return heap;

	heap = calloc(1, sizeof(*heap));
	if (!heap)
		return NULL;
	pthread_mutex_init(&heap->lock, NULL);
	pthread_cond_init(&heap->changed, NULL);
	list_init(&heap->link);
	block_store_init(&heap->blocks);
	list_init(&heap->spare_epochs);
	return heap;
}

struct heap *
heap_new(struct pool *pool, const struct heap_config *config)
{
	struct heap *heap = heap_alloc(pool);
	bool is_set_up;

	if (!heap)
		return NULL;
	/* A late reader of the map may hold the lock of a heap that is being reused. */
	thread_lock(&heap->lock);
	heap->pool = pool;
	heap->config = *config;
	atomic_store_explicit(&heap->kind, config->kind, memory_order_relaxed);
	/* The counts stay: a thread that saw the heap go may not have ended its transit yet. */
	free_index_init(&heap->arena_free);
	free_index_init(&heap->whole_free);
	free_index_init(&heap->arena_early);
	free_index_init(&heap->whole_early);
	heap->is_exact = false;
	share_init_locked(heap);
	heap->async = (struct heap_async){0};
	order_init(&heap->order, config->is_early && config->kind == HEAP_DEVICE);
	heap->frag = (struct frag){0};
	heap->is_pressed = false;
	heap->seal_bytes = 0;
	list_init(&heap->segments);
	list_init(&heap->idle);
	list_init(&heap->held);
	heap->n_withheld = 0;
	list_init(&heap->sealed);
	heap->n_epochs = 0;
	heap->n_wide_sealed = 0;
	heap->state = HEAP_OPEN;
	is_set_up = epoch_set_up_locked(heap);
	thread_unlock(&heap->lock);
	if (is_set_up)
		return heap;
	thread_lock(&pool->lock);
	list_append(&pool->spare_heaps, &heap->link);
	thread_unlock(&pool->lock);
	return NULL;
}

struct stats *
heap_stats(struct heap *heap)
{
	return heap->config.stats;
}

enum heap_kind
heap_kind(const struct heap *heap)
{
	return heap->config.kind;
}

static size_t
round_up(size_t bytes, size_t unit_bytes)
{
	return (bytes + unit_bytes - 1) / unit_bytes * unit_bytes;
}

bool
heap_is_arena_request(const struct heap *heap, size_t requested_bytes)
{
	return heap->config.kind == HEAP_DEVICE && !heap->config.is_account &&
	       requested_bytes <= ARENA_REQUEST_MAX_BYTES;
}

bool
heap_splits(const struct heap *heap)
{
	return heap->config.is_split && !heap->config.is_account &&
	       !atomic_load_explicit(&heap->is_exact, memory_order_relaxed);
}

size_t
heap_round(const struct heap *heap, size_t requested_bytes)
{
	if (requested_bytes == 0 || requested_bytes > request_max_bytes)
		return 0;
	if (heap->config.is_account || heap_is_arena_request(heap, requested_bytes))
		return round_up(requested_bytes, BLOCK_UNIT_BYTES);
	if (heap->config.kind == HEAP_DEVICE)
		return round_up(requested_bytes,
				heap_splits(heap) ? BLOCK_LARGE_UNIT_BYTES : SEGMENT_ARENA_BYTES);
	if (requested_bytes <= HOST_UNIT_MAX_BYTES)
		return round_up(requested_bytes, BLOCK_UNIT_BYTES);
	/* Eight sizes a doubling: at most an eighth more than asked. */
	return round_up(requested_bytes,
			(size_t)1 << (63 - __builtin_clzll(requested_bytes - 1) - 3));
}

static struct free_index *
index_of(struct heap *heap, const struct block *block)
{
	return segment_is_arena(block->segment) ? &heap->arena_free : &heap->whole_free;
}

/* A free block that no request gets: a wholly free segment that others may still reach. */
static bool
is_withheld(const struct segment *segment)
{
	return segment->is_exported && segment_is_idle(segment);
}

/* Free blocks count as one extent each; the segments that are wholly free count together, see
 * frag.h. */
void
heap_insert_free_locked(struct heap *heap, struct block *block)
{
	struct segment *segment = block->segment;

	block->state = BLOCK_FREE;
	STATS_RAISE(heap->config.stats, n_free_blocks, 1);
	if (is_withheld(segment)) {
		heap_make_room_withheld_locked(heap);
		heap->n_withheld++;
		list_prepend(&heap->idle, &segment->idle_link);
		frag_add_whole(&heap->frag, block->size_bytes);
		return;
	}
	free_index_insert(index_of(heap, block), block);
	if (segment_is_idle(segment)) {
		list_append(&heap->idle, &segment->idle_link);
		frag_add_whole(&heap->frag, block->size_bytes);
	} else {
		frag_add(&heap->frag, block->size_bytes);
	}
}

void
heap_withdraw_locked(struct heap *heap, struct block *block)
{
	struct segment *segment = block->segment;

	if (segment_is_idle(segment)) {
		list_remove(&segment->idle_link);
		frag_remove_whole(&heap->frag, block->size_bytes);
	} else {
		frag_remove(&heap->frag, block->size_bytes);
	}
	if (is_withheld(segment))
		heap->n_withheld--;
	else
		free_index_remove(index_of(heap, block), block);
	stats_lower(&heap->config.stats->n_free_blocks, 1);
	block->state = BLOCK_PENDING;
}

void
heap_retire_block_locked(struct heap *heap, struct block *block)
{
	struct segment *segment = block->segment;
	struct block *prev = block->prev;

	if (block->is_exported) {
		heap_hold_locked(heap, block);
		return;
	}
	if (prev && prev->state == BLOCK_FREE) {
		heap_withdraw_locked(heap, prev);
		segment_merge_next(segment, &heap->blocks, prev);
		block = prev;
	}
	if (block->next && block->next->state == BLOCK_FREE) {
		heap_withdraw_locked(heap, block->next);
		segment_merge_next(segment, &heap->blocks, block);
	}
	heap_insert_free_locked(heap, block);
	heap_release_if_spent_locked(heap, segment);
}

void
heap_relive_locked(struct heap *heap, struct block *block)
{
	struct stats *stats = heap->config.stats;
	struct stats_share *share = &stats->shares[block->tag];

	block->state = BLOCK_LIVE;
	STATS_RAISE(share, used_bytes, block->size_bytes);
	STATS_RAISE(stats, used_bytes, block->size_bytes);
	STATS_RAISE(stats, requested_bytes, block->requested_bytes);
	STATS_RAISE(stats, n_used_blocks, 1);
	async_raise_locked(heap, block);
	stats_count(&stats->sizes[stats_size_class(block->requested_bytes)].n_live, 1);
}

void
heap_hand_out_locked(struct heap *heap, struct block *block, struct epoch *epoch, unsigned share,
		     size_t requested_bytes, unsigned tag)
{
	struct stats *stats = heap->config.stats;
	struct block *rest;

	assert(tag < STATS_N_TAGS);
	rest = segment_split(block->segment, &heap->blocks, block,
			     heap_round(heap, requested_bytes));
	block->requested_bytes = requested_bytes;
	block->tag = tag;
	heap->n_serials += heap->n_serials == UINT32_MAX ? 2 : 1;
	block->serial = heap->n_serials;
	if (share)
		block->edge_id = share_edge_id_locked(heap);
	else
		block->edge_id = epoch ? epoch->id : 0;
	block->is_exported = false;
	block->is_async = false;
	block->has_sync_memops = false;
	heap_relive_locked(heap, block);
	if (rest && epoch) {
		rest->share = (uint8_t)share;
		epoch_add_rest_locked(heap, rest, epoch);
	} else if (rest) {
		heap_insert_free_locked(heap, rest);
	}
	stats_count(&stats->alloc_count, 1);
	stats_count(&stats->shares[tag].count, 1);
	stats_count(&stats->sizes[stats_size_class(requested_bytes)].count, 1);
}

void
heap_take_back_locked(struct heap *heap, struct block *block)
{
	struct stats *stats = heap->config.stats;

	assert(block->state == BLOCK_LIVE);
	block->state = BLOCK_PENDING;
	stats_lower(&stats->shares[block->tag].used_bytes, block->size_bytes);
	stats_lower(&stats->used_bytes, block->size_bytes);
	stats_lower(&stats->requested_bytes, block->requested_bytes);
	stats_lower(&stats->n_used_blocks, 1);
	async_lower_locked(heap, block);
	stats_lower(&stats->sizes[stats_size_class(block->requested_bytes)].n_live, 1);
}

/* Large requests that share no segments take a block of their exact size: what is held never
 * exceeds what was live. */
struct block *
heap_find_locked(struct heap *heap, const struct free_index *arena, const struct free_index *large,
		 size_t requested_bytes)
{
	const size_t size_bytes = heap_round(heap, requested_bytes);

	if (heap_is_arena_request(heap, requested_bytes))
		return free_index_find_fit(arena, size_bytes);
	return heap_splits(heap) ? free_index_find_fit(large, size_bytes)
				 : free_index_find_exact(large, size_bytes);
}

/* Of two, the tighter fit: a large hole is for large requests. The first of equals. */
static struct block *
tighter(struct block *a, struct block *b)
{
	if (!a || !b)
		return a ? a : b;
	return b->size_bytes < a->size_bytes ? b : a;
}

/* stream: for work in its order alone; or NULL. */
static bool
take_locked(struct heap *heap, const struct order_stream *stream, size_t requested_bytes,
	    unsigned tag, bool *ret_must_seal, uint64_t *ret_addr)
{
	struct block *own = stream ? share_find_locked(heap, *stream, requested_bytes) : NULL;
	struct block *free =
		heap_find_locked(heap, &heap->arena_free, &heap->whole_free, requested_bytes);
	struct block *early = order_find_early_locked(heap, stream, requested_bytes);
	struct block *block;
	struct epoch *epoch;
	unsigned share;

	if (own && early && !early->epoch->fence)
		early = NULL; /* no fence is needed */
	block = tighter(own, tighter(free, early));
	epoch = block && block != free ? block->epoch : NULL;
	share = block ? block->share : 0;
	*ret_must_seal = block && block == early && !epoch->fence;
	if (!block || *ret_must_seal)
		return false;
	if (block == own)
		share_take_locked(heap, block);
	else if (block == early)
		order_take_early_locked(heap, block);
	else
		heap_withdraw_locked(heap, block);
	heap_hand_out_locked(heap, block, epoch, share, requested_bytes, tag);
	*ret_addr = block->addr;
	return true;
}

static int
take(struct heap *heap, const struct order_stream *stream, size_t requested_bytes, unsigned tag,
     uint64_t *ret_addr)
{
	bool was_sealed = false, must_seal;
	int r = HEAP_E_MISS;

	if (heap_round(heap, requested_bytes) == 0)
		return HEAP_E_TOO_LARGE;
	thread_lock(&heap->lock);
	for (;;) {
		if (!heap_is_open_locked(heap)) {
			r = HEAP_E_CLOSED;
			break;
		}
		if (take_locked(heap, stream, requested_bytes, tag, &must_seal, ret_addr)) {
			r = HEAP_OK;
			break;
		}
		if (!must_seal || was_sealed || epoch_seal_locked(heap, false) != BACKEND_OK)
			break;
		was_sealed = true;
	}
	thread_unlock(&heap->lock);
	return r;
}

int
heap_take(struct heap *heap, size_t requested_bytes, unsigned tag, uint64_t *ret_addr)
{
	return take(heap, NULL, requested_bytes, tag, ret_addr);
}

int
heap_take_in(struct heap *heap, struct order_stream stream, size_t requested_bytes, unsigned tag,
	     uint64_t *ret_addr)
{
	return take(heap, &stream, requested_bytes, tag, ret_addr);
}
