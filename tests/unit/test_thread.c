/* SPDX-License-Identifier: MIT */
#include "pool/thread.h"

#include <criterion/criterion.h>
#include <pthread.h>

enum { N_THREADS = 16 };

static void *
tell_self(void *arg)
{
	uint32_t *self = arg;

	*self = thread_self();
	return (void *)(uintptr_t)(thread_self() != *self);
}

Test(thread, every_thread_has_a_number_of_its_own_and_keeps_it)
{
	uint32_t selves[N_THREADS + 1] = {thread_self()};
	pthread_t threads[N_THREADS];
	void *has_changed;
	int i, k;

	for (i = 0; i < N_THREADS; i++)
		cr_assert_eq(pthread_create(&threads[i], NULL, tell_self, &selves[i + 1]), 0);
	for (i = 0; i < N_THREADS; i++) {
		pthread_join(threads[i], &has_changed);
		cr_expect_null(has_changed, "a thread's number changed");
	}
	for (i = 0; i <= N_THREADS; i++) {
		cr_expect_neq(selves[i], 0, "0 is no thread's number");
		for (k = 0; k < i; k++)
			cr_expect_neq(selves[i], selves[k], "two threads are both %u", selves[i]);
	}
	cr_expect_eq(thread_self(), selves[0], "the first thread's number changed");
}
