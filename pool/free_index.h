/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * Free extents by size: two-level segregated lists, eight classes for each doubling.
 *
 * One holds the blocks that are free and complete, another those that wait in an epoch and may be
 * handed out early. find_fit answers in constant time with a block of
 * the lowest class whose every member fits (after looking through the request's own class,
 * bounded), find_exact looks through one class.
 *
 * Locking: the heap's. Units: bytes, multiples of BLOCK_UNIT_BYTES.
 */
#include <stddef.h>
#include <stdint.h>

#include "pool/list.h"

enum {
	FREE_INDEX_N_DOUBLINGS = 40,
	FREE_INDEX_N_CLASSES = FREE_INDEX_N_DOUBLINGS * 8,
};

struct block;

struct free_index {
	uint64_t occupied[FREE_INDEX_N_CLASSES / 64]; /* one bit a class */
	struct list classes[FREE_INDEX_N_CLASSES];
};

void free_index_init(struct free_index *index);
void free_index_insert(struct free_index *index, struct block *block);

/* The same, to be found after the others of its size. */
void free_index_append(struct free_index *index, struct block *block);
void free_index_remove(struct free_index *index, struct block *block);
struct block *free_index_find_fit(const struct free_index *index, size_t size_bytes);
struct block *free_index_find_exact(const struct free_index *index, size_t size_bytes);

/* Size of the largest block; 0 when empty. */
size_t free_index_largest(const struct free_index *index);
