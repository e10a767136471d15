/* SPDX-License-Identifier: MIT */
/*
 * The cost of a launch: an empty kernel, in short batches that do not fill the queue, each followed
 * by a synchronise that is not timed, as the first launches behind it are not; by the runtime's
 * launch and by cuLaunchKernel, batch by batch in turns.
 *
 * For each line on stdin one turn: a batch of each that is not timed, since the core may have
 * served somebody else, then the timed ones. Prints "TURN RUNTIME DRIVER", the median of the
 * batches' means in ns a launch; at the end of stdin how many launches and synchronises there were.
 *
 * Before the first turn memory is taken and given back, so that under the shim the pool is at work.
 */
#include <cuda.h>

#include "gpu_common.cuh"
#include "gpu_pin.h"

enum { N_BATCHES = 6, N_UNTIMED = 8, N_LAUNCHES = 24 };

static unsigned long n_launches, n_synchronises;

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
finish(cudaStream_t stream, double batch_ns)
{
	MUST(cudaStreamSynchronize(stream));
	n_launches += N_UNTIMED + N_LAUNCHES;
	n_synchronises++;
	return batch_ns / N_LAUNCHES;
}

static double
runtime_batch(cudaStream_t stream)
{
	double start_ns = 0;

	for (int i = -N_UNTIMED; i < N_LAUNCHES; i++) {
		if (i == 0)
			start_ns = now_ns();
		empty<<<1, 1, 0, stream>>>();
	}
	const double end_ns = now_ns();
	MUST(cudaGetLastError());
	return finish(stream, end_ns - start_ns);
}

static double
driver_batch(CUfunction function, cudaStream_t stream)
{
	double start_ns = 0;
	int n_failed = 0;

	for (int i = -N_UNTIMED; i < N_LAUNCHES; i++) {
		if (i == 0)
			start_ns = now_ns();
		n_failed += cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL) !=
			    CUDA_SUCCESS;
	}
	const double end_ns = now_ns();
	if (n_failed)
		exit(1);
	return finish(stream, end_ns - start_ns);
}

static void
turn(CUfunction function, cudaStream_t stream)
{
	double runtime_ns[N_BATCHES], driver_ns[N_BATCHES];

	runtime_batch(stream);
	driver_batch(function, stream);
	for (int i = 0; i < N_BATCHES; i++) {
		runtime_ns[i] = runtime_batch(stream);
		driver_ns[i] = driver_batch(function, stream);
	}
	const double by_runtime = median_of(runtime_ns, N_BATCHES);
	const double by_driver = median_of(driver_ns, N_BATCHES);
	printf("TURN %.2f %.2f\n", by_runtime, by_driver);
	fflush(stdout);
}

int
main()
{
	char line[16];
	cudaStream_t stream;
	cudaFunction_t function;

	use_memory();
	MUST(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
	MUST(cudaGetFuncBySymbol(&function, (const void *)empty));
	if (pin_to_one_core())
		fprintf(stderr, "not pinned to a core\n");
	while (fgets(line, sizeof(line), stdin))
		turn((CUfunction)function, stream);
	printf("launch: %lu launches, %lu synchronises\n", n_launches, n_synchronises);
	return 0;
}
