/* SPDX-License-Identifier: MIT */
/*
 * Threads that get memory past the pool on two devices, hand it to each other and end it, while
 * contexts come and go: when all is ended, nothing is counted.
 *
 * usage: victim_external_threads DUMP-PATH    (CUSIM_DEVICES=2)
 */
#include <pthread.h>
#include <stdatomic.h>

#include "tests/preload/victim_dump.h"
#include "tests/preload/victim_sim.h"

enum {
	N_THREADS = 6,
	N_STEPS = 400,
	N_SHARED = 16,
	N_DEVICES = 2,
	UNIT = 2 << 20,
	KIB = 1 << 10,
};

enum kind { PITCHED, MANAGED, ARRAY, MIPMAP, VMM, MAPPED, ASYNC, FROM_POOL, REGISTERED, N_KINDS };

struct piece {
	enum kind kind;
	int device;
	CUdeviceptr addr;
	CUarray array;
	CUmipmappedArray mipmap;
	CUmemGenericAllocationHandle handle;
	void *host;
};

static CUcontext contexts[N_DEVICES];
static CUmemoryPool pools[N_DEVICES];
static _Atomic(struct piece *) shared[N_SHARED];

static void
get_physical(struct piece *p)
{
	const CUmemAllocationProp prop = {
		.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = p->device},
	};

	MUST(cuMemCreate(&p->handle, UNIT, &prop, 0));
	if (p->kind == VMM)
		return;
	MUST(cuMemAddressReserve(&p->addr, UNIT, 0, 0, 0));
	MUST(cuMemMap(p->addr, UNIT, 0, p->handle, 0));
	MUST(cuMemRelease(p->handle)); /* the mapping keeps it */
}

static void
get(struct piece *p)
{
	const CUDA_ARRAY3D_DESCRIPTOR how = {
		.Width = 64, .Height = 64, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 1};
	size_t pitch;

	switch (p->kind) {
	case PITCHED:
		MUST(cuMemAllocPitch_v2(&p->addr, &pitch, KIB, 4, 4));
		break;
	case MANAGED:
		MUST(cuMemAllocManaged(&p->addr, KIB, CU_MEM_ATTACH_GLOBAL));
		break;
	case ARRAY:
		MUST(cuArray3DCreate_v2(&p->array, &how));
		break;
	case MIPMAP:
		MUST(cuMipmappedArrayCreate(&p->mipmap, &how, 3));
		break;
	case VMM:
	case MAPPED:
		get_physical(p);
		break;
	case ASYNC:
		MUST(cuMemAllocAsync(&p->addr, KIB, CU_STREAM_PER_THREAD));
		break;
	case FROM_POOL:
		MUST(cuMemAllocFromPoolAsync_ptsz(&p->addr, KIB, pools[p->device], NULL));
		break;
	default:
		p->host = malloc(KIB);
		MUST(cuMemHostRegister_v2(p->host, KIB, 0));
	}
}

static void
end(struct piece *p)
{
	MUST(cuCtxSetCurrent(contexts[p->device]));
	switch (p->kind) {
	case PITCHED:
	case MANAGED:
		MUST(cuMemFree_v2(p->addr));
		break;
	case ARRAY:
		MUST(cuArrayDestroy(p->array));
		break;
	case MIPMAP:
		MUST(cuMipmappedArrayDestroy(p->mipmap));
		break;
	case VMM:
		MUST(cuMemRelease(p->handle));
		break;
	case MAPPED:
		MUST(cuMemUnmap(p->addr, UNIT));
		MUST(cuMemAddressFree(p->addr, UNIT));
		break;
	case ASYNC:
		MUST(cuMemFreeAsync_ptsz(p->addr, NULL));
		break;
	case FROM_POOL:
		MUST(cuMemFreeAsync(p->addr, CU_STREAM_LEGACY));
		break;
	default:
		MUST(cuMemHostUnregister(p->host));
		free(p->host);
	}
	free(p);
}

/* A context of its own that is destroyed with memory in it. */
static void
live_and_die(int device)
{
	CUcontext own;
	CUdeviceptr addr;

	MUST(cuCtxCreate_v2(&own, 0, device));
	MUST(cuMemAllocManaged(&addr, KIB, CU_MEM_ATTACH_GLOBAL));
	MUST(cuCtxDestroy_v2(own));
}

static void *
run(void *arg)
{
	uint64_t random = (uintptr_t)arg;

	for (int i = 0; i < N_STEPS; i++) {
		struct piece *p = calloc(1, sizeof(*p));

		if (!p)
			exit(2);
		p->kind = (enum kind)(victim_random(&random) % N_KINDS);
		p->device = (int)(victim_random(&random) % N_DEVICES);
		MUST(cuCtxSetCurrent(contexts[p->device]));
		get(p);
		p = atomic_exchange(&shared[victim_random(&random) % N_SHARED], p);
		if (p)
			end(p);
		if (i % 64 == 63)
			live_and_die((int)(victim_random(&random) % N_DEVICES));
	}
	return NULL;
}

static void
check_nothing_counted(void)
{
	static const char *const kinds[] = {"managed", "pitched",    "arrays",    "vmm",
					    "async",   "user_pools", "registered"};
	struct poolshim_api api;

	if (!poolshim_find(&api))
		return;
	for (int place = -1; place < N_DEVICES; place++) {
		const uint64_t sum = victim_dump_number(&api, place, NULL, "external_bytes");

		EXPECT(sum == 0, "%llu bytes are counted at place %d", (unsigned long long)sum,
		       place);
		EXPECT(victim_dump_number(&api, place, NULL, "external_unmeasured_count") == 0,
		       "a piece of unknown size is left at place %d", place);
		for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
			const uint64_t n = victim_dump_number(&api, place, "external", kinds[i]);
			const uint64_t peak =
				victim_dump_number(&api, place, "peak_external", kinds[i]);

			EXPECT(n == 0 || n == UINT64_MAX, "%s has %llu bytes at place %d", kinds[i],
			       (unsigned long long)n, place);
			EXPECT(place < 0 || peak > 0, "no %s was counted at place %d", kinds[i],
			       place);
		}
	}
}

int
main(int argc, char **argv)
{
	pthread_t threads[N_THREADS];
	uint64_t random = victim_seed(20261130);

	if (argc != 2)
		return 2;
	victim_dump_path = argv[1];
	MUST(cuInit(0));
	for (int device = 0; device < N_DEVICES; device++) {
		const CUmemPoolProps props = {
			.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
			.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device},
		};

		MUST(cuDevicePrimaryCtxRetain(&contexts[device], device));
		MUST(cuMemPoolCreate(&pools[device], &props));
	}
	for (int i = 0; i < N_THREADS; i++)
		pthread_create(&threads[i], NULL, run,
			       (void *)(uintptr_t)(victim_random(&random) | 1));
	for (int i = 0; i < N_THREADS; i++)
		pthread_join(threads[i], NULL);
	for (int i = 0; i < N_SHARED; i++) {
		if (shared[i])
			end(shared[i]);
	}
	check_nothing_counted();
	victim_check_device();
	return victim_end("victim_external_threads");
}
