/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * Which streams of a context have unfinished work.
 *
 * The promise that this serves: a block is handed out only when all work submitted before its free
 * is ordered before every access that the new owner can cause, as if the free had waited; and
 * nobody waits, or hangs, where natively nobody would.
 *
 * A stream is in the set from its first submission until a turn has shown that what it had is
 * complete. A turn begins an empty set; every stream's next submission enters it (the submitter
 * compares, and finds that there was a turn); who was submitting as the turn began is looked for
 * and entered; and a fence recorded after all that, the drain, covers what the set before held.
 * Until the drain is complete both sets count. So a set is never too small.
 *
 * While one stream S alone has unfinished work, whatever is submitted to S comes after it: a freed
 * block may be handed out at once, under the fence of its epoch, its edge. Any other stream waits
 * for the newest edge of such a block before its first submission from then on; S itself need not.
 * An edge is recorded before anything is submitted after the free, so it covers no more than what
 * the program's free would have waited for.
 *
 * Pure bookkeeping: no driver call, no lock of its own (the heap's).
 */
#include <stdbool.h>
#include <stdint.h>

struct epoch;

/* A stream as the order tells it from others. word: opaque, 0 is none; thread: thread_self() of the
 * thread whose own stream it is, else 0. */
struct order_stream {
	uintptr_t word;
	uint32_t thread;
};

enum order_mode {
	ORDER_IDLE,    /* nothing is unfinished: what is freed is complete */
	ORDER_ONE,     /* one stream alone */
	ORDER_SEVERAL, /* several, or not known */
};

struct order_set {
	enum order_mode mode;
	struct order_stream only; /* ORDER_ONE */
};

enum { ORDER_N_WAITED = 8 };

struct stream_order {
	bool is_on;              /* early reuse is wanted, and submissions are told of */
	bool is_stopped;         /* there are submissions that nobody tells of */
	bool is_shared;          /* others than the context's streams may touch its memory now */
	bool is_turning;         /* a turn is under way */
	struct order_set now;    /* who submitted since the last turn */
	struct order_set before; /* who had before it, until the drain is complete */
	struct epoch *drain;

	/* The newest epoch of a block that was handed out early, until it is complete; the stream
	 * that is behind it without a wait; others that have waited. */
	struct epoch *edge;
	uint64_t edge_id;
	struct order_stream edge_stream;
	uint64_t passed_id; /* epochs up to this one are complete */
	struct order_stream waited[ORDER_N_WAITED];
	unsigned n_waited;

	/* Submissions that can wait for others. While one has begun and not ended, no fence is
	 * known to cover it; those below n_passed are complete. */
	uint64_t n_blockers, n_ended_blockers, n_passed;
	/* Work of other contexts on this one's memory, in the same way. */
	uint64_t n_foreign, n_ended_foreign, n_passed_foreign;
	uint32_t n_ghosts; /* streams that were destroyed while they counted */

	/* Early hand-outs and waits so far; how many there were when a dependent launch was last
	 * made a plain one, and in which stream. */
	uint64_t n_orderings, n_ordered;
	struct order_stream ordered_stream;

	uint64_t progress_ns;   /* when an epoch was last found complete, or the first one sealed */
	uint64_t turn_ns;       /* when the last turn began */
	uint64_t turn_wait_ns;  /* how long after it the next one may begin */
	uint64_t n_submissions; /* so many are complete, as the backend counts them */
};

static inline bool
order_same(struct order_stream a, struct order_stream b)
{
	return a.word == b.word && a.thread == b.thread;
}

/* What is known of a context that nobody watched until now. */
void order_init(struct stream_order *order, bool is_on);

/* Is there unfinished work of other contexts on the memory? */
static inline bool
order_has_foreign(const struct stream_order *order)
{
	return order->n_foreign != order->n_passed_foreign;
}

/* Who has unfinished work, over both sets. */
enum order_mode order_mode(const struct stream_order *order, struct order_stream *ret_only);

/* A stream submits. True: with it the context has gone from one stream to several. */
bool order_join(struct stream_order *order, struct order_stream stream);

/* Somebody submits, to nobody knows which stream. */
void order_join_unknown(struct stream_order *order);

/* The stream is destroyed; what it had may be unfinished, and its word may soon mean another. */
void order_forget(struct stream_order *order, struct order_stream stream);

/* The same for all streams there are. */
void order_forget_all(struct stream_order *order);

/*
 * A turn: the caller begins it, then lets others see that it did, enters whoever was submitting
 * then, and records the drain. Ends with it, or with NULL: it could not be recorded, and all is as
 * if the turn had never been.
 */
bool order_may_turn(const struct stream_order *order, uint64_t now_ns);
void order_begin_turn(struct stream_order *order, uint64_t now_ns);
void order_end_turn(struct stream_order *order, struct epoch *drain);

/* The epoch is complete, all up to passed_id, and all that was counted before its fence was
 * recorded. */
void order_complete(struct stream_order *order, const struct epoch *epoch, uint64_t passed_id,
		    uint64_t n_blockers, uint64_t n_submissions, uint64_t now_ns);

/* A block of the epoch is handed out early. id: in the order of their fences. */
void order_add_edge(struct stream_order *order, struct epoch *epoch, uint64_t id,
		    struct order_stream only);

/* Submissions that can wait for others and that a fence recorded from now on covers. */
uint64_t order_n_coverable_blockers(const struct stream_order *order);
uint64_t order_n_coverable_foreign(const struct stream_order *order);

/* Must the stream wait for order->edge before it submits? */
bool order_must_wait(const struct stream_order *order, struct order_stream stream);
void order_note_wait(struct stream_order *order, struct order_stream stream);

/* See heap_must_not_overlap(). */
bool order_ends_overlap(struct stream_order *order, struct order_stream stream);
