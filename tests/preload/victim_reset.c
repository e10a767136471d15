/* SPDX-License-Identifier: MIT */
/*
 * The end of a context is the end of its memory: after cudaDeviceReset and cuCtxDestroy old
 * pointers answer as natively, new allocations work, and the pool holds nothing of the old.
 *
 * Prints the statuses of frees of lost pointers, to be compared between a native and a shimmed run.
 */
#include <cuda_runtime_api.h>

#include "tests/preload/victim.h"

enum { N_BLOCKS = 12, N_RESETS = 3 };

static struct poolshim_api api;
static bool is_shimmed;

struct blocks {
	void *device[N_BLOCKS], *pinned;
};

static void
fill(struct blocks *blocks)
{
	unsigned char seen = 0;

	for (int i = 0; i < N_BLOCKS; i++) {
		const size_t n_bytes = (size_t)700 << i;

		MUST(cudaMalloc(&blocks->device[i], n_bytes));
		MUST(cudaMemset(blocks->device[i], 0x20 + i, n_bytes));
		MUST(cudaMemcpy(&seen, (char *)blocks->device[i] + n_bytes - 1, 1,
				cudaMemcpyDeviceToHost));
		EXPECT(seen == 0x20 + i, "block %d holds %#x", i, seen);
	}
	MUST(cudaMallocHost(&blocks->pinned, 700));
	memset(blocks->pinned, 0x19, 700);
}

static void
drop(const struct blocks *blocks)
{
	for (int i = 0; i < N_BLOCKS; i++)
		MUST(cudaFree(blocks->device[i]));
	MUST(cudaFreeHost(blocks->pinned));
}

static void
check_books(const char *when, bool is_empty)
{
	if (!is_shimmed)
		return;
	poolshim_check_identity(&api, when);
	EXPECT(api.used_bytes(0) == 0 || !is_empty, "%s: used %zu", when, api.used_bytes(0));
	EXPECT(api.total_bytes(0) == 0 || !is_empty,
	       "%s: the pool still holds %zu bytes of a dead context", when, api.total_bytes(0));
}

static void
reset_device(int round)
{
	struct blocks blocks;

	fill(&blocks);
	if (round % 2) /* some cached, the rest live */
		MUST(cudaFree(blocks.device[0]));
	MUST(cudaDeviceReset());
	check_books("after cudaDeviceReset", true);

	for (int i = 0; i < N_BLOCKS; i++)
		printf("round %d: cudaFree of lost block %d = %d\n", round, i,
		       cudaFree(blocks.device[i]));
	printf("round %d: cudaFreeHost of a lost block = %d\n", round, cudaFreeHost(blocks.pinned));
	printf("round %d: last error = %d\n", round, cudaGetLastError());

	fill(&blocks);
	drop(&blocks);
	check_books("after new blocks", false);
}

static void
destroy_context(void)
{
	CUcontext primary, own;
	struct blocks blocks;
	CUdevice device;

	MUST(cuCtxGetCurrent(&primary));
	MUST(cuDeviceGet(&device, 0));
	MUST(cuCtxCreate_v2(&own, 0, device));
	fill(&blocks);
	MUST(cuCtxDestroy_v2(own));
	MUST(cuCtxSetCurrent(primary));

	for (int i = 0; i < N_BLOCKS; i++)
		printf("destroyed: cudaFree of lost block %d = %d\n", i,
		       cudaFree(blocks.device[i]));
	printf("destroyed: last error = %d\n", cudaGetLastError());
	fill(&blocks);
	drop(&blocks);
	check_books("after the destroy", false);
}

/* Blocks of two contexts must not mix: what is freed in one is not handed out in the other. */
static void
two_contexts(void)
{
	CUcontext primary, own;
	CUdeviceptr first, second;
	CUdevice device;

	MUST(cuCtxGetCurrent(&primary));
	MUST(cuDeviceGet(&device, 0));
	MUST(cuMemAlloc_v2(&first, 5000));
	MUST(cuMemFree_v2(first));
	MUST(cuCtxSynchronize());
	MUST(cuCtxCreate_v2(&own, 0, device));
	MUST(cuMemAlloc_v2(&first, 5000));
	MUST(cuCtxSetCurrent(primary));
	MUST(cuMemAlloc_v2(&second, 5000));
	MUST(cuCtxDestroy_v2(own));
	MUST(cuCtxSetCurrent(primary));
	MUST(cuMemsetD8_v2(second, 0x77, 5000));
	MUST(cuMemFree_v2(second));
	printf("two contexts: free of the lost block = %d\n", cuMemFree_v2(first));
}

int
main(void)
{
	MUST(cudaFree(NULL));
	is_shimmed = poolshim_find(&api);
	for (int i = 0; i < N_RESETS; i++)
		reset_device(i);
	destroy_context();
	two_contexts();
	return victim_end("victim_reset");
}
