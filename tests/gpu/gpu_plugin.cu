/* SPDX-License-Identifier: MIT */
/* A library with a static runtime and a kernel, that a program loads and unloads (gpu_life). */
#include "gpu_common.cuh"

static __global__ void
stamp(unsigned *block, unsigned n_words, unsigned value)
{
	const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;

	if (i < n_words)
		block[i] = value ^ i;
}

/* Returns how many words were wrong. */
extern "C" __attribute__((visibility("default"))) int
plugin_run(int round)
{
	enum { N_WORDS = 3000 };
	unsigned *block, *pinned;
	int n_wrong = 0;

	MUST(cudaMalloc(&block, N_WORDS * sizeof(*block)));
	MUST(cudaMallocHost(&pinned, N_WORDS * sizeof(*block)));
	stamp<<<12, 256>>>(block, N_WORDS, 1000u + round);
	MUST(cudaGetLastError());
	MUST(cudaMemcpy(pinned, block, N_WORDS * sizeof(*block), cudaMemcpyDeviceToHost));
	for (unsigned i = 0; i < N_WORDS; i++)
		n_wrong += pinned[i] != ((1000u + round) ^ i);
	MUST(cudaFree(block));
	MUST(cudaFreeHost(pinned));
	return n_wrong;
}
