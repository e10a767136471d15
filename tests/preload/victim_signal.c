/* SPDX-License-Identifier: MIT */
/*
 * SIGUSR1 gives a dump and disturbs nothing; a program's own handler stays its own, set before or
 * after the shim's.
 *
 * usage: victim_signal default|before|after|siginfo|ignore|storm|early|late|chain|blocked|rate
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

enum { N_STORM = 10000, N_WAITS = 5000, N_RATE = 2000, N_RATE_THREADS = 8 };

static atomic_int n_own_signals;
static atomic_ullong n_allocations; /* of device memory, of which the dump must know */
static atomic_bool is_over;
static struct sigaction chained;
static int pipe_ends[2];

static void
own_handler(int number)
{
	(void)number;
	atomic_fetch_add(&n_own_signals, 1);
}

/* As Java's and Go's runtimes have it. */
static void
own_siginfo_handler(int number, siginfo_t *info, void *ucontext)
{
	(void)ucontext;
	if (info->si_signo == number)
		own_handler(number);
}

/* As libraries do that came second: the handler that was there runs too. */
static void
chaining_handler(int number)
{
	own_handler(number);
	if (!(chained.sa_flags & SA_SIGINFO) && chained.sa_handler != SIG_DFL &&
	    chained.sa_handler != SIG_IGN)
		chained.sa_handler(number);
}

static void
set_own_handler(const char *mode)
{
	struct sigaction action = {.sa_handler = own_handler, .sa_flags = SA_RESTART};

	if (strcmp(mode, "siginfo") == 0) {
		action.sa_sigaction = own_siginfo_handler;
		action.sa_flags |= SA_SIGINFO;
	}

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
	atomic_fetch_add(&n_allocations, 1);
	MUST(cuMemHostAlloc(&pinned, 3000, 0));
	MUST(cuMemFree_v2(block));
	MUST(cuMemFreeHost(pinned));
}

/* Is a signal's dump there, and how many allocations does it know of? -1: it is not. */
static long long
dumped_allocations(const char *path)
{
	static char text[1 << 20];
	FILE *file = fopen(path, "r");
	const char *count;
	size_t n_read;

	if (!file)
		return -1;
	n_read = fread(text, 1, sizeof(text) - 1, file);
	text[n_read] = '\0';
	fclose(file);
	count = strstr(text, "\"alloc_count\": ");
	return strstr(text, "\"reason\": \"signal\"") && count
		       ? strtoll(count + strlen("\"alloc_count\": "), NULL, 10)
		       : -1;
}

/* A dump of now or later appears, written by another thread. */
static bool
dump_appears(const char *path, long long n_known)
{
	for (int i = 0; i < N_WAITS; i++) {
		if (dumped_allocations(path) >= n_known)
			return true;
		short_sleep();
	}
	return false;
}

static void
expect_dump_of(const char *path, long long n_known)
{
	EXPECT(dump_appears(path, n_known),
	       "SIGUSR1 left no dump with reason signal and %lld allocations in %s", n_known, path);
}

static void
expect_dump(const char *path)
{
	const unsigned long long n_known = atomic_load(&n_allocations);

	unlink(path);
	raise(SIGUSR1);
	expect_dump_of(path, (long long)n_known);
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

/* What came before CUDA started is answered when there is something to tell. */
static void
early(const char *path)
{
	EXPECT(dlsym(RTLD_DEFAULT, "cuMemAlloc_v2") != NULL, "no driver"); /* the first look-up */
	unlink(path);
	raise(SIGUSR1);
	victim_start();
	raise(SIGUSR1);
	allocate_once();
	expect_dump_of(path, 0);
	expect_dump(path);
}

static void
late(const char *path)
{
	MUST(cuDevicePrimaryCtxReset_v2(0));
	expect_dump(path);
}

static void
chain(const char *path)
{
	struct sigaction action = {.sa_handler = chaining_handler, .sa_flags = SA_RESTART};

	MUST(sigaction(SIGUSR1, &action, &chained));
	expect_dump(path);
	EXPECT(atomic_load(&n_own_signals) == 1, "the program's own handler did not run");
	MUST(sigaction(SIGUSR1, &chained, NULL)); /* put back what was there */
	expect_dump(path);
	EXPECT(atomic_load(&n_own_signals) == 1, "the program's own handler ran once more");
}

/* Blocked everywhere and waited for: it is the program's. */
static void
blocked(const char *path)
{
	sigset_t signals;
	int number = 0;

	sigemptyset(&signals);
	sigaddset(&signals, SIGUSR1);
	MUST(pthread_sigmask(SIG_BLOCK, &signals, NULL));
	unlink(path);
	for (int i = 0; i < 3; i++) {
		MUST(kill(getpid(), SIGUSR1));
		MUST(sigwait(&signals, &number));
		EXPECT(number == SIGUSR1, "signal %d came", number);
	}
	EXPECT(dumped_allocations(path) == -1, "a signal that the program took left a dump");
	MUST(kill(getpid(), SIGUSR1));
	MUST(pthread_sigmask(SIG_UNBLOCK, &signals, NULL));
	expect_dump_of(path, 0);
}

/* A thousand signals a second; the last one's dump shows what was there when it came. */
static void
rate(const char *path, CUcontext context)
{
	pthread_t workers[N_RATE_THREADS];
	unsigned long long n_known;

	for (int i = 0; i < N_RATE_THREADS; i++)
		pthread_create(&workers[i], NULL, allocate_until_over, &context);
	for (int i = 0; i < N_RATE; i++) {
		MUST(kill(getpid(), SIGUSR1));
		short_sleep();
	}
	n_known = atomic_load(&n_allocations);
	MUST(kill(getpid(), SIGUSR1));
	expect_dump_of(path, (long long)n_known);
	atomic_store(&is_over, true);
	for (int i = 0; i < N_RATE_THREADS; i++)
		pthread_join(workers[i], NULL);
	expect_dump(path);
}

static bool
is_one_of(const char *mode, const char *const *modes)
{
	while (*modes && strcmp(mode, *modes) != 0)
		modes++;
	return *modes != NULL;
}

static bool
is_own(const struct sigaction *action)
{
	return action->sa_flags & SA_SIGINFO ? action->sa_sigaction == own_siginfo_handler
					     : action->sa_handler == own_handler;
}

/* With CUDA started and the shim's handler or the program's in place. */
static void
test(const char *mode, const char *path, CUcontext context)
{
	struct sigaction action;

	if (strcmp(mode, "default") == 0 || strcmp(mode, "ignore") == 0) {
		expect_dump(path);
		expect_dump(path);
	} else if (strcmp(mode, "storm") == 0) {
		storm(path, context);
	} else if (strcmp(mode, "late") == 0) {
		late(path);
	} else if (strcmp(mode, "chain") == 0) {
		chain(path);
	} else if (strcmp(mode, "blocked") == 0) {
		blocked(path);
	} else if (strcmp(mode, "rate") == 0) {
		rate(path, context);
	} else if (strcmp(mode, "early") != 0) {
		MUST(sigaction(SIGUSR1, NULL, &action));
		EXPECT(is_own(&action), "the program's own handler was replaced");
		expect_own();
		EXPECT(dumped_allocations(path) == -1, "the program's signal left a dump");
	}
}

int
main(int argc, char **argv)
{
	static const char *const modes[] = {"default", "before",  "after", "siginfo",
					    "ignore",  "storm",   "early", "late",
					    "chain",   "blocked", "rate",  NULL};

	const char *mode = argc == 2 ? argv[1] : "", *path = getenv("POOLSHIM_DUMP");
	struct poolshim_api api;
	CUcontext context;

	if (!poolshim_find(&api)) {
		printf("victim_signal: the shim is not loaded, SIGUSR1 would end the program\n");
		return 77;
	}
	if (!path || !is_one_of(mode, modes)) {
		fprintf(stderr, "usage: POOLSHIM_DUMP=PATH victim_signal MODE\n");
		return 2;
	}
	if (strcmp(mode, "before") == 0 || strcmp(mode, "siginfo") == 0)
		set_own_handler(mode);
	if (strcmp(mode, "ignore") == 0)
		signal(SIGUSR1, SIG_IGN);
	if (strcmp(mode, "early") == 0)
		early(path);
	context = victim_start();
	allocate_once();
	if (strcmp(mode, "after") == 0)
		set_own_handler(mode);
	test(mode, path, context);
	victim_start(); /* anew, if the context has ended */
	allocate_once();
	poolshim_check_identity(&api, "at the end");
	return victim_end("victim_signal");
}
