/* SPDX-License-Identifier: MIT */
/*
 * One cell of the hang matrix: an action while a kernel spins until the program ends it later.
 *
 * usage: gpu_hang ACTION ENDER
 *
 * Before: a kernel of 50 ms on the spinning stream, behind which a block is freed and taken again,
 * so that under the shim there is early memory and something to wait for. Then the spinning kernel,
 * the action, and the end of the kernel: by this thread's store to mapped memory (host), by its copy
 * on another stream (copy), or by the copy of another thread that comes 100 ms after the action
 * began (thread). Prints one JSON object; the caller bounds the time.
 */
#include <atomic>
#include <csignal>
#include <cstring>
#include <dlfcn.h>
#include <thread>
#include <unistd.h>

#include "gpu_clock.cuh"

enum { MIB = 1 << 20, N_KEPT = 32 };

struct cell {
	cudaStream_t spinning, other, copying, doomed;
	volatile unsigned *flag; /* what the kernel reads */
	unsigned *one;           /* pinned, for the copies */
	unsigned *block;
	cudaError_t status;
};

static __global__ void
spin(volatile unsigned *flag)
{
	while (!*flag)
		__nanosleep(1000);
}

static __global__ void
touch(unsigned *block)
{
	*block = 1;
}

static cudaError_t
allocate(size_t bytes)
{
	void *block;

	return cudaMalloc(&block, bytes);
}

static cudaError_t
capture(struct cell *cell)
{
	cudaGraph_t graph;
	cudaError_t r = cudaStreamBeginCapture(cell->other, cudaStreamCaptureModeThreadLocal);

	if (r)
		return r;
	touch<<<1, 1, 0, cell->other>>>(cell->block);
	r = cudaStreamEndCapture(cell->other, &graph);
	return r ? r : cudaGraphDestroy(graph);
}

static cudaError_t
trim()
{
	const auto free_all = (void (*)(int))dlsym(RTLD_DEFAULT, "poolshim_free_all_blocks");

	if (free_all)
		free_all(0);
	return cudaSuccess;
}

/* Done when the dump is there; natively nobody takes the signal, and the program ignores it. */
static cudaError_t
dump()
{
	const char *path = getenv("POOLSHIM_DUMP");

	raise(SIGUSR1);
	while (path && access(path, F_OK))
		std::this_thread::yield();
	return cudaSuccess;
}

static cudaError_t
act(struct cell *cell, const char *action)
{
	if (!strcmp(action, "malloc_hit"))
		return allocate(MIB);
	if (!strcmp(action, "malloc_grow"))
		return allocate(3 * MIB + MIB / 2);
	if (!strcmp(action, "malloc_past_peak"))
		return allocate(N_KEPT * 4 * (size_t)MIB);
	if (!strcmp(action, "free"))
		return cudaFree(cell->block);
	if (!strcmp(action, "launch_other")) {
		touch<<<1, 1, 0, cell->other>>>(cell->block);
		return cudaStreamSynchronize(cell->other);
	}
	if (!strcmp(action, "copy_other")) {
		cudaMemcpyAsync(cell->block, cell->one, 4, cudaMemcpyHostToDevice, cell->other);
		return cudaStreamSynchronize(cell->other);
	}
	if (!strcmp(action, "stream_destroy"))
		return cudaStreamDestroy(cell->doomed);
	if (!strcmp(action, "capture"))
		return capture(cell);
	if (!strcmp(action, "trim"))
		return trim();
	if (!strcmp(action, "dump"))
		return dump();
	fprintf(stderr, "gpu_hang: no action %s\n", action);
	exit(2);
}

static void
set_up(struct cell *cell, bool is_host)
{
	unsigned *kept[N_KEPT], *flag;

	MUST(cudaStreamCreateWithFlags(&cell->spinning, cudaStreamNonBlocking));
	MUST(cudaStreamCreateWithFlags(&cell->other, cudaStreamNonBlocking));
	MUST(cudaStreamCreateWithFlags(&cell->copying, cudaStreamNonBlocking));
	MUST(cudaStreamCreateWithFlags(&cell->doomed, cudaStreamNonBlocking));
	MUST(cudaHostAlloc(&cell->one, 4, cudaHostAllocMapped));
	*cell->one = 1;
	if (is_host)
		MUST(cudaHostAlloc(&flag, 4, cudaHostAllocMapped));
	else
		MUST(cudaMalloc(&flag, 4));
	MUST(cudaMemset(flag, 0, 4));
	cell->flag = flag;
	for (unsigned *&block : kept)
		MUST(cudaMalloc(&block, MIB));
	/* Code is loaded at a kernel's first launch, which may wait for running kernels. */
	touch<<<1, 1, 0, cell->doomed>>>(kept[0]);
	for (int i = N_KEPT / 2; i < N_KEPT; i++)
		MUST(cudaFree(kept[i]));
	cell->block = kept[0];
	MUST(cudaMemcpyAsync(kept[1], cell->one, 4, cudaMemcpyHostToDevice, cell->copying));
	spin<<<1, 1, 0, cell->spinning>>>(cell->one);
	hold<<<1, 1, 0, cell->spinning>>>(1000);
	MUST(cudaDeviceSynchronize());
}

static void
end_kernel(struct cell *cell, bool is_host)
{
	if (is_host)
		*cell->flag = 1;
	else
		MUST(cudaMemcpyAsync((void *)cell->flag, cell->one, 4, cudaMemcpyHostToDevice,
				     cell->copying));
}

int
main(int argc, char **argv)
{
	struct cell cell = {};
	std::atomic<bool> is_acting{false};
	std::thread ender;
	unsigned *early;

	if (argc != 3)
		return 2;
	const bool is_host = !strcmp(argv[2], "host"), is_thread = !strcmp(argv[2], "thread");
	if (!getenv("LD_PRELOAD"))
		signal(SIGUSR1, SIG_IGN);
	set_up(&cell, is_host);
	MUST(cudaMalloc(&early, MIB));
	hold<<<1, 1, 0, cell.spinning>>>(50000000);
	const uint64_t start_ns = host_now_ns();
	MUST(cudaFree(early));
	MUST(cudaMalloc(&early, MIB));
	spin<<<1, 1, 0, cell.spinning>>>(cell.flag);
	MUST(cudaGetLastError());
	if (is_thread)
		ender = std::thread([&] {
			while (!is_acting)
				std::this_thread::yield();
			std::this_thread::sleep_for(std::chrono::milliseconds(100));
			end_kernel(&cell, false);
		});
	is_acting = true;
	cell.status = act(&cell, argv[1]);
	const double action_s = (host_now_ns() - start_ns) / 1e9;
	if (is_thread)
		ender.join();
	else
		end_kernel(&cell, is_host);
	MUST(cudaStreamSynchronize(cell.spinning));
	printf("{\"status\": %d, \"action_s\": %.4f, \"seconds\": %.4f}\n", cell.status, action_s,
	       (host_now_ns() - start_ns) / 1e9);
	fflush(stdout);
	_exit(0);
}
