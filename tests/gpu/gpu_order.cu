/* SPDX-License-Identifier: MIT */
/*
 * The order hazard: blocks are stamped and verified by slow kernels, freed at once, and taken again
 * on other streams.
 *
 * Several threads, each with the legacy stream, its per-thread stream, a blocking and two
 * non-blocking ones. A block that is handed out while earlier work may still write it makes a
 * verify kernel count wrong words. Natively every cudaFree waits.
 */
#include <thread>
#include <vector>

#include "gpu_common.cuh"

enum { N_THREADS = 4, N_ROUNDS = 600, N_STREAMS = 5, N_BLOCKS = 32, N_TEAM = 256 };

/* Late on purpose: the last words are written last. */
static __global__ void
stamp(unsigned *block, size_t n_words, unsigned value, unsigned long long delay_ns)
{
	unsigned long long start, now;

	asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(start));
	do {
		asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
	} while (now - start < delay_ns);
	for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < n_words;
	     i += (size_t)gridDim.x * blockDim.x)
		block[i] = value ^ (unsigned)i;
}

static __global__ void
verify(const unsigned *block, size_t n_words, unsigned value, unsigned long long *n_wrong)
{
	for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < n_words;
	     i += (size_t)gridDim.x * blockDim.x) {
		if (block[i] != (value ^ (unsigned)i))
			atomicAdd(n_wrong, 1ull);
	}
}

static unsigned long long
next_random(unsigned long long *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state;
}

static void
work(unsigned number, unsigned long long *n_wrong)
{
	unsigned long long random = 0x9e3779b97f4a7c15ull * (number + 1);
	cudaStream_t streams[N_STREAMS] = {cudaStreamLegacy, cudaStreamPerThread};

	MUST(cudaStreamCreate(&streams[2]));
	MUST(cudaStreamCreateWithFlags(&streams[3], cudaStreamNonBlocking));
	MUST(cudaStreamCreateWithFlags(&streams[4], cudaStreamNonBlocking));
	for (unsigned round = 0; round < N_ROUNDS; round++) {
		const size_t n_words = (size_t)256
				       << (next_random(&random) % 13); /* 1 KiB to 4 MiB */
		const unsigned value = number << 24 ^ round * 2654435761u;
		const cudaStream_t stream = streams[next_random(&random) % N_STREAMS];
		unsigned *block;

		MUST(cudaMalloc(&block, n_words * sizeof(*block)));
		stamp<<<N_BLOCKS, N_TEAM, 0, stream>>>(block, n_words, value,
						       next_random(&random) % 60000);
		verify<<<N_BLOCKS, N_TEAM, 0, stream>>>(block, n_words, value, n_wrong);
		MUST(cudaGetLastError());
		MUST(cudaFree(block));
	}
	MUST(cudaDeviceSynchronize());
	for (int i = 2; i < N_STREAMS; i++)
		MUST(cudaStreamDestroy(streams[i]));
}

int
main()
{
	unsigned long long *n_wrong, n_wrong_seen = 1;
	std::vector<std::thread> threads;

	MUST(cudaMalloc(&n_wrong, sizeof(*n_wrong)));
	MUST(cudaMemset(n_wrong, 0, sizeof(*n_wrong)));
	MUST(cudaDeviceSynchronize());
	for (unsigned i = 0; i < N_THREADS; i++)
		threads.emplace_back(work, i, n_wrong);
	for (auto &thread : threads)
		thread.join();
	MUST(cudaMemcpy(&n_wrong_seen, n_wrong, sizeof(n_wrong_seen), cudaMemcpyDeviceToHost));
	MUST(cudaFree(n_wrong));
	printf("order: %d blocks in %d threads, %llu words wrong\n", N_THREADS * N_ROUNDS,
	       N_THREADS, n_wrong_seen);
	return n_wrong_seen ? 1 : 0;
}
