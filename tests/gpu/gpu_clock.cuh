/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * The device's clock (globaltimer) against the host's (CLOCK_MONOTONIC).
 *
 * A kernel answers a flag of the host with its time, read between two readings of the host's clock.
 * device - host is therefore at most that time less the earlier reading, plus the resolution of the
 * device's clock; the smallest of many such bounds is used.
 */
#include <stdint.h>
#include <time.h>

#include "gpu_common.cuh"

enum { CLOCK_ROUNDS = 200 };

struct clock_page {
	volatile unsigned asked, answered;
	volatile uint64_t device_ns, resolution_ns;
};

static __device__ inline uint64_t
device_now_ns()
{
	uint64_t now;

	asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
	return now;
}

static inline uint64_t
host_now_ns()
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static __global__ void
clock_answer(struct clock_page *page)
{
	uint64_t start = device_now_ns(), now, step = ~0ull;

	for (int i = 0; i < 20; i++) {
		while ((now = device_now_ns()) == start)
			;
		step = now - start < step ? now - start : step;
		start = now;
	}
	page->resolution_ns = step;
	for (unsigned i = 1; i <= CLOCK_ROUNDS; i++) {
		while (page->asked != i)
			;
		page->device_ns = device_now_ns();
		__threadfence_system();
		page->answered = i;
	}
}

/* The most that the device's clock is ahead of the host's (may be negative). Waits for the device. */
static inline int64_t
clock_most_ahead_ns(struct clock_page *page)
{
	int64_t least = INT64_MAX;

	page->asked = page->answered = 0;
	MUST(cudaDeviceSynchronize());
	clock_answer<<<1, 1>>>(page);
	MUST(cudaGetLastError());
	for (unsigned i = 1; i <= CLOCK_ROUNDS; i++) {
		const uint64_t before_ns = host_now_ns();

		page->asked = i;
		while (page->answered != i)
			;
		const int64_t ahead = (int64_t)(page->device_ns - before_ns);
		least = ahead < least ? ahead : least;
	}
	MUST(cudaDeviceSynchronize());
	return least + (int64_t)page->resolution_ns;
}
