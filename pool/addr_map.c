/* SPDX-License-Identifier: MIT */
#include "pool/addr_map.h"

#include <stdlib.h>

#include "pool/thread.h"

/*
 * Fields are atomic because a reader may look at a node while a writer reuses it; the sequence
 * number tells it to look again, the atomics only keep the race defined.
 */
struct addr_map_node {
	_Atomic(struct addr_map_node *) next;
	_Atomic(struct segment *) segment;
	_Atomic uint64_t begin, end;
};

enum { NODES_A_BATCH = 256 };

static size_t
granule_of(uint64_t addr)
{
	return addr >> ADDR_MAP_GRANULE_SHIFT;
}

static bool
is_in_range(uint64_t addr, size_t size_bytes)
{
	const uint64_t end = UINT64_C(1)
			     << (ADDR_MAP_GRANULE_SHIFT + ADDR_MAP_LEAF_SHIFT + ADDR_MAP_TOP_SHIFT);

	return size_bytes > 0 && addr < end && size_bytes <= end - addr;
}

static struct addr_map_leaf *
leaf_find(struct addr_map *map, size_t granule)
{
	/* Acquire: the leaf's zeroes were written before it was published. */
	return atomic_load_explicit(&map->leaves[granule >> ADDR_MAP_LEAF_SHIFT],
				    memory_order_acquire);
}

static _Atomic(struct addr_map_node *) *
slot_of(struct addr_map_leaf *leaf, size_t granule)
{
	return &leaf->slots[granule & ((1 << ADDR_MAP_LEAF_SHIFT) - 1)];
}

void
addr_map_init(struct addr_map *map)
{
	pthread_mutex_init(&map->lock, NULL);
}

void
addr_map_fini(struct addr_map *map)
{
	for (size_t i = 0; i < sizeof(map->leaves) / sizeof(map->leaves[0]); i++)
		free(atomic_load_explicit(&map->leaves[i], memory_order_relaxed));
	/* Batches of nodes stay with the process: type-stable memory is never given back. */
	pthread_mutex_destroy(&map->lock);
}

static bool
reserve_leaves_locked(struct addr_map *map, size_t first, size_t last)
{
	for (size_t g = first; g <= last; g = (g | ((1 << ADDR_MAP_LEAF_SHIFT) - 1)) + 1) {
		struct addr_map_leaf *leaf = leaf_find(map, g);

		if (leaf)
			continue;
		leaf = calloc(1, sizeof(*leaf));
		if (!leaf)
			return false;
		atomic_store_explicit(&map->leaves[g >> ADDR_MAP_LEAF_SHIFT], leaf,
				      memory_order_release);
	}
	return true;
}

static struct addr_map_node *
next_of(struct addr_map_node *node)
{
	return atomic_load_explicit(&node->next, memory_order_relaxed);
}

static bool
reserve_nodes_locked(struct addr_map *map, size_t n_nodes)
{
	size_t n_spare = 0;

	for (struct addr_map_node *node = map->spare; node && n_spare < n_nodes;
	     node = next_of(node))
		n_spare++;
	while (n_spare < n_nodes) {
		struct addr_map_node *batch = calloc(NODES_A_BATCH, sizeof(*batch));

		if (!batch)
			return false;
		for (size_t i = 0; i < NODES_A_BATCH; i++) {
			atomic_store_explicit(&batch[i].next, map->spare, memory_order_relaxed);
			map->spare = &batch[i];
		}
		n_spare += NODES_A_BATCH;
	}
	return true;
}

static void
write_begin_locked(struct addr_map *map)
{
	uint64_t sequence = atomic_load_explicit(&map->sequence, memory_order_relaxed);

	/* Relaxed: the releases of the change carry it. */
	atomic_store_explicit(&map->sequence, sequence + 1, memory_order_relaxed);
}

static void
write_end_locked(struct addr_map *map)
{
	uint64_t sequence = atomic_load_explicit(&map->sequence, memory_order_relaxed);

	/* Release: a reader that sees the even number sees all stores of the change. */
	atomic_store_explicit(&map->sequence, sequence + 1, memory_order_release);
}

/* Unlink the nodes of a slot that overlap [begin, end); only: just those of this segment. */
static void
prune_slot_locked(struct addr_map *map, _Atomic(struct addr_map_node *) *slot, uint64_t begin,
		  uint64_t end, const struct segment *only)
{
	_Atomic(struct addr_map_node *) *at = slot;

	for (;;) {
		struct addr_map_node *node = atomic_load_explicit(at, memory_order_relaxed);

		if (!node)
			return;
		if (atomic_load_explicit(&node->begin, memory_order_relaxed) >= end ||
		    atomic_load_explicit(&node->end, memory_order_relaxed) <= begin ||
		    (only && atomic_load_explicit(&node->segment, memory_order_relaxed) != only)) {
			at = &node->next;
			continue;
		}
		atomic_store_explicit(at, next_of(node), memory_order_release);
		atomic_store_explicit(&node->next, map->spare, memory_order_release);
		map->spare = node;
	}
}

static void
push_node_locked(struct addr_map *map, _Atomic(struct addr_map_node *) *slot, uint64_t addr,
		 size_t size_bytes, struct segment *segment)
{
	struct addr_map_node *node = map->spare;

	map->spare = next_of(node);
	atomic_store_explicit(&node->segment, segment, memory_order_release);
	atomic_store_explicit(&node->begin, addr, memory_order_release);
	atomic_store_explicit(&node->end, addr + size_bytes, memory_order_release);
	atomic_store_explicit(&node->next, atomic_load_explicit(slot, memory_order_relaxed),
			      memory_order_release);
	atomic_store_explicit(slot, node, memory_order_release);
}

int
addr_map_insert(struct addr_map *map, uint64_t addr, size_t size_bytes, struct segment *segment)
{
	size_t first, last;
	int r = ADDR_MAP_E_NO_MEMORY;

	if (!is_in_range(addr, size_bytes))
		return ADDR_MAP_E_OUT_OF_RANGE;
	first = granule_of(addr);
	last = granule_of(addr + size_bytes - 1);

	thread_lock(&map->lock);
	if (reserve_leaves_locked(map, first, last) &&
	    reserve_nodes_locked(map, last - first + 1)) {
		write_begin_locked(map);
		for (size_t g = first; g <= last; g++) {
			_Atomic(struct addr_map_node *) *slot = slot_of(leaf_find(map, g), g);

			prune_slot_locked(map, slot, addr, addr + size_bytes, NULL);
			push_node_locked(map, slot, addr, size_bytes, segment);
		}
		write_end_locked(map);
		r = ADDR_MAP_OK;
	}
	thread_unlock(&map->lock);
	return r;
}

void
addr_map_remove(struct addr_map *map, uint64_t addr, size_t size_bytes, struct segment *segment)
{
	if (!is_in_range(addr, size_bytes))
		return;
	thread_lock(&map->lock);
	write_begin_locked(map);
	for (size_t g = granule_of(addr); g <= granule_of(addr + size_bytes - 1); g++) {
		struct addr_map_leaf *leaf = leaf_find(map, g);

		if (leaf)
			prune_slot_locked(map, slot_of(leaf, g), addr, addr + size_bytes, segment);
	}
	write_end_locked(map);
	thread_unlock(&map->lock);
}

static struct segment *
find_once(struct addr_map *map, uint64_t addr, size_t n_steps_max)
{
	struct addr_map_leaf *leaf = leaf_find(map, granule_of(addr));
	struct addr_map_node *node;

	if (!leaf)
		return NULL;
	node = atomic_load_explicit(slot_of(leaf, granule_of(addr)), memory_order_acquire);
	/* Bounded: while a writer moves nodes, a chain may lead through the spare list. */
	for (size_t i = 0; node && i < n_steps_max; i++) {
		if (addr >= atomic_load_explicit(&node->begin, memory_order_acquire) &&
		    addr < atomic_load_explicit(&node->end, memory_order_acquire))
			return atomic_load_explicit(&node->segment, memory_order_acquire);
		node = atomic_load_explicit(&node->next, memory_order_acquire);
	}
	return NULL;
}

bool
addr_map_try_find(struct addr_map *map, uint64_t addr, struct segment **ret_segment)
{
	/* A granule cannot hold more segments than it has 512-byte units. */
	const size_t n_steps_max = (size_t)1 << (ADDR_MAP_GRANULE_SHIFT - 9);
	/* Acquire: the loads of find_once() come after this one. */
	const uint64_t before = atomic_load_explicit(&map->sequence, memory_order_acquire);

	*ret_segment = is_in_range(addr, 1) ? find_once(map, addr, n_steps_max) : NULL;
	return !(before & 1) &&
	       atomic_load_explicit(&map->sequence, memory_order_relaxed) == before;
}

struct segment *
addr_map_find(struct addr_map *map, uint64_t addr)
{
	struct segment *segment;

	while (!addr_map_try_find(map, addr, &segment))
		;
	return segment;
}
