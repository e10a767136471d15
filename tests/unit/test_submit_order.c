/* SPDX-License-Identifier: MIT */
/* Which submissions the order hears of. */
#include <criterion/criterion.h>

#include "shim/order.h"
#include "shim/submit_slots.h"

static const CUstream A = (CUstream)0x1000, B = (CUstream)0x2000;

/* The order: which submissions it was told of, and whether it wants to hear of each. */

static struct {
	unsigned n_told;
	struct submit_target last;
	uintptr_t announced; /* when it was told */
	bool wants_each;
	bool draws; /* attention, as it hears */
} order;

bool
order_before_submission(struct submit_target target, const struct heap_touch *touch, bool can_wait,
			struct heap **ret_blocked)
{
	(void)touch, (void)can_wait, (void)ret_blocked;
	order.n_told++;
	order.last = target;
	order.announced = submit_own->announced;
	if (order.draws)
		submit_draw_attention();
	return !order.wants_each;
}

void
order_after_blocker(struct heap *blocked)
{
	(void)blocked;
}

static void
launch(CUstream stream)
{
	submit_begin(submit_word(stream, HOOK_STREAM0_LEGACY));
	submit_end();
}

Test(submit_order, it_hears_of_a_stream_once_until_attention_is_drawn)
{
	launch(A);
	cr_expect_eq(order.n_told, 1, "it does not hear of a stream's first submission");
	cr_expect_eq(order.last.handle, (uintptr_t)A, "it hears of another stream");
	cr_expect_eq(order.announced, submit_word(A, HOOK_STREAM0_LEGACY),
		     "the submission is not announced when it hears of it");
	launch(A);
	launch(B);
	launch(A);
	launch(B);
	cr_expect_eq(order.n_told, 2, "it hears of what it knows");
	submit_draw_attention();
	launch(B);
	launch(A);
	cr_expect_eq(order.n_told, 4, "attention was drawn, and it does not hear");
	launch(A);
	launch(B);
	cr_expect_eq(order.n_told, 4, "it hears of what it knows");
}

Test(submit_order, it_hears_of_each_where_it_wants_to)
{
	order.wants_each = true;
	for (int i = 0; i < 3; i++)
		launch(A);
	cr_expect_eq(order.n_told, 3);
	launch(B);
	launch(B);
	cr_expect_eq(order.n_told, 5);
}

Test(submit_order, it_hears_of_a_stream_that_lost_its_place)
{
	launch(A);
	for (uintptr_t i = 2; i <= 2 * SUBMIT_N_STREAMS; i++)
		launch((CUstream)(0x1000 * i));
	order.n_told = 0;
	launch(A);
	cr_expect_eq(order.n_told, 1, "another stream's place was taken for its own");
}

Test(submit_order, it_hears_of_nested_submissions)
{
	submit_begin(submit_word(A, HOOK_STREAM0_LEGACY));
	launch(B);
	cr_expect_eq(order.n_told, 2);
	cr_expect_eq(order.last.handle, (uintptr_t)B);
	submit_end();
}

Test(submit_order, it_hears_again_when_attention_moves_while_it_hears)
{
	order.draws = true;
	launch(A);
	order.draws = false;
	launch(A);
	cr_expect_eq(order.n_told, 2, "what was drawn meanwhile is lost");
	launch(A);
	cr_expect_eq(order.n_told, 2, "it hears of what it knows");
}
