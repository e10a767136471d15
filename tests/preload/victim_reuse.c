/* SPDX-License-Identifier: MIT */
/*
 * What a free waits for and what it does not, where several things come together: streams,
 * captures, more visible calls than are kept, failing events, exported memory.
 */
#include "tests/preload/victim_held.h"

enum {
	N_BYTES = 12 << 20, /* with a segment of its own */
	N_SEEN = 64,        /* so many calls of a context are kept one by one */
	N_PROBES = 4,
	OLD = 0x01,
	NEW = 0x6c,
};

static struct poolshim_api api;
static bool is_shimmed;
static CUcontext context;
static struct victim_kernels kernels;
static CUstream streams[3];
static struct victim_hold holds[2];
static CUdeviceptr source;
static unsigned char *seen; /* pinned, N_SEEN + 1 bytes */

/* Free a block that a held kernel of streams[0] has yet to write. */
static CUdeviceptr
free_a_block_in_use(void)
{
	CUdeviceptr block;

	MUST(cuCtxSynchronize());
	if (is_shimmed)
		api.free_all_blocks(0); /* what is idle would be handed out first */
	MUST(cuMemAlloc_v2(&block, N_BYTES));
	victim_hold_stream(&holds[0], &kernels, streams[0]);
	victim_fill(&kernels, streams[0], block, 0x55, N_BYTES);
	victim_before_free(&holds[0], is_shimmed);
	MUST(cuMemFree_v2(block));
	return block;
}

/* None of what is allocated now is the block; then the kernel ends. A request may be refused while
 * calls of the driver fail. */
static void
probe(CUdeviceptr block, const char *when)
{
	CUdeviceptr probes[N_PROBES];

	for (int i = 0; i < N_PROBES; i++) {
		if (cuMemAlloc_v2(&probes[i], N_BYTES) != CUDA_SUCCESS)
			probes[i] = 0;
		EXPECT(probes[i] != block || !is_shimmed,
		       "%s: a block was handed out while a kernel had yet to write it", when);
	}
	cusim_fail_clear();
	victim_let_go(&holds[0]);
	MUST(cuStreamSynchronize(streams[0]));
	for (int i = 0; i < N_PROBES; i++)
		MUST(cuMemFree_v2(probes[i]));
	MUST(cuCtxSynchronize());
}

/* The free waits for a copy to the host in one stream. That says nothing of another stream's
 * kernel. */
static void
behind_a_copy(void)
{
	MUST(cuMemcpyDtoHAsync_v2(seen, source, 1, streams[1]));
	probe(free_a_block_in_use(), "behind a copy to the host");
}

/* A failure that says something of the moment only: the pool goes on when it is over. */
static void
behind_failing_calls(const char *function, CUresult status)
{
	CUdeviceptr block;

	cusim_fail(function, 0, status);
	block = free_a_block_in_use();
	probe(block, function);
	if (is_shimmed)
		victim_expect_recycling(&api, function);
}

/* The error breaks a context for the pool, so this one is of its own. */
static void
behind_failing_questions(void)
{
	const struct victim_kernels kernels_before = kernels;
	const CUstream stream_before = streams[0];
	CUdeviceptr block;
	CUcontext own;

	MUST(cuCtxCreate_v2(&own, 0, 0));
	kernels = victim_kernels_load();
	streams[0] = victim_stream();
	block = free_a_block_in_use();
	cusim_fail("cuEventQuery", 0, CUDA_ERROR_UNKNOWN);
	probe(block, "when no event can be asked");
	MUST(cuCtxDestroy_v2(own));
	MUST(cuCtxSetCurrent(context));
	kernels = kernels_before;
	streams[0] = stream_before;
}

/* A fence that was recorded before a capture is not asked about during it. */
static void
behind_a_capture(void)
{
	CUdeviceptr block = free_a_block_in_use(), other;
	CUstreamCaptureStatus status;
	CUgraph graph;

	MUST(cuMemAlloc_v2(&other, N_BYTES)); /* records the fence */
	MUST(cuMemFree_v2(other));
	MUST(cuStreamBeginCapture_v2(streams[2], CU_STREAM_CAPTURE_MODE_RELAXED));
	cusim_reset_counts();
	if (is_shimmed) {
		EXPECT(cuMemAlloc_v2(&other, N_BYTES) != CUDA_SUCCESS || other != block,
		       "a block was handed out during a capture");
		EXPECT(cusim_call_count("cuEventQuery") == 0,
		       "a fence was asked about during a capture");
		MUST(cuMemFree_v2(other));
	}
	MUST(cuStreamIsCapturing(streams[2], &status));
	EXPECT(status == CU_STREAM_CAPTURE_STATUS_ACTIVE, "the capture became invalid");
	MUST(cuStreamEndCapture(streams[2], &graph));
	MUST(cuGraphDestroy(graph));
	probe(block, "after a capture");
}

/* Memory that is no node of the graph cannot be freed in it. */
static void
free_in_a_capture(void)
{
	CUdeviceptr block;
	CUgraph graph;

	MUST(cuMemAlloc_v2(&block, N_BYTES));
	MUST(cuStreamBeginCapture_v2(streams[2], CU_STREAM_CAPTURE_MODE_RELAXED));
	EXPECT(cuMemFreeAsync(block, streams[2]) != CUDA_SUCCESS,
	       "memory was freed in a stream that captures");
	cuStreamEndCapture(streams[2], &graph);
	EXPECT(cuMemFree_v2(block) == CUDA_SUCCESS, "the block was lost");
}

static void
failed_begin(void)
{
	EXPECT(cuStreamBeginCapture_v2(streams[2], (CUstreamCaptureMode)99) != CUDA_SUCCESS,
	       "a capture in no mode began");
	if (is_shimmed)
		victim_expect_recycling(&api, "after a capture that did not begin");
}

/* Memory that another process may see goes back to the driver, by either free. */
static void export(CUresult (*free_exported)(CUdeviceptr))
{
	struct cusim_report before, after;
	CUdeviceptr large, small, neighbour, next;
	CUipcMemHandle handle;

	MUST(cuMemAlloc_v2(&large, N_BYTES));
	MUST(cuMemAlloc_v2(&small, 1000));
	MUST(cuMemAlloc_v2(&neighbour, 1000));
	MUST(cuIpcGetMemHandle(&handle, large));
	MUST(cuIpcGetMemHandle(&handle, small));
	MUST(free_exported(small));
	MUST(cuCtxSynchronize());
	MUST(cuMemAlloc_v2(&next, 1000));
	EXPECT(!is_shimmed || next != small,
	       "memory that another process may see is handed out again");
	cusim_get_report(&before);
	MUST(free_exported(large));
	MUST(cuStreamSynchronize(streams[1]));
	cusim_get_report(&after);
	EXPECT(after.n_live_allocations + 1 == before.n_live_allocations,
	       "memory that another process may see is used again");
	MUST(cuMemFree_v2(next));
	MUST(cuMemFree_v2(neighbour));
}

static CUresult
free_async(CUdeviceptr block)
{
	return cuMemFreeAsync(block, streams[1]);
}

/* As many visible calls as are kept in streams[0], then one more in streams[1]. */
static void
submit_many(void)
{
	MUST(cuCtxSynchronize());
	memset(seen, OLD, N_SEEN + 1);
	victim_hold_stream(&holds[0], &kernels, streams[0]);
	victim_hold_stream(&holds[1], &kernels, streams[1]);
	for (int i = 0; i < N_SEEN; i++)
		MUST(cuMemcpyDtoHAsync_v2(seen + i, source + (CUdeviceptr)i, 1, streams[0]));
	MUST(cuMemcpyDtoHAsync_v2(seen + N_SEEN, source, 1, streams[1]));
}

static void
expect_seen(const char *when)
{
	size_t n_missing = 0;

	for (size_t i = 0; i <= N_SEEN; i++)
		n_missing += seen[i] != NEW;
	EXPECT(n_missing == 0, "%s: %zu of many copies were missing after a free", when, n_missing);
}

static void
free_behind_many(const char *when, struct victim_hold *first, struct victim_hold *last)
{
	CUdeviceptr unrelated;

	MUST(cuMemAlloc_v2(&unrelated, 1000));
	submit_many();
	victim_let_go(first);
	victim_let_go_later(last);
	MUST(cuMemFree_v2(unrelated));
	expect_seen(when);
	victim_hold_join(last);
}

/* A free during a capture cannot wait for calls without an event; the next one does. */
static void
free_behind_many_and_a_capture(void)
{
	CUdeviceptr blocks[2];
	CUgraph graph;

	MUST(cuMemAlloc_v2(&blocks[0], 1000));
	MUST(cuMemAlloc_v2(&blocks[1], 1000));
	submit_many();
	victim_let_go(&holds[0]);
	victim_let_go_later(&holds[1]);
	if (is_shimmed) {
		MUST(cuStreamBeginCapture_v2(streams[2], CU_STREAM_CAPTURE_MODE_RELAXED));
		MUST(cuMemFree_v2(blocks[0]));
		MUST(cuStreamEndCapture(streams[2], &graph));
		MUST(cuGraphDestroy(graph));
	}
	MUST(cuMemFree_v2(blocks[1]));
	expect_seen("after a capture");
	victim_hold_join(&holds[1]);
	if (!is_shimmed)
		MUST(cuMemFree_v2(blocks[0]));
}

static void *
free_elsewhere(void *arg)
{
	MUST(cuCtxSetCurrent(context));
	MUST(cuMemFree_v2(*(CUdeviceptr *)arg));
	EXPECT(seen[0] == NEW, "the first of two frees did not wait for a copy");
	return NULL;
}

static void
two_frees_at_once(void)
{
	CUdeviceptr blocks[2];
	pthread_t thread;

	MUST(cuMemAlloc_v2(&blocks[0], 1000));
	MUST(cuMemAlloc_v2(&blocks[1], 1000));
	MUST(cuCtxSynchronize());
	seen[0] = OLD;
	victim_hold_stream(&holds[0], &kernels, streams[0]);
	MUST(cuMemcpyDtoHAsync_v2(seen, source, 1, streams[0]));
	cusim_reset_counts();
	if (pthread_create(&thread, NULL, free_elsewhere, &blocks[0]) != 0)
		exit(2);
	for (int i = 0; i < 1000 && is_shimmed && !cusim_call_count("cuEventSynchronize"); i++)
		nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
	victim_let_go_later(&holds[0]);
	MUST(cuMemFree_v2(blocks[1]));
	EXPECT(seen[0] == NEW, "the second of two frees did not wait for a copy");
	victim_hold_join(&holds[0]);
	pthread_join(thread, NULL);
}

int
main(void)
{
	context = victim_start();
	is_shimmed = poolshim_find(&api);
	kernels = victim_kernels_load();
	for (size_t i = 0; i < sizeof(streams) / sizeof(streams[0]); i++)
		streams[i] = victim_stream();
	victim_hold_init(&holds[0]);
	victim_hold_init(&holds[1]);
	MUST(cuMemAlloc_v2(&source, N_SEEN));
	MUST(cuMemsetD8_v2(source, NEW, N_SEEN));
	MUST(cuMemHostAlloc((void **)&seen, N_SEEN + 1, 0));

	behind_a_copy();
	behind_failing_calls("cuCtxRecordEvent", CUDA_ERROR_OUT_OF_MEMORY);
	behind_failing_calls("cuCtxRecordEvent", CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	behind_failing_calls("cuEventQuery", CUDA_ERROR_OUT_OF_MEMORY);
	behind_failing_calls("cuEventQuery", CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	behind_failing_questions();
	behind_a_capture();
	free_in_a_capture();
	failed_begin();
	export(cuMemFree_v2);
	export(free_async);
	free_behind_many("the last call ends last", &holds[0], &holds[1]);
	free_behind_many("the last call ends first", &holds[1], &holds[0]);
	free_behind_many_and_a_capture();
	two_frees_at_once();
	victim_check_device();
	return victim_end("victim_reuse");
}
