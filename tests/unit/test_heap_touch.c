/* SPDX-License-Identifier: MIT */
/* Early hand-outs: who touches what, and who has nothing to do with them. */
#include <criterion/criterion.h>

#include "tests/support/order_fixture.h"

TestSuite(heap_touch, .init = order_fixture_setup, .fini = heap_fixture_teardown, .timeout = 20);

/* Tell of work of T that touches so many bytes. */
static bool
touch(uint64_t addr, size_t size_bytes)
{
	const struct heap_touch touch = {.n_ranges = 1, .ranges = {{addr, size_bytes}}};
	const bool is_settled = heap_before_touching(heap, T, handle, false, &touch);

	fake_backend_submit(&fake);
	return is_settled;
}

Test(heap_touch, work_that_touches_nothing_handed_out_early_waits_for_no_edge)
{
	const uint64_t other = take_or_grow(SIZE);
	uint64_t again;

	free_under(S);
	cr_assert(is_handed_out(SIZE, &again));
	cr_expect_not(touch(other, SIZE), "the next submission would not be told of");
	cr_expect_not(touch(0x7000, SIZE), "the next submission would not be told of");
	cr_expect_eq(fake_backend_edge_waited(&fake), 0, "it waits for nothing of its own");
	submit(T);
	cr_expect_neq(fake_backend_edge_waited(&fake), 0, "what came after it does not wait");
	cr_expect(touch(other, SIZE), "the stream has waited");
}

Test(heap_touch, work_that_touches_what_was_handed_out_early_waits)
{
	uint64_t again;

	free_under(S);
	cr_assert(is_handed_out(SIZE, &again));
	cr_expect(touch(again + SIZE - 1, 1));
	cr_expect_neq(fake_backend_edge_waited(&fake), 0, "it runs beside the old work");
}

Test(heap_touch, work_that_reaches_beyond_its_block_waits)
{
	const uint64_t other = take_or_grow(SIZE);
	uint64_t again;

	free_under(S);
	cr_assert(is_handed_out(SIZE, &again));
	cr_expect(touch(other + 1, SIZE));
	cr_expect_neq(fake_backend_edge_waited(&fake), 0);
}

Test(heap_touch, what_was_handed_out_under_an_edge_that_is_complete_is_like_any_other)
{
	uint64_t first, second;

	free_under(S);
	cr_assert(is_handed_out(SIZE, &first));
	submit(S);
	fake_backend_complete_all(&fake);
	heap_settle(heap);
	free_under(S);
	cr_assert(is_handed_out(SIZE, &second));
	cr_assert_eq(n_early(), 2);
	cr_expect_not(touch(first, SIZE), "its old work has ended");
	cr_expect_eq(fake_backend_edge_waited(&fake), 0);
	cr_expect(touch(second, SIZE));
	cr_expect_neq(fake_backend_edge_waited(&fake), 0);
}

Test(heap_touch, while_others_share_it_completed_blocks_only)
{
	uint64_t again;

	cr_expect(heap_share(heap, true));
	cr_expect_not(heap_share(heap, true), "it was so already");
	free_under(S);
	submit(S);
	heap_settle(heap);
	cr_expect_not(is_handed_out(SIZE, &again), "handed out beside a peer");
	fake_backend_complete_all(&fake);
	heap_settle(heap);
	heap_share(heap, false);
	free_under(S);
	cr_expect(is_handed_out(SIZE, &again), "nothing is early any more");
	cr_expect_eq(n_early(), 1);
}

Test(heap_touch, beside_work_of_another_context_frees_are_wide_and_nothing_is_early)
{
	const struct heap_touch touch = {0};
	uint64_t again;

	heap_begin_foreign(heap, &touch);
	free_under(S);
	heap_settle(heap);
	fake_backend_complete_all(&fake);
	heap_settle(heap); /* covers the beginning */
	heap_end_foreign(heap);
	free_under(S);
	cr_expect_eq(heap->open[true]->n_blocks, 1, "its fence covers no other context");
	heap_settle(heap);
	cr_expect_not(is_handed_out(SIZE, &again), "handed out beside it");
	fake_backend_complete_all(&fake);
	heap_settle(heap);
	free_under(S);
	cr_expect_eq(heap->open[true]->n_blocks, 0, "it is complete");
	cr_assert(is_handed_out(SIZE, &again));
	cr_expect_eq(n_early(), 1);
}

Test(heap_touch, work_of_another_context_waits_here_for_the_edges_that_it_meets)
{
	const uint64_t other = take_or_grow(SIZE);
	struct heap_touch touch = {.n_ranges = 1, .ranges = {{other, SIZE}}};
	uint64_t again;

	free_under(S);
	cr_assert(is_handed_out(SIZE, &again));
	fake_backend_set_pause(
		&fake, 1000,
		(void (*)(struct fake_backend *, void *))(void *)fake_backend_complete_all, NULL);
	heap_begin_foreign(heap, &touch);
	cr_expect_eq(fake_backend_count(&fake, FAKE_OP_PAUSE), 0,
		     "it waits for nothing of its own");
	touch.ranges[0].addr = again;
	heap_begin_foreign(heap, &touch);
	cr_expect_gt(fake_backend_count(&fake, FAKE_OP_PAUSE), 0, "nobody waited");
}

Test(heap_touch, beside_work_of_another_context_what_was_freed_before_is_not_early_either)
{
	const struct heap_touch touch = {0};
	uint64_t again;

	free_under(S);
	submit(S);
	heap_begin_foreign(heap, &touch);
	cr_expect_not(is_handed_out(SIZE, &again), "handed out beside it");
}
