/* SPDX-License-Identifier: MIT */
/*
 * Freed memory is not handed out while work submitted before the free may still touch it.
 *
 * First by hand-stepping: a kernel waits in a stream in front of one that writes a block; the block
 * is freed, and what is allocated next must not overlap it until both have ended. Then at random
 * with the device's own worker: every block is stamped and read back by kernels behind a delay and
 * freed at once; a block handed out too early spoils a read-back.
 */
#include "tests/preload/victim_sim.h"

enum {
	BLOCK_BYTES = 1 << 20,
	N_PROBES = 8,
	N_ROUNDS = 1500,
	N_STREAMS = 5,
	RESULT_BYTES = 1024,
};

static struct victim_kernels kernels;

static bool
is_overlapping(CUdeviceptr a, CUdeviceptr b)
{
	return a < b + BLOCK_BYTES && b < a + BLOCK_BYTES;
}

/* Natively the free itself waits, so that every probe may overlap; under the shim none may until
 * the event is complete. */
static void
probe(const char *stream_name, CUstream stream)
{
	CUdeviceptr block, probes[N_PROBES];
	CUevent done;

	MUST(cuCtxSynchronize());
	MUST(cuMemAlloc_v2(&block, BLOCK_BYTES));
	MUST(cuEventCreate(&done, CU_EVENT_DISABLE_TIMING));
	victim_spin(&kernels, stream, 0, 200000000);
	victim_fill(&kernels, stream, block, 0x11, BLOCK_BYTES);
	victim_record(done, stream);
	MUST(cuMemFree_v2(block));

	for (int i = 0; i < N_PROBES; i++) {
		MUST(cuMemAlloc_v2(&probes[i], BLOCK_BYTES));
		EXPECT(!is_overlapping(block, probes[i]) || cuEventQuery(done) == CUDA_SUCCESS,
		       "%s: a block was handed out while a kernel had yet to write it",
		       stream_name);
		MUST(cuMemsetD8_v2(probes[i], 0x22, BLOCK_BYTES));
	}
	MUST(cuCtxSynchronize());
	for (int i = 0; i < N_PROBES; i++) {
		EXPECT(*(unsigned char *)(uintptr_t)probes[i] == 0x22,
		       "%s: old work wrote into a new block", stream_name);
		MUST(cuMemFree_v2(probes[i]));
	}
	MUST(cuEventDestroy_v2(done));
}

/* Frees of one moment may share a fence; a later free must not ride on an earlier one's. */
static void
probe_second_free(CUstream first, CUstream second)
{
	CUdeviceptr early, late, probes[N_PROBES];
	CUevent done;

	MUST(cuCtxSynchronize());
	MUST(cuMemAlloc_v2(&early, BLOCK_BYTES));
	MUST(cuMemAlloc_v2(&late, BLOCK_BYTES));
	MUST(cuEventCreate(&done, CU_EVENT_DISABLE_TIMING));
	victim_fill(&kernels, first, early, 0x33, BLOCK_BYTES);
	MUST(cuMemFree_v2(early));
	victim_spin(&kernels, second, 0, 200000000);
	victim_fill(&kernels, second, late, 0x33, BLOCK_BYTES);
	victim_record(done, second);
	MUST(cuMemFree_v2(late));
	cusim_step(first, 8);

	for (int i = 0; i < N_PROBES; i++) {
		MUST(cuMemAlloc_v2(&probes[i], BLOCK_BYTES));
		EXPECT(!is_overlapping(late, probes[i]) || cuEventQuery(done) == CUDA_SUCCESS,
		       "a block freed later was handed out with an earlier one's fence");
	}
	for (int i = 0; i < N_PROBES; i++)
		MUST(cuMemFree_v2(probes[i]));
	MUST(cuCtxSynchronize());
	MUST(cuEventDestroy_v2(done));
}

static CUstream
make_stream(unsigned int flags)
{
	CUstream stream;

	MUST(cuStreamCreate(&stream, flags));
	return stream;
}

static void
by_hand(void)
{
	CUstream blocking = make_stream(CU_STREAM_DEFAULT),
		 free_running = make_stream(CU_STREAM_NON_BLOCKING);

	cusim_set_mode(CUSIM_MANUAL);
	probe("legacy stream", NULL);
	probe("CU_STREAM_LEGACY", CU_STREAM_LEGACY);
	probe("per-thread stream", VICTIM_PER_THREAD);
	probe("CU_STREAM_PER_THREAD", CU_STREAM_PER_THREAD);
	probe("blocking stream", blocking);
	probe("non-blocking stream", free_running);
	probe_second_free(blocking, free_running);
	probe_second_free(free_running, blocking);
	cusim_set_mode(CUSIM_AUTO);
	MUST(cuStreamDestroy_v2(blocking));
	MUST(cuStreamDestroy_v2(free_running));
}

static void
at_random(void)
{
	CUstream streams[N_STREAMS] = {NULL, VICTIM_PER_THREAD, make_stream(0),
				       make_stream(CU_STREAM_NON_BLOCKING),
				       make_stream(CU_STREAM_NON_BLOCKING)};
	uint64_t random = victim_seed(20240229);
	unsigned char *seen = malloc((size_t)N_ROUNDS * RESULT_BYTES);
	unsigned int n_wrong = 0;
	CUdeviceptr results;

	if (!seen)
		exit(2);
	MUST(cuMemAlloc_v2(&results, (size_t)N_ROUNDS * RESULT_BYTES));
	for (int i = 0; i < N_ROUNDS; i++) {
		const size_t n_bytes = RESULT_BYTES << (victim_random(&random) % 6);
		const CUstream stream = streams[victim_random(&random) % N_STREAMS];
		CUdeviceptr block;

		MUST(cuMemAlloc_v2(&block, n_bytes));
		if (victim_random(&random) % 4 == 0)
			victim_spin(&kernels, stream, 0, victim_random(&random) % 100000);
		victim_fill(&kernels, stream, block, (unsigned int)i & 0xff, n_bytes);
		victim_copy(&kernels, stream, results + (size_t)i * RESULT_BYTES,
			    block + n_bytes - RESULT_BYTES, RESULT_BYTES);
		MUST(cuMemFree_v2(block));
	}
	MUST(cuCtxSynchronize());
	MUST(cuMemcpyDtoH_v2(seen, results, (size_t)N_ROUNDS * RESULT_BYTES));
	for (size_t i = 0; i < (size_t)N_ROUNDS * RESULT_BYTES; i++)
		n_wrong += seen[i] != ((i / RESULT_BYTES) & 0xff);
	EXPECT(n_wrong == 0, "%u bytes were overwritten before they were read back", n_wrong);
	MUST(cuMemFree_v2(results));
	free(seen);
}

int
main(void)
{
	struct poolshim_api api;

	victim_start();
	kernels = victim_kernels_load();
	by_hand();
	at_random();
	if (poolshim_find(&api)) {
		poolshim_check_identity(&api, "at the end");
		EXPECT(api.used_bytes(0) == 0, "used %zu after the last free", api.used_bytes(0));
	}
	victim_check_device();
	return victim_end("victim_order");
}
