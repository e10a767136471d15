/* SPDX-License-Identifier: MIT */
/*
 * A library that allocates for itself, by the driver or by a runtime of its own. One source, so
 * that two copies of a library differ in nothing but their path.
 */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "tests/preload/callers/caller_plugin.h"

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

/* The host's memory for registered, else the new piece is answered. */
static int
allocate_outside(enum caller_outside kind, uint64_t *address, size_t n_bytes)
{
	const struct cudaChannelFormatDesc format = {8, 0, 0, 0, cudaChannelFormatKindUnsigned};
	size_t pitch;

	switch (kind) {
	case CALLER_MANAGED:
		return (int)cudaMallocManaged((void **)address, n_bytes, cudaMemAttachGlobal);
	case CALLER_PITCHED:
		return (int)cudaMallocPitch((void **)address, &pitch, 1000, n_bytes / 1024);
	case CALLER_ASYNC:
		return (int)cudaMallocAsync((void **)address, n_bytes, NULL);
	case CALLER_ARRAY:
		return (int)cudaMallocArray((cudaArray_t *)address, &format, 256, n_bytes / 256, 0);
	case CALLER_REGISTERED:
		return (int)cudaHostRegister((void *)(uintptr_t)*address, n_bytes, 0);
	default:
		return -1;
	}
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

static int
allocate_outside(enum caller_outside kind, uint64_t *address, size_t n_bytes)
{
	CUDA_ARRAY_DESCRIPTOR array = {256, n_bytes / 256, CU_AD_FORMAT_UNSIGNED_INT8, 1};
	CUmemAllocationProp physical = {
		.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0},
	};
	size_t pitch;

	switch (kind) {
	case CALLER_MANAGED:
		return (int)cuMemAllocManaged((CUdeviceptr *)address, n_bytes,
					      CU_MEM_ATTACH_GLOBAL);
	case CALLER_PITCHED:
		return (int)cuMemAllocPitch_v2((CUdeviceptr *)address, &pitch, 1000, n_bytes / 1024,
					       4);
	case CALLER_ASYNC:
		return (int)cuMemAllocAsync((CUdeviceptr *)address, n_bytes, NULL);
	case CALLER_ARRAY:
		return (int)cuArrayCreate_v2((CUarray *)address, &array);
	case CALLER_REGISTERED:
		return (int)cuMemHostRegister_v2((void *)(uintptr_t)*address, n_bytes, 0);
	case CALLER_PHYSICAL:
		return (int)cuMemCreate((CUmemGenericAllocationHandle *)address, n_bytes, &physical,
					0);
	default:
		return -1;
	}
}
#endif

#ifdef PLUGIN_IS_EAGER
/* It allocates while it is loaded, and frees while it goes: the loader is at work then. */
static uint64_t eager_block;

__attribute__((constructor)) static void
allocate_while_loading(void)
{
	if (allocate(&eager_block, 4096))
		abort();
}

__attribute__((destructor)) static void
free_while_going(void)
{
	if (cuMemFree_v2(eager_block))
		abort();
}
#endif

int plugin_alloc_outside(enum caller_outside kind, uint64_t *address, size_t n_bytes);
int plugin_alloc(uint64_t *ret_address, size_t n_bytes);
int plugin_call(int (*function)(uint64_t *, size_t), uint64_t *ret_address, size_t n_bytes);

int
plugin_alloc(uint64_t *ret_address, size_t n_bytes)
{
	return allocate(ret_address, n_bytes);
}

int
plugin_alloc_outside(enum caller_outside kind, uint64_t *address, size_t n_bytes)
{
	return allocate_outside(kind, address, n_bytes);
}

/* Call any function from one place in this library. */
int
plugin_call(int (*function)(uint64_t *, size_t), uint64_t *ret_address, size_t n_bytes)
{
	int r = function(ret_address, n_bytes);

	__asm__ volatile("" : "+r"(r)); /* not a tail call */
	return r;
}
