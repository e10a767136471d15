/* SPDX-License-Identifier: MIT */
/* Blocks that others than the program's streams may reach: held when freed, and never for ever. */
#include <criterion/criterion.h>
#include <stdlib.h>

#include "policy/exhaust.h"
#include "pool/heap.h"
#include "tests/support/heap_fixture.h"

TestSuite(heap_exported, .init = heap_fixture_setup, .fini = heap_fixture_teardown, .timeout = 60);

static uint64_t
trim_all(void)
{
	size_t freed_bytes = 0;

	fake_backend_set_completes_at_once(&fake, true);
	cr_assert_eq(heap_trim(heap, SIZE_MAX, 0, &freed_bytes), HEAP_OK);
	fake_backend_set_completes_at_once(&fake, false);
	return freed_bytes;
}

static bool
is_handed_out_again(uint64_t addr, size_t n_bytes)
{
	uint64_t taken;
	bool is_again = false;

	while (heap_take(heap, n_bytes, 0, &taken) == HEAP_OK)
		is_again |= taken == addr;
	return is_again;
}

Test(heap_exported, an_exported_block_is_not_handed_out_again)
{
	uint64_t exported = take_or_grow(1000), neighbour = take_or_grow(1000);

	cr_assert_eq(heap_mark_exported(&pool, exported), HEAP_OK);
	give_complete(exported);
	assert_heap_is_sound("after the free");
	cr_expect_not(is_handed_out_again(exported, 512),
		      "another process reads another owner's bytes");
	assert_heap_is_sound("with the segment full");
	give_complete(neighbour);
	cr_expect(is_handed_out_again(neighbour, 512), "a block that nobody exported is lost");
}

Test(heap_exported, it_is_complete_before_it_is_held)
{
	struct block_info info;
	uint64_t exported = take_or_grow(1000);

	take_or_grow(1000);
	cr_assert_eq(heap_mark_exported(&pool, exported), HEAP_OK);
	give(exported);
	cr_expect_eq(stats_read(&stats.pending_bytes), 1024, "it skipped its fence");
	assert_heap_is_sound("pending");
	cr_assert_eq(heap_settle(heap), HEAP_OK);
	fake_backend_complete_upto(&fake, fake_backend_n_recorded(&fake));
	cr_assert_eq(heap_settle(heap), HEAP_OK);
	cr_expect_eq(stats_read(&stats.pending_bytes), 0);
	assert_heap_is_sound("held");
	cr_assert_eq(pool_find(&pool, exported, &info), HEAP_OK);
	cr_expect_not(info.is_live);
}

Test(heap_exported, a_segment_without_a_live_block_only_waits_to_go_back)
{
	uint64_t exported = take_or_grow(1000), other = take_or_grow(1000);

	cr_assert_eq(heap_mark_exported(&pool, exported), HEAP_OK);
	give_complete(exported);
	cr_expect_eq(heap_withheld_bytes(heap), 0, "the other block is live");
	give_complete(other);
	assert_heap_is_sound("spent");
	cr_expect_eq(heap_withheld_bytes(heap), 2 * MIB);
	cr_expect_not(is_handed_out_again(exported, 512), "a spent segment was used");
	cr_expect_eq(trim_all(), 2 * MIB, "a spent segment cannot be given back");
	assert_heap_is_sound("given back");
	cr_expect_eq(heap_withheld_bytes(heap), 0);
}

Test(heap_exported, spent_segments_go_back_before_idle_ones)
{
	uint64_t exported = take_or_grow(1000), idle = take_or_grow(4 * MIB);
	size_t freed_bytes;

	give_complete(idle);
	cr_assert_eq(heap_mark_exported(&pool, exported), HEAP_OK);
	give_complete(exported);
	fake_backend_set_completes_at_once(&fake, true);
	cr_assert_eq(heap_trim(heap, 1, 0, &freed_bytes), HEAP_OK);
	cr_expect_eq(freed_bytes, 2 * MIB, "an idle segment went back in its place");
	cr_expect_eq(heap_withheld_bytes(heap), 0);
}

/* Frees that never wait, as cuMemFreeAsync's, and no trim. */
Test(heap_exported, spent_segments_do_not_pile_up)
{
	for (int i = 0; i < 64; i++) {
		uint64_t addr = take_or_grow(1 * MIB);

		cr_assert_eq(heap_mark_exported(&pool, addr), HEAP_OK);
		give_complete(addr);
		assert_heap_is_sound("in the loop");
	}
	cr_expect_leq(stats_read(&stats.total_bytes), 5 * 2 * MIB, "%llu bytes wait to go back",
		      (unsigned long long)stats_read(&stats.total_bytes));
}

static void
trim_nobody(void *arg, struct heap *except, size_t want_bytes, uint64_t bound_ns)
{
	(void)arg;
	(void)except;
	(void)want_bytes;
	(void)bound_ns;
}

Test(heap_exported, what_is_held_serves_a_request_before_it_is_refused)
{
	struct account account;
	struct exhaust_peers peers = {.trim = trim_nobody};
	uint64_t held, live, addr;

	account_init(&account, 2 * MIB);
	cr_assert_eq(exhaust_alloc(heap, &account, &peers, 1 * MIB, 0, &held), EXHAUST_OK);
	cr_assert_eq(exhaust_alloc(heap, &account, &peers, 512, 0, &live), EXHAUST_OK);
	cr_assert_eq(heap_mark_exported(&pool, held), HEAP_OK);
	give_complete(held);
	fake_backend_set_completes_at_once(&fake, true);
	addr = 0;
	cr_expect_eq(exhaust_alloc(heap, &account, &peers, 1 * MIB, 0, &addr), EXHAUST_OK,
		     "a request was refused for memory that the program has freed");
	cr_expect_eq(addr, held);
	assert_heap_is_sound("released");
	cr_expect_not(heap_release_held(heap), "it was released twice");
}

Test(heap_exported, a_mark_and_a_wish_end_with_the_block)
{
	struct block_info info;
	uint64_t first = take_or_grow(1000), second;
	uint64_t serial;

	cr_assert_eq(heap_set_sync_memops(&pool, first + 999, true), HEAP_OK);
	cr_assert_eq(pool_find(&pool, first, &info), HEAP_OK);
	cr_expect(info.has_sync_memops && !info.is_exported);
	serial = info.serial;
	give_complete(first);
	cr_expect_eq(heap_mark_exported(&pool, first), HEAP_E_INVALID, "a freed block was marked");
	cr_expect_eq(heap_set_sync_memops(&pool, first, true), HEAP_E_INVALID);
	second = take_or_grow(1000);
	cr_assert_eq(second, first);
	cr_assert_eq(pool_find(&pool, second, &info), HEAP_OK);
	cr_expect(!info.has_sync_memops, "the next owner got the last one's wish");
	cr_expect_neq(info.serial, serial, "two blocks cannot be told apart");
	cr_expect_eq(heap_mark_exported(&pool, 1), HEAP_E_NOT_OURS);
	cr_expect_eq(heap_set_sync_memops(&pool, 1, true), HEAP_E_NOT_OURS);
}

Test(heap_exported, a_dropped_heap_forgets_what_it_held)
{
	uint64_t addrs[3];

	for (size_t i = 0; i < 3; i++) {
		addrs[i] = take_or_grow(600 * KIB);
		cr_assert_eq(heap_mark_exported(&pool, addrs[i]), HEAP_OK);
	}
	give_complete(addrs[0]); /* held: its segment has a live block */
	give_complete(addrs[2]);
	heap_close(heap);
	heap_drop(heap);
	cr_expect_eq(stats_read(&stats.total_bytes), 0);
	cr_expect_eq(stats_read(&stats.used_bytes), 0);
	cr_expect_eq(stats_read(&stats.n_free_blocks), 0);
	heap = heap_new(&pool, &(struct heap_config){.backend = &fake.backend,
						     .stats = &stats,
						     .kind = HEAP_DEVICE});
	cr_assert_not_null(heap);
	cr_expect_eq(heap_withheld_bytes(heap), 0);
	cr_expect_not(heap_release_held(heap));
}

Test(heap_exported, any_order_leaves_a_sound_heap)
{
	enum { N_LIVE = 64, N_STEPS = 6000 };
	uint64_t live[N_LIVE] = {0};
	unsigned seed = 20;

	for (int step = 0; step < N_STEPS; step++) {
		uint64_t *slot = &live[(unsigned)rand_r(&seed) % N_LIVE];
		const int dice = rand_r(&seed) % 8;

		if (!*slot)
			*slot = take_or_grow(1 + (size_t)rand_r(&seed) % (dice ? 90000 : 1000000));
		else if (dice < 3)
			heap_mark_exported(&pool, *slot);
		if (dice == 4)
			heap_release_held(heap);
		if (dice == 5 && step % 50 == 0)
			trim_all();
		if (*slot && dice > 4) {
			if (dice == 7)
				give_complete(*slot);
			else
				give(*slot);
			*slot = 0;
		}
		if (step % 16 == 0) {
			heap_settle(heap);
			fake_backend_complete_upto(&fake, fake_backend_n_recorded(&fake));
			heap_settle(heap);
		}
		assert_heap_is_sound("in any order");
	}
}
