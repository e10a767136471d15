/* SPDX-License-Identifier: MIT */
/*
 * What goes on beside a program's own use of the pool, and must not show in it: another context
 * that breaks, captures of other contexts and other threads, importers of exported memory.
 */
#include "tests/preload/victim_held.h"

enum { N_BYTES = 12 << 20, N_SMALL = 80, SMALL_BYTES = 4096, NEW = 0x6c };

static struct poolshim_api api;
static bool is_shimmed;
static CUdevice device;
static CUcontext primary;
static struct victim_kernels kernels;
static struct victim_hold hold;

/* Until the pool has asked about all that was freed, nothing of the broken context may be told to
 * the healthy one. */
static void
expect_healthy(const char *when)
{
	for (int i = 0; i < 6; i++) {
		void *block = NULL;

		EXPECT(cuMemHostAlloc(&block, N_BYTES, 0) == CUDA_SUCCESS,
		       "%s: a request of a healthy context failed", when);
		if (block)
			EXPECT(cuMemFreeHost(block) == CUDA_SUCCESS,
			       "%s: a free of a healthy context failed", when);
	}
	if (is_shimmed)
		EXPECT(api.host_total_bytes() <= 4 * (size_t)N_BYTES,
		       "%s: pinned memory is not used again: %zu bytes are held", when,
		       api.host_total_bytes());
}

/* Pinned memory may be in use by any context, so the pool asks about all of them. */
static void
another_context_breaks(bool is_fence_recorded)
{
	void *block;
	CUcontext broken;

	MUST(cuCtxCreate_v2(&broken, 0, device));
	MUST(cuCtxSetCurrent(primary));
	MUST(cuMemHostAlloc(&block, N_BYTES, 0));
	MUST(cuMemFreeHost(block));
	if (is_fence_recorded) {
		/* The first answer is "not ready", so the fence is there and stays. */
		MUST(cusim_fail("cuEventQuery", 1, CUDA_ERROR_NOT_READY));
		MUST(cuMemHostAlloc(&block, 2 * N_BYTES, 0));
		cusim_fail_clear();
		cusim_set_sticky(broken, CUDA_ERROR_ILLEGAL_ADDRESS);
		MUST(cuMemFreeHost(block));
	} else {
		cusim_set_sticky(broken, CUDA_ERROR_ILLEGAL_ADDRESS);
	}
	expect_healthy(is_fence_recorded ? "broken behind a fence" : "broken before a fence");
	cusim_set_sticky(broken, 0);
	MUST(cuCtxDestroy_v2(broken));
	MUST(cuCtxSetCurrent(primary));
}

/* Frees that wait for nothing are no unsafe calls, whatever they make the pool do. */
static void
frees_beside_a_capture(CUstreamCaptureMode mode)
{
	CUdeviceptr blocks[N_SMALL];
	CUcontext other;
	CUstream stream = victim_stream(), capturing;
	CUgraph graph = NULL;

	for (int i = 0; i < N_SMALL; i++)
		MUST(cuMemAlloc_v2(&blocks[i], SMALL_BYTES));
	MUST(cuCtxCreate_v2(&other, 0, device));
	capturing = victim_stream();
	MUST(cuStreamBeginCapture_v2(capturing, mode));
	MUST(cuCtxSetCurrent(primary));
	for (int i = 0; i < N_SMALL; i++)
		MUST(cuMemFreeAsync(blocks[i], stream));
	MUST(cuCtxSetCurrent(other));
	EXPECT(cuStreamEndCapture(capturing, &graph) == CUDA_SUCCESS,
	       "mode %d: frees in one context broke a capture of another", mode);
	MUST(cuCtxDestroy_v2(other));
	MUST(cuCtxSetCurrent(primary));
	MUST(cuStreamDestroy_v2(stream));
}

/* The thread's own stream has two names. */
static void
a_capture_ends_under_its_other_name(void)
{
	CUgraph graph;

	MUST(cuStreamBeginCapture_v2_ptsz(NULL, CU_STREAM_CAPTURE_MODE_RELAXED));
	MUST(cuStreamEndCapture(CU_STREAM_PER_THREAD, &graph));
	MUST(cuGraphDestroy(graph));
	if (is_shimmed)
		victim_expect_recycling(&api, "after a capture that ended under another name");
}

/* Whoever imported it may go on reading: no other block may come to lie there. */
static void
exported_memory_is_freed_in_a_stream(void)
{
	CUipcMemHandle handle;
	CUdeviceptr block;
	size_t total_bytes;

	MUST(cuMemAlloc_v2(&block, N_BYTES));
	MUST(cuIpcGetMemHandle(&handle, block));
	total_bytes = is_shimmed ? api.total_bytes(0) : 0;
	MUST(cuMemFreeAsync(block, NULL));
	MUST(cuCtxSynchronize());
	if (is_shimmed)
		EXPECT(api.total_bytes(0) == total_bytes - N_BYTES,
		       "exported memory came into the pool");
}

static void *
capture_here(void *arg)
{
	CUstream *stream = arg;

	MUST(cuCtxSetCurrent(primary));
	MUST(cuStreamBeginCapture_v2(*stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
	return NULL;
}

/* A free waits for what the CPU can see, managed memory and a capture elsewhere or not. */
static void
free_beside_managed_memory_and_a_capture(void)
{
	CUstream stream = victim_stream(), capturing = victim_stream();
	CUdeviceptr source, block, managed;
	unsigned char *seen;
	pthread_t thread;

	MUST(cuMemAlloc_v2(&source, SMALL_BYTES));
	MUST(cuMemsetD8_v2(source, NEW, SMALL_BYTES));
	MUST(cuMemAlloc_v2(&block, SMALL_BYTES));
	MUST(cuMemHostAlloc((void **)&seen, SMALL_BYTES, 0));
	MUST(cuMemAllocManaged(&managed, SMALL_BYTES, CU_MEM_ATTACH_GLOBAL));
	memset(seen, 0, SMALL_BYTES);
	victim_hold_stream(&hold, &kernels, stream);
	MUST(cuMemcpyDtoHAsync_v2(seen, source, SMALL_BYTES, stream));
	if (pthread_create(&thread, NULL, capture_here, &capturing) != 0)
		exit(2);
	pthread_join(thread, NULL);
	victim_let_go_later(&hold);
	MUST(cuMemFree_v2(block));
	EXPECT(seen[0] == NEW, "a free did not wait for a copy to the host");
	victim_hold_join(&hold);
	MUST(cuStreamDestroy_v2(capturing));
	MUST(cuStreamDestroy_v2(stream));
	MUST(cuMemFree_v2(managed));
	MUST(cuMemFree_v2(source));
	MUST(cuMemFreeHost(seen));
}

static CUgreenCtx
make_green(void)
{
	CUdevResource resource;
	CUdevResourceDesc description;
	CUgreenCtx green;

	MUST(cuDeviceGetDevResource(device, &resource, CU_DEV_RESOURCE_TYPE_SM));
	MUST(cuDevResourceGenerateDesc(&description, &resource, 1));
	MUST(cuGreenCtxCreate(&green, description, device, CU_GREEN_CTX_DEFAULT_STREAM));
	return green;
}

/* A stream of a green context works for the primary one, whatever context is current, and known or
 * not. */
static void
free_in_a_stream_that_nobody_named(void)
{
	CUgreenCtx green = make_green();
	CUdeviceptr block, again[4];
	CUcontext other;
	CUstream stream;

	MUST(cuGreenCtxStreamCreate(&stream, green, CU_STREAM_NON_BLOCKING, 0));
	MUST(cuCtxCreate_v2(&other, 0, device));
	MUST(cuMemAlloc_v2(&block, N_BYTES));
	victim_hold_stream(&hold, &kernels, stream);
	victim_fill(&kernels, stream, block, NEW, N_BYTES);
	MUST(cuMemFreeAsync(block, stream));
	for (int i = 0; i < 4; i++) {
		MUST(cuMemAlloc_v2(&again[i], N_BYTES));
		EXPECT(again[i] != block,
		       "memory was handed out that a green context's stream still writes");
	}
	victim_let_go(&hold);
	MUST(cuCtxSetCurrent(primary));
	MUST(cuCtxSynchronize());
	MUST(cuCtxDestroy_v2(other));
	MUST(cuGreenCtxDestroy(green));
}

/* The last user of a primary context may be a green one. */
static void
a_green_context_takes_the_primary_one_along(void)
{
	CUgreenCtx green = make_green();
	CUdeviceptr block;
	unsigned flags;
	int is_active = 1;

	MUST(cuMemAlloc_v2(&block, N_BYTES));
	MUST(cuDevicePrimaryCtxRelease_v2(device));
	MUST(cuDevicePrimaryCtxGetState(device, &flags, &is_active));
	EXPECT(is_active, "the primary context did not last as long as its users");
	MUST(cuGreenCtxDestroy(green));
	MUST(cuDevicePrimaryCtxGetState(device, &flags, &is_active));
	EXPECT(!is_active, "the primary context outlives its users");
	if (is_shimmed)
		EXPECT(api.total_bytes(0) == 0, "%zu bytes outlive their context",
		       api.total_bytes(0));
	MUST(cuDevicePrimaryCtxRetain(&primary, device));
	MUST(cuCtxSetCurrent(primary));
	EXPECT(cuMemFree_v2(block) != CUDA_SUCCESS, "memory of a dead context was freed");
}

int
main(void)
{
	primary = victim_start();
	is_shimmed = poolshim_find(&api);
	MUST(cuDeviceGet(&device, 0));
	kernels = victim_kernels_load();
	victim_hold_init(&hold);
	another_context_breaks(false);
	another_context_breaks(true);
	frees_beside_a_capture(CU_STREAM_CAPTURE_MODE_GLOBAL);
	frees_beside_a_capture(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
	a_capture_ends_under_its_other_name();
	exported_memory_is_freed_in_a_stream();
	free_beside_managed_memory_and_a_capture();
	if (is_shimmed) /* the software device's own free does not see such a stream */
		free_in_a_stream_that_nobody_named();
	victim_hold_fini(&hold);
	a_green_context_takes_the_primary_one_along();
	victim_check_device();
	return victim_end("victim_beside");
}
