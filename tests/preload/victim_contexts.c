/* SPDX-License-Identifier: MIT */
/*
 * Memory, the work of several contexts on it, and the end of contexts.
 *
 * usage: victim_contexts [waits]
 *   waits: the driver has no fences of contexts, so that a free of pinned memory waits itself
 *
 * Pinned memory, and memory that is freed in another context's stream, comes back only when that
 * context's work is complete. What a context leaves behind, its memory, its events, its captures
 * and what counts against the limit, ends with it and breaks nothing of the next.
 */
#include "tests/preload/victim_held.h"

enum { N_BYTES = 8 << 20, N_PROBES = 4, MIB = 1 << 20 };

static struct poolshim_api api;
static bool is_shimmed;
static CUdevice device;
static CUcontext primary, other;
static struct victim_kernels kernels; /* of the other context */
static CUstream stream;               /* of the other context */
static struct victim_hold hold;

/* Work of the other context on a block that the primary one owns. */
static void
write_from_other(CUdeviceptr block, CUevent *ret_done)
{
	if (is_shimmed) { /* what is idle would be handed out first */
		api.free_all_blocks(0);
		api.host_free_all_blocks();
	}
	MUST(cuCtxSetCurrent(other));
	MUST(cuEventCreate(ret_done, CU_EVENT_DISABLE_TIMING));
	victim_hold_stream(&hold, &kernels, stream);
	victim_fill(&kernels, stream, block, 0x44, N_BYTES);
	victim_record(*ret_done, stream);
	MUST(cuCtxSetCurrent(primary));
}

static bool
is_written(CUevent done)
{
	CUresult status;

	MUST(cuCtxSetCurrent(other));
	status = cuEventQuery(done);
	MUST(cuCtxSetCurrent(primary));
	return status == CUDA_SUCCESS;
}

static void
end_work(CUevent done)
{
	victim_let_go(&hold);
	MUST(cuCtxSetCurrent(other));
	MUST(cuCtxSynchronize());
	MUST(cuEventDestroy_v2(done));
	MUST(cuCtxSetCurrent(primary));
}

/* Natively whether a free waits for another context's work is the driver's affair. */
static void
before_free(void)
{
	victim_before_free(&hold, is_shimmed);
	if (is_shimmed)
		return;
	MUST(cuCtxSetCurrent(other));
	MUST(cuCtxSynchronize());
	MUST(cuCtxSetCurrent(primary));
}

static CUdeviceptr
take_pinned(void)
{
	void *block = NULL;

	MUST(cuMemHostAlloc(&block, N_BYTES, CU_MEMHOSTALLOC_PORTABLE));
	return (CUdeviceptr)(uintptr_t)block;
}

static void
drop_pinned(CUdeviceptr block)
{
	MUST(cuMemFreeHost((void *)(uintptr_t)block));
}

static void
pinned_memory(const char *when)
{
	CUdeviceptr block = take_pinned(), probes[N_PROBES];
	CUevent done;

	write_from_other(block, &done);
	before_free();
	drop_pinned(block);
	for (int i = 0; i < N_PROBES; i++) {
		probes[i] = take_pinned();
		EXPECT(probes[i] != block || is_written(done),
		       "%s: pinned memory was handed out while another context had yet to write it",
		       when);
	}
	end_work(done);
	for (int i = 0; i < N_PROBES; i++)
		drop_pinned(probes[i]);
}

/* While managed memory is held a free waits, for one context only. */
static void
pinned_memory_beside_managed(void)
{
	CUdeviceptr managed;

	MUST(cuMemAllocManaged(&managed, 4096, CU_MEM_ATTACH_GLOBAL));
	pinned_memory("beside managed memory");
	MUST(cuMemFree_v2(managed));
}

/* No fence can be recorded: the free itself waits, for every context. */
static void
pinned_memory_without_fences(void)
{
	CUdeviceptr block = take_pinned();
	CUevent done;

	write_from_other(block, &done);
	victim_let_go_later(&hold);
	drop_pinned(block);
	EXPECT(is_written(done),
	       "pinned memory was freed while another context had yet to write it");
	victim_hold_join(&hold);
	end_work(done);
}

static void
free_in_the_others_stream(void)
{
	CUdeviceptr block, probes[N_PROBES];
	CUevent done;

	MUST(cuMemAlloc_v2(&block, N_BYTES));
	write_from_other(block, &done);
	MUST(cuMemFreeAsync(block, stream));
	before_free();
	for (int i = 0; i < N_PROBES; i++) {
		MUST(cuMemAlloc_v2(&probes[i], N_BYTES));
		EXPECT(probes[i] != block || is_written(done),
		       "memory was handed out while the stream that it was freed in had yet to "
		       "write it");
	}
	end_work(done);
	for (int i = 0; i < N_PROBES; i++)
		MUST(cuMemFree_v2(probes[i]));
	MUST(cuCtxSynchronize());
}

/* Frees behind a held stream, each with a fence of its own: spare events are used up. */
static void
use_many_fences(void)
{
	const struct victim_kernels own_kernels = victim_kernels_load();
	const CUstream own_stream = victim_stream();
	CUdeviceptr block;

	victim_hold_stream(&hold, &own_kernels, own_stream);
	for (int i = 0; i < 6; i++) {
		if (cuMemAlloc_v2(&block, N_BYTES) == CUDA_SUCCESS)
			MUST(cuMemFree_v2(block));
	}
	victim_let_go(&hold);
	MUST(cuStreamSynchronize(own_stream));
}

/* A fence covers a context that is destroyed before anyone asks again. */
static void
fence_of_a_destroyed_context(void)
{
	CUdeviceptr block = take_pinned(), probe;
	size_t total_bytes;
	CUevent done;

	write_from_other(block, &done);
	before_free();
	drop_pinned(block);
	probe = take_pinned(); /* records the fence */
	victim_let_go(&hold);
	MUST(cuCtxDestroy_v2(other));
	MUST(cuCtxCreate_v2(&other, 0, device)); /* may take the place of the dead one */
	MUST(cuCtxSetCurrent(primary));
	drop_pinned(probe);
	total_bytes = is_shimmed ? api.host_total_bytes() : 0;
	for (int i = 0; i < 8; i++) {
		probe = take_pinned();
		drop_pinned(probe);
		MUST(cuCtxSynchronize());
	}
	if (is_shimmed)
		EXPECT(api.host_total_bytes() <= total_bytes + N_BYTES,
		       "pinned memory waits for a context that is gone");
	MUST(cuCtxSetCurrent(other));
	if (is_shimmed) {
		use_many_fences();
		victim_expect_recycling(&api, "in the context after a dead one");
	}
	MUST(cuCtxSetCurrent(primary));
}

/* Another context's error is not seen from here, natively neither. */
static void
beside_a_broken_context(void)
{
	enum {
		N_SMALL = 1 << 20
	}; /* its free records no fence: a request is the first to meet it */
	void *block = NULL, *next = NULL;

	MUST(cuMemHostAlloc(&block, N_SMALL, CU_MEMHOSTALLOC_PORTABLE));
	MUST(cuCtxSetCurrent(other));
	MUST(cuCtxSynchronize());
	MUST(cuCtxSetCurrent(primary));
	if (is_shimmed)
		api.host_free_all_blocks();
	cusim_set_sticky(other, CUDA_ERROR_LAUNCH_FAILED);
	MUST(cuMemFreeHost(block));
	for (int i = 0; i < 2; i++) {
		CUresult status = cuMemHostAlloc(&next, N_SMALL, CU_MEMHOSTALLOC_PORTABLE);

		EXPECT(status == CUDA_SUCCESS, "another context's error %d was given", status);
		if (status == CUDA_SUCCESS)
			MUST(cuMemFreeHost(next));
	}
	cusim_set_sticky(other, 0);
}

static void
start_primary(void)
{
	MUST(cuDevicePrimaryCtxRetain(&primary, device));
	MUST(cuCtxSetCurrent(primary));
}

static void
check_empty(const char *when)
{
	if (!is_shimmed)
		return;
	EXPECT(api.total_bytes(0) == 0, "%s: %zu bytes of a dead context are held", when,
	       api.total_bytes(0));
	EXPECT(api.used_bytes(0) == 0, "%s: %zu bytes of a dead context are used", when,
	       api.used_bytes(0));
}

/* Every event that the pool made is used or spare when the context ends; none may be used again. */
static void
reset_with_work_seen_by_the_cpu(void)
{
	unsigned char seen[256];
	CUdeviceptr block;

	MUST(cuMemAlloc_v2(&block, N_BYTES));
	MUST(cuMemcpyDtoHAsync_v2(seen, block, sizeof(seen), NULL));
	MUST(cuMemFree_v2(block));
	if (is_shimmed)
		victim_expect_recycling(&api, "before the reset");
	MUST(cuMemAlloc_v2(&block, N_BYTES));
	MUST(cuMemcpyDtoHAsync_v2(seen, block, sizeof(seen), NULL));
	MUST(cuDevicePrimaryCtxReset_v2(device));
	check_empty("reset");
	start_primary();
	cusim_reset_counts();
	MUST(cuMemAlloc_v2(&block, N_BYTES));
	MUST(cuMemFree_v2(block));
	EXPECT(cusim_call_count("cuEventSynchronize") == 0,
	       "a free waited for what was seen of a dead context");
	if (is_shimmed)
		victim_expect_recycling(&api, "after the reset");
}

static void
reset_during_a_capture(void)
{
	CUstream capturing = victim_stream();

	MUST(cuStreamBeginCapture_v2(capturing, CU_STREAM_CAPTURE_MODE_RELAXED));
	MUST(cuDevicePrimaryCtxReset_v2(device));
	start_primary();
	if (is_shimmed)
		victim_expect_recycling(&api, "after a reset during a capture");
}

/* Retained twice: the first release ends nothing, the second everything. */
static void
release(void)
{
	CUdeviceptr block;
	CUcontext again;
	unsigned flags;
	int is_active = 1;

	MUST(cuDevicePrimaryCtxRetain(&again, device));
	MUST(cuMemAlloc_v2(&block, N_BYTES));
	MUST(cuDevicePrimaryCtxRelease_v2(device));
	if (is_shimmed)
		EXPECT(api.used_bytes(0) == N_BYTES, "a release that was not the last took %zu",
		       N_BYTES - api.used_bytes(0));
	MUST(cuMemsetD8_v2(block, 0x12, N_BYTES));

	for (int i = 0; i < 8 && is_active; i++) {
		MUST(cuDevicePrimaryCtxRelease_v2(device));
		MUST(cuDevicePrimaryCtxGetState(device, &flags, &is_active));
	}
	EXPECT(!is_active, "the primary context outlives its releases");
	check_empty("released");
	start_primary();
	EXPECT(cuMemFree_v2(block) != CUDA_SUCCESS, "memory of a dead context was freed");
	if (is_shimmed)
		victim_expect_recycling(&api, "after the last release");
}

/* A context with two users ends with the second detach. */
static void
detach(void)
{
	CUcontext own, again;
	CUdeviceptr block;
	size_t used_bytes = is_shimmed ? api.used_bytes(0) : 0;

	MUST(cuCtxCreate_v2(&own, 0, device));
	MUST(cuCtxAttach(&again, 0));
	MUST(cuMemAlloc_v2(&block, N_BYTES));
	MUST(cuCtxDetach(own));
	if (is_shimmed)
		EXPECT(api.used_bytes(0) == used_bytes + N_BYTES,
		       "a detach that was not the last took the context's memory");
	MUST(cuMemsetD8_v2(block, 0x13, N_BYTES));
	MUST(cuCtxDetach(own));
	if (is_shimmed)
		EXPECT(api.used_bytes(0) == used_bytes, "%zu bytes of a detached context are used",
		       api.used_bytes(0) - used_bytes);
	MUST(cuCtxSetCurrent(primary));
}

static void
limit_after_a_reset(void)
{
	CUdeviceptr block;

	MUST(cuDevicePrimaryCtxReset_v2(device));
	start_primary();
	if (is_shimmed)
		MUST(api.set_limit(0, 64 * MIB));
	for (int i = 0; i < 3; i++) {
		EXPECT(cuMemAlloc_v2(&block, 48 * MIB) == CUDA_SUCCESS,
		       "reset %d: what went with a context counts against the limit", i);
		MUST(cuDevicePrimaryCtxReset_v2(device));
		start_primary();
	}
	if (is_shimmed)
		MUST(api.set_limit(0, 0));
}

int
main(int argc, char **argv)
{
	const bool has_fences = argc < 2 || strcmp(argv[1], "waits") != 0;

	primary = victim_start();
	is_shimmed = poolshim_find(&api);
	MUST(cuDeviceGet(&device, 0));
	victim_hold_init(&hold);
	MUST(cuCtxCreate_v2(&other, 0, device));
	kernels = victim_kernels_load();
	stream = victim_stream();
	MUST(cuCtxSetCurrent(primary));
	if (has_fences) {
		pinned_memory("two contexts");
		pinned_memory_beside_managed();
		free_in_the_others_stream();
		fence_of_a_destroyed_context();
		beside_a_broken_context();
	} else {
		pinned_memory_without_fences();
	}
	MUST(cuCtxDestroy_v2(other));
	MUST(cuCtxSetCurrent(primary));
	victim_hold_fini(&hold);
	reset_with_work_seen_by_the_cpu();
	reset_during_a_capture();
	release();
	detach();
	limit_after_a_reset();
	victim_check_device();
	return victim_end("victim_contexts");
}
