/* SPDX-License-Identifier: MIT */
#include "shim/external.h"

#include <criterion/criterion.h>
#include <pthread.h>
#include <stdlib.h>

static struct external place, other;

static struct external_item
item(enum external_space space, uint64_t key, uint64_t bytes)
{
	return (struct external_item){
		.space = space, .key = key, .kind = EXTERNAL_vmm, .bytes = bytes, .place = &place};
}

static void
add(enum external_space space, uint64_t key, uint64_t bytes)
{
	const struct external_item i = item(space, key, bytes);

	external_add(&i);
}

static void
end(enum external_space space, uint64_t key)
{
	external_settle(external_claim(space, key), true);
}

static void
expect_bytes(uint64_t bytes, const char *when)
{
	cr_expect_eq(place.bytes[EXTERNAL_vmm], bytes, "%s: %llu bytes of the kind, not %llu", when,
		     (unsigned long long)place.bytes[EXTERNAL_vmm], (unsigned long long)bytes);
	cr_expect_eq(place.total_bytes, bytes, "%s: %llu bytes in all, not %llu", when,
		     (unsigned long long)place.total_bytes, (unsigned long long)bytes);
}

Test(external, a_piece_counts_from_its_beginning_to_its_end)
{
	add(EXTERNAL_BY_ADDRESS, 7, 100);
	add(EXTERNAL_BY_ARRAY, 7, 30);
	expect_bytes(130, "two pieces of one number");
	end(EXTERNAL_BY_ADDRESS, 7);
	expect_bytes(30, "one ended");
	end(EXTERNAL_BY_ARRAY, 7);
	expect_bytes(0, "both ended");
	cr_expect_eq(place.peak_total_bytes, 130, "the peak is another");
}

static void
expect_share(unsigned tag, uint64_t bytes, uint64_t count, const char *when)
{
	cr_expect_eq(place.shares[tag].used_bytes, bytes, "%s: tag %u holds %llu bytes", when, tag,
		     (unsigned long long)place.shares[tag].used_bytes);
	cr_expect_eq(place.shares[tag].count, count, "%s: tag %u asked %llu times", when, tag,
		     (unsigned long long)place.shares[tag].count);
}

Test(external, a_piece_counts_for_its_tag)
{
	enum { MINE = 5, YOURS = 7 };
	struct external_item mine = item(EXTERNAL_BY_ADDRESS, 7, 100);
	struct external_item yours = item(EXTERNAL_BY_ARRAY, 7, 30);

	mine.tag = MINE;
	yours.tag = YOURS;
	external_add(&mine);
	external_add(&yours);
	expect_share(MINE, 100, 1, "two pieces");
	expect_share(YOURS, 30, 1, "two pieces");
	external_settle(external_claim(EXTERNAL_BY_ADDRESS, 7), false);
	expect_share(MINE, 100, 1, "its free was refused");
	yours.space = EXTERNAL_BY_ADDRESS; /* the number is another piece's now */
	external_add(&yours);
	expect_share(MINE, 0, 1, "replaced");
	expect_share(YOURS, 60, 2, "in its place");
	end(EXTERNAL_BY_ADDRESS, 7);
	end(EXTERNAL_BY_ARRAY, 7);
	expect_share(YOURS, 0, 2, "ended");
	external_set(&place, EXTERNAL_graph, 50);
	expect_share(0, 50, 0, "nobody asked");
	external_set(&place, EXTERNAL_graph, 0);
}

Test(external, what_is_not_known_is_not_claimed)
{
	cr_expect_null(external_claim(EXTERNAL_BY_ADDRESS, 7), "claimed from an empty table");
	add(EXTERNAL_BY_ADDRESS, 7, 100);
	cr_expect_null(external_claim(EXTERNAL_BY_ADDRESS, 8), "claimed by another address");
	cr_expect_null(external_claim(EXTERNAL_BY_PINNED, 7), "claimed by another call");
	end(EXTERNAL_BY_ADDRESS, 7);
	end(EXTERNAL_BY_ADDRESS, 7);
	expect_bytes(0, "ended twice");
}

Test(external, a_refused_free_puts_the_piece_back)
{
	struct external_record *record;

	add(EXTERNAL_BY_ADDRESS, 7, 100);
	record = external_claim(EXTERNAL_BY_ADDRESS, 7);
	cr_expect_null(external_claim(EXTERNAL_BY_ADDRESS, 7), "claimed by two at once");
	expect_bytes(0, "while it is claimed");
	external_settle(record, false);
	expect_bytes(100, "after the refusal");
	end(EXTERNAL_BY_ADDRESS, 7);
	expect_bytes(0, "freed at last");
}

Test(external, an_address_that_is_given_out_again_during_a_free_counts)
{
	struct external_record *record;

	add(EXTERNAL_BY_ADDRESS, 7, 100);
	record = external_claim(EXTERNAL_BY_ADDRESS, 7);
	add(EXTERNAL_BY_ADDRESS, 7, 30); /* another thread's, before the free has returned */
	external_settle(record, true);
	expect_bytes(30, "the new piece");
	end(EXTERNAL_BY_ADDRESS, 7);
	expect_bytes(0, "the new piece ended");
}

Test(external, a_piece_whose_end_was_missed_gives_way_to_the_next)
{
	add(EXTERNAL_BY_ADDRESS, 7, 100);
	add(EXTERNAL_BY_ADDRESS, 7, 30);
	expect_bytes(30, "the later piece");
}

Test(external, each_handle_has_to_be_released)
{
	add(EXTERNAL_BY_VMM, 7, 100);
	external_retain(EXTERNAL_BY_VMM, 7);
	end(EXTERNAL_BY_VMM, 7);
	expect_bytes(100, "one of two handles released");
	external_settle(external_claim(EXTERNAL_BY_VMM, 7), false);
	expect_bytes(100, "the release of the last handle refused");
	end(EXTERNAL_BY_VMM, 7);
	expect_bytes(0, "both released");
}

Test(external, two_releases_at_once_end_two_handles)
{
	struct external_record *first, *second;

	add(EXTERNAL_BY_VMM, 7, 100);
	external_retain(EXTERNAL_BY_VMM, 7);
	first = external_claim(EXTERNAL_BY_VMM, 7);
	second = external_claim(EXTERNAL_BY_VMM, 7);
	expect_bytes(0, "both on their way");
	external_settle(first, false);
	expect_bytes(100, "one refused");
	external_settle(second, true);
	expect_bytes(100, "the other done");
	end(EXTERNAL_BY_VMM, 7);
	expect_bytes(0, "all released");
}

Test(external, a_mapping_keeps_the_memory)
{
	add(EXTERNAL_BY_VMM, 7, 100);
	external_map_end(external_map_begin(7), 1000, 0, 100, true);
	external_map_end(external_map_begin(7), 1100, 0, 100, true);
	external_map_end(external_map_begin(7), 1200, 0, 100, false);
	cr_expect_null(external_map_begin(8), "an unknown handle was mapped");
	end(EXTERNAL_BY_VMM, 7);
	expect_bytes(100, "released, mapped twice");
	cr_expect_null(external_claim(EXTERNAL_BY_VMM, 7), "released twice");
	external_unmap_end(external_unmap_begin(1000, 100), true);
	expect_bytes(100, "one mapping left");
	external_unmap_end(external_unmap_begin(1100, 100), false);
	expect_bytes(100, "the unmapping refused");
	external_unmap_end(external_unmap_begin(1100, 100), true);
	expect_bytes(0, "unmapped");
}

Test(external, one_call_unmaps_a_row_of_mappings)
{
	add(EXTERNAL_BY_VMM, 7, 100);
	add(EXTERNAL_BY_VMM, 8, 50);
	external_map_end(external_map_begin(7), 1000, 0, 100, true);
	external_map_end(external_map_begin(8), 1100, 0, 50, true);
	external_map_end(external_map_begin(8), 1150, 0, 50, true);
	end(EXTERNAL_BY_VMM, 7);
	end(EXTERNAL_BY_VMM, 8);
	external_unmap_end(external_unmap_begin(1000, 150), true);
	expect_bytes(50, "the third mapping is left");
	external_unmap_end(external_unmap_begin(1150, 50), true);
	expect_bytes(0, "all unmapped");
}

Test(external, a_release_that_is_refused_after_the_unmapping_puts_the_memory_back)
{
	struct external_record *record;

	add(EXTERNAL_BY_VMM, 7, 100);
	external_map_end(external_map_begin(7), 1000, 0, 100, true);
	record = external_claim(EXTERNAL_BY_VMM, 7);
	external_unmap_end(external_unmap_begin(1000, 100), true);
	expect_bytes(0, "unmapped, the release on its way");
	external_settle(record, false);
	expect_bytes(100, "the release refused");
	end(EXTERNAL_BY_VMM, 7);
	expect_bytes(0, "released");
}

Test(external, a_mapped_import_has_the_size_of_its_mapping)
{
	struct external_item i = item(EXTERNAL_BY_VMM, 7, 0);

	i.is_shared = true;
	external_add(&i);
	external_add(&i); /* imported once more */
	expect_bytes(0, "not mapped");
	external_map_end(external_map_begin(7), 1000, 0, 100, true);
	expect_bytes(100, "mapped");
	external_unmap_end(external_unmap_begin(1000, 100), true);
	end(EXTERNAL_BY_VMM, 7);
	expect_bytes(100, "one of two imports released");
	end(EXTERNAL_BY_VMM, 7);
	expect_bytes(0, "both released");
}

Test(external, a_context_takes_its_pieces_along)
{
	atomic_uint life = 4, another_life = 4;
	struct external_item own = item(EXTERNAL_BY_ADDRESS, 7, 100);
	struct external_item foreign = item(EXTERNAL_BY_ADDRESS, 8, 30);
	struct external_item claimed = item(EXTERNAL_BY_ADDRESS, 9, 20);
	struct external_record *record;

	own.life = claimed.life = &life;
	own.generation = claimed.generation = 4;
	foreign.life = &another_life;
	foreign.generation = 4;
	external_add(&own);
	external_add(&foreign);
	external_add(&claimed);
	record = external_claim(EXTERNAL_BY_ADDRESS, 9);
	life++;
	external_drop(&life, 4);
	expect_bytes(30, "the other context's piece");
	external_settle(record, false);
	expect_bytes(30, "a free that was refused because the context went");
	external_add(&own);
	expect_bytes(30, "a piece whose context ended before it was counted");
	own.generation = 5;
	external_add(&own);
	expect_bytes(130, "a piece of the next context in the same place");
}

Test(external, an_unknown_size_is_told_as_such)
{
	struct external_item i = item(EXTERNAL_BY_ARRAY, 7, 0);

	i.is_unmeasured = true;
	external_add(&i);
	cr_expect_eq(place.n_unmeasured, 1, "it is not told");
	expect_bytes(0, "unmeasured");
	end(EXTERNAL_BY_ARRAY, 7);
	cr_expect_eq(place.n_unmeasured, 0, "it is told after its end");
}

Test(external, what_is_counted_for_a_device_too_is_not_in_its_sum)
{
	struct external_item i = item(EXTERNAL_BY_REGISTERED, 7, 100);

	i.via = &other;
	external_add(&i);
	cr_expect_eq(other.bytes[EXTERNAL_vmm], 100, "not counted there");
	cr_expect_eq(other.total_bytes, 0, "in the sum there");
	end(EXTERNAL_BY_REGISTERED, 7);
	cr_expect_eq(other.bytes[EXTERNAL_vmm], 0, "still counted there");
}

Test(external, a_figure_that_is_read_replaces_the_last)
{
	external_set(&place, EXTERNAL_vmm, 100);
	external_set(&place, EXTERNAL_vmm, 30);
	expect_bytes(30, "read twice");
	cr_expect_eq(place.peak_total_bytes, 100, "the peak is another");
}

Test(external, many_pieces_are_found_again)
{
	enum { N = 10000 };

	for (uint64_t i = 0; i < N; i++)
		add(EXTERNAL_BY_ADDRESS, i << 21, 1);
	expect_bytes(N, "all there");
	for (uint64_t i = 0; i < N; i++)
		end(EXTERNAL_BY_ADDRESS, i << 21);
	expect_bytes(0, "all ended");
}

/* Threads share their keys, as they share the addresses that the driver gives out again. */
static void *
hammer(void *arg)
{
	unsigned random = (unsigned)(uintptr_t)arg;

	for (int i = 0; i < 20000; i++) {
		const uint64_t key = (unsigned)rand_r(&random) % 64;
		struct external_record *memory;

		switch (rand_r(&random) % 6) {
		case 0:
			add(EXTERNAL_BY_VMM, key, key + 1);
			break;
		case 1:
			external_retain(EXTERNAL_BY_VMM, key);
			break;
		case 2:
			memory = external_map_begin(key);
			external_map_end(memory, 64 * (uint64_t)(rand_r(&random) % 64), 0, 64,
					 rand_r(&random) % 4 != 0);
			break;
		case 3:
			external_unmap_end(external_unmap_begin(64 * key, 128),
					   rand_r(&random) % 4 != 0);
			break;
		default:
			external_settle(external_claim(EXTERNAL_BY_VMM, key),
					rand_r(&random) % 4 != 0);
		}
	}
	return NULL;
}

Test(external, threads_that_race_leave_nothing_behind, .timeout = 60)
{
	pthread_t threads[4];

	for (uintptr_t i = 0; i < 4; i++)
		cr_assert_eq(pthread_create(&threads[i], NULL, hammer, (void *)(i + 1)), 0);
	for (int i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	for (uint64_t key = 0; key < 64; key++)
		external_unmap_end(external_unmap_begin(64 * key, 64), true);
	for (uint64_t key = 0; key < 64; key++)
		for (int i = 0; i < 20000 && place.bytes[EXTERNAL_vmm]; i++)
			end(EXTERNAL_BY_VMM, key);
	expect_bytes(0, "all ended");
}
