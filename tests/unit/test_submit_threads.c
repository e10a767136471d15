/* SPDX-License-Identifier: MIT */
/*
 * Announcements of several threads: their ends, forks, kernels without membarrier(2), and slots
 * that cannot be had.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <linux/membarrier.h>
#include <pthread.h>
#include <semaphore.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "shim/submit_slots.h"
#include "tests/support/refuse.h"

static const CUstream A = (CUstream)0x1000, B = (CUstream)0x2000;

static void
submit(CUstream stream, enum hook_stream0 stream0)
{
	submit_begin(submit_word(stream, stream0));
	submit_end();
}

struct view {
	struct submit_target target;
	bool is_announced;
	uint64_t n_submissions;
};

static void
compare(void *arg, const struct submit_target *target)
{
	struct view *view = arg;

	view->is_announced |=
		target->kind == SUBMIT_MANY ||
		(target->kind == view->target.kind && target->handle == view->target.handle &&
		 target->thread == view->target.thread);
}

static struct view
look(const struct submit_target *target)
{
	struct view view = {.target = *target};
	struct submit_total totals[256];
	const unsigned n = submit_totals(totals, 256);

	submit_look(compare, &view);
	for (unsigned i = 0; i < n; i++)
		if (totals[i].kind == target->kind && totals[i].handle == target->handle)
			view.n_submissions = totals[i].n_submissions;
	return view;
}

static struct view
look_at(CUstream stream)
{
	const struct submit_target target = submit_target(stream, HOOK_STREAM0_LEGACY);

	return look(&target);
}

/* A thread that stops inside a submission until it is told to go on. */
struct stopped {
	pthread_t thread;
	sem_t is_inside, may_leave;
	CUstream stream;
	enum hook_stream0 stream0;
	struct submit_slot *slot;
	struct submit_target target;
	bool exits; /* out of the driver, as from a callback */
};

static void *
stop_inside(void *arg)
{
	struct stopped *stopped = arg;

	submit_begin(submit_word(stopped->stream, stopped->stream0));
	stopped->slot = submit_own;
	stopped->target = submit_target(stopped->stream, stopped->stream0);
	sem_post(&stopped->is_inside);
	sem_wait(&stopped->may_leave);
	if (stopped->exits)
		pthread_exit(NULL);
	submit_end();
	return NULL;
}

static void
start(struct stopped *stopped, CUstream stream, enum hook_stream0 stream0)
{
	stopped->stream = stream;
	stopped->stream0 = stream0;
	sem_init(&stopped->is_inside, 0, 0);
	sem_init(&stopped->may_leave, 0, 0);
	cr_assert_eq(pthread_create(&stopped->thread, NULL, stop_inside, stopped), 0);
	sem_wait(&stopped->is_inside);
}

static void
finish(struct stopped *stopped)
{
	sem_post(&stopped->may_leave);
	pthread_join(stopped->thread, NULL);
}

Test(submit_threads, another_threads_submission_is_seen_until_it_is_counted)
{
	struct stopped one = {0};

	start(&one, A, HOOK_STREAM0_LEGACY);
	cr_expect(look_at(A).is_announced, "a submission under way is not seen");
	cr_expect_not(look_at(B).is_announced, "one to another stream is");
	cr_expect_eq(look_at(A).n_submissions, 0, "it counts before it is done");
	finish(&one);
	cr_expect_not(look_at(A).is_announced, "it stays announced");
	cr_expect_eq(look_at(A).n_submissions, 1, "it is not counted");
}

Test(submit_threads, an_ended_thread_leaves_its_counts_and_its_slot)
{
	struct stopped one = {0}, two = {0};

	start(&one, A, HOOK_STREAM0_LEGACY);
	finish(&one);
	start(&two, A, HOOK_STREAM0_LEGACY);
	cr_expect_eq(two.slot, one.slot, "the slot of an ended thread is not used again");
	finish(&two);
	cr_expect_eq(look_at(A).n_submissions, 2, "the counts of ended threads are gone");
}

Test(submit_threads, a_thread_that_ends_inside_a_call_announces_no_longer)
{
	struct stopped one = {.exits = true};

	start(&one, A, HOOK_STREAM0_LEGACY);
	finish(&one);
	cr_expect_not(look_at(A).is_announced, "a thread that is gone announces");
}

Test(submit_threads, a_stream_of_a_thread_is_no_other_threads)
{
	struct stopped one = {0};
	const struct submit_target mine = submit_target(NULL, HOOK_STREAM0_PER_THREAD);

	start(&one, NULL, HOOK_STREAM0_PER_THREAD);
	cr_expect(look(&one.target).is_announced, "the thread's own stream is not announced");
	cr_expect_not(look(&mine).is_announced, "this thread's is, though it submits nothing");
	cr_expect_not(look_at(NULL).is_announced, "the legacy stream is");
	finish(&one);
	cr_expect_eq(submit_n_submissions(), 1, "it is not counted");
}

Test(submit_threads, more_threads_than_there_are_slots_at_first)
{
	enum { N_THREADS = 150 };
	static struct stopped threads[N_THREADS];

	for (int i = 0; i < N_THREADS; i++)
		start(&threads[i], (CUstream)(uintptr_t)(0x1000 * (i + 1)), HOOK_STREAM0_LEGACY);
	for (int i = 0; i < N_THREADS; i++)
		cr_expect(look_at(threads[i].stream).is_announced, "thread %d is not seen", i);
	for (int i = 0; i < N_THREADS; i++)
		finish(&threads[i]);
	for (int i = 0; i < N_THREADS; i++) {
		cr_expect_not(look_at(threads[i].stream).is_announced, "thread %d is seen", i);
		cr_expect_eq(look_at(threads[i].stream).n_submissions, 1, "thread %d counts", i);
	}
}

/* A forked child: one thread is left. */

static int
status_of(pid_t child)
{
	int status = -1;

	waitpid(child, &status, 0);
	return status;
}

Test(submit_threads, a_forked_child_is_rid_of_the_other_threads)
{
	struct stopped one = {0};
	pid_t child;

	submit(B, HOOK_STREAM0_LEGACY);
	start(&one, A, HOOK_STREAM0_LEGACY);
	child = fork();
	if (child == 0) {
		bool is_right;

		submit_on_fork_child();
		submit(B, HOOK_STREAM0_LEGACY);
		is_right = !look_at(A).is_announced && !look_at(B).is_announced &&
			   look_at(B).n_submissions == 2;
		_exit(is_right ? 0 : 1);
	}
	cr_expect_eq(status_of(child), 0, "the child sees a thread that it does not have");
	cr_expect(look_at(A).is_announced, "the parent forgot its thread");
	finish(&one);
}

/* Kernels that cannot. */

Test(submit_threads, without_membarrier_submissions_fence_themselves)
{
	struct stopped one = {0};

	if (!refuse_syscall(SYS_membarrier, ENOSYS))
		cr_skip_test("no seccomp filters here");
	cr_assert_eq(submit_order(), SUBMIT_ORDER_FENCE, "the kernel's refusal was not seen");
	start(&one, A, HOOK_STREAM0_LEGACY);
	cr_expect(look_at(A).is_announced, "a submission under way is not seen");
	cr_expect_not(look_at(B).is_announced, "one to another stream is");
	finish(&one);
	cr_expect_not(look_at(A).is_announced, "it stays announced");
	for (int i = 0; i < 3; i++) {
		submit(A, HOOK_STREAM0_LEGACY);
		cr_expect_eq(submit_own->last_word, SUBMIT_NOTHING,
			     "the next submission would pass the fence by");
		for (int place = 0; place < SUBMIT_N_PLACES; place++)
			cr_expect_eq(submit_own->places[place], 0,
				     "the next submission would pass the fence by");
	}
	cr_expect_eq(look_at(A).n_submissions, 4, "submissions are not counted");
}

Test(submit_threads, where_the_barrier_is_refused_nothing_is_ruled_out)
{
	if (!refuse_syscall_with(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, EPERM))
		cr_skip_test("no seccomp filters here");
	submit(A, HOOK_STREAM0_LEGACY);
	cr_expect(look_at(A).is_announced, "a look without a barrier rules a submission out");
}

Test(submit_threads, where_the_registration_is_refused_nothing_is_ruled_out)
{
	if (!refuse_syscall_with(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, EPERM))
		cr_skip_test("no seccomp filters here");
	submit(A, HOOK_STREAM0_LEGACY);
	cr_expect(look_at(A).is_announced, "a look without a barrier rules a submission out");
}

/* No slot to be had: the first chunk is taken, and a thread gets no memory for another. */

static sem_t may_submit;

static void *
submit_without_memory(void *arg)
{
	bool *const ret_is_refused = arg;

	sem_wait(&may_submit);
	/* a sanitizer maps memory of its own, at addresses that it chooses */
	*ret_is_refused = refuse_syscall_with(SYS_mmap, 0, ENOMEM);
	submit(A, HOOK_STREAM0_LEGACY);
	return NULL;
}

Test(submit_threads, a_thread_without_a_slot_leaves_nothing_ruled_out)
{
	const struct submit_chunk *const chunk = submit_chunks;
	static struct stopped threads[64];
	bool is_refused = false;
	uint64_t n_before;
	pthread_t late;

	sem_init(&may_submit, 0, 0);
	cr_assert_eq(pthread_create(&late, NULL, submit_without_memory, &is_refused), 0);
	for (unsigned i = 0; i < chunk->n_slots; i++)
		start(&threads[i], B, HOOK_STREAM0_LEGACY);
	n_before = submit_n_submissions();
	sem_post(&may_submit);
	pthread_join(late, NULL);
	if (!is_refused)
		cr_skip_test("no seccomp filters here");
	cr_assert_eq(submit_chunks, chunk, "there was memory for more");
	cr_expect_neq(submit_n_submissions(), n_before, "its submission is not counted");
	for (unsigned i = 0; i < chunk->n_slots; i++)
		finish(&threads[i]);
	cr_expect(look_at(A).is_announced, "a submission that nobody can see is ruled out");
}
