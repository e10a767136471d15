/* SPDX-License-Identifier: MIT */
/*
 * SIGUSR1 gives a dump and disturbs nothing; a program's own handler stays its own, set before or
 * after the shim's.
 *
 * usage: victim_signal default|before|after|ignore|storm
 *   with POOLSHIM_DUMP=PATH (no % in it), where the dump is looked for. Exit code 77 without the
 * shim.
 */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "tests/preload/victim.h"

enum { N_STORM = 10000, N_WAITS = 5000 };

static atomic_int n_own_signals;
static atomic_bool is_over;
static int pipe_ends[2];

static void
own_handler(int number)
{
	(void)number;
	atomic_fetch_add(&n_own_signals, 1);
}

static void
set_own_handler(void)
{
	struct sigaction action = {.sa_handler = own_handler, .sa_flags = SA_RESTART};

	if (sigaction(SIGUSR1, &action, NULL) != 0)
		exit(2);
}

static void
short_sleep(void)
{
	const struct timespec pause = {.tv_nsec = 1000000};

	nanosleep(&pause, NULL);
}

static void
allocate_once(void)
{
	CUdeviceptr block;
	void *pinned;

	MUST(cuMemAlloc_v2(&block, 3000));
	MUST(cuMemHostAlloc(&pinned, 3000, 0));
	MUST(cuMemFree_v2(block));
	MUST(cuMemFreeHost(pinned));
}

static bool
holds(const char *path, const char *word)
{
	static char text[1 << 20];
	FILE *file = fopen(path, "r");
	size_t n_read;

	if (!file)
		return false;
	n_read = fread(text, 1, sizeof(text) - 1, file);
	text[n_read] = '\0';
	fclose(file);
	return strstr(text, word) != NULL;
}

/* The dump may be written by another thread, or by this one's next allocation. */
static bool
dump_appears(const char *path)
{
	for (int i = 0; i < N_WAITS; i++) {
		if (holds(path, "signal"))
			return true;
		allocate_once();
		short_sleep();
	}
	return false;
}

static void
expect_dump(const char *path)
{
	unlink(path);
	raise(SIGUSR1);
	EXPECT(dump_appears(path), "SIGUSR1 left no dump with reason signal in %s", path);
}

static void
expect_own(void)
{
	const int n_before = atomic_load(&n_own_signals);

	for (int i = 0; i < 3; i++) {
		raise(SIGUSR1);
		allocate_once();
	}
	EXPECT(atomic_load(&n_own_signals) == n_before + 3,
	       "the program's own handler ran %d times, not 3",
	       atomic_load(&n_own_signals) - n_before);
}

static void *
allocate_until_over(void *arg)
{
	CUcontext *context = arg;

	MUST(cuCtxSetCurrent(*context));
	while (!atomic_load(&is_over))
		allocate_once();
	return NULL;
}

/* A read that a signal interrupts would fail with EINTR where natively nothing came. */
static void *
read_until_over(void *arg)
{
	char byte = 0;

	(void)arg;
	while (byte != 'q') {
		const ssize_t n_read = read(pipe_ends[0], &byte, 1);

		EXPECT(n_read == 1, "a read was disturbed: %zd, errno %d", n_read, errno);
	}
	return NULL;
}

static void
storm(const char *path, CUcontext context)
{
	pthread_t workers[2], reader;

	if (pipe(pipe_ends) != 0)
		exit(2);
	for (int i = 0; i < 2; i++)
		pthread_create(&workers[i], NULL, allocate_until_over, &context);
	pthread_create(&reader, NULL, read_until_over, NULL);
	for (int i = 0; i < N_STORM; i++) {
		pthread_kill(i % 3 == 0   ? workers[0]
			     : i % 3 == 1 ? reader
					  : pthread_self(),
			     SIGUSR1);
		if (i % 64 == 0)
			allocate_once();
	}
	atomic_store(&is_over, true);
	EXPECT(write(pipe_ends[1], "q", 1) == 1, "the reader could not be told");
	for (int i = 0; i < 2; i++)
		pthread_join(workers[i], NULL);
	pthread_join(reader, NULL);
	expect_dump(path);
}

int
main(int argc, char **argv)
{
	const char *mode = argc == 2 ? argv[1] : "", *path = getenv("POOLSHIM_DUMP");
	struct poolshim_api api;
	struct sigaction action;
	CUcontext context;

	if (!poolshim_find(&api)) {
		printf("victim_signal: the shim is not loaded, SIGUSR1 would end the program\n");
		return 77;
	}
	if (!path || (strcmp(mode, "default") && strcmp(mode, "before") && strcmp(mode, "after") &&
		      strcmp(mode, "ignore") && strcmp(mode, "storm"))) {
		fprintf(stderr, "usage: POOLSHIM_DUMP=PATH victim_signal "
				"default|before|after|ignore|storm\n");
		return 2;
	}
	if (strcmp(mode, "before") == 0)
		set_own_handler();
	if (strcmp(mode, "ignore") == 0)
		signal(SIGUSR1, SIG_IGN);
	context = victim_start();
	allocate_once();
	if (strcmp(mode, "after") == 0)
		set_own_handler();

	if (strcmp(mode, "default") == 0 || strcmp(mode, "ignore") == 0) {
		expect_dump(path);
		expect_dump(path);
	} else if (strcmp(mode, "storm") == 0) {
		storm(path, context);
	} else {
		sigaction(SIGUSR1, NULL, &action);
		EXPECT(action.sa_handler == own_handler, "the program's own handler was replaced");
		expect_own();
	}
	allocate_once();
	poolshim_check_identity(&api, "at the end");
	return victim_end("victim_signal");
}
