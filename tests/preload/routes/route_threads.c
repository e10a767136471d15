/* SPDX-License-Identifier: MIT */
/* Many threads meet in the first look-up of a process: each gets the one right answer. */
#include "route.h"

#include <pthread.h>

enum {
	N_THREADS = 8,
};

static const char *const names[] = {"cuInit",         "cuMemAlloc_v2",      "cuMemFree_v2",
				    "cuMemHostAlloc", "cuMemcpyAsync_ptsz", "cuGraphLaunch",
				    "cuCtxGetCurrent"};

enum {
	N_NAMES = sizeof(names) / sizeof(names[0]),
};

static pthread_barrier_t barrier;
static void *libcuda;
static void *found[N_THREADS][N_NAMES];

static void *
look_up(void *arg)
{
	void **mine = arg;

	pthread_barrier_wait(&barrier);
	for (int i = 0; i < N_NAMES; i++)
		mine[i] = dlsym(libcuda, names[i]);
	/* the body reads the table that another thread may have filled */
	return ((int (*)(unsigned int))mine[0])(0) == 0 ? arg : NULL;
}

int
main(void)
{
	pthread_t threads[N_THREADS];

	libcuda = dlopen("libcuda.so.1", RTLD_NOW);
	pthread_barrier_init(&barrier, NULL, N_THREADS);
	for (int i = 0; i < N_THREADS; i++)
		pthread_create(&threads[i], NULL, look_up, found[i]);
	for (int i = 0; i < N_THREADS; i++) {
		void *result;

		pthread_join(threads[i], &result);
		route_check(result, "thread %d calls cuInit", i);
	}
	for (int i = 0; i < N_NAMES; i++) {
		bool is_same = true;

		for (int t = 0; t < N_THREADS; t++)
			is_same &= found[t][i] == found[0][i];
		route_check(is_same, "%s: one answer for all threads", names[i]);
		route_check(route_is_in(found[0][i],
					i < N_NAMES - 1 ? route_hooked_object() : "libcuda.so"),
			    "%s is in %s", names[i], route_object(found[0][i]));
	}
	return route_end();
}
