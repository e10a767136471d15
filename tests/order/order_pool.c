/* SPDX-License-Identifier: MIT */
/*
 * Random programs against one heap that hands memory out early, on the device of order_device.h.
 *
 * usage: order_pool [--ops N] [SEED...]; without a seed one from the clock
 *
 * The program is the shim's: it announces a submission, tells the heap of it if the stream has not
 * since the attention moved, submits, counts and clears. A second thread does the same step by
 * step, with anything in between. Checked at every submission: all that was submitted before the
 * frees of a block's earlier owners comes before it.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tests/order/order_books.h"

/* One of the program's two threads: what it is submitting, and what it knows. */
struct submitter {
	unsigned phase; /* 0: nothing */
	unsigned slot;
	struct op op;
	uint64_t begun, block_id;
	bool is_told_of_touch;
	uint64_t seen[N_SLOTS];
};

static uint64_t n_switches;
static struct submitter submitters[2];
static unsigned last_slot, favourite, n_streams_wanted;
static unsigned spin_slot;
static bool is_fast; /* the device, in this phase */
static struct order_clock event;
static uint64_t graph_block;

/* A submission in four steps: announce, tell, submit, count. */
static void
submission_announce(struct submitter *by)
{
	device.announced[by - submitters] = slot_stream(by->slot);
	device.n_under_way++;
	by->begun = ++device.tick;
	by->phase = 1;
}

static void
submission_tell(struct submitter *by)
{
	const uint64_t seen = device.attention, n_edges = device.counts.n_edges;
	const struct heap_touch *touch = NULL;
	struct heap_touch touched = {0};
	struct look before = look_before();
	const bool can_wait = by->op.kind == OP_BLOCKER;
	bool is_heard;

	by->phase = 2;
	count_event(&before, by->slot == last_slot ? EVENT_SUBMIT_SAME : EVENT_SUBMIT_OTHER);
	n_switches += by->slot != last_slot;
	last_slot = by->slot;
	if (by->seen[by->slot] == seen && !can_wait)
		return;
	if (by->op.kind != OP_WORK || random_below(2) == 0) {
		if (by->block_id) {
			const struct owned *block = block_by_id(by->block_id);

			touched.n_ranges = 1;
			touched.ranges[0].addr = block->addr;
			touched.ranges[0].size_bytes = block->size_bytes;
		}
		touch = &touched;
	}
	is_heard = heap_before_touching(heap, slot_stream(by->slot), slot_handle(by->slot),
					can_wait, touch);
	by->seen[by->slot] = is_heard ? seen : 0;
	look_after(&before);
	if (device.counts.n_edges > n_edges)
		count_event(&before, EVENT_SUBMIT_EDGE);
	if (can_wait)
		count_event(&before, EVENT_BLOCKER_BEGIN);
}

static void
submission_push(struct submitter *by)
{
	struct lane *lane = &device.lanes[device.slots[by->slot]];
	const struct owned *block = by->block_id ? block_by_id(by->block_id) : NULL;

	by->phase = 3;
	if (device.captures != (int)by->slot) {
		lane_push(lane, &by->op, by->begun);
		if (block)
			check_order(block, &lane->clock, "submitted", by->slot);
	}
}

/* The call has come back. */
static void
submission_end(struct submitter *by)
{
	struct look before = look_before();

	if (by->block_id)
		block_by_id(by->block_id)->is_busy = false;
	device.n_ended++;
	device.n_under_way--;
	device.announced[by - submitters].word = 0;
	by->phase = 0;
	if (by->op.kind == OP_BLOCKER) {
		heap_after_blocker(heap);
		n_open_blockers--;
		count_event(&before, EVENT_BLOCKER_END);
	}
}

/* False: the stream's queue is full. */
static bool
submission_begin(struct submitter *by, unsigned slot, enum op_kind kind, struct owned *block)
{
	if (lane_is_full(&device.lanes[device.slots[slot]]) || by->phase != 0)
		return false;
	by->slot = slot;
	by->op = (struct op){.kind = kind};
	by->block_id = block ? block->id : 0;
	if (block)
		block->is_busy = true;
	if (kind == OP_BLOCKER) {
		by->op.number = ++device.n_blockers;
		n_open_blockers++;
	} else if (kind == OP_SPIN) {
		by->op.number = ++device.n_spins;
	} else if (kind == OP_FLAG) {
		by->op.number = device.n_spins;
	}
	submission_announce(by);
	return true;
}

static bool
submit(unsigned slot, enum op_kind kind, struct owned *block)
{
	if (!submission_begin(&submitters[0], slot, kind, block))
		return false;
	submission_tell(&submitters[0]);
	submission_push(&submitters[0]);
	submission_end(&submitters[0]);
	return true;
}

static unsigned
random_slot(void)
{
	if (n_streams_wanted == 1 || random_below(8) > 0)
		return favourite;
	return (unsigned)random_below(n_streams_wanted);
}

static void
step_second_thread(void)
{
	struct submitter *by = &submitters[1];

	if (by->phase == 0)
		submission_begin(by, random_slot(), OP_WORK, random_block());
	else if (by->phase == 1)
		submission_tell(by);
	else if (by->phase == 3)
		submission_end(by);
	else if (!lane_is_full(&device.lanes[device.slots[by->slot]]))
		submission_push(by);
}

/* Another stream's flag ends it, and nothing that natively waits comes between. */
static void
step_spin(void)
{
	if (!device_spins() && device.captures < 0 && device.n_released == device.n_blockers &&
	    submitters[1].phase == 0 && submit(favourite, OP_SPIN, NULL))
		spin_slot = favourite;
}

static void
step_flag(void)
{
	const unsigned slot = (spin_slot + 1) % N_SLOTS;

	if (device_spins() && device.captures < 0)
		submit(slot, OP_FLAG, NULL);
}

static void
step_event(void)
{
	const unsigned slot = random_slot();
	struct submitter *by = &submitters[0];

	if (!device_may_wait())
		return;
	if (random_below(2) == 0) {
		if (submit(slot, OP_WORK, NULL))
			event = device.lanes[device.slots[slot]].clock;
	} else if (submission_begin(by, slot, OP_WAIT, NULL)) {
		by->op.wait = event;
		submission_tell(by);
		submission_push(by);
		submission_end(by);
	}
}

static void
step_sync(bool is_all)
{
	const struct lane *lane = &device.lanes[device.slots[random_slot()]];
	struct order_clock clock = lane->clock;
	struct look before = look_before();

	if (!device_may_wait())
		return;
	if (is_all)
		device_submitted(&clock);
	heap_before_sync(heap);
	device_wait(&clock);
	if (heap_settle(heap) < 0)
		fail("a settle fails");
	look_after(&before);
	count_event(&before, EVENT_SYNC);
}

static void
step_capture(void)
{
	struct look before = look_before();

	if (device.captures < 0) {
		const unsigned slot = (unsigned)random_below(N_SLOTS);
		struct owned *block = random_block();

		if (device_spins() || !block || (submitters[1].phase && submitters[1].slot == slot))
			return;
		device.captures = (int)slot;
		graph_block = block->id;
		block->is_busy = true;
		count_event(&before, EVENT_CAPTURE);
	} else if (submitters[1].phase == 0 || (int)submitters[1].slot != device.captures) {
		const unsigned slot = (unsigned)device.captures;

		device.captures = -1;
		block_by_id(graph_block)->is_busy = false;
		submit(slot, OP_WORK, block_by_id(graph_block));
	}
}

/* The handle's next stream is another one. */
static void
step_destroy(unsigned slot)
{
	const int lane = device_find_lane();
	struct look before = look_before();

	if (lane < 0 || device.captures == (int)slot || device_spins() ||
	    (submitters[1].phase && submitters[1].slot == slot))
		return;
	heap_forget_stream(heap, slot_stream(slot));
	device.attention++;
	device.lanes[device.slots[slot]].is_used = false;
	device.slots[slot] = (unsigned)lane;
	device.lanes[lane].is_used = true;
	count_event(&before, EVENT_DESTROY);
}

/* Work in streams that nobody can name: the host waits for the edge. */
static void
step_unnamed(void)
{
	struct look before = look_before();
	struct owned *block = random_block();
	struct lane *lane = &device.lanes[device.slots[random_slot()]];

	if (!block || !device_may_wait() || lane_is_full(lane))
		return;
	device.announced[0] = (struct order_stream){.word = 0};
	device.n_under_way++;
	device.tick++;
	heap_before_submission(heap, (struct order_stream){0}, NULL, false);
	lane_push(lane, &(struct op){.kind = OP_WORK}, device.tick);
	check_order(block, &lane->clock, "submitted without a name", 0);
	device.n_ended++;
	device.n_under_way--;
	look_after(&before);
}

/* What is done between phases of work, as a rule with nothing unfinished. */
static void
step_idle(void)
{
	switch (random_below(6)) {
	case 0:
		step_export();
		break;
	case 1:
		step_destroy((unsigned)random_below(N_SLOTS));
		break;
	case 2:
		step_sync(false);
		break;
	case 3:
		if (random_below(4) == 0)
			step_capture();
		break;
	case 4:
		if (device.n_released == device.n_blockers && random_below(4) == 0)
			submit(favourite, OP_BLOCKER, random_block());
		break;
	default:
		step_free();
		step_alloc();
		step_free();
	}
}

/* Long enough for the order to look anew. */
static void
step_rest(void)
{
	size_t freed_bytes;

	device.now_ns += 64000000;
	step_sync(true);
	heap_trim(heap, SIZE_MAX, 0, &freed_bytes);
	step_idle();
}

/* A little work in another stream, and back. */
static void
step_visit(void)
{
	const unsigned slot = (unsigned)random_below(N_SLOTS);

	for (unsigned n = (unsigned)random_below(3);; n--) {
		submit(slot, OP_WORK, random_block());
		submit(favourite, OP_WORK, random_block());
		if (n == 0)
			break;
		if (random_below(2) == 0)
			step_destroy(slot);
	}
	if (random_below(16) > 0)
		step_rest();
}

static void
step_phase(void)
{
	favourite = (unsigned)random_below(N_SLOTS);
	is_fast = random_below(16) == 0;
	n_streams_wanted = random_below(24) == 0 ? N_SLOTS : 1;
	step_rest();
}

static void
step_rare(void)
{
	switch (random_below(16)) {
	case 0:
	case 1:
		if (random_below(8) == 0)
			step_sync(random_below(2) == 0);
		break;
	case 2:
	case 3:
		step_event();
		break;
	case 4:
		if (random_below(16) == 0)
			step_capture();
		break;
	case 5:
		if (random_below(8) == 0)
			step_export();
		break;
	case 6:
		if (random_below(4) == 0)
			step_destroy((unsigned)random_below(N_SLOTS));
		break;
	case 7:
		if (device.n_released == device.n_blockers && random_below(16) == 0)
			submit(random_slot(), OP_BLOCKER, random_block());
		break;
	case 8:
		step_wait();
		break;
	case 9:
		if (random_below(8) == 0)
			step_spin();
		break;
	case 10:
		if (random_below(16) == 0)
			step_unnamed();
		break;
	case 11:
		step_turn();
		device_run(200);
		step_settle();
		break;
	case 12:
		step_settle();
		break;
	case 13:
		device.now_ns += random_below(4) == 0 ? 100000000 : 1000000;
		break;
	case 14:
		if (random_below(4) == 0)
			step_phase();
		break;
	default:
		if (random_below(3) == 0)
			step_visit();
	}
}

static void
step(void)
{
	const uint64_t choice = random_below(100);

	device.now_ns += random_below(100000);
	device_run(is_fast ? (unsigned)random_below(12) : random_below(4) == 0);
	if (device_spins() && random_below(8) == 0)
		step_flag();
	if (device.captures >= 0 && random_below(16) == 0)
		step_capture();
	if (device.n_released < device.n_blockers && random_below(16) == 0)
		device.n_released++;
	if (choice < 22)
		n_live_blocks() < 60 + random_below(40) ? step_alloc() : step_free();
	else if (choice < 44)
		n_live_blocks() > random_below(80) ? step_free() : step_alloc();
	else if (choice < 82)
		submit(random_slot(), OP_WORK, random_block());
	else if (choice < 92)
		step_second_thread();
	else
		step_rare();
}

static void
run_seed(uint64_t seed, uint64_t n_ops)
{
	static const struct heap_config config = {
		.backend = &device.backend,
		.stats = &stats,
		.kind = HEAP_DEVICE,
		.is_split = true,
		.is_early = true,
		.attention = &device.attention,
	};

	struct heap *new_heap;

	random_state = seed * UINT64_C(0x9e3779b97f4a7c15) | 1;
	device_init();
	memset(submitters, 0, sizeof(submitters));
	event = (struct order_clock){0};
	last_slot = 0;
	is_fast = false;
	favourite = 0;
	n_streams_wanted = 1;
	new_heap = heap_new(&pool, &config);
	if (!new_heap)
		fail("no heap");
	books_begin(new_heap);
	printf("seed %llu, %llu operations\n", (unsigned long long)seed, (unsigned long long)n_ops);
	fflush(stdout);
	for (uint64_t i = 0; i < n_ops; i++)
		step();
	books_end();
}

int
main(int argc, char **argv)
{
	uint64_t n_ops = 1000000;
	int at = 1;

	if (argc > 2 && strcmp(argv[1], "--ops") == 0) {
		n_ops = strtoull(argv[2], NULL, 10);
		at = 3;
	}
	pool_init(&pool);
	if (at == argc)
		run_seed((uint64_t)time(NULL), n_ops);
	for (; at < argc; at++)
		run_seed(strcmp(argv[at], "clock") == 0 ? (uint64_t)time(NULL)
							: strtoull(argv[at], NULL, 10),
			 n_ops);
	pool_fini(&pool);
	print_figures(n_switches);
	return 0;
}
