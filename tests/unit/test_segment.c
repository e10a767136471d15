/* SPDX-License-Identifier: MIT */
#include "pool/segment.h"

#include <criterion/criterion.h>

#define BASE UINT64_C(0x7f0000000000)

static struct block_store store;
static struct segment segment;

static void
set_up(size_t size_bytes, size_t unit_bytes)
{
	block_store_init(&store);
	list_init(&segment.link);
	list_init(&segment.idle_link);
	segment.addr = BASE;
	segment.size_bytes = size_bytes;
	cr_assert(segment_set_up(&segment, &store, unit_bytes), "no memory");
}

static size_t
n_spare(void)
{
	size_t n = 0;

	for (struct list *at = store.spare.next; at != &store.spare; at = at->next)
		n++;
	return n;
}

Test(segment, a_fresh_one_is_one_block_over_all_of_it)
{
	set_up(SEGMENT_ARENA_BYTES, BLOCK_UNIT_BYTES);
	cr_expect_eq(segment.first->addr, BASE);
	cr_expect_eq(segment.first->size_bytes, SEGMENT_ARENA_BYTES);
	cr_expect_eq(segment.first->state, BLOCK_PENDING);
	cr_expect_not(segment_is_idle(&segment), "a block that is not free counts as idle");
	segment.first->state = BLOCK_FREE;
	cr_expect(segment_is_idle(&segment), "one free block is not idle");
	segment_tear_down(&segment, &store);
}

Test(segment, split_and_merge_restore_the_block)
{
	struct block *a, *b, *c;
	size_t n_before;

	set_up(SEGMENT_ARENA_BYTES, BLOCK_UNIT_BYTES);
	n_before = n_spare();
	a = segment.first;
	c = segment_split(&segment, &store, a, 1024);
	b = a;
	cr_assert_not_null(c, "an arena was not split");
	cr_expect_eq(c->addr, BASE + 1024);
	cr_expect_eq(c->size_bytes, SEGMENT_ARENA_BYTES - 1024);
	b = segment_split(&segment, &store, a, 512);
	cr_assert_not_null(b, "an arena was not split");
	cr_expect(a->next == b && b->next == c && !c->next, "the order of blocks is lost");
	cr_expect(c->prev == b && b->prev == a && !a->prev, "the way back is lost");
	cr_expect_eq(segment_block_at(&segment, BASE + 512), b);
	cr_expect_eq(segment_block_holding(&segment, BASE + 1023), b);
	cr_expect_eq(segment_block_holding(&segment, BASE + SEGMENT_ARENA_BYTES - 1), c);
	cr_expect_null(segment_block_at(&segment, BASE + 513), "inside a unit");
	cr_expect_null(segment_block_at(&segment, BASE + 1536), "inside a block");

	segment_merge_next(&segment, &store, b);
	cr_expect_null(segment_block_at(&segment, BASE + 1024), "a merged block still starts");
	segment_merge_next(&segment, &store, a);
	cr_expect_eq(a->size_bytes, SEGMENT_ARENA_BYTES, "bytes were lost");
	cr_expect_null(a->next, "a block was left over");
	segment_tear_down(&segment, &store);
	cr_expect_eq(n_spare(), n_before + 1, "a block was lost");
}

Test(segment, a_block_is_not_split_into_nothing)
{
	set_up(SEGMENT_ARENA_BYTES, BLOCK_UNIT_BYTES);
	cr_expect_null(segment_split(&segment, &store, segment.first, SEGMENT_ARENA_BYTES));
	segment_tear_down(&segment, &store);
}

Test(segment, only_an_arena_is_split)
{
	set_up(3 * SEGMENT_ARENA_BYTES, 0);
	cr_expect_null(segment_split(&segment, &store, segment.first, 512), "it was split");
	cr_expect_eq(segment_block_at(&segment, BASE), segment.first);
	cr_expect_null(segment_block_at(&segment, BASE + 512), "a block starts inside");
	cr_expect_eq(segment_block_holding(&segment, BASE + 5000), segment.first);
	segment_tear_down(&segment, &store);
}

Test(segment, every_unit_can_be_a_block)
{
	struct block *block, *rest;
	size_t n_units = SEGMENT_ARENA_BYTES / BLOCK_UNIT_BYTES, i;

	set_up(SEGMENT_ARENA_BYTES, BLOCK_UNIT_BYTES);
	rest = segment.first;
	for (i = 0; i + 1 < n_units; i++) {
		block = rest;
		rest = segment_split(&segment, &store, block, BLOCK_UNIT_BYTES);
		cr_assert_not_null(rest, "unit %zu was not split off", i);
	}
	for (i = 0; i < n_units; i++) {
		block = segment_block_at(&segment, BASE + i * BLOCK_UNIT_BYTES);
		cr_assert_not_null(block, "unit %zu has no block", i);
		cr_assert_eq(block->size_bytes, BLOCK_UNIT_BYTES, "unit %zu has a wrong size", i);
	}
	segment_tear_down(&segment, &store);
}
