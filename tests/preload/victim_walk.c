/* SPDX-License-Identifier: MIT */
/*
 * The walk through a pool's life that CuPy's guide uses, by the runtime and the shim's own
 * functions.
 *
 * Steps: 400 bytes asked, freed, all given back; then the same with pinned memory. Meaningful only
 * under the shim.
 */
#include <cuda_runtime_api.h>

#include "tests/preload/victim.h"

enum { N_ASKED_BYTES = 400, N_ROUNDED_BYTES = 512 };

static void
walk_device(const struct poolshim_api *api)
{
	size_t total_bytes;
	void *array;

	EXPECT(api->used_bytes(0) == 0, "used %zu before anything was asked for",
	       api->used_bytes(0));
	EXPECT(api->total_bytes(0) == 0, "total %zu before anything was asked for",
	       api->total_bytes(0));

	MUST(cudaMalloc(&array, N_ASKED_BYTES));
	EXPECT(api->used_bytes(0) == N_ROUNDED_BYTES, "400 bytes count as %zu", api->used_bytes(0));
	total_bytes = api->total_bytes(0);
	EXPECT(total_bytes >= N_ROUNDED_BYTES, "total %zu holds less than is used", total_bytes);
	poolshim_check_identity(api, "with one block");

	MUST(cudaFree(array));
	EXPECT(api->used_bytes(0) == 0, "a freed block still counts: used %zu", api->used_bytes(0));
	EXPECT(api->total_bytes(0) == total_bytes, "a free changed the total from %zu to %zu",
	       total_bytes, api->total_bytes(0));
	EXPECT(api->n_free_blocks(0) > 0, "the freed block is not among the free ones");
	poolshim_check_identity(api, "after the free");

	api->free_all_blocks(0);
	EXPECT(api->total_bytes(0) == 0, "%zu bytes were not given back", api->total_bytes(0));
	EXPECT(api->n_free_blocks(0) == 0, "%zu free blocks are left of nothing",
	       api->n_free_blocks(0));
	poolshim_check_identity(api, "after all was given back");
}

static void
walk_pinned(const struct poolshim_api *api)
{
	void *array;

	EXPECT(api->host_n_free_blocks() == 0, "%zu free pinned blocks at the start",
	       api->host_n_free_blocks());
	MUST(cudaMallocHost(&array, N_ASKED_BYTES));
	EXPECT(api->host_n_free_blocks() == 0, "%zu free pinned blocks while one is in use",
	       api->host_n_free_blocks());
	EXPECT(api->host_used_bytes() >= N_ASKED_BYTES, "pinned memory in use counts as %zu",
	       api->host_used_bytes());

	MUST(cudaFreeHost(array));
	EXPECT(api->host_n_free_blocks() == 1, "%zu free pinned blocks after the free",
	       api->host_n_free_blocks());
	EXPECT(api->host_used_bytes() == 0, "a freed pinned block still counts: used %zu",
	       api->host_used_bytes());
	poolshim_check_identity(api, "after the pinned free");

	api->host_free_all_blocks();
	EXPECT(api->host_n_free_blocks() == 0, "%zu free pinned blocks after all was given back",
	       api->host_n_free_blocks());
	EXPECT(api->host_total_bytes() == 0, "%zu pinned bytes were not given back",
	       api->host_total_bytes());
}

int
main(void)
{
	struct poolshim_api api;

	MUST(cudaFree(NULL)); /* starts the runtime and its context, nothing else */
	if (!poolshim_find(&api)) {
		printf("victim_walk: the shim is not loaded, nothing to walk through\n");
		return 77;
	}
	walk_device(&api);
	walk_pinned(&api);
	return victim_end("victim_walk");
}
