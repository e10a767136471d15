/* SPDX-License-Identifier: MIT */
/*
 * Memory that goes past the pool, one kind after the other: what the shim counts of it, beside what
 * the driver says that it took.
 *
 * usage: gpu_external DUMP-PATH
 *
 * Prints, the same natively and shimmed, the statuses; and for each kind, on lines that are not
 * compared, "TIME KIND asked N taken N counted N left N": taken by the driver's memory info,
 * counted by the shim while the memory is there and left after its end; counts are -1 without the
 * shim.
 */
#include "tests/preload/victim_dump.h"

enum { MIB = 1 << 20, BIG = 256 * MIB };

struct piece {
	CUdeviceptr addr;
	CUarray array;
	CUmipmappedArray mipmap;
	CUmemGenericAllocationHandle handle;
	CUmemoryPool pool;
	CUcontext context;
	CUgraph graph;
	CUgraphExec exec;
	void *host;
};

static struct poolshim_api api;
static bool is_shimmed;
static CUdevice device;
static CUcontext primary;

static int
get_managed(struct piece *p)
{
	return cuMemAllocManaged(&p->addr, BIG / 4, CU_MEM_ATTACH_GLOBAL);
}

static int
end_address(struct piece *p)
{
	return cuMemFree_v2(p->addr);
}

static int
get_pitched(struct piece *p)
{
	size_t pitch;
	int r = cuMemAllocPitch_v2(&p->addr, &pitch, MIB - 100, BIG / MIB, 16);

	return r ? r : pitch != MIB;
}

static int
get_array(struct piece *p)
{
	const CUDA_ARRAY_DESCRIPTOR how = {
		.Width = 4096, .Height = 4096, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 4};

	return cuArrayCreate_v2(&p->array, &how);
}

static int
get_array_3d(struct piece *p)
{
	const CUDA_ARRAY3D_DESCRIPTOR how = {.Width = 256,
					     .Height = 256,
					     .Depth = 1024,
					     .Format = CU_AD_FORMAT_FLOAT,
					     .NumChannels = 1};

	return cuArray3DCreate_v2(&p->array, &how);
}

static int
end_array(struct piece *p)
{
	return cuArrayDestroy(p->array);
}

static int
get_mipmap(struct piece *p)
{
	const CUDA_ARRAY3D_DESCRIPTOR how = {
		.Width = 4096, .Height = 4096, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 4};

	return cuMipmappedArrayCreate(&p->mipmap, &how, 13);
}

static int
end_mipmap(struct piece *p)
{
	return cuMipmappedArrayDestroy(p->mipmap);
}

static int
get_vmm(struct piece *p)
{
	const CUmemAllocationProp how = {
		.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0},
	};

	return cuMemCreate(&p->handle, BIG, &how, 0);
}

static int
get_vmm_host(struct piece *p)
{
	const CUmemAllocationProp how = {
		.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.location = {.type = CU_MEM_LOCATION_TYPE_HOST_NUMA, .id = 0},
	};

	return cuMemCreate(&p->handle, BIG / 4, &how, 0);
}

static int
end_vmm(struct piece *p)
{
	return cuMemRelease(p->handle);
}

static int
get_async(struct piece *p)
{
	int r = cuMemAllocAsync(&p->addr, BIG, NULL);

	return r ? r : (int)cuStreamSynchronize(NULL);
}

static int
end_async(struct piece *p)
{
	int r = cuMemFreeAsync(p->addr, NULL);

	return r ? r : (int)cuStreamSynchronize(NULL);
}

static int
get_user_pool(struct piece *p)
{
	const CUmemPoolProps how = {
		.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
		.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0},
	};
	int r = cuMemPoolCreate(&p->pool, &how);

	if (!r)
		r = cuMemAllocFromPoolAsync(&p->addr, BIG, p->pool, NULL);
	return r ? r : (int)cuStreamSynchronize(NULL);
}

static int
end_user_pool(struct piece *p)
{
	int r = end_async(p);

	return r ? r : (int)cuMemPoolDestroy(p->pool);
}

/* A graph that takes memory and writes it; what it takes stays with the driver until it is trimmed.
 */
static int
get_graph(struct piece *p)
{
	const CUmemPoolProps where = {
		.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
		.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0},
	};
	CUDA_MEM_ALLOC_NODE_PARAMS how = {.poolProps = where, .bytesize = BIG};
	CUDA_MEMSET_NODE_PARAMS set = {.elementSize = 4, .value = 7, .width = BIG / 4, .height = 1};
	CUgraphNode made, written, freed;
	int r = cuGraphCreate(&p->graph, 0);

	if (!r)
		r = cuGraphAddMemAllocNode(&made, p->graph, NULL, 0, &how);
	set.dst = how.dptr;
	if (!r)
		r = cuGraphAddMemsetNode(&written, p->graph, &made, 1, &set, primary);
	if (!r)
		r = cuGraphAddMemFreeNode(&freed, p->graph, &written, 1, how.dptr);
	if (!r)
		r = cuGraphInstantiateWithFlags(&p->exec, p->graph, 0);
	if (!r)
		r = cuGraphLaunch(p->exec, NULL);
	return r ? r : (int)cuStreamSynchronize(NULL);
}

static int
end_graph(struct piece *p)
{
	int r = cuGraphExecDestroy(p->exec);

	if (!r)
		r = cuGraphDestroy(p->graph);
	return r ? r : (int)cuDeviceGraphMemTrim(device);
}

static int
get_registered(struct piece *p)
{
	p->host = aligned_alloc(4096, BIG / 4);
	return p->host ? (int)cuMemHostRegister_v2(p->host, BIG / 4, 0) : -1;
}

static int
end_registered(struct piece *p)
{
	int r = cuMemHostUnregister(p->host);

	free(p->host);
	return r;
}

static int
get_context(struct piece *p)
{
	int r = cuCtxCreate_v2(&p->context, 0, device);

	if (!r)
		r = cuCtxSetCurrent(primary);
	return r;
}

static int
end_context(struct piece *p)
{
	return cuCtxDestroy_v2(p->context);
}

static const struct row {
	const char *name, *kind;
	int place; /* device, or -1 for the host */
	unsigned long asked;
	int (*get)(struct piece *p), (*end)(struct piece *p);
} rows[] = {
	{"managed", "managed", 0, BIG / 4, get_managed, end_address},
	{"pitched", "pitched", 0, BIG, get_pitched, end_address},
	{"array", "arrays", 0, BIG, get_array, end_array},
	{"array_3d", "arrays", 0, BIG, get_array_3d, end_array},
	{"mipmap", "arrays", 0, 0, get_mipmap, end_mipmap},
	{"vmm", "vmm", 0, BIG, get_vmm, end_vmm},
	{"vmm_host", "vmm", -1, BIG / 4, get_vmm_host, end_vmm},
	{"async", "async", 0, BIG, get_async, end_async},
	{"user_pool", "user_pools", 0, BIG, get_user_pool, end_user_pool},
	{"graph", "graph", 0, BIG, get_graph, end_graph},
	{"registered", "registered", -1, BIG / 4, get_registered, end_registered},
	{"context", "context", 0, 0, get_context, end_context},
};

static long long
counted(const struct row *row)
{
	long long n_bytes;

	if (!is_shimmed)
		return -1;
	n_bytes = (long long)victim_dump_number(&api, row->place, "external", row->kind);
	return n_bytes < 0 ? 0 : n_bytes; /* a kind may be absent until it was measured */
}

static long long
free_now(void)
{
	size_t free_bytes = 0, total_bytes;

	MUST(cuMemGetInfo_v2(&free_bytes, &total_bytes));
	return (long long)free_bytes;
}

static void
run(const struct row *row)
{
	const long long before = counted(row), at_first = free_now();
	struct piece piece = {0};
	long long taken, meanwhile;
	int got, ended = -1;

	got = row->get(&piece);
	taken = at_first - free_now();
	meanwhile = counted(row);
	if (!got)
		ended = row->end(&piece);
	printf("external: %s: got %d, ended %d\n", row->name, got, ended);
	printf("TIME %s asked %lu taken %lld counted %lld left %lld\n", row->name, row->asked,
	       taken, is_shimmed ? meanwhile - before : -1,
	       is_shimmed ? counted(row) - before : -1);
	fflush(stdout);
}

int
main(int argc, char **argv)
{
	victim_dump_path = argc > 1 ? argv[1] : "";
	primary = victim_start();
	is_shimmed = poolshim_find(&api);
	MUST(cuDeviceGet(&device, 0));
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		run(&rows[i]);
	return 0;
}
