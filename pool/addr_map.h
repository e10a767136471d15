/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * Address to segment, for any thread, without a lock.
 *
 * Two levels over 2 MiB granules of a 47-bit address space (57-bit addresses are not handed out
 * unasked; an address above is never ours). A granule holds a chain of nodes, since pinned segments
 * and those got in exact sizes may share one. Nodes are never given back to libc, only reused, so a
 * reader that raced with a removal reads stale memory of the right type, sees the sequence number
 * moved, and looks again.
 *
 * Invariant: segments in the map never overlap. The backend owns the addresses, so one that it
 * hands out anew cannot be alive in an older segment: addr_map_insert() evicts what overlaps (a
 * destroyed context whose heap is not dropped yet).
 *
 * Locking: find takes none; insert and remove take the map's own mutex, which is a leaf.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct addr_map_node;
struct segment;

enum {
	ADDR_MAP_OK = 0,
	ADDR_MAP_E_NO_MEMORY,    /* libc has no memory for a table or a node */
	ADDR_MAP_E_OUT_OF_RANGE, /* the address cannot be kept: do not pool this memory */
};

enum {
	ADDR_MAP_GRANULE_SHIFT = 21,
	ADDR_MAP_LEAF_SHIFT = 13,
	ADDR_MAP_TOP_SHIFT = 13,
};

struct addr_map_leaf {
	_Atomic(struct addr_map_node *) slots[1 << ADDR_MAP_LEAF_SHIFT];
};

struct addr_map {
	pthread_mutex_t lock;
	atomic_uint_fast64_t sequence; /* odd while a writer is at work */
	_Atomic(struct addr_map_leaf *) leaves[1 << ADDR_MAP_TOP_SHIFT];
	struct addr_map_node *spare; /* under lock */
};

void addr_map_init(struct addr_map *map);

/* Free all tables; nobody reads any more. */
void addr_map_fini(struct addr_map *map);

/* All or nothing: on failure the map is as it was. */
int addr_map_insert(struct addr_map *map, uint64_t addr, size_t size_bytes,
		    struct segment *segment);

/* Take segment out wherever it stands in the range; parts evicted by a newer segment are passed
 * over. */
void addr_map_remove(struct addr_map *map, uint64_t addr, size_t size_bytes,
		     struct segment *segment);

/* The segment that holds addr, or NULL. The answer is as old as the return: segments are
 * type-stable (segment.h). */
struct segment *addr_map_find(struct addr_map *map, uint64_t addr);

/* The same without waiting for a writer. False: one was at work, nothing is known. */
bool addr_map_try_find(struct addr_map *map, uint64_t addr, struct segment **ret_segment);
