/* SPDX-License-Identifier: MIT */
#include "pool/free_index.h"

#include "pool/segment.h"

enum { FIT_STEPS_MAX = 16 };

/* Classes 0 to 7 hold 1 to 7 units each by itself; from 8 units on, eight classes a doubling. */
static unsigned
class_of(size_t size_bytes)
{
	const uint64_t n_units = size_bytes / BLOCK_UNIT_BYTES;
	unsigned top;

	if (n_units < 8)
		return (unsigned)n_units;
	top = 63 - (unsigned)__builtin_clzll(n_units);
	if (top - 2 >= FREE_INDEX_N_DOUBLINGS)
		return FREE_INDEX_N_CLASSES - 1;
	return (top - 2) * 8 + (unsigned)((n_units >> (top - 3)) & 7);
}

void
free_index_init(struct free_index *index)
{
	for (size_t i = 0; i < FREE_INDEX_N_CLASSES / 64; i++)
		index->occupied[i] = 0;
	for (size_t i = 0; i < FREE_INDEX_N_CLASSES; i++)
		list_init(&index->classes[i]);
}

void
free_index_insert(struct free_index *index, struct block *block)
{
	const unsigned class = class_of(block->size_bytes);

	list_prepend(&index->classes[class], &block->link);
	index->occupied[class / 64] |= UINT64_C(1) << class % 64;
}

void
free_index_append(struct free_index *index, struct block *block)
{
	const unsigned class = class_of(block->size_bytes);

	list_append(&index->classes[class], &block->link);
	index->occupied[class / 64] |= UINT64_C(1) << class % 64;
}

void
free_index_remove(struct free_index *index, struct block *block)
{
	const unsigned class = class_of(block->size_bytes);

	list_remove(&block->link);
	if (list_is_empty(&index->classes[class]))
		index->occupied[class / 64] &= ~(UINT64_C(1) << class % 64);
}

static struct block *
search_class(const struct free_index *index, unsigned class, size_t at_least_bytes,
	     size_t at_most_bytes, size_t n_steps_max)
{
	const struct list *head = &index->classes[class];
	struct block *best = NULL;

	for (struct list *at = head->next; at != head && n_steps_max > 0;
	     at = at->next, n_steps_max--) {
		struct block *block = list_entry(at, struct block, link);

		if (block->size_bytes < at_least_bytes || block->size_bytes > at_most_bytes)
			continue;
		if (!best || block->size_bytes < best->size_bytes)
			best = block;
		if (best->size_bytes == at_least_bytes)
			break;
	}
	return best;
}

/* The lowest occupied class from class on, or FREE_INDEX_N_CLASSES. */
static unsigned
next_occupied(const struct free_index *index, unsigned class)
{
	for (unsigned word = class / 64; word < FREE_INDEX_N_CLASSES / 64; word++) {
		uint64_t bits = index->occupied[word];

		if (word == class / 64)
			bits &= ~UINT64_C(0) << class % 64;
		if (bits)
			return word * 64 + (unsigned)__builtin_ctzll(bits);
	}
	return FREE_INDEX_N_CLASSES;
}

struct block *
free_index_find_fit(const struct free_index *index, size_t size_bytes)
{
	const unsigned class = class_of(size_bytes);
	struct block *block = search_class(index, class, size_bytes, SIZE_MAX, FIT_STEPS_MAX);
	unsigned above;

	if (block || class + 1 >= FREE_INDEX_N_CLASSES)
		return block;
	above = next_occupied(index, class + 1);
	if (above < FREE_INDEX_N_CLASSES)
		return list_entry(index->classes[above].next, struct block, link);
	/* The class itself may hold a fitting block further down: memory that is there must be
	 * found. */
	return search_class(index, class, size_bytes, SIZE_MAX, SIZE_MAX);
}

struct block *
free_index_find_exact(const struct free_index *index, size_t size_bytes)
{
	return search_class(index, class_of(size_bytes), size_bytes, size_bytes, SIZE_MAX);
}

size_t
free_index_largest(const struct free_index *index)
{
	size_t largest = 0;

	for (unsigned class = FREE_INDEX_N_CLASSES; class -- > 0;) {
		const struct list *head = &index->classes[class];

		for (struct list *at = head->next; at != head; at = at->next) {
			struct block *block = list_entry(at, struct block, link);

			if (block->size_bytes > largest)
				largest = block->size_bytes;
		}
		if (largest)
			break;
	}
	return largest;
}
