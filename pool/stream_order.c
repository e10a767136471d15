/* SPDX-License-Identifier: MIT */
#include "pool/stream_order.h"

#include <assert.h>
#include <stddef.h>

/*
 * A turn costs every thread its next submission's fast path. A program of several streams goes back
 * to several at once, so turns become rare then; one that went on to another phase is found out
 * soon enough.
 */
#define TURN_WAIT_MIN_NS UINT64_C(1000000)
#define TURN_WAIT_MAX_NS UINT64_C(64000000)

void
order_init(struct stream_order *order, bool is_on)
{
	*order = (struct stream_order){
		.is_on = is_on,
		.now.mode = ORDER_SEVERAL,
		.turn_wait_ns = 0,
	};
}

static void
join_set(struct order_set *set, struct order_stream stream)
{
	if (set->mode == ORDER_IDLE)
		*set = (struct order_set){ORDER_ONE, stream};
	else if (set->mode == ORDER_ONE && !order_same(set->only, stream))
		set->mode = ORDER_SEVERAL;
}

static void
join_sets(struct order_set *to, const struct order_set *from)
{
	if (from->mode == ORDER_SEVERAL)
		to->mode = ORDER_SEVERAL;
	else if (from->mode == ORDER_ONE)
		join_set(to, from->only);
}

enum order_mode
order_mode(const struct stream_order *order, struct order_stream *ret_only)
{
	struct order_set both = order->now;

	if (order->is_turning || order->is_stopped || order->is_shared || order_has_foreign(order))
		return ORDER_SEVERAL;
	join_sets(&both, &order->before);
	*ret_only = both.only;
	return both.mode;
}

bool
order_join(struct stream_order *order, struct order_stream stream)
{
	struct order_stream only;
	const enum order_mode mode = order_mode(order, &only);

	join_set(&order->now, stream);
	return mode == ORDER_ONE && order_mode(order, &only) == ORDER_SEVERAL;
}

void
order_join_unknown(struct stream_order *order)
{
	order->now.mode = ORDER_SEVERAL;
}

static void
make_ghost(struct order_stream *stream, struct order_stream gone, uint32_t serial)
{
	/* No thread's own stream has word 0. */
	if (order_same(*stream, gone))
		*stream = (struct order_stream){.word = 0, .thread = serial};
}

void
order_forget(struct stream_order *order, struct order_stream stream)
{
	order->n_ghosts++;
	make_ghost(&order->now.only, stream, order->n_ghosts);
	make_ghost(&order->before.only, stream, order->n_ghosts);
	make_ghost(&order->edge_stream, stream, order->n_ghosts);
	order->n_waited = 0;
}

void
order_forget_all(struct stream_order *order)
{
	order_forget(order, order->edge_stream);
	order_join_unknown(order);
}

bool
order_may_turn(const struct stream_order *order, uint64_t now_ns)
{
	return order->is_on && !order->is_stopped && !order->is_turning && !order->drain &&
	       now_ns - order->turn_ns >= order->turn_wait_ns;
}

void
order_begin_turn(struct stream_order *order, uint64_t now_ns)
{
	assert(!order->is_turning && !order->drain);
	order->is_turning = true;
	order->before = order->now;
	order->now = (struct order_set){.mode = ORDER_IDLE};
	order->turn_ns = now_ns;
}

void
order_end_turn(struct stream_order *order, struct epoch *drain)
{
	order->is_turning = false;
	order->drain = drain;
	if (!drain) {
		join_sets(&order->now, &order->before);
		order->before.mode = ORDER_IDLE;
	}
	/* Several right away: the next one is not worth it for some time. */
	if (order->now.mode != ORDER_SEVERAL)
		order->turn_wait_ns = TURN_WAIT_MIN_NS;
	else if (order->turn_wait_ns < TURN_WAIT_MAX_NS)
		order->turn_wait_ns =
			order->turn_wait_ns ? order->turn_wait_ns * 2 : TURN_WAIT_MIN_NS;
}

uint64_t
order_n_coverable_blockers(const struct stream_order *order)
{
	return order->n_ended_blockers >= order->n_blockers ? order->n_blockers : order->n_passed;
}

uint64_t
order_n_coverable_foreign(const struct stream_order *order)
{
	return order->n_ended_foreign >= order->n_foreign ? order->n_foreign
							  : order->n_passed_foreign;
}

void
order_complete(struct stream_order *order, const struct epoch *epoch, uint64_t passed_id,
	       uint64_t n_blockers, uint64_t n_submissions, uint64_t now_ns)
{
	if (passed_id > order->passed_id)
		order->passed_id = passed_id;
	if (n_blockers > order->n_passed)
		order->n_passed = n_blockers;
	if (n_submissions > order->n_submissions)
		order->n_submissions = n_submissions;
	order->progress_ns = now_ns;
	if (order->edge == epoch) {
		order->edge = NULL;
		order->n_waited = 0;
	}
	if (order->drain != epoch)
		return;
	order->drain = NULL;
	order->before.mode = ORDER_IDLE;
	if (order->now.mode == ORDER_SEVERAL && order->turn_wait_ns < TURN_WAIT_MAX_NS)
		order->turn_wait_ns *= 2;
}

void
order_add_edge(struct stream_order *order, struct epoch *epoch, uint64_t id,
	       struct order_stream only)
{
	order->n_orderings++;
	if (order->edge && order->edge_id >= id)
		return;
	order->edge_id = id;
	order->edge = epoch;
	order->edge_stream = only;
	order->n_waited = 0;
}

bool
order_must_wait(const struct stream_order *order, struct order_stream stream)
{
	if (!order->edge || order_same(stream, order->edge_stream))
		return false;
	for (unsigned i = 0; i < order->n_waited; i++)
		if (order_same(order->waited[i], stream))
			return false;
	return true;
}

/* Who finds no place here waits again, which is one call more and no longer wait. */
void
order_note_wait(struct stream_order *order, struct order_stream stream)
{
	order->n_orderings++;
	if (order->n_waited < ORDER_N_WAITED)
		order->waited[order->n_waited++] = stream;
}

bool
order_ends_overlap(struct stream_order *order, struct order_stream stream)
{
	if (order->n_ordered == order->n_orderings && order_same(order->ordered_stream, stream))
		return false;
	if (order->n_orderings == 0)
		return false;
	order->n_ordered = order->n_orderings;
	order->ordered_stream = stream;
	return true;
}
