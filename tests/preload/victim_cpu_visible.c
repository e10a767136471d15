/* SPDX-License-Identifier: MIT */
/*
 * Programs use cudaFree as a barrier without knowing: when it returns, what earlier work gave to
 * the CPU must be there.
 *
 * Each row submits an operation whose end the CPU can see, behind a kernel that spins until another
 * thread lets it go some milliseconds later, then frees an unrelated block and looks at once. A
 * free that does not wait looks too early every time. One row the other way round: behind a plain
 * kernel the shim's free waits for nothing.
 */
#include <pthread.h>
#include <time.h>

#include "tests/preload/victim_sim.h"

enum { N_BYTES = 4096, HOLD_NS = 10000000, OLD = 0x01, NEW = 0x6c };

static struct victim_kernels kernels;

/* What a row works on: `source` holds NEW, the CPU looks at `seen`, which holds OLD. */
static struct bench {
	CUstream stream;
	CUdeviceptr source;
	unsigned char *seen; /* pinned */
	uint32_t *flag;      /* pinned; the kernel ahead spins until it is not 0 */
	pthread_t releaser;
} bench;

static void *
let_go(void *arg)
{
	const struct timespec pause = {.tv_nsec = HOLD_NS};

	(void)arg;
	nanosleep(&pause, NULL);
	__atomic_store_n(bench.flag, 1, __ATOMIC_SEQ_CST);
	return NULL;
}

static void
hold_stream(void)
{
	__atomic_store_n(bench.flag, 0, __ATOMIC_SEQ_CST);
	victim_spin(&kernels, bench.stream, (CUdeviceptr)(uintptr_t)bench.flag, 0);
}

static void
start_releaser(void)
{
	if (pthread_create(&bench.releaser, NULL, let_go, NULL) != 0)
		exit(2);
}

static CUstream
handle(void)
{
	return bench.stream == VICTIM_PER_THREAD ? CU_STREAM_PER_THREAD : bench.stream;
}

static void
copy_to_host(void)
{
	if (bench.stream == VICTIM_PER_THREAD)
		MUST(cuMemcpyDtoHAsync_v2_ptsz(bench.seen, bench.source, N_BYTES, NULL));
	else
		MUST(cuMemcpyDtoHAsync_v2(bench.seen, bench.source, N_BYTES, bench.stream));
}

static void
copy_unified(void)
{
	if (bench.stream == VICTIM_PER_THREAD)
		MUST(cuMemcpyAsync_ptsz((CUdeviceptr)(uintptr_t)bench.seen, bench.source, N_BYTES,
					NULL));
	else
		MUST(cuMemcpyAsync((CUdeviceptr)(uintptr_t)bench.seen, bench.source, N_BYTES,
				   bench.stream));
}

static void
copy_device_to_pinned(void)
{
	MUST(cuMemcpyDtoDAsync_v2((CUdeviceptr)(uintptr_t)bench.seen, bench.source, N_BYTES,
				  handle()));
}

static void
copy_2d(void)
{
	const CUDA_MEMCPY2D copy = {
		.srcMemoryType = CU_MEMORYTYPE_DEVICE,
		.srcDevice = bench.source,
		.srcPitch = 512,
		.dstMemoryType = CU_MEMORYTYPE_HOST,
		.dstHost = bench.seen,
		.dstPitch = 512,
		.WidthInBytes = 512,
		.Height = N_BYTES / 512,
	};

	MUST(cuMemcpy2DAsync_v2(&copy, handle()));
}

static void
copy_3d(void)
{
	const CUDA_MEMCPY3D copy = {
		.srcMemoryType = CU_MEMORYTYPE_UNIFIED,
		.srcDevice = bench.source,
		.srcPitch = 512,
		.srcHeight = N_BYTES / 1024,
		.dstMemoryType = CU_MEMORYTYPE_UNIFIED,
		.dstDevice = (CUdeviceptr)(uintptr_t)bench.seen,
		.dstPitch = 512,
		.dstHeight = N_BYTES / 1024,
		.WidthInBytes = 512,
		.Height = N_BYTES / 1024,
		.Depth = 2,
	};

	MUST(cuMemcpy3DAsync_v2(&copy, handle()));
}

static void
set_pinned(void)
{
	MUST(cuMemsetD8Async((CUdeviceptr)(uintptr_t)bench.seen, NEW, N_BYTES, handle()));
}

static void
set_pinned_words(void)
{
	MUST(cuMemsetD32Async((CUdeviceptr)(uintptr_t)bench.seen, 0x01010101u * NEW, N_BYTES / 4,
			      handle()));
}

static void
host_writes(void *data)
{
	memset(data, NEW, N_BYTES);
}

static void
host_function(void)
{
	if (bench.stream == VICTIM_PER_THREAD)
		MUST(cuLaunchHostFunc_ptsz(NULL, host_writes, bench.seen));
	else
		MUST(cuLaunchHostFunc(bench.stream, host_writes, bench.seen));
}

static void
on_callback(CUstream stream, CUresult status, void *data)
{
	(void)stream;
	if (status == CUDA_SUCCESS)
		host_writes(data);
}

static void
callback(void)
{
	MUST(cuStreamAddCallback(handle(), on_callback, bench.seen, 0));
}

static void
write_values(void)
{
	for (size_t i = 0; i < N_BYTES; i += 4)
		MUST(cuStreamWriteValue32_v2(handle(), (CUdeviceptr)(uintptr_t)(bench.seen + i),
					     0x01010101u * NEW, 0));
}

/* A graph that holds the copy; captured in a stream of its own, launched in the row's. */
static void
graph(void)
{
	CUgraphExec exec;
	CUstream capturing;
	CUgraph made;

	MUST(cuStreamCreate(&capturing, CU_STREAM_NON_BLOCKING));
	MUST(cuStreamBeginCapture_v2(capturing, CU_STREAM_CAPTURE_MODE_RELAXED));
	MUST(cuMemcpyDtoHAsync_v2(bench.seen, bench.source, N_BYTES, capturing));
	MUST(cuStreamEndCapture(capturing, &made));
	MUST(cuGraphInstantiateWithFlags(&exec, made, 0));
	if (bench.stream == VICTIM_PER_THREAD)
		MUST(cuGraphLaunch_ptsz(exec, NULL));
	else
		MUST(cuGraphLaunch(exec, bench.stream));
	MUST(cuGraphDestroy(made));
	MUST(cuStreamDestroy_v2(capturing));
}

static const struct row {
	const char *name;
	void (*submit)(void);
} rows[] = {
	{"cuMemcpyDtoHAsync", copy_to_host},
	{"cuMemcpyAsync", copy_unified},
	{"cuMemcpyDtoDAsync to pinned memory", copy_device_to_pinned},
	{"cuMemcpy2DAsync", copy_2d},
	{"cuMemcpy3DAsync", copy_3d},
	{"cuMemsetD8Async of pinned memory", set_pinned},
	{"cuMemsetD32Async of pinned memory", set_pinned_words},
	{"cuLaunchHostFunc", host_function},
	{"cuStreamAddCallback", callback},
	{"cuStreamWriteValue32", write_values},
	{"cuGraphLaunch", graph},
};

static size_t
n_missing(const unsigned char *seen)
{
	size_t n = 0;

	for (size_t i = 0; i < N_BYTES; i++)
		n += seen[i] != NEW;
	return n;
}

static void
check_row(const struct row *row, const char *stream_name, bool is_pinned_free)
{
	CUdeviceptr unrelated;
	void *pinned;

	MUST(cuCtxSynchronize());
	memset(bench.seen, OLD, N_BYTES);
	MUST(cuMemAlloc_v2(&unrelated, 1000));
	MUST(cuMemHostAlloc(&pinned, 1000, 0));
	hold_stream();
	row->submit();
	start_releaser();

	if (is_pinned_free)
		MUST(cuMemFreeHost(pinned));
	else
		MUST(cuMemFree_v2(unrelated));
	EXPECT(n_missing(bench.seen) == 0, "%s in the %s: %zu bytes were missing after %s",
	       row->name, stream_name, n_missing(bench.seen),
	       is_pinned_free ? "cuMemFreeHost" : "cuMemFree");

	pthread_join(bench.releaser, NULL);
	if (is_pinned_free)
		MUST(cuMemFree_v2(unrelated));
	else
		MUST(cuMemFreeHost(pinned));
}

/* The pool is worth its name only if a free behind a plain kernel does not wait. */
static void
check_plain_kernel(bool is_shimmed)
{
	CUdeviceptr unrelated;
	CUevent done;

	MUST(cuCtxSynchronize());
	MUST(cuEventCreate(&done, CU_EVENT_DISABLE_TIMING));
	MUST(cuMemAlloc_v2(&unrelated, 1000));
	hold_stream();
	victim_record(done, bench.stream);
	start_releaser();
	MUST(cuMemFree_v2(unrelated));
	if (is_shimmed)
		EXPECT(cuEventQuery(done) == CUDA_ERROR_NOT_READY,
		       "a free waited for a plain kernel");
	else
		EXPECT(cuEventQuery(done) == CUDA_SUCCESS, "the device's own free did not wait");
	pthread_join(bench.releaser, NULL);
	MUST(cuCtxSynchronize());
	MUST(cuEventDestroy_v2(done));
}

/* Managed memory: any kernel may write what the CPU reads next. */
static void
check_managed(void)
{
	CUdeviceptr managed, unrelated;

	MUST(cuCtxSynchronize());
	MUST(cuMemAllocManaged(&managed, N_BYTES, CU_MEM_ATTACH_GLOBAL));
	memset((void *)(uintptr_t)managed, OLD, N_BYTES);
	MUST(cuMemAlloc_v2(&unrelated, 1000));
	hold_stream();
	victim_fill(&kernels, bench.stream, managed, NEW, N_BYTES);
	start_releaser();
	MUST(cuMemFree_v2(unrelated));
	EXPECT(n_missing((const unsigned char *)(uintptr_t)managed) == 0,
	       "a kernel had not written managed memory after cuMemFree");
	pthread_join(bench.releaser, NULL);
	MUST(cuMemFree_v2(managed));
}

int
main(void)
{
	const bool is_shimmed = dlsym(RTLD_DEFAULT, "poolshim_used_bytes") != NULL;
	struct {
		const char *name;
		CUstream stream;
	} streams[] = {{"legacy stream", NULL},
		       {"per-thread stream", VICTIM_PER_THREAD},
		       {"non-blocking stream", NULL}};

	victim_start();
	kernels = victim_kernels_load();
	MUST(cuStreamCreate(&streams[2].stream, CU_STREAM_NON_BLOCKING));
	MUST(cuMemAlloc_v2(&bench.source, N_BYTES));
	MUST(cuMemsetD8_v2(bench.source, NEW, N_BYTES));
	MUST(cuMemHostAlloc((void **)&bench.seen, N_BYTES, 0));
	MUST(cuMemHostAlloc((void **)&bench.flag, sizeof(*bench.flag), 0));
	MUST(cuCtxSynchronize());

	for (size_t s = 0; s < sizeof(streams) / sizeof(streams[0]); s++) {
		bench.stream = streams[s].stream;
		check_plain_kernel(is_shimmed);
		for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
			check_row(&rows[i], streams[s].name, false);
			check_row(&rows[i], streams[s].name, true);
		}
	}
	for (size_t s = 0; s < sizeof(streams) / sizeof(streams[0]); s++) {
		bench.stream = streams[s].stream;
		check_managed();
	}
	victim_check_device();
	return victim_end("victim_cpu_visible");
}
