/* SPDX-License-Identifier: MIT */
#include "pool/free_index.h"

#include <criterion/criterion.h>
#include <stdlib.h>

#include "pool/segment.h"
#include "tests/support/rows.h"

enum { N_BLOCKS = 200 };

static struct free_index free_blocks;
static struct block blocks[N_BLOCKS];

static void
setup(void)
{
	size_t i;

	free_index_init(&free_blocks);
	for (i = 0; i < N_BLOCKS; i++)
		list_init(&blocks[i].link);
}

TestSuite(free_index, .init = setup, .timeout = 20);

static void
insert(size_t i, size_t size_bytes)
{
	blocks[i].size_bytes = size_bytes;
	free_index_insert(&free_blocks, &blocks[i]);
}

static size_t
fit_bytes(size_t size_bytes)
{
	struct block *block = free_index_find_fit(&free_blocks, size_bytes);

	return block ? block->size_bytes : 0;
}

Test(free_index, nothing_is_found_in_an_empty_index)
{
	cr_expect_null(free_index_find_fit(&free_blocks, 512));
	cr_expect_null(free_index_find_exact(&free_blocks, 512));
	cr_expect_eq(free_index_largest(&free_blocks), 0);
}

static const size_t sizes_bytes[] = {
	512,
	1024,
	3584,
	4096,
	4608,
	7680,
	8192,
	512 * 1023,
	1 << 20,
	(1 << 20) + 512,
	2 << 20,
	(size_t)1 << 30,
	(size_t)1 << 40,
	(size_t)1 << 46,
	(size_t)1 << 60,
};

TEST_ROWS(free_index, a_block_serves_its_own_size_and_less_and_no_more, sizes_bytes)
{
	size_t size_bytes = sizes_bytes[*row];

	insert(0, size_bytes);
	cr_expect_eq(fit_bytes(size_bytes), size_bytes, "%zu: not found", size_bytes);
	cr_expect_eq(fit_bytes(512), size_bytes, "%zu: not found for 512", size_bytes);
	cr_expect_eq(fit_bytes(size_bytes + 512), 0, "%zu: found for 512 more", size_bytes);
	cr_expect_eq(free_index_find_exact(&free_blocks, size_bytes), &blocks[0],
		     "%zu: not found as exact", size_bytes);
	cr_expect_null(free_index_find_exact(&free_blocks, size_bytes + 512),
		       "%zu: found as exactly 512 more", size_bytes);
	cr_expect_eq(free_index_largest(&free_blocks), size_bytes, "%zu: largest", size_bytes);

	free_index_remove(&free_blocks, &blocks[0]);
	cr_expect_eq(fit_bytes(512), 0, "%zu: found after it left", size_bytes);
	cr_expect_eq(free_index_largest(&free_blocks), 0, "%zu: largest stayed", size_bytes);
}

Test(free_index, memory_that_is_there_is_found_behind_any_number_of_smaller_blocks)
{
	size_t i;

	/* All in one class, the only fitting one deepest. */
	insert(0, 512 * 1151);
	for (i = 1; i < N_BLOCKS; i++)
		insert(i, 512 * 1024);
	cr_expect_eq(fit_bytes(512 * 1151), 512 * 1151, "a fitting block was overlooked");
	cr_expect_eq(free_index_find_exact(&free_blocks, 512 * 1151), &blocks[0],
		     "an exact block was overlooked");
}

Test(free_index, an_exact_block_is_preferred_among_the_newest)
{
	insert(0, 512 * 10);
	insert(1, 512 * 8);
	insert(2, 512 * 9);
	cr_expect_eq(fit_bytes(512 * 8), 512 * 8, "a larger block was taken");
}

Test(free_index, answers_agree_with_a_plain_search)
{
	bool is_in[N_BLOCKS] = {false};
	size_t i, round, want_bytes, found_bytes, best_bytes, largest_bytes;

	srand(2);
	for (round = 0; round < 20000; round++) {
		i = (size_t)rand() % N_BLOCKS;
		if (is_in[i])
			free_index_remove(&free_blocks, &blocks[i]);
		else
			insert(i, 512 * (1 + (size_t)rand() % (rand() % 3 ? 40 : 5000)));
		is_in[i] = !is_in[i];

		want_bytes = 512 * (1 + (size_t)rand() % (rand() % 3 ? 40 : 6000));
		best_bytes = largest_bytes = 0;
		for (i = 0; i < N_BLOCKS; i++) {
			if (!is_in[i])
				continue;
			if (blocks[i].size_bytes >= want_bytes &&
			    (!best_bytes || blocks[i].size_bytes < best_bytes))
				best_bytes = blocks[i].size_bytes;
			if (blocks[i].size_bytes > largest_bytes)
				largest_bytes = blocks[i].size_bytes;
		}
		found_bytes = fit_bytes(want_bytes);
		cr_assert_eq(found_bytes != 0, best_bytes != 0,
			     "seed 2, round %zu: %zu found, %zu there for %zu", round, found_bytes,
			     best_bytes, want_bytes);
		cr_assert(!found_bytes || found_bytes >= want_bytes,
			  "seed 2, round %zu: %zu is too small for %zu", round, found_bytes,
			  want_bytes);
		cr_assert_eq(free_index_find_exact(&free_blocks, want_bytes) != NULL,
			     best_bytes == want_bytes, "seed 2, round %zu: exact", round);
		cr_assert_eq(free_index_largest(&free_blocks), largest_bytes,
			     "seed 2, round %zu: largest", round);
	}
}
