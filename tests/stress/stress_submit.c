/* SPDX-License-Identifier: MIT */
/*
 * Threads that submit, and one that asks. A plain program, so that it runs under ThreadSanitizer.
 *
 * The proof is the promise of submit.h. The asker closes a gate, looks, and, where nothing is
 * announced, changes a value. A submitter announces, looks at the gate, and while it was open reads
 * the value twice with time in between: a submission that the look missed sees it change. All
 * accesses are relaxed, so nothing but the announcements and the asker's barrier orders them.
 *
 * In between threads end and others begin, calls are nested, and in the end every count must be
 * there. Run twice: with membarrier(2), and without it.
 *
 * STRESS_SEED, STRESS_SECONDS: default from the clock, and 2.
 */
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "shim/submit_slots.h"
#include "tests/support/refuse.h"

enum {
	N_THREADS = 3,
	N_STREAMS = 2 * SUBMIT_N_STREAMS, /* more than a slot has places for */
	CALLS_A_LIFE = 2000,
};

/* One for each stream, so that a stream that nobody submits to is often met. */
static struct stream {
	atomic_bool is_closed;
	_Atomic uint64_t value;
	_Atomic uint64_t n_calls;
} streams[N_STREAMS];

static atomic_bool is_over;
static atomic_int n_faults;
static _Atomic uint64_t n_open, n_ruled_out;

static uint64_t
now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static uint64_t
next_random(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state;
}

static CUstream
handle_of(unsigned i)
{
	return (CUstream)(uintptr_t)(0x1000 * (i + 1));
}

static void
fault(const char *what, unsigned i)
{
	if (atomic_fetch_add(&n_faults, 1) < 5)
		fprintf(stderr, "stream %u: %s\n", i, what);
}

/* What the driver does meanwhile. */
static void be_inside(unsigned i, uint64_t *random, unsigned depth);

static void
submit(unsigned i, uint64_t *random, unsigned depth)
{
	submit_begin(submit_word(handle_of(i), HOOK_STREAM0_LEGACY));
	be_inside(i, random, depth);
	submit_end();
	atomic_fetch_add_explicit(&streams[i].n_calls, 1, memory_order_relaxed);
}

static void
be_inside(unsigned i, uint64_t *random, unsigned depth)
{
	struct stream *stream = &streams[i];
	uint64_t before;

	if (atomic_load_explicit(&stream->is_closed, memory_order_relaxed))
		return; /* it saw the change: the asker may do as it likes */
	before = atomic_load_explicit(&stream->value, memory_order_relaxed);
	if (depth < SUBMIT_MAX_DEPTH + 2 && next_random(random) % 4 == 0)
		submit((unsigned)(next_random(random) % N_STREAMS), random, depth + 1);
	for (unsigned n = next_random(random) % 64; n > 0; n--)
		__asm__ volatile("");
	if (next_random(random) % 64 == 0)
		usleep(20); /* where there are few cores: let the asker run */
	if (atomic_load_explicit(&stream->value, memory_order_relaxed) != before)
		fault("a submission under way was ruled out", i);
	atomic_fetch_add_explicit(&n_open, 1, memory_order_relaxed);
}

static void *
live(void *arg)
{
	uint64_t random = (uintptr_t)arg;

	for (int n = 0; n < CALLS_A_LIFE && !atomic_load(&is_over); n++)
		submit((unsigned)(next_random(&random) % N_STREAMS), &random, 0);
	return NULL;
}

/* Threads that end and are followed by others. */
static void *
keep_alive(void *arg)
{
	uint64_t random = (uintptr_t)arg;
	pthread_t thread;

	while (!atomic_load(&is_over)) {
		if (pthread_create(&thread, NULL, live, (void *)(uintptr_t)next_random(&random)))
			continue;
		pthread_join(thread, NULL);
	}
	return NULL;
}

struct question {
	struct submit_target target;
	bool is_announced;
};

static void
compare(void *arg, const struct submit_target *target)
{
	struct question *question = arg;

	question->is_announced |=
		target->kind == SUBMIT_MANY || target->handle == question->target.handle;
}

static void
ask(unsigned i)
{
	struct question question = {.target = submit_target(handle_of(i), HOOK_STREAM0_LEGACY)};
	const uint64_t n_before = submit_n_submissions();

	atomic_store_explicit(&streams[i].is_closed, true, memory_order_relaxed);
	submit_draw_attention();
	submit_look(compare, &question);
	if (submit_n_submissions() < n_before)
		fault("a count went down", i);
	if (!question.is_announced) {
		atomic_store_explicit(
			&streams[i].value,
			atomic_load_explicit(&streams[i].value, memory_order_relaxed) + 1,
			memory_order_relaxed);
		atomic_fetch_add(&n_ruled_out, 1);
	}
	/* release: the value, for whoever finds the gate open again */
	atomic_store_explicit(&streams[i].is_closed, false, memory_order_release);
}

static void
check_counts(void)
{
	struct submit_total totals[2 * N_STREAMS];
	const unsigned n = submit_totals(totals, 2 * N_STREAMS);
	uint64_t n_counted = 0, n_called = 0;

	for (unsigned i = 0; i < n; i++)
		n_counted += totals[i].n_submissions;
	for (unsigned i = 0; i < N_STREAMS; i++)
		n_called += atomic_load(&streams[i].n_calls);
	printf("%" PRIu64 " submissions, %" PRIu64 " checked, %" PRIu64 " times ruled out\n",
	       n_called, atomic_load(&n_open), atomic_load(&n_ruled_out));
	if (n_counted != n_called) {
		fprintf(stderr, "%" PRIu64 " were counted\n", n_counted);
		atomic_fetch_add(&n_faults, 1);
	}
	if (!atomic_load(&n_open) || !atomic_load(&n_ruled_out)) {
		fprintf(stderr, "nothing was put to the test\n");
		atomic_fetch_add(&n_faults, 1);
	}
}

static int
run(uint64_t seed, uint64_t n_ns)
{
	const uint64_t end_ns = now_ns() + n_ns;
	pthread_t threads[N_THREADS];
	uint64_t random = seed;

	for (int i = 0; i < N_THREADS; i++)
		if (pthread_create(&threads[i], NULL, keep_alive,
				   (void *)(uintptr_t)next_random(&random)))
			return 1;
	while (now_ns() < end_ns)
		ask((unsigned)(next_random(&random) % N_STREAMS));
	atomic_store(&is_over, true);
	for (int i = 0; i < N_THREADS; i++)
		pthread_join(threads[i], NULL);
	check_counts();
	return atomic_load(&n_faults) != 0;
}

/* In a child: the filter stays, and so does what this process knows of the kernel. */
static int
run_without_membarrier(uint64_t seed, uint64_t n_ns)
{
	const pid_t child = fork();
	int status = 1;

	if (child == 0) {
		if (!refuse_syscall(SYS_membarrier, ENOSYS)) {
			printf("no seccomp filters here: membarrier stays\n");
			exit(0);
		}
		exit(run(seed, n_ns));
	}
	if (child < 0 || waitpid(child, &status, 0) != child)
		return 1;
	return status != 0;
}

int
main(void)
{
	const char *text = getenv("STRESS_SEED");
	const uint64_t seed = text ? strtoull(text, NULL, 0) : now_ns() | 1;
	const char *seconds = getenv("STRESS_SECONDS");
	const uint64_t n_ns = (seconds ? strtoull(seconds, NULL, 0) : 2) * 1000000000 / 2;
	int r;

	printf("STRESS_SEED=%" PRIu64 "\n", seed);
	fflush(stdout);
	r = run_without_membarrier(seed, n_ns);
	return run(seed, n_ns) | r;
}
