/* SPDX-License-Identifier: MIT */
#include "tests/sim/test_sim_races.h"

/* Who else touches memory, what an access is, and memory that moves. */

static void
cpu(char *ret_name, int is_write)
{
	cusim_cpu_access(p, 64, is_write);
	strcpy(ret_name, "(the CPU)");
}

static void
agent(char *ret_name)
{
	cusim_agent_access("nic", p, 64, 1, 1);
	strcpy(ret_name, "(nic)");
}

static void
what_the_host_saw_before_the_cpu(bool is_ordered)
{
	write_first(a);
	if (is_ordered)
		cuStreamSynchronize(a);
	cpu(second, 0);
}

static void
a_context_event_before_the_cpu(bool is_ordered)
{
	write_first(a);
	cuCtxRecordEvent(ctx, event);
	if (is_ordered)
		cuEventSynchronize(event);
	cpu(second, 1);
}

static void
what_the_host_saw_before_an_agent(bool is_ordered)
{
	write_first(a);
	if (is_ordered)
		cuStreamSynchronize(a);
	agent(second);
	cusim_agent_access("nic", 0, 0, 0, 0);
}

static void
the_end_of_an_agents_access(bool is_ordered)
{
	agent(first);
	if (is_ordered)
		cusim_agent_access("nic", 0, 0, 0, 0);
	write_second(b);
	cusim_agent_access("nic", 0, 0, 0, 0);
}

static void
the_end_of_an_agents_access_before_the_cpu(bool is_ordered)
{
	agent(first);
	if (is_ordered)
		cusim_agent_access("nic", 0, 0, 0, 0);
	cpu(second, 0);
	cusim_agent_access("nic", 0, 0, 0, 0);
}

static void
touch(void *arg)
{
	(void)arg;
	cusim_cpu_access(p, 64, 1);
}

static void
a_host_function_in_its_stream(bool is_ordered)
{
	write_first(is_ordered ? b : a);
	cuLaunchHostFunc(b, touch, NULL);
	note(second);
	cuStreamSynchronize(b);
}

static void
what_follows_a_host_function(bool is_ordered)
{
	cuLaunchHostFunc(a, touch, NULL);
	note(first);
	cuEventRecord(event, a);
	cusim_run_all();
	if (is_ordered)
		cuStreamWaitEvent(b, event, 0);
	write_second(b);
}

static void
reads(bool is_ordered)
{
	cuMemcpyDtoDAsync_v2(p + BYTES, p, 64, a);
	note(first);
	cuMemcpyDtoDAsync_v2(is_ordered ? p + (size_t)2 * BYTES : p, p + 64, 64, b);
	note(second);
}

/* The left and the right half of a matrix, or (not ordered) halves that meet in a column. */
static void
rows(bool is_ordered)
{
	cuMemsetD2D8Async(p, 128, 1, 64, 16, a);
	note(first);
	cuMemsetD2D8Async(p + (is_ordered ? 64 : 63), 128, 1, 64, 16, b);
	note(second);
}

static void
values_that_are_waited_for(bool is_ordered)
{
	if (is_ordered)
		cuStreamWriteValue32_v2(a, p, 1, 0);
	else
		fill(a, p, 1, 4);
	note(first);
	cuStreamWaitValue32_v2(b, p, 1, CU_STREAM_WAIT_VALUE_GEQ);
	note(second);
}

/* The driver's free has waited: the next owner is after it. */
static void
a_free_of_the_driver(bool is_ordered)
{
	CUdeviceptr q, neighbour;

	cusim_check(CUSIM_CHECK_FREES_SHOW_NOTHING);
	cuMemAlloc_v2(&neighbour, 512); /* so that the page stays */
	write_first(a);
	if (is_ordered) {
		cuMemFree_v2(p);
		cuMemAlloc_v2(&q, 8 * BYTES);
		p = q;
	}
	write_second(b);
	cuMemFree_v2(neighbour);
}

static void
the_wait_in_a_free(bool is_ordered)
{
	CUdeviceptr q;

	cuMemAlloc_v2(&q, 512);
	write_first(a);
	if (!is_ordered)
		cusim_check(CUSIM_CHECK_FREES_SHOW_NOTHING);
	if (!is_ordered)
		write_first(a);
	cuMemFree_v2(q);
	cpu(second, 0);
}

static CUmemGenericAllocationHandle
new_pages(void)
{
	const CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
					  .location.type = CU_MEM_LOCATION_TYPE_DEVICE};
	CUmemGenericAllocationHandle pages = 0;

	cuMemCreate(&pages, 2 * MIB, &prop, 0);
	return pages;
}

static CUdeviceptr
map(CUmemGenericAllocationHandle pages)
{
	const CUmemAccessDesc desc = {.location.type = CU_MEM_LOCATION_TYPE_DEVICE,
				      .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	CUdeviceptr at = 0;

	cuMemAddressReserve(&at, 2 * MIB, 0, 0, 0);
	cuMemMap(at, 2 * MIB, 0, pages, 0);
	cuMemSetAccess(at, 2 * MIB, &desc, 1);
	return at;
}

/* Two reads are kept as long as neither is after the other. */
static void
each_of_two_reads(bool is_ordered)
{
	cuMemcpyDtoDAsync_v2(p + BYTES, p, 64, a);
	note(first);
	if (is_ordered)
		cuEventRecord(event, a);
	cuMemcpyDtoDAsync_v2(p + (size_t)2 * BYTES, p, 64, b);
	if (is_ordered)
		cuStreamWaitEvent(b, event, 0);
	write_second(b);
}

/* Pages that move to another address keep their history: an unmap waits for nothing. */
static void
pages_that_move(bool is_ordered)
{
	CUdeviceptr old = p, from, to;
	CUmemGenericAllocationHandle pages = new_pages(), others = new_pages();

	p = from = map(pages);
	write_first(a);
	cusim_run_all();
	cuMemUnmap(from, 2 * MIB);
	p = to = map(is_ordered ? others : pages);
	write_second(b);
	cuCtxSynchronize();
	cuMemUnmap(to, 2 * MIB);
	cuMemAddressFree(from, 2 * MIB);
	cuMemAddressFree(to, 2 * MIB);
	cuMemRelease(pages);
	cuMemRelease(others);
	p = old;
}

/* Pages that went back to the driver, and came again. */
static void
pages_that_are_released(bool is_ordered)
{
	CUdeviceptr old = p;
	CUmemGenericAllocationHandle pages = new_pages();

	p = map(pages);
	write_first(a);
	cusim_run_all();
	if (is_ordered) {
		cuMemUnmap(p, 2 * MIB);
		cuMemAddressFree(p, 2 * MIB);
		cuMemRelease(pages);
		pages = new_pages();
		p = map(pages);
	}
	write_second(b);
	cuCtxSynchronize();
	cuMemUnmap(p, 2 * MIB);
	cuMemAddressFree(p, 2 * MIB);
	cuMemRelease(pages);
	p = old;
}

/* More than is kept without a look at what can go. */
static void
a_long_history(bool is_ordered)
{
	for (CUdeviceptr at = p; at < p + (size_t)8 * BYTES; at += 16)
		fill(a, at, 1, 8);
	if (is_ordered)
		cuStreamSynchronize(a);
	fill(b, p, 1, (size_t)8 * BYTES);
}

static const struct program programs[] = {
	PROGRAM(what_the_host_saw_before_the_cpu),
	PROGRAM(a_context_event_before_the_cpu),
	PROGRAM(what_the_host_saw_before_an_agent),
	PROGRAM(the_end_of_an_agents_access),
	PROGRAM(the_end_of_an_agents_access_before_the_cpu),
	PROGRAM(a_host_function_in_its_stream),
	PROGRAM(what_follows_a_host_function),
	PROGRAM(reads),
	PROGRAM(rows),
	PROGRAM(values_that_are_waited_for),
	PROGRAM(a_free_of_the_driver),
	PROGRAM(the_wait_in_a_free),
	PROGRAM(each_of_two_reads),
	PROGRAM(pages_that_move),
	PROGRAM(pages_that_are_released),
};

int
main(void)
{
	run_programs(programs, sizeof(programs) / sizeof(programs[0]));
	ok(races_of(a_long_history, true) == 0 && races_of(a_long_history, false) == BYTES / 2,
	   "a long history is forgotten when it may be, and not before");
	return finish();
}
