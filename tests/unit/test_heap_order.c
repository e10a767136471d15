/* SPDX-License-Identifier: MIT */
/* Early hand-outs: who gets what at once, and who has to wait for which fence. */
#include <criterion/criterion.h>

#include "tests/support/order_fixture.h"

TestSuite(heap_order, .init = order_fixture_setup, .fini = heap_fixture_teardown, .timeout = 20);

Test(heap_order, with_nothing_unfinished_a_freed_block_is_complete)
{
	uint64_t addr, again;

	addr = take_or_grow(SIZE);
	give(addr);
	cr_assert(is_handed_out(SIZE, &again));
	cr_expect_eq(again, addr);
	cr_expect_eq(n_early(), 0, "it counts as early");
	cr_expect_eq(stats_read(&stats.fence_count), 1, "a fence beside the drain's");
	give(again);
}

Test(heap_order, under_one_stream_a_freed_block_is_handed_out_at_once)
{
	uint64_t addr = free_under(S), again;

	cr_assert(is_handed_out(SIZE, &again), "it waits for its fence");
	cr_expect_eq(again, addr);
	cr_expect_eq(n_early(), 1);
	submit(S);
	cr_expect_eq(fake_backend_edge_waited(&fake), 0, "the stream waits for itself");
	give(again);
}

Test(heap_order, another_stream_waits_for_the_edge_and_no_more)
{
	uint64_t addr = free_under(S), again;
	uint64_t edge;

	cr_assert(is_handed_out(SIZE, &again));
	edge = fake_backend_n_recorded(&fake);
	submit(S); /* later work of S, which nobody may be made to wait for */
	give(take_or_grow(SIZE));
	submit(S);
	cr_expect_gt(fake_backend_n_recorded(&fake), edge, "the later free has no fence");
	submit(T);
	cr_expect_eq(fake_backend_edge_waited(&fake), edge, "it waits for another fence");
	cr_expect_eq(stats_read(&stats.edge_count), 1);
	submit(T);
	cr_expect_eq(stats_read(&stats.edge_count), 1, "it waits twice");
	cr_expect_eq(stats_read(&stats.stream_switch_count), 1);
	give(addr == again ? again : 0);
}

Test(heap_order, a_stream_that_nobody_handed_anything_out_before_waits_for_nothing)
{
	free_under(S);
	submit(T);
	cr_expect_eq(fake_backend_edge_waited(&fake), 0);
}

Test(heap_order, the_edge_is_recorded_before_the_next_submission)
{
	const uint64_t n_before = fake_backend_n_recorded(&fake);
	const uint64_t attention_before = attention;

	free_under(S);
	cr_expect_gt(attention, attention_before, "nobody is told that a free wants covering");
	cr_expect_eq(fake_backend_n_recorded(&fake), n_before, "covered before it is needed");
	submit(S);
	cr_expect_eq(fake_backend_n_recorded(&fake), n_before + 1, "not covered in time");
}

Test(heap_order, with_several_streams_completed_blocks_only)
{
	uint64_t addr, again;

	submit(T);
	addr = free_under(S);
	cr_expect_not(is_handed_out(SIZE, &again), "handed out early with two streams");
	heap_settle(heap);
	cr_expect_not(is_handed_out(SIZE, &again), "handed out early with two streams");
	fake_backend_complete_all(&fake);
	heap_settle(heap);
	cr_assert(is_handed_out(SIZE, &again));
	cr_expect_eq(again, addr);
	give(again);
}

Test(heap_order, a_stream_leaves_when_a_drain_shows_that_it_is_done)
{
	uint64_t again;

	submit(T);
	submit(S);
	fake_backend_advance(&fake, 100000000);
	heap_turn(heap);
	submit(S);
	give(take_or_grow(SIZE));
	cr_expect_not(is_handed_out(SIZE, &again), "the drain is not complete");
	fake_backend_complete_all(&fake);
	heap_settle(heap);
	free_under(S);
	cr_assert(is_handed_out(SIZE, &again), "one stream alone, and nothing early");
	cr_expect_eq(n_early(), 1);
}

Test(heap_order, who_was_submitting_as_a_turn_began_stays)
{
	uint64_t again;

	submit(T);
	submit(S);
	fake_backend_advance(&fake, 100000000);
	fake_backend_announce(&fake, T);
	heap_turn(heap);
	fake_backend_announce_none(&fake);
	fake_backend_complete_all(&fake);
	heap_settle(heap);
	free_under(S);
	cr_expect_not(is_handed_out(SIZE, &again), "T was forgotten");
}

Test(heap_order, no_early_hand_out_behind_work_that_can_wait_for_others)
{
	uint64_t again;

	heap_before_submission(heap, S, handle, true);
	heap_after_blocker(heap);
	fake_backend_submit(&fake);
	free_under(S);
	cr_expect_not(is_handed_out(SIZE, &again), "handed out behind a wait");
	heap_settle(heap);
	fake_backend_complete_all(&fake);
	heap_settle(heap);
	cr_assert(is_handed_out(SIZE, &again));
	submit(S);
	give(again);
	cr_expect(is_handed_out(SIZE, &again), "the wait is over, and nothing early");
}

Test(heap_order, a_fence_passes_no_wait_that_has_not_ended)
{
	uint64_t again;

	free_under(S);
	heap_before_submission(heap, S, handle, true); /* which records it */
	fake_backend_complete_all(&fake);
	heap_settle(heap);
	free_under(S);
	cr_expect_not(is_handed_out(SIZE, &again) && n_early(), "handed out behind a wait");
}

Test(heap_order, no_early_hand_out_when_nothing_moves_for_a_second)
{
	uint64_t again;

	free_under(S);
	submit(S);
	fake_backend_advance(&fake, 1500000000);
	cr_expect_not(is_handed_out(SIZE, &again), "handed out behind a kernel that spins");
}

Test(heap_order, no_early_hand_out_of_what_could_not_be_covered_in_time)
{
	uint64_t again;

	free_under(S);
	fake_backend_set_busy(&fake, true);
	submit(S);
	fake_backend_set_busy(&fake, false);
	heap_settle(heap);
	cr_expect_not(is_handed_out(SIZE, &again), "its fence covers later work");
}

Test(heap_order, a_destroyed_stream_is_not_the_one_that_gets_its_handle)
{
	uint64_t again;

	free_under(S);
	cr_assert(is_handed_out(SIZE, &again));
	heap_forget_stream(heap, S);
	submit(S);
	cr_expect_neq(fake_backend_edge_waited(&fake), 0, "the new stream does not wait");
	give(again);
	cr_expect_not(is_handed_out(SIZE, &again), "two streams are taken for one");
}

Test(heap_order, where_a_stream_cannot_wait_the_submitter_does)
{
	uint64_t again;

	free_under(S);
	cr_assert(is_handed_out(SIZE, &again));
	fake_backend_fail(&fake, FAKE_OP_EDGE_WAIT, 1, 1, -1);
	fake_backend_set_pause(
		&fake, 1000,
		(void (*)(struct fake_backend *, void *))(void *)fake_backend_complete_all, NULL);
	submit(T);
	cr_expect_gt(fake_backend_count(&fake, FAKE_OP_PAUSE), 0, "nobody waited");
}

Test(heap_order, a_stream_that_captures_asks_again_later)
{
	uint64_t again;

	free_under(S);
	cr_assert(is_handed_out(SIZE, &again));
	fake_backend_fail(&fake, FAKE_OP_EDGE_WAIT, 1, 1, BACKEND_E_BUSY);
	cr_expect_not(heap_before_submission(heap, T, handle, false),
		      "what follows the capture goes unheard");
	cr_expect_eq(stats_read(&stats.edge_count), 0, "it counts as waiting");
	cr_expect(heap_before_submission(heap, T, handle, false));
	cr_expect_eq(stats_read(&stats.edge_count), 1, "the graph's launch does not wait");
}

Test(heap_order, who_submits_while_a_context_may_be_closing_counts)
{
	uint64_t addr = take_or_grow(SIZE), again;

	heap_close(heap);
	submit(T);
	heap_reopen(heap);
	give(addr);
	cr_expect_not(is_handed_out(SIZE, &again) && n_early() == 0, "T was forgotten");
}

Test(heap_order, an_exported_block_has_no_unfinished_work)
{
	uint64_t again;

	free_under(S);
	cr_assert(is_handed_out(SIZE, &again));
	fake_backend_set_pause(
		&fake, 1000,
		(void (*)(struct fake_backend *, void *))(void *)fake_backend_complete_all, NULL);
	cr_assert_eq(heap_mark_exported(&pool, again), HEAP_OK);
	cr_expect_gt(fake_backend_count(&fake, FAKE_OP_PAUSE), 0, "nobody waited");
}

Test(heap_order, once_stopped_completed_blocks_only)
{
	uint64_t again;

	heap_stop_early(heap);
	free_under(S);
	submit(S);
	heap_settle(heap);
	cr_expect_not(is_handed_out(SIZE, &again));
	fake_backend_complete_all(&fake);
	heap_settle(heap);
	cr_expect(is_handed_out(SIZE, &again));
}

Test(heap_order, a_free_after_which_nothing_was_submitted_needs_no_fence_of_its_own)
{
	uint64_t first = take_or_grow(SIZE), second = take_or_grow(SIZE), again, n;

	submit(S);
	give(first);
	submit(S);
	n = fake_backend_n_recorded(&fake);
	give(second);
	cr_assert(is_handed_out(SIZE, &again));
	cr_expect_eq(again, first, "not the one that is covered already");
	cr_assert(is_handed_out(SIZE, &again));
	cr_expect_eq(fake_backend_n_recorded(&fake), n + 1, "submitted since: a fence is needed");
	give(again);
	cr_assert(is_handed_out(SIZE, &again));
	cr_expect_eq(fake_backend_n_recorded(&fake), n + 1,
		     "nothing submitted: a fence for nothing");
}

Test(heap_order, a_dependent_launch_is_a_plain_one_after_a_hand_out)
{
	uint64_t again;

	cr_expect_not(heap_must_not_overlap(heap, S), "nothing was handed out early");
	free_under(S);
	cr_assert(is_handed_out(SIZE, &again));
	cr_expect(heap_must_not_overlap(heap, S));
	cr_expect_not(heap_must_not_overlap(heap, S), "one launch is enough");
	submit(T);
	cr_expect(heap_must_not_overlap(heap, T), "a wait was put in");
}

Test(heap_order, parts_of_an_early_block_stay_pending)
{
	uint64_t addr = take_or_grow(64 * KIB), behind = take_or_grow(512), again;

	submit(S);
	give(addr);
	cr_assert(is_handed_out(512, &again));
	cr_expect_eq(again, addr, "a larger hole was cut, though a smaller one fits");
	cr_expect_eq(n_early(), 1);
	cr_expect_eq(stats_read(&stats.pending_bytes), 64 * KIB - 512);
	assert_heap_is_sound("after a part was handed out");
	cr_assert(is_handed_out(63 * KIB, &again), "the other part is lost");
	cr_expect_eq(again, addr + 512);
	give(behind);
}

Test(heap_order, pending_neighbours_become_one)
{
	uint64_t first = take_or_grow(300 * KIB), second = take_or_grow(300 * KIB);
	uint64_t third = take_or_grow(300 * KIB), behind = take_or_grow(1 * MIB - 512), again;

	submit(S);
	give(first);
	submit(S);
	give(third);
	submit(S);
	give(second);
	submit(S);
	cr_assert(is_handed_out(900 * KIB, &again), "three neighbours are not one");
	cr_expect_eq(again, first);
	submit(T);
	cr_expect_eq(fake_backend_edge_waited(&fake), fake_backend_n_recorded(&fake),
		     "not the fence of the last of them");
	assert_heap_is_sound("after the neighbours were one");
	give(behind);
}

Test(heap_order, neighbours_stay_apart_with_several_streams)
{
	uint64_t first = take_or_grow(512), second = take_or_grow(512), again;

	submit(S);
	submit(T);
	give(first);
	heap_settle(heap);
	fake_backend_complete_all(&fake);
	give(second);
	heap_settle(heap);
	cr_assert(is_handed_out(512, &again));
	cr_expect_eq(again, first, "what was complete waits for its neighbour");
}

Test(heap_order, so_much_is_sealed_at_once)
{
	uint64_t n;

	submit(S);
	submit(T);
	heap_set_seal_bytes(heap, 2 * SIZE);
	n = fake_backend_n_recorded(&fake);
	give(take_or_grow(SIZE));
	cr_expect_eq(fake_backend_n_recorded(&fake), n, "sealed too early");
	give(take_or_grow(SIZE));
	cr_expect_eq(fake_backend_n_recorded(&fake), n + 1, "not sealed");
}

Test(heap_order, is_early_only_under_one_stream)
{
	submit(S);
	cr_expect(heap_is_early(heap));
	submit(T);
	cr_expect_not(heap_is_early(heap));
}

Test(heap_order, a_fence_does_not_cover_what_was_under_way_as_it_was_recorded)
{
	uint64_t first = take_or_grow(SIZE), second = take_or_grow(SIZE), again, n;

	submit(S);
	give(first);
	fake_backend_announce(&fake, S);
	heap_before_submission(heap, S, handle, false);
	n = fake_backend_n_recorded(&fake); /* one is under way, and has not ended */
	give(second);
	while (is_handed_out(SIZE, &again) && again != second)
		;
	cr_expect_eq(fake_backend_n_recorded(&fake), n + 1, "it may have come after the fence");
	fake_backend_announce_none(&fake);
}

Test(heap_order, after_streams_that_nobody_can_name_are_gone_nobody_is_alone)
{
	uint64_t again;

	free_under(S);
	cr_assert(is_handed_out(SIZE, &again));
	heap_forget_streams(heap);
	submit(S);
	cr_expect_neq(fake_backend_edge_waited(&fake), 0, "the new stream does not wait");
	give(again);
	cr_expect_not(is_handed_out(SIZE, &again), "two streams are taken for one");
}

Test(heap_order, the_newest_edge_is_waited_for)
{
	uint64_t first = take_or_grow(SIZE), second = take_or_grow(SIZE), again;

	submit(S);
	give(first);
	cr_assert(is_handed_out(SIZE, &again));
	submit(S);
	give(second);
	cr_assert(is_handed_out(SIZE, &again));
	cr_assert_eq(n_early(), 2, "not early: this tests nothing");
	submit(T);
	cr_expect_eq(fake_backend_edge_waited(&fake), fake_backend_n_recorded(&fake),
		     "the work before the second free is not waited for");
}
