/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * Serving one request, from the cheapest way to the last resort, under the limit.
 *
 * Steps: a complete block - one whose work comes before whatever can be submitted (early) - fences
 * that have completed - waiting a moment for the oldest fence, if more is pending than the
 * run-ahead
 * - growth inside the limit (if the device becomes tight: after waiting and giving back) - and,
 * once the limit or the device refuses: memory in transit in other threads - a segment of the bare
 * size - idle segments back, if the context is idle - waiting for the oldest fence, again and again
 * - idle segments of this heap back - those of the device's other heaps - what is held for
 * importers - the driver once more. The heap is searched again after every step that may have freed
 * something.
 *
 * A request that fits its limit without the pool fits with it: large requests only ever take a
 * segment of their exact size, small ones fall back to segments of theirs, and everything idle goes
 * back before a request is refused.
 *
 * Locking: none of its own; any thread.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "policy/limits.h"
#include "pool/heap.h"

enum {
	EXHAUST_OK = 0,
	EXHAUST_E_NO_MEMORY, /* the limit or the device: the request is refused */
	EXHAUST_PASS,        /* not the pool's to serve: the driver answers */
};

/* What exhaustion needs to know of the device beyond its one heap. */
struct exhaust_peers {
	/* Give idle segments of heaps other than except back until want_bytes are freed; release
	 * them in their account. */
	void (*trim)(void *arg, struct heap *except, size_t want_bytes, uint64_t bound_ns);

	/*
	 * Would growing by so much leave the driver short of what it needs beside the pool (code,
	 * local memory, other users)? Then held memory is waited for and given back first.
	 * NULL: never.
	 */
	bool (*is_tight)(void *arg, size_t grow_bytes);
	void *arg;

	/*
	 * All that an empty device has: a larger request is the driver's to refuse. 0: not known.
	 */
	uint64_t most_bytes;

	/* How much freed memory may wait for its work before a request waits for it in place of
	 * growing. */
	uint64_t run_ahead_bytes;
};

/*
 * How long a wait for others' frees may take when the alternative is to refuse the request. Long,
 * since natively the free itself would have waited and the program knows the memory as free;
 * bounded, since the work may wait for this thread. Spent once for a request: after one time-out
 * the others are only asked.
 */
#define EXHAUST_WAIT_BOUND_NS UINT64_C(10000000000)

/* EXHAUST_OK, a condition above, or a negative status of the backend, passed through unchanged and
 * never retried. tag: heap_take()'s. */
int exhaust_alloc(struct heap *heap, struct account *account, const struct exhaust_peers *peers,
		  size_t requested_bytes, unsigned tag, uint64_t *ret_addr);

/* The same for work in the order of a stream alone: heap_take_in(). */
int exhaust_alloc_in(struct heap *heap, struct account *account, const struct exhaust_peers *peers,
		     const struct order_stream *stream, size_t requested_bytes, unsigned tag,
		     uint64_t *ret_addr);

/* Only count: one segment for the request. The same answers. */
int exhaust_count_alloc(struct heap *heap, struct account *account, size_t requested_bytes,
			unsigned tag, uint64_t *ret_addr);

/* Give idle segments back and release them in the account. Answers the bytes. */
size_t exhaust_trim(struct heap *heap, struct account *account, size_t want_bytes,
		    uint64_t bound_ns);

/*
 * Give segments back until want_bytes are freed, and release them in the account: first what is
 * idle, if the context is too, then what pending blocks leave when their fences are complete.
 * Answers the bytes.
 */
size_t exhaust_make_room(struct heap *heap, struct account *account, size_t want_bytes,
			 uint64_t bound_ns);
