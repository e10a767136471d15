/* SPDX-License-Identifier: MIT */
/*
 * Blocks that others than the program's streams may reach (heap_mark_exported() in heap.h), and
 * what their program wants of them.
 *
 * A freed one is complete like any other and then HELD, not free: the driver does not tell when an
 * importer is done, and one that reads late must not read another owner's bytes. A segment whose
 * blocks are all free or held is spent. It becomes one free block again, and waits at the head of
 * heap->idle to be given back; no request gets it. Natively that is cuMemFree of the memory.
 *
 * The bounds: a segment with held blocks has a live or a pending one too; so many spent segments
 * wait at most; and memory that is short ends it all, which natively a driver that carves small
 * allocations from its own blocks does at once.
 */
#include "pool/heap_internal.h"

enum { WITHHELD_MAX = 4 };

void
heap_hold_locked(struct heap *heap, struct block *block)
{
	block->state = BLOCK_HELD;
	list_append(&heap->held, &block->link);
	block->segment->n_held++;
	heap_release_if_spent_locked(heap, block->segment);
}

/* What was held is free, and others' reach of it forgotten. */
static void
release_locked(struct heap *heap, struct block *block)
{
	list_remove(&block->link);
	block->is_exported = false;
	block->state = BLOCK_PENDING;
	heap_retire_block_locked(heap, block);
}

static bool
is_spent(const struct segment *segment)
{
	for (const struct block *block = segment->first; block; block = block->next)
		if (block->state != BLOCK_FREE && block->state != BLOCK_HELD)
			return false;
	return true;
}

void
heap_release_if_spent_locked(struct heap *heap, struct segment *segment)
{
	struct list released;

	if (segment->n_held == 0 || !is_spent(segment))
		return;
	list_init(&released);
	for (struct block *block = segment->first; block; block = block->next) {
		if (block->state == BLOCK_HELD) {
			list_remove(&block->link);
			list_append(&released, &block->link);
		}
	}
	segment->n_held = 0; /* which also ends the way back here from each of them */
	while (!list_is_empty(&released))
		release_locked(heap, list_entry(released.next, struct block, link));
}

void
heap_make_room_withheld_locked(struct heap *heap)
{
	struct list *at = &heap->idle;
	struct segment *oldest;

	if (heap->n_withheld < WITHHELD_MAX)
		return;
	for (unsigned n = heap->n_withheld; n > 0; n--)
		at = at->next;
	oldest = list_entry(at, struct segment, idle_link);
	heap_withdraw_locked(heap, oldest->first);
	oldest->is_exported = false;
	heap_insert_free_locked(heap, oldest->first);
}

static bool
is_live(const struct block *block)
{
	return block->state == BLOCK_LIVE;
}

int
heap_mark_exported(struct pool *pool, uint64_t addr)
{
	struct heap *heap;
	struct segment *segment = pool_lock_segment(pool, addr, &heap);
	struct block *block;
	int r = HEAP_E_INVALID;

	if (!segment)
		return HEAP_E_NOT_OURS;
	block = segment_block_holding(segment, addr);
	if (is_live(block)) {
		block->is_exported = true;
		segment->is_exported = true;
		for (block = segment->first; block; block = block->next)
			if (block->state == BLOCK_PENDING)
				order_unlist_locked(heap, block);
		r = HEAP_OK;
	}
	thread_unlock(&heap->lock);
	if (r == HEAP_OK)
		heap_await_edges(heap);
	return r;
}

int
heap_set_sync_memops(struct pool *pool, uint64_t addr, bool has_sync_memops)
{
	struct heap *heap;
	struct segment *segment = pool_lock_segment(pool, addr, &heap);
	struct block *block;
	int r = HEAP_E_INVALID;

	if (!segment)
		return HEAP_E_NOT_OURS;
	block = segment_block_holding(segment, addr);
	if (is_live(block)) {
		block->has_sync_memops = has_sync_memops;
		r = HEAP_OK;
	}
	thread_unlock(&heap->lock);
	return r;
}

uint64_t
heap_withheld_bytes(struct heap *heap)
{
	const struct list *at = &heap->idle;
	uint64_t bytes = 0;

	thread_lock(&heap->lock);
	for (unsigned n = heap->n_withheld; n > 0; n--) {
		at = at->next;
		bytes += list_entry(at, struct segment, idle_link)->size_bytes;
	}
	thread_unlock(&heap->lock);
	return bytes;
}

bool
heap_release_held(struct heap *heap)
{
	bool was_some;

	thread_lock(&heap->lock);
	was_some = heap->state == HEAP_OPEN && !list_is_empty(&heap->held);
	while (heap->state == HEAP_OPEN && !list_is_empty(&heap->held)) {
		struct block *block = list_entry(heap->held.next, struct block, link);

		block->segment->n_held--;
		release_locked(heap, block);
	}
	thread_unlock(&heap->lock);
	return was_some;
}
