/* SPDX-License-Identifier: MIT */
/*
 * All ways for a program to end: the exit code is its own, nothing hangs, and the dump is there
 * where it should be.
 *
 * usage: victim_exit DIR         runs itself once for each way and looks for the dumps in DIR
 *        victim_exit --way WAY   ends in this way, holding a known number of bytes
 */
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cuda_runtime_api.h>

#include "tests/preload/victim.h"

enum { HELD_BYTES = 1000 + 3000000, EXIT_CODE = 7, N_WAITS_MAX = 20000 };

static const struct way {
	const char *name;
	int exit_code, signal_number; /* how it ends */
	bool is_dumped;
	int held_bytes; /* what the dump must say is still requested */
} ways[] = {
	{"return", EXIT_CODE, 0, true, HELD_BYTES},
	{"exit", EXIT_CODE, 0, true, HELD_BYTES},
	{"exit-in-thread", EXIT_CODE, 0, true, HELD_BYTES},
	{"free-in-destructor", EXIT_CODE, 0, true, -1},
	{"free-at-exit", EXIT_CODE, 0, true, -1},
	{"reset-then-return", EXIT_CODE, 0, true, 0},
	{"_exit", EXIT_CODE, 0, false, -1},
	{"abort", 0, SIGABRT, false, -1},
};

static void *freed_late;

static void __attribute__((destructor)) free_late(void)
{
	if (freed_late && cudaFree(freed_late) == cudaSuccess)
		freed_late = NULL;
}

static void
free_at_exit(void)
{
	free_late();
}

static void *
exit_in_thread(void *arg)
{
	(void)arg;
	exit(EXIT_CODE);
}

static int
end_by(const char *way)
{
	void *small, *large, *cached;
	pthread_t thread;

	MUST(cudaMalloc(&small, 1000));
	MUST(cudaMalloc(&large, 3000000));
	MUST(cudaMalloc(&cached, 50000));
	MUST(cudaFree(cached));

	if (strcmp(way, "exit") == 0)
		exit(EXIT_CODE);
	if (strcmp(way, "_exit") == 0)
		_exit(EXIT_CODE);
	if (strcmp(way, "abort") == 0)
		abort();
	if (strcmp(way, "reset-then-return") == 0)
		MUST(cudaDeviceReset());
	if (strcmp(way, "free-in-destructor") == 0)
		freed_late = large;
	if (strcmp(way, "free-at-exit") == 0) {
		freed_late = large;
		atexit(free_at_exit);
	}
	if (strcmp(way, "exit-in-thread") == 0) {
		pthread_create(&thread, NULL, exit_in_thread, NULL);
		pthread_join(thread, NULL);
	}
	return EXIT_CODE;
}

/* The child's status, or -1 when it had to be killed. */
static int
wait_with_limit(pid_t pid)
{
	const struct timespec pause = {.tv_nsec = 1000000};
	int status;

	for (int i = 0; i < N_WAITS_MAX; i++) {
		if (waitpid(pid, &status, WNOHANG) == pid)
			return status;
		nanosleep(&pause, NULL);
	}
	kill(pid, SIGKILL);
	waitpid(pid, &status, 0);
	return -1;
}

/* The first number after this key; -1 when there is none. */
static long long
number_in(const char *path, const char *key)
{
	static char text[1 << 20];
	FILE *file = fopen(path, "r");
	const char *found;
	size_t n_read;

	if (!file)
		return -1;
	n_read = fread(text, 1, sizeof(text) - 1, file);
	text[n_read] = '\0';
	fclose(file);
	found = strstr(text, key);
	found = found ? strpbrk(found + strlen(key), "0123456789") : NULL;
	return found ? strtoll(found, NULL, 10) : -1;
}

static void
check_way(const char *self, const struct way *way, const char *dir, bool is_shimmed)
{
	char path[4096];
	int status;
	pid_t pid;

	snprintf(path, sizeof(path), "%s/%s.json", dir, way->name);
	unlink(path);
	setenv("POOLSHIM_DUMP", path, 1);
	pid = fork();
	if (pid == 0) {
		execl(self, self, "--way", way->name, (char *)NULL);
		_exit(127);
	}
	status = wait_with_limit(pid);
	EXPECT(status != -1, "%s: the program hung", way->name);
	if (way->signal_number)
		EXPECT(WIFSIGNALED(status) && WTERMSIG(status) == way->signal_number,
		       "%s: ended with status %#x", way->name, status);
	else
		EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == way->exit_code,
		       "%s: ended with status %#x", way->name, status);
	if (!is_shimmed)
		return;
	EXPECT((access(path, F_OK) == 0) == way->is_dumped, "%s: a dump is %s", way->name,
	       way->is_dumped ? "missing" : "there");
	if (way->is_dumped && way->held_bytes >= 0)
		EXPECT(number_in(path, "\"requested_bytes\"") == way->held_bytes,
		       "%s: the dump says %lld bytes were held, not %d", way->name,
		       number_in(path, "\"requested_bytes\""), way->held_bytes);
}

int
main(int argc, char **argv)
{
	const bool is_shimmed = dlsym(RTLD_DEFAULT, "poolshim_used_bytes") != NULL;

	if (argc == 3 && strcmp(argv[1], "--way") == 0)
		return end_by(argv[2]);
	if (argc != 2) {
		fprintf(stderr, "usage: %s DIR\n", argv[0]);
		return 2;
	}
	for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++)
		check_way("/proc/self/exe", &ways[i], argv[1], is_shimmed);
	return victim_end("victim_exit");
}
