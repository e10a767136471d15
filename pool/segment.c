/* SPDX-License-Identifier: MIT */
#include "pool/segment.h"

#include <assert.h>
#include <stdlib.h>

enum { BLOCKS_A_BATCH = 128 };

void
block_store_init(struct block_store *store)
{
	list_init(&store->spare);
}

struct block *
block_new(struct block_store *store)
{
	struct block *block;

	if (list_is_empty(&store->spare)) {
		struct block *batch = calloc(BLOCKS_A_BATCH, sizeof(*batch));

		if (!batch)
			return NULL;
		for (size_t i = 0; i < BLOCKS_A_BATCH; i++)
			list_append(&store->spare, &batch[i].link);
	}
	block = list_entry(store->spare.next, struct block, link);
	list_remove(&block->link);
	return block;
}

void
block_free(struct block_store *store, struct block *block)
{
	assert(list_is_empty(&block->link));
	block->state = BLOCK_SPARE;
	list_prepend(&store->spare, &block->link);
}

static struct block **
start_of(const struct segment *segment, uint64_t addr)
{
	return &segment->starts[(addr - segment->addr) / segment->unit_bytes];
}

static void
set_start(struct segment *segment, uint64_t addr, struct block *block)
{
	if (segment->starts)
		*start_of(segment, addr) = block;
}

struct block *
segment_block_at(const struct segment *segment, uint64_t addr)
{
	if (addr == segment->addr)
		return segment->first;
	if (!segment->starts || (addr - segment->addr) % segment->unit_bytes)
		return NULL;
	return *start_of(segment, addr);
}

struct block *
segment_block_holding(const struct segment *segment, uint64_t addr)
{
	struct block **start;

	if (!segment->starts)
		return segment->first;
	for (start = start_of(segment, addr); !*start; start--)
		;
	return *start;
}

bool
segment_set_up(struct segment *segment, struct block_store *store, size_t unit_bytes)
{
	struct block *block = block_new(store);

	if (!block)
		return false;
	segment->starts = NULL;
	segment->unit_bytes = unit_bytes;
	if (unit_bytes) {
		segment->starts =
			calloc(segment->size_bytes / unit_bytes, sizeof(*segment->starts));
		if (!segment->starts) {
			block_free(store, block);
			return false;
		}
	}
	*block = (struct block){
		.addr = segment->addr,
		.size_bytes = segment->size_bytes,
		.segment = segment,
		.state = BLOCK_PENDING,
	};
	list_init(&block->link);
	list_init(&block->epoch_link);
	segment->first = block;
	set_start(segment, segment->addr, block);
	return true;
}

void
segment_tear_down(struct segment *segment, struct block_store *store)
{
	struct block *block = segment->first;

	while (block) {
		struct block *next = block->next;

		list_remove(&block->link);
		list_remove(&block->epoch_link);
		block_free(store, block);
		block = next;
	}
	segment->first = NULL;
	free(segment->starts);
	segment->starts = NULL;
}

struct block *
segment_split(struct segment *segment, struct block_store *store, struct block *block,
	      size_t size_bytes)
{
	struct block *rest;

	if (!segment->starts || block->size_bytes == size_bytes)
		return NULL;
	rest = block_new(store);
	if (!rest)
		return NULL;
	*rest = (struct block){
		.addr = block->addr + size_bytes,
		.size_bytes = block->size_bytes - size_bytes,
		.segment = segment,
		.prev = block,
		.next = block->next,
		.state = block->state,
	};
	list_init(&rest->link);
	list_init(&rest->epoch_link);
	if (rest->next)
		rest->next->prev = rest;
	block->next = rest;
	block->size_bytes = size_bytes;
	set_start(segment, rest->addr, rest);
	return rest;
}

void
segment_merge_next(struct segment *segment, struct block_store *store, struct block *block)
{
	struct block *next = block->next;

	set_start(segment, next->addr, NULL);
	block->size_bytes += next->size_bytes;
	block->next = next->next;
	if (block->next)
		block->next->prev = block;
	block_free(store, next);
}

bool
segment_is_idle(const struct segment *segment)
{
	return segment->first->state == BLOCK_FREE && !segment->first->next;
}
