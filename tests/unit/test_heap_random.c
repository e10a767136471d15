/* SPDX-License-Identifier: MIT */
/*
 * Random schedules against a model. The model is a shadow of the address space, one entry for each
 * unit: is it the program's, and which fence must be complete before it may be handed out again.
 * Every message names the seed; HEAP_SEED=n in the environment runs one seed more.
 */
#include "pool/heap.h"

#include <criterion/criterion.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/support/heap_fixture.h"
#include "tests/support/rows.h"

TestSuite(heap_random, .init = heap_fixture_setup, .fini = heap_fixture_teardown, .timeout = 120);

enum {
	UNIT_BYTES = 512,
	N_UNITS = 4 * FIXTURE_CAPACITY_MIB *
		  2048, /* ranges of other sizes are fresh: room for them */
	N_LIVE_MAX = 600,
	N_STEPS = 12000,
};

struct unit {
	bool is_live;
	uint64_t fence; /* the number that must be complete; 0: none */
};

struct live {
	uint64_t addr;
	size_t requested_bytes;
	bool is_whole; /* a segment of its own */
};

struct model {
	uint64_t seed, state, base;
	struct unit *units;
	struct live live[N_LIVE_MAX];
	size_t n_live;
	uint64_t used_bytes, requested_bytes;
	char where[64];
};

static struct model model;

/* xorshift64*: the same numbers everywhere. */
static uint64_t
next_random(void)
{
	model.state ^= model.state >> 12;
	model.state ^= model.state << 25;
	model.state ^= model.state >> 27;
	return model.state * UINT64_C(2685821657736338717);
}

static uint64_t
below(uint64_t n)
{
	return next_random() % n;
}

static bool
one_in(uint64_t n)
{
	return below(n) == 0;
}

/* Mostly small ones, some that share arenas at their upper end, some with segments of their own. */
static size_t
random_size(void)
{
	switch (below(10)) {
	case 0:
		return MIB - 2048 + below(4096);
	case 1:
		return 1 + below(MIB);
	case 2:
		return MIB + 1 + below(5 * MIB);
	default:
		return 1 + below((size_t)1 << (4 + below(13)));
	}
}

static struct unit *
units_of(uint64_t addr, size_t size_bytes)
{
	size_t first = (addr - model.base) / UNIT_BYTES;

	cr_assert_eq(addr % UNIT_BYTES, 0, "%s: an address inside a unit", model.where);
	cr_assert(addr >= model.base && first + size_bytes / UNIT_BYTES <= N_UNITS,
		  "%s: the shadow is too small for 0x%" PRIx64, model.where, addr);
	return &model.units[first];
}

static void
model_take(uint64_t addr, size_t requested_bytes)
{
	size_t size_bytes = heap_round(heap, requested_bytes);
	struct unit *unit = units_of(addr, size_bytes);
	size_t i;

	for (i = 0; i < size_bytes / UNIT_BYTES; i++) {
		cr_assert_not(unit[i].is_live, "%s: handed out twice", model.where);
		cr_assert_leq(unit[i].fence, fake_backend_n_complete(&fake),
			      "%s: handed out before fence %" PRIu64 " is complete", model.where,
			      unit[i].fence);
		unit[i] = (struct unit){.is_live = true};
	}
	model.live[model.n_live++] = (struct live){addr, requested_bytes, size_bytes > MIB};
	model.used_bytes += size_bytes;
	model.requested_bytes += requested_bytes;
}

static void
model_give(size_t i, uint64_t fence)
{
	size_t size_bytes = heap_round(heap, model.live[i].requested_bytes), n;
	struct unit *unit = units_of(model.live[i].addr, size_bytes);

	for (n = 0; n < size_bytes / UNIT_BYTES; n++)
		unit[n] = (struct unit){.fence = fence};
	model.used_bytes -= size_bytes;
	model.requested_bytes -= model.live[i].requested_bytes;
	model.live[i] = model.live[--model.n_live];
}

static void
step_take(void)
{
	size_t requested_bytes = random_size();
	unsigned tag = below(STATS_N_TAGS);
	uint64_t addr = 77;
	int r;

	if (model.n_live == N_LIVE_MAX)
		return;
	r = heap_take(heap, requested_bytes, tag, &addr);
	if (r == HEAP_E_MISS)
		r = heap_grow(heap, requested_bytes,
			      one_in(4) ? heap_segment_bytes_min(heap, requested_bytes)
					: heap_segment_bytes(heap, requested_bytes),
			      tag, &addr);
	if (r == HEAP_OK)
		model_take(addr, requested_bytes);
	else
		cr_assert_eq(addr, 77, "%s: a result was touched on %d", model.where, r);
	cr_assert(r == HEAP_OK || r == HEAP_E_NO_MEMORY || r == -700, "%s: take answers %d",
		  model.where, r);
}

static void
step_give(void)
{
	/* Looked at before the free, which may seal its epoch itself. */
	uint64_t fence = fake_backend_n_recorded(&fake) + 1;
	size_t i, freed_bytes = 0;
	bool is_wide = one_in(5);
	int r;

	if (model.n_live == 0)
		return;
	i = below(model.n_live);
	if (model.live[i].is_whole && one_in(4)) {
		r = give_back(model.live[i].addr, HEAP_DEVICE, &freed_bytes);
		cr_assert(r == HEAP_OK || r == -700, "%s: give_back answers %d", model.where, r);
		if (r == HEAP_OK)
			model_give(i, 0); /* the backend's free has waited */
		return;
	}
	if (one_in(6)) {
		r = heap_give(&pool, model.live[i].addr, HEAP_DEVICE, is_wide, true);
		cr_assert_eq(r, HEAP_OK, "%s: a live block was not freed", model.where);
		model_give(i, 0);
		return;
	}
	r = heap_give(&pool, model.live[i].addr, HEAP_DEVICE, is_wide, false);
	cr_assert_eq(r, HEAP_OK, "%s: a live block was not freed", model.where);
	model_give(i, fence);
}

/* Frees of what must not be freed: somewhere in a block, or in one that is not live. */
static void
step_wrong_give(void)
{
	struct block_info info;
	uint64_t addr;
	int r;

	if (model.n_live == 0)
		return;
	addr = model.live[below(model.n_live)].addr + 512 * below(4096) + below(2);
	r = pool_find(&pool, addr, &info);
	if (r == HEAP_OK && info.is_live && info.addr == addr)
		return;
	cr_assert_eq(heap_give(&pool, addr, HEAP_DEVICE, false, false),
		     r == HEAP_OK ? HEAP_E_INVALID : HEAP_E_NOT_OURS, "%s: a wrong free",
		     model.where);
}

static void
complete_one(struct fake_backend *which, void *arg)
{
	(void)arg;
	if (fake_backend_n_complete(which) < fake_backend_n_recorded(which))
		fake_backend_complete_upto(which, fake_backend_n_complete(which) + 1);
}

static void
step_order(void)
{
	size_t freed_bytes;
	uint64_t n_complete = fake_backend_n_complete(&fake);
	uint64_t n_recorded = fake_backend_n_recorded(&fake);
	int r = HEAP_OK;

	switch (below(8)) {
	case 0:
	case 1:
	case 2:
		r = heap_settle(heap);
		break;
	case 3:
	case 4:
		if (n_complete < n_recorded)
			fake_backend_complete_upto(&fake,
						   n_complete + below(n_recorded - n_complete + 1));
		break;
	case 5:
		r = heap_wait(heap, 1 + below(5000));
		cr_assert(r <= 0 || r == HEAP_E_MISS || r == HEAP_E_TIMEOUT, "%s: wait answers %d",
			  model.where, r);
		break;
	case 6:
		r = heap_trim(heap, 1 + below(32 * MIB), below(5000), &freed_bytes);
		break;
	case 7:
		fake_backend_set_busy(&fake, one_in(3));
		break;
	}
	cr_assert(r >= 0 || r == -700, "%s: a status that nobody gave: %d", model.where, r);
}

static void
step_failure(void)
{
	static const enum fake_op ops[] = {FAKE_OP_MAP, FAKE_OP_UNMAP, FAKE_OP_FENCE_RECORD,
					   FAKE_OP_FENCE_QUERY};
	enum fake_op op = ops[below(N_ROWS(ops))];
	int status = op == FAKE_OP_MAP && one_in(2) ? BACKEND_E_NO_MEMORY : -700;

	fake_backend_fail(&fake, op, 1 + below(3), 1 + below(2), status);
}

static void
step(void)
{
	uint64_t what = below(100);

	if (what < 45)
		step_take();
	else if (what < 83)
		step_give();
	else if (what < 85)
		step_wrong_give();
	else if (what < 98)
		step_order();
	else
		step_failure();
}

/* When all is freed and complete nothing may be left but whole free segments. */
static void
wind_down(void)
{
	struct heap_snapshot snapshot;
	size_t freed_bytes;
	enum fake_op op;

	for (op = 0; op < FAKE_OP_N; op++)
		fake_backend_fail(&fake, op, 0, 0, 0);
	fake_backend_set_busy(&fake, false);
	while (model.n_live) {
		cr_assert_eq(heap_give(&pool, model.live[0].addr, HEAP_DEVICE, false, false),
			     HEAP_OK, "%s: a live block was not freed", model.where);
		model_give(0, 0);
	}
	heap_settle(heap);
	fake_backend_complete_all(&fake);
	heap_settle(heap);
	assert_heap_is_sound(model.where);
	heap_snapshot(heap, &snapshot);
	cr_assert_eq(snapshot.frag.n_partial, 0, "%s: a segment is not whole again", model.where);
	cr_assert_eq(stats_read(&stats.used_bytes), 0, "%s: used bytes are left", model.where);

	fake_backend_set_completes_at_once(&fake, true);
	cr_assert_eq(heap_trim(heap, SIZE_MAX, 0, &freed_bytes), HEAP_OK);
	cr_assert_eq(fake_backend_n_mappings(&fake), 0, "%s: a segment stayed", model.where);
}

static void
run_seed(uint64_t seed)
{
	size_t i;

	model = (struct model){.seed = seed, .state = seed * 0x9e3779b97f4a7c15 + 1};
	model.units = calloc(N_UNITS, sizeof(*model.units));
	cr_assert_not_null(model.units, "no memory for the shadow");
	model.base = UINT64_C(0x700000000000);
	fake_backend_set_pause(&fake, 300, complete_one, NULL);

	for (i = 0; i < N_STEPS; i++) {
		snprintf(model.where, sizeof(model.where), "HEAP_SEED=%" PRIu64 ", step %zu", seed,
			 i);
		step();
		cr_assert_eq(stats_read(&stats.used_bytes), model.used_bytes, "%s: used bytes",
			     model.where);
		cr_assert_eq(stats_read(&stats.requested_bytes), model.requested_bytes,
			     "%s: requested bytes", model.where);
		if (i % 8 == 0)
			assert_heap_is_sound(model.where);
	}
	wind_down();
	free(model.units);
}

static const uint64_t seeds[] = {1, 2, 3, 4, 5, 6, 7, 8};

TEST_ROWS(heap_random, no_schedule_breaks_the_promise, seeds)
{
	run_seed(seeds[*row]);
}

Test(heap_random, the_seed_from_the_environment_breaks_nothing)
{
	const char *seed = getenv("HEAP_SEED");

	if (seed)
		run_seed(strtoull(seed, NULL, 0));
}
