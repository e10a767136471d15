/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * The order relation of the happens-before checker, as vector clocks.
 *
 * A slot is a line of operations in order: a stream, a branch of a graph launched in a stream, an
 * agent. Each operation has a slot and a tick in it; a clock says for each slot up to which tick
 * it is after. An operation is after another exactly when its clock reaches the other's tick.
 *
 * Nothing here runs while the checker is off: the callers ask sim.check first, except where
 * only clocks that were never filled are joined or freed.
 *
 * Locking: sim.lock, as everywhere in the device.
 */

#include <stdbool.h>
#include <stdint.h>

struct CUctx_st;
struct CUgraph_st;
struct CUstream_st;
struct op;

/* All zero: after nothing. */
struct clock {
	unsigned n;
	uint64_t *ticks; /* n of them; the slots behind have 0 */
};

struct stream_order {
	bool has_slot;
	bool is_after_kernel; /* the newest operation is a kernel */
	unsigned slot;
	unsigned n_branches;
	unsigned *branches;   /* slots of the branches of graphs */
	struct clock all;     /* what is after everything submitted so far is after this */
	struct clock earlier; /* what the newest operation is after */
};

struct context_order {
	struct clock gone;          /* what streams of it held that are no more */
	struct clock gone_blocking; /* of a root: those that the legacy stream waits for */
	struct clock foreign;       /* of a root: operations of others that touch its memory */
};

/* Of a node, for the launch that goes on. */
struct node_order {
	unsigned slot;
	bool is_continued; /* a later node has taken the slot over */
	struct clock earlier, after;
};

uint64_t clock_tick(const struct clock *clock, unsigned slot);
void clock_join(struct clock *into, const struct clock *from);
void clock_copy(struct clock *into, const struct clock *from);
void clock_set(struct clock *clock, unsigned slot, uint64_t tick);
void clock_fini(struct clock *clock);

/* What the host has been shown to be complete. */
const struct clock *order_host(void);
void order_show(const struct clock *clock);
void order_show_tick(unsigned slot, uint64_t tick);

unsigned order_slot_new(void);
uint64_t order_tick(unsigned slot);

/* An operation goes into its stream. */
void order_submit(struct op *op);

/* What a wait for the stream, or for the context (owner: only this green one), waits for. */
void order_of_stream(const struct CUstream_st *s, struct clock *ret_clock);
void order_of_context(const struct CUctx_st *root, const struct CUctx_st *owner,
		      struct clock *ret_clock);

void order_end_stream(struct CUstream_st *s);

/* Operations with a node that are submitted in between are one launch of their graph. */
void order_begin_launch(struct CUstream_st *s, struct CUgraph_st *graph,
			const struct clock *last_launch);
void order_end_launch(struct CUstream_st *s, struct clock *ret_launch);
