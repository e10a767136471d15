/* SPDX-License-Identifier: MIT */
#include "tests/sim/test_sim_races.h"

/* Edges between streams, and what the host is shown. */

static void
stream_order(bool is_ordered)
{
	write_first(a);
	write_second(is_ordered ? a : b);
}

static void
an_event_wait(bool is_ordered)
{
	write_first(a);
	cuEventRecord(event, a);
	if (is_ordered)
		cuStreamWaitEvent(b, event, 0);
	write_second(b);
}

static void
the_record_at_the_time_of_the_wait(bool is_ordered)
{
	cuEventRecord(event, a);
	if (!is_ordered)
		cuStreamWaitEvent(b, event, 0);
	write_first(a);
	cuEventRecord(event, a);
	if (is_ordered)
		cuStreamWaitEvent(b, event, 0);
	write_second(b);
}

static void
an_event_wait_goes_on(bool is_ordered)
{
	CUstream between = new_stream(CU_STREAM_NON_BLOCKING);

	write_first(a);
	cuEventRecord(event, a);
	cuStreamWaitEvent(between, event, 0);
	if (is_ordered)
		cuEventRecord(event, between);
	else
		cuEventRecord(event, b);
	cuStreamWaitEvent(b, event, 0);
	write_second(b);
	cuStreamDestroy_v2(between);
}

static void
an_event_of_the_context(bool is_ordered)
{
	if (!is_ordered)
		cuCtxRecordEvent(ctx, event);
	write_first(a);
	if (is_ordered)
		cuCtxRecordEvent(ctx, event);
	cuStreamWaitEvent(b, event, 0);
	write_second(b);
}

static void
an_event_of_the_context_for_a_threads_stream(bool is_ordered)
{
	write_first(CU_STREAM_PER_THREAD);
	if (is_ordered)
		cuCtxRecordEvent(ctx, event);
	else
		cuEventRecord(event, NULL);
	if (!is_ordered)
		cuEventRecord(event, a);
	cuStreamWaitEvent(b, event, 0);
	write_second(b);
}

static void
an_event_of_the_context_for_a_stream_that_is_gone(bool is_ordered)
{
	CUstream s = new_stream(CU_STREAM_NON_BLOCKING);

	write_first(s);
	cuStreamDestroy_v2(s);
	cusim_run_all();
	if (is_ordered)
		cuCtxRecordEvent(ctx, event);
	else
		cuEventRecord(event, a);
	cuStreamWaitEvent(b, event, 0);
	write_second(b);
}

static void
the_legacy_stream_after_a_blocking_one(bool is_ordered)
{
	CUstream s = new_stream(is_ordered ? CU_STREAM_DEFAULT : CU_STREAM_NON_BLOCKING);

	write_first(s);
	write_second(CU_STREAM_LEGACY);
	cuStreamDestroy_v2(s);
}

static void
a_blocking_stream_after_the_legacy_one(bool is_ordered)
{
	CUstream s = new_stream(is_ordered ? CU_STREAM_DEFAULT : CU_STREAM_NON_BLOCKING);

	write_first(CU_STREAM_LEGACY);
	write_second(s);
	cuStreamDestroy_v2(s);
}

static void
the_legacy_stream_after_a_blocking_one_that_is_gone(bool is_ordered)
{
	CUstream s = new_stream(is_ordered ? CU_STREAM_DEFAULT : CU_STREAM_NON_BLOCKING);

	write_first(s);
	cuStreamDestroy_v2(s);
	cusim_run_all();
	write_second(CU_STREAM_LEGACY);
}

static void
a_legacy_synchronize_for_a_blocking_stream(bool is_ordered)
{
	CUstream s = new_stream(is_ordered ? CU_STREAM_DEFAULT : CU_STREAM_NON_BLOCKING);

	write_first(s);
	cusim_run_all();
	cuStreamSynchronize(CU_STREAM_LEGACY);
	write_second(b);
	cuStreamDestroy_v2(s);
}

static void
a_threads_stream_after_the_legacy_one(bool is_ordered)
{
	write_first(CU_STREAM_LEGACY);
	write_second(is_ordered ? CU_STREAM_PER_THREAD : a);
}

static void
legacy_work_between_blocking_streams(bool is_ordered)
{
	CUstream s = new_stream(CU_STREAM_DEFAULT);

	write_first(s);
	if (is_ordered)
		spin(CU_STREAM_LEGACY, 0, 1);
	write_second(CU_STREAM_PER_THREAD);
	cuStreamDestroy_v2(s);
}

static void
a_stream_synchronize(bool is_ordered)
{
	write_first(a);
	cuStreamSynchronize(is_ordered ? a : b);
	write_second(b);
}

static void
an_event_synchronize(bool is_ordered)
{
	if (!is_ordered)
		cuEventRecord(event, a);
	write_first(a);
	if (is_ordered)
		cuEventRecord(event, a);
	cuEventSynchronize(event);
	write_second(b);
}

static void
a_context_synchronize(bool is_ordered)
{
	write_first(a);
	if (is_ordered)
		cuCtxSynchronize();
	write_second(b);
}

static void
a_stream_query_that_succeeds(bool is_ordered)
{
	write_first(a);
	if (is_ordered)
		cusim_run_all();
	cuStreamQuery(a);
	write_second(b);
}

static void
an_event_query_that_succeeds(bool is_ordered)
{
	write_first(a);
	cuEventRecord(event, a);
	if (is_ordered)
		cusim_run_all();
	cuEventQuery(event);
	write_second(b);
}

static void
being_shown_and_not_being_complete(bool is_ordered)
{
	write_first(a);
	cusim_run_all();
	if (is_ordered)
		cuStreamQuery(a);
	write_second(b);
}

static void
a_copy_that_waits(bool is_ordered)
{
	char pageable[64];

	write_first(CU_STREAM_LEGACY);
	if (is_ordered)
		cuMemcpyDtoH_v2(pageable, p, sizeof(pageable));
	write_second(b);
}

static void
an_event_of_another_context(bool is_ordered)
{
	CUcontext other;
	CUstream s;

	write_first(a);
	cuEventRecord(event, a);
	cuCtxCreate_v2(&other, 0, 0);
	s = new_stream(CU_STREAM_NON_BLOCKING);
	if (is_ordered)
		cuStreamWaitEvent(s, event, 0);
	write_second(s);
	cuCtxDestroy_v2(other);
	cuCtxSetCurrent(ctx);
}

/* Another device's stream without peer access: the context that owns the memory covers it. */
static void
an_event_of_the_context_for_a_copy_of_another(bool is_ordered)
{
	CUcontext other;
	CUdeviceptr there;
	CUstream s;

	cuCtxCreate_v2(&other, 0, 1);
	s = new_stream(CU_STREAM_NON_BLOCKING);
	cuMemAlloc_v2(&there, BYTES);
	cuMemcpyDtoDAsync_v2(is_ordered ? p : there, is_ordered ? there : p + BYTES, BYTES, s);
	note(first);
	cuCtxSetCurrent(ctx);
	if (!is_ordered)
		write_first(a);
	else
		cuCtxRecordEvent(ctx, event);
	if (is_ordered)
		cuStreamWaitEvent(b, event, 0);
	write_second(b);
	cuCtxSynchronize();
	cuCtxDestroy_v2(other);
	cuCtxSetCurrent(ctx);
}

static void
legacy_streams_of_one_context(bool is_ordered)
{
	CUcontext other;

	write_first(CU_STREAM_LEGACY);
	cuCtxCreate_v2(&other, 0, 0);
	if (is_ordered)
		cuCtxSetCurrent(ctx);
	write_second(CU_STREAM_LEGACY);
	cuCtxDestroy_v2(other);
	cuCtxSetCurrent(ctx);
}

static void
a_launch_that_is_not_programmatic(bool is_ordered)
{
	write_first(a);
	fill_early(a, !is_ordered);
}

static void
a_copy_before_a_programmatic_launch(bool is_ordered)
{
	if (is_ordered)
		cuMemsetD8Async(p, 1, BYTES, a);
	else
		fill(a, p, 1, BYTES);
	note(first);
	fill_early(a, true);
}

static void
what_comes_before_both_kernels(bool is_ordered)
{
	write_first(a);
	if (is_ordered)
		cuMemsetD8Async(p, 1, 16, a);
	spin(a, 0, 1);
	if (!is_ordered)
		write_first(a);
	fill_early(a, true);
}

static void
a_kernel_between_that_does_not_start_early(bool is_ordered)
{
	CUdeviceptr q = p;

	write_first(a);
	p += BYTES;
	fill_early(a, !is_ordered);
	p = q;
	fill_early(a, true);
}

static void
waiting_for_a_programmatic_kernel(bool is_ordered)
{
	CUdeviceptr q = p;

	write_first(a);
	p += BYTES;
	fill_early(a, true);
	p = q;
	if (is_ordered) {
		cuEventRecord(event, a);
		cuStreamWaitEvent(b, event, 0);
	}
	write_second(b);
}

static void
many_races(bool is_ordered)
{
	(void)is_ordered;
	for (int i = 0; i < 24; i++)
		write_first(i % 2 ? a : b);
}

static const struct program programs[] = {
	PROGRAM(stream_order),
	PROGRAM(an_event_wait),
	PROGRAM(the_record_at_the_time_of_the_wait),
	PROGRAM(an_event_wait_goes_on),
	PROGRAM(an_event_of_the_context),
	PROGRAM(an_event_of_the_context_for_a_threads_stream),
	PROGRAM(an_event_of_the_context_for_a_stream_that_is_gone),
	PROGRAM(the_legacy_stream_after_a_blocking_one),
	PROGRAM(a_blocking_stream_after_the_legacy_one),
	PROGRAM(the_legacy_stream_after_a_blocking_one_that_is_gone),
	PROGRAM(a_legacy_synchronize_for_a_blocking_stream),
	PROGRAM(a_threads_stream_after_the_legacy_one),
	PROGRAM(legacy_work_between_blocking_streams),
	PROGRAM(a_stream_synchronize),
	PROGRAM(an_event_synchronize),
	PROGRAM(a_context_synchronize),
	PROGRAM(a_stream_query_that_succeeds),
	PROGRAM(an_event_query_that_succeeds),
	PROGRAM(being_shown_and_not_being_complete),
	PROGRAM(a_copy_that_waits),
	PROGRAM(an_event_of_another_context),
	PROGRAM(an_event_of_the_context_for_a_copy_of_another),
	PROGRAM(legacy_streams_of_one_context),
	PROGRAM(a_launch_that_is_not_programmatic),
	PROGRAM(a_copy_before_a_programmatic_launch),
	PROGRAM(what_comes_before_both_kernels),
	PROGRAM(a_kernel_between_that_does_not_start_early),
	PROGRAM(waiting_for_a_programmatic_kernel),
};

int
main(void)
{
	run_programs(programs, sizeof(programs) / sizeof(programs[0]));
	ok(races_of(many_races, false) == 23 && strstr(text, "race 10:") &&
		   !strstr(text, "race 11:"),
	   "all races are counted, ten are printed");
	return finish();
}
