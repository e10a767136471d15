/* SPDX-License-Identifier: MIT */
#include "shim/callers.h"

#include <criterion/criterion.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

TestSuite(callers, .timeout = 20);

static const char *
path_at(const void *address)
{
	return callers_path(callers_tag(address));
}

static bool
is_libc(const void *address)
{
	return strstr(path_at(address), "/libc.so") != NULL;
}

Test(callers, an_object_is_known_by_its_path)
{
	cr_expect_str_eq(path_at((const void *)path_at), "", "the program has another path");
	cr_expect(is_libc((const void *)getppid), "libc is %s", path_at((const void *)getppid));
	cr_expect_neq(callers_tag((const void *)path_at), callers_tag((const void *)getppid));
}

Test(callers, every_address_in_an_object_has_its_tag)
{
	const char *in_libc = (const char *)getppid;
	unsigned tag = callers_tag(in_libc);

	/* More of them than the table of sites holds. */
	for (int i = 0; i < 5000; i++)
		cr_assert_eq(callers_tag(in_libc + i), tag, "byte %d is another's", i);
	for (int i = 0; i < 5000; i++)
		cr_assert_eq(callers_tag(in_libc + i), tag, "byte %d became another's", i);
}

Test(callers, code_in_no_object_is_anonymous)
{
	void *page = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	cr_assert_neq(page, MAP_FAILED);
	cr_expect_eq(callers_tag(page), CALLERS_ANONYMOUS);
	cr_expect_eq(callers_tag(page), CALLERS_ANONYMOUS, "the second time");
	munmap(page, 4096);
}

Test(callers, tags_that_are_no_objects_have_names_and_unused_ones_none)
{
	cr_expect_str_eq(callers_path(CALLERS_DRIVER), "[driver]");
	cr_expect_str_eq(callers_path(CALLERS_OTHER), "[other]");
	cr_expect_str_eq(callers_path(CALLERS_ANONYMOUS), "[anonymous]");
	cr_expect_null(callers_path(CALLERS_FIRST), "a tag that nobody has");
	cr_expect_eq(callers_tag((const void *)path_at), CALLERS_FIRST, "the first object");
	cr_expect_not_null(callers_path(CALLERS_FIRST));
	cr_expect_null(callers_path(STATS_N_TAGS), "a tag that is none");
}

Test(callers, an_unload_changes_no_answer_of_what_stays)
{
	const unsigned tag = callers_tag((const void *)getppid);

	callers_begin_unload();
	cr_expect_eq(callers_tag((const void *)getppid), tag, "while an object goes");
	callers_begin_unload();
	callers_end_unload();
	cr_expect_eq(callers_tag((const void *)getppid), tag, "while one of two is gone");
	callers_end_unload();
	cr_expect_eq(callers_tag((const void *)getppid), tag, "afterwards");
	cr_expect_eq(callers_tag((const void *)path_at), tag + 1, "and there is room for more");
}

enum { N_THREADS = 4, N_ROUNDS = 20000 };

static void *
ask(void *arg)
{
	unsigned seed = (unsigned)(uintptr_t)arg;
	bool is_right = true;

	for (int i = 0; i < N_ROUNDS; i++) {
		const unsigned at = rand_r(&seed) % 512;

		if (rand_r(&seed) % 64 == 0) {
			callers_begin_unload();
			callers_end_unload();
		}
		is_right &= is_libc((const char *)getppid + at) &&
			    path_at((const char *)path_at + at % 16)[0] == '\0';
	}
	return (void *)(uintptr_t)is_right;
}

Test(callers, threads_that_meet_agree)
{
	pthread_t threads[N_THREADS];
	void *is_right;

	for (uintptr_t i = 0; i < N_THREADS; i++)
		cr_assert_eq(pthread_create(&threads[i], NULL, ask, (void *)(i + 1)), 0);
	for (int i = 0; i < N_THREADS; i++) {
		pthread_join(threads[i], &is_right);
		cr_expect(is_right, "thread %d got a wrong answer", i);
	}
}
