/* SPDX-License-Identifier: MIT */
/*
 * Memory that goes past the pool is counted, by kind, where it lies: each row gets one piece on
 * each of two devices and ends it again. A call that fails changes nothing, and neither does a
 * second end.
 *
 * usage: victim_external DUMP-PATH
 * Without the shim only the driver's answers are checked.
 */
#include "tests/preload/victim_dump.h"
#include "tests/sim/sim.h"

enum { MIB = 1 << 20, N_DEVICES = 2, WIDTH = 1000, ROWS = 300, PITCH = 1024, SIDE = 256 };

struct piece {
	CUdeviceptr addr;
	CUarray array;
	CUmipmappedArray mipmap;
	CUmemGenericAllocationHandle handle;
	CUmemoryPool pool;
	int device;
};

static struct poolshim_api api;
static bool is_shimmed;
static CUcontext contexts[N_DEVICES];
static char host_bytes[4 * MIB];

static CUresult
get_pitch(struct piece *p)
{
	size_t pitch;

	return cuMemAllocPitch_v2(&p->addr, &pitch, WIDTH, ROWS, 4);
}

static CUresult
get_managed(struct piece *p)
{
	return cuMemAllocManaged(&p->addr, MIB, CU_MEM_ATTACH_GLOBAL);
}

static CUresult
free_addr(struct piece *p)
{
	return cuMemFree_v2(p->addr);
}

static CUresult
get_array(struct piece *p)
{
	const CUDA_ARRAY_DESCRIPTOR how = {
		.Width = SIDE, .Height = SIDE, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 4};

	return cuArrayCreate_v2(&p->array, &how);
}

static CUresult
get_array3d(struct piece *p)
{
	const CUDA_ARRAY3D_DESCRIPTOR how = {.Width = SIDE,
					     .Height = SIDE,
					     .Depth = 2,
					     .Format = CU_AD_FORMAT_HALF,
					     .NumChannels = 1};

	return cuArray3DCreate_v2(&p->array, &how);
}

/* The forms of CUDA 2. */
static CUresult
get_old_array(struct piece *p)
{
	const CUDA_ARRAY_DESCRIPTOR_v1 how = {
		.Width = SIDE, .Height = SIDE, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 2};

	return cuArrayCreate(&p->array, &how);
}

static CUresult
get_old_array3d(struct piece *p)
{
	const CUDA_ARRAY3D_DESCRIPTOR_v1 how = {.Width = SIDE,
						.Height = SIDE,
						.Depth = 3,
						.Format = CU_AD_FORMAT_FLOAT,
						.NumChannels = 1};

	return cuArray3DCreate(&p->array, &how);
}

static CUresult
get_old_pinned(struct piece *p)
{
	void *bytes = NULL;
	CUresult r = cuMemAllocHost(&bytes, MIB);

	p->addr = (CUdeviceptr)(uintptr_t)bytes;
	return r;
}

static CUresult
free_pinned(struct piece *p)
{
	return cuMemFreeHost((void *)(uintptr_t)p->addr);
}

static CUresult
get_sparse(struct piece *p)
{
	const CUDA_ARRAY3D_DESCRIPTOR how = {.Width = SIDE,
					     .Height = SIDE,
					     .Format = CU_AD_FORMAT_FLOAT,
					     .NumChannels = 1,
					     .Flags = CUDA_ARRAY3D_SPARSE};

	return cuArray3DCreate_v2(&p->array, &how);
}

static CUresult
get_deferred(struct piece *p)
{
	const CUDA_ARRAY3D_DESCRIPTOR how = {.Width = SIDE,
					     .Height = SIDE,
					     .Format = CU_AD_FORMAT_FLOAT,
					     .NumChannels = 1,
					     .Flags = CUDA_ARRAY3D_DEFERRED_MAPPING};

	return cuArray3DCreate_v2(&p->array, &how);
}

static CUresult
end_array(struct piece *p)
{
	return cuArrayDestroy(p->array);
}

static CUresult
get_mipmap(struct piece *p)
{
	const CUDA_ARRAY3D_DESCRIPTOR how = {
		.Width = SIDE, .Height = SIDE, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 1};

	return cuMipmappedArrayCreate(&p->mipmap, &how, 2);
}

static CUresult
end_mipmap(struct piece *p)
{
	return cuMipmappedArrayDestroy(p->mipmap);
}

static CUresult
create(struct piece *p, CUmemLocationType type)
{
	const CUmemAllocationProp prop = {
		.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.location = {.type = type, .id = p->device},
	};

	return cuMemCreate(&p->handle, 4 * MIB, &prop, 0);
}

/* The device of the request, not the current one, is the place. */
static CUresult
get_vmm(struct piece *p)
{
	CUresult r;

	MUST(cuCtxSetCurrent(contexts[1 - p->device]));
	r = create(p, CU_MEM_LOCATION_TYPE_DEVICE);
	MUST(cuCtxSetCurrent(contexts[p->device]));
	return r;
}

static CUresult
get_vmm_host(struct piece *p)
{
	return create(p, CU_MEM_LOCATION_TYPE_HOST);
}

static CUresult
get_vmm_numa(struct piece *p)
{
	return create(p, CU_MEM_LOCATION_TYPE_HOST_NUMA);
}

static CUresult
end_vmm(struct piece *p)
{
	return cuMemRelease(p->handle);
}

static CUresult
get_async(struct piece *p)
{
	return cuMemAllocAsync(&p->addr, MIB, NULL);
}

static CUresult
get_async_ptsz(struct piece *p)
{
	return cuMemAllocAsync_ptsz(&p->addr, MIB, NULL);
}

static CUresult
free_async(struct piece *p)
{
	return cuMemFreeAsync(p->addr, NULL);
}

static CUresult
free_async_ptsz(struct piece *p)
{
	return cuMemFreeAsync_ptsz(p->addr, NULL);
}

static CUresult
get_from_default(struct piece *p)
{
	MUST(cuDeviceGetDefaultMemPool(&p->pool, p->device));
	return cuMemAllocFromPoolAsync(&p->addr, MIB, p->pool, NULL);
}

static CUmemoryPool
user_pool(int device)
{
	static CUmemoryPool pools[N_DEVICES];
	const CUmemPoolProps props = {
		.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
		.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device},
	};

	if (!pools[device])
		MUST(cuMemPoolCreate(&pools[device], &props));
	return pools[device];
}

static CUresult
get_from_user(struct piece *p)
{
	return cuMemAllocFromPoolAsync_ptsz(&p->addr, MIB, user_pool(p->device), NULL);
}

/* cuMemAllocAsync serves from whichever pool is current. */
static CUresult
get_from_current(struct piece *p)
{
	CUmemoryPool usual;
	CUresult r;

	MUST(cuDeviceGetDefaultMemPool(&usual, p->device));
	MUST(cuDeviceSetMemPool(p->device, user_pool(p->device)));
	r = cuMemAllocAsync(&p->addr, MIB, NULL);
	MUST(cuDeviceSetMemPool(p->device, usual));
	return r;
}

static CUresult
get_registered(struct piece *p)
{
	(void)p;
	return cuMemHostRegister_v2(host_bytes, sizeof(host_bytes), 0);
}

static CUresult
get_registered_old(struct piece *p)
{
	(void)p;
	return cuMemHostRegister(host_bytes, sizeof(host_bytes), 0);
}

static CUresult
end_registered(struct piece *p)
{
	(void)p;
	return cuMemHostUnregister(host_bytes);
}

static const struct row {
	const char *kind;
	const char *get_name, *end_name; /* driver functions that are made to fail */
	CUresult (*get)(struct piece *p);
	CUresult (*end)(struct piece *p);
	uint64_t bytes;
	bool is_on_host;
} rows[] = {
	{"pitched", "cuMemAllocPitch_v2", "cuMemFree_v2", get_pitch, free_addr, PITCH *ROWS, false},
	{"managed", "cuMemAllocManaged", "cuMemFree_v2", get_managed, free_addr, MIB, false},
	{"arrays", "cuArrayCreate_v2", "cuArrayDestroy", get_array, end_array, SIDE *SIDE * 16,
	 false},
	{"arrays", "cuArray3DCreate_v2", "cuArrayDestroy", get_array3d, end_array, SIDE *SIDE * 4,
	 false},
	{"arrays", "cuArrayCreate", "cuArrayDestroy", get_old_array, end_array, SIDE *SIDE * 8,
	 false},
	{"arrays", "cuArray3DCreate", "cuArrayDestroy", get_old_array3d, end_array, SIDE *SIDE * 12,
	 false},
	{"pinned", "cuMemAllocHost", "cuMemFreeHost", get_old_pinned, free_pinned, MIB, true},
	{"arrays", "cuArray3DCreate_v2", "cuArrayDestroy", get_sparse, end_array, 0, false},
	{"arrays", "cuArray3DCreate_v2", "cuArrayDestroy", get_deferred, end_array, 0, false},
	{"arrays", "cuMipmappedArrayCreate", "cuMipmappedArrayDestroy", get_mipmap, end_mipmap,
	 SIDE *SIDE * 5, false},
	{"vmm", "cuMemCreate", "cuMemRelease", get_vmm, end_vmm, 4 * MIB, false},
	{"vmm", "cuMemCreate", "cuMemRelease", get_vmm_host, end_vmm, 4 * MIB, true},
	{"vmm", "cuMemCreate", "cuMemRelease", get_vmm_numa, end_vmm, 4 * MIB, true},
	{"async", "cuMemAllocAsync", "cuMemFreeAsync", get_async, free_async, MIB, false},
	{"async", "cuMemAllocAsync_ptsz", "cuMemFreeAsync_ptsz", get_async_ptsz, free_async_ptsz,
	 MIB, false},
	{"async", "cuMemAllocAsync", "cuMemFree_v2", get_async, free_addr, MIB, false},
	{"async", "cuMemAllocFromPoolAsync", "cuMemFreeAsync", get_from_default, free_async, MIB,
	 false},
	{"user_pools", "cuMemAllocFromPoolAsync_ptsz", "cuMemFreeAsync_ptsz", get_from_user,
	 free_async_ptsz, MIB, false},
	{"user_pools", "cuMemAllocAsync", "cuMemFreeAsync", get_from_current, free_async, MIB,
	 false},
	{"registered", "cuMemHostRegister_v2", "cuMemHostUnregister", get_registered,
	 end_registered, sizeof(host_bytes), true},
	{"registered", "cuMemHostRegister", "cuMemHostUnregister", get_registered_old,
	 end_registered, sizeof(host_bytes), true},
};

/* What is counted for the kind is `bytes` where the piece lies, and nothing anywhere else. */
static void
check(const struct row *row, int device, uint64_t bytes, const char *when)
{
	if (!is_shimmed)
		return;
	for (int place = -1; place < N_DEVICES; place++) {
		const bool is_there = row->is_on_host ? place < 0 : place == device;
		const bool is_via = strcmp(row->kind, "registered") == 0 && place == device;
		const uint64_t kind = victim_dump_number(&api, place, "external", row->kind);
		const uint64_t sum = victim_dump_number(&api, place, NULL, "external_bytes");

		if (kind == UINT64_MAX && !is_there)
			continue; /* no such kind there */
		EXPECT(kind == (is_there || is_via ? bytes : 0),
		       "%s by %s on device %d, %s: %llu bytes at place %d", row->kind,
		       row->get_name, device, when, (unsigned long long)kind, place);
		EXPECT(sum == (is_there ? bytes : 0),
		       "%s by %s on device %d, %s: the sum at place %d is %llu", row->kind,
		       row->get_name, device, when, place, (unsigned long long)sum);
	}
}

static void
run(const struct row *row, int device)
{
	struct piece piece = {.device = device};
	CUresult r;

	MUST(cuCtxSetCurrent(contexts[device]));
	MUST(cusim_fail(row->get_name, 1, CUDA_ERROR_UNKNOWN));
	EXPECT(row->get(&piece) == CUDA_ERROR_UNKNOWN, "%s did not fail", row->get_name);
	check(row, device, 0, "not got");
	r = row->get(&piece);
	EXPECT(r == CUDA_SUCCESS, "%s gave error %d", row->get_name, r);
	check(row, device, row->bytes, "got");
	MUST(cusim_fail(row->end_name, 1, CUDA_ERROR_UNKNOWN));
	EXPECT(row->end(&piece) == CUDA_ERROR_UNKNOWN, "%s did not fail", row->end_name);
	check(row, device, row->bytes, "not ended");
	r = row->end(&piece);
	EXPECT(r == CUDA_SUCCESS, "%s gave error %d", row->end_name, r);
	check(row, device, 0, "ended");
	EXPECT(row->end(&piece) != CUDA_SUCCESS, "%s ended twice", row->end_name);
	check(row, device, 0, "ended twice");
	MUST(cuCtxSynchronize());
}

int
main(int argc, char **argv)
{
	if (argc != 2)
		return 2;
	victim_dump_path = argv[1];
	MUST(cuInit(0));
	for (int device = 0; device < N_DEVICES; device++)
		MUST(cuDevicePrimaryCtxRetain(&contexts[device], device));
	is_shimmed = poolshim_find(&api);
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		for (int device = 0; device < N_DEVICES; device++)
			run(&rows[i], device);
	EXPECT(cusim_violations() == 0, "memory was touched that was not allocated");
	return victim_end("victim_external");
}
