/* SPDX-License-Identifier: MIT */
/*
 * Graphs of kernels are like kernels: a free behind one that spins does not wait, and the memory is
 * handed out at once. Behind a graph that can wait for others it is not.
 *
 * usage: victim_graphs kernels|host_function
 */
#include "tests/preload/victim_scene.h"

enum { N_BYTES = 4 << 20 };

static void CUDA_CB
do_nothing(void *arg)
{
	(void)arg;
}

/* A kernel that spins for the flag, one that writes the block, and perhaps a host function. */
static CUgraphExec
make_graph(const struct scene *scene, CUdeviceptr flag, CUdeviceptr block, bool has_host_function)
{
	CUgraphExec exec;
	CUgraph graph;

	MUST(cuStreamBeginCapture_v2(scene->stream, CU_STREAM_CAPTURE_MODE_RELAXED));
	victim_spin(&scene->kernels, scene->stream, flag, 0);
	victim_fill(&scene->kernels, scene->stream, block, SCENE_OLD, N_BYTES);
	if (has_host_function)
		MUST(cuLaunchHostFunc(scene->stream, do_nothing, NULL));
	MUST(cuStreamEndCapture(scene->stream, &graph));
	MUST(cuGraphInstantiateWithFlags(&exec, graph, 0));
	MUST(cuGraphDestroy(graph));
	return exec;
}

/* In front of the launch a request and its free, so that the streams are known anew. */
static bool
is_early_behind(struct scene *scene, struct victim_hold *hold, bool has_host_function)
{
	CUdeviceptr block, other, again;
	CUgraphExec exec;
	bool is_handed_out;

	__atomic_store_n(hold->flag, 0, __ATOMIC_SEQ_CST);
	MUST(cuMemAlloc_v2(&block, N_BYTES));
	exec = make_graph(scene, (CUdeviceptr)(uintptr_t)hold->flag, block, has_host_function);
	MUST(cuMemAlloc_v2(&other, 2 * N_BYTES));
	MUST(cuMemFree_v2(other));
	MUST(cuCtxSynchronize());
	MUST(cuGraphLaunch(exec, scene->stream));
	MUST(cuMemFree_v2(block));
	EXPECT(cuStreamQuery(scene->stream) == CUDA_ERROR_NOT_READY,
	       "the graph has ended: this tests nothing");
	MUST(cuMemAlloc_v2(&again, N_BYTES));
	is_handed_out = again == block;
	victim_let_go(hold);
	MUST(cuCtxSynchronize());
	MUST(cuGraphExecDestroy(exec));
	MUST(cuMemFree_v2(again));
	return is_handed_out;
}

int
main(int argc, char **argv)
{
	struct poolshim_api api;
	struct victim_hold hold;
	struct scene scene;

	if (argc != 2)
		return 2;
	victim_start();
	if (!poolshim_find(&api))
		return 77; /* a native free waits for the kernel */
	scene_init(&scene, 0);
	victim_hold_init(&hold);
	if (strcmp(argv[1], "kernels") == 0)
		EXPECT(is_early_behind(&scene, &hold, false), "a graph of kernels is no kernel");
	else
		EXPECT(!is_early_behind(&scene, &hold, true),
		       "handed out behind a graph that can wait for others");
	victim_check_device();
	return victim_end("victim_graphs");
}
