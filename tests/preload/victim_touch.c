/* SPDX-License-Identifier: MIT */
/*
 * Who waits for memory that was handed out early, and who must not.
 *
 * A kernel spins for a flag; memory freed behind it is handed out again; then another thread sets
 * the flag, by a copy or the like in another stream. Natively this ends, so nothing may make that
 * copy wait for the kernel. What touches the memory itself waits.
 */
#include "tests/preload/victim_scene.h"

enum {
	N_BYTES = 4 << 20,
	N_SECONDS_MAX = 5,
	NEW = 0x22,
};

static struct poolshim_api api;
static bool is_shimmed;

static void
hand_out_early(struct scene *scene, CUdeviceptr flag)
{
	EXPECT(scene_hand_out(scene, flag, N_BYTES),
	       "nothing was handed out early: this tests nothing");
}

static const uint32_t one = 1;

static void
by_copy(const struct scene *scene)
{
	MUST(cuMemcpyHtoDAsync_v2(scene->flag, &one, sizeof(one), scene->other));
}

static void
by_device_copy(const struct scene *scene)
{
	MUST(cuMemcpyDtoDAsync_v2(scene->flag, scene->ones, sizeof(one), scene->other));
}

static void
by_unified_copy(const struct scene *scene)
{
	MUST(cuMemcpyAsync(scene->flag, scene->ones, sizeof(one), scene->other));
}

static void
by_pitched_copy(const struct scene *scene)
{
	const CUDA_MEMCPY2D copy = {
		.srcMemoryType = CU_MEMORYTYPE_DEVICE,
		.srcDevice = scene->ones,
		.srcPitch = 4,
		.dstMemoryType = CU_MEMORYTYPE_DEVICE,
		.dstDevice = scene->flag,
		.dstPitch = 4,
		.WidthInBytes = 4,
		.Height = 1,
	};

	MUST(cuMemcpy2DAsync_v2(&copy, scene->other));
}

static void
by_plain_copy(const struct scene *scene)
{
	MUST(cuMemcpyHtoD_v2(scene->flag, &one, sizeof(one)));
}

static void
by_memset(const struct scene *scene)
{
	MUST(cuMemsetD32Async(scene->flag, 1, 1, scene->other));
}

static void
by_write_value(const struct scene *scene)
{
	MUST(cuStreamWriteValue32_v2(scene->other, scene->flag, 1, 0));
}

/* The same after something that touches nothing. */
static void
by_copy_after_an_event(const struct scene *scene)
{
	CUevent event;

	MUST(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
	MUST(cuEventRecord(event, scene->other));
	MUST(cuStreamWaitEvent(scene->other, event, 0));
	by_copy(scene);
}

static void CUDA_CB
set_flag(void *flag)
{
	__atomic_store_n((uint32_t *)flag, 1, __ATOMIC_SEQ_CST);
}

static void
by_host_function(const struct scene *scene)
{
	MUST(cuLaunchHostFunc(scene->other, set_flag, (void *)(uintptr_t)scene->flag));
}

static const struct way {
	const char *name;
	void (*release)(const struct scene *scene);
} ways[] = {
	{"copy", by_copy},
	{"copy on the device", by_device_copy},
	{"unified copy", by_unified_copy},
	{"pitched copy", by_pitched_copy},
	{"plain copy", by_plain_copy},
	{"memset", by_memset},
	{"write of a value", by_write_value},
	{"copy after an event", by_copy_after_an_event},
	{"host function", by_host_function},
};

struct releaser {
	const struct scene *scene;
	const struct way *way;
};

static void *
release(void *arg)
{
	const struct releaser *releaser = arg;

	MUST(cuCtxSetCurrent(releaser->scene->context));
	releaser->way->release(releaser->scene);
	return NULL;
}

static double
seconds_now(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* A plain copy holds its thread: the end of the kernel is looked for here. */
static void
expect_end(const struct scene *scene, const char *name)
{
	const double begin = seconds_now();

	while (cuStreamQuery(scene->stream) == CUDA_ERROR_NOT_READY) {
		if (seconds_now() - begin < N_SECONDS_MAX)
			continue;
		EXPECT(false, "%s: it waits for the kernel that waits for it", name);
		set_flag((void *)(uintptr_t)scene->flag);
		return;
	}
}

static void
release_by(const struct way *way)
{
	struct scene scene;
	struct releaser releaser = {&scene, way};
	pthread_t thread;

	scene_init(&scene, 0);
	hand_out_early(&scene, scene.flag);
	if (pthread_create(&thread, NULL, release, &releaser) != 0)
		exit(2);
	expect_end(&scene, way->name);
	pthread_join(thread, NULL);
	MUST(cuCtxSynchronize());
	scene_fini(&scene);
}

/* In front of it: something that touches other memory, and so does not wait itself. */
static void
touch_the_block(bool is_kernel)
{
	struct victim_hold hold;
	struct scene scene;

	scene_init(&scene, 0);
	victim_hold_init(&hold);
	__atomic_store_n(hold.flag, 0, __ATOMIC_SEQ_CST);
	cusim_set_mode(CUSIM_MANUAL);
	hand_out_early(&scene, (CUdeviceptr)(uintptr_t)hold.flag);
	by_copy(&scene);
	if (is_kernel)
		victim_fill(&scene.kernels, scene.other, scene.block, NEW, N_BYTES);
	else
		MUST(cuMemsetD8Async(scene.block, NEW, N_BYTES, scene.other));
	cusim_step(scene.other, 8);
	EXPECT(*(volatile uint32_t *)(uintptr_t)scene.flag == 1, "the copy waits");
	EXPECT(*(volatile unsigned char *)(uintptr_t)scene.block != NEW,
	       "a %s ran beside the old work on its memory", is_kernel ? "kernel" : "memset");
	victim_let_go(&hold);
	cusim_set_mode(CUSIM_AUTO);
	MUST(cuCtxSynchronize());
	EXPECT(*(unsigned char *)(uintptr_t)scene.block == NEW, "old work wrote into a new block");
	victim_hold_fini(&hold);
	scene_fini(&scene);
}

int
main(void)
{
	victim_start();
	is_shimmed = poolshim_find(&api);
	if (!is_shimmed)
		return 77; /* a native free waits for the kernel */

	for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++)
		release_by(&ways[i]);
	cusim_check(CUSIM_CHECK_FREES_SHOW_NOTHING); /* before, the flag itself is a race */
	touch_the_block(false);
	touch_the_block(true);
	EXPECT(cusim_races() == 0, "%llu accesses are not ordered",
	       (unsigned long long)cusim_races());
	victim_check_device();
	return victim_end("victim_touch");
}
