/* SPDX-License-Identifier: MIT */
/*
 * SIGUSR1 a thousand times a second while eight threads allocate, write, read back and free.
 *
 * usage: gpu_storm default|before|after   whether the program has a handler of its own, set before
 *                                         or after CUDA starts
 *
 * "default" sends nothing where the signal would end the program, as it does natively. Prints the
 * same lines for every run; the figures are in lines that start with TIME.
 */
#include <atomic>
#include <csignal>
#include <cstring>
#include <thread>
#include <time.h>
#include <unistd.h>
#include <vector>

#include "gpu_common.cuh"

enum { N_THREADS = 8, N_SIGNALS = 1500, N_BYTES_MAX = 1 << 20 };

static std::atomic<unsigned> n_handled, n_wrong, n_blocks;
static std::atomic<bool> is_over;

static void
count_signal(int)
{
	n_handled++;
}

static void
take_signal()
{
	struct sigaction action = {};

	action.sa_handler = count_signal;
	action.sa_flags = SA_RESTART;
	sigaction(SIGUSR1, &action, NULL);
}

static void
allocate(unsigned number)
{
	std::vector<unsigned char> seen(N_BYTES_MAX);
	unsigned state = number * 2654435761u + 1;
	cudaStream_t stream;

	MUST(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
	do {
		state = state * 1664525u + 1013904223u;
		const size_t n_bytes = 1 + (state >> 8) % (N_BYTES_MAX >> state % 12);
		unsigned char *block;

		MUST(cudaMalloc(&block, n_bytes));
		MUST(cudaMemsetAsync(block, (int)(state & 0xff), n_bytes, stream));
		MUST(cudaMemcpyAsync(seen.data(), block, n_bytes, cudaMemcpyDeviceToHost, stream));
		MUST(cudaStreamSynchronize(stream));
		n_wrong += seen[0] != (state & 0xff) || seen[n_bytes - 1] != (state & 0xff);
		MUST(cudaFree(block));
		n_blocks++;
	} while (!is_over);
	MUST(cudaStreamDestroy(stream));
}

static void
send_signals(bool is_taken)
{
	timespec next;

	clock_gettime(CLOCK_MONOTONIC, &next);
	for (int i = 0; i < N_SIGNALS; i++) {
		next.tv_nsec += 1000000;
		if (next.tv_nsec >= 1000000000) {
			next.tv_nsec -= 1000000000;
			next.tv_sec++;
		}
		while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &next, NULL))
			;
		if (is_taken)
			kill(getpid(), SIGUSR1);
	}
	is_over = true;
}

int
main(int argc, char **argv)
{
	const char *way = argc > 1 ? argv[1] : "default";
	std::vector<std::thread> threads;
	struct sigaction action;

	if (!strcmp(way, "before"))
		take_signal();
	MUST(cudaFree(NULL));
	if (!strcmp(way, "after"))
		take_signal();
	sigaction(SIGUSR1, NULL, &action);
	const bool is_taken = action.sa_handler != SIG_DFL;
	const auto start = std::chrono::steady_clock::now();
	for (unsigned i = 0; i < N_THREADS; i++)
		threads.emplace_back(allocate, i);
	send_signals(is_taken);
	for (auto &thread : threads)
		thread.join();
	MUST(cudaDeviceSynchronize());
	printf("storm %s: %u blocks wrong, the program's handler %s\n", way, n_wrong.load(),
	       n_handled ? "ran" : "did not run");
	printf("TIME signals %d\n", is_taken ? N_SIGNALS : 0);
	printf("TIME seconds %.3f\n", us_since(start) / 1e6);
	printf("TIME blocks %u\n", n_blocks.load());
	printf("TIME handled %u\n", n_handled.load());
	return n_wrong ? 1 : 0;
}
