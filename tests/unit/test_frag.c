/* SPDX-License-Identifier: MIT */
#include "pool/frag.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/rows.h"

#define MIB ((uint64_t)1 << 20)

enum { N_EXTENTS_MAX = 128 };

static const struct frag_case {
	const char *what;
	uint64_t extents[8], wholes[4];
	double want_entropy_bits;
	enum frag_level want_level;
} frag_cases[] = {
	{"nothing free", {0}, {0}, 0, FRAG_LOW},
	{"one unit", {512}, {0}, 0, FRAG_LOW},
	{"one extent", {10 * MIB}, {0}, 0, FRAG_LOW},
	{"one extent of an odd size", {10 * MIB + 7 * 512}, {0}, 0, FRAG_LOW},
	{"a whole segment", {0}, {2 * MIB}, 0, FRAG_LOW},
	{"whole segments count as one", {0}, {2 * MIB, 4 * MIB, 64 * MIB}, 0, FRAG_LOW},
	{"two equal extents", {MIB, MIB}, {0}, 1, FRAG_LOW},
	{"four equal extents", {MIB, MIB, MIB, MIB}, {0}, 2, FRAG_MEDIUM},
	{"eight equal extents", {512, 512, 512, 512, 512, 512, 512, 512}, {0}, 3, FRAG_MEDIUM},
	/* p = 1/2, 1/4, 1/4: 0.5 + 0.5 + 0.5 bits */
	{"a half and two quarters", {2 * MIB, MIB, MIB}, {0}, 1.5, FRAG_LOW},
	/* the two wholes are one extent of p = 1/2 */
	{"a half of whole segments", {MIB, MIB}, {MIB, MIB}, 1.5, FRAG_LOW},
};

static void
fill(struct frag *frag, const struct frag_case *c)
{
	size_t i;

	for (i = 0; i < N_ROWS(c->extents) && c->extents[i]; i++)
		frag_add(frag, c->extents[i]);
	for (i = 0; i < N_ROWS(c->wholes) && c->wholes[i]; i++)
		frag_add_whole(frag, c->wholes[i]);
}

TEST_ROWS(frag, known_shapes_have_the_known_entropy, frag_cases)
{
	const struct frag_case *c = &frag_cases[*row];
	struct frag_figures f;
	struct frag frag = {0};

	fill(&frag, c);
	frag_compute(&frag, c->extents[0], &f);
	cr_expect_float_eq(f.entropy_bits, c->want_entropy_bits, 1e-5, "%s: %.9f bits", c->what,
			   f.entropy_bits);
	/* All are below 128 MiB, where the divisor is log2(64). */
	cr_expect_float_eq(f.entropy, c->want_entropy_bits / 6, 1e-5, "%s: entropy %.9f", c->what,
			   f.entropy);
	cr_expect_float_eq(f.effective_holes, f.free_bytes ? exp2(c->want_entropy_bits) : 0, 1e-4,
			   "%s: %.9f holes", c->what, f.effective_holes);
	cr_expect_eq(f.level, c->want_level, "%s: level %s", c->what, frag_level_name(f.level));
}

Test(frag, figures_say_how_much_and_how_large)
{
	struct frag_figures f;
	struct frag frag = {0};

	frag_add(&frag, MIB);
	frag_add(&frag, 3 * MIB);
	frag_add_whole(&frag, 2 * MIB);
	frag_add_whole(&frag, 2 * MIB);
	frag_compute(&frag, 3 * MIB, &f);
	cr_expect_eq(f.free_bytes, 8 * MIB, "F");
	cr_expect_eq(f.largest_free_bytes, 4 * MIB, "whole segments are one extent of 4 MiB");
	cr_expect_float_eq(f.external_ratio, 0.5, 1e-12, "half is in the largest extent");

	frag_remove_whole(&frag, 2 * MIB);
	frag_compute(&frag, 3 * MIB, &f);
	cr_expect_eq(f.largest_free_bytes, 3 * MIB, "the largest partial extent");
}

Test(frag, a_shattered_heap_is_clamped_at_one)
{
	struct frag_figures f;
	struct frag frag = {0};
	size_t i;

	for (i = 0; i < 100000; i++)
		frag_add(&frag, 512);
	frag_compute(&frag, 512, &f);
	cr_expect_float_eq(f.entropy_bits, log2(100000), 1e-5, "%.9f bits", f.entropy_bits);
	cr_expect_eq(f.entropy, 1.0, "entropy %.9f", f.entropy);
	cr_expect_eq(f.level, FRAG_HIGH, "level");
}

Test(frag, a_large_heap_has_a_larger_divisor)
{
	struct frag_figures f;
	struct frag frag = {0};

	/* 4 GiB free: log2(4 GiB / 2 MiB) = 11 */
	frag_add(&frag, 2048 * MIB);
	frag_add(&frag, 2048 * MIB);
	frag_compute(&frag, 2048 * MIB, &f);
	cr_expect_float_eq(f.entropy, 1.0 / 11, 1e-6, "entropy %.9f", f.entropy);
}

Test(frag, terabytes_do_not_overflow)
{
	struct frag_figures f;
	struct frag frag = {0};
	size_t i;

	for (i = 0; i < 8; i++)
		frag_add(&frag, (uint64_t)1 << 40);
	frag_compute(&frag, (uint64_t)1 << 40, &f);
	cr_expect_float_eq(f.entropy_bits, 3, 1e-5, "%.9f bits of 8 x 1 TiB", f.entropy_bits);
}

/* H as the definition writes it. */
static double
entropy_bits_of(const uint64_t *extents, size_t n)
{
	double sum = 0, total = 0;
	size_t i;

	for (i = 0; i < n; i++)
		total += (double)extents[i];
	for (i = 0; i < n; i++)
		sum -= (double)extents[i] / total * log2((double)extents[i] / total);
	return sum;
}

Test(frag, the_running_value_is_the_recomputed_one_to_the_last_bit)
{
	uint64_t extents[N_EXTENTS_MAX];
	struct frag running = {0}, again;
	struct frag_figures f;
	size_t n = 0, i, round;

	srand(1);
	for (round = 0; round < 20000; round++) {
		if (n < N_EXTENTS_MAX && (n == 0 || rand() % 2)) {
			extents[n] = 512 * (1 + (uint64_t)rand() % (rand() % 2 ? 64 : 1 << 20));
			frag_add(&running, extents[n++]);
		} else {
			i = (size_t)rand() % n;
			frag_remove(&running, extents[i]);
			extents[i] = extents[--n];
		}
		if (round % 50)
			continue;
		again = (struct frag){0};
		for (i = 0; i < n; i++)
			frag_add(&again, extents[i]);
		cr_assert_eq(memcmp(&running, &again, sizeof(again)), 0,
			     "seed 1, round %zu: the running sums have drifted", round);
		if (n == 0)
			continue;
		frag_compute(&running, 0, &f);
		cr_assert_float_eq(f.entropy_bits, entropy_bits_of(extents, n), 1e-4,
				   "seed 1, round %zu: %.9f bits, by definition %.9f", round,
				   f.entropy_bits, entropy_bits_of(extents, n));
	}
}

Test(frag, sums_of_heaps_add)
{
	struct frag one = {0}, other = {0}, both = {0};

	frag_add(&one, MIB);
	frag_add_whole(&one, 2 * MIB);
	frag_add(&other, 3 * MIB);
	frag_add_whole(&other, 4 * MIB);
	frag_add(&both, MIB);
	frag_add(&both, 3 * MIB);
	frag_add_whole(&both, 2 * MIB);
	frag_add_whole(&both, 4 * MIB);
	frag_merge(&one, &other);
	cr_expect_eq(memcmp(&one, &both, sizeof(both)), 0, "merged sums are not the sums");
}

Test(frag, levels_have_names)
{
	cr_expect_str_eq(frag_level_name(FRAG_LOW), "low");
	cr_expect_str_eq(frag_level_name(FRAG_MEDIUM), "medium");
	cr_expect_str_eq(frag_level_name(FRAG_HIGH), "high");
}

Test(frag, the_example_of_the_readme_is_right)
{
	static const uint64_t extents_mib[] = {8, 4, 2, 2};
	struct frag frag = {0};
	struct frag_figures f;

	for (size_t i = 0; i < 4; i++)
		frag_add(&frag, extents_mib[i] << 20);
	frag_compute(&frag, UINT64_C(8) << 20, &f);
	cr_expect_float_eq(f.entropy_bits, 1.75, 1e-6, "H is %f bits", f.entropy_bits);
	cr_expect_float_eq(f.entropy, 1.75 / 6, 1e-6, "the entropy is %f", f.entropy);
	cr_expect_float_eq(f.effective_holes, 3.3636, 1e-4, "%f holes", f.effective_holes);
	cr_expect_float_eq(f.external_ratio, 0.5, 1e-9, "the external ratio is %f",
			   f.external_ratio);
	cr_expect_eq(f.level, FRAG_LOW, "the level is %s", frag_level_name(f.level));
}
