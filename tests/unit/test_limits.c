/* SPDX-License-Identifier: MIT */
#include "policy/limits.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>

#include "tests/support/rows.h"

#define G (UINT64_C(1) << 30)

static const struct spec_case {
	const char *text;
	int device;
	uint64_t want_bytes; /* on a device of 80 GiB */
	const char *printed;
} good_specs[] = {
	{"none", 0, LIMIT_NONE, "none"},
	{"NONE", 0, LIMIT_NONE, "none"},
	{"0", 0, LIMIT_NONE, "none"},
	{"0%", 3, LIMIT_NONE, "none"},
	{"8GiB", 0, 8 * G, "8GiB"},
	{" 8GiB ", 7, 8 * G, "8GiB"},
	{"8GiB", 1000, 8 * G, "8GiB"},
	{"12.5%", 0, 10 * G, "12.5%"},
	{"100%", 0, 80 * G, "100%"},
	{"0.0000001%", 0, 85, "0.0000001%"},
	{"0=8GiB,1=50%", 0, 8 * G, "0=8GiB,1=50%"},
	{"0=8GiB,1=50%", 1, 40 * G, "0=8GiB,1=50%"},
	{"0=8GiB,1=50%", 2, LIMIT_NONE, "0=8GiB,1=50%"},
	{"0=8GiB,1=50%", -1, LIMIT_NONE, "0=8GiB,1=50%"},
	{"0=8GiB,1=50%", 64, LIMIT_NONE, "0=8GiB,1=50%"},
	{"1=2g, 0 = 1g", 1, 2 * G, "0=1GiB,1=2GiB"},
	{"63=1", 63, 1, "63=1"},
	{"0=none,1=1G", 0, LIMIT_NONE, "0=none,1=1GiB"},
	{"0=0", 0, LIMIT_NONE, "0=none"},
	{"007=1G", 7, G, "7=1GiB"},
};

TEST_ROWS(limits, every_form_of_a_limit_is_read_and_reads_back, good_specs)
{
	const struct spec_case *c = &good_specs[*row];
	struct limit_spec spec, again;
	char text[LIMIT_TEXT_MAX];

	cr_assert_eq(limit_spec_parse(c->text, &spec), 0, "'%s' was refused", c->text);
	cr_expect_eq(limit_spec_bytes(&spec, c->device, 80 * G), c->want_bytes,
		     "'%s' allows %" PRIu64 " bytes on device %d", c->text,
		     limit_spec_bytes(&spec, c->device, 80 * G), c->device);

	cr_expect_eq(limit_spec_print(&spec, text, sizeof(text)), strlen(text),
		     "'%s' was printed with a wrong length", c->text);
	cr_expect_str_eq(text, c->printed, "'%s' was printed as '%s'", c->text, text);
	cr_assert_eq(limit_spec_parse(text, &again), 0, "'%s' was refused", text);
	cr_expect_eq(memcmp(&spec, &again, sizeof(spec)), 0, "'%s' is not '%s'", text, c->text);
}

static const struct bad_spec_case {
	const char *text;
	int want;
} bad_specs[] = {
	{"", -EINVAL},           {" ", -EINVAL},         {"8X", -EINVAL},
	{"-8G", -EINVAL},        {"101%", -ERANGE},      {"16E", -ERANGE},
	{"nan%", -EINVAL},       {"8G,9G", -EINVAL},     {"8G,0=1G", -EINVAL},
	{"0=1G,8G", -EINVAL},    {"0=1G,", -EINVAL},     {",0=1G", -EINVAL},
	{"0=1G,,1=1G", -EINVAL}, {"0=1G,0=2G", -EINVAL}, {"=1G", -EINVAL},
	{"0=", -EINVAL},         {"64=1G", -ERANGE},     {"4294967296=1G", -ERANGE},
	{"-1=1G", -EINVAL},      {"a=1G", -EINVAL},      {"0=1=1G", -EINVAL},
	{"0:1G", -EINVAL},       {"0=1G;1=1G", -EINVAL}, {"all=1G", -EINVAL},
};

TEST_ROWS(limits, what_is_not_a_limit_is_refused_and_nothing_is_written, bad_specs)
{
	const struct bad_spec_case *c = &bad_specs[*row];
	struct limit_spec spec, before;

	memset(&spec, 0x5a, sizeof(spec));
	before = spec;
	cr_expect_eq(limit_spec_parse(c->text, &spec), c->want, "'%s' was not refused", c->text);
	cr_expect_eq(memcmp(&spec, &before, sizeof(spec)), 0, "'%s': the result was touched",
		     c->text);
}

Test(limits, the_longest_list_fits_the_announced_text)
{
	struct limit_spec spec = {.listed = UINT64_MAX};
	char text[LIMIT_TEXT_MAX];
	int device;

	for (device = 0; device < LIMIT_N_DEVICES; device++)
		spec.by_device[device] =
			(struct limit_value){.kind = LIMIT_KIND_BYTES, .bytes = UINT64_MAX};
	cr_expect_lt(limit_spec_print(&spec, text, sizeof(text)), sizeof(text),
		     "LIMIT_TEXT_MAX is too small");
}

Test(limits, a_small_buffer_gets_a_cut_list)
{
	struct limit_spec spec;
	char text[8];

	cr_assert_eq(limit_spec_parse("0=8GiB,1=50%,2=1GiB", &spec), 0);
	cr_expect_eq(limit_spec_print(&spec, text, sizeof(text)), 19,
		     "the whole length was not given");
	cr_expect_str_eq(text, "0=8GiB,", "the text was not cut at the buffer's end: %s", text);
}

Test(limits, a_reservation_never_passes_the_limit)
{
	struct account account;

	account_init(&account, 100);
	cr_expect_eq(limit_reserve(&account, 60), LIMIT_OK, "60 of 100 were refused");
	cr_expect_eq(limit_reserve(&account, 41), LIMIT_E_REACHED, "101 of 100 were granted");
	cr_expect_eq(limit_held_bytes(&account), 60, "a refused request was counted");
	cr_expect_eq(limit_reserve(&account, 40), LIMIT_OK, "the last byte was refused");
	cr_expect_eq(limit_reserve(&account, 1), LIMIT_E_REACHED, "a byte above was granted");
	limit_release(&account, 100);
	cr_expect_eq(limit_held_bytes(&account), 0, "bytes stayed counted after release");
	cr_expect_eq(limit_peak_bytes(&account), 100, "the peak was forgotten");
}

Test(limits, a_sum_beyond_64_bits_is_refused)
{
	struct account account;

	account_init(&account, LIMIT_NONE);
	cr_expect_eq(limit_reserve(&account, UINT64_MAX - 1), LIMIT_OK, "no limit, yet refused");
	cr_expect_eq(limit_reserve(&account, 2), LIMIT_E_REACHED, "the sum wrapped around");
	cr_expect_eq(limit_held_bytes(&account), UINT64_MAX - 1, "a refused request was counted");
}

Test(limits, a_limit_below_what_is_held_refuses_growth_and_takes_nothing)
{
	struct account account;

	account_init(&account, LIMIT_NONE);
	cr_assert_eq(limit_reserve(&account, 100), LIMIT_OK);
	limit_set(&account, 50);
	cr_expect_eq(limit_get(&account), 50, "the new limit is not in force");
	cr_expect_eq(limit_held_bytes(&account), 100, "lowering the limit changed what is held");
	cr_expect_eq(limit_reserve(&account, 1), LIMIT_E_REACHED, "growth above the limit");
	limit_release(&account, 51);
	cr_expect_eq(limit_reserve(&account, 1), LIMIT_OK, "below the limit again, yet refused");
	cr_expect_eq(limit_reserve(&account, 1), LIMIT_E_REACHED, "growth above the limit");
}

static const struct free_case {
	uint64_t limit, held, driver_free, want;
} free_cases[] = {
	{LIMIT_NONE, 0, 70 * G, 70 * G}, {LIMIT_NONE, 10 * G, 70 * G, 70 * G},
	{8 * G, 0, 70 * G, 8 * G},       {8 * G, 3 * G, 70 * G, 5 * G},
	{8 * G, 3 * G, 2 * G, 2 * G},    {8 * G, 8 * G, 70 * G, 0},
	{8 * G, 9 * G, 70 * G, 0},       {8 * G, 0, 0, 0},
};

TEST_ROWS(limits, free_memory_is_the_lesser_of_room_and_driver, free_cases)
{
	const struct free_case *c = &free_cases[*row];
	struct account account;

	account_init(&account, LIMIT_NONE);
	cr_assert_eq(limit_reserve(&account, c->held), LIMIT_OK);
	limit_set(&account, c->limit);
	cr_expect_eq(limit_free_bytes(&account, c->driver_free), c->want,
		     "row %zu: %" PRIu64 " free", *row, limit_free_bytes(&account, c->driver_free));
}

#ifndef NDEBUG
Test(limits, releasing_more_than_was_taken_is_caught_in_debug_builds, .signal = SIGABRT)
{
	struct account account;

	account_init(&account, LIMIT_NONE);
	limit_reserve(&account, 10);
	limit_release(&account, 11);
}
#endif

enum { N_THREADS = 4, N_ROUNDS = 50000, THREAD_LIMIT = 1000 };

/* A thread alone would be done before the next one is there. */
static pthread_barrier_t all_are_there;

/* Every thread reserves and releases; whoever sees more than the limit reports it. */
static void *
reserve_and_release(void *arg)
{
	struct account *account = arg;
	uint64_t n_passed = 0, bytes;
	unsigned i;

	pthread_barrier_wait(&all_are_there);
	for (i = 0; i < N_ROUNDS; i++) {
		bytes = i % 700 + 1;
		if (limit_reserve(account, bytes) != LIMIT_OK)
			continue;
		n_passed += limit_held_bytes(account) > THREAD_LIMIT;
		limit_release(account, bytes);
	}
	return (void *)(uintptr_t)n_passed;
}

Test(limits, threads_together_never_pass_the_limit, .timeout = 30)
{
	pthread_t threads[N_THREADS];
	struct account account;
	void *n_passed;
	int i;

	account_init(&account, THREAD_LIMIT);
	pthread_barrier_init(&all_are_there, NULL, N_THREADS);
	for (i = 0; i < N_THREADS; i++)
		cr_assert_eq(pthread_create(&threads[i], NULL, reserve_and_release, &account), 0);
	for (i = 0; i < N_THREADS; i++) {
		pthread_join(threads[i], &n_passed);
		cr_expect_null(n_passed, "thread %d saw the limit passed", i);
	}
	pthread_barrier_destroy(&all_are_there);
	cr_expect_eq(limit_held_bytes(&account), 0, "bytes were lost between threads");
	cr_expect_leq(limit_peak_bytes(&account), THREAD_LIMIT, "the peak lies above the limit");
}

Test(limits, each_release_is_counted)
{
	struct account account;

	account_init(&account, 100);
	cr_assert_eq(limit_n_released(&account), 0);
	cr_assert_eq(limit_reserve(&account, 60), LIMIT_OK);
	cr_expect_eq(limit_n_released(&account), 0, "a reservation is no release");
	limit_release(&account, 20);
	limit_release(&account, 40);
	cr_expect_eq(limit_n_released(&account), 2);
}
