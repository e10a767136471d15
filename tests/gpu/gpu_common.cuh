/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * What the GPU programs share. Each runs native and shimmed with the same output; a line that
 * starts with TIME holds a measurement and is left out of the comparison. Exit code 0: everything
 * was as it must be.
 */
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cuda_runtime.h>

#define MUST(call) \
	do { \
		const cudaError_t must_error = (call); \
		if (must_error != cudaSuccess) { \
			fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call, \
				cudaGetErrorString(must_error)); \
			exit(1); \
		} \
	} while (0)

/* Hold the stream for at least n_ns: the clock of the device, read by one thread. */
static __global__ void
hold(unsigned long long n_ns)
{
	unsigned long long start, now;

	asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(start));
	do {
		__nanosleep(1000);
		asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
	} while (now - start < n_ns);
}

static inline double
us_since(std::chrono::steady_clock::time_point start)
{
	return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start)
		.count();
}
