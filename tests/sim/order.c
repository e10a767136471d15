/* SPDX-License-Identifier: MIT */
#include "tests/sim/order.h"
#include "tests/sim/races.h"
#include "tests/sim/sim_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/*
 * The clocks of streams, records, contexts and the host, and how an operation gets its own. What
 * is joined here is what exec.c makes an operation wait for, plus what the documentation promises
 * and exec.c has no need of: launches of one executable graph are in order.
 *
 * A kernel with programmatic launch is after what the kernel before it is after, not after that
 * kernel. Whatever is after the newer of the two is after both, so that a slot's ticks still say
 * all: a clock that reaches one reaches those below it.
 */

static struct clock host;
static struct clock newest; /* the tick of each slot's newest operation */
static bool *is_slot_free;
static unsigned n_slots;

/* The launch of a graph that goes on. */
static struct {
	bool is_open, is_slot_taken;
	unsigned n_branches;
	struct clock base, end;
} launch;

/* A checker that loses an entry would report what is not so. */
static void *
grow(void *p, size_t n_bytes)
{
	p = realloc(p, n_bytes);
	if (!p) {
		fprintf(stderr, "cusim: no memory for the happens-before checker\n");
		abort();
	}
	return p;
}

uint64_t
clock_tick(const struct clock *clock, unsigned slot)
{
	return slot < clock->n ? clock->ticks[slot] : 0;
}

static void
reach(struct clock *clock, unsigned n)
{
	if (clock->n >= n)
		return;
	clock->ticks = grow(clock->ticks, n * sizeof(clock->ticks[0]));
	memset(clock->ticks + clock->n, 0, (n - clock->n) * sizeof(clock->ticks[0]));
	clock->n = n;
}

void
clock_join(struct clock *into, const struct clock *from)
{
	reach(into, from->n);
	for (unsigned i = 0; i < from->n; i++) {
		if (into->ticks[i] < from->ticks[i])
			into->ticks[i] = from->ticks[i];
	}
}

void
clock_copy(struct clock *into, const struct clock *from)
{
	reach(into, from->n);
	if (from->n > 0)
		memcpy(into->ticks, from->ticks, from->n * sizeof(from->ticks[0]));
	if (into->n > from->n)
		memset(into->ticks + from->n, 0, (into->n - from->n) * sizeof(into->ticks[0]));
}

void
clock_set(struct clock *clock, unsigned slot, uint64_t tick)
{
	reach(clock, slot + 1);
	clock->ticks[slot] = tick;
}

void
clock_fini(struct clock *clock)
{
	free(clock->ticks);
	*clock = (struct clock){0};
}

const struct clock *
order_host(void)
{
	return &host;
}

void
order_show(const struct clock *clock)
{
	clock_join(&host, clock);
}

void
order_show_tick(unsigned slot, uint64_t tick)
{
	clock_set(&host, slot, tick);
}

/*
 * A slot whose stream is gone serves again once the host has been shown all of it: then the new
 * stream's work is after the old one's by itself.
 */
unsigned
order_slot_new(void)
{
	for (unsigned i = 0; i < n_slots; i++) {
		if (is_slot_free[i] && clock_tick(&host, i) >= clock_tick(&newest, i)) {
			is_slot_free[i] = false;
			return i;
		}
	}
	is_slot_free = grow(is_slot_free, (n_slots + 1) * sizeof(is_slot_free[0]));
	is_slot_free[n_slots] = false;
	return n_slots++;
}

uint64_t
order_tick(unsigned slot)
{
	uint64_t tick = clock_tick(&newest, slot) + 1;

	clock_set(&newest, slot, tick);
	return tick;
}

static unsigned
slot_of(struct stream_order *order)
{
	if (!order->has_slot) {
		order->slot = order_slot_new();
		order->has_slot = true;
	}
	return order->slot;
}

static unsigned
branch_slot(struct stream_order *order, unsigned i)
{
	while (order->n_branches <= i) {
		order->branches =
			grow(order->branches, (order->n_branches + 1) * sizeof(order->branches[0]));
		order->branches[order->n_branches++] = order_slot_new();
	}
	return order->branches[i];
}

/* The legacy stream and the blocking streams of its context wait for each other. */
static void
join_legacy(const struct CUstream_st *s, struct clock *clock)
{
	if (s->kind == STREAM_NON_BLOCKING)
		return;
	if (s->kind != STREAM_LEGACY) {
		clock_join(clock, &s->ctx->legacy->order.all);
		return;
	}
	for (const struct CUstream_st *t = s->ctx->streams; t; t = t->next) {
		if (t != s && t->kind != STREAM_NON_BLOCKING)
			clock_join(clock, &t->order.all);
	}
	clock_join(clock, &s->ctx->order.gone_blocking);
}

void
order_of_stream(const struct CUstream_st *s, struct clock *ret_clock)
{
	clock_copy(ret_clock, &s->order.all);
	if (s->kind == STREAM_LEGACY)
		join_legacy(s, ret_clock);
}

void
order_of_context(const struct CUctx_st *root, const struct CUctx_st *owner, struct clock *ret_clock)
{
	clock_copy(ret_clock, owner ? &owner->order.gone : &root->order.gone);
	for (const struct CUstream_st *s = root->streams; s; s = s->next) {
		if (!owner || s->owner == owner)
			clock_join(ret_clock, &s->order.all);
	}
	clock_join(ret_clock, &root->order.foreign);
}

void
order_end_stream(struct CUstream_st *s)
{
	struct stream_order *order = &s->order;

	if (!order->has_slot && order->all.n == 0)
		return;
	clock_join(&s->ctx->order.gone, &order->all);
	if (s->owner != s->ctx)
		clock_join(&s->owner->order.gone, &order->all);
	if (s->kind != STREAM_NON_BLOCKING)
		clock_join(&s->ctx->order.gone_blocking, &order->all);
	if (order->has_slot)
		is_slot_free[order->slot] = true;
	for (unsigned i = 0; i < order->n_branches; i++)
		is_slot_free[order->branches[i]] = true;
	free(order->branches);
	clock_fini(&order->all);
	clock_fini(&order->earlier);
}

/* The first node without a slot to continue takes the stream's own, the others branches. */
static unsigned
node_slot(struct stream_order *order, const struct CUgraphNode_st *node)
{
	for (unsigned i = 0; i < node->deps.n; i++) {
		struct node_order *dep = &node->deps.nodes[i]->order;

		if (!dep->is_continued) {
			dep->is_continued = true;
			return dep->slot;
		}
	}
	if (!launch.is_slot_taken) {
		launch.is_slot_taken = true;
		return slot_of(order);
	}
	return branch_slot(order, launch.n_branches++);
}

static bool
is_programmatic_edge(const struct op *op, const struct CUgraphNode_st *node)
{
	return op->is_programmatic && node->deps.n == 1 &&
	       node->deps.nodes[0]->op->kind == CUSIM_OP_KERNEL;
}

static unsigned
begin_node(const struct op *op, struct clock *ret_clock)
{
	const struct CUgraphNode_st *node = op->node;
	bool is_programmatic = is_programmatic_edge(op, node);

	clock_copy(ret_clock, &launch.base);
	for (unsigned i = 0; i < node->deps.n; i++) {
		const struct node_order *dep = &node->deps.nodes[i]->order;

		clock_join(ret_clock, is_programmatic ? &dep->earlier : &dep->after);
	}
	return node_slot(&op->stream->order, node);
}

static unsigned
begin_plain(const struct op *op, struct clock *ret_clock)
{
	struct stream_order *order = &op->stream->order;

	clock_copy(ret_clock,
		   op->is_programmatic && order->is_after_kernel ? &order->earlier : &order->all);
	clock_join(ret_clock, &host);
	join_legacy(op->stream, ret_clock);
	return slot_of(order);
}

/* Returns what is after everything up to this operation. */
static const struct clock *
end_plain(struct op *op, const struct clock *earlier, unsigned slot, uint64_t tick)
{
	struct stream_order *order = &op->stream->order;

	clock_copy(&order->earlier, earlier);
	clock_join(&order->all, earlier);
	clock_set(&order->all, slot, tick);
	order->is_after_kernel = op->kind == CUSIM_OP_KERNEL;
	return &order->all;
}

static const struct clock *
end_node(struct op *op, const struct clock *earlier, unsigned slot, uint64_t tick)
{
	struct node_order *order = &op->node->order;

	clock_copy(&order->earlier, earlier);
	clock_copy(&order->after, earlier);
	for (unsigned i = 0; i < op->node->deps.n; i++)
		clock_join(&order->after, &op->node->deps.nodes[i]->order.after);
	clock_set(&order->after, slot, tick);
	order->slot = slot;
	clock_join(&launch.end, &order->after);
	return &order->after;
}

void
order_submit(struct op *op)
{
	static struct clock earlier;
	const bool is_node = launch.is_open && op->node;
	unsigned slot = is_node ? begin_node(op, &earlier) : begin_plain(op, &earlier);
	const struct clock *after;
	uint64_t tick;

	if (op->waited)
		clock_join(&earlier, &op->waited->clock);
	tick = order_tick(slot);
	races_submit(op, &earlier, slot, tick);
	after = is_node ? end_node(op, &earlier, slot, tick) : end_plain(op, &earlier, slot, tick);
	if (op->made)
		clock_copy(&op->made->clock, after);
	if (op->foreign)
		clock_join(&op->foreign->order.foreign, after);
	if (op->kind == CUSIM_OP_HOST_FUNC)
		clock_copy(&op->clock, &earlier);
	else if (op->event)
		clock_copy(&op->clock, after);
	op->slot = slot;
	op->tick = tick;
}

void
order_begin_launch(struct CUstream_st *s, struct CUgraph_st *graph, const struct clock *last_launch)
{
	launch.is_open = true;
	launch.is_slot_taken = false;
	launch.n_branches = 0;
	clock_copy(&launch.base, &s->order.all);
	clock_join(&launch.base, &host);
	clock_join(&launch.base, last_launch);
	join_legacy(s, &launch.base);
	clock_copy(&launch.end, &launch.base);
	for (struct CUgraphNode_st *node = graph->first; node; node = node->next)
		node->order.is_continued = false;
}

void
order_end_launch(struct CUstream_st *s, struct clock *ret_launch)
{
	if (!launch.is_open)
		return;
	launch.is_open = false;
	clock_join(&s->order.all, &launch.end);
	s->order.is_after_kernel = false;
	clock_copy(ret_launch, &s->order.all);
}
