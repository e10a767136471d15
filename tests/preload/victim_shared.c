/* SPDX-License-Identifier: MIT */
/*
 * While others than a context's streams may touch its memory, nothing of it is handed out before
 * its old work has ended: peers with access, copies and graphs of another device's streams.
 */
#include "tests/preload/victim_scene.h"

static struct scene first, second; /* on two devices */
static struct victim_hold hold;
static size_t n_bytes = 4 << 20; /* another size each time */

/* Is what is freed behind a kernel of the first device handed out at once? */
static bool
is_early(void)
{
	bool is_handed_out;

	MUST(cuCtxSetCurrent(first.context));
	__atomic_store_n(hold.flag, 0, __ATOMIC_SEQ_CST);
	n_bytes += 2 << 20;
	is_handed_out = scene_hand_out(&first, (CUdeviceptr)(uintptr_t)hold.flag, n_bytes);
	victim_let_go(&hold);
	MUST(cuCtxSynchronize());
	return is_handed_out;
}

static void
peer_access(void)
{
	MUST(cuCtxSetCurrent(second.context));
	MUST(cuCtxEnablePeerAccess(first.context, 0));
	EXPECT(cuCtxEnablePeerAccess(first.context, 0) != CUDA_SUCCESS, "enabled twice");
	EXPECT(!is_early(), "handed out beside a peer");
	MUST(cuCtxSetCurrent(second.context));
	MUST(cuCtxDisablePeerAccess(first.context));
	EXPECT(is_early(), "nothing is early any more when the peer is gone");
}

/* The peer was there before the memory. */
static void
peer_of_a_new_context(void)
{
	const struct scene kept = first;
	CUcontext context;

	MUST(cuCtxCreate_v2(&context, 0, 0));
	MUST(cuCtxSetCurrent(second.context));
	MUST(cuCtxEnablePeerAccess(context, 0));
	MUST(cuCtxSetCurrent(context));
	first.context = context;
	first.kernels = victim_kernels_load();
	first.stream = victim_stream();
	EXPECT(!is_early(), "handed out beside a peer that came first");
	EXPECT(!is_early(), "handed out beside a peer that came first, the second time");
	MUST(cuCtxDestroy_v2(context));
	first = kept;
}

static void
expect_foreign(const char *name)
{
	EXPECT(!is_early(), "%s: handed out beside it", name);
	MUST(cuCtxSetCurrent(second.context));
	MUST(cuCtxSynchronize());
	EXPECT(is_early(), "%s: nothing is early any more when it is complete", name);
}

static void
foreign_copy(void)
{
	MUST(cuCtxSetCurrent(second.context));
	MUST(cuMemcpyDtoDAsync_v2(second.ones, first.ones, 4, second.stream));
	expect_foreign("copy");
}

static void
foreign_peer_copy(void)
{
	MUST(cuCtxSetCurrent(second.context));
	MUST(cuMemcpyPeer(second.ones, second.context, first.ones, first.context, 4));
	expect_foreign("copy to a peer");
}

static void
foreign_graph(void)
{
	CUgraphExec exec;
	CUgraph graph;

	MUST(cuCtxSetCurrent(second.context));
	MUST(cuStreamBeginCapture_v2(second.stream, CU_STREAM_CAPTURE_MODE_RELAXED));
	MUST(cuMemcpyDtoDAsync_v2(second.ones, first.ones, 4, second.stream));
	MUST(cuStreamEndCapture(second.stream, &graph));
	MUST(cuGraphInstantiateWithFlags(&exec, graph, 0));
	EXPECT(!is_early(), "a captured copy counts as one");
	EXPECT(is_early(), "nothing is early any more before the graph is launched");
	MUST(cuCtxSetCurrent(second.context));
	MUST(cuGraphLaunch(exec, second.stream));
	expect_foreign("graph");
	MUST(cuGraphExecDestroy(exec));
	MUST(cuGraphDestroy(graph));
}

/* Old work writes the block; a copy of the other device's reads it, and comes after. */
static void
foreign_copy_of_an_early_block(void)
{
	pthread_t releaser;

	MUST(cuCtxSetCurrent(first.context));
	__atomic_store_n(hold.flag, 0, __ATOMIC_SEQ_CST);
	n_bytes += 2 << 20;
	EXPECT(scene_hand_out(&first, (CUdeviceptr)(uintptr_t)hold.flag, n_bytes),
	       "nothing was handed out early: this tests nothing");
	if (pthread_create(&releaser, NULL, victim_release_later, &hold) != 0)
		exit(2);
	MUST(cuCtxSetCurrent(second.context));
	MUST(cuMemcpyDtoDAsync_v2(second.ones, first.block, 4, second.stream));
	pthread_join(releaser, NULL);
	MUST(cuCtxSynchronize());
	EXPECT(cusim_races() == 0, "a copy ran beside the old work");
}

int
main(void)
{
	struct poolshim_api api;

	victim_start();
	if (!poolshim_find(&api))
		return 77; /* a native free waits for the kernel */
	victim_hold_init(&hold);
	scene_init(&second, 1);
	scene_init(&first, 0);
	cusim_check(CUSIM_CHECK_FREES_SHOW_NOTHING);
	EXPECT(is_early(), "nothing is early at all: this tests nothing");
	peer_access();
	peer_of_a_new_context();
	foreign_copy();
	foreign_peer_copy();
	foreign_graph();
	foreign_copy_of_an_early_block();
	victim_check_device();
	return victim_end("victim_shared");
}
