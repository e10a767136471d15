/* SPDX-License-Identifier: MIT */
#include "policy/exhaust.h"

/* Growing is the alternative. */
#define TIGHT_WAIT_BOUND_NS UINT64_C(10000000)
#define RUN_AHEAD_WAIT_BOUND_NS UINT64_C(10000000)
#define RUN_AHEAD_N_FENCES 8 /* a wait for one of them leaves the others under way */

/* One request on its way down the ladder. */
struct request {
	struct heap *heap;
	struct account *account;
	const struct exhaust_peers *peers;
	const struct order_stream *stream; /* NULL: for work in whatever order */
	size_t requested_bytes;
	unsigned tag;
	uint64_t n_released; /* times that the request took back a reservation of its own */
	uint64_t addr;
};

static struct stats *
stats_of(const struct request *request)
{
	return heap_stats(request->heap);
}

/* From what a heap step answers to what the caller of this module gets. */
static int
from_heap(int r)
{
	if (r <= 0)
		return r;
	return r == HEAP_E_NO_MEMORY ? EXHAUST_E_NO_MEMORY : EXHAUST_PASS;
}

/* HEAP_OK or HEAP_E_MISS; what a closed heap or an impossible size answers was seen by the first
 * take. */
static int
take(struct request *request)
{
	if (request->stream)
		return heap_take_in(request->heap, *request->stream, request->requested_bytes,
				    request->tag, &request->addr);
	return heap_take(request->heap, request->requested_bytes, request->tag, &request->addr);
}

/*
 * The bytes are reserved before the backend is asked, so two threads never pass the limit together.
 */
static int
grow(struct request *request, size_t segment_bytes)
{
	int r = HEAP_E_NO_MEMORY;

	/* Whoever finds the limit reached by a reservation that comes to nothing can wait for its
	 * end. */
	heap_begin_transit(request->heap);
	if (limit_reserve(request->account, segment_bytes) == LIMIT_OK) {
		r = heap_grow(request->heap, request->requested_bytes, segment_bytes, request->tag,
			      &request->addr);
		if (r != HEAP_OK) {
			limit_release(request->account, segment_bytes);
			request->n_released++;
		}
	}
	heap_end_transit(request->heap);
	return from_heap(r);
}

static int
grow_any(struct request *request)
{
	const size_t usual_bytes = heap_segment_bytes(request->heap, request->requested_bytes);
	const size_t least_bytes = heap_segment_bytes_min(request->heap, request->requested_bytes);
	int r = grow(request, usual_bytes);

	if (r == EXHAUST_E_NO_MEMORY && least_bytes < usual_bytes)
		r = grow(request, least_bytes);
	return r;
}

/* Take, else grow. EXHAUST_E_NO_MEMORY: go on down the ladder. */
static int
take_or_grow(struct request *request)
{
	return take(request) == HEAP_OK ? EXHAUST_OK : grow_any(request);
}

static void
release(void *arg, size_t freed_bytes)
{
	limit_release(arg, freed_bytes);
}

size_t
exhaust_trim(struct heap *heap, struct account *account, size_t want_bytes, uint64_t bound_ns)
{
	size_t freed_bytes;

	heap_trim_told(heap, want_bytes, bound_ns, release, account, &freed_bytes);
	return freed_bytes;
}

size_t
exhaust_make_room(struct heap *heap, struct account *account, size_t want_bytes, uint64_t bound_ns)
{
	size_t freed_bytes = exhaust_trim(heap, account, want_bytes, 0);

	if (freed_bytes >= want_bytes)
		return freed_bytes;
	for (unsigned n = heap_n_epochs(heap);
	     n > 0 && heap_wait_briefly(heap, bound_ns) == HEAP_OK; n--)
		;
	return freed_bytes + exhaust_trim(heap, account, want_bytes - freed_bytes, bound_ns);
}

static int
trim_and_grow(struct request *request, size_t want_bytes, uint64_t bound_ns)
{
	exhaust_trim(request->heap, request->account, want_bytes, bound_ns);
	return take_or_grow(request);
}

/* Wait for one epoch after another until a block fits. EXHAUST_E_NO_MEMORY: what was freed before
 * is complete, or none is left to wait for. */
static int
wait_for_blocks(struct request *request, int (*wait)(struct heap *heap, uint64_t bound_ns),
		uint64_t bound_ns)
{
	unsigned n_left = heap_n_epochs(request->heap);
	int r;

	for (;;) {
		r = n_left > 0 ? wait(request->heap, bound_ns) : HEAP_E_MISS;
		if (r == HEAP_E_TIMEOUT)
			bound_ns = 0;
		n_left -= r == HEAP_OK;
		if (r < 0)
			return r;
		if (r == HEAP_E_MISS)
			return EXHAUST_E_NO_MEMORY;
		if (r == HEAP_E_CLOSED)
			return EXHAUST_PASS;
		if (take(request) == HEAP_OK)
			return EXHAUST_OK;
	}
}

static int
trim_peers_and_grow(struct request *request, uint64_t bound_ns)
{
	request->peers->trim(request->peers->arg, request->heap, SIZE_MAX, bound_ns);
	heap_release_held(request->heap);
	return trim_and_grow(request, SIZE_MAX, bound_ns);
}

/* Each step runs only if the one before left the request unserved. */
static int
climb_down(struct request *request, uint64_t bound_ns)
{
	const size_t want_bytes = heap_segment_bytes(request->heap, request->requested_bytes);
	int r = EXHAUST_E_NO_MEMORY;

	if (heap_await_transit(request->heap))
		r = take_or_grow(request);
	if (r == EXHAUST_E_NO_MEMORY)
		r = trim_and_grow(request, want_bytes, 0);
	if (r == EXHAUST_E_NO_MEMORY)
		r = wait_for_blocks(request, heap_wait, bound_ns);
	if (r == EXHAUST_E_NO_MEMORY)
		r = trim_and_grow(request, want_bytes, bound_ns);
	if (r == EXHAUST_E_NO_MEMORY)
		r = trim_peers_and_grow(request, bound_ns);
	return r;
}

/* What others did that may serve the request after all: bytes released, blocks freed. */
static uint64_t
count_moves(const struct request *request)
{
	return limit_n_released(request->account) - request->n_released +
	       stats_read(&stats_of(request)->free_count);
}

/*
 * While this thread was on its way down, others may have had in hand what it looked for: idle
 * memory on its way back, room reserved for nothing, a block freed behind it. So a request is
 * refused only after a way down on which nobody moved anything: then what is held is live. There is
 * an end for a request that can never be served among threads that never rest.
 */
static int
climb_down_while_others_move(struct request *request)
{
	enum { N_TIMES_MAX = 100 };
	int r = EXHAUST_E_NO_MEMORY;

	heap_press(request->heap);
	for (int n = 0; n < N_TIMES_MAX && r == EXHAUST_E_NO_MEMORY; n++) {
		const uint64_t n_before = count_moves(request);

		r = climb_down(request, n == 0 ? EXHAUST_WAIT_BOUND_NS : 0);
		if (!heap_await_transit(request->heap) && count_moves(request) == n_before)
			break;
	}
	return r;
}

/*
 * The device has memory, but not so much that the pool should take it: what is held is used first,
 * for as long as that takes little time. Growing is still possible, so nothing is waited for to the
 * end.
 */
static int
grow_when_tight(struct request *request)
{
	const size_t want_bytes = heap_segment_bytes(request->heap, request->requested_bytes);
	int r;

	heap_press(request->heap);
	r = wait_for_blocks(request, heap_wait_briefly, TIGHT_WAIT_BOUND_NS);

	if (r == EXHAUST_E_NO_MEMORY)
		r = trim_and_grow(request, want_bytes, TIGHT_WAIT_BOUND_NS);
	return r;
}

/* Would growing let more memory wait for its work than the program is allowed to run ahead by? What
 * is handed out early meanwhile does not wait. */
static bool
is_ahead(const struct request *request, size_t segment_bytes)
{
	const uint64_t pending_bytes = stats_read(&stats_of(request)->pending_bytes);

	return pending_bytes > 0 && request->peers->run_ahead_bytes > 0 &&
	       pending_bytes + segment_bytes > request->peers->run_ahead_bytes &&
	       !heap_is_early(request->heap);
}

static int
grow_at_first(struct request *request)
{
	const struct exhaust_peers *peers = request->peers;
	size_t segment_bytes;

	if (limit_get(request->account) != LIMIT_NONE) { /* it will be reached, as a rule */
		heap_press(request->heap);
		heap_set_exact(request->heap);
	} else if (stats_read(&stats_of(request)->total_bytes) > peers->most_bytes / 2) {
		/* What lies in split segments beside live blocks cannot go back: not too much. */
		heap_set_exact(request->heap);
	}
	segment_bytes = heap_segment_bytes(request->heap, request->requested_bytes);
	heap_set_seal_bytes(request->heap, peers->run_ahead_bytes / RUN_AHEAD_N_FENCES);
	if (is_ahead(request, segment_bytes)) {
		const int r = wait_for_blocks(request, heap_wait_briefly, RUN_AHEAD_WAIT_BOUND_NS);

		if (r != EXHAUST_E_NO_MEMORY)
			return r;
	}
	if (peers->is_tight && peers->is_tight(peers->arg, segment_bytes))
		return grow_when_tight(request);
	return grow(request, segment_bytes);
}

/* EXHAUST_OK, or the answer to a request that no waiting and giving back can serve. */
static int
check_size(const struct request *request)
{
	const size_t least_bytes = heap_segment_bytes_min(request->heap, request->requested_bytes);
	const uint64_t most_bytes = request->peers->most_bytes;

	if (most_bytes != 0 && least_bytes > most_bytes)
		return EXHAUST_PASS;
	return least_bytes > limit_get(request->account) ? EXHAUST_E_NO_MEMORY : EXHAUST_OK;
}

static int
finish(struct request *request, int r, uint64_t *ret_addr)
{
	if (r == EXHAUST_OK)
		*ret_addr = request->addr;
	else if (r == EXHAUST_E_NO_MEMORY)
		stats_count(&stats_of(request)->oom_count, 1);
	return r;
}

int
exhaust_alloc_in(struct heap *heap, struct account *account, const struct exhaust_peers *peers,
		 const struct order_stream *stream, size_t requested_bytes, unsigned tag,
		 uint64_t *ret_addr)
{
	struct request request = {
		.heap = heap,
		.account = account,
		.peers = peers,
		.stream = stream,
		.requested_bytes = requested_bytes,
		.tag = tag,
	};
	struct stats *stats = heap_stats(heap);
	int r = take(&request);

	if (r == HEAP_E_MISS) {
		r = heap_settle(heap);
		if (r < 0)
			return r;
		r = take(&request);
	}
	if (r == HEAP_OK) {
		stats_count(&stats->hit_count, 1);
		return finish(&request, EXHAUST_OK, ret_addr);
	}
	if (r != HEAP_E_MISS)
		return EXHAUST_PASS;

	r = check_size(&request);
	if (r == EXHAUST_PASS)
		return r;
	stats_count(&stats->miss_count, 1);
	if (r != EXHAUST_OK)
		return finish(&request, r, ret_addr);
	heap_turn(heap);
	r = grow_at_first(&request);
	if (r == EXHAUST_E_NO_MEMORY) {
		r = climb_down_while_others_move(&request);
		if (r == EXHAUST_OK)
			stats_count(&stats->oom_avoided_count, 1);
	}
	return finish(&request, r, ret_addr);
}

int
exhaust_alloc(struct heap *heap, struct account *account, const struct exhaust_peers *peers,
	      size_t requested_bytes, unsigned tag, uint64_t *ret_addr)
{
	return exhaust_alloc_in(heap, account, peers, NULL, requested_bytes, tag, ret_addr);
}

int
exhaust_count_alloc(struct heap *heap, struct account *account, size_t requested_bytes,
		    unsigned tag, uint64_t *ret_addr)
{
	struct request request = {
		.heap = heap,
		.account = account,
		.requested_bytes = requested_bytes,
		.tag = tag,
	};
	const size_t segment_bytes = heap_segment_bytes_min(heap, requested_bytes);

	if (segment_bytes == 0)
		return EXHAUST_PASS;
	stats_count(&heap_stats(heap)->miss_count, 1);
	return finish(&request, grow(&request, segment_bytes), ret_addr);
}
