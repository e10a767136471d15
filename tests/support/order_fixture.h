/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * One heap whose memory may be handed out early, on the fake backend, and two streams that submit.
 *
 * Each test is a process of its own, so the state is static.
 */
#include "pool/heap_internal.h"
#include "tests/support/heap_fixture.h"

/* With a segment of its own: whether the freed one is handed out is plainly seen. */
#define SIZE (4 * MIB)

static const struct order_stream S = {8, 0}, T = {16, 0};
static _Atomic uint64_t attention;

/* What a backend gets to see of a stream. */
static const struct stream_handle *const handle = (const struct stream_handle *)&S;

static inline void
submit(struct order_stream stream)
{
	heap_before_submission(heap, stream, handle, false);
	fake_backend_submit(&fake);
}

/* A heap whose streams are known: none has unfinished work. */
static inline void
order_fixture_setup(void)
{
	heap_fixture_setup_early(&attention);
	heap_turn(heap);
	fake_backend_complete_all(&fake);
	heap_settle(heap);
}

static inline bool
is_handed_out(size_t size_bytes, uint64_t *ret_addr)
{
	return heap_take(heap, size_bytes, 0, ret_addr) == HEAP_OK;
}

static inline uint64_t
n_early(void)
{
	return stats_read(&stats.early_count);
}

/* Take a block while one stream alone has unfinished work, and free it. */
static inline uint64_t
free_under(struct order_stream stream)
{
	const uint64_t addr = take_or_grow(SIZE);

	submit(stream);
	give(addr);
	return addr;
}
