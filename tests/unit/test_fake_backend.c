/* SPDX-License-Identifier: MIT */
/* The tests of the pool are worth what the fake backend is worth. */
#include "tools/replay/fake_backend.h"

#include <criterion/criterion.h>
#include <signal.h>

#define MIB ((size_t)1 << 20)

static struct fake_backend fake;
static struct backend *const backend = &fake.backend;

static void
setup(void)
{
	fake_backend_init(&fake, 8 * MIB);
}

static void
teardown(void)
{
	fake_backend_fini(&fake);
}

TestSuite(fake_backend, .init = setup, .fini = teardown, .timeout = 10);

static uint64_t
map(size_t size_bytes)
{
	uint64_t addr = 0;

	cr_assert_eq(backend->ops->map(backend, size_bytes, &addr), BACKEND_OK, "map failed");
	return addr;
}

static struct fence *
record(void)
{
	struct fence *fence = NULL;

	cr_assert_eq(backend->ops->fence_record(backend, false, &fence), BACKEND_OK,
		     "fence_record failed");
	return fence;
}

static int
query(struct fence *fence)
{
	return backend->ops->fence_query(backend, fence);
}

Test(fake_backend, mappings_are_counted_and_never_overlap)
{
	uint64_t first = map(MIB), second = map(2 * MIB);

	cr_expect_eq(second, first + MIB, "fresh ranges do not touch each other");
	cr_expect_eq(fake_backend_n_mappings(&fake), 2, "two mappings are not counted as two");
	cr_expect_eq(fake_backend_held_bytes(&fake), 3 * MIB, "held bytes");

	cr_expect_eq(backend->ops->unmap(backend, first, MIB), BACKEND_OK, "unmap failed");
	cr_expect_eq(fake_backend_held_bytes(&fake), 2 * MIB, "held bytes after unmap");
	cr_expect_eq(fake_backend_peak_bytes(&fake), 3 * MIB, "the peak was forgotten");
	cr_expect_eq(map(MIB), first, "a range of the same size is not used again");
}

Test(fake_backend, capacity_ends)
{
	uint64_t addr = 77;

	map(8 * MIB);
	cr_expect_eq(backend->ops->map(backend, 1, &addr), BACKEND_E_NO_MEMORY, "beyond the end");
	cr_expect_eq(addr, 77, "the result was touched");
	fake_backend_set_capacity(&fake, 4 * MIB);
	cr_expect_eq(backend->ops->map(backend, 1, &addr), BACKEND_E_NO_MEMORY, "below held");
	fake_backend_set_capacity(&fake, 9 * MIB);
	cr_expect_eq(backend->ops->map(backend, MIB, &addr), BACKEND_OK, "room again");
}

Test(fake_backend, fences_complete_in_order_and_when_told)
{
	struct fence *first = record(), *second = record(), *third;

	cr_expect_eq(query(first), BACKEND_E_NOT_READY, "complete before it was told");
	fake_backend_complete_upto(&fake, 1);
	cr_expect_eq(query(first), BACKEND_OK, "told complete, and is not");
	cr_expect_eq(query(second), BACKEND_E_NOT_READY, "a later fence completed with it");
	fake_backend_complete_all(&fake);
	cr_expect_eq(query(second), BACKEND_OK, "told complete, and is not");

	fake_backend_set_completes_at_once(&fake, true);
	third = record();
	cr_expect_eq(query(third), BACKEND_OK, "it does not complete at once");
	cr_expect_eq(fake_backend_n_fences(&fake), 3, "three fences are alive");
	backend->ops->fence_free(backend, first);
	cr_expect_eq(fake_backend_n_fences(&fake), 2, "two fences are alive");
}

Test(fake_backend, complete_stays_complete_even_against_an_ordered_failure)
{
	struct fence *fence = record();

	fake_backend_complete_all(&fake);
	cr_expect_eq(query(fence), BACKEND_OK);
	fake_backend_fail(&fake, FAKE_OP_FENCE_QUERY, 1, 1, BACKEND_E_NOT_READY);
	cr_expect_eq(query(fence), BACKEND_OK, "a complete fence became incomplete");
}

Test(fake_backend, busy_means_no_fence_and_no_question)
{
	struct fence *fence = record(), *none = NULL;

	fake_backend_complete_all(&fake);
	fake_backend_set_busy(&fake, true);
	cr_expect_eq(query(fence), BACKEND_E_BUSY, "asked while busy");
	cr_expect_eq(backend->ops->fence_record(backend, true, &none), BACKEND_E_BUSY,
		     "recorded while busy");
	cr_expect_null(none, "the result was touched");
	cr_expect_eq(fake_backend_n_wide(&fake), 0, "a refused wide fence was counted");
	fake_backend_set_busy(&fake, false);
	cr_expect_eq(query(fence), BACKEND_OK, "still busy");
}

Test(fake_backend, exactly_the_ordered_calls_fail)
{
	uint64_t addr = 77;

	map(512);
	fake_backend_fail(&fake, FAKE_OP_MAP, 2, 2, -719);
	map(512);
	cr_expect_eq(backend->ops->map(backend, 512, &addr), -719, "the second call");
	cr_expect_eq(backend->ops->map(backend, 512, &addr), -719, "the third call");
	cr_expect_eq(addr, 77, "the result was touched");
	map(512);
	cr_expect_eq(fake_backend_n_mappings(&fake), 3, "a failed call mapped something");
	cr_expect_eq(fake_backend_count(&fake, FAKE_OP_MAP), 5, "calls are miscounted");

	addr = map(1024);
	fake_backend_fail(&fake, FAKE_OP_UNMAP, 1, 1, -1);
	cr_expect_eq(backend->ops->unmap(backend, addr, 1024), -1, "the ordered failure is lost");
	cr_expect_eq(backend->ops->unmap(backend, addr, 1024), BACKEND_OK,
		     "a failed unmap took the mapping");
}

static void
count_pause(struct fake_backend *which, void *arg)
{
	cr_expect_eq(fake_backend_count(which, FAKE_OP_PAUSE), ++*(uint64_t *)arg,
		     "the pause is told late");
}

Test(fake_backend, only_pauses_and_the_test_move_the_clock)
{
	uint64_t begin_ns = backend->ops->now_ns(backend), n_pauses = 0;

	cr_expect_eq(backend->ops->now_ns(backend), begin_ns, "the clock moves by itself");
	fake_backend_set_pause(&fake, 50, count_pause, &n_pauses);
	backend->ops->pause(backend, 0);
	backend->ops->pause(backend, 1);
	fake_backend_advance(&fake, 7);
	cr_expect_eq(backend->ops->now_ns(backend), begin_ns + 107, "the clock is wrong");
	cr_expect_eq(n_pauses, 2, "a pause was not told");
}

Test(fake_backend, a_mapping_given_back_twice_aborts, .signal = SIGABRT)
{
	uint64_t addr = map(512);

	backend->ops->unmap(backend, addr, 512);
	backend->ops->unmap(backend, addr, 512);
}

Test(fake_backend, a_part_of_a_mapping_given_back_aborts, .signal = SIGABRT)
{
	backend->ops->unmap(backend, map(1024), 512);
}

Test(fake_backend, a_foreign_address_given_back_aborts, .signal = SIGABRT)
{
	backend->ops->unmap(backend, map(1024) + 512, 512);
}

Test(fake_backend, a_mapping_of_nothing_aborts, .signal = SIGABRT)
{
	map(0);
}

Test(fake_backend, a_question_about_a_dead_fence_aborts, .signal = SIGABRT)
{
	struct fence *fence = record();

	backend->ops->fence_free(backend, fence);
	query(fence);
}

Test(fake_backend, a_fence_freed_twice_aborts, .signal = SIGABRT)
{
	struct fence *fence = record();

	backend->ops->fence_free(backend, fence);
	backend->ops->fence_free(backend, fence);
}
