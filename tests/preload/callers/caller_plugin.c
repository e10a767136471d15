/* SPDX-License-Identifier: MIT */
/*
 * A library that allocates for itself, by the driver or by a runtime of its own. One source, so
 * that two copies of a library differ in nothing but their path.
 */
#include <stddef.h>
#include <stdint.h>

#ifdef PLUGIN_USES_RUNTIME
#include <cuda_runtime_api.h>

static int
allocate(uint64_t *ret_address, size_t n_bytes)
{
	void *address = NULL;
	int r = (int)cudaMalloc(&address, n_bytes);

	*ret_address = (uint64_t)(uintptr_t)address;
	return r;
}
#else
#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>

static int
allocate(uint64_t *ret_address, size_t n_bytes)
{
	CUdeviceptr address = 0;
	int r = (int)cuMemAlloc_v2(&address, n_bytes);

	*ret_address = address;
	return r;
}
#endif

int plugin_alloc(uint64_t *ret_address, size_t n_bytes);
int plugin_call(int (*function)(uint64_t *, size_t), uint64_t *ret_address, size_t n_bytes);

int
plugin_alloc(uint64_t *ret_address, size_t n_bytes)
{
	return allocate(ret_address, n_bytes);
}

/* Call any function from one place in this library. */
int
plugin_call(int (*function)(uint64_t *, size_t), uint64_t *ret_address, size_t n_bytes)
{
	int r = function(ret_address, n_bytes);

	__asm__ volatile("" : "+r"(r)); /* not a tail call */
	return r;
}
