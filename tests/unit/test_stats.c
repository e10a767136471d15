/* SPDX-License-Identifier: MIT */
#include "pool/stats.h"

#include <criterion/criterion.h>
#include <pthread.h>

#include "tests/support/rows.h"

static struct stats stats;

static const struct class_case {
	uint64_t bytes;
	unsigned want;
} class_cases[] = {
	{0, 0},
	{1, 0},
	{2, 1},
	{3, 1},
	{4, 2},
	{511, 8},
	{512, 9},
	{1023, 9},
	{1024, 10},
	{(uint64_t)1 << 47, 47},
	{(uint64_t)1 << 48, STATS_N_SIZE_CLASSES - 1},
	{UINT64_MAX, STATS_N_SIZE_CLASSES - 1},
};

TEST_ROWS(stats, sizes_are_counted_by_doubling, class_cases)
{
	const struct class_case *c = &class_cases[*row];

	cr_expect_eq(stats_size_class(c->bytes), c->want, "%llu bytes: class %u",
		     (unsigned long long)c->bytes, stats_size_class(c->bytes));
}

Test(stats, a_peak_is_the_highest_value)
{
	STATS_RAISE(&stats, used_bytes, 100);
	stats_lower(&stats.used_bytes, 70);
	STATS_RAISE(&stats, used_bytes, 60);
	cr_expect_eq(stats_read(&stats.used_bytes), 90, "the gauge");
	cr_expect_eq(stats_read(&stats.peak_used_bytes), 100, "the peak");
	STATS_RAISE(&stats, used_bytes, 11);
	cr_expect_eq(stats_read(&stats.peak_used_bytes), 101, "the peak did not rise");
	cr_expect_eq(stats_read(&stats.peak_total_bytes), 0, "another peak rose");
}

enum { N_THREADS = 4, N_ROUNDS = 50000 };

static void *
go_up_and_down(void *arg)
{
	int i;

	(void)arg;
	for (i = 0; i < N_ROUNDS; i++) {
		STATS_RAISE(&stats, n_used_blocks, 3);
		stats_count(&stats.alloc_count, 1);
		stats_lower(&stats.n_used_blocks, 3);
	}
	return NULL;
}

Test(stats, nothing_is_lost_between_threads, .timeout = 30)
{
	pthread_t threads[N_THREADS];
	int i;

	for (i = 0; i < N_THREADS; i++)
		cr_assert_eq(pthread_create(&threads[i], NULL, go_up_and_down, NULL), 0);
	for (i = 0; i < N_THREADS; i++)
		pthread_join(threads[i], NULL);
	cr_expect_eq(stats_read(&stats.n_used_blocks), 0, "the gauge");
	cr_expect_eq(stats_read(&stats.alloc_count), N_THREADS * N_ROUNDS, "the counter");
	cr_expect_leq(stats_read(&stats.peak_n_used_blocks), 3 * N_THREADS, "the peak");
	cr_expect_geq(stats_read(&stats.peak_n_used_blocks), 3, "the peak");
}
