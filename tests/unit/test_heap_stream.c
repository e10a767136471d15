/* SPDX-License-Identifier: MIT */
/* What is freed in the order of a stream: who gets it at once, and who when it is complete. */
#include <criterion/criterion.h>

#include "pool/heap_internal.h"
#include "tests/support/heap_fixture.h"

static void setup(void);
TestSuite(heap_stream, .init = setup, .fini = heap_fixture_teardown, .timeout = 20);

#define SIZE (4 * MIB)

static const struct order_stream S = {8, 0}, T = {16, 0};
static _Atomic uint64_t attention;

static void
submit(struct order_stream stream)
{
	heap_before_submission(heap, stream, (const struct stream_handle *)&S, false);
	fake_backend_submit(&fake);
}

/* Two streams have unfinished work. */
static void
setup(void)
{
	heap_fixture_setup_early(&attention);
	submit(S);
	submit(T);
}

static uint64_t
free_in(struct order_stream stream, size_t size)
{
	uint64_t addr = take_or_grow(size);

	cr_assert_eq(heap_give_in(&pool, addr, false, stream), HEAP_OK);
	return addr;
}

static bool
gets(struct order_stream stream, size_t size, uint64_t *ret_addr)
{
	return heap_take_in(heap, stream, size, 0, ret_addr) == HEAP_OK;
}

Test(heap_stream, its_own_stream_has_it_at_once)
{
	uint64_t addr = free_in(S, SIZE), again;
	const uint64_t n_fences = fake_backend_n_recorded(&fake);

	cr_assert(gets(S, SIZE, &again), "it waits for a fence");
	cr_expect_eq(again, addr);
	cr_expect_eq(fake_backend_n_recorded(&fake), n_fences, "a fence for the stream's own");
	assert_heap_is_sound("handed out");
	give(again);
}

Test(heap_stream, others_have_it_when_it_is_complete)
{
	uint64_t addr = free_in(S, SIZE), again;

	cr_expect(!gets(T, SIZE, &again), "another stream");
	cr_expect_eq(heap_take(heap, SIZE, 0, &again), HEAP_E_MISS, "a plain request");
	heap_settle(heap);
	fake_backend_complete_all(&fake);
	heap_settle(heap);
	cr_assert(gets(T, SIZE, &again), "it is not handed out though complete");
	cr_expect_eq(again, addr);
	give(again);
}

Test(heap_stream, nobody_is_made_to_wait_for_its_stream)
{
	uint64_t again;

	fake_backend_complete_all(&fake);
	heap_before_sync(heap);
	fake_backend_complete_all(&fake);
	heap_settle(heap);
	submit(S); /* alone */
	free_in(S, SIZE);
	cr_expect_eq(heap_take(heap, SIZE, 0, &again), HEAP_E_MISS,
		     "a plain request got it early, and others wait for S then");
}

Test(heap_stream, the_next_submission_covers_it)
{
	uint64_t n_fences, before = atomic_load(&attention);

	free_in(S, SIZE);
	cr_expect_gt(atomic_load(&attention), before, "the next submission is not told of");
	n_fences = fake_backend_n_recorded(&fake);
	submit(S);
	cr_expect_eq(fake_backend_n_recorded(&fake), n_fences + 1,
		     "what covers it covers later work, too");
}

/* The first of an epoch was handed out again; the next one asks anew. */
Test(heap_stream, so_does_that_after_an_empty_one)
{
	uint64_t n_fences, before, addr = free_in(S, SIZE);

	cr_assert(gets(S, SIZE, &addr));
	submit(S);
	n_fences = fake_backend_n_recorded(&fake);
	before = atomic_load(&attention);
	cr_assert_eq(heap_give_in(&pool, addr, false, S), HEAP_OK);
	cr_expect_gt(atomic_load(&attention), before, "the next submission is not told of");
	submit(S);
	cr_expect_eq(fake_backend_n_recorded(&fake), n_fences + 1, "it is left uncovered");
}

Test(heap_stream, a_stream_that_is_gone_has_nothing)
{
	uint64_t again;

	free_in(S, SIZE);
	heap_forget_stream(heap, S);
	cr_expect(!gets(S, SIZE, &again), "a new stream of that name got it");
	free_in(T, SIZE);
	heap_forget_streams(heap);
	cr_expect(!gets(T, SIZE, &again), "one of all that are gone got it");
}

Test(heap_stream, a_free_in_another_contexts_stream_is_for_nobody)
{
	uint64_t addr = take_or_grow(SIZE), again;

	cr_assert_eq(heap_give_in(&pool, addr, true, S), HEAP_OK);
	cr_expect(!gets(S, SIZE, &again));
}

Test(heap_stream, neighbours_of_one_stream_are_one)
{
	uint64_t a = take_or_grow(256 * KIB), b = take_or_grow(256 * KIB), again;

	cr_assert_eq(b, a + 256 * KIB, "they are no neighbours");
	cr_assert_eq(heap_give_in(&pool, a, false, S), HEAP_OK);
	cr_assert_eq(heap_give_in(&pool, b, false, S), HEAP_OK);
	assert_heap_is_sound("merged");
	cr_assert(gets(S, 512 * KIB, &again));
	cr_expect_eq(again, a);
	cr_assert_eq(heap_give_in(&pool, again, false, S), HEAP_OK);
	cr_assert(gets(S, 128 * KIB, &b), "split");
	cr_expect_eq(b, a);
	cr_assert(gets(S, 384 * KIB, &a), "the rest is nobody's");
	cr_expect_eq(a, again + 128 * KIB);
	give(a);
	give(b);
}

Test(heap_stream, it_counts_as_async_until_it_is_freed)
{
	uint64_t addr = take_or_grow(SIZE);
	struct heap_async async;

	heap_mark_async(&pool, addr);
	heap_read_async(heap, &async);
	cr_expect_eq(async.used_bytes, SIZE);
	give(addr);
	heap_read_async(heap, &async);
	cr_expect_eq(async.used_bytes, 0);
	cr_expect_eq(async.peak_used_bytes, SIZE);
	heap_reset_async_used(heap);
	heap_read_async(heap, &async);
	cr_expect_eq(async.peak_used_bytes, 0);
}
