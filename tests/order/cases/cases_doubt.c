/* SPDX-License-Identifier: MIT */
/* Rows: doubt about what comes first, others that touch the memory, streams and contexts that end.
 */
#include "tests/order/cases/cases.h"

/* What s holds waits for scene.small to be 1; until then nothing is handed out. */
static enum outcome
behind_a_value(void)
{
	const CUdeviceptr block = case_block();

	case_use(scene.s, block);
	case_free(block);
	CHECK(case_alloc() != block);
	CHECK(!case_has_run(block));
	MUST(cuStreamWriteValue32_v2(scene.y, scene.small, 1, 0));
	return case_hand_out(block);
}

enum outcome
case_wait_for_a_value(void)
{
	MUST(cuStreamWaitValue32_v2(scene.s, scene.small, 1, CU_STREAM_WAIT_VALUE_GEQ));
	return behind_a_value();
}

enum outcome
case_batch_of_memory_operations(void)
{
	CUstreamBatchMemOpParams wait = {.waitValue = {.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32,
						       .address = scene.small,
						       .value = 1,
						       .flags = CU_STREAM_WAIT_VALUE_GEQ}};

	MUST(cuStreamBatchMemOp_v2(scene.s, 1, &wait, 0));
	return behind_a_value();
}

static enum outcome
one_stream(void)
{
	const CUdeviceptr block = case_block();

	case_use(scene.s, block);
	case_free(block);
	return case_hand_out(block);
}

enum outcome
case_batch_that_has_run(void)
{
	CUstreamBatchMemOpParams write = {
		.writeValue = {.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32,
			       .address = scene.small,
			       .value = 1}};
	const CUdeviceptr freed = case_small();

	case_use(scene.s, freed);
	MUST(cuStreamBatchMemOp_v2(scene.s, 1, &write, 0));
	case_free(freed);
	case_settle();
	return one_stream();
}

static void CUDA_CB
do_nothing(void *arg)
{
	(void)arg;
}

enum outcome
case_host_function_before_it(void)
{
	MUST(cuLaunchHostFunc(scene.s, do_nothing, NULL));
	return one_stream();
}

static enum outcome
behind_a_graph(bool has_host_function)
{
	const CUdeviceptr block = case_block(), freed = case_small();
	CUgraphExec exec;
	CUgraph graph;

	MUST(cuStreamBeginCapture_v2(scene.s, CU_STREAM_CAPTURE_MODE_RELAXED));
	case_use(scene.s, block);
	if (has_host_function)
		MUST(cuLaunchHostFunc(scene.s, do_nothing, NULL));
	MUST(cuStreamEndCapture(scene.s, &graph));
	MUST(cuGraphInstantiateWithFlags(&exec, graph, 0));
	MUST(cuGraphDestroy(graph));
	case_free(freed);
	case_settle();
	MUST(cuGraphLaunch(exec, scene.s));
	case_free(block);
	return case_hand_out(block);
}

enum outcome
case_graph_of_kernels(void)
{
	return behind_a_graph(false);
}

enum outcome
case_graph_with_a_host_function(void)
{
	return behind_a_graph(true);
}

enum outcome
case_stream_that_does_not_move(void)
{
	case_early(scene.s);
	case_pass_ns(2000000000);
	return one_stream();
}

/* The library asks for its fence; meanwhile the old work runs, and nothing else. */
static void
run_old_work(void *has_stepped, const char *symbol)
{
	if (*(bool *)has_stepped || strcmp(symbol, "cuEventQuery") != 0)
		return;
	*(bool *)has_stepped = true;
	CHECK(case_step(scene.s, 1) == 1);
}

/* The export waits for the old work, and for nothing later. */
enum outcome
case_export_of_an_early_block(void)
{
	const CUdeviceptr block = case_early(scene.s);
	bool has_stepped = false;
	CUipcMemHandle handle;

	cusim_subscribe(run_old_work, &has_stepped);
	MUST(cuIpcGetMemHandle(&handle, block));
	cusim_subscribe(NULL, NULL);
	CHECK(case_has_run(block));
	CHECK(!case_has_run(scene.later));
	case_mark();
	case_use(scene.y, block);
	return case_wait(scene.s, scene.y, block);
}

enum outcome
case_segment_with_an_exported_block(void)
{
	const CUdeviceptr exported = case_block();
	CUipcMemHandle handle;

	MUST(cuIpcGetMemHandle(&handle, exported));
	return one_stream();
}

/* Made and current; the row's own one is made current again by leave(). */
static CUcontext
enter_another(int device)
{
	CUcontext context;

	MUST(cuCtxCreate_v2(&context, 0, device));
	return context;
}

static void
leave(void)
{
	MUST(cuCtxSetCurrent(scene.context));
}

enum outcome
case_peer_access(void)
{
	const CUcontext peer = enter_another(1);
	enum outcome outcome;

	MUST(cuCtxEnablePeerAccess(scene.context, 0));
	leave();
	outcome = one_stream();
	MUST(cuCtxDestroy_v2(peer));
	return outcome;
}

static CUcontext
copy_in_another(void)
{
	const CUcontext context = enter_another(0);
	CUdeviceptr copy;
	CUstream stream;

	MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	MUST(cuMemAlloc_v2(&copy, 512));
	MUST(cuMemcpyDtoDAsync_v2(copy, scene.small, 4, stream));
	leave();
	return context;
}

enum outcome
case_copy_in_another_context(void)
{
	const CUcontext context = copy_in_another();
	const enum outcome outcome = one_stream();

	MUST(cuCtxDestroy_v2(context));
	return outcome;
}

enum outcome
case_copy_in_another_context_that_has_run(void)
{
	const CUcontext context = copy_in_another();
	const CUdeviceptr freed = case_small();
	enum outcome outcome;

	case_use(scene.s, freed);
	case_free(freed);
	cusim_run_all();
	case_settle();
	outcome = one_stream();
	MUST(cuCtxDestroy_v2(context));
	return outcome;
}

enum outcome
case_request_in_another_context(void)
{
	const CUdeviceptr block = case_block();
	enum outcome outcome;
	CUcontext context;

	case_use(scene.s, block);
	case_free(block);
	context = enter_another(0);
	CHECK(case_alloc() != block);
	leave();
	outcome = case_hand_out(block);
	MUST(cuCtxDestroy_v2(context));
	return outcome;
}

enum outcome
case_synchronise_of_another_context(void)
{
	const CUdeviceptr block = case_block(), beside = case_block();
	enum outcome outcome;
	CUcontext context;

	case_use(scene.s, block);
	case_use(scene.y, beside);
	case_free(block);
	context = enter_another(0);
	case_settle();
	leave();
	outcome = case_hand_out(block);
	MUST(cuCtxDestroy_v2(context));
	return outcome;
}

/* The next context may get the same addresses. */
enum outcome
case_destroyed_with_early_blocks(void)
{
	const CUcontext gone = scene.context;
	CUdeviceptr block;

	case_early(scene.s);
	MUST(cuMemFreeHost(scene.seen));
	scene.seen = NULL;
	scene.context = enter_another(0);
	MUST(cuCtxDestroy_v2(gone));
	scene.kernels = victim_kernels_load();
	MUST(cuStreamCreate(&scene.y, CU_STREAM_NON_BLOCKING));
	block = case_block();
	case_mark();
	case_use(scene.y, block);
	return case_wait(scene.y, scene.y, block);
}

enum outcome
case_completed_blocks_only(void)
{
	const CUdeviceptr block = case_block();

	case_use(scene.s, block);
	case_free(block);
	CHECK(case_alloc() != block);
	cusim_run_all();
	return case_soon(block);
}

enum outcome
case_waits_for_nothing(void)
{
	MUST(cuMemcpyDtoHAsync_v2(scene.seen, scene.small, 4, scene.s));
	return one_stream();
}

enum outcome
case_stream_in_the_place_of_a_destroyed_one(void)
{
	const CUdeviceptr block = case_early(scene.s);
	struct cusim_op mine;

	MUST(cuStreamDestroy_v2(scene.s));
	MUST(cuStreamCreate(&scene.s, CU_STREAM_NON_BLOCKING));
	case_use(scene.s, block);
	mine = case_op(block);
	if (case_n_waits(&mine) != 1)
		return NO_WAIT;
	case_step(scene.s, 8);
	CHECK(!case_has_run(block));
	CHECK(cusim_step(NULL, 1) == 1);
	case_step(scene.s, 8);
	return case_has_run(block) && !case_has_run(scene.later) ? WAITS : WRONG;
}

/* Its handle is one of another stream now, which comes after nothing of it. The device gives a
 * handle again once its work has run; the library has not been shown that it has. */
enum outcome
case_handle_of_a_destroyed_stream(void)
{
	enum { N_STREAMS_MAX = 64 };
	const CUdeviceptr block = case_early(scene.s);
	const CUstream gone = scene.s;
	struct cusim_op mine;

	cusim_run_all();
	MUST(cuStreamDestroy_v2(gone));
	for (int i = 0; i < N_STREAMS_MAX; i++) {
		MUST(cuStreamCreate(&scene.s, CU_STREAM_NON_BLOCKING));
		if (scene.s == gone)
			break;
	}
	if (scene.s != gone)
		printf("# the handle was not given again\n");
	case_use(scene.s, block);
	mine = case_op(block);
	return case_n_waits(&mine) == 1 ? WAITS : NO_WAIT;
}

enum outcome
case_destroyed_beside_another(void)
{
	const CUdeviceptr block = case_block(), beside = case_block();

	case_use(scene.y, block);
	MUST(cuStreamDestroy_v2(scene.y));
	case_use(scene.s, beside);
	case_free(block);
	return case_hand_out(block);
}

/* The new owner's stream comes after the old work all the same: else the device sees a race. */
enum outcome
case_destroyed_and_alone(void)
{
	const CUdeviceptr block = case_block();

	case_use(scene.y, block);
	MUST(cuStreamDestroy_v2(scene.y));
	case_free(block);
	return case_hand_out(block);
}
