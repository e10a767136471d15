/* SPDX-License-Identifier: MIT */
/*
 * Several streams at once, each taking and freeing four blocks for every kernel of 100 us.
 *
 * usage: gpu_overlap STREAMS KERNELS fresh|once
 *
 * once: the same kernels on blocks that are taken at the beginning. The kernels of a stream follow
 * each other, those of different streams do not: time that "fresh" needs more is overlap lost.
 * Prints one JSON object.
 */
#include <cstring>
#include <vector>

#include "gpu_clock.cuh"
#include "gpu_json.h"

enum { N_BLOCKS = 4, N_STREAMS_MAX = 8 };

struct blocks {
	unsigned *at[N_BLOCKS];
};

static __global__ void
use(struct blocks blocks, unsigned n_ns)
{
	const uint64_t start_ns = device_now_ns();

	for (unsigned *block : blocks.at)
		*block = threadIdx.x;
	while (device_now_ns() - start_ns < n_ns)
		__nanosleep(200);
}

static void
take(struct blocks *blocks, uint64_t *random)
{
	for (unsigned *&block : blocks->at)
		MUST(cudaMalloc(&block, 4096ull << random_next(random) % 11));
}

static void
give(struct blocks *blocks)
{
	for (unsigned *block : blocks->at)
		MUST(cudaFree(block));
}

int
main(int argc, char **argv)
{
	uint64_t random = 0x13198a2e03707344ull;
	struct blocks blocks[N_STREAMS_MAX];
	cudaStream_t streams[N_STREAMS_MAX];
	cudaEvent_t start, end, joined;
	float gpu_ms;

	if (argc != 4)
		return 2;
	const int n_streams = atoi(argv[1]), n_kernels = atoi(argv[2]);
	const bool is_fresh = !strcmp(argv[3], "fresh");
	MUST(cudaEventCreate(&start));
	MUST(cudaEventCreate(&end));
	MUST(cudaEventCreateWithFlags(&joined, cudaEventDisableTiming));
	for (int i = 0; i < n_streams; i++) {
		MUST(cudaStreamCreateWithFlags(&streams[i], cudaStreamNonBlocking));
		take(&blocks[i], &random);
		use<<<1, 1, 0, streams[i]>>>(blocks[i], 1000);
		if (is_fresh)
			give(&blocks[i]);
	}
	MUST(cudaDeviceSynchronize());
	const uint64_t host_start_ns = host_now_ns();
	MUST(cudaEventRecord(start, streams[0]));
	for (int i = 1; i < n_streams; i++)
		MUST(cudaStreamWaitEvent(streams[i], start, 0));
	for (int i = 0; i < n_kernels * n_streams; i++) {
		const int s = i % n_streams;

		if (is_fresh)
			take(&blocks[s], &random);
		use<<<1, 1, 0, streams[s]>>>(blocks[s], 100000);
		MUST(cudaGetLastError());
		if (is_fresh)
			give(&blocks[s]);
	}
	for (int i = 1; i < n_streams; i++) {
		MUST(cudaEventRecord(joined, streams[i]));
		MUST(cudaStreamWaitEvent(streams[0], joined, 0));
	}
	MUST(cudaEventRecord(end, streams[0]));
	MUST(cudaDeviceSynchronize());
	MUST(cudaEventElapsedTime(&gpu_ms, start, end));
	printf("{\"seed\": \"0x13198a2e03707344\", \"streams\": %d, \"kernels\": %d, "
	       "\"gpu_ms\": %.3f, \"host_ms\": %.3f}\n",
	       n_streams, n_kernels * n_streams, gpu_ms, (host_now_ns() - host_start_ns) / 1e6);
	return 0;
}
