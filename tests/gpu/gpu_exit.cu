/* SPDX-License-Identifier: MIT */
/*
 * The ways out of a program, each with memory still held and work still running: the exit code and
 * what was printed are the native ones.
 *
 * usage: gpu_exit WAY [clone]
 *   clone   first a child made by a bare clone(), for which no fork handler runs, ends by exit()
 */
#include <csignal>
#include <cstring>
#include <pthread.h>
#include <sys/syscall.h>
#include <sys/wait.h>
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

/* CUDA's own handlers may not like to run there: the child gets no longer than that. */
static void
clone_child()
{
	const pid_t pid = (pid_t)syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL);
	int status = 0;

	if (!pid) {
		alarm(10);
		exit(14);
	}
	waitpid(pid, &status, 0);
	printf("child: exit %d, signal %d\n", WIFEXITED(status) ? WEXITSTATUS(status) : -1,
	       WIFSIGNALED(status) ? WTERMSIG(status) : 0);
	fflush(stdout);
}

static void
exit_in_handler(int)
{
	exit(13);
}

/* Until a signal comes, whose handler ends the process wherever the loop is. */
static void
loop()
{
	signal(SIGTERM, exit_in_handler);
	printf("looping\n");
	fflush(stdout);
	for (unsigned i = 0;; i++) {
		void *block, *pinned;

		MUST(cudaMalloc(&block, 1000 + i % 64 * 100000));
		MUST(cudaMallocHost(&pinned, 1000));
		MUST(cudaFreeHost(pinned));
		MUST(cudaFree(block));
	}
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
	if (!strcmp(way, "wait")) /* for a signal from outside */
		pause();
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
	if (!strcmp(way, "loop"))
		loop();
	hold_memory_and_work();
	if (argc > 2 && !strcmp(argv[2], "clone"))
		clone_child();
	return leave(way);
}
