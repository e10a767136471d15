/* SPDX-License-Identifier: MIT */
/* Rows: what the CPU sees, captures, dependent launches, pinned memory. */
#include "tests/order/cases/cases.h"

enum outcome
case_copy_to_the_host(void)
{
	MUST(cuMemcpyDtoHAsync_v2(scene.seen, scene.small, 4, scene.s));
	return case_free_beside(scene.small);
}

enum outcome
case_copy_to_the_host_not_waited_for(void)
{
	return case_copy_to_the_host();
}

enum outcome
case_copy_to_the_host_with_fences(void)
{
	return case_copy_to_the_host();
}

static void CUDA_CB
do_nothing(void *arg)
{
	(void)arg;
}

enum outcome
case_host_function(void)
{
	case_use(scene.s, scene.small);
	MUST(cuLaunchHostFunc(scene.s, do_nothing, NULL));
	return case_free_beside(scene.small);
}

static CUdeviceptr
seen_by_device(void)
{
	CUdeviceptr address;

	MUST(cuMemHostGetDevicePointer_v2(&address, scene.seen, 0));
	return address;
}

enum outcome
case_memset_of_pinned_memory(void)
{
	MUST(cuMemsetD8Async(seen_by_device(), 1, 4, scene.s));
	return case_free_beside(seen_by_device());
}

enum outcome
case_write_of_a_value_to_the_host(void)
{
	MUST(cuStreamWriteValue32_v2(scene.s, seen_by_device(), 1, 0));
	return case_free_beside(seen_by_device());
}

enum outcome
case_kernel_with_managed_memory(void)
{
	enum outcome outcome;
	CUdeviceptr managed;

	MUST(cuMemAllocManaged(&managed, 512, CU_MEM_ATTACH_GLOBAL));
	outcome = case_kernel();
	MUST(cuMemFree_v2(managed));
	return outcome;
}

enum outcome
case_kernel(void)
{
	const CUdeviceptr beside = case_block();

	case_use(scene.s, beside);
	return case_free_beside(beside);
}

enum outcome
case_kernel_with_fences(void)
{
	return case_kernel();
}

enum outcome
case_every_free_waits(void)
{
	return case_kernel();
}

enum outcome
case_copy_on_the_device(void)
{
	MUST(cuMemcpyDtoDAsync_v2(scene.small + 256, scene.small, 4, scene.s));
	return case_free_beside(scene.small);
}

/* Nothing that a capture forbids is called for a request, and none is served early. */
static enum outcome
while_capturing(CUdeviceptr block, bool is_free_inside)
{
	CUgraph graph;

	MUST(cuStreamBeginCapture_v2(scene.y, CU_STREAM_CAPTURE_MODE_RELAXED));
	cusim_reset_counts();
	if (is_free_inside)
		case_free(block);
	CHECK(case_alloc() != block);
	CHECK(cusim_call_count("cuCtxRecordEvent") == 0);
	CHECK(!case_has_run(block));
	MUST(cuStreamEndCapture(scene.y, &graph));
	MUST(cuGraphDestroy(graph));
	cusim_run_all();
	case_settle();
	return case_alloc() == block ? COMPLETE : WRONG;
}

enum outcome
case_free_before_a_capture(void)
{
	const CUdeviceptr block = case_block();

	case_use(scene.s, block);
	case_free(block);
	return while_capturing(block, false);
}

enum outcome
case_free_during_a_capture(void)
{
	const CUdeviceptr block = case_block();

	case_use(scene.s, block);
	return while_capturing(block, true);
}

enum outcome
case_free_before_a_capture_that_ended(void)
{
	const CUdeviceptr block = case_block();
	CUgraph graph;

	case_use(scene.s, block);
	case_free(block);
	MUST(cuStreamBeginCapture_v2(scene.y, CU_STREAM_CAPTURE_MODE_RELAXED));
	MUST(cuStreamEndCapture(scene.y, &graph));
	MUST(cuGraphDestroy(graph));
	return case_hand_out(block);
}

/* n_nodes: what the program captured, and nothing else. */
static CUgraphExec
end_capture(size_t n_nodes)
{
	CUgraphExec exec;
	CUgraph graph;
	size_t n;

	MUST(cuStreamEndCapture(scene.y, &graph));
	MUST(cuGraphGetNodes(graph, NULL, &n));
	CHECK(n == n_nodes);
	MUST(cuGraphInstantiateWithFlags(&exec, graph, 0));
	MUST(cuGraphDestroy(graph));
	return exec;
}

enum outcome
case_launch_of_a_graph(void)
{
	const CUdeviceptr block = case_early(scene.s);
	CUgraphExec exec;

	MUST(cuStreamBeginCapture_v2(scene.y, CU_STREAM_CAPTURE_MODE_RELAXED));
	case_use(scene.y, block);
	exec = end_capture(1);
	case_mark();
	MUST(cuGraphLaunch(exec, scene.y));
	return case_wait(scene.s, scene.y, block);
}

enum outcome
case_dependent_launch(void)
{
	const CUdeviceptr block = case_block();

	case_use(scene.s, block);
	case_use_dependent(scene.s, block);
	return case_dependence();
}

enum outcome
case_dependent_launch_on_an_early_block(void)
{
	const CUdeviceptr block = case_block();

	case_use(scene.s, block);
	case_free(block);
	CHECK(case_alloc() == block);
	case_use_dependent(scene.s, block);
	return case_dependence();
}

enum outcome
case_second_dependent_launch(void)
{
	const CUdeviceptr block = case_early(scene.s);

	case_use_dependent(scene.s, block);
	case_use_dependent(scene.s, block);
	return case_dependence();
}

/* The launch before it is a plain one, and takes the wait. */
enum outcome
case_dependent_launch_behind_a_wait(void)
{
	const CUdeviceptr block = case_early(scene.s);

	case_use(scene.y, block);
	case_use_dependent(scene.y, block);
	return case_dependence();
}

enum outcome
case_dependent_launch_in_a_graph(void)
{
	const CUdeviceptr beside = case_block();
	CUgraphExec exec;

	case_early(scene.s);
	MUST(cuStreamBeginCapture_v2(scene.y, CU_STREAM_CAPTURE_MODE_RELAXED));
	case_use(scene.y, beside);
	case_use_dependent(scene.y, beside);
	exec = end_capture(2);
	MUST(cuGraphLaunch(exec, scene.y));
	return case_dependence();
}

static void *
alloc_pinned(void)
{
	void *block;

	MUST(cuMemHostAlloc(&block, 1 << 20, CU_MEMHOSTALLOC_PORTABLE));
	return block;
}

static void
free_pinned(void *block)
{
	const uint64_t n_before = case_n_completed();

	MUST(cuMemFreeHost(block));
	CHECK(case_n_completed() == n_before);
}

enum outcome
case_pinned_memory(void)
{
	void *const block = alloc_pinned();

	MUST(cuMemcpyHtoDAsync_v2(scene.small, block, 4, scene.s));
	free_pinned(block);
	CHECK(alloc_pinned() != block);
	CHECK(!case_has_run(scene.small));
	cusim_run_all();
	case_settle();
	return alloc_pinned() == block ? COMPLETE : WRONG;
}

enum outcome
case_pinned_memory_of_another_context(void)
{
	void *const block = alloc_pinned();
	CUcontext context;
	CUdeviceptr copy;
	CUstream stream;

	MUST(cuCtxCreate_v2(&context, 0, 0));
	MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	MUST(cuMemAlloc_v2(&copy, 512));
	MUST(cuMemcpyHtoDAsync_v2(copy, block, 4, stream));
	MUST(cuCtxSetCurrent(scene.context));
	free_pinned(block);
	case_settle();
	CHECK(!case_has_run(copy));
	CHECK(alloc_pinned() != block);
	cusim_run_all();
	case_settle();
	MUST(cuCtxDestroy_v2(context));
	return alloc_pinned() == block ? COMPLETE : WRONG;
}
