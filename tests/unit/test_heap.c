/* SPDX-License-Identifier: MIT */
/* Blocks: what is handed out, freed, given back, and what is answered to wrong calls. */
#include "pool/heap.h"

#include <criterion/criterion.h>

#include "tests/support/heap_fixture.h"
#include "tests/support/rows.h"

TestSuite(heap, .init = heap_fixture_setup, .fini = heap_fixture_teardown, .timeout = 20);
TestSuite(heap_host, .init = heap_fixture_setup_host, .fini = heap_fixture_teardown, .timeout = 20);
TestSuite(heap_account, .init = heap_fixture_setup_account, .fini = heap_fixture_teardown,
	  .timeout = 20);

static bool
is_ours(uint64_t addr)
{
	enum heap_kind kind;

	return pool_kind_at(&pool, addr, &kind);
}

static const struct round_case {
	size_t requested_bytes, want_bytes, want_segment_bytes;
} device_rounds[] = {
	{1, 512, 2 << 20},
	{400, 512, 2 << 20},
	{512, 512, 2 << 20},
	{513, 1024, 2 << 20},
	{1 << 20, 1 << 20, 2 << 20},
	{(1 << 20) + 1, 2 << 20, 2 << 20},
	{2 << 20, 2 << 20, 2 << 20},
	{(2 << 20) + 1, 4 << 20, 4 << 20},
	{(size_t)1 << 40, (size_t)1 << 40, (size_t)1 << 40},
	{0, 0, 0},
	{SIZE_MAX, 0, 0},
	{(size_t)1 << 63, 0, 0},
};

TEST_ROWS(heap, requests_are_rounded_to_units_and_segments, device_rounds)
{
	const struct round_case *c = &device_rounds[*row];

	cr_expect_eq(heap_round(heap, c->requested_bytes), c->want_bytes, "%zu is rounded to %zu",
		     c->requested_bytes, heap_round(heap, c->requested_bytes));
	if (!c->want_bytes)
		return;
	cr_expect_eq(heap_segment_bytes(heap, c->requested_bytes), c->want_segment_bytes,
		     "%zu gets a segment of %zu", c->requested_bytes,
		     heap_segment_bytes(heap, c->requested_bytes));
	cr_expect_geq(heap_segment_bytes_min(heap, c->requested_bytes), c->want_bytes,
		      "%zu gets a least segment that is too small", c->requested_bytes);
}

Test(heap_host, pinned_requests_waste_at_most_an_eighth_or_a_unit)
{
	size_t bytes, rounded_bytes, last_bytes = 0;

	for (bytes = 1; bytes < 64 * MIB; bytes += 1 + bytes / 37) {
		rounded_bytes = heap_round(heap, bytes);
		cr_assert_geq(rounded_bytes, bytes, "%zu is cut", bytes);
		cr_assert_geq(rounded_bytes, last_bytes, "%zu gets less than a smaller one", bytes);
		cr_assert(rounded_bytes - bytes < 512 || (rounded_bytes - bytes) * 8 <= bytes,
			  "%zu wastes %zu", bytes, rounded_bytes - bytes);
		cr_assert_eq(heap_round(heap, rounded_bytes), rounded_bytes, "%zu is rounded on",
			     rounded_bytes);
		last_bytes = rounded_bytes;
	}
}

Test(heap, a_life_as_cupy_tells_it)
{
	uint64_t addr = take_or_grow(400);

	cr_expect_eq(stats_read(&stats.used_bytes), 512, "400 bytes do not use 512");
	cr_expect_eq(stats_read(&stats.requested_bytes), 400, "400 bytes were not asked");
	cr_expect_geq(stats_read(&stats.total_bytes), 512, "nothing was got");
	give_complete(addr);
	cr_expect_eq(stats_read(&stats.used_bytes), 0, "freed, and used");
	cr_expect_eq(stats_read(&stats.total_bytes), 2 * MIB, "the segment did not stay");
	cr_expect_eq(stats_read(&stats.n_free_blocks), 1, "one free block");
}

Test(heap, an_empty_one_has_nothing_to_hand_out)
{
	uint64_t addr = 77;
	size_t freed_bytes = 77;

	cr_expect_eq(heap_take(heap, 512, 0, &addr), HEAP_E_MISS);
	cr_expect_eq(heap_take(heap, SIZE_MAX, 0, &addr), HEAP_E_TOO_LARGE);
	cr_expect_eq(heap_grow(heap, SIZE_MAX, SIZE_MAX, 0, &addr), HEAP_E_TOO_LARGE);
	cr_expect_eq(heap_grow(heap, 1024, 512, 0, &addr), HEAP_E_TOO_LARGE, "a segment too small");
	cr_expect_eq(heap_wait(heap, 1000), HEAP_E_MISS, "there is nothing to wait for");
	cr_expect_eq(heap_settle(heap), HEAP_OK);
	cr_expect_eq(heap_trim(heap, SIZE_MAX, 1000, &freed_bytes), HEAP_OK);
	cr_expect_eq(freed_bytes, 0, "something was given back");
	cr_expect_eq(addr, 77, "a result was touched");
	cr_expect_eq(fake_backend_n_recorded(&fake), 0, "a fence for nothing");
}

Test(heap, small_blocks_share_a_segment_and_do_not_overlap)
{
	uint64_t addrs[100];
	size_t i;

	for (i = 0; i < 100; i++) {
		addrs[i] = take_or_grow(1000 + i * 10);
		cr_expect_eq(addrs[i] % 512, 0, "block %zu is not aligned", i);
	}
	assert_heap_is_sound("100 blocks");
	cr_expect_eq(fake_backend_n_mappings(&fake), 1, "100 small blocks took more than one");
	for (i = 0; i < 100; i += 2)
		give_complete(addrs[i]);
	assert_heap_is_sound("every other one freed");
	for (i = 1; i < 100; i += 2)
		give_complete(addrs[i]);
	assert_heap_is_sound("all freed");
	cr_expect_eq(stats_read(&stats.n_free_blocks), 1, "not merged into one");
}

Test(heap, a_large_block_gets_a_segment_of_its_exact_size_and_reuses_only_such)
{
	uint64_t large = take_or_grow(5 * MIB), small;

	give_complete(large);
	small = take_or_grow(3 * MIB);
	cr_expect_neq(small, large, "a hole of 6 MiB was cut for 3 MiB");
	cr_expect_eq(take_or_grow(5 * MIB + 1), large, "the exact segment was not reused");
	cr_expect_eq(fake_backend_n_mappings(&fake), 2, "another segment was got");
}

Test(heap, a_small_block_never_comes_from_a_large_segment)
{
	uint64_t large = take_or_grow(4 * MIB), small;

	give_complete(large);
	small = take_or_grow(512);
	cr_expect(small < large || small >= large + 4 * MIB, "a large segment was cut");
}

Test(heap, growth_by_the_least_segment_serves_the_request)
{
	size_t least_bytes = heap_segment_bytes_min(heap, 700);
	uint64_t addr;

	cr_assert_eq(heap_grow(heap, 700, least_bytes, 0, &addr), HEAP_OK);
	cr_expect_eq(fake_backend_held_bytes(&fake), least_bytes, "more than the least was got");
	assert_heap_is_sound("least segment");
}

Test(heap, the_last_address_that_the_map_keeps_can_be_pooled_and_no_higher_one)
{
	uint64_t addr = 77;

	fake_backend_set_next_addr(&fake, (UINT64_C(1) << 47) - 2 * MIB);
	cr_expect_eq(heap_grow(heap, 512, 2 * MIB, 0, &addr), HEAP_OK, "the last one");
	addr = 77;
	cr_expect_eq(heap_grow(heap, 512, 2 * MIB, 0, &addr), HEAP_E_METADATA, "a higher one");
	cr_expect_eq(addr, 77, "the result was touched");
	cr_expect_eq(fake_backend_n_mappings(&fake), 1, "what cannot be kept was not given back");
}

Test(heap, wrong_frees_are_told_apart_and_change_nothing)
{
	uint64_t first = take_or_grow(512), second = take_or_grow(2048);
	uint64_t large = take_or_grow(4 * MIB);
	size_t freed_bytes = 77;

	cr_expect_eq(heap_give(&pool, 12345, HEAP_DEVICE, false, false), HEAP_E_NOT_OURS);
	cr_expect_eq(heap_give(&pool, first - 1, HEAP_DEVICE, false, false), HEAP_E_NOT_OURS);
	cr_expect_eq(heap_give(&pool, second + 512, HEAP_DEVICE, false, false), HEAP_E_INVALID,
		     "inside a block, on a unit");
	cr_expect_eq(heap_give(&pool, second + 1, HEAP_DEVICE, false, false), HEAP_E_INVALID,
		     "inside a block");
	cr_expect_eq(heap_give(&pool, second + 2048, HEAP_DEVICE, false, false), HEAP_E_INVALID,
		     "a free block");
	cr_expect_eq(heap_give(&pool, large + 4096, HEAP_DEVICE, false, false), HEAP_E_INVALID,
		     "inside a large block");
	cr_expect_eq(heap_give(&pool, first, HEAP_HOST, false, false), HEAP_E_INVALID,
		     "the other kind");
	cr_expect_eq(give_back(first, HEAP_DEVICE, &freed_bytes), HEAP_E_INVALID,
		     "not the only block of its segment");
	cr_expect_eq(give_back(large, HEAP_HOST, &freed_bytes), HEAP_E_INVALID, "the other kind");
	cr_expect_eq(give_back(large + 512, HEAP_DEVICE, &freed_bytes), HEAP_E_INVALID,
		     "inside a large block");
	cr_expect_eq(freed_bytes, 77, "a result was touched");
	cr_expect_eq(stats_read(&stats.n_used_blocks), 3, "a wrong free took a block");

	give(first);
	cr_expect_eq(heap_give(&pool, first, HEAP_DEVICE, false, false), HEAP_E_INVALID,
		     "freed twice, pending");
	give_complete(second);
	cr_expect_eq(heap_give(&pool, second, HEAP_DEVICE, false, false), HEAP_E_INVALID,
		     "freed twice, complete");
	give(large);
	cr_expect_eq(give_back(large, HEAP_DEVICE, &freed_bytes), HEAP_E_INVALID,
		     "given back after it was freed");
	cr_expect_eq(stats_read(&stats.free_count), 3, "wrong frees were counted");
}

Test(heap, an_address_tells_its_block)
{
	struct block_info info = {0};
	uint64_t first = take_or_grow(512), second = take_or_grow(700);

	cr_expect(is_ours(second + 700));
	cr_expect_not(is_ours(first + 2 * MIB));
	cr_expect_eq(pool_find(&pool, first + 2 * MIB, &info), HEAP_E_NOT_OURS);

	cr_assert_eq(pool_find(&pool, second + 800, &info), HEAP_OK);
	cr_expect_eq(info.heap, heap);
	cr_expect_eq(info.owner, &fake, "the owner's pointer is lost");
	cr_expect(info.is_live && !info.is_whole && !info.is_exported && !info.is_account);
	cr_expect_eq(info.addr, second);
	cr_expect_eq(info.size_bytes, 1024);
	cr_expect_eq(info.requested_bytes, 700);
	cr_expect_eq(info.segment_addr, first);
	cr_expect_eq(info.segment_bytes, 2 * MIB);

	give(second);
	cr_assert_eq(pool_find(&pool, second, &info), HEAP_OK);
	cr_expect(!info.is_live && !info.is_exported);
	cr_expect_eq(info.requested_bytes, 0, "a freed block still tells its request");
}

Test(heap, a_segment_got_again_is_not_exported)
{
	struct block_info info = {0};
	uint64_t addr = take_or_grow(4 * MIB);
	size_t freed_bytes;

	heap_mark_exported(&pool, addr);
	cr_assert_eq(give_back(addr, HEAP_DEVICE, &freed_bytes), HEAP_OK);
	addr = take_or_grow(4 * MIB);
	cr_assert_eq(pool_find(&pool, addr, &info), HEAP_OK);
	cr_expect_not(info.is_exported, "the mark outlived the memory");
	give_complete(addr);
	cr_expect_eq(heap_withheld_bytes(heap), 0, "the segment's mark outlived the memory");
}

Test(heap, a_block_given_back_leaves_nothing_behind)
{
	uint64_t addr = take_or_grow(4 * MIB);
	size_t freed_bytes = 0;

	cr_expect_eq(give_back(addr, HEAP_DEVICE, &freed_bytes), HEAP_OK);
	cr_expect_eq(freed_bytes, 4 * MIB);
	cr_expect_not(is_ours(addr), "its address is still ours");
	cr_expect_eq(fake_backend_n_mappings(&fake), 0, "it is still mapped");
	assert_heap_is_sound("given back");
}

Test(heap, a_block_that_the_backend_keeps_stays_live)
{
	uint64_t addr = take_or_grow(4 * MIB);
	size_t freed_bytes = 77;

	fake_backend_fail(&fake, FAKE_OP_UNMAP, 1, 1, -700);
	cr_expect_eq(give_back(addr, HEAP_DEVICE, &freed_bytes), -700);
	cr_expect_eq(freed_bytes, 77, "the result was touched");
	cr_expect_eq(stats_read(&stats.used_bytes), 4 * MIB, "the block is lost");
	assert_heap_is_sound("kept");
	give(addr);
}

static void
expect_share(unsigned tag, uint64_t used_bytes, uint64_t peak_bytes, uint64_t count,
	     const char *when)
{
	const struct stats_share *share = &stats.shares[tag];

	cr_expect_eq(stats_read(&share->used_bytes), used_bytes, "%s: tag %u holds %llu", when, tag,
		     (unsigned long long)stats_read(&share->used_bytes));
	cr_expect_eq(stats_read(&share->peak_used_bytes), peak_bytes, "%s: the peak of tag %u",
		     when, tag);
	cr_expect_eq(stats_read(&share->count), count, "%s: the requests of tag %u", when, tag);
}

Test(heap, a_block_counts_for_its_tag_until_it_is_freed)
{
	enum { MINE = 5, LAST = STATS_N_TAGS - 1 };
	size_t freed_bytes;
	uint64_t large, small;

	cr_assert_eq(heap_grow(heap, 3 * MIB, 4 * MIB, MINE, &large), HEAP_OK);
	cr_assert_eq(heap_grow(heap, 700, 2 * MIB, LAST, &small), HEAP_OK);
	expect_share(MINE, 4 * MIB, 4 * MIB, 1, "grown");
	expect_share(LAST, 1024, 1024, 1, "grown");
	fake_backend_fail(&fake, FAKE_OP_UNMAP, 1, 1, -700);
	cr_expect_eq(give_back(large, HEAP_DEVICE, &freed_bytes), -700);
	expect_share(MINE, 4 * MIB, 4 * MIB, 1, "the backend keeps it");
	give_complete(large);
	expect_share(MINE, 0, 4 * MIB, 1, "freed");
	cr_assert_eq(heap_take(heap, 4 * MIB, LAST, &large), HEAP_OK);
	expect_share(LAST, 4 * MIB + 1024, 4 * MIB + 1024, 2, "taken by another");
	expect_share(MINE, 0, 4 * MIB, 1, "taken by another");
	give(small);
	expect_share(LAST, 4 * MIB, 4 * MIB + 1024, 2, "freed, its work unfinished");
	heap_close(heap);
	heap_drop(heap);
	heap = NULL;
	expect_share(LAST, 0, 4 * MIB + 1024, 2, "dropped");
	fake_backend_fini(&fake);
	fake_backend_init(&fake, MIB);
}

Test(heap, trim_gives_whole_free_segments_back_longest_idle_first)
{
	uint64_t a = take_or_grow(4 * MIB), b = take_or_grow(6 * MIB), c = take_or_grow(512);
	size_t freed_bytes = 0;

	fake_backend_set_completes_at_once(&fake, true);
	give_complete(b);
	give_complete(a);
	cr_expect_eq(heap_trim(heap, 1, 0, &freed_bytes), HEAP_OK);
	cr_expect_eq(freed_bytes, 6 * MIB, "not the longest idle, or more than wanted");
	cr_expect_not(is_ours(b));
	cr_expect_eq(heap_trim(heap, SIZE_MAX, 0, &freed_bytes), HEAP_OK);
	cr_expect_eq(freed_bytes, 4 * MIB);
	cr_expect(is_ours(c), "a segment with a live block was given back");
	cr_expect_eq(stats_read(&stats.trim_count), 2);
	cr_expect_eq(stats_read(&stats.trim_bytes), 10 * MIB);
	assert_heap_is_sound("trimmed");
}

Test(heap, trim_gives_nothing_back_while_work_is_unfinished)
{
	size_t freed_bytes = 77;

	give_complete(take_or_grow(4 * MIB));
	cr_expect_eq(heap_trim(heap, SIZE_MAX, 5000, &freed_bytes), HEAP_OK);
	cr_expect_eq(freed_bytes, 0, "the backend's free would have waited for the work");
	cr_expect_eq(fake_backend_count(&fake, FAKE_OP_UNMAP), 0, "it was called");
	cr_expect_eq(fake_backend_n_fences(&fake), 0, "the fence leaked");
	fake_backend_set_busy(&fake, true);
	cr_expect_eq(heap_trim(heap, SIZE_MAX, 5000, &freed_bytes), HEAP_OK);
	cr_expect_eq(freed_bytes, 0, "given back during a capture");
	fake_backend_set_busy(&fake, false);
}

Test(heap, idle_bytes_are_whole_free_segments_now_and_to_come)
{
	uint64_t a = take_or_grow(4 * MIB), b = take_or_grow(6 * MIB), c = take_or_grow(512);
	uint64_t d = take_or_grow(512), idle_bytes, pending_bytes;

	give_complete(a);
	give(b);
	give(c);
	heap_idle_bytes(heap, &idle_bytes, &pending_bytes);
	cr_expect_eq(idle_bytes, 4 * MIB, "idle");
	cr_expect_eq(pending_bytes, 6 * MIB, "a segment with a live block counts as coming free");
	give(d);
	heap_idle_bytes(heap, &idle_bytes, &pending_bytes);
	cr_expect_eq(pending_bytes, 8 * MIB, "coming free");
}

Test(heap, drop_forgets_everything_without_calling_the_backend_to_unmap)
{
	uint64_t live = take_or_grow(512), pending = take_or_grow(4 * MIB);

	give_complete(take_or_grow(6 * MIB));
	give(pending);
	heap_settle(heap);
	heap_close(heap);
	cr_expect_eq(heap_drop(heap), 12 * MIB, "the segments' bytes");
	heap = NULL;
	cr_expect_not(is_ours(live), "an address of a gone context is ours");
	cr_expect_eq(heap_give(&pool, live, HEAP_DEVICE, false, false), HEAP_E_NOT_OURS);
	cr_expect_eq(fake_backend_count(&fake, FAKE_OP_UNMAP), 0, "unmapped in a dead context");
	cr_expect_eq(fake_backend_n_mappings(&fake), 3);
	fake_backend_fini(&fake);
	fake_backend_init(&fake, MIB);
}

Test(heap, a_reopened_one_goes_on)
{
	uint64_t addr = take_or_grow(512);

	heap_close(heap);
	heap_reopen(heap);
	give_complete(addr);
	cr_expect_eq(take_or_grow(512), addr);
}

Test(heap, a_newer_segment_takes_the_address_over_from_a_heap_that_is_not_dropped_yet)
{
	static struct fake_backend other_fake;
	static struct stats other_stats;
	struct heap_config config = {.backend = &other_fake.backend, .stats = &other_stats};
	struct block_info info;
	struct heap *other;
	uint64_t old = take_or_grow(4 * MIB), new;

	/* The driver has destroyed the old context and hands its addresses out in a new one. */
	fake_backend_init(&other_fake, 64 * MIB);
	fake_backend_set_next_addr(&other_fake, old);
	other = heap_new(&pool, &config);
	cr_assert_eq(heap_grow(other, 3 * MIB, 4 * MIB, 0, &new), HEAP_OK);
	cr_assert_eq(new, old);
	cr_assert_eq(pool_find(&pool, old, &info), HEAP_OK);
	cr_expect_eq(info.heap, other, "the address belongs to the dead context's heap");

	heap_close(heap);
	heap_drop(heap);
	heap = NULL;
	cr_assert_eq(pool_find(&pool, old, &info), HEAP_OK, "the new segment left with the old");
	cr_expect_eq(info.heap, other);
	cr_expect_eq(heap_give(&pool, new, HEAP_DEVICE, false, true), HEAP_OK);
	heap_free(other);
	cr_expect_eq(fake_backend_n_mappings(&other_fake), 0, "a mapping leaked");
	fake_backend_fini(&other_fake);
	fake_backend_fini(&fake);
	fake_backend_init(&fake, MIB);
}

Test(heap_host, an_address_tells_its_kind_without_a_lock)
{
	enum heap_kind kind = HEAP_DEVICE;
	uint64_t addr = take_or_grow(100);

	cr_expect(pool_kind_at(&pool, addr + 99, &kind), "the address is not ours");
	cr_expect_eq(kind, HEAP_HOST, "the wrong kind");
	kind = HEAP_DEVICE;
	cr_expect_not(pool_kind_at(&pool, addr + 4096, &kind), "a foreign address is ours");
	cr_expect_eq(kind, HEAP_DEVICE, "the result was touched");
}

Test(heap_host, pinned_blocks_have_a_segment_each)
{
	uint64_t a = take_or_grow(100), b = take_or_grow(100);

	cr_expect_eq(fake_backend_n_mappings(&fake), 2);
	give_complete(a);
	cr_expect_eq(stats_read(&stats.n_free_blocks), 1);
	cr_expect_eq(take_or_grow(512), a, "the free one was not reused");
	cr_expect_neq(a, b);
	assert_heap_is_sound("pinned");
}

Test(heap_account, each_request_is_mapped_as_asked_and_given_back_at_free)
{
	uint64_t addr = take_or_grow(1000);
	size_t freed_bytes = 0;

	cr_expect_eq(fake_backend_n_mappings(&fake), 1);
	cr_expect_eq(stats_read(&stats.used_bytes), 1024);
	cr_expect_eq(stats_read(&stats.requested_bytes), 1000);
	assert_heap_is_sound("counted");
	cr_expect_eq(give_back(addr, HEAP_DEVICE, &freed_bytes), HEAP_OK);
	cr_expect_eq(freed_bytes, 1024);
	cr_expect_eq(fake_backend_n_mappings(&fake), 0);
}
