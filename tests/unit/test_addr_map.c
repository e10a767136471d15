/* SPDX-License-Identifier: MIT */
#include "pool/addr_map.h"

#include <criterion/criterion.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>

#include "tests/support/rows.h"

#define GRANULE (UINT64_C(1) << ADDR_MAP_GRANULE_SHIFT)
#define BASE UINT64_C(0x7f0000000000)
#define TOP (UINT64_C(1) << 47)

static struct addr_map map;

/* The map never looks into a segment: any distinct addresses will do. */
static char marks[64];

static struct segment *
mark(size_t i)
{
	return (struct segment *)&marks[i];
}

static void
setup(void)
{
	addr_map_init(&map);
}

static void
teardown(void)
{
	addr_map_fini(&map);
}

TestSuite(addr_map, .init = setup, .fini = teardown, .timeout = 20);

static const struct range_case {
	const char *what;
	uint64_t addr;
	size_t size_bytes;
} ranges[] = {
	{"one unit", BASE, 512},
	{"a granule", BASE, GRANULE},
	{"inside a granule", BASE + 1536, 4096},
	{"across two granules", BASE + GRANULE - 512, 1024},
	{"many granules", BASE, 100 * GRANULE},
	{"odd size", BASE + 512, 5 * GRANULE + 12345},
	{"across two leaves", (UINT64_C(1) << 34) * 3 - GRANULE, 3 * GRANULE},
	{"lowest", 0, GRANULE},
	{"one byte", 4096, 1},
	{"highest", TOP - GRANULE, GRANULE},
	{"the last byte", TOP - 1, 1},
};

TEST_ROWS(addr_map, a_range_is_found_from_first_to_last_byte_and_not_beside, ranges)
{
	const struct range_case *c = &ranges[*row];
	uint64_t last = c->addr + c->size_bytes - 1;

	cr_expect_null(addr_map_find(&map, c->addr), "%s: found before it was there", c->what);
	cr_assert_eq(addr_map_insert(&map, c->addr, c->size_bytes, mark(1)), ADDR_MAP_OK,
		     "%s: refused", c->what);
	cr_expect_eq(addr_map_find(&map, c->addr), mark(1), "%s: first byte", c->what);
	cr_expect_eq(addr_map_find(&map, c->addr + c->size_bytes / 2), mark(1), "%s: middle",
		     c->what);
	cr_expect_eq(addr_map_find(&map, last), mark(1), "%s: last byte", c->what);
	cr_expect_null(addr_map_find(&map, last + 1), "%s: byte behind", c->what);
	if (c->addr)
		cr_expect_null(addr_map_find(&map, c->addr - 1), "%s: byte before", c->what);

	addr_map_remove(&map, c->addr, c->size_bytes, mark(1));
	cr_expect_null(addr_map_find(&map, c->addr), "%s: first byte stayed", c->what);
	cr_expect_null(addr_map_find(&map, last), "%s: last byte stayed", c->what);
}

static const struct range_case refused_ranges[] = {
	{"above 47 bits", TOP, 512},
	{"far above", UINT64_MAX - 511, 512},
	{"reaching above", TOP - 512, 1024},
	{"wrapping around", TOP - 512, SIZE_MAX},
	{"empty", BASE, 0},
};

TEST_ROWS(addr_map, what_cannot_be_kept_is_refused, refused_ranges)
{
	const struct range_case *c = &refused_ranges[*row];

	cr_expect_eq(addr_map_insert(&map, c->addr, c->size_bytes, mark(1)),
		     ADDR_MAP_E_OUT_OF_RANGE, "%s: accepted", c->what);
	cr_expect_null(addr_map_find(&map, c->addr), "%s: found", c->what);
	addr_map_remove(&map, c->addr, c->size_bytes, mark(1));
}

Test(addr_map, addresses_that_no_user_has_are_in_no_segment)
{
	cr_expect_null(addr_map_find(&map, UINT64_MAX));
	cr_expect_null(addr_map_find(&map, UINT64_C(0xffff800000000000)));
}

Test(addr_map, segments_that_share_a_granule_are_told_apart)
{
	size_t i;

	for (i = 0; i < 64; i++)
		cr_assert_eq(addr_map_insert(&map, BASE + i * 1024, 512, mark(i)), ADDR_MAP_OK);
	for (i = 0; i < 64; i++) {
		cr_expect_eq(addr_map_find(&map, BASE + i * 1024 + 511), mark(i), "segment %zu", i);
		cr_expect_null(addr_map_find(&map, BASE + i * 1024 + 512), "behind %zu", i);
	}
	for (i = 0; i < 64; i += 2)
		addr_map_remove(&map, BASE + i * 1024, 512, mark(i));
	for (i = 0; i < 64; i++)
		cr_expect_eq(addr_map_find(&map, BASE + i * 1024), i % 2 ? mark(i) : NULL,
			     "segment %zu after every other one left", i);
}

Test(addr_map, a_newer_segment_evicts_what_it_overlaps)
{
	addr_map_insert(&map, BASE, 4 * GRANULE, mark(1));
	addr_map_insert(&map, BASE + GRANULE, GRANULE, mark(2));
	cr_expect_eq(addr_map_find(&map, BASE + GRANULE), mark(2), "the old one shows through");
	cr_expect_eq(addr_map_find(&map, BASE + 2 * GRANULE - 1), mark(2), "at the last byte");

	/* The old owner leaves late: it must not take the new one along. */
	addr_map_remove(&map, BASE, 4 * GRANULE, mark(1));
	cr_expect_eq(addr_map_find(&map, BASE + GRANULE), mark(2), "the new one left with the old");
	cr_expect_null(addr_map_find(&map, BASE), "a part of the old one stayed");
	cr_expect_null(addr_map_find(&map, BASE + 3 * GRANULE), "a part of the old one stayed");
}

Test(addr_map, removing_what_is_not_there_changes_nothing)
{
	addr_map_insert(&map, BASE, GRANULE, mark(1));
	addr_map_remove(&map, BASE, GRANULE, mark(2));
	addr_map_remove(&map, BASE + GRANULE, GRANULE, mark(1));
	addr_map_remove(&map, UINT64_C(0x100000000), GRANULE, mark(1));
	cr_expect_eq(addr_map_find(&map, BASE), mark(1), "it left without being asked to");
}

enum { N_ROUNDS = 4000, N_READERS = 3, N_MOVING = 40 };

static _Atomic bool is_over;

/*
 * mark(1) to mark(40) come and go at places of their own, mark(0) is always at BASE: in the same
 * granule and so behind them in its chain, through which a reader passes while it is changed.
 */
static uint64_t
place(size_t i)
{
	return BASE + i * 4096;
}

static void *
read_on(void *arg)
{
	uintptr_t n_wrong = 0;
	size_t i;

	(void)arg;
	for (i = 0; !atomic_load(&is_over); i = (i + 1) % N_MOVING) {
		struct segment *moving = addr_map_find(&map, place(i + 1) + 700);

		n_wrong += moving && moving != mark(i + 1);
		n_wrong += addr_map_find(&map, BASE + 700) != mark(0);
	}
	return (void *)n_wrong;
}

Test(addr_map, readers_never_miss_a_segment_while_others_come_and_go, .timeout = 60)
{
	pthread_t readers[N_READERS];
	void *n_wrong;
	size_t i, round;

	addr_map_insert(&map, BASE, 4096, mark(0));
	for (i = 0; i < N_READERS; i++)
		cr_assert_eq(pthread_create(&readers[i], NULL, read_on, NULL), 0);
	for (round = 0; round < N_ROUNDS; round++) {
		for (i = 1; i <= N_MOVING; i++)
			addr_map_insert(&map, place(i), 1024, mark(i));
		for (i = 1; i <= N_MOVING; i++)
			addr_map_remove(&map, place(i), 1024, mark(i));
	}
	atomic_store(&is_over, true);
	for (i = 0; i < N_READERS; i++) {
		pthread_join(readers[i], &n_wrong);
		cr_expect_null(n_wrong, "reader %zu got a wrong answer", i);
	}
}
