/* SPDX-License-Identifier: MIT */
/*
 * Memory that is one stream's: freed in the order of a stream S, for requests in the order of S.
 *
 * Rule 11. Whoever frees a block in the order of S has let S wait for all work that uses it, so
 * whatever is submitted to S from then on comes after that work: a request of S may have the block
 * at once, with no fence and no call. Nobody else may before the block is complete: an edge would
 * make streams wait for work of S that natively none of them waits for. The epoch's fence is
 * recorded before anything is submitted after the free, so it covers nothing later of S.
 *
 * A few streams have a share each; what a further stream frees is for nobody before it is complete.
 */
#include "pool/heap_internal.h"

static struct free_index *
index_of(struct stream_share *share, const struct block *block)
{
	return segment_is_arena(block->segment) ? &share->arena : &share->whole;
}

/* 0: none. */
static unsigned
find_share(const struct heap *heap, struct order_stream stream)
{
	for (unsigned i = 1; i <= HEAP_N_SHARES; i++)
		if (heap->shares[i - 1].is_set_up && order_same(heap->shares[i - 1].stream, stream))
			return i;
	return 0;
}

/* 0: all are in use. */
static unsigned
get_share(struct heap *heap, struct order_stream stream)
{
	unsigned i = find_share(heap, stream);
	struct stream_share *share;

	for (unsigned k = 1; i == 0 && k <= HEAP_N_SHARES; k++)
		if (heap->shares[k - 1].n_blocks == 0)
			i = k;
	if (i == 0)
		return 0;
	share = &heap->shares[i - 1];
	if (!share->is_set_up) {
		free_index_init(&share->arena);
		free_index_init(&share->whole);
		share->is_set_up = true;
	}
	share->stream = stream;
	return i;
}

void
share_init_locked(struct heap *heap)
{
	for (unsigned i = 0; i < HEAP_N_SHARES; i++) {
		heap->shares[i].is_set_up = false;
		heap->shares[i].n_blocks = 0;
	}
}

void
share_list_locked(struct heap *heap, struct block *block)
{
	struct stream_share *share = &heap->shares[block->share - 1];

	free_index_append(index_of(share, block), block);
	share->n_blocks++;
}

void
share_unlist_locked(struct heap *heap, struct block *block)
{
	struct stream_share *share = &heap->shares[block->share - 1];

	free_index_remove(index_of(share, block), block);
	share->n_blocks--;
	block->share = 0;
}

void
share_give_locked(struct heap *heap, struct block *block, struct order_stream stream)
{
	struct segment *segment = block->segment;
	const unsigned share = get_share(heap, stream);
	struct block *prev = block->prev;

	if (share && prev && prev->share == share) {
		epoch_leave_locked(heap, prev);
		segment_merge_next(segment, &heap->blocks, prev);
		block = prev;
	}
	if (share && block->next && block->next->share == share) {
		epoch_leave_locked(heap, block->next);
		segment_merge_next(segment, &heap->blocks, block);
	}
	block->share = (uint8_t)share;
	epoch_add_shared_locked(heap, block);
}

static bool
has_shares_locked(const struct heap *heap)
{
	return heap->order.is_on && !heap->order.is_stopped && !heap->order.is_shared;
}

bool
share_may_have_locked(const struct heap *heap, const struct block *block, bool is_wide)
{
	return has_shares_locked(heap) && !is_wide && !block->segment->is_exported;
}

struct block *
share_find_locked(struct heap *heap, struct order_stream stream, size_t requested_bytes)
{
	const unsigned i = has_shares_locked(heap) ? find_share(heap, stream) : 0;
	struct stream_share *share = i ? &heap->shares[i - 1] : NULL;

	return share && share->n_blocks > 0
		       ? heap_find_locked(heap, &share->arena, &share->whole, requested_bytes)
		       : NULL;
}

void
share_take_locked(struct heap *heap, struct block *block)
{
	epoch_leave_locked(heap, block);
	heap->order.n_orderings++;
	stats_count(&heap->config.stats->early_count, 1);
}

/* An earlier owner may have got it early and freed it unused, and then S has waited for no edge. */
uint64_t
share_edge_id_locked(const struct heap *heap)
{
	return heap->order.edge ? heap->order.edge_id : 0;
}

/* What it had is for nobody before it is complete. */
void
share_forget_locked(struct heap *heap, struct order_stream stream)
{
	const unsigned i = find_share(heap, stream);

	if (i)
		heap->shares[i - 1].stream = (struct order_stream){0};
}

void
share_forget_all_locked(struct heap *heap)
{
	for (unsigned i = 0; i < HEAP_N_SHARES; i++)
		heap->shares[i].stream = (struct order_stream){0};
}

bool
heap_is_alone(struct heap *heap, struct order_stream stream)
{
	struct order_stream only;
	enum order_mode mode;

	thread_lock(&heap->lock);
	mode = heap->order.is_on ? order_mode(&heap->order, &only) : ORDER_SEVERAL;
	thread_unlock(&heap->lock);
	return mode == ORDER_IDLE || (mode == ORDER_ONE && order_same(only, stream));
}

static uint64_t
async_bytes(const struct block *block)
{
	return (block->requested_bytes + BLOCK_UNIT_BYTES - 1) / BLOCK_UNIT_BYTES *
	       BLOCK_UNIT_BYTES;
}

static void
raise_peak(uint64_t *peak_bytes, uint64_t bytes)
{
	if (bytes > *peak_bytes)
		*peak_bytes = bytes;
}

static uint64_t
reserved_bytes(const struct heap *heap)
{
	const uint64_t used_bytes = stats_read(&heap->config.stats->used_bytes);
	const uint64_t total_bytes = stats_read(&heap->config.stats->total_bytes);

	return heap->async.used_bytes + (total_bytes > used_bytes ? total_bytes - used_bytes : 0);
}

void
async_raise_locked(struct heap *heap, const struct block *block)
{
	struct heap_async *async = &heap->async;

	if (!block->is_async)
		return;
	async->used_bytes += async_bytes(block);
	raise_peak(&async->peak_used_bytes, async->used_bytes);
	raise_peak(&async->peak_reserved_bytes, reserved_bytes(heap));
}

void
async_lower_locked(struct heap *heap, const struct block *block)
{
	if (block->is_async)
		heap->async.used_bytes -= async_bytes(block);
}

void
heap_mark_async(struct pool *pool, uint64_t addr)
{
	struct heap *heap;
	struct segment *segment = pool_lock_segment(pool, addr, &heap);
	struct block *block;

	if (!segment)
		return;
	block = segment_block_at(segment, addr);
	if (block && block->state == BLOCK_LIVE && !block->is_async) {
		block->is_async = true;
		async_raise_locked(heap, block);
	}
	thread_unlock(&heap->lock);
}

void
heap_read_async(struct heap *heap, struct heap_async *ret_async)
{
	thread_lock(&heap->lock);
	*ret_async = heap->async;
	thread_unlock(&heap->lock);
}

void
heap_reset_async_used(struct heap *heap)
{
	thread_lock(&heap->lock);
	heap->async.peak_used_bytes = heap->async.used_bytes;
	thread_unlock(&heap->lock);
}

void
heap_reset_async_reserved(struct heap *heap)
{
	thread_lock(&heap->lock);
	heap->async.peak_reserved_bytes = reserved_bytes(heap);
	thread_unlock(&heap->lock);
}
