/* SPDX-License-Identifier: MIT */
/*
 * Memory that the pool holds and does not need is there for everybody: calls that take device
 * memory past the pool succeed as natively after the program has freed its own.
 *
 * Each row fills most of the device with blocks, frees them, and asks for more than was left over.
 */
#include "tests/preload/victim.h"
#include "tests/sim/sim.h"

enum { MIB = 1 << 20, PIECE_BYTES = 4 * MIB, N_PIECES_MAX = 256 };

static size_t
free_now(void)
{
	size_t free_bytes, total_bytes;

	MUST(cuMemGetInfo_v2(&free_bytes, &total_bytes));
	return free_bytes;
}

/* Leaves a sixteenth of the device to nobody. */
static void
fill_and_free(void)
{
	static CUdeviceptr pieces[N_PIECES_MAX];
	const size_t keep_bytes = free_now() / 16;
	size_t n = 0;

	while (n < N_PIECES_MAX && free_now() > keep_bytes + PIECE_BYTES)
		MUST(cuMemAlloc_v2(&pieces[n++], PIECE_BYTES));
	while (n > 0)
		MUST(cuMemFree_v2(pieces[--n]));
}

static CUresult
by_pitch(size_t n_bytes)
{
	CUdeviceptr addr;
	size_t pitch_bytes;
	CUresult r = cuMemAllocPitch_v2(&addr, &pitch_bytes, MIB, n_bytes / MIB, 4);

	if (r == CUDA_SUCCESS)
		MUST(cuMemFree_v2(addr));
	return r;
}

static CUresult
by_managed(size_t n_bytes)
{
	CUdeviceptr addr;
	CUresult r = cuMemAllocManaged(&addr, n_bytes, CU_MEM_ATTACH_GLOBAL);

	if (r == CUDA_SUCCESS)
		MUST(cuMemFree_v2(addr));
	return r;
}

static CUresult
by_async(size_t n_bytes)
{
	CUdeviceptr addr;
	CUresult r = cuMemAllocAsync(&addr, n_bytes, NULL);

	if (r == CUDA_SUCCESS)
		MUST(cuMemFree_v2(addr));
	return r;
}

static CUresult
by_create(size_t n_bytes)
{
	const CUmemAllocationProp prop = {
		.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0},
	};
	CUmemGenericAllocationHandle handle;
	CUresult r = cuMemCreate(&handle, n_bytes, &prop, 0);

	if (r == CUDA_SUCCESS)
		MUST(cuMemRelease(handle));
	return r;
}

static const struct {
	const char *name;
	CUresult (*ask)(size_t n_bytes);
} rows[] = {
	{"cuMemAllocPitch", by_pitch},
	{"cuMemAllocManaged", by_managed},
	{"cuMemAllocAsync", by_async},
	{"cuMemCreate", by_create},
};

int
main(void)
{
	size_t n_bytes;

	victim_start();
	n_bytes = free_now() / 2 / MIB * MIB;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		CUresult r;

		fill_and_free();
		r = rows[i].ask(n_bytes);
		EXPECT(r == CUDA_SUCCESS, "%s of %zu bytes gave error %d", rows[i].name, n_bytes,
		       r);
		EXPECT(rows[i].ask((size_t)1 << 45) == CUDA_ERROR_OUT_OF_MEMORY,
		       "%s of an impossible size gave another error", rows[i].name);
	}
	EXPECT(cusim_violations() == 0, "memory was touched after it went back");
	return victim_end("victim_retry");
}
