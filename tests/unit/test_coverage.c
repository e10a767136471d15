/* SPDX-License-Identifier: MIT */
/* When doubt about coverage begins, and who is told. Each case is a process of its own. */
#include <criterion/criterion.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "shim/control.h"
#include "shim/coverage.h"
#include "shim/init.h"

/* What coverage.c needs of the others: no hooks are active here. */
union init_page init_page;
struct control_block *control;

static atomic_int n_told;

static void
hear(void)
{
	cr_expect(coverage_is_in_doubt(), "it was told before it began");
	atomic_fetch_add(&n_told, 1);
}

static bool
none_is_exported(const char *name)
{
	(void)name;
	return false;
}

static bool
each_is_exported(const char *name)
{
	(void)name;
	return true;
}

TestSuite(coverage, .timeout = 30);

Test(coverage, doubt_is_told_once_when_it_begins)
{
	coverage_on_doubt(hear);
	cr_expect(!coverage_is_in_doubt() && n_told == 0, "there is doubt before anything unknown");
	coverage_note_unknown("cuOne");
	cr_expect(n_told == 1, "it was told %d times", n_told);
	coverage_note_unknown("cuOther");
	coverage_note_missed();
	cr_expect(n_told == 1, "later doubt was told, too: %d times", n_told);
}

Test(coverage, whoever_asks_late_is_told_at_once)
{
	coverage_note_missed();
	coverage_on_doubt(hear);
	cr_expect(n_told == 1, "it was told %d times", n_told);
}

Test(coverage, what_a_walk_finds_is_told_after_it)
{
	coverage_on_doubt(hear);
	coverage_note_linked("cuLinked");
	cr_expect(coverage_is_in_doubt() && n_told == 0, "it was told with the loader's lock held");
	coverage_tell_doubt();
	cr_expect(n_told == 1, "it was told %d times", n_told);
}

Test(coverage, names_asked_for_early_are_doubt_if_the_driver_has_them)
{
	struct coverage coverage;

	coverage_on_doubt(hear);
	coverage_note_asked("cuEarly");
	coverage_settle_asked(none_is_exported);
	cr_expect(!coverage_is_in_doubt() && n_told == 0, "the driver has no such function");
	coverage_note_asked("cuEarly");
	coverage_settle_asked(each_is_exported);
	cr_expect(n_told == 1, "it was told %d times", n_told);
	coverage_get(&coverage);
	cr_expect(coverage.n_unknown == 1 && !strcmp(coverage.unknown[0], "cuEarly"),
		  "%u names are listed", coverage.n_unknown);
}

static pthread_barrier_t start;

static void *
doubt(void *arg)
{
	pthread_barrier_wait(&start);
	coverage_note_unknown(arg);
	return NULL;
}

Test(coverage, threads_that_meet_tell_it_once)
{
	enum { N_THREADS = 8 };
	static char names[N_THREADS][8];
	pthread_t threads[N_THREADS];

	pthread_barrier_init(&start, NULL, N_THREADS + 1);
	for (int i = 0; i < N_THREADS; i++) {
		snprintf(names[i], sizeof(names[i]), "cuT%d", i);
		cr_assert(!pthread_create(&threads[i], NULL, doubt, names[i]), "no thread");
	}
	pthread_barrier_wait(&start);
	coverage_on_doubt(hear);
	for (int i = 0; i < N_THREADS; i++)
		pthread_join(threads[i], NULL);
	cr_expect(n_told == 1, "it was told %d times", n_told);
}
