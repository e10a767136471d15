/* SPDX-License-Identifier: MIT */
/*
 * The ways out of a program, each with memory still held and work still running: the exit code and
 * what was printed are the native ones. usage: gpu_exit WAY
 */
#include <csignal>
#include <cstring>
#include <pthread.h>
#include <thread>
#include <unistd.h>

#include "gpu_common.cuh"

static void
hold_memory_and_work()
{
	void *device, *pinned, *gone;

	MUST(cudaMalloc(&device, 12345));
	MUST(cudaMalloc(&gone, 3 << 20));
	MUST(cudaMallocHost(&pinned, 4321));
	MUST(cudaMemset(device, 1, 12345));
	hold<<<1, 1>>>(50000000ull);
	MUST(cudaGetLastError());
	MUST(cudaFree(gone));
	hold<<<1, 1>>>(50000000ull);
	MUST(cudaGetLastError());
	printf("holding: device 12345 pinned 4321\n");
	fflush(stdout);
}

static void *
exit_late(void *)
{
	hold_memory_and_work();
	exit(12);
}

static int
leave(const char *way)
{
	if (!strcmp(way, "return"))
		return 7;
	if (!strcmp(way, "exit"))
		exit(8);
	if (!strcmp(way, "_exit"))
		_exit(9);
	if (!strcmp(way, "quick_exit"))
		quick_exit(10);
	if (!strcmp(way, "abort"))
		abort();
	if (!strcmp(way, "sigkill"))
		raise(SIGKILL);
	if (!strcmp(way, "sigterm"))
		raise(SIGTERM);
	if (!strcmp(way, "segv"))
		raise(SIGSEGV);
	if (!strcmp(way, "exit_in_thread"))
		std::thread([] { exit(11); }).join();
	fprintf(stderr, "unknown way '%s'\n", way);
	return 2;
}

int
main(int argc, char **argv)
{
	const char *way = argc > 1 ? argv[1] : "";

	if (!strcmp(way, "exit_without_main")) { /* the first thread is gone before CUDA starts */
		pthread_t thread;

		if (pthread_create(&thread, NULL, exit_late, NULL))
			return 1;
		pthread_exit(NULL);
	}
	hold_memory_and_work();
	return leave(way);
}
