/* SPDX-License-Identifier: MIT */
/*
 * The bodies made from driver_api.def over a driver that looks, from inside each call, at what is
 * announced.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "shim/order.h"
#include "shim/submit_slots.h"

/* The driver. */

struct real_calls real;
_Atomic(enum hooks_state) hooks_state = HOOKS_COMPLETE;

void
hooks_ready_slow(void)
{
}

/* The order: what it was told of last, and how often. */
static struct {
	unsigned n_told, n_blockers, n_after;
	struct submit_target last;
} order;

bool
order_before_submission(struct submit_target target, const struct heap_touch *touch, bool can_wait,
			struct heap **ret_blocked)
{
	(void)touch;
	order.n_told++;
	order.n_blockers += can_wait;
	order.last = target;
	if (can_wait)
		*ret_blocked = (struct heap *)&order;
	return true;
}

void
order_after_blocker(struct heap *blocked)
{
	cr_expect_eq((void *)blocked, (void *)&order, "it is told of another heap");
	order.n_after++;
}

typedef CUresult driver_call(void *, void *, void *, void *, void *, void *, void *, void *, void *,
			     void *, void *, void *);

static struct {
	unsigned n_calls;
	uintptr_t announced; /* at the last call */
	CUresult answer;
	void (*then)(void);
} driver;

static CUresult
driver_answers(void *a, void *b, void *c, void *d, void *e, void *f, void *g, void *h, void *i,
	       void *j, void *k, void *l)
{
	(void)a, (void)b, (void)c, (void)d, (void)e, (void)f, (void)g, (void)h;
	(void)i, (void)j, (void)k, (void)l;
	driver.n_calls++;
	driver.announced = submit_own->announced;
	if (driver.then)
		driver.then();
	return driver.answer;
}

static void
fill_driver(void)
{
#define DRIVER_API_VERSION(version)
#define DRIVER(symbol, ...)
#define SUBMIT(symbol, ...) *(void **)&real.symbol = (void *)driver_answers;
#define SYNC SUBMIT
#include "shim/driver_api.def"
#undef DRIVER
#undef SUBMIT
#undef SYNC
}

TestSuite(submit, .init = fill_driver);

/* Rows, as text: what is announced is compared with what the header says, not with what was made of
 * it. */
struct row {
	const char *symbol;
	driver_call *body;
	enum driver_place place;
	enum hook_stream0 stream0;
	const char *stream, *parameters;
};

#define ROW(name, asked, kind, flags, zero, where, which, types, names) \
	{#name, (driver_call *)(void *)name, DRIVER_PLACE_##where, HOOK_STREAM0_##zero, #which, \
	 #types},
static const struct row submitting[] =
	{
#define DRIVER(symbol, ...)
#define SUBMIT ROW
#define SYNC(symbol, ...)
#include "shim/driver_api.def"
#undef SUBMIT
#undef SYNC
},
			synchronising[] = {
#define SUBMIT(symbol, ...)
#define SYNC ROW
#include "shim/driver_api.def"
#undef SUBMIT
#undef SYNC
};

enum {
	N_SUBMITTING = sizeof(submitting) / sizeof(submitting[0]),
	N_SYNCHRONISING = sizeof(synchronising) / sizeof(synchronising[0]),
	N_ARGS = 12,
	N_WORDS = 64,
};

/* Arguments that can be told apart, and so can the words that they point to. */
static uintptr_t words[N_ARGS][N_WORDS];

static CUresult
call(const struct row *row)
{
	void *args[N_ARGS];

	for (int i = 0; i < N_ARGS; i++) {
		args[i] = words[i];
		for (int j = 0; j < N_WORDS; j++)
			words[i][j] = 0x100000000 + (uintptr_t)i * 0x10000 + (uintptr_t)j * 16;
	}
	return row->body(args[0], args[1], args[2], args[3], args[4], args[5], args[6], args[7],
			 args[8], args[9], args[10], args[11]);
}

/* The parameter that the row's stream expression begins with: "(hStream)", "(config ? ...)". */
static int
stream_param(const struct row *row)
{
	char name[64];
	const char *found = NULL, *p;
	int index = 0;

	sscanf(row->stream, "(%63[A-Za-z0-9_]", name);
	for (p = row->parameters; (p = strstr(p, name)); p++)
		if (strchr(",)", p[strlen(name)]) && strchr(" *", p[-1]))
			found = p;
	cr_assert_not_null(found, "%s: no parameter %s in %s", row->symbol, name, row->parameters);
	for (p = row->parameters; p < found; p++)
		index += *p == ',';
	return index;
}

static bool
is_word_of(uintptr_t handle, int param)
{
	for (int j = 0; j < N_WORDS; j++)
		if (words[param][j] == handle)
			return true;
	return false;
}

/* Rows whose arguments are not all integers and pointers have tests of their own. */
static bool
is_plain(const struct row *row)
{
	return row->place != DRIVER_PLACE_ARRAY && !strstr(row->parameters, "CUeglFrame eglframe");
}

static void
check_announced(const struct row *row)
{
	const uintptr_t kind = driver.announced & ((1 << SUBMIT_KIND_BITS) - 1);
	const uintptr_t handle = driver.announced >> SUBMIT_KIND_BITS;

	if (row->place == DRIVER_PLACE_CONTEXT) {
		cr_expect_eq(driver.announced, SUBMIT_CONTEXT, "%s announces no context",
			     row->symbol);
		return;
	}
	cr_expect_eq(kind,
		     row->stream0 == HOOK_STREAM0_PER_THREAD ? SUBMIT_PER_THREAD : SUBMIT_LEGACY,
		     "%s: its stream 0 is announced as the other one", row->symbol);
	if (row->place == DRIVER_PLACE_DEFAULT)
		cr_expect_eq(handle, 0, "%s announces a stream that it does not have", row->symbol);
	else if (row->place == DRIVER_PLACE_PARAM)
		cr_expect_eq(handle, (uintptr_t)words[stream_param(row)],
			     "%s announces another argument than %s", row->symbol, row->stream);
	else
		cr_expect(is_word_of(handle, stream_param(row)),
			  "%s announces what %s does not lead to", row->symbol, row->stream);
}

static uint64_t
sum_of_submissions(void)
{
	struct submit_total totals[64];
	const unsigned n = submit_totals(totals, 64);
	uint64_t sum = 0;

	for (unsigned i = 0; i < n; i++)
		sum += totals[i].n_submissions;
	return sum;
}

static uint64_t
sum_of_synchronisations(void)
{
	struct submit_total totals[64];
	const unsigned n = submit_totals(totals, 64);
	uint64_t sum = 0;

	for (unsigned i = 0; i < n; i++)
		sum += totals[i].n_synchronisations;
	return sum;
}

Test(submit, every_body_announces_its_stream_during_the_call_and_not_after)
{
	cr_assert_gt(N_SUBMITTING, 190, "only %d rows submit", N_SUBMITTING);
	for (int i = 0; i < N_SUBMITTING; i++) {
		const struct row *row = &submitting[i];
		const uint64_t n_before = sum_of_submissions();

		if (!is_plain(row))
			continue;
		driver.n_calls = 0;
		driver.announced = 0;
		driver.answer = i % 2 ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
		cr_expect_eq(call(row), driver.answer, "%s changes the answer", row->symbol);
		cr_expect_eq(driver.n_calls, 1, "%s calls the driver %u times", row->symbol,
			     driver.n_calls);
		check_announced(row);
		cr_expect_eq(submit_own->announced, SUBMIT_NOTHING, "%s stays announced",
			     row->symbol);
		cr_expect_eq(sum_of_submissions(), n_before + 1, "%s is not counted once",
			     row->symbol);
	}
}

Test(submit, a_synchronisation_is_counted_when_it_succeeded_and_never_announced)
{
	for (int i = 0; i < N_SYNCHRONISING; i++) {
		const struct row *row = &synchronising[i];
		const uint64_t n_before = sum_of_synchronisations();

		driver.answer = CUDA_ERROR_NOT_READY;
		call(row);
		cr_expect_eq(sum_of_synchronisations(), n_before,
			     "%s counts though it did not synchronise", row->symbol);
		driver.answer = CUDA_SUCCESS;
		call(row);
		cr_expect_eq(sum_of_synchronisations(), n_before + 1, "%s does not count",
			     row->symbol);
		cr_expect_eq(driver.announced, SUBMIT_NOTHING, "%s announces work", row->symbol);
	}
	cr_expect_eq(sum_of_submissions(), 0, "a synchronisation counts as a submission");
}

Test(submit, members_of_structs_are_read_where_they_are)
{
	CUlaunchConfig config = {.hStream = (CUstream)0x1230};
	CUDA_GRAPH_INSTANTIATE_PARAMS how = {.hUploadStream = (CUstream)0x4560};
	CUstream stream = (CUstream)0x7890;
	CUeglFrame frame;

	memset(&frame, 0xff, sizeof(frame));
	cuLaunchKernelEx(&config, NULL, NULL, NULL);
	cr_expect_eq(driver.announced, submit_word(config.hStream, HOOK_STREAM0_LEGACY));
	cuLaunchKernelEx_ptsz(&config, NULL, NULL, NULL);
	cr_expect_eq(driver.announced, submit_word(config.hStream, HOOK_STREAM0_PER_THREAD));
	cuGraphInstantiateWithParams(NULL, NULL, &how);
	cr_expect_eq(driver.announced, submit_word(how.hUploadStream, HOOK_STREAM0_LEGACY));
	cuEGLStreamProducerPresentFrame(NULL, frame, &stream);
	cr_expect_eq(driver.announced, submit_word(stream, HOOK_STREAM0_LEGACY));
	cuLaunchKernelEx(NULL, NULL, NULL, NULL);
	cr_expect_eq(driver.announced, submit_word(NULL, HOOK_STREAM0_LEGACY),
		     "no struct: whatever the driver makes of it, it is announced");
}

static uint64_t
count_of(CUstream stream, enum hook_stream0 stream0)
{
	const struct submit_target target = submit_target(stream, stream0);
	struct submit_total totals[64];
	const unsigned n = submit_totals(totals, 64);

	for (unsigned i = 0; i < n; i++)
		if (totals[i].kind == target.kind && totals[i].handle == target.handle)
			return totals[i].n_submissions;
	return 0;
}

struct question {
	struct submit_target target;
	bool is_announced;
};

static void
compare(void *arg, const struct submit_target *target)
{
	struct question *question = arg;

	question->is_announced |= target->kind == SUBMIT_MANY || target->kind == SUBMIT_CONTEXT ||
				  (target->kind == question->target.kind &&
				   target->handle == question->target.handle &&
				   target->thread == question->target.thread);
}

static bool
is_announced(CUstream stream, enum hook_stream0 stream0)
{
	struct question question = {.target = submit_target(stream, stream0)};

	submit_look(compare, &question);
	return question.is_announced;
}

static const CUstream A = (CUstream)0x1000, B = (CUstream)0x2000, C = (CUstream)0x3000;

static void
expect_all_announced(void)
{
	cr_expect(is_announced(A, HOOK_STREAM0_LEGACY), "the first stream is not announced");
	cr_expect(is_announced(B, HOOK_STREAM0_LEGACY), "the second stream is not announced");
	cr_expect(is_announced(C, HOOK_STREAM0_LEGACY), "a third one is ruled out");
}

Test(submit, a_launch_on_several_devices_announces_and_counts_each_stream)
{
	CUDA_LAUNCH_PARAMS list[2] = {{.hStream = A}, {.hStream = B}};

	driver.then = expect_all_announced;
	cuLaunchCooperativeKernelMultiDevice(list, 2, 0);
	cr_expect_eq(driver.n_calls, 1, "the driver was not called");
	cr_expect_eq(count_of(A, HOOK_STREAM0_LEGACY), 1, "the first stream is not counted");
	cr_expect_eq(count_of(B, HOOK_STREAM0_LEGACY), 1, "the second stream is not counted");
	cr_expect_eq(count_of(C, HOOK_STREAM0_LEGACY), 0, "a third one is counted");
	cr_expect_not(is_announced(A, HOOK_STREAM0_LEGACY), "it stays announced");
	driver.then = NULL;
	cuLaunchCooperativeKernelMultiDevice(NULL, 2, 0);
	cr_expect_eq(sum_of_submissions(), 2, "a launch of nothing counts");
}

Test(submit, a_function_that_the_driver_lacks_is_not_found)
{
	real.cuLaunchKernelEx = NULL;
	real.cuCtxSynchronize = NULL;
	cr_expect_eq(cuLaunchKernelEx(NULL, NULL, NULL, NULL), CUDA_ERROR_NOT_FOUND);
	cr_expect_eq(cuCtxSynchronize(), CUDA_ERROR_NOT_FOUND);
	cr_expect_eq(sum_of_submissions() + sum_of_synchronisations(), 0, "it counts");
}

/* Streams 0 and their names. */

Test(submit, a_stream_is_the_same_by_each_of_its_names)
{
	cuStreamWaitEvent(NULL, NULL, 0);
	cuStreamWaitEvent(CU_STREAM_LEGACY, NULL, 0);
	cuStreamWaitEvent_ptsz(CU_STREAM_LEGACY, NULL, 0);
	cr_expect_eq(count_of(NULL, HOOK_STREAM0_LEGACY), 3, "the legacy stream has three names");
	cr_expect_eq(count_of(NULL, HOOK_STREAM0_PER_THREAD), 0, "none is the thread's");
	cuStreamWaitEvent_ptsz(NULL, NULL, 0);
	cuStreamWaitEvent(CU_STREAM_PER_THREAD, NULL, 0);
	cr_expect_eq(count_of(NULL, HOOK_STREAM0_PER_THREAD), 2, "the thread's stream has two");
	cuStreamWaitEvent(A, NULL, 0);
	cuStreamWaitEvent_ptsz(A, NULL, 0);
	cr_expect_eq(count_of(A, HOOK_STREAM0_LEGACY), 2, "a made stream is one by both bodies");
	cr_expect_eq(count_of(A, HOOK_STREAM0_PER_THREAD), 2);
	cr_expect_eq(count_of(B, HOOK_STREAM0_LEGACY), 0, "another one is another");
}

/* Nested calls. */

static void
expect_outer_and_inner(void)
{
	cr_expect(is_announced(A, HOOK_STREAM0_LEGACY), "the outer stream is not announced");
	cr_expect(is_announced(B, HOOK_STREAM0_LEGACY), "the inner stream is not announced");
	cr_expect_not(is_announced(C, HOOK_STREAM0_LEGACY), "a third one is");
}

static void
call_back_twice(void)
{
	driver.then = expect_outer_and_inner;
	cuStreamWaitEvent(B, NULL, 0);
	cuStreamWaitEvent(B, NULL, 0);
	driver.then = NULL;
	cr_expect(is_announced(A, HOOK_STREAM0_LEGACY), "the outer one is gone after the inner");
}

Test(submit, a_nested_submission_leaves_the_outer_one_announced)
{
	driver.then = call_back_twice;
	cuStreamWaitEvent(A, NULL, 0);
	cr_expect_eq(count_of(A, HOOK_STREAM0_LEGACY), 1, "the outer one counts once");
	cr_expect_eq(count_of(B, HOOK_STREAM0_LEGACY), 2, "the inner ones count twice");
	cr_expect_not(is_announced(A, HOOK_STREAM0_LEGACY) || is_announced(B, HOOK_STREAM0_LEGACY),
		      "something stays announced");
	cuStreamWaitEvent(A, NULL, 0);
	cr_expect_eq(count_of(A, HOOK_STREAM0_LEGACY), 2, "the next is counted elsewhere");
}

static int depth;

static void
go_deeper(void)
{
	for (int i = 1; i <= depth; i++)
		cr_expect(is_announced((CUstream)(uintptr_t)(0x1000 * i), HOOK_STREAM0_LEGACY),
			  "in depth %d that of %d lost its announcement", depth, i);
	if (depth == 3 * SUBMIT_MAX_DEPTH)
		return;
	depth++;
	cuStreamWaitEvent((CUstream)(uintptr_t)(0x1000 * depth), NULL, 0);
	depth--;
}

Test(submit, depth_beyond_what_is_kept_is_announced_as_anything)
{
	driver.then = go_deeper;
	depth = 1;
	cuStreamWaitEvent(A, NULL, 0);
	driver.then = NULL;
	cr_expect_eq(sum_of_submissions(), 3 * SUBMIT_MAX_DEPTH, "calls were lost");
	cr_expect_not(is_announced(A, HOOK_STREAM0_LEGACY), "something stays announced");
	cuStreamWaitEvent(C, NULL, 0);
	cr_expect_geq(count_of(C, HOOK_STREAM0_LEGACY), 1, "it cannot count any more");
}

/* More streams than there are places for. */

Test(submit, counts_of_streams_that_lose_their_place_only_rise)
{
	uint64_t n_before = 0;

	for (int round = 1; round <= 3; round++) {
		for (uintptr_t i = 1; i <= 3 * SUBMIT_N_STREAMS; i++) {
			cuStreamWaitEvent((CUstream)(0x1000 * i), NULL, 0);
			cuStreamSynchronize((CUstream)(0x1000 * i));
			cr_expect_geq(sum_of_submissions(), n_before, "a count went down");
			n_before = sum_of_submissions();
			cr_expect_eq(submit_n_submissions(), n_before, "the sum is another");
		}
	}
	cr_expect_eq(sum_of_submissions(), 9 * SUBMIT_N_STREAMS, "the total is another");
	cr_expect_eq(sum_of_synchronisations(), 9 * SUBMIT_N_STREAMS, "of synchronisations, too");
}

Test(submit, a_synchronisation_that_takes_the_place_of_the_last_stream_takes_no_count)
{
	for (uintptr_t i = 1; i <= SUBMIT_N_STREAMS; i++)
		cuStreamWaitEvent((CUstream)(0x1000 * i), NULL, 0);
	for (uintptr_t i = 1; i <= SUBMIT_N_STREAMS; i++)
		cuStreamSynchronize((CUstream)(0x100000 * i)); /* every place is another's now */
	cuStreamWaitEvent((CUstream)(uintptr_t)(0x1000 * SUBMIT_N_STREAMS), NULL, 0);
	for (uintptr_t i = 1; i <= SUBMIT_N_STREAMS; i++)
		cr_expect_eq(count_of((CUstream)(0x100000 * i), HOOK_STREAM0_LEGACY), 0,
			     "stream %d has a count that is another's", (int)i);
	cr_expect_eq(sum_of_submissions(), SUBMIT_N_STREAMS + 1, "counts were lost");
}

Test(submit, totals_that_have_no_place_are_summed_in_the_last)
{
	struct submit_total totals[3];

	for (uintptr_t i = 1; i <= 8; i++)
		cuStreamWaitEvent((CUstream)(0x1000 * i), NULL, 0);
	cr_assert_eq(submit_totals(totals, 3), 3);
	cr_expect_eq(totals[0].n_submissions + totals[1].n_submissions + totals[2].n_submissions, 8,
		     "the sum is another");
	cr_expect_str_eq(submit_total_kind(&totals[0]), "other");
}

Test(submit, the_order_hears_of_work_that_can_wait_before_and_after)
{
	cuStreamWaitValue32(A, 0, 0, 0);
	cuStreamWaitValue32(A, 0, 0, 0);
	cr_expect_eq(order.n_blockers, 2, "it does not hear of each");
	cr_expect_eq(order.n_after, 2, "it does not hear of the end of each");
	cuLaunchKernel(NULL, 1, 1, 1, 1, 1, 1, 0, A, NULL, NULL);
	cr_expect_eq(order.n_blockers, 2, "a launch counts among them");
}

Test(submit, the_order_hears_of_each_stream_of_a_launch_on_several_devices)
{
	CUDA_LAUNCH_PARAMS list[2] = {{.hStream = A}, {.hStream = B}};

	cuLaunchCooperativeKernelMultiDevice(list, 2, 0);
	cr_expect_eq(order.n_told, 3, "once for the call, and once for each stream");
	cr_expect_eq(order.last.handle, (uintptr_t)B);
}
