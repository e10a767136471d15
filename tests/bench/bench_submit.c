/* SPDX-License-Identifier: MIT */
/*
 * What an announcement costs: a launch through the hook's body against the same function called
 * directly, alternating in one run. Prints nanoseconds a call; asserts nothing.
 *
 * usage: bench_submit                  medians of many batches
 *        bench_submit direct|hooked N  N calls of one kind, for callgrind
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "shim/submit.h"

struct real_calls real;
_Atomic(enum hooks_state) hooks_state = HOOKS_COMPLETE;

void
hooks_ready_slow(void)
{
}

enum {
	N_BATCHES = 401,
	N_CALLS = 20000, /* a batch */
	N_STREAMS = 4,   /* of a program that alternates */
};

static CUresult __attribute__((noinline))
launch_nothing(CUfunction f, unsigned int gx, unsigned int gy, unsigned int gz, unsigned int bx,
	       unsigned int by, unsigned int bz, unsigned int shared, CUstream stream,
	       void **params, void **extra)
{
	(void)f, (void)gx, (void)gy, (void)gz, (void)bx, (void)by, (void)bz, (void)shared;
	(void)stream, (void)params, (void)extra;
	__asm__ volatile("");
	return CUDA_SUCCESS;
}

typedef CUresult launch(CUfunction, unsigned int, unsigned int, unsigned int, unsigned int,
			unsigned int, unsigned int, unsigned int, CUstream, void **, void **);

static void __attribute__((noinline)) call(launch *function, int n_calls, unsigned n_streams)
{
	for (int i = 0; i < n_calls; i++)
		function(NULL, 1, 1, 1, 1, 1, 1, 0,
			 (CUstream)(uintptr_t)(0x1000 * (1 + (unsigned)i % n_streams)), NULL, NULL);
}

static double
time_ns(launch *function, unsigned n_streams)
{
	struct timespec begin, end;

	clock_gettime(CLOCK_MONOTONIC, &begin);
	call(function, N_CALLS, n_streams);
	clock_gettime(CLOCK_MONOTONIC, &end);
	return ((double)(end.tv_sec - begin.tv_sec) * 1e9 + (double)(end.tv_nsec - begin.tv_nsec)) /
	       N_CALLS;
}

static int
by_value(const void *a, const void *b)
{
	const double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static void
compare(launch *direct, unsigned n_streams)
{
	static double direct_ns[N_BATCHES], hooked_ns[N_BATCHES];

	for (int i = 0; i < N_BATCHES; i++) {
		direct_ns[i] = time_ns(direct, n_streams);
		hooked_ns[i] = time_ns(cuLaunchKernel, n_streams);
	}
	qsort(direct_ns, N_BATCHES, sizeof(direct_ns[0]), by_value);
	qsort(hooked_ns, N_BATCHES, sizeof(hooked_ns[0]), by_value);
	printf("%u streams in turn: direct %.2f ns, hooked %.2f ns, difference %.2f ns\n",
	       n_streams, direct_ns[N_BATCHES / 2], hooked_ns[N_BATCHES / 2],
	       hooked_ns[N_BATCHES / 2] - direct_ns[N_BATCHES / 2]);
}

int
main(int argc, char **argv)
{
	launch *volatile direct = launch_nothing;

	real.cuLaunchKernel = launch_nothing;
	if (argc == 3) {
		call(strcmp(argv[1], "direct") == 0 ? direct : cuLaunchKernel, atoi(argv[2]), 1);
		return 0;
	}
	compare(direct, 1);
	compare(direct, N_STREAMS);
	return 0;
}
