/* SPDX-License-Identifier: MIT */
/*
 * The cost of a launch: an empty kernel, in batches that do not fill the queue, each followed by a
 * synchronise that is not timed. By the runtime's launch and by cuLaunchKernel, batch by batch in
 * turns. Prints the median of the batches' means.
 *
 * Before the loop memory is taken and given back, so that under the shim the pool is at work.
 */
#include <cuda.h>

#include "gpu_common.cuh"
#include "gpu_pin.h"

enum { N_BATCHES = 300, N_WARM = 40, N_LAUNCHES = 200 };

static __global__ void
empty()
{
}

static void
use_memory()
{
	void *kept, *blocks[8];

	MUST(cudaMalloc(&kept, 1 << 20));
	for (int i = 0; i < 8; i++)
		MUST(cudaMalloc(&blocks[i], 1000 << i));
	for (int i = 0; i < 8; i++)
		MUST(cudaFree(blocks[i]));
}

static double
runtime_batch(cudaStream_t stream)
{
	const double start_ns = now_ns();

	for (int i = 0; i < N_LAUNCHES; i++)
		empty<<<1, 1, 0, stream>>>();
	const double end_ns = now_ns();
	MUST(cudaGetLastError());
	MUST(cudaStreamSynchronize(stream));
	return (end_ns - start_ns) / N_LAUNCHES;
}

static double
driver_batch(CUfunction function, cudaStream_t stream)
{
	int n_failed = 0;
	const double start_ns = now_ns();

	for (int i = 0; i < N_LAUNCHES; i++)
		n_failed += cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL) !=
			    CUDA_SUCCESS;
	const double end_ns = now_ns();
	if (n_failed)
		exit(1);
	MUST(cudaStreamSynchronize(stream));
	return (end_ns - start_ns) / N_LAUNCHES;
}

int
main()
{
	static double runtime_ns[N_BATCHES], driver_ns[N_BATCHES];
	cudaStream_t stream;
	cudaFunction_t function;

	use_memory();
	MUST(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
	MUST(cudaGetFuncBySymbol(&function, (const void *)empty));
	if (pin_to_one_core())
		fprintf(stderr, "not pinned to a core\n");
	for (int i = -N_WARM; i < N_BATCHES; i++) {
		const double by_runtime = runtime_batch(stream);
		const double by_driver = driver_batch((CUfunction)function, stream);

		if (i < 0)
			continue;
		runtime_ns[i] = by_runtime;
		driver_ns[i] = by_driver;
	}
	printf("launch: %d batches of %d in two ways\n", N_WARM + N_BATCHES, N_LAUNCHES);
	printf("TIME runtime_ns %.2f\n", median_of(runtime_ns, N_BATCHES));
	printf("TIME driver_ns %.2f\n", median_of(driver_ns, N_BATCHES));
	return 0;
}
