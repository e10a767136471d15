/* SPDX-License-Identifier: MIT */
/* Sparing a device that becomes tight, and fences for frees while memory is short. */
#include <criterion/criterion.h>
#include <inttypes.h>

#include "policy/exhaust.h"
#include "tests/support/heap_fixture.h"

static struct account account;

static void
trim_nobody(void *arg, struct heap *except, size_t want_bytes, uint64_t bound_ns)
{
	(void)arg;
	(void)except;
	(void)want_bytes;
	(void)bound_ns;
}

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

TestSuite(tight, .init = setup, .fini = heap_fixture_teardown, .timeout = 60);

static bool is_device_tight;
static size_t tight_grow_bytes;

static bool
tell_tight(void *arg, size_t grow_bytes)
{
	(void)arg;
	tight_grow_bytes = grow_bytes;
	return is_device_tight;
}

static const struct exhaust_peers careful = {.trim = trim_nobody, .is_tight = tell_tight};

static uint64_t
must_alloc(size_t requested_bytes)
{
	uint64_t addr = 0;

	cr_assert_eq(exhaust_alloc(heap, &account, &careful, requested_bytes, 0, &addr), EXHAUST_OK,
		     "%zu bytes were refused", requested_bytes);
	return addr;
}

static void
assert_all_is_counted(const char *where)
{
	assert_heap_is_sound(where);
	cr_assert_eq(limit_held_bytes(&account), stats_read(&stats.total_bytes),
		     "%s: the books differ", where);
}

Test(tight, a_tight_device_is_spared_while_held_memory_will_do)
{
	const uint64_t addr = must_alloc(4 * MIB);
	uint64_t again = 0;

	give(addr);
	is_device_tight = true;
	cr_assert_eq(exhaust_alloc(heap, &account, &careful, 4 * MIB, 0, &again), EXHAUST_OK);
	cr_expect_eq(again, addr, "it grew although a freed block only had to be waited for");
	cr_expect_eq(tight_grow_bytes, 4 * MIB, "asked about another growth");

	give(again);
	cr_assert_eq(exhaust_alloc(heap, &account, &careful, 6 * MIB, 0, &again), EXHAUST_OK,
		     "refused although the device has memory");
	cr_expect_eq(fake_backend_n_mappings(&fake), 1, "idle memory was kept beside the new");
	assert_all_is_counted("tight");
}

Test(tight, a_tight_device_makes_nobody_wait_for_ever)
{
	const uint64_t begin_ns = fake.backend.ops->now_ns(&fake.backend);
	uint64_t addr, spent_ns;

	/* Freed by this very thread, behind work that waits for what the thread does next. */
	fake_backend_set_pause(&fake, 1000000, NULL, NULL);
	give(must_alloc(4 * MIB));
	is_device_tight = true;
	cr_assert_eq(exhaust_alloc(heap, &account, &careful, 4 * MIB, 0, &addr), EXHAUST_OK);
	spent_ns = fake.backend.ops->now_ns(&fake.backend) - begin_ns;
	cr_expect_leq(spent_ns, 100000000, "it took %" PRIu64 " ns", spent_ns);
	assert_all_is_counted("never ends, tight");
}

Test(tight, under_a_limit_each_free_is_covered_at_once)
{
	uint64_t addr, other;

	limit_set(&account, 8 * MIB);
	addr = must_alloc(4 * MIB);
	other = must_alloc(4 * MIB);
	give(addr);
	cr_assert_eq(fake_backend_n_recorded(&fake), 1, "a free was left without its fence");
	/* Work that is submitted from here on is no concern of the block. */
	give(other);
	cr_assert_eq(fake_backend_n_recorded(&fake), 2, "the second one was");
	fake_backend_complete_upto(&fake, 1);
	fake_backend_set_pause(&fake, 1000, NULL, NULL);
	cr_expect_eq(must_alloc(4 * MIB), addr, "it waited for the later fence");
}

Test(tight, a_roomy_device_is_grown_on_and_nobody_waits)
{
	const uint64_t addr = must_alloc(4 * MIB);
	uint64_t again = 0;

	give(addr);
	cr_assert_eq(exhaust_alloc(heap, &account, &careful, 4 * MIB, 0, &again), EXHAUST_OK);
	cr_expect_neq(again, addr, "a pending block was handed out, or waited for");
	cr_expect_eq(stats_read(&stats.wait_count), 0, "somebody waited");
}
