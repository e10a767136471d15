/* SPDX-License-Identifier: MIT */
/*
 * A driver that does not answer the questions of the count: what it does not tell is counted as of
 * unknown size or not at all, and every call does what it does natively.
 *
 * usage: victim_external_bare DUMP-PATH
 */
#include "tests/preload/victim_dump.h"
#include "tests/preload/victim_sim.h"

enum { MIB = 1 << 20, SIDE = 256, UNIT = 2 * MIB };

static struct poolshim_api api;
static bool is_shimmed;

static void
expect_unmeasured(uint64_t n, const char *when)
{
	uint64_t found;

	if (!is_shimmed)
		return;
	found = victim_dump_number(&api, 0, NULL, "external_unmeasured_count");
	EXPECT(found == n, "%s: %llu pieces of unknown size, not %llu", when,
	       (unsigned long long)found, (unsigned long long)n);
	victim_dump_expect(&api, 0, "arrays", 0, when);
}

static void
test_arrays(void)
{
	const CUDA_ARRAY3D_DESCRIPTOR how = {
		.Width = SIDE, .Height = SIDE, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 1};
	CUmipmappedArray mipmap;
	CUarray array;

	MUST(cuArray3DCreate_v2(&array, &how));
	MUST(cuMipmappedArrayCreate(&mipmap, &how, 2));
	expect_unmeasured(2, "an array and a mipmap");
	MUST(cuArrayDestroy(array));
	MUST(cuMipmappedArrayDestroy(mipmap));
	expect_unmeasured(0, "destroyed");
}

static void
test_import(void)
{
	const CUmemAllocationProp prop = {
		.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
		.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0},
	};
	CUmemGenericAllocationHandle handle, imported;
	CUdeviceptr at;
	int fd;

	MUST(cuMemAddressReserve(&at, UNIT, 0, 0, 0));
	MUST(cuMemCreate(&handle, UNIT, &prop, 0));
	MUST(cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
					  0));
	MUST(cuMemImportFromShareableHandle(&imported, (void *)(intptr_t)fd,
					    CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
	MUST(cuMemMap(at, UNIT, 0, imported, 0));
	if (is_shimmed)
		victim_dump_expect(&api, 0, "imported", 0, "nobody tells where it lies");
	MUST(cuMemUnmap(at, UNIT));
	MUST(cuMemRelease(imported));
	MUST(cuMemRelease(handle));
	MUST(cuMemAddressFree(at, UNIT));
}

static void
test_graph(void)
{
	CUDA_MEM_ALLOC_NODE_PARAMS params = {
		.poolProps = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
			      .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}},
		.bytesize = MIB,
	};
	CUgraphExec exec;
	CUgraphNode node;
	CUgraph graph;

	MUST(cuGraphCreate(&graph, 0));
	MUST(cuGraphAddMemAllocNode(&node, graph, NULL, 0, &params));
	MUST(cuGraphInstantiateWithFlags(&exec, graph, 0));
	MUST(cuGraphLaunch(exec, NULL));
	MUST(cuCtxSynchronize());
	if (is_shimmed)
		victim_dump_expect(&api, 0, "graph", 0, "nobody tells what graphs keep");
	MUST(cuGraphExecDestroy(exec));
	MUST(cuGraphDestroy(graph));
}

int
main(int argc, char **argv)
{
	if (argc != 2)
		return 2;
	victim_dump_path = argv[1];
	victim_start();
	is_shimmed = poolshim_find(&api);
	test_arrays();
	test_import();
	test_graph();
	victim_check_device();
	return victim_end("victim_external_bare");
}
