/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * A context of its own, in which one stream alone has work: what is freed there is handed out
 * early. With the shim only, since a native free waits for the kernel.
 */
#include "tests/preload/victim_held.h"

enum { SCENE_OLD = 0x11 };

struct scene {
	CUcontext context;
	struct victim_kernels kernels;
	CUstream stream, other;
	CUdeviceptr flag, ones; /* of 4 bytes */
	CUdeviceptr block;
};

static inline void VICTIM_UNUSED
scene_init(struct scene *scene, int device)
{
	MUST(cuCtxCreate_v2(&scene->context, 0, device));
	scene->kernels = victim_kernels_load();
	scene->stream = victim_stream();
	scene->other = victim_stream();
	MUST(cuMemAlloc_v2(&scene->flag, 512));
	MUST(cuMemAlloc_v2(&scene->ones, 512));
	MUST(cuMemsetD32Async(scene->flag, 0, 1, scene->stream));
	MUST(cuMemsetD32Async(scene->ones, 1, 1, scene->stream));
	MUST(cuMemAlloc_v2(&scene->block, 512));
	MUST(cuMemFree_v2(scene->block));
	MUST(cuCtxSynchronize()); /* from here on no other stream has unfinished work */
}

static inline void VICTIM_UNUSED
scene_fini(struct scene *scene)
{
	MUST(cuCtxDestroy_v2(scene->context));
}

/* A kernel spins for the flag, and a block behind it is freed. Is it handed out again at once?
 * Large blocks of a size are like no others. */
static inline bool VICTIM_UNUSED
scene_hand_out(struct scene *scene, CUdeviceptr flag, size_t n_bytes)
{
	CUdeviceptr freed;

	MUST(cuMemAlloc_v2(&freed, n_bytes));
	victim_spin(&scene->kernels, scene->stream, flag, 0);
	victim_fill(&scene->kernels, scene->stream, freed, SCENE_OLD, n_bytes);
	MUST(cuMemFree_v2(freed));
	MUST(cuMemAlloc_v2(&scene->block, n_bytes));
	return scene->block == freed;
}

/* The same for any number of times: nothing is left behind it. */
static inline bool VICTIM_UNUSED
scene_is_early(struct scene *scene, struct victim_hold *hold, const struct poolshim_api *api)
{
	enum { N_BYTES = 4 << 20 };
	bool is_early;

	api->free_all_blocks(0);
	__atomic_store_n(hold->flag, 0, __ATOMIC_SEQ_CST);
	is_early = scene_hand_out(scene, (CUdeviceptr)(uintptr_t)hold->flag, N_BYTES);
	victim_let_go(hold);
	MUST(cuCtxSynchronize());
	MUST(cuMemFree_v2(scene->block));
	MUST(cuCtxSynchronize());
	return is_early;
}

/* What changes it is looked for now and then. */
static inline bool VICTIM_UNUSED
scene_becomes_early(struct scene *scene, struct victim_hold *hold, const struct poolshim_api *api,
		    bool is_wanted)
{
	enum { N_SECONDS_MAX = 10 };
	struct timespec begin, now;

	clock_gettime(CLOCK_MONOTONIC, &begin);
	do {
		if (scene_is_early(scene, hold, api) == is_wanted)
			return true;
		clock_gettime(CLOCK_MONOTONIC, &now);
	} while (now.tv_sec - begin.tv_sec < N_SECONDS_MAX);
	return false;
}
