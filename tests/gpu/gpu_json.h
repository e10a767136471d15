/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * What the programs that print one JSON object share: percentiles of times, and a random number.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

static inline uint64_t
random_next(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state;
}

static inline int
compare_u64(const void *a, const void *b)
{
	const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

/* Sorts the times. */
static inline void
print_percentiles(const char *name, uint64_t *times_ns, size_t n)
{
	qsort(times_ns, n, sizeof(*times_ns), compare_u64);
	printf("\"%s\": {\"n\": %zu", name, n);
	if (n)
		printf(", \"p50_ns\": %llu, \"p99_ns\": %llu, \"p999_ns\": %llu, \"max_ns\": %llu",
		       (unsigned long long)times_ns[n / 2],
		       (unsigned long long)times_ns[n * 99 / 100],
		       (unsigned long long)times_ns[n * 999 / 1000],
		       (unsigned long long)times_ns[n - 1]);
	printf("}");
}
