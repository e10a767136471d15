/* SPDX-License-Identifier: MIT */
/*
 * Which stream it is that submits: each of those below comes after what memory handed out early was
 * used for before, by whatever name and in whatever call it is reached.
 *
 * The device's checker says who does not.
 */
#include "tests/preload/victim_scene.h"

enum { NEW = 0x22, N_STREAMS = 32 };

static const size_t n_bytes = 24 << 20; /* larger than what is held otherwise */

static struct poolshim_api api;
static struct victim_hold hold;
static struct scene scene;

static void
begin(void)
{
	scene_init(&scene, 0);
}

/* What other streams had is shown complete now and then: scene.stream is the only one. */
static bool
becomes_early(void)
{
	enum { N_SECONDS_MAX = 5 };
	struct timespec begin, now;

	clock_gettime(CLOCK_MONOTONIC, &begin);
	do {
		victim_fill(&scene.kernels, scene.stream, scene.flag, 0, 4);
		MUST(cuMemAlloc_v2(&scene.block, 512));
		MUST(cuMemFree_v2(scene.block));
		MUST(cuCtxSynchronize());
		api.free_all_blocks(0); /* or another block would do as well */
		__atomic_store_n(hold.flag, 0, __ATOMIC_SEQ_CST);
		if (scene_hand_out(&scene, (CUdeviceptr)(uintptr_t)hold.flag, n_bytes))
			return true;
		victim_let_go(&hold);
		MUST(cuCtxSynchronize());
		MUST(cuMemFree_v2(scene.block));
		clock_gettime(CLOCK_MONOTONIC, &now);
	} while (now.tv_sec - begin.tv_sec < N_SECONDS_MAX);
	return false;
}

/* Old work in scene.stream is held, and its memory is handed out. */
static void
hand_out(const char *name)
{
	EXPECT(becomes_early(), "%s: nothing was handed out early: this tests nothing", name);
}

static void
expect_order(const char *name)
{
	static unsigned long long n_before;
	unsigned long long n;

	victim_let_go(&hold);
	MUST(cuCtxSynchronize());
	n = (unsigned long long)cusim_races();
	EXPECT(n == n_before, "%s: %llu accesses are not ordered", name, n - n_before);
	n_before = n;
}

static void
launch_ex(CUstream stream, bool is_dependent)
{
	CUlaunchAttribute attribute = {
		.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
		.value.programmaticStreamSerializationAllowed = 1,
	};
	const CUlaunchConfig config = {
		.gridDimX = 1,
		.gridDimY = 1,
		.gridDimZ = 1,
		.blockDimX = 1,
		.blockDimY = 1,
		.blockDimZ = 1,
		.hStream = stream,
		.attrs = &attribute,
		.numAttrs = is_dependent,
	};
	unsigned int value = NEW;
	size_t size = n_bytes;
	void *parameters[] = {&scene.block, &value, &size};

	MUST(cuLaunchKernelEx(&config, scene.kernels.fill, parameters, NULL));
}

static void
a_stream_in_a_struct(void)
{
	begin();
	hand_out("struct");
	launch_ex(scene.other, false);
	expect_order("struct");
	scene_fini(&scene);
}

static void
a_dependent_launch(void)
{
	begin();
	hand_out("dependent launch");
	launch_ex(scene.stream, true);
	expect_order("dependent launch");
	scene_fini(&scene);
}

static void *
touch_in_own_stream(void *arg)
{
	(void)arg;
	MUST(cuCtxSetCurrent(scene.context));
	victim_fill(&scene.kernels, VICTIM_PER_THREAD, scene.block, NEW, n_bytes);
	return NULL;
}

static void
touch_in_a_thread(void)
{
	pthread_t thread;

	if (pthread_create(&thread, NULL, touch_in_own_stream, NULL) != 0)
		exit(2);
	pthread_join(thread, NULL);
}

static void
streams_of_two_threads(void)
{
	begin();
	scene.stream = VICTIM_PER_THREAD;
	hand_out("threads");
	touch_in_a_thread();
	expect_order("threads");
	scene_fini(&scene);
}

/* A green context's stream 0 of a thread is not that of the primary one, whose memory it uses. */
static void
streams_of_a_green_context(void)
{
	CUdevResourceDesc description;
	CUcontext primary, of_green;
	CUdevResource resource;
	CUgreenCtx green;

	begin();
	MUST(cuCtxDestroy_v2(scene.context));
	MUST(cuDevicePrimaryCtxRetain(&primary, 0));
	MUST(cuDeviceGetDevResource(0, &resource, CU_DEV_RESOURCE_TYPE_SM));
	MUST(cuDevResourceGenerateDesc(&description, &resource, 1));
	MUST(cuGreenCtxCreate(&green, description, 0, CU_GREEN_CTX_DEFAULT_STREAM));
	MUST(cuCtxFromGreenCtx(&of_green, green));
	MUST(cuCtxSetCurrent(primary));
	scene.kernels = victim_kernels_load();
	scene.stream = VICTIM_PER_THREAD;
	MUST(cuMemAlloc_v2(&scene.flag, 512));
	hand_out("green context");
	MUST(cuCtxSetCurrent(of_green));
	victim_fill(&scene.kernels, VICTIM_PER_THREAD, scene.block, NEW, n_bytes);
	expect_order("green context");
	MUST(cuCtxSetCurrent(primary));
	expect_order("green context");
	MUST(cuGreenCtxDestroy(green));
	MUST(cuDevicePrimaryCtxRelease_v2(0));
}

/* A wait for work before the capture would spoil it; the launch of the graph waits. */
static void
a_stream_that_captures(void)
{
	CUgraphExec exec;
	CUgraph graph;

	begin();
	hand_out("capture");
	MUST(cuStreamBeginCapture_v2(scene.other, CU_STREAM_CAPTURE_MODE_RELAXED));
	victim_fill(&scene.kernels, scene.other, scene.block, NEW, n_bytes);
	EXPECT(cuStreamEndCapture(scene.other, &graph) == CUDA_SUCCESS, "the capture is spoilt");
	MUST(cuGraphInstantiateWithFlags(&exec, graph, 0));
	MUST(cuGraphLaunch(exec, scene.other));
	expect_order("capture");
	scene_fini(&scene);
}

/* Both streams are known, and have nothing unfinished: who comes next is heard of all the same. */
static void
streams_that_are_known(void)
{
	enum { N_ROUNDS = 20 };
	CUdeviceptr freed;

	begin();
	for (int i = 0; i < N_ROUNDS; i++) {
		victim_fill(&scene.kernels, scene.stream, scene.ones, NEW, 4);
		victim_fill(&scene.kernels, scene.other, scene.flag, NEW, 4);
		MUST(cuMemAlloc_v2(&freed, 512));
		MUST(cuMemFree_v2(freed));
		MUST(cuCtxSynchronize());
		__atomic_store_n(hold.flag, 0, __ATOMIC_SEQ_CST);
		scene_hand_out(&scene, (CUdeviceptr)(uintptr_t)hold.flag, n_bytes);
		victim_fill(&scene.kernels, scene.other, scene.block, NEW, n_bytes);
		expect_order("known streams");
		MUST(cuMemFree_v2(scene.block));
	}
	scene_fini(&scene);
}

/* Streams of another context had the same handles. */
static void
handles_that_are_used_again(void)
{
	CUstream streams[N_STREAMS], again[N_STREAMS];
	struct scene first;
	CUstream own;

	begin();
	first = scene;
	begin();
	own = scene.stream;
	MUST(cuCtxSetCurrent(first.context));
	for (int i = 0; i < N_STREAMS; i++)
		streams[i] = victim_stream();
	for (int i = 0; i < N_STREAMS; i++)
		victim_fill(&first.kernels, streams[i], first.ones + 4 * (size_t)i, NEW, 4);
	MUST(cuCtxSynchronize());
	for (int i = 0; i < N_STREAMS; i++)
		MUST(cuStreamDestroy_v2(streams[i]));
	MUST(cuCtxSetCurrent(scene.context));
	for (int i = 0; i < N_STREAMS; i++)
		again[i] = victim_stream();
	/* Those that were used last are remembered. */
	for (int i = N_STREAMS - 1; i >= 0; i--) {
		bool is_old = false;

		for (int j = 0; j < N_STREAMS; j++)
			is_old |= streams[j] == again[i];
		if (!is_old)
			continue;
		scene.stream = again[i];
		api.free_all_blocks(0);
		__atomic_store_n(hold.flag, 0, __ATOMIC_SEQ_CST);
		scene_hand_out(&scene, (CUdeviceptr)(uintptr_t)hold.flag, n_bytes);
		victim_fill(&scene.kernels, own, scene.block, NEW, n_bytes);
		expect_order("old handles");
		MUST(cuMemFree_v2(scene.block));
		MUST(cuCtxSynchronize());
	}
	scene_fini(&scene);
	MUST(cuCtxSetCurrent(first.context));
	scene_fini(&first);
}

int
main(void)
{
	victim_start();
	if (!poolshim_find(&api))
		return 77; /* a native free waits for the kernel */
	begin();
	victim_hold_init(&hold);
	cusim_check(CUSIM_CHECK_FREES_SHOW_NOTHING);
	a_stream_in_a_struct();
	a_dependent_launch();
	streams_of_two_threads();
	a_stream_that_captures();
	streams_that_are_known();
	handles_that_are_used_again();
	streams_of_a_green_context();
	victim_check_device();
	return victim_end("victim_streams");
}
