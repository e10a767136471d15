/* SPDX-License-Identifier: MIT */
/*
 * Exits holding a known number of bytes: `requested_bytes` of the dump must say the same, to the
 * byte.
 */
#include "gpu_common.cuh"

int
main()
{
	static const size_t sizes[] = {1, 511, 512, 513, 12345, 1 << 20, 3000001, 40 << 20};
	size_t device_bytes = 0, host_bytes = 0;
	void *block;

	for (size_t n_bytes : sizes) {
		MUST(cudaMalloc(&block, n_bytes)); /* kept */
		device_bytes += n_bytes;
		MUST(cudaMalloc(&block, n_bytes + 7)); /* given back */
		MUST(cudaMemset(block, 1, n_bytes + 7));
		MUST(cudaFree(block));
	}
	MUST(cudaMallocHost(&block, 4321));
	host_bytes += 4321;
	MUST(cudaHostAlloc(&block, 70001, cudaHostAllocMapped));
	host_bytes += 70001;
	MUST(cudaMallocHost(&block, 9999));
	MUST(cudaFreeHost(block));
	MUST(cudaDeviceSynchronize());
	printf("held: device %zu host %zu\n", device_bytes, host_bytes);
	return 0;
}
