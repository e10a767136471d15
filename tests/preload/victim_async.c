/* SPDX-License-Identifier: MIT */
/*
 * The stream-ordered API on the default pool: what is handed out to whom, and when; the same
 * statuses as natively; no unordered accesses (CUSIM_CHECK=1).
 *
 * usage: victim_async [native]    (native: the shim leaves the API to the driver)
 */
#include "tests/preload/victim_sim.h"

enum { N_BYTES = 12 << 20, MIB = 1 << 20, OLD = 0x11, NEW = 0x5c, SPIN_NS = 1000 };

enum who { PLAIN, IN_S, IN_T, N_WHO };

static const char *const who_names[N_WHO] = {"plain", "in S", "in T"};

static struct poolshim_api api;
static bool is_shimmed, is_served;
static struct victim_kernels kernels;
static CUstream streams[N_WHO]; /* by enum who; streams[PLAIN]: a third one */
static CUevent event;
static unsigned char seen[N_BYTES];

static CUdeviceptr
get(enum who who, size_t n_bytes)
{
	CUdeviceptr addr = 0;

	if (who == PLAIN)
		MUST(cuMemAlloc_v2(&addr, n_bytes));
	else
		MUST(cuMemAllocAsync(&addr, n_bytes, streams[who]));
	return addr;
}

static void
put(enum who who, CUdeviceptr addr)
{
	if (who == PLAIN)
		MUST(cuMemFree_v2(addr));
	else
		MUST(cuMemFreeAsync(addr, streams[who]));
}

static void
settle(void)
{
	MUST(cuCtxSynchronize());
	if (is_shimmed)
		api.free_all_blocks(0);
}

static void
order(CUstream from, CUstream to)
{
	if (from == to)
		return;
	MUST(cuEventRecord(event, from));
	MUST(cuStreamWaitEvent(to, event, 0));
}

static CUstream
work_stream(enum who who)
{
	return streams[who == PLAIN ? IN_S : who];
}

/* Calls of the shim's that have to do with order, or with getting memory. */
static uint64_t
n_order_calls(void)
{
	return cusim_call_count("cuCtxRecordEvent") + cusim_call_count("cuEventRecord") +
	       cusim_call_count("cuEventQuery") + cusim_call_count("cuStreamWaitEvent") +
	       cusim_call_count("cuMemAlloc") + cusim_call_count("cuMemAllocAsync");
}

static void
check_bytes(CUdeviceptr addr, const char *name)
{
	size_t n_wrong = 0;

	MUST(cuMemcpyDtoH_v2(seen, addr, N_BYTES));
	for (size_t i = 0; i < N_BYTES; i++)
		n_wrong += seen[i] != NEW;
	EXPECT(n_wrong == 0, "%s: %zu bytes are not the new owner's", name, n_wrong);
}

/* A block is freed while its work is unfinished, beside unfinished work of another stream; then
 * somebody asks for as much. */
static void
run_cell(enum who alloc, enum who freed, enum who next)
{
	const CUstream user = work_stream(freed), next_user = work_stream(next);
	char name[64];
	CUdeviceptr block, again, third;
	uint64_t n_calls;

	snprintf(name, sizeof(name), "allocated %s, freed %s, next %s", who_names[alloc],
		 who_names[freed], who_names[next]);
	settle();
	victim_spin(&kernels, streams[PLAIN], 0, SPIN_NS);
	victim_spin(&kernels, user, 0, SPIN_NS);
	block = get(alloc, N_BYTES);
	if (alloc != PLAIN)
		order(streams[alloc], user);
	victim_fill(&kernels, user, block, OLD, N_BYTES);
	put(freed, block);
	cusim_reset_counts();
	again = get(next, N_BYTES);
	n_calls = n_order_calls();
	if (is_served && freed != PLAIN && next == freed) {
		EXPECT(again == block, "%s: the stream did not get its memory back", name);
		EXPECT(n_calls == 0, "%s: %llu calls for memory of the stream's own", name,
		       (unsigned long long)n_calls);
	} else if (is_served) {
		EXPECT(again != block, "%s: handed out before it was complete", name);
	}
	victim_fill(&kernels, next_user, again, NEW, N_BYTES);
	MUST(cuStreamSynchronize(next_user));
	check_bytes(again, name);
	MUST(cuCtxSynchronize());
	third = get(next == IN_S ? IN_T : IN_S, N_BYTES);
	EXPECT(!is_served || again == block || third == block,
	       "%s: a complete block is not handed out", name);
	MUST(cuCtxSynchronize());
	put(PLAIN, third);
	put(next, again);
}

static void
run_table(void)
{
	for (int alloc = 0; alloc < N_WHO; alloc++)
		for (int freed = 0; freed < N_WHO; freed++)
			for (int next = 0; next < N_WHO; next++)
				run_cell(alloc, freed, next);
	settle();
}

/* Memory that is no node of the graph cannot be freed in it; a request in it is a node. */
static void
run_capturing(enum who alloc, enum who capturing)
{
	size_t used_bytes;
	CUdeviceptr block, node;
	CUgraph graph;
	CUresult r;

	settle();
	block = get(alloc, N_BYTES);
	MUST(cuCtxSynchronize());
	MUST(cuStreamBeginCapture_v2(streams[capturing], CU_STREAM_CAPTURE_MODE_RELAXED));
	r = cuMemFreeAsync(block, streams[capturing]);
	EXPECT(r == CUDA_ERROR_INVALID_VALUE, "allocated %s, freed in a capture: %d",
	       who_names[alloc], r);
	used_bytes = is_shimmed ? api.used_bytes(0) : 0;
	node = get(capturing, N_BYTES);
	EXPECT(!is_shimmed || api.used_bytes(0) == used_bytes, "a node came from the pool");
	EXPECT(node != block, "a node lies in live memory");
	MUST(cuMemFreeAsync(node, streams[capturing]));
	MUST(cuStreamEndCapture(streams[capturing], &graph));
	MUST(cuGraphDestroy(graph));
	put(capturing, block); /* it is live still */
}

/* While another stream captures, S has its memory back, and nobody else does. */
static void
run_beside_a_capture(void)
{
	CUdeviceptr block, again, other;
	CUgraph graph;

	settle();
	block = get(IN_S, N_BYTES);
	MUST(cuStreamBeginCapture_v2(streams[IN_T], CU_STREAM_CAPTURE_MODE_RELAXED));
	victim_fill(&kernels, streams[IN_S], block, OLD, N_BYTES);
	put(IN_S, block);
	other = get(PLAIN, N_BYTES);
	again = get(IN_S, N_BYTES);
	EXPECT(!is_served || other != block, "handed out before it was complete");
	EXPECT(!is_served || again == block, "S did not get its memory back beside a capture");
	MUST(cuStreamEndCapture(streams[IN_T], &graph));
	MUST(cuGraphDestroy(graph));
	put(IN_S, again);
	put(PLAIN, other);
}

/* The fence of the free covers nothing that S is given later. */
static void
run_later_work(void)
{
	CUdeviceptr block, again;
	uint32_t *flag;

	MUST(cuMemHostAlloc((void **)&flag, sizeof(*flag), 0));
	*flag = 0;
	settle();
	victim_spin(&kernels, streams[IN_T], 0, SPIN_NS);
	block = get(IN_S, N_BYTES);
	victim_fill(&kernels, streams[IN_S], block, OLD, N_BYTES);
	put(IN_S, block);
	victim_spin(&kernels, streams[IN_S], (CUdeviceptr)(uintptr_t)flag, 0);
	cusim_run_all();
	again = get(IN_T, N_BYTES);
	EXPECT(!is_served || again == block, "a block waits for later work of its stream");
	put(IN_T, again);
	*flag = 1;
	MUST(cuCtxSynchronize());
	MUST(cuMemFreeHost(flag));
}

/* Natively the request and the free are operations: in the legacy stream they order others. */
static void
run_legacy(bool is_free)
{
	CUstream first, second;
	CUdeviceptr block, shared, more = 0;

	settle();
	MUST(cuStreamCreate(&first, CU_STREAM_DEFAULT));
	MUST(cuStreamCreate(&second, CU_STREAM_DEFAULT));
	MUST(cuMemAllocAsync(&block, N_BYTES, NULL));
	shared = get(PLAIN, N_BYTES);
	MUST(cuStreamSynchronize(NULL));
	victim_spin(&kernels, first, 0, SPIN_NS);
	victim_fill(&kernels, first, shared, OLD, N_BYTES);
	if (is_free)
		MUST(cuMemFreeAsync(block, NULL));
	else
		MUST(cuMemAllocAsync(&more, N_BYTES, NULL));
	victim_fill(&kernels, second, shared, NEW, N_BYTES);
	MUST(cuStreamSynchronize(second));
	check_bytes(shared, is_free ? "behind a free in the legacy stream"
				    : "behind a request in the legacy stream");
	MUST(cuCtxSynchronize());
	put(PLAIN, shared);
	if (!is_free)
		put(PLAIN, block);
	put(PLAIN, more);
	MUST(cuStreamDestroy_v2(first));
	MUST(cuStreamDestroy_v2(second));
}

/* A stream that is gone has nothing, though the next one may have its handle. */
static void
run_destroyed(void)
{
	CUdeviceptr block, again;
	CUstream gone, fresh;

	settle();
	victim_spin(&kernels, streams[PLAIN], 0, SPIN_NS);
	MUST(cuStreamCreate(&gone, CU_STREAM_NON_BLOCKING));
	MUST(cuMemAllocAsync(&block, N_BYTES, gone));
	victim_spin(&kernels, gone, 0, SPIN_NS);
	victim_fill(&kernels, gone, block, OLD, N_BYTES);
	MUST(cuMemFreeAsync(block, gone));
	MUST(cuStreamDestroy_v2(gone));
	MUST(cuStreamCreate(&fresh, CU_STREAM_NON_BLOCKING));
	MUST(cuMemAllocAsync(&again, N_BYTES, fresh));
	EXPECT(!is_served || again != block, "a new stream got what another one had");
	victim_fill(&kernels, fresh, again, NEW, N_BYTES);
	MUST(cuStreamSynchronize(fresh));
	check_bytes(again, "after a destroy");
	MUST(cuMemFreeAsync(again, fresh));
	MUST(cuStreamDestroy_v2(fresh));
}

static uint64_t
read_pool(CUmemoryPool pool, CUmemPool_attribute attribute)
{
	cuuint64_t bytes = 0;

	MUST(cuMemPoolGetAttribute(pool, attribute, &bytes));
	return bytes;
}

static void
run_attributes(CUmemoryPool pool)
{
	CUmemoryPool owner = NULL;
	CUipcMemHandle handle;
	CUdeviceptr a, b;
	cuuint64_t zero = 0;
	uint64_t before;

	settle();
	before = read_pool(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT);
	a = get(IN_S, MIB);
	b = get(IN_T, MIB);
	EXPECT(read_pool(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT) == before + 2 * MIB,
	       "used is not what was asked for");
	EXPECT(read_pool(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) >= before + 2 * MIB,
	       "less is reserved than used");
	MUST(cuPointerGetAttribute(&owner, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, a));
	EXPECT(owner == pool, "a block is not the default pool's");
	EXPECT(cuIpcGetMemHandle(&handle, a) == CUDA_ERROR_INVALID_VALUE,
	       "memory of the default pool has a handle");
	put(IN_S, a);
	put(PLAIN, b);
	EXPECT(read_pool(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH) >= before + 2 * MIB,
	       "the high mark was lost");
	MUST(cuCtxSynchronize());
	EXPECT(read_pool(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT) == before, "freed, but used");
	MUST(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &zero));
	MUST(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH, &zero));
	EXPECT(read_pool(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH) == before, "the mark was not reset");
	a = get(IN_S, N_BYTES);
	put(IN_S, a);
	MUST(cuCtxSynchronize());
	MUST(cuMemPoolTrimTo(pool, 0));
	EXPECT(read_pool(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) < N_BYTES,
	       "the trim gave nothing back");
	EXPECT(!is_served || api.total_bytes(0) < N_BYTES, "the trim left the pool alone");
	MUST(cuPointerGetAttribute(&owner, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE,
				   b = get(PLAIN, MIB)));
	EXPECT(owner != pool, "a plain block is the default pool's");
	put(PLAIN, b);
}

/* Does the pool serve it? It must be as said. */
static void
expect_served(CUdeviceptr block, size_t used_before, bool is_pools, const char *what)
{
	EXPECT(!is_shimmed || (api.used_bytes(0) > used_before) == is_pools,
	       "%s: served by the wrong one", what);
	MUST(cuMemFreeAsync(block, streams[IN_S]));
	MUST(cuCtxSynchronize());
}

static void
run_pools(CUmemoryPool pool)
{
	const CUmemPoolProps how = {
		.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
		.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0},
	};
	const CUmemAccessDesc access = {
		.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 1},
		.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
	};
	const size_t used = is_shimmed ? api.used_bytes(0) : 0;
	CUmemoryPool user;
	CUdeviceptr block;

	MUST(cuMemPoolCreate(&user, &how));
	MUST(cuMemAllocFromPoolAsync(&block, MIB, user, streams[IN_S]));
	expect_served(block, used, false, "a user's pool");
	MUST(cuMemAllocFromPoolAsync(&block, MIB, pool, streams[IN_S]));
	expect_served(block, used, is_served, "the default pool by name");
	MUST(cuDeviceSetMemPool(0, user));
	expect_served(get(IN_S, MIB), used, false, "a user's pool that is current");
	MUST(cuMemPoolDestroy(user));
	expect_served(get(IN_S, MIB), used, is_served, "after the pool's end");
	MUST(cuMemPoolSetAccess(pool, &access, 1));
	expect_served(get(IN_S, MIB), used, false, "with a peer's access");
}

static void
forbid_reuse(CUmemoryPool pool)
{
	const CUmemPool_attribute attributes[] = {
		CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES,
		CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC,
		CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES,
	};
	int no = 0;

	for (size_t i = 0; i < sizeof(attributes) / sizeof(attributes[0]); i++)
		MUST(cuMemPoolSetAttribute(pool, attributes[i], &no));
}

int
main(int argc, char **argv)
{
	CUmemoryPool pool;

	victim_start();
	is_shimmed = poolshim_find(&api);
	is_served = is_shimmed && !(argc > 1 && strcmp(argv[1], "native") == 0);
	kernels = victim_kernels_load();
	for (int i = 0; i < N_WHO; i++)
		MUST(cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING));
	MUST(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
	MUST(cuDeviceGetDefaultMemPool(&pool, 0));
	cusim_set_mode(CUSIM_MANUAL);
	run_table();
	for (int alloc = 0; alloc < N_WHO; alloc++)
		for (int capturing = IN_S; capturing < N_WHO; capturing++)
			run_capturing(alloc, capturing);
	run_beside_a_capture();
	run_later_work();
	run_legacy(true);
	run_legacy(false);
	run_destroyed();
	run_attributes(pool);
	forbid_reuse(pool);
	run_table();
	run_pools(pool);
	cusim_set_mode(CUSIM_AUTO);
	EXPECT(cusim_races() == 0, "%llu unordered accesses", (unsigned long long)cusim_races());
	victim_check_device();
	return victim_end("victim_async");
}
