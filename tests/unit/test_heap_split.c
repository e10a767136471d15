/* SPDX-License-Identifier: MIT */
/* Large requests that share segments. */
#include <criterion/criterion.h>

#include "pool/heap.h"
#include "tests/support/heap_fixture.h"

TestSuite(heap_split, .init = heap_fixture_setup_split, .fini = heap_fixture_teardown,
	  .timeout = 20);

Test(heap_split, large_requests_share_a_segment)
{
	uint64_t a = take_or_grow(3 * MIB), b = take_or_grow(5 * MIB);

	cr_expect_eq(fake_backend_n_mappings(&fake), 1);
	cr_expect_eq(stats_read(&stats.used_bytes), 8 * MIB);
	give_complete(a);
	give_complete(b);
	cr_expect_eq(take_or_grow(16 * MIB), a, "what was split is not one again");
	assert_heap_is_sound("after the split");
}

Test(heap_split, a_block_is_rounded_to_64_KiB)
{
	take_or_grow(20 * MIB + 1);
	cr_expect_eq(stats_read(&stats.used_bytes), 20 * MIB + 64 * KIB);
	cr_expect_eq(stats_read(&stats.total_bytes), 22 * MIB);
}

Test(heap_split, the_smallest_hole_that_fits_is_cut)
{
	uint64_t large = take_or_grow(40 * MIB), small = take_or_grow(20 * MIB);

	give_complete(small);
	give_complete(large);
	cr_expect_eq(take_or_grow(18 * MIB), small);
}

Test(heap_split, exact_from_when_memory_may_become_short)
{
	uint64_t large = take_or_grow(40 * MIB), addr;

	give_complete(large);
	heap_set_exact(heap);
	cr_expect_eq(heap_take(heap, 20 * MIB, 0, &addr), HEAP_E_MISS, "a segment was cut");
	cr_expect_eq(heap_take(heap, 39 * MIB, 0, &addr), HEAP_OK, "rounded to 2 MiB it is 40");
	cr_expect_eq(stats_read(&stats.used_bytes), 40 * MIB);
}

Test(heap_split, what_is_only_counted_is_a_segment_each)
{
	static struct stats counts;
	struct heap_config config = {
		.backend = &fake.backend,
		.stats = &counts,
		.kind = HEAP_DEVICE,
		.is_account = true,
		.is_split = true,
	};
	struct heap *counting = heap_new(&pool, &config);
	uint64_t addr;

	cr_assert_eq(heap_grow(counting, 1000, heap_segment_bytes_min(counting, 1000), 0, &addr),
		     HEAP_OK);
	cr_expect_eq(stats_read(&counts.used_bytes), 1024);
	heap_free(counting);
}
