/* SPDX-License-Identifier: MIT */
#include "tests/order/order_books.h"

#include <stdio.h>

enum { BOUND_NS = 10000000 };

static const char *const event_names[] = {
#define X(name, text) text,
	EVENTS(X)
#undef X
};

struct pool pool;
struct heap *heap;
struct stats stats;
unsigned n_open_blockers;
static struct account account;
static struct owned live[N_LIVE_MAX];
static unsigned n_live;
static struct past pasts[N_PAST_MAX];
static unsigned n_pasts;
static uint64_t n_blocks, matrix[3][N_EVENTS];

static void
trim_peers(void *arg, struct heap *except, size_t want_bytes, uint64_t bound_ns)
{
	(void)arg;
	(void)except;
	(void)want_bytes;
	(void)bound_ns;
}

static const struct exhaust_peers peers = {.trim = trim_peers, .run_ahead_bytes = 64 << 20};

static enum order_mode
mode_now(void)
{
	struct order_stream only;

	return order_mode(&heap->order, &only);
}

struct look
look_before(void)
{
	device.n_stuck = 0;
	return (struct look){
		.mode = mode_now(),
		.counts = device.counts,
		.has_drain = heap->order.drain,
		.n_open = heap->open[0]->n_blocks,
		.n_early = stats_read(&stats.early_count),
		.n_free = stats_read(&stats.n_free_blocks),
	};
}

void
count_event(const struct look *before, enum event event_number)
{
	matrix[before->mode][event_number]++;
}

void
look_after(const struct look *before)
{
	const struct device_counts *old = &before->counts, *now = &device.counts;

	matrix[before->mode][EVENT_TURN] += now->n_looks - old->n_looks;
	matrix[before->mode][EVENT_SEAL_OK] += now->n_sealed - old->n_sealed;
	matrix[before->mode][EVENT_SEAL_BUSY] += now->n_busy - old->n_busy;
	matrix[before->mode][EVENT_RETIRE] += now->n_freed - old->n_freed;
	if ((before->has_drain || now->n_looks > old->n_looks) && !heap->order.drain)
		count_event(before, EVENT_DRAINED);
	if (before->n_open > 0 && heap->open[0]->n_blocks == 0 && now->n_sealed == old->n_sealed)
		count_event(before, EVENT_SEAL_COVERED);
}

static void
forget_complete_pasts(void)
{
	unsigned n_kept = 0;

	for (unsigned i = 0; i < n_pasts; i++)
		if (pasts[i].tick > device.asked_tick ||
		    clock_missing(&pasts[i].before, &device.asked) >= 0)
			pasts[n_kept++] = pasts[i];
	n_pasts = n_kept;
}

static bool
overlaps(uint64_t addr, uint64_t size_bytes, const struct past *past)
{
	return addr < past->addr + past->size_bytes && past->addr < addr + size_bytes;
}

/* Free blocks become one with their neighbours, and the newest free counts for all of them. */
static void
note_early(const struct owned *block)
{
	const struct device_segment *segment = device_segment_at(block->addr);
	uint64_t begin = segment->addr, end = segment->addr + segment->size_bytes;

	for (unsigned i = 0; i < n_live; i++) {
		const uint64_t live_end = live[i].addr + live[i].size_bytes;

		if (live_end <= block->addr && live_end > begin)
			begin = live_end;
		if (live[i].addr >= block->addr + block->size_bytes && live[i].addr < end)
			end = live[i].addr;
	}
	for (unsigned i = 0; i < n_pasts; i++)
		if (overlaps(begin, end - begin, &pasts[i]) && pasts[i].tick > device.early_tick)
			device.early_tick = pasts[i].tick;
}

static void
inherit(struct owned *block)
{
	for (unsigned i = 0; i < n_pasts; i++) {
		if (!overlaps(block->addr, block->size_bytes, &pasts[i]))
			continue;
		for (unsigned j = 0; j < N_LANES; j++)
			if (pasts[i].before.at[j] > block->before.at[j]) {
				block->before.at[j] = pasts[i].before.at[j];
				block->owner[j] = pasts[i].id;
				block->owner_tick[j] = pasts[i].tick;
			}
	}
}

void
check_order(const struct owned *block, const struct order_clock *clock, const char *what,
	    unsigned slot)
{
	const int lane = clock_missing(&block->before, clock);

	if (lane >= 0)
		fail("%s, stream %u: block %llu (0x%llx, %llu bytes) was block %llu, freed at tick "
		     "%llu after operation %llu of lane %d; only what is up to %llu there comes "
		     "before: an edge is missing",
		     what, slot, (unsigned long long)block->id, (unsigned long long)block->addr,
		     (unsigned long long)block->size_bytes, (unsigned long long)block->owner[lane],
		     (unsigned long long)block->owner_tick[lane],
		     (unsigned long long)block->before.at[lane], lane,
		     (unsigned long long)clock->at[lane]);
}

void
check_unmap(uint64_t addr, uint64_t size_bytes)
{
	for (unsigned i = 0; i < n_pasts; i++)
		if (overlaps(addr, size_bytes, &pasts[i]) &&
		    clock_missing(&pasts[i].before, &device.host) >= 0)
			fail("segment 0x%llx goes back with unfinished work of block %llu",
			     (unsigned long long)addr, (unsigned long long)pasts[i].id);
	for (unsigned i = 0; i < n_live; i++)
		if (live[i].addr >= addr && live[i].addr < addr + size_bytes)
			fail("segment 0x%llx goes back with block %llu live",
			     (unsigned long long)addr, (unsigned long long)live[i].id);
}

/* A block is handed out early: for stream work, while nothing that can wait is unfinished. */
static void
check_early(const struct owned *block)
{
	if (addr_map_find(&pool.map, block->addr)->is_exported)
		fail("block %llu is handed out early though others may reach its segment",
		     (unsigned long long)block->id);
	for (unsigned i = 0; i < N_LANES; i++)
		for (uint64_t n = device.lanes[i].n_done; n < device.lanes[i].n_submitted; n++)
			if (device.lanes[i].ops[n % N_QUEUED_MAX].kind == OP_BLOCKER)
				fail("block %llu is handed out early beside a blocker in lane %u",
				     (unsigned long long)block->id, i);
	if (n_open_blockers)
		fail("block %llu is handed out early while a blocker is being submitted",
		     (unsigned long long)block->id);
}

static size_t
random_size(void)
{
	static const size_t usual_bytes[] = {512, 3000, 70000, 300000, 1 << 20, 3 << 20};

	if (random_below(8) > 0)
		return usual_bytes[random_below(6)];
	return 1 + random_below(6 << 20);
}

void
step_alloc(void)
{
	struct owned *block = &live[n_live];
	const size_t requested_bytes = random_size();
	struct look before;
	struct block_info info;
	uint64_t addr;

	if (n_live == N_LIVE_MAX)
		return;
	before = look_before();
	if (exhaust_alloc(heap, &account, &peers, requested_bytes, 0, &addr) != EXHAUST_OK)
		fail("a request of %zu bytes is refused", requested_bytes);
	look_after(&before);
	if (pool_find(&pool, addr, &info) != HEAP_OK || !info.is_live || info.addr != addr)
		fail("0x%llx was handed out and is not live", (unsigned long long)addr);
	*block = (struct owned){.addr = addr, .size_bytes = info.size_bytes, .id = ++n_blocks};
	for (unsigned i = 0; i < n_live; i++)
		if (live[i].addr < addr + info.size_bytes &&
		    addr < live[i].addr + live[i].size_bytes)
			fail("block %llu lies in live block %llu", (unsigned long long)block->id,
			     (unsigned long long)live[i].id);
	inherit(block);
	if (stats_read(&stats.early_count) > before.n_early) {
		check_early(block);
		note_early(block);
		count_event(&before, device.counts.n_sealed > before.counts.n_sealed
					     ? EVENT_TAKE_EARLY_SEALED
					     : EVENT_TAKE_EARLY);
	} else if (device.counts.n_mapped > before.counts.n_mapped) {
		count_event(&before, EVENT_MISS);
	} else {
		check_order(block, &device.host, "handed out as complete", 0);
		count_event(&before, EVENT_TAKE_COMPLETE);
	}
	n_live++;
}

unsigned
n_live_blocks(void)
{
	return n_live;
}

struct owned *
random_block(void)
{
	struct owned *block = n_live ? &live[random_below(n_live)] : NULL;

	return block && !block->is_busy ? block : NULL;
}

struct owned *
block_by_id(uint64_t id)
{
	for (unsigned i = 0; i < n_live; i++)
		if (live[i].id == id)
			return &live[i];
	fail("block %llu is gone", (unsigned long long)id);
}

static void
become_past(const struct owned *block)
{
	unsigned n_kept = 0;

	/* What lies within it comes before it. */
	for (unsigned i = 0; i < n_pasts; i++)
		if (pasts[i].addr < block->addr ||
		    pasts[i].addr + pasts[i].size_bytes > block->addr + block->size_bytes)
			pasts[n_kept++] = pasts[i];
	n_pasts = n_kept;
	if (n_pasts == N_PAST_MAX)
		fail("more than %d freed blocks are unfinished", N_PAST_MAX);
	pasts[n_pasts] = (struct past){.addr = block->addr,
				       .size_bytes = block->size_bytes,
				       .id = block->id,
				       .tick = device.tick};
	device_submitted(&pasts[n_pasts].before);
	clock_join(&pasts[n_pasts].before, &block->before);
	n_pasts++;
}

static int
unmap_natively(void *arg, uint64_t addr)
{
	struct order_clock all;

	(void)arg;
	device_submitted(&all);
	device_wait(&all);
	return device.backend.ops->unmap(&device.backend, addr,
					 device_segment_at(addr)->size_bytes);
}

/* Is all that was submitted known to be done? Then what is freed is complete. */
static bool
is_all_known(void)
{
	struct order_clock all;

	device_submitted(&all);
	return clock_missing(&all, &device.host) < 0;
}

void
step_free(void)
{
	struct owned *block = random_block(), gone;
	struct block_info info;
	struct look before;
	size_t freed_bytes;
	int r;

	/* Natively the free waits for all work. */
	if (!block || device_spins() || (block->is_exported && device.captures >= 0))
		return;
	gone = *block;
	if (pool_find(&pool, gone.addr, &info) != HEAP_OK)
		fail("block %llu is not found", (unsigned long long)gone.id);
	*block = live[--n_live];
	device.last_free_tick = ++device.tick;
	become_past(&gone);
	before = look_before();
	if (info.is_exported && info.is_whole)
		r = heap_give_back(&pool, gone.addr, HEAP_DEVICE, unmap_natively, NULL,
				   &freed_bytes);
	else
		r = heap_give(&pool, gone.addr, HEAP_DEVICE, false,
			      is_all_known() && random_below(2) == 0);
	if (r != HEAP_OK)
		fail("a free of block %llu is refused", (unsigned long long)gone.id);
	look_after(&before);
	count_event(&before, before.mode == ORDER_IDLE ? EVENT_FREE_IDLE : EVENT_FREE);
	if (before.mode == ORDER_ONE && stats_read(&stats.n_free_blocks) <= before.n_free)
		count_event(&before, EVENT_MERGE);
	if (n_pasts > 64)
		forget_complete_pasts();
}

void
step_export(void)
{
	struct owned *block = random_block();
	struct look before = look_before();

	if (!block || !device_may_wait())
		return;
	if (heap_mark_exported(&pool, block->addr) != HEAP_OK)
		fail("block %llu cannot be exported", (unsigned long long)block->id);
	check_order(block, &device.host, "exported", 0);
	block->is_exported = true;
	look_after(&before);
	count_event(&before, EVENT_EXPORT);
}

void
step_wait(void)
{
	const uint64_t begin_ns = device.now_ns, slack_ns = 100000;
	struct look before = look_before();
	size_t freed_bytes;

	device.stands_still = random_below(2) == 0;
	if (random_below(4) == 0)
		heap_trim(heap, (size_t)random_below(8 << 20), 0, &freed_bytes);
	else
		heap_wait_briefly(heap, BOUND_NS);
	device.stands_still = false;
	if (device.now_ns - begin_ns > BOUND_NS + slack_ns)
		fail("a wait of at most %d ns took %llu", BOUND_NS,
		     (unsigned long long)(device.now_ns - begin_ns));
	look_after(&before);
}

void
step_turn(void)
{
	struct look before = look_before();

	device.now_ns += 64000000;
	heap_turn(heap);
	look_after(&before);
}

void
step_settle(void)
{
	struct look before = look_before();

	heap_settle(heap);
	look_after(&before);
}

void
books_begin(struct heap *new_heap)
{
	heap = new_heap;
	n_live = n_pasts = 0;
	n_open_blockers = 0;
	account_init(&account, LIMIT_NONE);
}

void
books_end(void)
{
	n_live = n_pasts = 0;
	heap_free(heap);
	if (stats_read(&stats.used_bytes) > 0 || stats_read(&stats.pending_bytes) > 0 ||
	    device.n_segments > 0 || device.counts.n_freed != device.counts.n_sealed)
		fail("something is left of the heap");
}

void
print_figures(uint64_t n_switches)
{
	uint64_t n_early = 0, n_taken = 0;

	printf("%-24s %12s %12s %12s\n", "event \\ mode before it", "idle", "one", "several");
	for (unsigned i = 0; i < N_EVENTS; i++)
		printf("%-24s %12llu %12llu %12llu\n", event_names[i],
		       (unsigned long long)matrix[ORDER_IDLE][i],
		       (unsigned long long)matrix[ORDER_ONE][i],
		       (unsigned long long)matrix[ORDER_SEVERAL][i]);
	for (unsigned i = 0; i < 3; i++) {
		n_early += matrix[i][EVENT_TAKE_EARLY] + matrix[i][EVENT_TAKE_EARLY_SEALED];
		n_taken += matrix[i][EVENT_TAKE_COMPLETE] + matrix[i][EVENT_MISS];
	}
	printf("stream switches %llu; early hand-outs %llu of %llu (%llu %%)\n",
	       (unsigned long long)n_switches, (unsigned long long)n_early,
	       (unsigned long long)(n_early + n_taken),
	       (unsigned long long)(100 * n_early / (n_early + n_taken + !n_early)));
}
