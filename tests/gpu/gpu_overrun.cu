/* SPDX-License-Identifier: MIT */
/*
 * A program for tools that check device memory: a kernel writes inside a block of 1000 bytes or,
 * with "over", just behind its end, which no hardware notices. Built with debug information.
 */
#include <cstring>

#include "gpu_common.cuh"

enum { N_BYTES = 1000 };

static __global__ void
touch(unsigned char *block, unsigned at)
{
	block[at] = 1;
}

int
main(int argc, char **argv)
{
	const unsigned at = argc > 1 && !strcmp(argv[1], "over") ? N_BYTES : N_BYTES - 1;
	unsigned char *block, *other, seen = 0;

	MUST(cudaMalloc(&other, N_BYTES));
	MUST(cudaMalloc(&block, N_BYTES));
	MUST(cudaMemset(block, 0, N_BYTES));
	touch<<<1, 1>>>(block, at);
	const int launched = cudaGetLastError(), synchronized = cudaDeviceSynchronize();
	cudaMemcpy(&seen, block + N_BYTES - 1, 1, cudaMemcpyDeviceToHost);
	printf("overrun: launch %d, synchronise %d, last byte %d\n", launched, synchronized, seen);
	printf("free %d %d\n", cudaFree(block), cudaFree(other));
	return 0;
}
