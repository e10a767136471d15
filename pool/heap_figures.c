/* SPDX-License-Identifier: MIT */
/* What a heap holds, counted from its blocks. */
#include "pool/heap_internal.h"

void
heap_idle_bytes(struct heap *heap, uint64_t *ret_idle_bytes, uint64_t *ret_pending_bytes)
{
	uint64_t pending_bytes = 0;

	thread_lock(&heap->lock);
	*ret_idle_bytes = heap->frag.whole_bytes;
	for (struct list *at = heap->segments.next; at != &heap->segments; at = at->next) {
		struct segment *segment = list_entry(at, struct segment, link);
		bool is_coming_free = !segment_is_idle(segment);

		for (struct block *block = segment->first; block && is_coming_free;
		     block = block->next)
			is_coming_free = block->state != BLOCK_LIVE;
		if (is_coming_free)
			pending_bytes += segment->size_bytes;
	}
	thread_unlock(&heap->lock);
	*ret_pending_bytes = pending_bytes;
}

static void
recompute_frag_locked(struct heap *heap, struct frag *ret_frag, uint64_t *ret_largest_partial_bytes)
{
	struct frag frag = {0};
	uint64_t largest = 0;

	for (struct list *at = heap->segments.next; at != &heap->segments; at = at->next) {
		struct segment *segment = list_entry(at, struct segment, link);

		if (segment_is_idle(segment)) {
			frag_add_whole(&frag, segment->size_bytes);
			continue;
		}
		for (struct block *block = segment->first; block; block = block->next) {
			if (block->state != BLOCK_FREE)
				continue;
			frag_add(&frag, block->size_bytes);
			if (block->size_bytes > largest)
				largest = block->size_bytes;
		}
	}
	*ret_frag = frag;
	*ret_largest_partial_bytes = largest;
}

void
heap_snapshot(struct heap *heap, struct heap_snapshot *ret_snapshot)
{
	heap_snapshot_until(heap, NULL, ret_snapshot);
}

bool
heap_snapshot_until(struct heap *heap, const struct timespec *deadline,
		    struct heap_snapshot *ret_snapshot)
{
	if (!thread_lock_until(&heap->lock, deadline))
		return false;
	ret_snapshot->frag = heap->frag;
	recompute_frag_locked(heap, &ret_snapshot->frag_recomputed,
			      &ret_snapshot->largest_partial_bytes);
	thread_unlock(&heap->lock);
	return true;
}
