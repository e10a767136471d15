/* SPDX-License-Identifier: MIT */
/* What is true of a heap in the middle of its steps, and after the ones that fail half-way. */
#include "pool/heap.h"

#include <criterion/criterion.h>
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "policy/exhaust.h"
#include "pool/heap_internal.h"
#include "tests/support/heap_fixture.h"
#include "tests/support/rows.h"

TestSuite(heap_edges, .init = heap_fixture_setup, .fini = heap_fixture_teardown, .timeout = 20);

/* The fake backend with one op replaced by a look at the heap from inside it. */
static struct backend_ops looking_ops;
static const struct backend_ops *plain_ops;

static void
start_looking(void)
{
	plain_ops = fake.backend.ops;
	looking_ops = *plain_ops;
	fake.backend.ops = &looking_ops;
}

static const int refusals[] = {-700, BACKEND_E_BUSY};

TEST_ROWS(heap_edges, a_wide_fence_that_cannot_be_recorded_is_recorded_wide, refusals)
{
	uint64_t block = take_or_grow(4 * MIB), addr;

	cr_assert_eq(heap_give(&pool, block, HEAP_DEVICE, true, false), HEAP_OK);
	fake_backend_fail(&fake, FAKE_OP_FENCE_RECORD, 1, 1, refusals[*row]);
	heap_settle(heap);
	cr_expect_eq(fake_backend_n_recorded(&fake), 0, "%d: it was recorded", refusals[*row]);
	heap_settle(heap);
	cr_expect_eq(fake_backend_n_wide(&fake), 1, "%d: the second fence is no wide one",
		     refusals[*row]);
	fake_backend_complete_all(&fake);
	heap_settle(heap);
	cr_assert_eq(heap_take(heap, 4 * MIB, 0, &addr), HEAP_OK, "%d: the block is lost",
		     refusals[*row]);
}

Test(heap_edges, pending_neighbours_keep_their_borders)
{
	uint64_t blocks[7], addr;

	for (int i = 0; i < 7; i++)
		blocks[i] = take_or_grow(512);
	give(blocks[1]);
	give(blocks[4]);
	give_complete(blocks[0]); /* left of a pending one */
	give_complete(blocks[5]); /* right of one */
	assert_heap_is_sound("freed beside pending blocks");
	for (int i = 0; i < 4; i++) {
		addr = take_or_grow(1024);
		cr_expect(addr >= blocks[6] + 512, "a pending block was handed out with its "
						   "neighbour");
	}
	fake_backend_set_completes_at_once(&fake, true);
	heap_settle(heap);
	assert_heap_is_sound("complete");
	addr = take_or_grow(1024);
	cr_expect(addr == blocks[0] || addr == blocks[4], "complete neighbours were not merged");
}

static uint64_t freed_addr;
static bool was_in_map;
static unsigned n_looks;

static int
look_at_map(struct backend *backend, uint64_t addr, size_t size_bytes)
{
	n_looks++;
	was_in_map |= addr_map_find(&pool.map, freed_addr) != NULL;
	return plain_ops->unmap(backend, addr, size_bytes);
}

Test(heap_edges, a_segment_is_in_no_map_while_the_backend_frees_it)
{
	size_t freed_bytes;

	start_looking();
	looking_ops.unmap = look_at_map;
	fake_backend_set_completes_at_once(&fake, true);
	freed_addr = take_or_grow(4 * MIB);
	give_complete(freed_addr);
	heap_trim(heap, SIZE_MAX, 0, &freed_bytes);
	cr_expect_not(was_in_map, "trimmed: who frees the address next would free the old block");

	was_in_map = false;
	freed_addr = take_or_grow(4 * MIB);
	give_back(freed_addr, HEAP_DEVICE, &freed_bytes);
	cr_expect_not(was_in_map,
		      "given back: who frees the address next would free the old block");
	cr_expect_eq(n_looks, 2, "the backend freed %u segments, not 2", n_looks);
}

Test(heap_edges, a_segment_that_the_backend_keeps_is_free_as_before)
{
	uint64_t block = take_or_grow(4 * MIB), addr = 0;
	size_t freed_bytes = 77;

	give_complete(block);
	fake_backend_set_completes_at_once(&fake, true);
	fake_backend_fail(&fake, FAKE_OP_UNMAP, 1, 1, -700);
	cr_expect_eq(heap_trim(heap, SIZE_MAX, 0, &freed_bytes), -700, "the status is lost");
	cr_expect_eq(freed_bytes, 0, "it was counted as given back");
	assert_heap_is_sound("kept");
	cr_expect_eq(heap_take(heap, 4 * MIB, 0, &addr), HEAP_OK, "the segment is lost");
	cr_expect_eq(addr, block);
}

static struct account account;

static int
look_at_account(struct backend *backend, size_t size_bytes, uint64_t *ret_addr)
{
	n_looks++;
	cr_expect_eq(limit_held_bytes(&account), size_bytes,
		     "another thread could pass the limit while the backend is asked");
	return plain_ops->map(backend, size_bytes, ret_addr);
}

Test(heap_edges, bytes_are_reserved_before_the_backend_is_asked)
{
	const struct exhaust_peers nobody = {0};
	uint64_t addr;

	account_init(&account, LIMIT_NONE);
	start_looking();
	looking_ops.map = look_at_account;
	cr_assert_eq(exhaust_alloc(heap, &account, &nobody, 4 * MIB, 0, &addr), EXHAUST_OK);
	cr_expect_eq(n_looks, 1, "the backend was asked %u times", n_looks);
}

static pthread_t closer;
static atomic_bool is_closed;

static void *
close_heap(void *arg)
{
	(void)arg;
	heap_close(heap);
	atomic_store(&is_closed, true);
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

/* A context's end begins in another thread while this one asks the driver. */
static int
query_while_closing(struct backend *backend, struct fence *fence)
{
	cr_assert_eq(pthread_create(&closer, NULL, close_heap, NULL), 0);
	while (!is_closing())
		usleep(100);
	usleep(20000);
	cr_expect_not(atomic_load(&is_closed), "closed while the backend is asked about a fence");
	return plain_ops->fence_query(backend, fence);
}

Test(heap_edges, a_heap_closes_when_its_calls_to_the_backend_have_ended)
{
	start_looking();
	looking_ops.fence_query = query_while_closing;
	give(take_or_grow(4 * MIB));
	heap_settle(heap);
	pthread_join(closer, NULL);
	cr_expect(atomic_load(&is_closed), "it never closed");
	heap_reopen(heap);
	fake.backend.ops = plain_ops;
}
