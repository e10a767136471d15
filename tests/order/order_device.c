/* SPDX-License-Identifier: MIT */
/* The device of order_device.h, and the backend that the pool sees of it. */
#include "tests/order/order_device.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PAUSE_NS = 20000, N_STUCK_MAX = 20000 };

struct device device;
uint64_t random_state;

struct fence {
	struct order_clock covers;
	uint64_t newest_begun, last_free_tick;
};

uint64_t
random_below(uint64_t n)
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	random_state ^= random_state << 17;
	return (random_state >> 11) % n;
}

void
fail(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	fputs("order_pool: ", stdout);
	vprintf(format, args);
	putchar('\n');
	va_end(args);
	exit(1);
}

void
clock_join(struct order_clock *to, const struct order_clock *from)
{
	for (unsigned i = 0; i < N_LANES; i++)
		if (from->at[i] > to->at[i])
			to->at[i] = from->at[i];
}

int
clock_missing(const struct order_clock *before, const struct order_clock *clock)
{
	for (int i = 0; i < N_LANES; i++)
		if (before->at[i] > clock->at[i])
			return i;
	return -1;
}

void
device_submitted(struct order_clock *ret_clock)
{
	for (unsigned i = 0; i < N_LANES; i++)
		ret_clock->at[i] = device.lanes[i].n_submitted;
}

struct order_stream
slot_stream(unsigned slot)
{
	return (struct order_stream){.word = 0x1000 + 16 * slot};
}

const struct stream_handle *
slot_handle(unsigned slot)
{
	return (const struct stream_handle *)(uintptr_t)(1 + slot);
}

bool
lane_is_full(const struct lane *lane)
{
	return lane->n_submitted - lane->n_done >= N_QUEUED_MAX - 4;
}

void
lane_push(struct lane *lane, const struct op *op, uint64_t begun)
{
	if (lane->n_submitted - lane->n_done >= N_QUEUED_MAX)
		fail("the model's queue is full");
	lane->ops[lane->n_submitted++ % N_QUEUED_MAX] = *op;
	clock_join(&lane->clock, &device.host);
	if (op->kind == OP_WAIT)
		clock_join(&lane->clock, &op->wait);
	lane->clock.at[lane - device.lanes] = lane->n_submitted;
	if (op->kind == OP_SPIN) {
		device.spin_lane = (unsigned)(lane - device.lanes);
		device.spin_at = lane->n_submitted;
	}
	if (op->kind == OP_FLAG)
		device.n_flags_pushed = op->number;
	if (begun > device.newest_begun)
		device.newest_begun = begun;
}

static bool
is_done(const struct order_clock *clock)
{
	for (unsigned i = 0; i < N_LANES; i++)
		if (clock->at[i] > device.lanes[i].n_done)
			return false;
	return true;
}

bool
device_step(unsigned number)
{
	struct lane *lane = &device.lanes[number];
	const struct op *op = &lane->ops[lane->n_done % N_QUEUED_MAX];

	if (lane->n_done == lane->n_submitted || (op->kind == OP_WAIT && !is_done(&op->wait)) ||
	    (op->kind == OP_SPIN && device.n_flags < op->number) ||
	    (op->kind == OP_BLOCKER && device.n_released < op->number))
		return false;
	if (op->kind == OP_FLAG && op->number > device.n_flags)
		device.n_flags = op->number;
	lane->n_done++;
	return true;
}

void
device_run(unsigned n_steps)
{
	while (n_steps-- > 0)
		device_step(random_below(N_LANES));
}

void
device_wait(const struct order_clock *clock)
{
	device.n_released = device.n_blockers;
	while (!is_done(clock)) {
		bool moves = false;

		for (unsigned i = 0; i < N_LANES; i++)
			moves |= device_step(i);
		device.now_ns += PAUSE_NS;
		if (!moves)
			fail("deadlock: the device stands still, and the program waits for it");
	}
	clock_join(&device.host, clock);
}

bool
device_spins(void)
{
	return device.n_flags_pushed < device.n_spins;
}

bool
device_may_wait(void)
{
	return !device_spins() && device.captures < 0;
}

int
device_find_lane(void)
{
	for (int i = 0; i < N_LANES; i++)
		if (!device.lanes[i].is_used && device.lanes[i].n_submitted <= device.host.at[i])
			return i;
	return -1;
}

struct device_segment *
device_segment_at(uint64_t addr)
{
	for (unsigned i = 0; i < device.n_segments; i++)
		if (addr - device.segments[i].addr < device.segments[i].size_bytes)
			return &device.segments[i];
	fail("0x%llx lies in no segment", (unsigned long long)addr);
}

static int
device_map(struct backend *backend, size_t size_bytes, uint64_t *ret_addr)
{
	(void)backend;
	if (device.n_segments == N_SEGMENTS_MAX)
		return BACKEND_E_NO_MEMORY;
	device.segments[device.n_segments++] =
		(struct device_segment){.addr = device.next_addr, .size_bytes = size_bytes};
	*ret_addr = device.next_addr;
	device.next_addr += size_bytes;
	device.counts.n_mapped++;
	return BACKEND_OK;
}

static int
device_unmap(struct backend *backend, uint64_t addr, size_t size_bytes)
{
	struct device_segment *segment = device_segment_at(addr);

	(void)backend;
	if (segment->addr != addr || segment->size_bytes != size_bytes)
		fail("a part of a segment was given back");
	check_unmap(addr, size_bytes);
	*segment = device.segments[--device.n_segments];
	return BACKEND_OK;
}

static int
device_record(struct backend *backend, bool is_wide, struct fence **ret_fence)
{
	struct fence *fence;

	(void)backend;
	(void)is_wide;
	if (device.captures >= 0) {
		device.counts.n_busy++;
		return BACKEND_E_BUSY;
	}
	fence = malloc(sizeof(*fence));
	if (!fence)
		fail("no memory for a fence");
	device_submitted(&fence->covers);
	fence->newest_begun = device.newest_begun;
	fence->last_free_tick = device.last_free_tick;
	device.counts.n_sealed++;
	*ret_fence = fence;
	return BACKEND_OK;
}

static int
device_query(struct backend *backend, struct fence *fence)
{
	(void)backend;
	if (device.captures >= 0)
		return BACKEND_E_BUSY;
	if (!is_done(&fence->covers))
		return BACKEND_E_NOT_READY;
	clock_join(&device.host, &fence->covers);
	clock_join(&device.asked, &fence->covers);
	if (fence->last_free_tick > device.asked_tick)
		device.asked_tick = fence->last_free_tick;
	return BACKEND_OK;
}

static void
device_fence_free(struct backend *backend, struct fence *fence)
{
	(void)backend;
	device.counts.n_freed++;
	free(fence);
}

/* No edge covers what was submitted after the free that it stands for. */
static void
check_edge(const struct fence *fence, unsigned slot)
{
	const struct lane *spinning = &device.lanes[device.spin_lane];

	if (device_spins() && fence->covers.at[device.spin_lane] >= device.spin_at)
		fail("stream %u is made to wait for operation %llu of lane %u (of %llu), which "
		     "spins for "
		     "what this thread submits later",
		     slot, (unsigned long long)device.spin_at, device.spin_lane,
		     (unsigned long long)spinning->n_submitted);
	if (fence->newest_begun > device.early_tick)
		fail("stream %u is made to wait for later work: submission %llu, though the newest "
		     "free of what was handed out early is %llu",
		     slot, (unsigned long long)fence->newest_begun,
		     (unsigned long long)device.early_tick);
}

static int
device_edge_wait(struct backend *backend, const struct stream_handle *stream, struct fence *fence)
{
	const unsigned slot = (unsigned)(uintptr_t)stream - 1;
	const struct op op = {.kind = OP_WAIT, .wait = fence->covers};

	(void)backend;
	if (device.captures == (int)slot)
		return BACKEND_E_BUSY;
	check_edge(fence, slot);
	lane_push(&device.lanes[device.slots[slot]], &op, 0);
	device.counts.n_edges++;
	return BACKEND_OK;
}

static void
device_look(struct backend *backend, void (*enter)(void *arg, struct order_stream stream),
	    void *arg)
{
	(void)backend;
	device.counts.n_looks++;
	device.attention++;
	for (unsigned i = 0; i < 2; i++)
		if (device.announced[i].word)
			enter(arg, device.announced[i]);
}

static uint64_t
device_n_submissions(struct backend *backend)
{
	(void)backend;
	return device.n_ended;
}

static uint64_t
device_n_begun(struct backend *backend)
{
	(void)backend;
	return device.n_ended + device.n_under_way;
}

static uint64_t
device_now_ns(struct backend *backend)
{
	(void)backend;
	return device.now_ns;
}

/* Meanwhile the device goes on, and so does a thread that others wait for. */
static void
device_pause(struct backend *backend, unsigned n_tries)
{
	bool moves = false;

	(void)backend;
	(void)n_tries;
	device.now_ns += PAUSE_NS;
	for (unsigned i = 0; i < 2 && !device.stands_still; i++)
		moves |= device_step(random_below(N_LANES));
	if (device.n_released < device.n_blockers && random_below(64) == 0)
		device.n_released++;
	device.n_stuck = moves ? 0 : device.n_stuck + 1;
	if (device.n_stuck > N_STUCK_MAX)
		fail("a wait that never ends: nothing moves");
}

static const struct backend_ops device_ops = {
	.map = device_map,
	.unmap = device_unmap,
	.fence_record = device_record,
	.fence_query = device_query,
	.fence_free = device_fence_free,
	.edge_wait = device_edge_wait,
	.look = device_look,
	.n_submissions = device_n_submissions,
	.n_begun = device_n_begun,
	.now_ns = device_now_ns,
	.coarse_ns = device_now_ns,
	.pause = device_pause,
};

void
device_init(void)
{
	memset(&device, 0, sizeof(device));
	device.backend.ops = &device_ops;
	device.next_addr = UINT64_C(0x700000000000);
	device.now_ns = UINT64_C(1000000000000);
	device.attention = 1;
	device.captures = -1;
	for (unsigned i = 0; i < N_SLOTS; i++) {
		device.slots[i] = i;
		device.lanes[i].is_used = true;
	}
}
