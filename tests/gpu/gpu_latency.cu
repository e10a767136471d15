/* SPDX-License-Identifier: MIT */
/*
 * What a free costs while a kernel of 200 ms runs, and behind operations whose end the CPU can see.
 *
 * usage: gpu_latency FREES BUDGET_S
 *
 * For a kernel on the stream that used the blocks, on another blocking one and on a non-blocking
 * one: device blocks and pinned ones are freed behind it, each free timed alone. Only the frees of
 * rounds at whose end the kernel still ran are behind it in all; n_behind counts them.
 * Then one free behind each operation of "visible". Prints one JSON object.
 */
#include <vector>

#include "gpu_clock.cuh"
#include "gpu_json.h"

enum { N_DEVICE = 1000, N_PINNED = 1000, N_KINDS = 3 };

static const unsigned long long KERNEL_NS = 200000000;

static const char *const kind_names[N_KINDS] = {"same", "other", "non_blocking"};

struct times {
	std::vector<uint64_t> device_ns, pinned_ns;
	size_t n_behind;
};

static __global__ void
touch(unsigned *block)
{
	*block = 1;
}

static uint64_t
free_ns(void *block, bool is_pinned)
{
	const uint64_t start_ns = host_now_ns();

	MUST(is_pinned ? cudaFreeHost(block) : cudaFree(block));
	return host_now_ns() - start_ns;
}

static void
one_round(cudaStream_t used, cudaStream_t busy, uint64_t *random, struct times *times)
{
	void *device[N_DEVICE], *pinned[N_PINNED];

	for (void *&block : device) {
		MUST(cudaMalloc(&block, 512ull << random_next(random) % 10));
		touch<<<1, 1, 0, used>>>((unsigned *)block);
	}
	for (void *&block : pinned)
		MUST(cudaHostAlloc(&block, 4096ull << random_next(random) % 4, 0));
	MUST(cudaDeviceSynchronize());
	hold<<<1, 1, 0, busy>>>(KERNEL_NS);
	MUST(cudaGetLastError());
	for (void *block : device)
		times->device_ns.push_back(free_ns(block, false));
	for (void *block : pinned)
		times->pinned_ns.push_back(free_ns(block, true));
	if (cudaStreamQuery(busy) == cudaErrorNotReady)
		times->n_behind += N_DEVICE + N_PINNED;
	cudaGetLastError();
	MUST(cudaDeviceSynchronize());
}

static void
print_times(const char *name, struct times *times)
{
	printf("\"%s\": {", name);
	print_percentiles("cudaFree", times->device_ns.data(), times->device_ns.size());
	printf(", ");
	print_percentiles("cudaFreeHost", times->pinned_ns.data(), times->pinned_ns.size());
	printf(", \"n_behind\": %zu}", times->n_behind);
}

static void CUDART_CB
nothing(void *)
{
}

/* The operations end with the kernel before them, after 200 ms. */
static void
visible(const char *name, cudaStream_t stream, const char *separator)
{
	uint64_t took_ns[2];
	unsigned *source, *managed = NULL, *target;

	MUST(cudaMalloc(&source, 4096));
	MUST(cudaHostAlloc(&target, 4096, 0));
	if (name[0] == 'm')
		MUST(cudaMallocManaged(&managed, 4096));
	for (int is_pinned = 0; is_pinned < 2; is_pinned++) {
		void *block;

		MUST(is_pinned ? cudaHostAlloc(&block, 4096, 0) : cudaMalloc(&block, 4096));
		MUST(cudaDeviceSynchronize());
		hold<<<1, 1, 0, stream>>>(KERNEL_NS);
		if (name[0] == 'c')
			MUST(cudaMemcpyAsync(target, source, 4096, cudaMemcpyDeviceToHost, stream));
		if (name[0] == 'h')
			MUST(cudaLaunchHostFunc(stream, nothing, NULL));
		took_ns[is_pinned] = free_ns(block, is_pinned);
		MUST(cudaDeviceSynchronize());
	}
	printf("\"%s\": {\"cudaFree_ms\": %.3f, \"cudaFreeHost_ms\": %.3f}%s", name,
	       took_ns[0] / 1e6, took_ns[1] / 1e6, separator);
	MUST(cudaFree(source));
	MUST(cudaFreeHost(target));
	if (managed)
		MUST(cudaFree(managed));
}

int
main(int argc, char **argv)
{
	const uint64_t start_ns = host_now_ns();
	uint64_t random = 0x243f6a8885a308d3ull;
	struct times times[N_KINDS] = {};
	cudaStream_t used, busy[N_KINDS];

	if (argc != 3)
		return 2;
	const size_t n_rounds = strtoull(argv[1], NULL, 10) / (N_DEVICE + N_PINNED);
	const uint64_t deadline_ns = start_ns + (uint64_t)(atof(argv[2]) * 1e9);
	MUST(cudaStreamCreate(&used));
	busy[0] = used;
	MUST(cudaStreamCreate(&busy[1]));
	MUST(cudaStreamCreateWithFlags(&busy[2], cudaStreamNonBlocking));
	for (size_t i = 0; i < n_rounds && host_now_ns() < deadline_ns; i++)
		one_round(used, busy[i % N_KINDS], &random, &times[i % N_KINDS]);
	printf("{\"seed\": \"0x243f6a8885a308d3\", \"kernel_ms\": 200, \"frees\": {");
	for (int i = 0; i < N_KINDS; i++) {
		print_times(kind_names[i], &times[i]);
		printf("%s", i + 1 < N_KINDS ? ", " : "}, \"visible\": {");
	}
	visible("plain_kernel", busy[2], ", ");
	visible("copy_to_host", busy[2], ", ");
	visible("host_function", busy[2], ", ");
	visible("managed_exists", busy[2], "");
	printf("}, \"seconds\": %.3f}\n", (host_now_ns() - start_ns) / 1e9);
	return 0;
}
