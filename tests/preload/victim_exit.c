/* SPDX-License-Identifier: MIT */
/*
 * All ways for a program to end: the exit code is its own, nothing hangs, and the dump is there
 * where it should be.
 *
 * usage: victim_exit DIR         runs itself once for each way and looks for the dumps in DIR
 *        victim_exit --way WAY   ends in this way, holding a known number of bytes
 *
 * The exit codes are those of the native run, which the test makes too.
 */
#include <dirent.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <sys/time.h>
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
	{"exit-beside-threads", EXIT_CODE, 0, true, -1},
	{"exit-in-handler", EXIT_CODE, 0, true, -1},
	{"exit-in-handler-of-a-thread", EXIT_CODE, 0, true, -1},
	{"exit-after-signal", EXIT_CODE, 0, true, HELD_BYTES},
	{"exit-during-dump", EXIT_CODE, 0, true, HELD_BYTES},
	{"main-leaves-thread-exits", EXIT_CODE, 0, true, HELD_BYTES},
	{"no-room-for-files", EXIT_CODE, 0, false, -1},
	{"no-descriptors", EXIT_CODE, 0, false, -1},
	{"_exit", EXIT_CODE, 0, false, -1},
	{"quick_exit", EXIT_CODE, 0, false, -1},
	{"abort", 0, SIGABRT, false, -1},
	{"crash", 0, SIGSEGV, false, -1},
	{"terminated", 0, SIGTERM, false, -1},
	{"killed", 0, SIGKILL, false, -1},
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

static void
exit_on_signal(int number)
{
	(void)number;
	exit(EXIT_CODE);
}

/* Never returns: the timer's signal ends the process, most often inside an allocation. */
static void *
allocate_for_ever(void *arg)
{
	void *block;

	(void)arg;
	for (;;) {
		MUST(cudaMalloc(&block, 4096));
		MUST(cudaFree(block));
	}
}

static void
allocate_until_alarm(long delay_us)
{
	const struct itimerval delay = {.it_value.tv_usec = delay_us};

	signal(SIGALRM, exit_on_signal);
	setitimer(ITIMER_REAL, &delay, NULL);
	allocate_for_ever(NULL);
}

static void *
allocate_for_ever_unblocked(void *arg)
{
	sigset_t none;

	sigemptyset(&none);
	pthread_sigmask(SIG_SETMASK, &none, NULL);
	return allocate_for_ever(arg);
}

/* The handler runs in a thread that is not main's, and the others go on. */
static void
allocate_in_threads_until_alarm(void)
{
	sigset_t alarm_only;
	pthread_t thread;

	sigemptyset(&alarm_only);
	sigaddset(&alarm_only, SIGALRM);
	pthread_sigmask(SIG_BLOCK, &alarm_only, NULL);
	pthread_create(&thread, NULL, allocate_for_ever_unblocked, NULL);
	allocate_until_alarm(30000);
}

static void
exit_beside_threads(void)
{
	pthread_t threads[4];

	for (int i = 0; i < 4; i++)
		pthread_create(&threads[i], NULL, allocate_for_ever, NULL);
	for (int i = 0; i < 1000; i++) {
		void *block;

		MUST(cudaMalloc(&block, 4096));
		MUST(cudaFree(block));
	}
	exit(EXIT_CODE);
}

static bool has_shim;

/* Natively the signal would end the program. */
static void
exit_after_signals(int n_signals)
{
	for (int i = 0; has_shim && i < n_signals; i++)
		raise(SIGUSR1);
	exit(EXIT_CODE);
}

/* A joined thread of the driver would keep the process alive, natively too: a thread has to end it.
 */
static void
leave_main(void)
{
	pthread_t thread;

	pthread_create(&thread, NULL, exit_in_thread, NULL);
	pthread_exit(NULL);
}

static void
limit(int resource)
{
	const struct rlimit none = {0, 0};

	MUST(setrlimit(resource, &none));
	exit(EXIT_CODE);
}

static void
crash(void)
{
	volatile int *nowhere = NULL;

	signal(SIGSEGV, SIG_DFL); /* a sanitizer's handler would answer */
	*nowhere = 1;
}

/* The ways that end more than the main function; returns from the others. */
static void
end_harder(const char *way)
{
	if (strcmp(way, "exit-beside-threads") == 0)
		exit_beside_threads();
	if (strcmp(way, "exit-in-handler") == 0)
		allocate_until_alarm(20000);
	if (strcmp(way, "exit-in-handler-of-a-thread") == 0)
		allocate_in_threads_until_alarm();
	if (strcmp(way, "exit-after-signal") == 0)
		exit_after_signals(1);
	if (strcmp(way, "exit-during-dump") == 0)
		exit_after_signals(1000);
	if (strcmp(way, "main-leaves-thread-exits") == 0)
		leave_main();
	if (strcmp(way, "no-room-for-files") == 0)
		limit(RLIMIT_FSIZE);
	if (strcmp(way, "no-descriptors") == 0)
		limit(RLIMIT_NOFILE);
	if (strcmp(way, "quick_exit") == 0)
		quick_exit(EXIT_CODE);
	if (strcmp(way, "crash") == 0)
		crash();
	if (strcmp(way, "terminated") == 0)
		raise(SIGTERM);
	if (strcmp(way, "killed") == 0)
		raise(SIGKILL);
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

	end_harder(way);
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

/* A dump is written beside its place and renamed: nothing of that may be left. */
static void
check_no_rest(const char *dir)
{
	DIR *folder = opendir(dir);
	const struct dirent *entry;

	while (folder && (entry = readdir(folder)))
		EXPECT(!strstr(entry->d_name, ".tmp"), "%s was left behind", entry->d_name);
	if (folder)
		closedir(folder);
}

static int
run_way(const char *name)
{
	const pid_t pid = fork();

	if (pid == 0) {
		execl("/proc/self/exe", "victim_exit", "--way", name, (char *)NULL);
		_exit(127);
	}
	return wait_with_limit(pid);
}

static void
check_way(const struct way *way, const char *dir, bool is_shimmed)
{
	char path[4096];
	int status;

	snprintf(path, sizeof(path), "%s/%s.json", dir, way->name);
	unlink(path);
	setenv("POOLSHIM_DUMP", path, 1);
	status = run_way(way->name);
	EXPECT(status != -1, "%s: the program hung", way->name);
	if (way->signal_number)
		EXPECT(WIFSIGNALED(status) && WTERMSIG(status) == way->signal_number,
		       "%s: ended with status %#x", way->name, status);
	else
		EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == way->exit_code,
		       "%s: ended with status %#x", way->name, status);
	check_no_rest(dir);
	if (!is_shimmed)
		return;
	EXPECT((access(path, F_OK) == 0) == way->is_dumped, "%s: a dump is %s", way->name,
	       way->is_dumped ? "missing" : "there");
	if (way->is_dumped && way->held_bytes >= 0)
		EXPECT(number_in(path, "\"requested_bytes\"") == way->held_bytes,
		       "%s: the dump says %lld bytes were held, not %d", way->name,
		       number_in(path, "\"requested_bytes\""), way->held_bytes);
}

/* More where luck decides what is interrupted, or who comes first. */
static int
n_rounds(const struct way *way)
{
	return strncmp(way->name, "exit-in-handler", strlen("exit-in-handler")) == 0 ? 12 : 1;
}

static bool
has_reason(const char *dir, int number, const char *reason)
{
	char path[4096], text[4096] = "", wanted[64];
	FILE *file;

	snprintf(path, sizeof(path), "%s/both-%d.json", dir, number);
	snprintf(wanted, sizeof(wanted), "\"reason\": \"%s\"", reason);
	file = fopen(path, "r");
	if (!file)
		return false;
	text[fread(text, 1, sizeof(text) - 1, file)] = '\0';
	fclose(file);
	unlink(path);
	return strstr(text, wanted) != NULL;
}

/* A dump that was asked for right before the end is written, and so is that of the end. */
static void
check_both_dumps(const char *dir)
{
	enum { N_ROUNDS = 10 };
	char form[4096];

	snprintf(form, sizeof(form), "%s/both-%%n.json", dir);
	for (int round = 0; round < N_ROUNDS; round++) {
		setenv("POOLSHIM_DUMP", form, 1);
		EXPECT(run_way("exit-after-signal") != -1, "the program hung");
		EXPECT(has_reason(dir, 0, "signal"), "round %d: the signal's dump is lost", round);
		EXPECT(has_reason(dir, 1, "exit"), "round %d: the dump of the end is lost", round);
	}
}

int
main(int argc, char **argv)
{
	const bool is_shimmed = dlsym(RTLD_DEFAULT, "poolshim_used_bytes") != NULL;

	has_shim = is_shimmed;
	if (argc == 3 && strcmp(argv[1], "--way") == 0)
		return end_by(argv[2]);
	if (argc != 2) {
		fprintf(stderr, "usage: %s DIR\n", argv[0]);
		return 2;
	}
	for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++)
		for (int round = 0; round < n_rounds(&ways[i]); round++)
			check_way(&ways[i], argv[1], is_shimmed);
	if (is_shimmed)
		check_both_dumps(argv[1]);
	return victim_end("victim_exit");
}
