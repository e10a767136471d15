/* SPDX-License-Identifier: MIT */
/* The ladder that a request goes down once the limit or the device refuses, and what every failure
 * leaves. */
#include "policy/exhaust.h"

#include <criterion/criterion.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>

#include "tests/support/heap_fixture.h"
#include "tests/support/rows.h"

static struct account account;
static unsigned n_peer_trims;

/* Another heap of the same device, with its own backend as another context has. */
static struct heap *peer;

static void
trim_peer(void *arg, struct heap *except, size_t want_bytes, uint64_t bound_ns)
{
	(void)arg;
	cr_expect_eq(except, heap, "the asking heap is not the one left out");
	n_peer_trims++;
	if (peer)
		exhaust_trim(peer, &account, want_bytes, bound_ns);
}

static const struct exhaust_peers peers = {.trim = trim_peer};

static void
complete_one(struct fake_backend *which, void *arg)
{
	(void)arg;
	if (fake_backend_n_complete(which) < fake_backend_n_recorded(which))
		fake_backend_complete_upto(which, fake_backend_n_complete(which) + 1);
}

static void
setup(void)
{
	heap_fixture_setup();
	account_init(&account, LIMIT_NONE);
	/* A device that goes on working while somebody waits for it. */
	fake_backend_set_pause(&fake, 1000, complete_one, NULL);
}

static void
assert_all_is_counted(const char *where)
{
	assert_heap_is_sound(where);
	cr_assert_eq(limit_held_bytes(&account), stats_read(&stats.total_bytes),
		     "%s: the account holds %" PRIu64 ", the heap %" PRIu64, where,
		     limit_held_bytes(&account), stats_read(&stats.total_bytes));
}

TestSuite(exhaust, .init = setup, .fini = heap_fixture_teardown, .timeout = 60);

static int
alloc(size_t requested_bytes, uint64_t *ret_addr)
{
	return exhaust_alloc(heap, &account, &peers, requested_bytes, 0, ret_addr);
}

static uint64_t
must_alloc(size_t requested_bytes)
{
	uint64_t addr = 0;

	cr_assert_eq(alloc(requested_bytes, &addr), EXHAUST_OK, "%zu bytes were refused",
		     requested_bytes);
	return addr;
}

static void
must_refuse(size_t requested_bytes, int want, const char *why)
{
	uint64_t addr = 77, held_bytes = limit_held_bytes(&account);

	cr_expect_eq(alloc(requested_bytes, &addr), want, "%s", why);
	cr_expect_eq(addr, 77, "%s: the result was touched", why);
	cr_expect_eq(limit_held_bytes(&account), held_bytes, "%s: bytes stayed reserved", why);
}

Test(exhaust, what_is_held_is_handed_out_before_anything_is_got)
{
	uint64_t addr = must_alloc(4 * MIB);

	give(addr);
	cr_expect_neq(must_alloc(4 * MIB), addr, "handed out before its fence is complete");
	fake_backend_complete_all(&fake);
	cr_expect_eq(must_alloc(4 * MIB), addr, "a completed fence was not looked at");
	cr_expect_eq(stats_read(&stats.hit_count), 1, "hits");
	cr_expect_eq(stats_read(&stats.miss_count), 2, "misses");
	assert_all_is_counted("hit");
}

Test(exhaust, the_limit_refuses_and_nothing_stays_reserved)
{
	limit_set(&account, 8 * MIB);
	must_alloc(4 * MIB);
	must_refuse(6 * MIB, EXHAUST_E_NO_MEMORY, "10 MiB within a limit of 8");
	cr_expect_eq(stats_read(&stats.oom_count), 1, "the refusal was not counted");
	cr_expect_eq(stats_read(&stats.oom_avoided_count), 0);
	must_alloc(4 * MIB);
	assert_all_is_counted("at the limit");
}

Test(exhaust, a_full_device_refuses_as_the_driver_does)
{
	must_alloc(200 * MIB);
	must_refuse(100 * MIB, EXHAUST_E_NO_MEMORY, "300 MiB on a device of 256");
	assert_all_is_counted("full");
}

Test(exhaust, an_error_that_is_not_want_of_memory_passes_unchanged_and_is_not_retried)
{
	fake_backend_fail(&fake, FAKE_OP_MAP, 1, 1, -719);
	must_refuse(4 * MIB, -719, "the backend's status");
	cr_expect_eq(fake_backend_count(&fake, FAKE_OP_MAP), 1, "it was retried");
	cr_expect_eq(n_peer_trims, 0, "others were trimmed for it");
	cr_expect_eq(stats_read(&stats.oom_count), 0, "it was counted as want of memory");
	assert_all_is_counted("error");
}

static const size_t impossible_sizes[] = {0, SIZE_MAX, SIZE_MAX - 511, (size_t)1 << 63};

TEST_ROWS(exhaust, what_no_segment_can_hold_is_the_drivers_to_answer, impossible_sizes)
{
	must_refuse(impossible_sizes[*row], EXHAUST_PASS, "an impossible size");
	cr_expect_eq(fake_backend_count(&fake, FAKE_OP_MAP), 0, "%zu: the backend was asked",
		     impossible_sizes[*row]);
}

Test(exhaust, a_small_request_under_a_small_limit_gets_a_segment_of_its_size)
{
	limit_set(&account, 64 * KIB);
	must_alloc(60 * KIB);
	must_alloc(4 * KIB);
	must_refuse(1, EXHAUST_E_NO_MEMORY, "a byte above the limit");
	assert_all_is_counted("small limit");
}

Test(exhaust, pending_memory_is_waited_for_before_a_request_is_refused)
{
	uint64_t addr;

	limit_set(&account, 4 * MIB);
	addr = must_alloc(4 * MIB);
	give(addr);
	cr_expect_eq(must_alloc(4 * MIB), addr, "it was not waited for");
	cr_expect_eq(stats_read(&stats.oom_avoided_count), 1, "the rescue was not counted");
	cr_expect_geq(stats_read(&stats.wait_count), 1, "the wait was not counted");
	assert_all_is_counted("waited");
}

Test(exhaust, idle_memory_of_another_size_goes_back_before_a_request_is_refused)
{
	limit_set(&account, 8 * MIB);
	give_complete(must_alloc(4 * MIB));
	must_alloc(6 * MIB);
	cr_expect_eq(stats_read(&stats.total_bytes), 6 * MIB, "the idle segment stayed");
	assert_all_is_counted("trimmed");
}

Test(exhaust, pending_memory_of_another_size_is_waited_for_and_goes_back)
{
	limit_set(&account, 8 * MIB);
	give(must_alloc(4 * MIB));
	give(must_alloc(2 * MIB));
	must_alloc(8 * MIB);
	assert_all_is_counted("trimmed");
}

Test(exhaust, idle_memory_of_the_devices_other_heaps_goes_back_before_a_request_is_refused)
{
	static struct fake_backend peer_fake;
	static struct stats peer_stats;
	struct heap_config config = {.backend = &peer_fake.backend, .stats = &peer_stats};
	uint64_t addr;

	fake_backend_init(&peer_fake, 64 * MIB);
	fake_backend_set_next_addr(&peer_fake, UINT64_C(0x600000000000));
	fake_backend_set_completes_at_once(&peer_fake, true);
	peer = heap_new(&pool, &config);
	limit_set(&account, 8 * MIB);
	cr_assert_eq(exhaust_alloc(peer, &account, &peers, 6 * MIB, 0, &addr), EXHAUST_OK);
	cr_assert_eq(heap_give(&pool, addr, HEAP_DEVICE, false, true), HEAP_OK);

	must_alloc(4 * MIB);
	cr_expect_eq(n_peer_trims, 1, "the other heap was not asked");
	cr_expect_eq(fake_backend_n_mappings(&peer_fake), 0, "it kept its idle segment");
	assert_all_is_counted("peer trimmed");
	heap_free(peer);
	fake_backend_fini(&peer_fake);
}

Test(exhaust, others_are_left_alone_while_the_heap_can_help_itself)
{
	uint64_t addr;

	limit_set(&account, 8 * MIB);
	addr = must_alloc(8 * MIB);
	give(addr);
	addr = must_alloc(8 * MIB);
	give_complete(addr);
	must_alloc(6 * MIB);
	cr_expect_eq(n_peer_trims, 0, "another heap was trimmed");
}

Test(exhaust, what_can_never_be_had_is_refused_without_waiting_or_giving_back)
{
	const struct exhaust_peers small = {.trim = trim_peer, .most_bytes = 16 * MIB};
	uint64_t addr = 77;

	give_complete(must_alloc(2 * MIB));
	give(must_alloc(4 * MIB));
	cr_expect_eq(exhaust_alloc(heap, &account, &small, 18 * MIB, 0, &addr), EXHAUST_PASS,
		     "more than the device has is the driver's to refuse");
	limit_set(&account, 8 * MIB);
	cr_expect_eq(exhaust_alloc(heap, &account, &small, 10 * MIB, 0, &addr), EXHAUST_E_NO_MEMORY,
		     "more than the limit");
	cr_expect_eq(addr, 77, "the result was touched");
	cr_expect_eq(stats_read(&stats.wait_count), 0, "somebody waited");
	cr_expect_eq(fake_backend_count(&fake, FAKE_OP_UNMAP), 0, "the cache was given up");
	assert_all_is_counted("never to be had");
}

Test(exhaust, nothing_pending_is_handed_out_during_a_capture)
{
	uint64_t addr;

	limit_set(&account, 4 * MIB);
	addr = must_alloc(4 * MIB);
	give(addr);
	fake_backend_set_busy(&fake, true);
	must_refuse(4 * MIB, EXHAUST_E_NO_MEMORY, "a capture is open");
	cr_expect_eq(fake_backend_count(&fake, FAKE_OP_UNMAP), 0, "given back during a capture");
	fake_backend_set_busy(&fake, false);
	cr_expect_eq(must_alloc(4 * MIB), addr, "lost during a capture");
	assert_all_is_counted("captured");
}

static void *
give_here(void *arg)
{
	return (void *)(intptr_t)heap_give(&pool, *(uint64_t *)arg, HEAP_DEVICE, false, false);
}

Test(exhaust, work_that_never_ends_refuses_a_request_in_bounded_time)
{
	uint64_t addr, begin_ns, spent_ns;
	pthread_t thread;

	/* Freed by another thread: this one need not wait for ever. */
	fake_backend_set_pause(&fake, 10000000, NULL, NULL);
	limit_set(&account, 4 * MIB);
	addr = must_alloc(4 * MIB);
	cr_assert_eq(pthread_create(&thread, NULL, give_here, &addr), 0);
	pthread_join(thread, NULL);
	begin_ns = fake.backend.ops->now_ns(&fake.backend);
	must_refuse(4 * MIB, EXHAUST_E_NO_MEMORY, "work that never ends");
	spent_ns = fake.backend.ops->now_ns(&fake.backend) - begin_ns;
	cr_expect_leq(spent_ns, 3 * EXHAUST_WAIT_BOUND_NS, "it took %" PRIu64 " ns", spent_ns);
	assert_all_is_counted("never ends");
}

Test(exhaust, trim_gives_idle_memory_back_to_the_account)
{
	give_complete(must_alloc(4 * MIB));
	give_complete(must_alloc(6 * MIB));
	fake_backend_set_completes_at_once(&fake, true);
	cr_expect_eq(exhaust_trim(heap, &account, SIZE_MAX, 0), 10 * MIB);
	cr_expect_eq(limit_held_bytes(&account), 0, "bytes stayed reserved");
	assert_all_is_counted("trimmed");
}

Test(exhaust, room_is_made_of_what_is_pending_too)
{
	give_complete(must_alloc(4 * MIB));
	give(must_alloc(6 * MIB));
	cr_expect_eq(exhaust_make_room(heap, &account, SIZE_MAX, EXHAUST_WAIT_BOUND_NS), 10 * MIB);
	cr_expect_eq(limit_held_bytes(&account), 0, "bytes stayed reserved");
	assert_all_is_counted("room made");
}

Test(exhaust, counting_alone_obeys_the_limit_too)
{
	struct heap_config config = {.backend = &fake.backend, .stats = &stats, .is_account = true};
	uint64_t addr = 77;

	heap_free(heap);
	heap = heap_new(&pool, &config);
	limit_set(&account, 4096);
	cr_expect_eq(exhaust_count_alloc(heap, &account, 0, 0, &addr), EXHAUST_PASS, "size 0");
	cr_expect_eq(exhaust_count_alloc(heap, &account, 4097, 0, &addr), EXHAUST_E_NO_MEMORY);
	cr_expect_eq(addr, 77, "the result was touched");
	cr_expect_eq(exhaust_count_alloc(heap, &account, 4000, 0, &addr), EXHAUST_OK);
	cr_expect_eq(exhaust_count_alloc(heap, &account, 1, 0, &addr), EXHAUST_E_NO_MEMORY);
	assert_all_is_counted("counted");
}

/* Random sizes, live memory never above the limit: natively each would be served, so each must be
 * here. */
static const unsigned seeds[] = {1, 2, 3, 4, 5, 6};

TEST_ROWS(exhaust, a_program_that_fits_its_limit_natively_fits_with_the_pool, seeds)
{
	enum { N_LIVE_MAX = 40, LIMIT_MIB = 64, N_STEPS = 4000 };
	uint64_t live[N_LIVE_MAX], live_bytes = 0;
	size_t sizes_bytes[N_LIVE_MAX], n_live = 0, bytes, i, step;
	unsigned seed = seeds[*row];

	limit_set(&account, LIMIT_MIB * MIB);
	fake_backend_set_capacity(&fake, LIMIT_MIB * MIB);
	for (step = 0; step < N_STEPS; step++) {
		bytes = MIB + 1 + (size_t)rand_r(&seed) % (24 * MIB);
		if (n_live < N_LIVE_MAX &&
		    live_bytes + heap_round(heap, bytes) <= LIMIT_MIB * MIB) {
			cr_assert_eq(alloc(bytes, &live[n_live]), EXHAUST_OK,
				     "seed %u, step %zu: %zu bytes refused with %" PRIu64 " live",
				     seeds[*row], step, bytes, live_bytes);
			sizes_bytes[n_live] = heap_round(heap, bytes);
			live_bytes += sizes_bytes[n_live++];
		} else if (n_live) {
			i = (size_t)rand_r(&seed) % n_live;
			give(live[i]);
			live_bytes -= sizes_bytes[i];
			live[i] = live[--n_live];
			sizes_bytes[i] = sizes_bytes[n_live];
		}
	}
	assert_all_is_counted("fits");
	cr_expect_leq(limit_peak_bytes(&account), LIMIT_MIB * MIB, "the limit was passed");
}

/*
 * A program that meets every kind of step; the limit is narrow, so that the ladder is climbed down.
 * Calls may fail; a failed one leaves its result as it was.
 */
static void
run_program(const char *where)
{
	static const size_t sizes_bytes[] = {512,     4 * MIB, 100 * KIB, 6 * MIB, 2 * MIB,
					     3 * MIB, MIB,     8 * MIB,   700};
	uint64_t live[16] = {0};
	size_t freed_bytes = 0, i;
	int r;

	for (i = 0; i < 60; i++) {
		uint64_t *addr = &live[i * 7 % 16];

		if (*addr) {
			r = i % 5 ? heap_give(&pool, *addr, HEAP_DEVICE, i % 3 == 0, i % 11 == 0)
				  : give_back(*addr, HEAP_DEVICE, &freed_bytes);
			if (r == HEAP_OK && i % 5 == 0)
				limit_release(&account, freed_bytes);
			if (r == HEAP_OK)
				*addr = 0;
		}
		if (!*addr && alloc(sizes_bytes[i % N_ROWS(sizes_bytes)], addr) != EXHAUST_OK)
			cr_assert_eq(*addr, 0, "%s: a result was touched", where);
		if (i % 13 == 0)
			exhaust_trim(heap, &account, 4 * MIB, 2000);
		assert_all_is_counted(where);
	}
	for (i = 0; i < 16; i++)
		if (live[i])
			cr_assert_eq(heap_give(&pool, live[i], HEAP_DEVICE, false, false), HEAP_OK,
				     "%s: a live block was lost", where);
}

/* After the failure all memory can still be used, waited for and given back. */
static void
assert_nothing_is_lost(const char *where)
{
	fake_backend_complete_all(&fake);
	cr_assert_eq(heap_settle(heap), HEAP_OK, "%s: settle", where);
	fake_backend_complete_all(&fake);
	cr_assert_eq(heap_settle(heap), HEAP_OK, "%s: settle", where);
	assert_all_is_counted(where);
	cr_assert_eq(stats_read(&stats.used_bytes), 0, "%s: a block is lost", where);
	cr_assert_eq(stats_read(&stats.pending_bytes), 0, "%s: pending for ever", where);
	fake_backend_set_completes_at_once(&fake, true);
	exhaust_trim(heap, &account, SIZE_MAX, 0);
	cr_assert_eq(fake_backend_n_mappings(&fake), 0, "%s: a segment is lost", where);
	cr_assert_eq(fake_backend_n_fences(&fake), 0, "%s: a fence is lost", where);
	cr_assert_eq(limit_held_bytes(&account), 0, "%s: reserved bytes are lost", where);
}

static const struct sweep_case {
	const char *what;
	enum fake_op op;
	int status;
} sweep_cases[] = {
	{"map: no memory", FAKE_OP_MAP, BACKEND_E_NO_MEMORY},
	{"map: an error", FAKE_OP_MAP, -700},
	{"unmap: an error", FAKE_OP_UNMAP, -700},
	{"fence_record: busy", FAKE_OP_FENCE_RECORD, BACKEND_E_BUSY},
	{"fence_record: an error", FAKE_OP_FENCE_RECORD, -700},
	{"fence_query: busy", FAKE_OP_FENCE_QUERY, BACKEND_E_BUSY},
	{"fence_query: not ready", FAKE_OP_FENCE_QUERY, BACKEND_E_NOT_READY},
	{"fence_query: an error", FAKE_OP_FENCE_QUERY, -700},
};

TEST_ROWS(exhaust, every_backend_call_may_fail_once_and_nothing_is_lost, sweep_cases)
{
	const struct sweep_case *c = &sweep_cases[*row];
	uint64_t nth = 0, n_calls;
	char where[64];

	do {
		snprintf(where, sizeof(where), "%s, call %" PRIu64, c->what, ++nth);
		limit_set(&account, 24 * MIB);
		fake_backend_set_completes_at_once(&fake, false);
		n_calls = fake_backend_count(&fake, c->op);
		fake_backend_fail(&fake, c->op, nth, 1, c->status);
		run_program(where);
		n_calls = fake_backend_count(&fake, c->op) - n_calls;
		fake_backend_fail(&fake, c->op, 0, 0, BACKEND_OK);
		assert_nothing_is_lost(where);
	} while (nth <= n_calls);
	cr_expect_gt(nth, 5, "%s: the program hardly made the call", c->what);
}

static uint64_t others[1000];
static size_t n_others_freed;

static void
free_another(struct fake_backend *which, void *arg)
{
	(void)arg;
	if (n_others_freed < sizeof(others) / sizeof(others[0]))
		give(others[n_others_freed++]);
	fake_backend_complete_all(which);
}

/* What they free after the request was made is none of its business. */
Test(exhaust, a_request_comes_to_its_end_while_others_go_on_freeing)
{
	uint64_t addr;

	limit_set(&account, 2 * MIB);
	for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
		cr_assert_eq(exhaust_alloc(heap, &account, &peers, 512, 0, &others[i]), EXHAUST_OK);
	free_another(&fake, NULL);
	fake_backend_set_pause(&fake, 1000, free_another, NULL);
	cr_expect_eq(exhaust_alloc(heap, &account, &peers, 4 * MIB, 0, &addr), EXHAUST_E_NO_MEMORY);
	cr_expect_leq(n_others_freed, 20, "%zu frees of others were waited for", n_others_freed);
	assert_all_is_counted("after the refusal");
	fake_backend_complete_all(&fake);
}
