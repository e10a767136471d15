/* SPDX-License-Identifier: MIT */
/* The gate between captures and the calls that they forbid, and the set of capturing streams. */
#include "shim/capture.h"

#include <criterion/criterion.h>
#include <pthread.h>
#include <unistd.h>

/* Stands for a context: its gate, and its name in the set. */
static struct capture_gate context;

TestSuite(capture, .timeout = 20);

static CUstream
stream_of(uintptr_t number)
{
	return (CUstream)(0x1000 * number);
}

static void
begin(CUstream stream, enum hook_stream0 stream0)
{
	capture_raise();
	capture_keep(&context, stream, stream0);
}

static void
expect_open(bool is_wanted, const char *why)
{
	const bool may_call = capture_enter_call(&context);

	if (may_call)
		capture_leave_call(&context);
	cr_expect_eq(capture_is_open(), is_wanted, "%s", why);
	cr_expect_eq(may_call, !is_wanted, "%s", why);
	cr_expect_eq(atomic_load(&context.n_calls), 0, "%s: a call stayed announced", why);
	cr_expect_eq(atomic_load(&capture_everywhere.n_calls), 0, "%s: a call stayed announced",
		     why);
}

Test(capture, the_gate_is_closed_from_the_first_begin_to_the_last_end)
{
	expect_open(false, "nothing captures yet");
	begin(stream_of(1), HOOK_STREAM0_LEGACY);
	begin(stream_of(2), HOOK_STREAM0_LEGACY);
	expect_open(true, "two streams capture");
	capture_end(&context, stream_of(1), HOOK_STREAM0_LEGACY);
	expect_open(true, "the second stream captures");
	capture_end(&context, stream_of(1), HOOK_STREAM0_LEGACY);
	expect_open(true, "an end of what did not capture ended a capture");
	capture_end(&context, stream_of(2), HOOK_STREAM0_LEGACY);
	expect_open(false, "both have ended");
	capture_end(&context, stream_of(2), HOOK_STREAM0_LEGACY);
	expect_open(false, "an end of nothing counted");
}

Test(capture, a_begin_that_fails_leaves_the_gate_open)
{
	capture_raise();
	expect_open(true, "a begin is under way");
	capture_lower();
	expect_open(false, "it failed");
}

static atomic_bool is_raised;

static void *
raise_gate(void *arg)
{
	(void)arg;
	capture_raise();
	atomic_store(&is_raised, true);
	return NULL;
}

Test(capture, a_begin_waits_for_the_calls_in_flight)
{
	pthread_t thread;

	cr_assert(capture_enter_call(&context), "nothing captures");
	cr_assert_eq(pthread_create(&thread, NULL, raise_gate, NULL), 0);
	while (!capture_is_open())
		usleep(100);
	usleep(20000);
	cr_expect_not(atomic_load(&is_raised), "a capture began under a call that it forbids");
	capture_leave_call(&context);
	pthread_join(thread, NULL);
	capture_lower();
	expect_open(false, "it ended");
}

static void *
end_per_thread(void *arg)
{
	(void)arg;
	capture_end(&context, NULL, HOOK_STREAM0_PER_THREAD);
	return NULL;
}

Test(capture, the_same_handle_is_another_stream_in_another_thread)
{
	pthread_t thread;

	begin(CU_STREAM_PER_THREAD, HOOK_STREAM0_LEGACY);
	cr_assert_eq(pthread_create(&thread, NULL, end_per_thread, NULL), 0);
	pthread_join(thread, NULL);
	expect_open(true, "another thread's stream ended it");
	end_per_thread(NULL);
	expect_open(false, "its own thread ended it by the other name");
}

Test(capture, more_captures_than_the_set_holds_are_counted)
{
	enum { N = CAPTURE_N_STREAMS + 3 };

	for (uintptr_t i = 1; i <= N; i++)
		begin(stream_of(i), HOOK_STREAM0_LEGACY);
	for (uintptr_t i = 1; i <= N; i++) {
		expect_open(true, "some capture");
		capture_end(&context, stream_of(i), HOOK_STREAM0_LEGACY);
	}
	expect_open(false, "all have ended");
}

Test(capture, captures_end_with_their_context)
{
	struct capture_gate other = {0};

	for (uintptr_t i = 1; i <= CAPTURE_N_STREAMS - 1; i++)
		begin(stream_of(i), HOOK_STREAM0_LEGACY);
	capture_raise();
	capture_keep(&other, stream_of(1), HOOK_STREAM0_LEGACY);
	capture_reset(&context);
	expect_open(true, "a stream of another context captures");
	capture_end(&context, stream_of(1), HOOK_STREAM0_LEGACY);
	expect_open(true, "the same handle in the dead context ended it");
	capture_end(&other, stream_of(1), HOOK_STREAM0_LEGACY);
	expect_open(false, "all have ended");
}

Test(capture, a_capture_anywhere_stops_calls_on_every_context)
{
	struct capture_gate other = {0};

	begin(stream_of(1), HOOK_STREAM0_LEGACY);
	cr_expect_not(capture_enter_call(&other), "a call on another context was let through");
	capture_end(&context, stream_of(1), HOOK_STREAM0_LEGACY);
	cr_expect(capture_enter_call(&other), "the capture has ended");
	capture_leave_call(&other);
}

Test(capture, a_context_that_may_be_ending_is_left_alone_by_itself)
{
	struct capture_gate other = {0};

	capture_shut(&context);
	cr_expect_not(capture_enter_call(&context), "a call on an ending context was let through");
	cr_expect(capture_enter_call(&other), "another context was shut too");
	capture_leave_call(&other);
	cr_expect_not(capture_is_open(), "it counts as a capture");
	capture_unshut(&context);
	expect_open(false, "it lives on");
}
