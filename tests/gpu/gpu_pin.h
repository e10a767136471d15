/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * What the programs that time the CPU share: one core, a clock, a median.
 */
#include <sched.h>
#include <stdlib.h>
#include <time.h>

/* This thread stays on the last core that the process may use: the first ones serve interrupts. */
static inline int
pin_to_one_core(void)
{
	cpu_set_t all, one;

	if (sched_getaffinity(0, sizeof(all), &all))
		return -1;
	for (int core = CPU_SETSIZE - 1; core >= 0; core--) {
		if (!CPU_ISSET(core, &all))
			continue;
		CPU_ZERO(&one);
		CPU_SET(core, &one);
		return sched_setaffinity(0, sizeof(one), &one);
	}
	return -1;
}

static inline double
now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

static inline int
compare_doubles(const void *a, const void *b)
{
	const double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* Sorts the values. */
static inline double
median_of(double *values, size_t n_values)
{
	qsort(values, n_values, sizeof(*values), compare_doubles);
	return n_values % 2 ? values[n_values / 2]
			    : (values[n_values / 2 - 1] + values[n_values / 2]) / 2;
}
