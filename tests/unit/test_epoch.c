/* SPDX-License-Identifier: MIT */
/* Order: nothing is handed out before the work that was submitted before its free is complete. */
#include "pool/heap.h"

#include <criterion/criterion.h>
#include <pthread.h>
#include <unistd.h>

#include "pool/heap_internal.h"
#include "tests/support/heap_fixture.h"

TestSuite(epoch, .init = heap_fixture_setup, .fini = heap_fixture_teardown, .timeout = 20);

/* A size with a segment of its own: whether the freed one is available is plainly seen. */
#define SIZE (4 * MIB)

static bool
is_available(void)
{
	uint64_t addr;
	int r = heap_take(heap, SIZE, 0, &addr);

	if (r == HEAP_OK)
		give_complete(addr);
	return r == HEAP_OK;
}

Test(epoch, a_freed_block_waits_for_its_fence)
{
	give(take_or_grow(SIZE));
	cr_expect_not(is_available(), "handed out with no fence at all");
	cr_expect_eq(heap_settle(heap), HEAP_OK);
	cr_expect_eq(fake_backend_n_recorded(&fake), 1, "no fence was recorded");
	cr_expect_not(is_available(), "handed out before its fence is complete");
	cr_expect_eq(heap_settle(heap), HEAP_OK);
	cr_expect_not(is_available(), "handed out before its fence is complete");
	cr_expect_eq(fake_backend_n_recorded(&fake), 1, "a fence for nothing");

	fake_backend_complete_all(&fake);
	cr_expect_eq(heap_settle(heap), HEAP_OK);
	cr_expect(is_available(), "complete, and not handed out");
	cr_expect_eq(fake_backend_n_fences(&fake), 0, "the fence was not freed");
}

Test(epoch, a_block_that_the_caller_knows_complete_needs_no_fence)
{
	give_complete(take_or_grow(SIZE));
	cr_expect(is_available());
	cr_expect_eq(heap_settle(heap), HEAP_OK);
	cr_expect_eq(fake_backend_n_recorded(&fake), 0, "a fence for nothing");
}

Test(epoch, a_fence_does_not_cover_what_is_freed_after_it)
{
	uint64_t early = take_or_grow(SIZE), late = take_or_grow(SIZE), addr;

	give(early);
	heap_settle(heap);
	give(late);
	fake_backend_complete_upto(&fake, 1);
	heap_settle(heap);
	cr_assert_eq(heap_take(heap, SIZE, 0, &addr), HEAP_OK, "the early one is complete");
	cr_expect_eq(addr, early, "the late one was handed out");
	cr_expect_eq(heap_take(heap, SIZE, 0, &addr), HEAP_E_MISS, "the late one was handed out");
}

Test(epoch, one_fence_covers_any_number_of_frees)
{
	uint64_t addrs[50];
	size_t i;

	for (i = 0; i < 50; i++)
		addrs[i] = take_or_grow(10 * KIB);
	for (i = 0; i < 50; i++)
		give(addrs[i]);
	heap_settle(heap);
	cr_expect_eq(fake_backend_n_recorded(&fake), 1);
	fake_backend_complete_all(&fake);
	heap_settle(heap);
	cr_expect_eq(stats_read(&stats.pending_bytes), 0);
	cr_expect_eq(stats_read(&stats.n_free_blocks), 1, "not merged into one");
}

Test(epoch, what_other_contexts_may_touch_waits_for_a_wide_fence)
{
	uint64_t narrow = take_or_grow(SIZE), wide = take_or_grow(SIZE), addr;

	give(narrow);
	cr_assert_eq(heap_give(&pool, wide, HEAP_DEVICE, true, false), HEAP_OK);
	heap_settle(heap);
	cr_expect_eq(fake_backend_n_recorded(&fake), 2, "not a fence for each kind");
	cr_expect_eq(fake_backend_n_wide(&fake), 1, "not one wide fence");
	fake_backend_complete_upto(&fake, 1);
	heap_settle(heap);
	cr_assert_eq(heap_take(heap, SIZE, 0, &addr), HEAP_OK);
	cr_expect_eq(addr, narrow, "the wide one was handed out by a narrow fence");
	cr_expect_eq(heap_take(heap, SIZE, 0, &addr), HEAP_E_MISS);
	fake_backend_complete_all(&fake);
	heap_settle(heap);
	cr_expect_eq(heap_take(heap, SIZE, 0, &addr), HEAP_OK);
	cr_expect_eq(addr, wide);
}

Test(epoch, nothing_is_recorded_asked_or_handed_out_while_busy)
{
	give(take_or_grow(SIZE));
	fake_backend_set_busy(&fake, true);
	cr_expect_eq(heap_settle(heap), HEAP_OK, "busy is no error");
	cr_expect_eq(heap_wait(heap, 1000), HEAP_E_MISS, "nothing can be waited for");
	cr_expect_not(is_available(), "handed out during a capture");
	assert_heap_is_sound("busy");

	fake_backend_set_busy(&fake, false);
	heap_settle(heap);
	fake_backend_complete_all(&fake);
	fake_backend_set_busy(&fake, true);
	heap_settle(heap);
	cr_expect_not(is_available(), "handed out during a capture");
	fake_backend_set_busy(&fake, false);
	heap_settle(heap);
	cr_expect(is_available(), "lost during a capture");
}

Test(epoch, a_fence_that_cannot_be_recorded_covers_nothing)
{
	give(take_or_grow(SIZE));
	fake_backend_fail(&fake, FAKE_OP_FENCE_RECORD, 1, 1, -700);
	cr_expect_eq(heap_settle(heap), -700, "the backend's status is lost");
	fake_backend_complete_all(&fake);
	cr_expect_not(is_available(), "handed out without a fence");
	assert_heap_is_sound("not recorded");
	heap_settle(heap);
	fake_backend_complete_all(&fake);
	heap_settle(heap);
	cr_expect(is_available(), "lost with the failed fence");
}

Test(epoch, a_fence_that_cannot_be_asked_keeps_its_blocks)
{
	give(take_or_grow(SIZE));
	heap_settle(heap);
	fake_backend_complete_all(&fake);
	fake_backend_fail(&fake, FAKE_OP_FENCE_QUERY, 1, 1, -700);
	cr_expect_eq(heap_settle(heap), -700, "the backend's status is lost");
	cr_expect_not(is_available(), "handed out on an error");
	cr_expect_eq(fake_backend_n_fences(&fake), 1);
	heap_settle(heap);
	cr_expect(is_available(), "lost with the failed question");
}

/* A device that completes one more fence at every nth pause. */
struct slow_device {
	unsigned n_pauses, n_pauses_a_fence;
};

static void
work_on(struct fake_backend *which, void *arg)
{
	struct slow_device *device = arg;

	if (++device->n_pauses % device->n_pauses_a_fence == 0)
		fake_backend_complete_upto(which, fake_backend_n_complete(which) + 1);
}

/* A thread that frees what it is given: for who freed a block matters to how long one waits. */
static void *
give_here(void *arg)
{
	return (void *)(intptr_t)heap_give(&pool, *(uint64_t *)arg, HEAP_DEVICE, false, false);
}

static void
give_elsewhere(uint64_t addr)
{
	pthread_t thread;
	void *r;

	cr_assert_eq(pthread_create(&thread, NULL, give_here, &addr), 0);
	pthread_join(thread, &r);
	cr_assert_null(r, "a live block was not freed");
}

Test(epoch, a_wait_ends_with_the_oldest_epoch)
{
	struct slow_device device = {.n_pauses_a_fence = 5};

	fake_backend_set_pause(&fake, 100, work_on, &device);
	give(take_or_grow(SIZE));
	heap_settle(heap);
	give(take_or_grow(6 * MIB));
	cr_expect_eq(heap_wait(heap, 1000000), HEAP_OK, "it did not end well");
	cr_expect(is_available(), "the oldest is not available");
	cr_expect_eq(device.n_pauses, 5, "it waited for more than the oldest");
	cr_expect_eq(stats_read(&stats.wait_count), 1);
	cr_expect_eq(stats_read(&stats.wait_ns), 500, "the time is not told");
}

Test(epoch, a_wait_for_the_frees_of_others_is_bounded_and_not_repeated)
{
	uint64_t n_queries;

	fake_backend_set_pause(&fake, 100, NULL, NULL);
	give_elsewhere(take_or_grow(SIZE));
	cr_expect_eq(heap_wait(heap, 1000), HEAP_E_TIMEOUT, "it did not end by its bound");
	cr_expect_eq(stats_read(&stats.wait_ns), 1000, "it was another bound");
	n_queries = fake_backend_count(&fake, FAKE_OP_FENCE_QUERY);
	cr_expect_eq(heap_wait(heap, 1000), HEAP_E_MISS, "a stalled fence is waited for again");
	cr_expect_eq(fake_backend_count(&fake, FAKE_OP_FENCE_QUERY), n_queries, "it was asked");
	cr_expect_not(is_available(), "handed out after a wait that timed out");

	fake_backend_complete_all(&fake);
	heap_settle(heap);
	cr_expect(is_available(), "a stalled epoch never comes back");
}

Test(epoch, a_stalled_epoch_does_not_hide_those_behind_it)
{
	struct slow_device device = {.n_pauses_a_fence = 3};

	give_elsewhere(take_or_grow(6 * MIB));
	cr_expect_eq(heap_wait(heap, 1000), HEAP_E_TIMEOUT);
	give_elsewhere(take_or_grow(SIZE));
	fake_backend_complete_upto(&fake, 1);
	fake_backend_set_pause(&fake, 100, work_on, &device);
	cr_expect_eq(heap_wait(heap, 1000), HEAP_OK, "only the stalled one was seen");
	cr_expect(is_available());
}

Test(epoch, a_thread_waits_for_its_own_frees_as_long_as_the_driver_would)
{
	struct slow_device device = {.n_pauses_a_fence = 1000};

	fake_backend_set_pause(&fake, 1000000, work_on, &device);
	give(take_or_grow(SIZE));
	cr_expect_eq(heap_wait(heap, 10), HEAP_OK, "it gave up where the driver's free waits");
	cr_expect(is_available());
}

Test(epoch, a_wait_that_meets_an_error_ends_with_it)
{
	give(take_or_grow(SIZE));
	fake_backend_fail(&fake, FAKE_OP_FENCE_QUERY, 2, 1, -719);
	cr_expect_eq(heap_wait(heap, 1000000), -719);
	cr_expect_not(is_available(), "handed out on an error");
}

static void
be_busy(struct fake_backend *which, void *arg)
{
	(void)arg;
	fake_backend_set_busy(which, true);
}

Test(epoch, a_wait_ends_when_a_capture_begins)
{
	fake_backend_set_pause(&fake, 100, be_busy, NULL);
	give(take_or_grow(SIZE));
	cr_expect_eq(heap_wait(heap, 1000000), HEAP_E_MISS, "it goes on during a capture");
}

/*
 * A context's destruction that the driver refuses: the heap closes while somebody waits, and
 * reopens.
 */
static void *
close_and_reopen(void *arg)
{
	(void)arg;
	heap_close(heap);
	heap_reopen(heap);
	return NULL;
}

static bool
is_closing(void)
{
	bool is_so;

	pthread_mutex_lock(&heap->lock);
	is_so = heap->state == HEAP_CLOSING;
	pthread_mutex_unlock(&heap->lock);
	return is_so;
}

static void
begin_closing(struct fake_backend *which, void *arg)
{
	pthread_t *closer = arg;

	if (*closer) {
		fake_backend_complete_all(which);
		return;
	}
	cr_assert_eq(pthread_create(closer, NULL, close_and_reopen, NULL), 0);
	while (!is_closing())
		usleep(100);
}

Test(epoch, a_wait_outlasts_a_closing_that_comes_to_nothing)
{
	pthread_t closer = 0;
	int r;

	fake_backend_set_pause(&fake, 100, begin_closing, &closer);
	give(take_or_grow(SIZE));
	r = heap_wait(heap, 1000000);
	pthread_join(closer, NULL);
	cr_expect_neq(r, HEAP_E_CLOSED, "the heap lives on, and the wait says that it is gone");
	fake_backend_complete_all(&fake);
	heap_settle(heap);
	cr_expect(is_available(), "the block was lost");
}

/* Another thread takes the epoch in while this one waits for it. */
static void
settle_meanwhile(struct fake_backend *which, void *arg)
{
	(void)arg;
	fake_backend_complete_all(which);
	heap_settle(heap);
	cr_expect_eq(fake_backend_n_fences(which), 1,
		     "the fence was freed while it is asked about");
}

Test(epoch, a_wait_survives_another_thread_taking_the_epoch_in)
{
	fake_backend_set_pause(&fake, 100, settle_meanwhile, NULL);
	give(take_or_grow(SIZE));
	cr_expect_eq(heap_wait(heap, 1000000), HEAP_OK);
	cr_expect(is_available());
	cr_expect_eq(fake_backend_n_fences(&fake), 0, "the last user did not free the fence");
}

/* A device that frees into the heap while the fence is being recorded: see whether the free joins
 * it. */
static struct backend_ops racing_ops;
static const struct backend_ops *plain_ops;
static uint64_t freed_meanwhile;

static int
record_then_free(struct backend *backend, bool is_wide, struct fence **ret_fence)
{
	int r = plain_ops->fence_record(backend, is_wide, ret_fence);

	if (freed_meanwhile)
		give(freed_meanwhile);
	freed_meanwhile = 0;
	return r;
}

Test(epoch, a_free_during_the_recording_is_not_covered_by_that_fence)
{
	uint64_t first = take_or_grow(6 * MIB);

	freed_meanwhile = take_or_grow(SIZE);
	plain_ops = fake.backend.ops;
	racing_ops = *plain_ops;
	racing_ops.fence_record = record_then_free;
	fake.backend.ops = &racing_ops;
	give(first);
	heap_settle(heap);
	fake_backend_complete_upto(&fake, 1);
	heap_settle(heap);
	cr_expect_not(is_available(), "a later free joined a fence that was under way");
	assert_heap_is_sound("freed meanwhile");
	fake_backend_complete_all(&fake);
	heap_settle(heap);
	cr_expect(is_available(), "lost between two fences");
}

Test(epoch, a_fence_that_covers_later_work_is_never_waited_for_without_end)
{
	give(take_or_grow(SIZE));
	fake_backend_submit(&fake); /* it may wait for this thread */
	fake_backend_set_pause(&fake, 1000000, NULL, NULL);
	cr_expect_eq(heap_wait(heap, 5000000), HEAP_E_TIMEOUT, "it waits as a free would have");
}
