/* SPDX-License-Identifier: MIT */
/*
 * A stand-in for a profiler that the driver loads: it hears of each driver call, as by CUPTI, and
 * makes calls of its own from there, memory of its own included.
 */
#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>
#include <dlfcn.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "tests/sim/sim.h"

extern atomic_uint tool_n_allocs, tool_n_frees, tool_n_own, tool_n_early, tool_n_wrong;
atomic_uint tool_n_allocs, tool_n_frees; /* that the driver saw */
atomic_uint tool_n_own;                  /* requests of the tool's */
atomic_uint tool_n_early;                /* calls before cuInit returned */
atomic_uint tool_n_wrong;

static bool is_quiet; /* it only listens */

int InitializeInjection(void);

/* From inside a driver call of the program's, or of the shim's. */
static void
allocate_some(void)
{
	CUdeviceptr small, large;
	CUcontext current;
	size_t free_bytes, total_bytes;

	if (cuCtxGetCurrent(&current) != CUDA_SUCCESS || !current)
		return;
	tool_n_wrong += cuMemGetInfo_v2(&free_bytes, &total_bytes) != CUDA_SUCCESS;
	if (cuMemAlloc_v2(&small, 700) != CUDA_SUCCESS ||
	    cuMemAlloc_v2(&large, 3 << 20) != CUDA_SUCCESS) {
		tool_n_wrong++;
		return;
	}
	tool_n_own += 2;
	tool_n_wrong += cuMemFree_v2(small) != CUDA_SUCCESS;
	tool_n_wrong += cuMemFree_v2(large) != CUDA_SUCCESS;
}

static void
on_call(void *arg, const char *symbol)
{
	(void)arg;
	tool_n_allocs += strcmp(symbol, "cuMemAlloc_v2") == 0;
	tool_n_frees += strcmp(symbol, "cuMemFree_v2") == 0;
	if (is_quiet)
		return;
	if (!strcmp(symbol, "cuMemAlloc_v2") || !strcmp(symbol, "cuMemFree_v2") ||
	    !strcmp(symbol, "cuCtxRecordEvent") || !strcmp(symbol, "cuEventQuery"))
		allocate_some();
}

/* cuInit has not returned to the program yet. */
int
InitializeInjection(void)
{
	CUdevice device;
	int n_devices = 0;

	tool_n_wrong += cuDeviceGetCount(&n_devices) != CUDA_SUCCESS || n_devices < 1;
	tool_n_wrong += cuDeviceGet(&device, 0) != CUDA_SUCCESS;
	tool_n_early++;
	is_quiet = getenv("TOOL_IS_QUIET") != NULL;
	cusim_subscribe(on_call, NULL);
	return 1;
}
