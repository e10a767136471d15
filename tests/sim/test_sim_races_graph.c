/* SPDX-License-Identifier: MIT */
#include "tests/sim/test_sim_races.h"

/* Captures and launches of graphs. */

static CUgraphExec
end_capture(CUstream s)
{
	CUgraph graph = NULL;
	CUgraphExec exec = NULL;

	cuStreamEndCapture(s, &graph);
	cuGraphInstantiateWithFlags(&exec, graph, 0);
	cuGraphDestroy(graph);
	return exec;
}

static void
launch(CUgraphExec exec, CUstream s)
{
	cuGraphLaunch(exec, s);
	note(first);
	note(second);
	cuCtxSynchronize();
	cuGraphExecDestroy(exec);
}

static void
begin_capture(CUstream s)
{
	cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_RELAXED);
}

static void
the_edge_of_a_fork(bool is_ordered)
{
	begin_capture(a);
	if (is_ordered)
		fill(a, p, 1, BYTES);
	cuEventRecord(event, a);
	cuStreamWaitEvent(b, event, 0);
	if (!is_ordered)
		fill(a, p, 1, BYTES);
	fill(b, p, 2, BYTES);
	cuEventRecord(event, b);
	cuStreamWaitEvent(a, event, 0);
	launch(end_capture(a), a);
}

static void
the_edge_of_a_join(bool is_ordered)
{
	begin_capture(a);
	fill(a, p + BYTES, 1, BYTES);
	cuEventRecord(event, a);
	cuStreamWaitEvent(b, event, 0);
	fill(b, p, 2, BYTES);
	cuEventRecord(event, b);
	if (is_ordered)
		cuStreamWaitEvent(a, event, 0);
	fill(a, p, 1, BYTES);
	cuStreamWaitEvent(a, event, 0);
	launch(end_capture(a), a);
}

static void
a_programmatic_edge(bool is_ordered)
{
	begin_capture(a);
	fill(a, p, 1, BYTES);
	fill_early(a, !is_ordered);
	launch(end_capture(a), a);
}

/* Graphs do not make the kernel after them start before they end. */
static void
a_graph_before_a_programmatic_launch(bool is_ordered)
{
	CUgraphExec exec;

	begin_capture(a);
	fill(a, p, 1, BYTES);
	exec = end_capture(a);
	spin(a, 0, 1);
	if (is_ordered)
		cuGraphLaunch(exec, a);
	else
		write_first(a);
	fill_early(a, true);
	cuCtxSynchronize();
	cuGraphExecDestroy(exec);
}

/*
 * What comes after the second of two kernels, the one that starts early, is after both; also where
 * the first one has another successor.
 */
static void
an_edge_from_a_programmatic_kernel(bool is_ordered)
{
	CUstream c = new_stream(CU_STREAM_NON_BLOCKING);
	CUdeviceptr q = p;

	begin_capture(a);
	fill(a, p + BYTES, 1, BYTES);
	cuEventRecord(event, a);
	cuStreamWaitEvent(b, event, 0);
	fill(a, p, 1, BYTES);
	cuEventRecord(event, a);
	cuStreamWaitEvent(c, event, 0);
	fill(c, p + (size_t)3 * BYTES, 1, BYTES);
	p += (size_t)2 * BYTES;
	fill_early(a, true);
	p = q;
	cuMemsetD8Async(is_ordered ? p : p + (size_t)4 * BYTES, 1, BYTES, a);
	if (!is_ordered)
		fill(b, p, 1, BYTES);
	cuEventRecord(event, b);
	cuStreamWaitEvent(a, event, 0);
	cuEventRecord(event, c);
	cuStreamWaitEvent(a, event, 0);
	launch(end_capture(a), a);
	cuStreamDestroy_v2(c);
}

/* Two branches from one node: only one of them goes on in its slot. */
static void
a_branch_among_several(bool is_ordered)
{
	begin_capture(a);
	fill(a, p + BYTES, 1, BYTES);
	cuEventRecord(event, a);
	cuStreamWaitEvent(b, event, 0);
	fill(a, p, 1, BYTES);
	if (is_ordered)
		cuEventRecord(event, a);
	if (is_ordered)
		cuStreamWaitEvent(b, event, 0);
	fill(b, p, 1, BYTES);
	cuEventRecord(event, b);
	cuStreamWaitEvent(a, event, 0);
	launch(end_capture(a), a);
}

/* An event recorded in a stream that has waited, and captured nothing since, carries the wait. */
static void
a_wait_that_is_passed_on(bool is_ordered)
{
	CUstream c = new_stream(CU_STREAM_NON_BLOCKING);

	begin_capture(a);
	fill(a, p + BYTES, 1, BYTES);
	cuEventRecord(event, a);
	cuStreamWaitEvent(b, event, 0);
	cuStreamWaitEvent(c, event, 0);
	fill(b, p, 1, BYTES);
	fill(c, p + (size_t)2 * BYTES, 1, BYTES);
	cuEventRecord(event, b);
	if (is_ordered)
		cuStreamWaitEvent(c, event, 0);
	cuEventRecord(event, c);
	cuStreamWaitEvent(a, event, 0);
	fill(a, p, 1, BYTES);
	cuEventRecord(event, b);
	cuStreamWaitEvent(a, event, 0);
	launch(end_capture(a), a);
	cuStreamDestroy_v2(c);
}

static CUgraphExec
graph_of_a_fill(void)
{
	begin_capture(a);
	fill(a, p, 1, BYTES);
	return end_capture(a);
}

static void
the_stream_of_a_launch(bool is_ordered)
{
	CUgraphExec exec = graph_of_a_fill();

	write_first(is_ordered ? a : b);
	cuGraphLaunch(exec, a);
	note(second);
	cuCtxSynchronize();
	cuGraphExecDestroy(exec);
}

static void
what_the_host_saw_before_a_launch(bool is_ordered)
{
	CUgraphExec exec = graph_of_a_fill();

	write_first(b);
	if (is_ordered)
		cuStreamSynchronize(b);
	cuGraphLaunch(exec, a);
	note(second);
	cuCtxSynchronize();
	cuGraphExecDestroy(exec);
}

static void
a_launch_in_the_legacy_stream(bool is_ordered)
{
	CUstream s = new_stream(is_ordered ? CU_STREAM_DEFAULT : CU_STREAM_NON_BLOCKING);
	CUgraphExec exec = graph_of_a_fill();

	write_first(s);
	cuGraphLaunch(exec, CU_STREAM_LEGACY);
	note(second);
	cuCtxSynchronize();
	cuGraphExecDestroy(exec);
	cuStreamDestroy_v2(s);
}

static void
an_event_that_a_graph_records(bool is_ordered)
{
	CUgraphExec exec;

	begin_capture(a);
	if (is_ordered)
		fill(a, p, 1, BYTES);
	cuEventRecordWithFlags(event, a, CU_EVENT_RECORD_EXTERNAL);
	if (!is_ordered)
		fill(a, p, 1, BYTES);
	exec = end_capture(a);
	cuGraphLaunch(exec, a);
	note(first);
	cusim_run_all();
	cuStreamWaitEvent(b, event, 0);
	write_second(b);
	cuCtxSynchronize();
	cuGraphExecDestroy(exec);
}

static void
launches_of_one_graph(bool is_ordered)
{
	CUgraphExec exec = graph_of_a_fill(), other = graph_of_a_fill();

	cuGraphLaunch(exec, a);
	note(first);
	cuGraphLaunch(is_ordered ? exec : other, b);
	note(second);
	cuCtxSynchronize();
	cuGraphExecDestroy(exec);
	cuGraphExecDestroy(other);
}

static const struct program programs[] = {
	PROGRAM(the_edge_of_a_fork),
	PROGRAM(the_edge_of_a_join),
	PROGRAM(a_programmatic_edge),
	PROGRAM(a_graph_before_a_programmatic_launch),
	PROGRAM(an_edge_from_a_programmatic_kernel),
	PROGRAM(a_branch_among_several),
	PROGRAM(a_wait_that_is_passed_on),
	PROGRAM(the_stream_of_a_launch),
	PROGRAM(what_the_host_saw_before_a_launch),
	PROGRAM(a_launch_in_the_legacy_stream),
	PROGRAM(an_event_that_a_graph_records),
	PROGRAM(launches_of_one_graph),
};

int
main(void)
{
	run_programs(programs, sizeof(programs) / sizeof(programs[0]));
	return finish();
}
