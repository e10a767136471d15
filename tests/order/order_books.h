/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * The books of order_pool.c: who has which memory, who had it before, what that work was, and what
 * happened in which mode of the order.
 */
#include "policy/exhaust.h"
#include "pool/heap_internal.h"
#include "tests/order/order_device.h"

enum { N_LIVE_MAX = 128, N_PAST_MAX = 4096 };

/* What happened, and in which mode of the order it began. */
#define EVENTS(X) \
	X(TAKE_COMPLETE, "take complete") \
	X(TAKE_EARLY, "take early") \
	X(TAKE_EARLY_SEALED, "take early after seal") \
	X(MISS, "miss") \
	X(FREE, "free") \
	X(FREE_IDLE, "free idle") \
	X(SUBMIT_SAME, "submit same stream") \
	X(SUBMIT_OTHER, "submit other stream") \
	X(SUBMIT_EDGE, "submit with edge wait") \
	X(SYNC, "sync") \
	X(TURN, "turn begin") \
	X(DRAINED, "drain complete") \
	X(BLOCKER_BEGIN, "blocker begin") \
	X(BLOCKER_END, "blocker end") \
	X(CAPTURE, "capture") \
	X(EXPORT, "export") \
	X(DESTROY, "destroy") \
	X(SEAL_OK, "seal ok") \
	X(SEAL_BUSY, "seal busy") \
	X(SEAL_COVERED, "seal covered") \
	X(RETIRE, "retire") \
	X(MERGE, "merge")

enum event {
#define X(name, text) EVENT_##name,
	EVENTS(X)
#undef X
		N_EVENTS
};

struct owned {
	uint64_t addr, size_bytes, id;
	bool is_busy, is_exported;
	struct order_clock before; /* what earlier owners' frees came after */
	uint64_t owner[N_LANES];   /* whose that was */
	uint64_t owner_tick[N_LANES];
};

/* A block that was freed, until a fence has shown all before the free complete. */
struct past {
	uint64_t addr, size_bytes, id, tick;
	struct order_clock before;
};

/* Around each call of the heap: what it did. */
struct look {
	enum order_mode mode;
	struct device_counts counts;
	bool has_drain;
	uint64_t n_open, n_early, n_free;
};

extern struct pool pool;
extern struct heap *heap;
extern struct stats stats;

/* A new heap's. */
void books_begin(struct heap *new_heap);
void books_end(void);

struct look look_before(void);
void look_after(const struct look *before);
void count_event(const struct look *before, enum event event_number);
void print_figures(uint64_t n_switches);

/* Is all of the block's past before what has this clock? */
void check_order(const struct owned *block, const struct order_clock *clock, const char *what,
		 unsigned slot);

unsigned n_live_blocks(void);

/* NULL: there is none, or it is busy. */
struct owned *random_block(void);
struct owned *block_by_id(uint64_t id);

/* A blocker is being submitted. */
extern unsigned n_open_blockers;

void step_alloc(void);
void step_free(void);
void step_export(void);
void step_turn(void); /* when it has been long enough */
void step_settle(void);
/* Waits for what is pending, or gives idle memory back. */
void step_wait(void);
