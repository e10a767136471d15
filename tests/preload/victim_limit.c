/* SPDX-License-Identifier: MIT */
/*
 * A limit holds, all routes tell the same, and a program that fits natively fits under the same
 * limit.
 *
 * The program takes what cuMemGetInfo calls the total as its budget. So it tests a plain device of
 * that size (native run) and a larger device with POOLSHIM_LIMIT of that size (shimmed run) by the
 * same rules. Wants 64 MiB to 1 GiB.
 */
#include "tests/preload/victim_sim.h"

enum {
	MIB = 1 << 20,
	PIECE_BYTES = 2 * MIB, /* memory natively goes to large requests in pieces of this size */
	N_BLOCKS_MAX = 4096,
	N_RANDOM_STEPS = 6000,
	N_RUN_AHEAD = 24,
};

static struct poolshim_api api;
static bool is_shimmed;
static size_t total_bytes;

static CUdeviceptr blocks[N_BLOCKS_MAX];
static size_t sizes[N_BLOCKS_MAX];
static size_t n_blocks;

static void
check_limit(const char *when)
{
	size_t free_bytes = 0, seen_total_bytes = 0;

	MUST(cuMemGetInfo_v2(&free_bytes, &seen_total_bytes));
	EXPECT(seen_total_bytes == total_bytes, "%s: the total moved from %zu to %zu", when,
	       total_bytes, seen_total_bytes);
	EXPECT(free_bytes <= seen_total_bytes, "%s: more free (%zu) than there is (%zu)", when,
	       free_bytes, seen_total_bytes);
	if (!is_shimmed)
		return;
	EXPECT(api.total_bytes(0) <= total_bytes, "%s: the pool holds %zu of at most %zu", when,
	       api.total_bytes(0), total_bytes);
	poolshim_check_identity(&api, when);
}

static void
free_all(void)
{
	while (n_blocks)
		MUST(cuMemFree_v2(blocks[--n_blocks]));
}

static CUresult
take(size_t n_bytes)
{
	CUresult status;

	if (n_blocks == N_BLOCKS_MAX)
		return CUDA_ERROR_UNKNOWN;
	status = cuMemAlloc_v2(&blocks[n_blocks], n_bytes);
	if (status == CUDA_SUCCESS)
		sizes[n_blocks++] = n_bytes;
	return status;
}

/* To the brim: it ends with out-of-memory, not before nearly all is used, and all comes back. */
static void
fill_up(size_t n_bytes)
{
	size_t free_bytes = 0, live_bytes, ignored;
	CUdeviceptr refused;
	CUresult status;

	do
		status = take(n_bytes);
	while (status == CUDA_SUCCESS);
	live_bytes = n_blocks * n_bytes;
	EXPECT(status == CUDA_ERROR_OUT_OF_MEMORY, "blocks of %zu end with error %d", n_bytes,
	       status);
	EXPECT(live_bytes <= total_bytes,
	       "%zu bytes of blocks of %zu are live under a limit of %zu", live_bytes, n_bytes,
	       total_bytes);
	EXPECT(live_bytes >= total_bytes / 4 * 3, "blocks of %zu end at %zu of %zu bytes", n_bytes,
	       live_bytes, total_bytes);
	check_limit("filled up");
	MUST(cuMemGetInfo_v2(&free_bytes, &ignored));
	EXPECT(free_bytes < n_bytes + PIECE_BYTES,
	       "%zu bytes are called free where %zu were refused", free_bytes, n_bytes);
	EXPECT(cuMemAlloc_v2(&refused, total_bytes + 1) == CUDA_ERROR_OUT_OF_MEMORY,
	       "a request above the limit was served");

	free_all();
	MUST(cuCtxSynchronize());
	MUST(cuMemGetInfo_v2(&free_bytes, &ignored));
	EXPECT(free_bytes + 8 * PIECE_BYTES >= total_bytes,
	       "only %zu of %zu bytes are free after all was freed", free_bytes, total_bytes);
}

/* Every other block freed, then blocks of twice the size: natively they fit, since pages need not
 * lie together. */
static void
fill_the_gaps(void)
{
	const size_t n_bytes = 2 * PIECE_BYTES;
	const size_t n_small = (total_bytes / n_bytes) & ~(size_t)3;
	size_t n_kept = 0;

	for (size_t i = 0; i < n_small; i++)
		MUST(take(n_bytes));
	for (size_t i = 0; i < n_small; i++) {
		if (i % 2)
			MUST(cuMemFree_v2(blocks[i]));
		else
			blocks[n_kept++] = blocks[i];
	}
	n_blocks = n_kept;
	for (size_t i = 0; i < n_small / 4; i++)
		EXPECT(take(2 * n_bytes) == CUDA_SUCCESS,
		       "gap %zu of %zu: a request that fits natively was refused", i, n_small / 4);
	check_limit("gaps filled");
	free_all();
}

static size_t
pieces(size_t n_bytes)
{
	return (n_bytes + PIECE_BYTES - 1) / PIECE_BYTES * PIECE_BYTES;
}

static void
drop(size_t i, size_t *large_bytes, size_t *small_bytes)
{
	if (sizes[i] >= PIECE_BYTES)
		*large_bytes -= pieces(sizes[i]);
	else
		*small_bytes -= sizes[i];
	MUST(cuMemFree_v2(blocks[i]));
	blocks[i] = blocks[--n_blocks];
	sizes[i] = sizes[n_blocks];
}

/* Large blocks up to three quarters of the total, small ones up to an eighth: natively every
 * request is served. */
static void
random_within_budget(void)
{
	uint64_t random = victim_seed(4711);
	size_t large_bytes = 0, small_bytes = 0;
	unsigned int n_refused = 0;

	for (int step = 0; step < N_RANDOM_STEPS; step++) {
		const bool is_large = victim_random(&random) % 3 == 0;
		const size_t n_bytes =
			is_large ? PIECE_BYTES + victim_random(&random) % (total_bytes / 8)
				 : 1 + victim_random(&random) % (64 * 1024);

		while (n_blocks && (n_blocks == N_BLOCKS_MAX ||
				    large_bytes + pieces(n_bytes) > total_bytes / 4 * 3 ||
				    small_bytes + n_bytes > total_bytes / 8))
			drop(victim_random(&random) % n_blocks, &large_bytes, &small_bytes);
		if (take(n_bytes) != CUDA_SUCCESS) {
			n_refused++;
			continue;
		}
		if (is_large)
			large_bytes += pieces(n_bytes);
		else
			small_bytes += n_bytes;
		if (victim_random(&random) % 2 && n_blocks)
			drop(victim_random(&random) % n_blocks, &large_bytes, &small_bytes);
		if (step % 64 == 0)
			check_limit("random");
	}
	EXPECT(n_refused == 0, "%u requests that fit natively were refused", n_refused);
	free_all();
}

/* The host runs ahead: half of all memory is freed and asked for again while the kernels that use
 * it wait. */
static void
run_ahead(const struct victim_kernels *kernels)
{
	CUstream stream;

	MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	for (int i = 0; i < N_RUN_AHEAD; i++) {
		CUdeviceptr block = 0;
		CUresult status = cuMemAlloc_v2(&block, total_bytes / 2);

		EXPECT(status == CUDA_SUCCESS, "run-ahead %d: half of the memory was refused (%d)",
		       i, status);
		if (status != CUDA_SUCCESS)
			break;
		victim_spin(kernels, stream, 0, 1000000);
		victim_fill(kernels, stream, block, 0x44, 4096);
		MUST(cuMemFree_v2(block));
		check_limit("run-ahead");
	}
	MUST(cuStreamSynchronize(stream));
	MUST(cuStreamDestroy_v2(stream));
}

int
main(void)
{
	struct victim_kernels kernels;
	size_t free_bytes;

	victim_start();
	kernels = victim_kernels_load();
	is_shimmed = poolshim_find(&api);
	MUST(cuMemGetInfo_v2(&free_bytes, &total_bytes));
	if (is_shimmed && api.get_limit(0) != total_bytes)
		printf("limit %zu, memory info says %zu\n", api.get_limit(0), total_bytes);
	if (total_bytes < 64 * (size_t)MIB || total_bytes > 1024 * (size_t)MIB) {
		fprintf(stderr, "victim_limit: wants 64 MiB to 1 GiB, has %zu\n", total_bytes);
		return 2;
	}
	fill_up(PIECE_BYTES);
	fill_up(5 * MIB);
	fill_up(300 * 1000);
	fill_the_gaps();
	random_within_budget();
	run_ahead(&kernels);
	if (is_shimmed)
		EXPECT(api.used_bytes(0) == 0, "used %zu after the last free", api.used_bytes(0));
	victim_check_device();
	return victim_end("victim_limit");
}
