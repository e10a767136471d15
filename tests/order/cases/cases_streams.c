/* SPDX-License-Identifier: MIT */
/* Rows: what fences cover, one stream, several streams. */
#include "tests/order/cases/cases.h"

enum outcome
case_one_fence_for_many_frees(void)
{
	enum { N = 4 };
	const CUdeviceptr beside = case_block();
	CUdeviceptr blocks[N], next;
	unsigned n_again = 0;

	for (int i = 0; i < N; i++)
		case_use(scene.y, blocks[i] = case_block());
	case_use(scene.s, beside);
	cusim_reset_counts();
	for (int i = 0; i < N; i++)
		case_free(blocks[i]);
	for (int i = 0; i < N; i++) {
		next = case_alloc();
		for (int j = 0; j < N; j++)
			CHECK(next != blocks[j]);
	}
	CHECK(cusim_call_count("cuCtxRecordEvent") <= 2); /* of the frees, and of a turn */
	cusim_run_all();
	case_settle();
	for (int i = 0; i < N; i++) {
		next = case_alloc();
		for (int j = 0; j < N; j++)
			n_again += next == blocks[j];
	}
	return n_again == N ? COMPLETE : WRONG;
}

enum outcome
case_a_later_free_has_its_own_fence(void)
{
	const CUdeviceptr first = case_block(), second = case_block();

	case_use(scene.s, first);
	case_free(first);
	case_use(scene.y, second);
	case_free(second);
	CHECK(case_step(scene.s, 1) == 1);
	CHECK(case_alloc() != second);
	return case_hand_out(second);
}

/* What is freed and shown complete is for any stream. */
static enum outcome
after_a_wait(CUresult (*wait)(CUevent event))
{
	const CUdeviceptr block = case_block();
	CUevent event;

	MUST(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
	case_use(scene.s, block);
	victim_record(event, scene.s);
	case_free(block);
	MUST(wait(event));
	CHECK(case_alloc() == block);
	case_mark();
	case_use(scene.y, block);
	MUST(cuEventDestroy_v2(event));
	return case_wait(scene.s, scene.y, block);
}

static CUresult
wait_for_context(CUevent event)
{
	(void)event;
	return cuCtxSynchronize();
}

static CUresult
wait_for_stream(CUevent event)
{
	(void)event;
	return cuStreamSynchronize(scene.s);
}

enum outcome
case_context_synchronise(void)
{
	return after_a_wait(wait_for_context);
}

enum outcome
case_stream_synchronise(void)
{
	return after_a_wait(wait_for_stream);
}

enum outcome
case_event_synchronise(void)
{
	return after_a_wait(cuEventSynchronize);
}

enum outcome
case_nobody_synchronises(void)
{
	const CUdeviceptr block = case_block(), beside = case_block();

	case_use(scene.y, block);
	case_use(scene.s, beside);
	case_free(block);
	CHECK(case_alloc() != block);
	cusim_run_all();
	return case_soon(block);
}

static enum outcome
one_stream(CUstream s)
{
	const CUdeviceptr block = case_block();

	scene.s = s;
	case_use(s, block);
	case_free(block);
	return case_hand_out(block);
}

enum outcome
case_stream_that_does_not_block(void)
{
	return one_stream(scene.s);
}

enum outcome
case_stream_that_blocks(void)
{
	return one_stream(scene.blocking);
}

enum outcome
case_legacy_stream(void)
{
	return one_stream(NULL);
}

enum outcome
case_per_thread_stream(void)
{
	return one_stream(VICTIM_PER_THREAD);
}

static enum outcome
another_stream(CUstream s, CUstream y)
{
	const CUdeviceptr block = case_early(s);

	case_use(y, block);
	return case_wait(s, y, block);
}

enum outcome
case_another_stream(void)
{
	return another_stream(scene.s, scene.y);
}

enum outcome
case_another_stream_after_a_blocking_one(void)
{
	return another_stream(scene.blocking, scene.y);
}

enum outcome
case_another_stream_after_the_legacy_one(void)
{
	return another_stream(NULL, scene.y);
}

enum outcome
case_another_stream_after_a_per_thread_one(void)
{
	return another_stream(VICTIM_PER_THREAD, scene.y);
}

enum outcome
case_the_legacy_stream_as_another(void)
{
	return another_stream(scene.s, NULL);
}

enum outcome
case_the_same_stream(void)
{
	return another_stream(scene.s, scene.s);
}

enum outcome
case_another_stream_a_second_time(void)
{
	const CUdeviceptr beside = case_block(), block = case_early(scene.s);

	case_use(scene.y, block);
	CHECK(case_step(scene.s, 1) == 1);
	case_mark();
	case_use(scene.y, beside);
	return case_wait(scene.s, scene.y, beside);
}

enum outcome
case_a_third_stream(void)
{
	const CUdeviceptr beside = case_block(), block = case_early(scene.s);

	case_use(scene.y, block);
	case_use(scene.z, beside);
	return case_wait(scene.s, scene.z, beside);
}

/* The first edge would let the other stream go a step earlier. */
enum outcome
case_newest_of_two_edges(void)
{
	const CUdeviceptr first = case_block();
	CUdeviceptr second;

	case_use(scene.s, first);
	case_free(first);
	CHECK(case_alloc() == first);
	second = case_early(scene.s);
	case_use(scene.y, second);
	CHECK(case_step(scene.s, 1) == 1);
	return case_wait(scene.s, scene.y, second);
}

/* The work comes between the free and the hand-out. */
enum outcome
case_edge_before_later_work(void)
{
	const CUdeviceptr block = case_block();

	scene.later = case_block();
	case_use_old(scene.s, block);
	case_free(block);
	case_use(scene.s, scene.later);
	CHECK(case_alloc() == block);
	case_mark();
	case_use(scene.y, block);
	return case_wait(scene.s, scene.y, block);
}

/* The free makes no call; the hand-out records, or the stream's next submission before it. */
enum outcome
case_edge_made_by_the_hand_out(void)
{
	const CUdeviceptr block = case_block();
	enum outcome outcome;

	case_use(scene.s, block);
	cusim_reset_counts();
	case_free(block);
	CHECK(cusim_call_count("cuCtxRecordEvent") == 0);
	outcome = case_hand_out(block);
	CHECK(cusim_call_count("cuCtxRecordEvent") == 1);
	return outcome;
}

enum outcome
case_edge_made_by_the_next_submission(void)
{
	const CUdeviceptr block = case_block(), beside = case_block();
	enum outcome outcome;

	case_use(scene.s, block);
	cusim_reset_counts();
	case_free(block);
	case_use(scene.s, beside);
	CHECK(cusim_call_count("cuCtxRecordEvent") == 1);
	outcome = case_hand_out(block);
	CHECK(cusim_call_count("cuCtxRecordEvent") == 1);
	return outcome;
}

enum outcome
case_edge_that_is_complete(void)
{
	const CUdeviceptr freed = case_small(), block = case_early(scene.s);

	case_use(scene.s, freed);
	case_free(freed);
	case_settle();
	case_mark();
	case_use(scene.y, block);
	return case_wait(scene.s, scene.y, block);
}

enum outcome
case_freed_and_not_handed_out(void)
{
	const CUdeviceptr block = case_block(), beside = case_block();

	case_use(scene.s, block);
	case_free(block);
	case_mark();
	case_use(scene.y, beside);
	return case_wait(scene.s, scene.y, beside);
}

enum outcome
case_copy_of_other_memory(void)
{
	case_early(scene.s);
	MUST(cuMemcpyDtoDAsync_v2(scene.small + 256, scene.small, 4, scene.y));
	return case_wait(scene.s, scene.y, scene.small);
}

enum outcome
case_copy_to_the_block(void)
{
	const CUdeviceptr block = case_early(scene.s);

	MUST(cuMemcpyDtoDAsync_v2(block, scene.small, 4, scene.y));
	return case_wait(scene.s, scene.y, block);
}

enum outcome
case_copy_from_the_block(void)
{
	const CUdeviceptr block = case_early(scene.s);

	MUST(cuMemcpyDtoDAsync_v2(scene.small, block, 4, scene.y));
	return case_wait(scene.s, scene.y, block);
}

enum outcome
case_memset_of_other_memory(void)
{
	case_early(scene.s);
	MUST(cuMemsetD8Async(scene.small, 1, 4, scene.y));
	return case_wait(scene.s, scene.y, scene.small);
}

enum outcome
case_memset_of_the_block(void)
{
	const CUdeviceptr block = case_early(scene.s);

	MUST(cuMemsetD8Async(block, 1, 4, scene.y));
	return case_wait(scene.s, scene.y, block);
}

enum outcome
case_write_of_a_value_elsewhere(void)
{
	case_early(scene.s);
	MUST(cuStreamWriteValue32_v2(scene.y, scene.small, 1, 0));
	return case_wait(scene.s, scene.y, scene.small);
}

enum outcome
case_kernel_after_a_copy_that_did_not_wait(void)
{
	const CUdeviceptr block = case_early(scene.s);

	MUST(cuMemcpyDtoDAsync_v2(scene.small + 256, scene.small, 4, scene.y));
	case_use(scene.y, block);
	return case_wait(scene.s, scene.y, block);
}

enum outcome
case_two_frees_share_an_edge(void)
{
	const CUdeviceptr first = case_block(), second = case_block();
	enum outcome outcome;
	CUdeviceptr next;

	case_use(scene.s, first);
	case_use(scene.s, second);
	cusim_reset_counts();
	case_free(first);
	case_free(second);
	next = case_alloc();
	CHECK(next == first || next == second);
	outcome = case_hand_out(next == first ? second : first);
	CHECK(cusim_call_count("cuCtxRecordEvent") == 1);
	return outcome;
}

enum outcome
case_nothing_to_cover(void)
{
	const CUdeviceptr block = case_block();
	enum outcome outcome;

	case_use(scene.s, block);
	cusim_reset_counts();
	case_free(block);
	CHECK(case_alloc() == block);
	case_free(block);
	outcome = case_hand_out(block);
	CHECK(cusim_call_count("cuCtxRecordEvent") == 1);
	return outcome;
}

enum outcome
case_two_streams(void)
{
	const CUdeviceptr block = case_block(), beside = case_block();

	case_use(scene.s, block);
	case_use(scene.y, beside);
	case_free(block);
	return case_hand_out(block);
}

enum outcome
case_second_stream_after_the_free(void)
{
	const CUdeviceptr block = case_block(), beside = case_block();

	case_use(scene.s, block);
	case_free(block);
	case_use(scene.y, beside);
	return case_hand_out(block);
}

/* Two streams had work, and something was freed. */
static void
two_streams_at_work(void)
{
	const CUdeviceptr freed = case_small(), beside = case_block();

	case_use(scene.y, freed);
	case_use(scene.s, beside);
	case_free(freed);
}

enum outcome
case_one_stream_again(void)
{
	two_streams_at_work();
	case_settle();
	return one_stream(scene.s);
}

enum outcome
case_one_stream_again_that_is_busy(void)
{
	const CUdeviceptr block = case_block();

	two_streams_at_work();
	case_pass_ns(100000000);
	MUST(cuStreamSynchronize(scene.y));
	case_use(scene.s, block);
	CHECK(case_step(scene.s, 1) == 1); /* what it had when it was alone again */
	MUST(cuStreamSynchronize(scene.y));
	case_free(block);
	return case_hand_out(block);
}
