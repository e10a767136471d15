/* SPDX-License-Identifier: MIT */
/*
 * While a stream captures, the pool asks the driver for no fence and no query, hands out nothing
 * that is not complete, and the capture stays valid, in all three modes.
 *
 * Natively cuMemAlloc is allowed in relaxed mode only; the shim may serve it from complete blocks
 * in the others too.
 */
#include <pthread.h>

#include "tests/preload/victim_sim.h"

enum { BLOCK_BYTES = 64 * 1024, N_BLOCKS = 8, N_MANY = 96 };

static struct victim_kernels kernels;
static CUcontext context;
static struct poolshim_api api;
static bool is_shimmed;

/* Blocks to free during the capture, in segments with room that nobody has used yet. */
static void
warm_up(CUdeviceptr kept[N_BLOCKS])
{
	MUST(cuCtxSynchronize());
	if (is_shimmed)
		api.free_all_blocks(0);
	for (int i = 0; i < N_BLOCKS; i++)
		MUST(cuMemAlloc_v2(&kept[i], BLOCK_BYTES));
}

static void
check_silent(const char *mode)
{
	static const char *const forbidden[] = {"cuCtxRecordEvent", "cuEventQuery",
						"cuEventSynchronize", "cuCtxSynchronize",
						"cuEventRecord"};

	for (size_t i = 0; i < sizeof(forbidden) / sizeof(forbidden[0]); i++)
		EXPECT(cusim_call_count(forbidden[i]) == 0,
		       "%s: %s was called %llu times during a capture", mode, forbidden[i],
		       (unsigned long long)cusim_call_count(forbidden[i]));
}

/* `kept` is freed behind a kernel of another stream that has yet to run: none of it may come back
 * during the capture. */
static void
allocate_and_free(const char *mode, CUdeviceptr kept[N_BLOCKS])
{
	CUdeviceptr blocks[N_BLOCKS];
	size_t n_taken = 0;

	for (int i = 0; i < N_BLOCKS; i++)
		MUST(cuMemFree_v2(kept[i]));
	for (int i = 0; i < N_BLOCKS; i++) {
		CUresult status = cuMemAlloc_v2(&blocks[n_taken], BLOCK_BYTES);

		EXPECT(status == CUDA_SUCCESS,
		       "%s: an allocation gave %d though there is room that nobody has used", mode,
		       status);
		if (status != CUDA_SUCCESS)
			break;
		for (int k = 0; k < N_BLOCKS; k++)
			EXPECT(blocks[n_taken] + BLOCK_BYTES <= kept[k] ||
				       kept[k] + BLOCK_BYTES <= blocks[n_taken],
			       "%s: a block was handed out before the work on it was complete",
			       mode);
		n_taken++;
	}
	while (n_taken)
		MUST(cuMemFree_v2(blocks[--n_taken]));
}

/* More than there is room for, freed and asked for again: a pool that may ask would ask now. */
static void *
allocate_many(void *arg)
{
	CUdeviceptr blocks[N_MANY];
	void *pinned[N_BLOCKS];

	(void)arg;
	MUST(cuCtxSetCurrent(context));
	for (int round = 0; round < 3; round++) {
		for (int i = 0; i < N_MANY; i++)
			MUST(cuMemAlloc_v2(&blocks[i], BLOCK_BYTES));
		for (int i = 0; i < N_BLOCKS; i++)
			MUST(cuMemHostAlloc(&pinned[i], BLOCK_BYTES, 0));
		for (int i = 0; i < N_MANY; i++)
			MUST(cuMemFree_v2(blocks[i]));
		for (int i = 0; i < N_BLOCKS; i++)
			MUST(cuMemFreeHost(pinned[i]));
	}
	return NULL;
}

/* Another thread may allocate natively unless the capture is global; this one if it is relaxed. */
static void
allocate_beyond(CUstreamCaptureMode mode)
{
	pthread_t thread;

	if (mode == CU_STREAM_CAPTURE_MODE_GLOBAL)
		return;
	if (pthread_create(&thread, NULL, allocate_many, NULL) != 0)
		exit(2);
	pthread_join(thread, NULL);
	if (mode == CU_STREAM_CAPTURE_MODE_RELAXED)
		allocate_many(NULL);
}

static void
capture(const char *name, CUstreamCaptureMode mode, CUstream capturing, CUstream other)
{
	CUstreamCaptureStatus status;
	CUdeviceptr kept[N_BLOCKS], target;
	CUgraphExec exec;
	CUgraph graph;

	warm_up(kept);
	MUST(cuMemAlloc_v2(&target, 4096));
	cusim_set_mode(CUSIM_MANUAL);
	victim_spin(&kernels, other, 0, 50000000);
	for (int i = 0; i < N_BLOCKS; i++)
		victim_fill(&kernels, other, kept[i], 0x10, BLOCK_BYTES);

	MUST(cuStreamBeginCapture_v2(capturing, mode));
	MUST(cuMemsetD8Async(target, 0x2b, 4096, capturing));
	cusim_reset_counts();
	if (is_shimmed)
		allocate_and_free(name, kept);
	allocate_beyond(mode);
	check_silent(name);
	MUST(cuStreamIsCapturing(capturing, &status));
	EXPECT(status == CU_STREAM_CAPTURE_STATUS_ACTIVE, "%s: the capture became invalid", name);
	MUST(cuMemsetD8Async(target + 2048, 0x2c, 2048, capturing));
	MUST(cuStreamEndCapture(capturing, &graph));
	cusim_set_mode(CUSIM_AUTO);

	MUST(cuGraphInstantiateWithFlags(&exec, graph, 0));
	MUST(cuGraphLaunch(exec, capturing));
	MUST(cuCtxSynchronize());
	EXPECT(*(unsigned char *)(uintptr_t)target == 0x2b,
	       "%s: the graph did not write its first node", name);
	EXPECT(*(unsigned char *)(uintptr_t)(target + 4095) == 0x2c,
	       "%s: the graph did not write its second node", name);
	MUST(cuGraphExecDestroy(exec));
	MUST(cuGraphDestroy(graph));
	MUST(cuMemFree_v2(target));
	for (int i = 0; i < N_BLOCKS && !is_shimmed; i++)
		MUST(cuMemFree_v2(kept[i]));
}

/* A capture that is dropped with its stream must not leave the pool thinking that one is open. */
static void
capture_and_destroy(void)
{
	CUdeviceptr kept[N_BLOCKS], block;
	CUstream stream;

	MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	MUST(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
	MUST(cuStreamDestroy_v2(stream));
	warm_up(kept);
	for (int i = 0; i < N_BLOCKS; i++)
		MUST(cuMemFree_v2(kept[i]));
	MUST(cuMemAlloc_v2(&block, BLOCK_BYTES));
	MUST(cuMemFree_v2(block));
	MUST(cuCtxSynchronize());
}

int
main(void)
{
	CUstream capturing, other;

	context = victim_start();
	is_shimmed = poolshim_find(&api);
	kernels = victim_kernels_load();
	MUST(cuStreamCreate(&capturing, CU_STREAM_NON_BLOCKING));
	MUST(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
	for (int round = 0; round < 2; round++) {
		capture("relaxed", CU_STREAM_CAPTURE_MODE_RELAXED, capturing, other);
		capture("thread-local", CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, capturing, other);
		capture("global", CU_STREAM_CAPTURE_MODE_GLOBAL, capturing, other);
	}
	capture_and_destroy();
	if (is_shimmed) {
		poolshim_check_identity(&api, "at the end");
		EXPECT(api.used_bytes(0) == 0, "used %zu after the last free", api.used_bytes(0));
		api.free_all_blocks(0);
		EXPECT(api.total_bytes(0) == 0, "%zu bytes were not given back",
		       api.total_bytes(0));
	}
	victim_check_device();
	return victim_end("victim_capture");
}
