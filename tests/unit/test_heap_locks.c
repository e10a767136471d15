/* SPDX-License-Identifier: MIT */
/* No lock of the pool is held across a backend call, which may wait while other threads come. */
#include "pool/heap.h"

#include <criterion/criterion.h>

#include "pool/heap_internal.h"
#include "tests/support/heap_fixture.h"

TestSuite(heap_locks, .init = heap_fixture_setup, .fini = heap_fixture_teardown, .timeout = 20);

/*
 * The ops of the fake backend behind a check that the calling thread holds no lock of the heap. A
 * default mutex tells its own holder EBUSY.
 */
static struct backend_ops checked_ops;
static const struct backend_ops *plain_ops;
static const char *held_in;

static void
check_lock(const char *op)
{
	if (pthread_mutex_trylock(&heap->lock) != 0)
		held_in = op;
	else
		pthread_mutex_unlock(&heap->lock);
}

static int
checked_map(struct backend *backend, size_t size_bytes, uint64_t *ret_addr)
{
	check_lock("map");
	return plain_ops->map(backend, size_bytes, ret_addr);
}

static int
checked_unmap(struct backend *backend, uint64_t addr, size_t size_bytes)
{
	check_lock("unmap");
	return plain_ops->unmap(backend, addr, size_bytes);
}

static int
checked_fence_record(struct backend *backend, bool is_wide, struct fence **ret_fence)
{
	check_lock("fence_record");
	return plain_ops->fence_record(backend, is_wide, ret_fence);
}

static int
checked_fence_query(struct backend *backend, struct fence *fence)
{
	check_lock("fence_query");
	return plain_ops->fence_query(backend, fence);
}

static void
checked_fence_free(struct backend *backend, struct fence *fence)
{
	check_lock("fence_free");
	plain_ops->fence_free(backend, fence);
}

static uint64_t
checked_now_ns(struct backend *backend)
{
	check_lock("now_ns");
	return plain_ops->now_ns(backend);
}

static void
checked_pause(struct backend *backend, unsigned n_tries)
{
	check_lock("pause");
	plain_ops->pause(backend, n_tries);
}

static void
complete_all(struct fake_backend *which, void *arg)
{
	(void)arg;
	fake_backend_complete_all(which);
}

Test(heap_locks, no_lock_is_held_across_a_backend_call)
{
	size_t freed_bytes;
	uint64_t a, b;

	plain_ops = fake.backend.ops;
	checked_ops = (struct backend_ops){
		.map = checked_map,
		.unmap = checked_unmap,
		.fence_record = checked_fence_record,
		.fence_query = checked_fence_query,
		.fence_free = checked_fence_free,
		.n_begun = fake.backend.ops->n_begun, /* allowed with the lock held */
		.now_ns = checked_now_ns,
		.pause = checked_pause,
	};
	fake.backend.ops = &checked_ops;

	a = take_or_grow(512);
	b = take_or_grow(4 * MIB);
	give(a);
	heap_settle(heap);
	fake_backend_set_pause(&fake, 100, complete_all, NULL);
	cr_assert_eq(heap_wait(heap, 1000), HEAP_OK);
	give(take_or_grow(512));
	heap_settle(heap);
	fake_backend_complete_all(&fake);
	heap_settle(heap);
	fake_backend_set_completes_at_once(&fake, true);
	heap_trim(heap, SIZE_MAX, 10, &freed_bytes);
	give_back(b, HEAP_DEVICE, &freed_bytes);
	cr_expect_null(held_in, "%s was called with the heap's lock held", held_in);
	held_in = NULL;

	fake_backend_set_completes_at_once(&fake, false);
	give(take_or_grow(512));
	heap_settle(heap);
	heap_free(heap);
	cr_expect_null(held_in, "%s was called with the heap's lock held", held_in);
	heap = NULL;
}

static void
look_for_transit(struct fake_backend *which, void *arg)
{
	bool *was_some = arg;

	*was_some |= heap_await_transit(heap);
	fake_backend_complete_all(which);
}

/* Other threads must get past a wait that may have no end, so the waiting thread itself does. */
Test(heap_locks, who_waits_for_the_device_has_nothing_in_transit)
{
	bool was_some = false;

	give(take_or_grow(512));
	fake_backend_set_pause(&fake, 100, look_for_transit, &was_some);
	cr_assert_eq(heap_wait(heap, 1000), HEAP_OK);
	cr_expect_not(was_some, "a wait for the device was waited for");
}

/* The same for early hand-outs. */

TestSuite(heap_locks_early, .fini = heap_fixture_teardown, .timeout = 20);

static int
checked_edge_wait(struct backend *backend, const struct stream_handle *stream, struct fence *fence)
{
	check_lock("edge_wait");
	return plain_ops->edge_wait(backend, stream, fence);
}

static void
checked_look(struct backend *backend, void (*enter)(void *arg, struct order_stream stream),
	     void *arg)
{
	check_lock("look");
	plain_ops->look(backend, enter, arg);
}

Test(heap_locks_early, no_lock_is_held_across_a_look_or_while_a_stream_is_made_to_wait)
{
	const struct order_stream s = {8, 0}, t = {16, 0};
	const struct stream_handle *handle = (const struct stream_handle *)&s;
	uint64_t addr, again;

	heap_fixture_setup_early(NULL);
	plain_ops = fake.backend.ops;
	checked_ops = *plain_ops;
	checked_ops.edge_wait = checked_edge_wait;
	checked_ops.look = checked_look;
	checked_ops.fence_record = checked_fence_record;
	checked_ops.fence_query = checked_fence_query;
	fake.backend.ops = &checked_ops;

	heap_turn(heap);
	cr_assert_eq(fake_backend_count(&fake, FAKE_OP_LOOK), 1, "no turn");
	fake_backend_complete_all(&fake);
	heap_settle(heap);
	addr = take_or_grow(4 * MIB);
	heap_before_submission(heap, s, handle, false);
	fake_backend_submit(&fake);
	give(addr);
	cr_assert_eq(heap_take(heap, 4 * MIB, 0, &again), HEAP_OK);
	heap_before_submission(heap, t, handle, false);
	cr_assert_eq(fake_backend_count(&fake, FAKE_OP_EDGE_WAIT), 1, "nobody waited");
	cr_expect_null(held_in, "%s was called with the heap's lock held", held_in);
	give(again);
}
