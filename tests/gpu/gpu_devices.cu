/* SPDX-License-Identifier: MIT */
/*
 * All devices at once: one thread a device, each with blocks of its own that are freed behind slow
 * kernels and taken again, and copies to the next device's blocks.
 *
 * A block of one device handed out on another, or a fence of the wrong context, shows as wrong words.
 * The program synchronises the sender before the receiver's block is freed, as it must natively.
 */
#include <thread>
#include <vector>

#include "gpu_common.cuh"

enum { N_ROUNDS = 200, N_WORDS = 1 << 18, N_BLOCKS = 16, N_TEAM = 256 };

static __global__ void
stamp(unsigned *block, unsigned value)
{
	for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < N_WORDS;
	     i += (size_t)gridDim.x * blockDim.x)
		block[i] = value ^ (unsigned)i;
}

static __global__ void
verify(const unsigned *block, unsigned value, unsigned long long *n_wrong)
{
	for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < N_WORDS;
	     i += (size_t)gridDim.x * blockDim.x) {
		if (block[i] != (value ^ (unsigned)i))
			atomicAdd(n_wrong, 1ull);
	}
}

static void
send(unsigned *block, int device, int next, unsigned value, unsigned long long *n_wrong)
{
	cudaStream_t stream;
	unsigned *remote;

	MUST(cudaSetDevice(next));
	MUST(cudaMalloc(&remote, N_WORDS * sizeof(*remote)));
	MUST(cudaMemcpyPeer(remote, next, block, device, N_WORDS * sizeof(*remote)));
	MUST(cudaSetDevice(device));
	MUST(cudaDeviceSynchronize());
	MUST(cudaSetDevice(next));
	MUST(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
	verify<<<N_BLOCKS, N_TEAM, 0, stream>>>(remote, value, n_wrong);
	MUST(cudaGetLastError());
	/* Freed from another device's context, behind the kernel. */
	MUST(cudaSetDevice(device));
	MUST(cudaFree(remote));
	MUST(cudaSetDevice(next));
	MUST(cudaStreamDestroy(stream));
	MUST(cudaSetDevice(device));
}

static void
work(int device, int n_devices, unsigned long long *n_wrong)
{
	cudaStream_t streams[2];

	MUST(cudaSetDevice(device));
	for (cudaStream_t &stream : streams)
		MUST(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
	for (unsigned round = 0; round < N_ROUNDS; round++) {
		const unsigned value = (unsigned)device << 28 ^ round * 2654435761u;
		const cudaStream_t stream = streams[round % 2];
		unsigned *block;

		MUST(cudaMalloc(&block, N_WORDS * sizeof(*block)));
		hold<<<1, 1, 0, stream>>>(20000 + round % 3 * 40000);
		stamp<<<N_BLOCKS, N_TEAM, 0, stream>>>(block, value);
		verify<<<N_BLOCKS, N_TEAM, 0, stream>>>(block, value, n_wrong);
		MUST(cudaGetLastError());
		if (round % 20 == 0) {
			MUST(cudaStreamSynchronize(stream));
			send(block, device, (device + 1) % n_devices, value, n_wrong);
		}
		MUST(cudaFree(block));
	}
	MUST(cudaDeviceSynchronize());
	for (cudaStream_t stream : streams)
		MUST(cudaStreamDestroy(stream));
}

int
main()
{
	std::vector<std::thread> threads;
	unsigned long long *n_wrong;
	int n_devices;

	MUST(cudaGetDeviceCount(&n_devices));
	MUST(cudaHostAlloc(&n_wrong, sizeof(*n_wrong), cudaHostAllocPortable | cudaHostAllocMapped));
	*n_wrong = 0;
	for (int device = 0; device < n_devices; device++)
		threads.emplace_back(work, device, n_devices, n_wrong);
	for (std::thread &thread : threads)
		thread.join();
	for (int device = 0; device < n_devices; device++) {
		MUST(cudaSetDevice(device));
		MUST(cudaDeviceSynchronize());
	}
	printf("devices: %d, %d blocks each, %llu words wrong\n", n_devices, N_ROUNDS, *n_wrong);
	return *n_wrong != 0;
}
