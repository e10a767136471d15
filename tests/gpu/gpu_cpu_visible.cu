/* SPDX-License-Identifier: MIT */
/*
 * cudaFree as a barrier: behind a kernel of 200 ms an operation gives something to the CPU; once
 * cudaFree of an unrelated block has returned it must be there. Behind the kernel alone the free is
 * timed: natively it waits, under the shim it does not.
 */
#include <cstring>

#include "gpu_common.cuh"

enum { N_BYTES = 1 << 20, OLD = 1, NEW = 0x6c };

static const unsigned long long hold_ns = 200000000ull;

static cudaStream_t stream;
static unsigned char *source, *seen;

static void
copy_to_host()
{
	MUST(cudaMemcpyAsync(seen, source, N_BYTES, cudaMemcpyDeviceToHost, stream));
}

static void
copy_default()
{
	MUST(cudaMemcpyAsync(seen, source, N_BYTES, cudaMemcpyDefault, stream));
}

static void
copy_2d()
{
	MUST(cudaMemcpy2DAsync(seen, 1024, source, 1024, 1024, N_BYTES / 1024,
			       cudaMemcpyDeviceToHost, stream));
}

static void
set_pinned()
{
	MUST(cudaMemsetAsync(seen, NEW, N_BYTES, stream));
}

static void
host_writes(void *data)
{
	memset(data, NEW, N_BYTES);
}

static void
host_function()
{
	MUST(cudaLaunchHostFunc(stream, host_writes, seen));
}

static void
graph()
{
	cudaStream_t capturing;
	cudaGraph_t made;
	cudaGraphExec_t exec;

	MUST(cudaStreamCreateWithFlags(&capturing, cudaStreamNonBlocking));
	MUST(cudaStreamBeginCapture(capturing, cudaStreamCaptureModeRelaxed));
	MUST(cudaMemcpyAsync(seen, source, N_BYTES, cudaMemcpyDeviceToHost, capturing));
	MUST(cudaStreamEndCapture(capturing, &made));
	MUST(cudaGraphInstantiate(&exec, made, 0));
	MUST(cudaGraphLaunch(exec, stream));
}

static const struct row {
	const char *name;
	void (*submit)();
} rows[] = {
	{"copy to the host", copy_to_host}, {"copy, default direction", copy_default},
	{"copy of rows", copy_2d},          {"set of pinned memory", set_pinned},
	{"host function", host_function},   {"graph with a copy", graph},
};

static double
free_behind_kernel(void (*submit)())
{
	void *unrelated;

	MUST(cudaMalloc(&unrelated, 1000));
	hold<<<1, 1, 0, stream>>>(hold_ns);
	MUST(cudaGetLastError());
	if (submit)
		submit();
	auto start = std::chrono::steady_clock::now();
	MUST(cudaFree(unrelated));
	return us_since(start);
}

static size_t
run_rows(const char *stream_name)
{
	size_t n_missing = 0;

	for (const struct row &row : rows) {
		size_t n_old = 0;

		memset(seen, OLD, N_BYTES);
		free_behind_kernel(row.submit);
		for (size_t i = 0; i < N_BYTES; i++)
			n_old += ((volatile unsigned char *)seen)[i] != NEW;
		printf("cpu_visible: %s, %s: %zu bytes missing\n", stream_name, row.name, n_old);
		n_missing += n_old;
		MUST(cudaDeviceSynchronize());
	}
	return n_missing;
}

int
main()
{
	size_t n_missing = 0;

	MUST(cudaMalloc(&source, N_BYTES));
	MUST(cudaMemset(source, NEW, N_BYTES));
	MUST(cudaMallocHost(&seen, N_BYTES));
	MUST(cudaDeviceSynchronize());
	free_behind_kernel(NULL); /* loads the kernel */
	MUST(cudaDeviceSynchronize());

	n_missing += run_rows("legacy stream");
	MUST(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
	n_missing += run_rows("non-blocking stream");
	printf("TIME free_behind_kernel_us %.1f\n", free_behind_kernel(NULL));
	MUST(cudaDeviceSynchronize());
	return n_missing ? 1 : 0;
}
