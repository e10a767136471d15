/* SPDX-License-Identifier: MIT */
#include "tests/support/heap_fixture.h"

#include <criterion/criterion.h>
#include <string.h>

#include "pool/heap_internal.h"

/* Criterion does not look at what LeakSanitizer says when a test's process ends: ask before. */
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/lsan_interface.h>
#define N_LEAKS() __lsan_do_recoverable_leak_check()
#else
#define N_LEAKS() 0
#endif

struct fake_backend fake;
struct pool pool;
struct stats stats;
struct heap *heap;

static void
setup(struct heap_config *config)
{
	config->backend = &fake.backend;
	config->stats = &stats;
	config->owner = &fake;
	fake_backend_init(&fake, FIXTURE_CAPACITY_MIB * MIB);
	pool_init(&pool);
	heap = heap_new(&pool, config);
	cr_assert_not_null(heap, "no heap");
}

void
heap_fixture_setup(void)
{
	setup(&(struct heap_config){.kind = HEAP_DEVICE});
}

void
heap_fixture_setup_host(void)
{
	setup(&(struct heap_config){.kind = HEAP_HOST});
}

void
heap_fixture_setup_account(void)
{
	setup(&(struct heap_config){.kind = HEAP_DEVICE, .is_account = true});
}

void
heap_fixture_setup_early(_Atomic uint64_t *attention)
{
	setup(&(struct heap_config){.kind = HEAP_DEVICE, .is_early = true, .attention = attention});
}

void
heap_fixture_setup_split(void)
{
	setup(&(struct heap_config){.kind = HEAP_DEVICE, .is_split = true});
}

void
heap_fixture_teardown(void)
{
	if (heap) {
		assert_heap_is_sound("at the end");
		heap_free(heap);
	}
	cr_expect_eq(fake_backend_n_mappings(&fake), 0, "a mapping leaked");
	cr_expect_eq(fake_backend_n_fences(&fake), 0, "a fence leaked");
	cr_expect_eq(stats_read(&stats.used_bytes), 0, "used bytes stayed counted");
	cr_expect_eq(stats_read(&stats.total_bytes), 0, "total bytes stayed counted");
	cr_expect_eq(stats_read(&stats.pending_bytes), 0, "pending bytes stayed counted");
	cr_expect_eq(stats_read(&stats.n_free_blocks), 0, "free blocks stayed counted");
	pool_fini(&pool);
	fake_backend_fini(&fake);
	cr_expect_eq(N_LEAKS(), 0, "host memory leaked");
}

uint64_t
take_or_grow(size_t requested_bytes)
{
	uint64_t addr = 0;
	int r = heap_take(heap, requested_bytes, 0, &addr);

	if (r == HEAP_E_MISS)
		r = heap_grow(heap, requested_bytes, heap_segment_bytes(heap, requested_bytes), 0,
			      &addr);
	cr_assert_eq(r, HEAP_OK, "%zu bytes were refused with %d", requested_bytes, r);
	return addr;
}

void
give(uint64_t addr)
{
	cr_assert_eq(heap_give(&pool, addr, heap->config.kind, false, false), HEAP_OK,
		     "a live block was not freed");
}

void
give_complete(uint64_t addr)
{
	cr_assert_eq(heap_give(&pool, addr, heap->config.kind, false, true), HEAP_OK,
		     "a live block was not freed");
}

static int
unmap_sized(void *arg, uint64_t addr)
{
	return fake.backend.ops->unmap(&fake.backend, addr, *(const size_t *)arg);
}

int
give_back(uint64_t addr, enum heap_kind kind, size_t *ret_freed_bytes)
{
	struct block_info info = {0};

	pool_find(&pool, addr, &info);
	return heap_give_back(&pool, addr, kind, unmap_sized, &info.segment_bytes, ret_freed_bytes);
}

/* What the figures must add up to. */
struct sums {
	uint64_t used_bytes, requested_bytes, pending_bytes, free_bytes, total_bytes;
	uint64_t share_bytes[STATS_N_TAGS];
	uint64_t held_bytes;
	uint64_t n_live, n_pending, n_free, n_held, n_segments, n_idle;
};

static void
add_block(const struct segment *segment, const struct block *block, struct sums *sums,
	  const char *where)
{
	cr_assert_eq(block->segment, segment, "%s: a block points at another segment", where);
	cr_assert_gt(block->size_bytes, 0, "%s: an empty block", where);
	cr_assert_eq(block->size_bytes % BLOCK_UNIT_BYTES, 0, "%s: half a unit", where);
	cr_assert_eq(segment_block_at(segment, block->addr), block,
		     "%s: a block is not found where it starts", where);
	cr_assert_eq(segment_block_holding(segment, block->addr + block->size_bytes - 1), block,
		     "%s: a block is not found at its end", where);
	switch (block->state) {
	case BLOCK_LIVE:
		cr_assert_leq(block->requested_bytes, block->size_bytes,
			      "%s: a block is smaller than its request", where);
		sums->used_bytes += block->size_bytes;
		sums->requested_bytes += block->requested_bytes;
		sums->share_bytes[block->tag] += block->size_bytes;
		sums->n_live++;
		break;
	case BLOCK_PENDING:
		sums->pending_bytes += block->size_bytes;
		sums->n_pending++;
		break;
	case BLOCK_FREE:
		cr_assert(!block->next || block->next->state != BLOCK_FREE,
			  "%s: two free neighbours are not merged", where);
		sums->free_bytes += block->size_bytes;
		sums->n_free++;
		break;
	case BLOCK_HELD:
		cr_assert(block->is_exported && segment->is_exported,
			  "%s: a block is held that nobody else may reach", where);
		sums->held_bytes += block->size_bytes;
		sums->n_held++;
		break;
	case BLOCK_SPARE:
		cr_assert_fail("%s: a spare block lies in a segment", where);
	}
}

static void
add_segment(struct segment *segment, struct sums *sums, const char *where)
{
	const struct block *block, *prev = NULL;
	uint64_t at = segment->addr;

	for (block = segment->first; block; prev = block, block = block->next) {
		cr_assert_eq(block->addr, at, "%s: a gap or an overlap in a segment", where);
		cr_assert_eq(block->prev, prev, "%s: the way back is wrong", where);
		add_block(segment, block, sums, where);
		at += block->size_bytes;
	}
	cr_assert_eq(at, segment->addr + segment->size_bytes, "%s: blocks do not fill a segment",
		     where);
	cr_assert_eq(addr_map_find(&pool.map, segment->addr), segment, "%s: not in the map", where);
	cr_assert_eq(addr_map_find(&pool.map, at - 1), segment, "%s: not in the map", where);
	sums->total_bytes += segment->size_bytes;
	sums->n_segments++;
	sums->n_idle += segment_is_idle(segment);
}

static uint64_t
list_length(const struct list *head)
{
	uint64_t n = 0;

	for (const struct list *at = head->next; at != head; at = at->next)
		n++;
	return n;
}

/* Every pending block is in exactly one epoch, every free one in exactly one class of an index. */
static void
assert_lists_hold(const struct sums *sums, const char *where)
{
	uint64_t n_pending = 0, n_free = 0;
	struct epoch *epoch;
	size_t i;

	for (i = 0; i < 2; i++) {
		cr_assert_eq(list_length(&heap->open[i]->blocks), heap->open[i]->n_blocks,
			     "%s: an open epoch is miscounted", where);
		n_pending += heap->open[i]->n_blocks;
	}
	for (struct list *at = heap->sealed.next; at != &heap->sealed; at = at->next) {
		epoch = list_entry(at, struct epoch, link);
		cr_assert_eq(list_length(&epoch->blocks), epoch->n_blocks,
			     "%s: a sealed epoch is miscounted", where);
		cr_assert_eq(epoch->n_users, 0, "%s: an epoch is still in use", where);
		n_pending += epoch->n_blocks;
	}
	cr_assert_eq(n_pending, sums->n_pending, "%s: a pending block is in no epoch", where);

	for (i = 0; i < FREE_INDEX_N_CLASSES; i++)
		n_free += list_length(&heap->arena_free.classes[i]) +
			  list_length(&heap->whole_free.classes[i]);
	cr_assert_eq(n_free + heap->n_withheld, sums->n_free, "%s: a free block cannot be found",
		     where);
	cr_assert_eq(list_length(&heap->held), sums->n_held, "%s: a held block is lost", where);
	cr_assert_eq(list_length(&heap->idle), sums->n_idle, "%s: the idle list is wrong", where);
	cr_assert_eq(heap->n_in_transit, 0, "%s: something is in transit", where);
}

static void
assert_shares(const struct sums *sums, const char *where)
{
	uint64_t count = 0;

	for (size_t tag = 0; tag < STATS_N_TAGS; tag++) {
		const struct stats_share *share = &stats.shares[tag];

		cr_assert_eq(stats_read(&share->used_bytes), sums->share_bytes[tag],
			     "%s: tag %zu holds %llu bytes, not %llu", where, tag,
			     (unsigned long long)stats_read(&share->used_bytes),
			     (unsigned long long)sums->share_bytes[tag]);
		cr_assert_geq(stats_read(&share->peak_used_bytes), sums->share_bytes[tag],
			      "%s: tag %zu is above its peak", where, tag);
		count += stats_read(&share->count);
	}
	cr_assert_eq(count, stats_read(&stats.alloc_count), "%s: a request has no tag", where);
}

static void
assert_figures(const struct sums *sums, const char *where)
{
#define SAME(figure, sum) \
	cr_assert_eq(stats_read(&stats.figure), sum, "%s: " #figure " is %llu, not %llu", where, \
		     (unsigned long long)stats_read(&stats.figure), (unsigned long long)(sum))
	SAME(used_bytes, sums->used_bytes);
	SAME(requested_bytes, sums->requested_bytes);
	SAME(pending_bytes, sums->pending_bytes);
	SAME(total_bytes, sums->total_bytes);
	SAME(n_used_blocks, sums->n_live);
	SAME(n_free_blocks, sums->n_free + sums->n_pending);
	SAME(n_segments, sums->n_segments);
	SAME(alloc_count, stats_read(&stats.free_count) + sums->n_live);
	SAME(driver_alloc_count, stats_read(&stats.driver_free_count) + sums->n_segments);
#undef SAME
	cr_assert_eq(sums->used_bytes + sums->pending_bytes + sums->free_bytes + sums->held_bytes,
		     sums->total_bytes, "%s: used + free is not total", where);
	cr_assert_eq(fake_backend_held_bytes(&fake), sums->total_bytes,
		     "%s: the backend holds another amount", where);
	cr_assert_eq(fake_backend_n_mappings(&fake), sums->n_segments,
		     "%s: the backend holds other mappings", where);
}

void
assert_heap_is_sound(const char *where)
{
	struct heap_snapshot snapshot;
	struct sums sums = {0};

	for (struct list *at = heap->segments.next; at != &heap->segments; at = at->next)
		add_segment(list_entry(at, struct segment, link), &sums, where);
	assert_lists_hold(&sums, where);
	assert_figures(&sums, where);
	assert_shares(&sums, where);

	heap_snapshot(heap, &snapshot);
	cr_assert_eq(memcmp(&snapshot.frag, &snapshot.frag_recomputed, sizeof(snapshot.frag)), 0,
		     "%s: the running entropy is not the recomputed one", where);
	cr_assert_eq(snapshot.frag.partial_bytes + snapshot.frag.whole_bytes, sums.free_bytes,
		     "%s: the entropy counts other extents than there are", where);
}
