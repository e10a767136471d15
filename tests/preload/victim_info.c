/* SPDX-License-Identifier: MIT */
/*
 * The memory-info family: each way to ask gives the same figures, those of the limit if there is
 * one.
 *
 * usage: victim_info [LIMIT_MIB]
 *   Its runtime is the one it is linked with; the driver is asked by symbol and by
 * cuGetProcAddress.
 */
#include <cuda_runtime_api.h>

#include "tests/preload/victim.h"

#define MIB ((size_t)1 << 20)

struct figures {
	size_t free_bytes, total_bytes;
};

static CUresult (*info)(size_t *, size_t *);
static CUresult (*total_of)(size_t *, CUdevice);
static bool is_first_look = true;

/* Asks in every way there is. */
static struct figures
ask(const char *when)
{
	struct figures first, other;
	struct cudaDeviceProp properties;
	size_t total_bytes = 0;

	MUST(cudaMemGetInfo(&first.free_bytes, &first.total_bytes));
	MUST(cuMemGetInfo_v2(&other.free_bytes, &other.total_bytes));
	EXPECT(memcmp(&first, &other, sizeof(first)) == 0, "%s: runtime and driver differ", when);
	MUST(info(&other.free_bytes, &other.total_bytes));
	EXPECT(memcmp(&first, &other, sizeof(first)) == 0, "%s: the routes differ", when);
	other = (struct figures){0};
	MUST(cuMemGetInfo_v2(&other.free_bytes, NULL));
	EXPECT(other.free_bytes == first.free_bytes,
	       "%s: asked for the free bytes alone it says %zu", when, other.free_bytes);
	MUST(cuMemGetInfo_v2(NULL, &other.total_bytes));
	EXPECT(other.total_bytes == first.total_bytes, "%s: asked for the total alone it says %zu",
	       when, other.total_bytes);
	MUST(cuMemGetInfo_v2(NULL, NULL));
	MUST(cuDeviceTotalMem_v2(&total_bytes, 0));
	EXPECT(total_bytes == first.total_bytes, "%s: cuDeviceTotalMem says %zu", when,
	       total_bytes);
	MUST(total_of(&total_bytes, 0));
	EXPECT(total_bytes == first.total_bytes, "%s: by cuGetProcAddress it says %zu", when,
	       total_bytes);
	EXPECT(cuDeviceTotalMem_v2(NULL, 0) == CUDA_ERROR_INVALID_VALUE, "a total into NULL");
	MUST(cudaGetDeviceProperties(&properties, 0));
	/* NVIDIA's runtime asks the driver once and remembers. */
	if (is_first_look)
		EXPECT(properties.totalGlobalMem == first.total_bytes, "%s: the properties say %zu",
		       when, properties.totalGlobalMem);
	is_first_look = false;
	EXPECT(first.free_bytes <= first.total_bytes, "%s: more free than there is", when);
	return first;
}

/* A context made from a green one is not the pool's to serve; the figures are the device's. */
static void
in_a_green_context(struct figures want)
{
	CUdevResourceDesc description;
	CUdevResource resource;
	CUcontext before, context;
	struct figures seen;
	CUgreenCtx green;

	MUST(cuCtxGetCurrent(&before));
	if (cuDeviceGetDevResource(0, &resource, CU_DEV_RESOURCE_TYPE_SM) != CUDA_SUCCESS ||
	    cuDevResourceGenerateDesc(&description, &resource, 1) != CUDA_SUCCESS ||
	    cuGreenCtxCreate(&green, description, 0, CU_GREEN_CTX_DEFAULT_STREAM) != CUDA_SUCCESS)
		return;
	MUST(cuCtxFromGreenCtx(&context, green));
	MUST(cuCtxSetCurrent(context));
	MUST(cuMemGetInfo_v2(&seen.free_bytes, &seen.total_bytes));
	EXPECT(seen.total_bytes == want.total_bytes, "a green context has another total");
	MUST(cuCtxSetCurrent(before));
	MUST(cuGreenCtxDestroy(green));
}

int
main(int argc, char **argv)
{
	const size_t limit_bytes = argc > 1 ? strtoull(argv[1], NULL, 0) * MIB : 0;
	struct figures start, with, after;
	struct poolshim_api api;
	CUdeviceptr block;

	MUST(cudaFree(NULL));
	MUST(cuGetProcAddress_v2("cuMemGetInfo", (void **)&info, 3020, 0, NULL));
	MUST(cuGetProcAddress_v2("cuDeviceTotalMem", (void **)&total_of, 3020, 0, NULL));
	start = ask("at first");
	EXPECT(!limit_bytes || start.total_bytes == limit_bytes, "the total is %zu, not the limit",
	       start.total_bytes);
	MUST(cuMemAlloc_v2(&block, 32 * MIB));
	with = ask("with a block");
	EXPECT(start.free_bytes - with.free_bytes == 32 * MIB, "a block of 32 MiB takes %zu bytes",
	       start.free_bytes - with.free_bytes);
	MUST(cuMemFree_v2(block));
	after = ask("after its free");
	EXPECT(after.free_bytes == start.free_bytes, "%zu bytes are missing after a free",
	       start.free_bytes - after.free_bytes);
	in_a_green_context(start);
	if (poolshim_find(&api) && api.set_limit(0, 200 * MIB) == 0) {
		after = ask("with a limit set meanwhile");
		EXPECT(after.total_bytes == 200 * MIB, "the new limit is not told");
		EXPECT(after.free_bytes <= 200 * MIB, "more free than the limit");
	}
	return victim_end("victim_info");
}
