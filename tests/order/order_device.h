/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * A device for order_pool.c: streams are queues of operations that take simulated time, and every
 * operation knows by a vector clock which others come before it.
 *
 * A lane is one life of a stream: a destroyed stream's lane goes on until its work is done, while
 * the stream's handle names another lane. Order is what somebody made: the stream's own, events,
 * edges, and what the host has waited for or was told is complete. That an operation happens to be
 * done already is no order.
 *
 * One thread. Clocks count a lane's operations from 1; units: nanoseconds.
 */
#include <stdbool.h>
#include <stdint.h>

#include "pool/backend.h"

enum { N_LANES = 16, N_SLOTS = 8, N_QUEUED_MAX = 64, N_SEGMENTS_MAX = 4096 };

struct order_clock {
	uint64_t at[N_LANES];
};

enum op_kind {
	OP_WORK,
	OP_WAIT,    /* for a clock */
	OP_SPIN,    /* for the flag that a later operation of the same thread's program sets */
	OP_FLAG,    /* sets it */
	OP_BLOCKER, /* for another thread of the program */
};

struct op {
	enum op_kind kind;
	uint64_t number; /* of the spin, flag or blocker */
	struct order_clock wait;
};

struct lane {
	bool is_used;
	uint64_t n_submitted, n_done;
	struct order_clock clock; /* before what is submitted next */
	struct op ops[N_QUEUED_MAX];
};

/* Memory that the pool has. */
struct device_segment {
	uint64_t addr, size_bytes;
};

/* What the backend's calls were asked for; order_pool.c counts by the differences. */
struct device_counts {
	uint64_t n_sealed, n_busy, n_edges, n_looks, n_freed, n_mapped;
};

struct device {
	struct backend backend; /* first */
	struct lane lanes[N_LANES];
	unsigned slots[N_SLOTS];  /* handle to lane */
	struct order_clock host;  /* what the program or the pool knows to be done */
	struct order_clock asked; /* what the pool knows: fences that were found complete */
	struct device_segment segments[N_SEGMENTS_MAX];
	unsigned n_segments;
	uint64_t next_addr, now_ns;
	uint64_t n_spins, n_flags, n_blockers, n_released; /* begun, and ended */
	uint64_t n_flags_pushed, spin_at; /* the spin that waits for its flag to be pushed */
	unsigned spin_lane;
	int captures; /* the slot that captures, or -1 */
	uint64_t n_ended, n_under_way;
	struct order_stream announced[2]; /* by thread; word 0: none */
	_Atomic uint64_t attention;
	/* One count over announcements and frees: which came first. */
	uint64_t tick;
	uint64_t newest_begun;   /* of what was submitted so far, by announcement */
	uint64_t last_free_tick; /* of all */
	uint64_t asked_tick;     /* of those before a fence that was found complete */
	uint64_t early_tick;     /* of what was handed out early: the newest free */
	bool stands_still;       /* while the host waits */
	unsigned n_stuck;        /* pauses in a row that nothing happened in */
	struct device_counts counts;
};

extern struct device device;
extern uint64_t random_state;

/* Less than n. */
uint64_t random_below(uint64_t n);

/* Prints why and ends the program. */
void fail(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));

/* Order_pool.c's: may the pool give the segment back? */
void check_unmap(uint64_t addr, uint64_t size_bytes);

void device_init(void);

void clock_join(struct order_clock *to, const struct order_clock *from);
/* The first lane in which what was to come before does not; -1: none. */
int clock_missing(const struct order_clock *before, const struct order_clock *clock);
void device_submitted(struct order_clock *ret_clock);

struct order_stream slot_stream(unsigned slot);
const struct stream_handle *slot_handle(unsigned slot);
bool lane_is_full(const struct lane *lane);
/* begun: the tick of the announcement. */
void lane_push(struct lane *lane, const struct op *op, uint64_t begun);

/* Let one lane do its next operation, if it can. */
bool device_step(unsigned lane);
void device_run(unsigned n_steps);
/* Everything that the clock counts is done, however long that takes; natively it ends. */
void device_wait(const struct order_clock *clock);
/* Is there work that ends only when the program's own thread goes on? */
bool device_spins(void);
/* May a program wait for the device, natively? */
bool device_may_wait(void);
/* A free number for a new life of a stream, or -1. */
int device_find_lane(void);
struct device_segment *device_segment_at(uint64_t addr);
