/* SPDX-License-Identifier: MIT */
/*
 * Frees: where a block goes when its program has done with it.
 */
#include "pool/heap_internal.h"

#include "pool/thread.h"

static bool
is_due_locked(const struct heap *heap, const struct epoch *open)
{
	return open->n_blocks >= (heap->is_pressed ? 1 : EPOCH_N_FREES_MAX) ||
	       (heap->seal_bytes && open->n_bytes >= heap->seal_bytes);
}

/* A live block ends. stream: in whose order; NULL: the context's. */
static void
end_locked(struct heap *heap, struct block *block, bool is_wide, bool is_complete,
	   const struct order_stream *stream)
{
	heap_take_back_locked(heap, block);
	stats_count(&heap->config.stats->free_count, 1);
	/* Natively no free in a stream's order waits, so nobody who waits has freed it himself. */
	block->freed_by = stream ? 0 : thread_self();
	if (is_complete || order_is_idle_locked(heap, is_wide))
		heap_retire_block_locked(heap, block);
	else if (stream && share_may_have_locked(heap, block, is_wide))
		share_give_locked(heap, block, *stream);
	else
		epoch_add_locked(heap, block, is_wide);
}

static int
give(struct pool *pool, uint64_t addr, enum heap_kind kind, bool is_wide, bool is_complete,
     const struct order_stream *stream)
{
	struct heap *heap;
	struct segment *segment = pool_lock_segment(pool, addr, &heap);
	struct block *block;
	bool is_due = false;
	int r = HEAP_E_INVALID;

	if (!segment)
		return HEAP_E_NOT_OURS;
	block = segment_block_at(segment, addr);
	if (block && block->state == BLOCK_LIVE && heap->config.kind == kind) {
		is_wide |= order_has_foreign(&heap->order);
		end_locked(heap, block, is_wide, is_complete, stream);
		is_due = is_due_locked(heap, heap->open[is_wide]);
		r = HEAP_OK;
	}
	thread_unlock(&heap->lock);
	if (is_due)
		heap_cover(heap, is_wide); /* an error is the next request's to find */
	return r;
}

int
heap_give(struct pool *pool, uint64_t addr, enum heap_kind kind, bool is_wide, bool is_complete)
{
	return give(pool, addr, kind, is_wide, is_complete, NULL);
}

int
heap_give_in(struct pool *pool, uint64_t addr, bool is_wide, struct order_stream stream)
{
	return give(pool, addr, HEAP_DEVICE, is_wide, false, &stream);
}
