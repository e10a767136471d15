/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * What victims need that run on the software device only: its kernels, by launch helpers, and its
 * control surface.
 *
 * Streams: a CUstream, or VICTIM_PER_THREAD for the body that takes stream 0 as the calling
 * thread's stream.
 */
#include "tests/preload/victim.h"
#include "tests/sim/sim.h"

#define VICTIM_PER_THREAD ((CUstream)(uintptr_t)0x7e57)

struct victim_kernels {
	CUfunction fill, copy, spin;
};

static inline struct victim_kernels VICTIM_UNUSED
victim_kernels_load(void)
{
	struct victim_kernels kernels;
	CUmodule module;

	MUST(cuModuleLoadData(&module, "any image"));
	MUST(cuModuleGetFunction(&kernels.fill, module, "sim_fill"));
	MUST(cuModuleGetFunction(&kernels.copy, module, "sim_copy"));
	MUST(cuModuleGetFunction(&kernels.spin, module, "sim_spin"));
	return kernels;
}

static inline void VICTIM_UNUSED
victim_launch(CUfunction function, CUstream stream, void **parameters)
{
	if (stream == VICTIM_PER_THREAD)
		MUST(cuLaunchKernel_ptsz(function, 1, 1, 1, 1, 1, 1, 0, NULL, parameters, NULL));
	else
		MUST(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, parameters, NULL));
}

static inline void VICTIM_UNUSED
victim_fill(const struct victim_kernels *kernels, CUstream stream, CUdeviceptr dst,
	    unsigned int value, size_t n_bytes)
{
	void *parameters[] = {&dst, &value, &n_bytes};

	victim_launch(kernels->fill, stream, parameters);
}

static inline void VICTIM_UNUSED
victim_copy(const struct victim_kernels *kernels, CUstream stream, CUdeviceptr dst, CUdeviceptr src,
	    size_t n_bytes)
{
	void *parameters[] = {&dst, &src, &n_bytes};

	victim_launch(kernels->copy, stream, parameters);
}

/* A kernel that ends when *flag is not 0 (flag may be 0) or after n_ns of simulated time (0: no
 * such end). */
static inline void VICTIM_UNUSED
victim_spin(const struct victim_kernels *kernels, CUstream stream, CUdeviceptr flag, uint64_t n_ns)
{
	void *parameters[] = {&flag, &n_ns};

	victim_launch(kernels->spin, stream, parameters);
}

static inline void VICTIM_UNUSED
victim_record(CUevent event, CUstream stream)
{
	if (stream == VICTIM_PER_THREAD)
		MUST(cuEventRecord_ptsz(event, NULL));
	else
		MUST(cuEventRecord(event, stream));
}

/* Reproducible choices: the same seed gives the same run. */
static inline uint64_t VICTIM_UNUSED
victim_random(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state;
}

/* Seed from VICTIM_SEED, else the given one; printed so that a failure can be repeated. */
static inline uint64_t VICTIM_UNUSED
victim_seed(uint64_t otherwise)
{
	const char *text = getenv("VICTIM_SEED");
	const uint64_t seed = text ? strtoull(text, NULL, 0) : otherwise;

	printf("seed %llu\n", (unsigned long long)seed);
	return seed ? seed : 1;
}

static inline void VICTIM_UNUSED
victim_check_device(void)
{
	EXPECT(cusim_violations() == 0, "%llu operations touched memory that was not allocated",
	       (unsigned long long)cusim_violations());
}
