/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * What the rows of cases.def share: a context in which nothing runs until a row steps it, blocks
 * that lie in holes of their own size, and what is seen when one of them is handed out again.
 *
 * A row submits and frees by hand, and answers with one of the functions at the end, which says
 * what happened; the table says what has to.
 */
#include "tests/preload/victim_sim.h"

enum { CASE_BYTES = 4 << 20 };

enum outcome {
	EARLY,       /* handed out at once, before the old work has run */
	COMPLETE,    /* not before the old work has run, and then again */
	WAITS,       /* the other stream waits, for the old work and for nothing later */
	NO_WAIT,     /* nothing was put in front of it */
	FREE_WAITS,  /* the free returned after the work had run */
	FREE_GOES,   /* the free returned before it */
	NOT_ORDERED, /* a launch stayed dependent: it may begin before its predecessor ends */
	ORDERED,     /* it was made a plain one */
	WRONG,       /* none of these */
};

#define CASE(rule, name, reuse, expected) enum outcome case_##name(void);
#include "tests/order/cases/cases.def"
#undef CASE

/* The row's context, current in this thread; streams that do not block, but for `blocking`. */
struct case_scene {
	CUcontext context;
	struct victim_kernels kernels;
	CUstream s, y, z, blocking;
	CUdeviceptr small;   /* 512 bytes that nobody frees */
	unsigned char *seen; /* pinned, 512 bytes */
	uint64_t mark;       /* newest operation before the other stream's */
	uint64_t old_seq;    /* the old work, that an edge has to cover */
	CUdeviceptr later;   /* what came after the free, in the same stream */
};

extern struct case_scene scene;

/* The row goes on, and fails. */
void case_fail(const char *file, int line, const char *what);

#define CHECK(condition) \
	do { \
		if (!(condition)) \
			case_fail(__FILE__, __LINE__, #condition); \
	} while (0)

/* A block between two others that stay: its hole is the smallest that fits. */
CUdeviceptr case_block(void);
CUdeviceptr case_alloc(void);

/* One of 512 bytes: when it is freed, no request for a block gets it. */
CUdeviceptr case_small(void);

/* A kernel writes the block. */
void case_use(CUstream stream, CUdeviceptr block);

void case_use_old(CUstream s, CUdeviceptr block);

/* The same by a launch that may begin before its predecessor ends. */
void case_use_dependent(CUstream stream, CUdeviceptr block);

/* Run up to n operations of the stream. */
int case_step(CUstream stream, int n);

/* A free that runs nothing. */
void case_free(CUdeviceptr block);

/* Use the block in s, free it, get it again at once, and submit something later to s. */
CUdeviceptr case_early(CUstream s);

/* The program's own synchronise, some time later. */
void case_settle(void);
void case_pass_ns(uint64_t ns);

/* Work that has run; the newest operation that touches the block. */
uint64_t case_n_completed(void);
struct cusim_op case_op(CUdeviceptr block);
bool case_has_run(CUdeviceptr block);

/* Waits that were put into the operation's stream since the mark, up to it. */
unsigned case_n_waits(const struct cusim_op *op);
void case_mark(void);

/* How the next request of that size is served while the block's old work is unfinished. */
enum outcome case_hand_out(CUdeviceptr block);

/* Nobody synchronises: fences are asked about when the pool has nothing else. */
enum outcome case_soon(CUdeviceptr block);

/* What the newest operation on `touched` waits for; the old work is the next one of s. */
enum outcome case_wait(CUstream s, CUstream y, CUdeviceptr touched);

/* Does freeing an unrelated block wait for the work that is marked by `touched`? */
enum outcome case_free_beside(CUdeviceptr touched);

/* Is the newest launch unordered with its predecessor? Takes the race back that shows it. */
enum outcome case_dependence(void);
