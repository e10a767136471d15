/* SPDX-License-Identifier: MIT */
/*
 * Managed memory that a vendor's library holds for itself makes no free wait; the program's own
 * does.
 *
 * usage: victim_vendor FOLDER PLUGIN
 */
#include "tests/preload/callers/caller_load.h"
#include "tests/preload/victim_scene.h"

enum { N_BYTES = 4 << 20 };

static void
hold_managed(const char *plugin_path, const char *name)
{
	const struct plugin plugin = load(plugin_path, name);
	int (*alloc_outside)(enum caller_outside, uint64_t *, size_t);
	void *found = dlsym(plugin.handle, "plugin_alloc_outside");
	uint64_t address = 0;

	MUST(!found);
	memcpy(&alloc_outside, &found, sizeof(alloc_outside));
	MUST(alloc_outside(CALLER_MANAGED, &address, 1 << 20));
}

int
main(int argc, char **argv)
{
	struct poolshim_api api;
	struct victim_hold hold;
	struct scene scene;

	if (argc != 3)
		return 2;
	victim_start();
	if (!poolshim_find(&api))
		return 77; /* a native free waits for the kernel */
	folder = argv[1];
	scene_init(&scene, 0);
	victim_hold_init(&hold);

	hold_managed(argv[2], "libcublas.so.13");
	__atomic_store_n(hold.flag, 0, __ATOMIC_SEQ_CST);
	scene_hand_out(&scene, (CUdeviceptr)(uintptr_t)hold.flag, N_BYTES);
	EXPECT(cuStreamQuery(scene.stream) == CUDA_ERROR_NOT_READY,
	       "a free waited for a vendor's managed memory");
	victim_let_go(&hold);
	MUST(cuCtxSynchronize());

	hold_managed(argv[2], "libprogram.so");
	victim_hold_stream(&hold, &scene.kernels, scene.stream);
	victim_let_go_later(&hold);
	MUST(cuMemFree_v2(scene.block));
	EXPECT(cuStreamQuery(scene.stream) == CUDA_SUCCESS,
	       "a free did not wait, and the program may read what the kernel writes");
	victim_hold_join(&hold);
	MUST(cuCtxSynchronize());
	return victim_end("victim_vendor");
}
