/* SPDX-License-Identifier: MIT */
/*
 * A __managed__ variable: a slow kernel writes it, cudaFree of something else is the only barrier,
 * the CPU reads it.
 */
#include "gpu_common.cuh"

enum { N_WORDS = 1024, N_ROUNDS = 4 };

static __managed__ unsigned words[N_WORDS];

static __global__ void
write_late(unsigned value, unsigned long long delay_ns)
{
	unsigned long long start, now;

	asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(start));
	do {
		asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
	} while (now - start < delay_ns);
	words[threadIdx.x] = value + threadIdx.x;
}

int
main()
{
	unsigned n_wrong = 0;

	for (unsigned round = 1; round <= N_ROUNDS; round++) {
		cudaStream_t stream = NULL;
		void *unrelated;

		if (round % 2)
			MUST(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
		MUST(cudaMalloc(&unrelated, 1000));
		write_late<<<1, N_WORDS, 0, stream>>>(round * 1000003u, 100000000ull);
		MUST(cudaGetLastError());
		MUST(cudaFree(unrelated));
		for (unsigned i = 0; i < N_WORDS; i++)
			n_wrong += words[i] != round * 1000003u + i;
		MUST(cudaDeviceSynchronize());
	}
	printf("managed: %d rounds, %u words not there after cudaFree\n", N_ROUNDS, n_wrong);
	return n_wrong ? 1 : 0;
}
