/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * A random CUDA program, made while it runs, and the model that keeps it natively valid.
 *
 * Each host thread of the program is an actor with its own streams, blocks, graphs and random
 * numbers. What an actor does next depends on its random numbers and its model only, never on an
 * answer of the driver, so that a seed gives the same program with the shim and without. The model
 * is one of order: which operation of which stream each stream, and the host, comes after.
 *
 * Natively a call may wait (frees, synchronises, copies that involve pageable memory): a step that
 * makes one is not taken while the actor holds something back: a lock that host functions take, or
 * the release of a kernel that spins.
 */
#include <pthread.h>
#include <stdatomic.h>

#include "tests/preload/victim.h"
#include "tests/sim/sim.h"

/* Newer than the oldest driver that the programs run on. */
#pragma weak cuCtxFromGreenCtx
#pragma weak cuDeviceGetDevResource
#pragma weak cuDevResourceGenerateDesc
#pragma weak cuGreenCtxCreate
#pragma weak cuGreenCtxDestroy
#pragma weak cuGreenCtxStreamCreate

enum {
	N_CONTEXTS = 2,
	N_STREAMS = 11, /* of an actor, over both contexts */
	N_BLOCKS = 40,
	N_GRAPHS = 4,
	N_EFFECTS = 8,
	N_ACTORS_MAX = 16,
	N_FLAGS = 4096, /* words that kernels spin on, used in turn */
	N_RESULTS = 4096,
	RESULT_BYTES = 64,
	ROUND_STEPS = 32,
	NO_STREAM = -1,
};

enum stream_kind { LEGACY, PER_THREAD, BLOCKING, NON_BLOCKING, GREEN };

/* Operations of a stream are numbered from 1. */
struct stream {
	CUstream handle;
	enum stream_kind kind;
	int context;
	uint32_t clock;           /* number of its newest operation */
	uint32_t seen[N_STREAMS]; /* its next operation comes after so many of each */
	bool is_tainted;          /* comes after a kernel that spins until the window closes */
};

/* The newest operations of a stream that touch a block, 0: none. */
struct touch {
	uint32_t write, read;
	uint32_t unseen; /* by a kernel, or reading: a free is no barrier for the CPU */
};

enum block_kind { NO_BLOCK, DEVICE, ASYNC, PINNED };

struct block {
	CUdeviceptr address;
	size_t n_bytes;
	enum block_kind kind;
	int context; /* that owns it */
	bool is_portable;
	bool is_defined;
	uint8_t value; /* each byte of it, once defined */
	struct touch touches[N_STREAMS];
};

struct effect {
	int target, source; /* blocks; source -1: filled with value */
	uint8_t value;
	bool is_kernel;
};

struct graph {
	CUgraphExec exec; /* NULL: none */
	int context;
	unsigned n_effects;
	struct effect effects[N_EFFECTS];
};

enum release_way { BY_FILL, BY_SET, BY_COPY, BY_WRITE_VALUE, BY_STORE, N_RELEASE_WAYS };

/* A kernel spins; until it is released the actor makes no call that natively waits for it. */
struct window {
	bool is_open;
	unsigned n_steps_left;
	int spinner, releaser; /* streams */
	enum release_way way;
	CUdeviceptr flag;
	bool is_pair; /* the release is the other half of a collective */
	CUdeviceptr other_flag;
};

struct result {
	int context;
	uint8_t value;
};

struct mail {
	bool is_full;
	CUevent event;
	struct block block;
};

struct actor {
	int number;
	pthread_t thread;
	uint64_t random;
	int context; /* current one */
	struct stream streams[N_STREAMS];
	uint32_t known[N_STREAMS];   /* the host knows these to be complete */
	uint32_t visible[N_STREAMS]; /* a free waited for these: as far as the CPU can see */
	struct block blocks[N_BLOCKS];
	struct graph graphs[N_GRAPHS];
	struct window window;
	unsigned n_locked_steps; /* > 0: holds the lock of the host functions */
	struct mail mail[2];
	size_t live_bytes;
	/* Natively a wait for a context spoils captures of other threads: with several actors a
	 * round has one or the other. */
	bool may_capture, may_wait_for_contexts;
	/* Most of its work is in one stream of each context, where all threads may meet. */
	bool is_narrow;

	CUdeviceptr flags[N_CONTEXTS];
	uint32_t *host_flags;
	unsigned n_flags_used;
	CUdeviceptr results[N_CONTEXTS];
	struct result expected[N_RESULTS];
	unsigned n_results;
	unsigned char *pageable;

	uint16_t *statuses;
	size_t n_statuses, n_statuses_max;
	uint64_t checksum;
	unsigned n_wrong;
	_Atomic uint64_t n_steps; /* these for the watchdog */
	_Atomic(const char *) call;
	uint64_t *counts; /* by step */
};

/* What all actors share. */
struct program {
	uint64_t seed;
	uint64_t n_steps; /* of each actor */
	int n_actors;
	bool is_manual;
	bool is_traced;
	bool is_barrier_ignored; /* frees order nothing, not even for the CPU */
	bool is_checked;         /* the device looks for races */
	size_t limit_bytes;      /* 0: none */
	CUcontext contexts[N_CONTEXTS];
	CUcontext green_context;
	CUgreenCtx green;
	CUfunction fill, copy, spin;
	CUdeviceptr ones[N_CONTEXTS]; /* where a word 1 is copied from */
	uint32_t *pair_flags;         /* pinned, portable: of collectives */
	pthread_mutex_t host_lock;    /* that host functions take */
	atomic_uint n_host_funcs, n_failed;
	struct actor *actors;
	/* Streams that the stepping thread may choose from in manual mode. */
	_Atomic(void *) handles[N_ACTORS_MAX * N_STREAMS];
};

extern struct program program;

/* A check that goes on: counted, and said on stderr. */
void order_expect(bool is_met, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* order_call.c: driver calls, each with the status that it must give. */
struct at {
	CUstream handle;
	bool is_thread_form; /* the body whose stream 0 is the calling thread's */
};
struct at call_at(struct actor *a, int stream);
void call_current(struct actor *a, int context);
CUresult call_done(struct actor *a, const char *name, CUresult must, CUresult status);
#define CALL_STATUS(a, must, function, ...) \
	(atomic_store((&(a)->call), #function), \
	 call_done(a, #function, must, function(__VA_ARGS__)))
#define CALL(a, function, ...) CALL_STATUS(a, CUDA_SUCCESS, function, __VA_ARGS__)
#define CALL_STATUS_AT(a, at, must, function, ...) \
	((at).is_thread_form ? CALL_STATUS(a, must, function##_ptsz, __VA_ARGS__) \
			     : CALL_STATUS(a, must, function, __VA_ARGS__))
#define CALL_AT(a, at, function, ...) CALL_STATUS_AT(a, at, CUDA_SUCCESS, function, __VA_ARGS__)
void call_launch(struct actor *a, struct at at, CUfunction function, void **parameters,
		 bool is_dependent);
void call_fill(struct actor *a, struct at at, CUdeviceptr target, uint8_t value, size_t n_bytes,
	       bool is_dependent);
void call_copy(struct actor *a, struct at at, CUdeviceptr target, CUdeviceptr source,
	       size_t n_bytes);
void call_spin(struct actor *a, struct at at, CUdeviceptr flag, uint64_t n_ns);
CUevent call_event(struct actor *a, int context);
CUevent call_record(struct actor *a, int stream);
void call_cpu_access(const void *at, size_t n_bytes, bool is_write);

static inline uint64_t
random_next(struct actor *a)
{
	a->random ^= a->random << 13;
	a->random ^= a->random >> 7;
	a->random ^= a->random << 17;
	return a->random >> 11;
}

static inline unsigned
random_below(struct actor *a, unsigned n)
{
	return (unsigned)(random_next(a) % n);
}

static inline bool
one_in(struct actor *a, unsigned n)
{
	return random_below(a, n) == 0;
}

/* order_model.c */
void model_submit(struct actor *a, int stream);
void model_need(struct actor *a, int stream, const struct block *block, bool is_write);
void model_read(struct actor *a, int stream, struct block *block, bool is_kernel);
void model_write(struct actor *a, int stream, struct block *block, bool is_kernel);
void model_wait(struct actor *a, int stream, int other);
void model_host_knows(struct actor *a, int stream);
void model_wait_for_context(struct actor *a, int context);
bool model_host_may(const struct actor *a, const struct block *block, bool is_write);
void model_move_touches(struct actor *a, int from, int to);
void model_order(struct actor *a, int stream, int other);
bool model_may_wait(const struct actor *a);
bool model_is_untainted(const struct actor *a, int context);
int pick_stream(struct actor *a, int context);
struct block *pick_block(struct actor *a, int context, bool is_defined);
bool block_is_reachable(const struct block *block, int context);

/* Steps: false: it could not be taken now, and nothing was called. */
bool step_alloc(struct actor *a);
bool step_free(struct actor *a);
bool step_refuse(struct actor *a);
bool step_churn(struct actor *a);
void memory_free(struct actor *a, struct block *block, bool may_wait);

bool step_fill(struct actor *a);
bool step_copy(struct actor *a);
bool step_peer(struct actor *a);
bool step_check(struct actor *a);
bool step_host_write(struct actor *a);
bool step_host_read(struct actor *a);
bool step_pageable(struct actor *a);
void work_check(struct actor *a, struct block *block);
void work_flush(struct actor *a);

bool step_sync(struct actor *a);
bool step_query(struct actor *a);
bool step_spin(struct actor *a);
bool step_window(struct actor *a);
bool step_host_func(struct actor *a);
bool step_lock(struct actor *a);
bool step_stream(struct actor *a);
void order_tick(struct actor *a);
void order_settle(struct actor *a);
void order_collective(struct actor *a, uint64_t round);
void order_release_init(void);
void order_release_end(void);
void order_stream_make(struct actor *a, int stream);

bool step_capture(struct actor *a);
bool step_graph(struct actor *a);
void graph_forget_block(struct actor *a, const struct block *block);
void graph_destroy(struct actor *a, struct graph *graph);
