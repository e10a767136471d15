/* SPDX-License-Identifier: MIT */
/*
 * How long memory that goes past the pool is counted: with its context, with the last handle and
 * mapping of cuMemCreate, with the driver's own figure for graphs, and from a context's creation to
 * its end.
 *
 * usage: victim_external_life DUMP-PATH    (CUSIM_CONTEXT_MEMORY=8M)
 */
#include "tests/preload/victim_dump.h"
#include "tests/preload/victim_sim.h"

enum { MIB = 1 << 20, CONTEXT_BYTES = 8 * MIB, PITCH = 512, ROWS = 16, SIDE = 256, UNIT = 2 * MIB };

static struct poolshim_api api;
static bool is_shimmed;
static char registered[MIB];

static void
expect(int device, const char *kind, uint64_t bytes, const char *when)
{
	if (is_shimmed)
		victim_dump_expect(&api, device, kind, bytes, when);
}

/* What one context may hold. */
struct pieces {
	CUdeviceptr pitched, managed, async;
	CUarray array;
	CUmemGenericAllocationHandle vmm;
};

static const CUDA_ARRAY_DESCRIPTOR array_how = {
	.Width = SIDE, .Height = SIDE, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 1};

static CUmemAllocationProp
device_prop(void)
{
	return (CUmemAllocationProp){
		.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0},
	};
}

static void
get_all(struct pieces *p)
{
	const CUmemAllocationProp prop = device_prop();
	size_t pitch;

	MUST(cuMemAllocPitch_v2(&p->pitched, &pitch, PITCH, ROWS, 4));
	MUST(cuMemAllocManaged(&p->managed, MIB, CU_MEM_ATTACH_GLOBAL));
	MUST(cuArrayCreate_v2(&p->array, &array_how));
	MUST(cuMemHostRegister_v2(registered, sizeof(registered), 0));
	MUST(cuMemCreate(&p->vmm, UNIT, &prop, 0));
	MUST(cuMemAllocAsync(&p->async, MIB, NULL));
	MUST(cuCtxSynchronize());
	expect(0, "pitched", PITCH * ROWS, "all got");
	expect(0, "managed", MIB, "all got");
	expect(0, "arrays", SIDE * SIDE * 4, "all got");
	expect(0, "registered", MIB, "all got");
	expect(-1, "registered", MIB, "all got");
	expect(0, "vmm", UNIT, "all got");
	expect(0, "async", MIB, "all got");
}

/* The context has ended: its memory is gone, that of the process is not. */
static void
check_ended(struct pieces *p, const char *how)
{
	expect(0, "pitched", 0, how);
	expect(0, "managed", 0, how);
	expect(0, "arrays", 0, how);
	expect(0, "registered", 0, how);
	expect(-1, "registered", 0, how);
	expect(0, "vmm", UNIT, how);
	expect(0, "async", MIB, how);
	MUST(cuMemRelease(p->vmm));
	MUST(cuMemFreeAsync(p->async, NULL));
	expect(0, "vmm", 0, how);
	expect(0, "async", 0, how);
}

static void
test_destroy(CUcontext primary)
{
	struct pieces p;
	CUcontext other;

	MUST(cuCtxCreate_v2(&other, 0, 0));
	get_all(&p);
	MUST(cusim_fail("cuCtxDestroy_v2", 1, CUDA_ERROR_UNKNOWN));
	EXPECT(cuCtxDestroy_v2(other) == CUDA_ERROR_UNKNOWN, "the destroy did not fail");
	expect(0, "pitched", PITCH * ROWS, "a context that was not destroyed");
	MUST(cuCtxDestroy_v2(other));
	MUST(cuCtxSetCurrent(primary));
	check_ended(&p, "the context was destroyed");
}

static CUcontext
test_reset(void)
{
	struct pieces p;
	CUcontext primary;
	unsigned flags;
	int is_active;

	get_all(&p);
	MUST(cuDevicePrimaryCtxReset_v2(0));
	MUST(cuDevicePrimaryCtxRetain(&primary, 0));
	MUST(cuCtxSetCurrent(primary));
	check_ended(&p, "the primary context was reset");

	get_all(&p);
	do {
		MUST(cuDevicePrimaryCtxRelease_v2(0));
		MUST(cuDevicePrimaryCtxGetState(0, &flags, &is_active));
	} while (is_active);
	MUST(cuDevicePrimaryCtxRetain(&primary, 0));
	MUST(cuCtxSetCurrent(primary));
	check_ended(&p, "the primary context was released");
	return primary;
}

static void
test_mappings(void)
{
	const CUmemAllocationProp prop = device_prop();
	CUmemGenericAllocationHandle handle, again;
	CUdeviceptr at;

	MUST(cuMemAddressReserve(&at, 4 * UNIT, 0, 0, 0));
	MUST(cuMemCreate(&handle, UNIT, &prop, 0));
	MUST(cuMemMap(at, UNIT, 0, handle, 0));
	MUST(cuMemMap(at + UNIT, UNIT, 0, handle, 0));
	EXPECT(cuMemMap(at, UNIT, 0, handle, 0) != CUDA_SUCCESS, "mapped over a mapping");
	MUST(cuMemRetainAllocationHandle(&again, (void *)(uintptr_t)(at + UNIT + 4096)));
	MUST(cuMemRelease(handle));
	MUST(cuMemRelease(again));
	EXPECT(cuMemRelease(handle) != CUDA_SUCCESS, "released once too often");
	expect(0, "vmm", UNIT, "released, mapped twice");
	MUST(cuMemUnmap(at, UNIT));
	EXPECT(cuMemUnmap(at, UNIT) != CUDA_SUCCESS, "unmapped twice");
	expect(0, "vmm", UNIT, "mapped once");
	MUST(cuMemRetainAllocationHandle(&again, (void *)(uintptr_t)(at + UNIT)));
	MUST(cusim_fail("cuMemUnmap", 1, CUDA_ERROR_UNKNOWN));
	EXPECT(cuMemUnmap(at + UNIT, UNIT) == CUDA_ERROR_UNKNOWN, "the unmap did not fail");
	MUST(cuMemUnmap(at + UNIT, UNIT));
	expect(0, "vmm", UNIT, "a handle is left");
	MUST(cuMemRelease(again));
	expect(0, "vmm", 0, "neither handle nor mapping");
	MUST(cuMemAddressFree(at, 4 * UNIT));
}

/* One call unmaps the mappings of several handles. */
static void
test_rows(void)
{
	const CUmemAllocationProp prop = device_prop();
	CUmemGenericAllocationHandle handles[3];
	CUdeviceptr at;

	MUST(cuMemAddressReserve(&at, 4 * UNIT, 0, 0, 0));
	for (int i = 0; i < 3; i++) {
		MUST(cuMemCreate(&handles[i], UNIT, &prop, 0));
		MUST(cuMemMap(at + (CUdeviceptr)i * UNIT, UNIT, 0, handles[i], 0));
		MUST(cuMemRelease(handles[i]));
	}
	expect(0, "vmm", 3 * UNIT, "three mapped");
	MUST(cuMemUnmap(at, 2 * UNIT));
	expect(0, "vmm", UNIT, "two of them unmapped by one call");
	MUST(cuMemUnmap(at + 2 * UNIT, UNIT));
	expect(0, "vmm", 0, "all unmapped");
	MUST(cuMemAddressFree(at, 4 * UNIT));
}

/* Contexts that were made from green ones are the driver's to serve. */
static void
test_green(CUcontext primary)
{
	CUdevResource resource;
	CUdevResourceDesc desc;
	CUgreenCtx green;
	CUcontext current;
	CUdeviceptr addr;
	void *pinned;

	MUST(cuDeviceGetDevResource(0, &resource, CU_DEV_RESOURCE_TYPE_SM));
	MUST(cuDevResourceGenerateDesc(&desc, &resource, 1));
	MUST(cuGreenCtxCreate(&green, desc, 0, CU_GREEN_CTX_DEFAULT_STREAM));
	MUST(cuCtxFromGreenCtx(&current, green));
	MUST(cuCtxSetCurrent(current));
	MUST(cuMemAlloc_v2(&addr, MIB));
	MUST(cuMemHostAlloc(&pinned, MIB, 0));
	expect(0, "plain", MIB, "in a green context");
	expect(-1, "pinned", MIB, "in a green context");
	MUST(cuMemFree_v2(addr));
	MUST(cuMemFreeHost(pinned));
	expect(0, "plain", 0, "freed");
	expect(-1, "pinned", 0, "freed");
	MUST(cuCtxSetCurrent(primary));
	MUST(cuGreenCtxDestroy(green));
}

/* Whichever call makes the node, the figure is the driver's, and read when it may have changed. */
static void
run_graph(CUgraph graph, const char *how)
{
	CUgraphExec exec;

	expect(0, "graph", 0, how);
	MUST(cuGraphInstantiateWithFlags(&exec, graph, 0));
	MUST(cuGraphLaunch(exec, NULL));
	expect(0, "graph", MIB, how);
	expect(0, "async", 0, how);
	MUST(cuCtxSynchronize());
	MUST(cuGraphExecDestroy(exec));
	MUST(cuGraphDestroy(graph));
	MUST(cuDeviceGraphMemTrim(0));
	expect(0, "graph", 0, "trimmed");
}

static void
test_graphs(void)
{
	CUDA_MEM_ALLOC_NODE_PARAMS old = {
		.poolProps = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
			      .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}},
		.bytesize = MIB,
	};
	CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_MEM_ALLOC};
	CUgraphNode node;
	CUstream stream;
	CUdeviceptr addr;
	CUgraph graph;

	MUST(cuGraphCreate(&graph, 0));
	MUST(cuGraphAddMemAllocNode(&node, graph, NULL, 0, &old));
	run_graph(graph, "cuGraphAddMemAllocNode");

	params.alloc.poolProps = old.poolProps;
	params.alloc.bytesize = MIB;
	MUST(cuGraphCreate(&graph, 0));
	MUST(cuGraphAddNode_v2(&node, graph, NULL, NULL, 0, &params));
	run_graph(graph, "cuGraphAddNode");

	MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	MUST(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
	MUST(cuMemAllocAsync(&addr, MIB, stream));
	expect(0, "async", 0, "captured");
	MUST(cuMemFreeAsync(addr, stream));
	MUST(cuStreamEndCapture(stream, &graph));
	run_graph(graph, "captured");
	MUST(cuStreamDestroy_v2(stream));
}

/* The first context of a process cannot be measured, so nothing is told of it. */
static void
test_overhead(CUcontext primary)
{
	CUcontext others[2];

	expect(0, "context", UINT64_MAX, "the first context");
	MUST(cusim_fail("cuCtxCreate_v2", 1, CUDA_ERROR_UNKNOWN));
	EXPECT(cuCtxCreate_v2(&others[0], 0, 0) == CUDA_ERROR_UNKNOWN, "the creation did not fail");
	expect(0, "context", UINT64_MAX, "none was made");
	for (int i = 0; i < 2; i++)
		MUST(cuCtxCreate_v2(&others[i], 0, 0));
	expect(0, "context", 2 * CONTEXT_BYTES, "two further contexts");
	MUST(cuCtxDestroy_v2(others[1]));
	expect(0, "context", CONTEXT_BYTES, "one destroyed");
	MUST(cuDevicePrimaryCtxReset_v2(0));
	expect(0, "context", CONTEXT_BYTES, "the primary one reset");
	MUST(cuDevicePrimaryCtxRetain(&primary, 0));
	expect(0, "context", 2 * CONTEXT_BYTES, "made anew beside another");
	MUST(cuDevicePrimaryCtxRetain(&primary, 0));
	expect(0, "context", 2 * CONTEXT_BYTES, "retained once more");
	MUST(cuCtxDestroy_v2(others[0]));
	MUST(cuCtxSetCurrent(primary));
}

/* To learn the size of an array the shim waits for no work: destroying one would. */
static void
test_no_wait(void)
{
	struct cusim_report before, after;
	CUDA_ARRAY_DESCRIPTOR how = array_how;
	struct victim_kernels kernels = victim_kernels_load();
	CUstream stream;
	CUarray array;

	how.Height = 2 * SIDE; /* not asked for before */
	MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	cusim_set_mode(CUSIM_MANUAL);
	victim_spin(&kernels, stream, 0, 1000);
	cusim_get_report(&before);
	MUST(cuArrayCreate_v2(&array, &how));
	cusim_get_report(&after);
	EXPECT(after.n_free_waits == before.n_free_waits, "the creation of an array waited");
	expect(0, "arrays", 2 * SIDE * SIDE * 4, "beside a kernel");
	MUST(cuArrayDestroy(array));
	cusim_set_mode(CUSIM_AUTO);
	MUST(cuStreamDestroy_v2(stream));
}

/* A driver that does not tell the size of an array. */
static void
test_unmeasured(void)
{
	CUDA_ARRAY_DESCRIPTOR how = array_how;
	CUarray array;

	how.Width = 2 * SIDE; /* not asked for before */
	MUST(cusim_fail("cuArrayGetMemoryRequirements", 0, CUDA_ERROR_NOT_SUPPORTED));
	MUST(cuArrayCreate_v2(&array, &how));
	expect(0, "arrays", 0, "of unknown size");
	EXPECT(!is_shimmed || victim_dump_number(&api, 0, NULL, "external_unmeasured_count") == 1,
	       "an array of unknown size is not told");
	MUST(cuArrayDestroy(array));
	EXPECT(!is_shimmed || victim_dump_number(&api, 0, NULL, "external_unmeasured_count") == 0,
	       "it is told after its end");
	cusim_fail_clear();
}

int
main(int argc, char **argv)
{
	CUcontext primary;

	if (argc != 2)
		return 2;
	victim_dump_path = argv[1];
	primary = victim_start();
	is_shimmed = poolshim_find(&api);
	test_overhead(primary);
	MUST(cuCtxGetCurrent(&primary));
	test_destroy(primary);
	primary = test_reset();
	test_mappings();
	test_rows();
	test_green(primary);
	test_graphs();
	test_no_wait();
	test_unmeasured();
	EXPECT(cusim_violations() == 0, "memory was touched that was not allocated");
	return victim_end("victim_external_life");
}
