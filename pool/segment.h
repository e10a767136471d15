/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * Segments: memory got from the backend in one piece, and the blocks in it.
 *
 * The blocks of a segment lie side by side and cover it without a gap; two free neighbours are
 * always merged, so a free block's neighbours are live or pending. An arena is split for many small
 * blocks, others for large ones, or they hold exactly one.
 *
 * Segments and blocks are type-stable: their memory is reused for others of the kind, never given
 * back, because addr_map_find() may answer a segment that is going away. Whoever got one from the
 * map locks its heap and checks.
 *
 * Locking: the heap's, except heap, which readers of the map load to find that lock.
 */
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "pool/list.h"

enum {
	BLOCK_UNIT_BYTES = 512,
	BLOCK_LARGE_UNIT_BYTES = 64 << 10, /* in segments for large blocks */
	SEGMENT_ARENA_BYTES = 2 << 20,
};

struct epoch;
struct heap;

enum block_state {
	BLOCK_SPARE,   /* describes nothing */
	BLOCK_FREE,    /* complete, in the free index */
	BLOCK_LIVE,    /* the program's */
	BLOCK_PENDING, /* freed; earlier work may still touch it */
	BLOCK_HELD,    /* freed and complete, but others than the program may still reach it */
};

struct block {
	uint64_t addr;
	size_t size_bytes;
	union {
		size_t requested_bytes; /* while live */
		struct epoch *epoch;    /* once pending in an epoch */
	};
	struct segment *segment;
	struct block *prev, *next; /* by address */
	struct list link; /* free: the free index; pending: an index of those that may be handed
			     out early; held, spare: their lists */
	struct list epoch_link; /* pending: the epoch */
	uint32_t freed_by;      /* pending: the thread, see thread_self() */
	uint32_t tag;           /* while live: came with the request */
	uint64_t edge_id; /* while live: the id of the epoch that it was handed out early from, or 0
			   */
	uint32_t serial;  /* while live: tells it from what lay here before; never 0, and wraps */
	bool is_exported : 1; /* since it was handed out: see heap_mark_exported() */
	bool is_async : 1;    /* while live: see heap_mark_async() */
	uint8_t share;        /* pending, on link: whose it is, see heap_stream.c; 0: anyone's */
	bool has_sync_memops : 1; /* while live: the program's wish, where blocks share what does it
				   */
	enum block_state state : 8;
};

struct segment {
	_Atomic(struct heap *) heap; /* NULL: spare */
	uint64_t addr;
	size_t size_bytes;
	struct block *first;
	size_t unit_bytes;     /* blocks are multiples of it; 0: there is one block, for ever */
	struct block **starts; /* the block that starts at each unit, or NULL; of one block: NULL */
	struct list link;      /* heap->segments, or the spare list */
	struct list idle_link; /* heap->idle while wholly free */
	bool is_exported; /* a block of it is or was: gives complete blocks only, and goes back to
			     the backend when it is wholly free */
	unsigned n_held;  /* blocks in BLOCK_HELD */
};

/* The blocks that a heap may use for splitting. */
struct block_store {
	struct list spare;
};

void block_store_init(struct block_store *store);
struct block *block_new(struct block_store *store); /* NULL: libc has no memory */
void block_free(struct block_store *store, struct block *block);

/* The block that starts at addr, or NULL. */
struct block *segment_block_at(const struct segment *segment, uint64_t addr);

/* The block that holds addr, which lies inside the segment. */
struct block *segment_block_holding(const struct segment *segment, uint64_t addr);

/* Set the segment up with one block over all of it, in state BLOCK_PENDING and on no list. False:
 * no memory. */
bool segment_set_up(struct segment *segment, struct block_store *store, size_t unit_bytes);

static inline bool
segment_is_arena(const struct segment *segment)
{
	return segment->unit_bytes == BLOCK_UNIT_BYTES;
}

/* Give all blocks back to the store. */
void segment_tear_down(struct segment *segment, struct block_store *store);

/* Cut block, which is on no list, after size_bytes; the rest (same state, on no list), or NULL if
 * it stays whole. */
struct block *segment_split(struct segment *segment, struct block_store *store, struct block *block,
			    size_t size_bytes);

/* Join block with the block after it; both on no list. */
void segment_merge_next(struct segment *segment, struct block_store *store, struct block *block);

/* Is the segment one free block? */
bool segment_is_idle(const struct segment *segment);
