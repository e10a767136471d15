/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * A backend without a device, for tests and replay: addresses that nobody may touch, fences that
 * complete when the test says so, and a clock that is moved by hand.
 *
 * Fences are numbered from 1 in the order of their recording, and complete in that order. Every
 * call can be made to fail. It also watches its user: what breaks the contract of pool/backend.h (a
 * mapping given back twice, a fence asked about after it was freed) prints one line and aborts.
 *
 * Locking: its own mutex, a leaf; every call may come from any thread. The fields are read through
 * calls. Units: bytes, nanoseconds.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "pool/backend.h"

enum fake_op {
	FAKE_OP_MAP,
	FAKE_OP_UNMAP,
	FAKE_OP_FENCE_RECORD,
	FAKE_OP_FENCE_QUERY,
	FAKE_OP_FENCE_FREE,
	FAKE_OP_NOW,
	FAKE_OP_PAUSE,
	FAKE_OP_EDGE_WAIT,
	FAKE_OP_LOOK,
	FAKE_OP_N,
};

/* A call that will fail: from the nth call from now on (1: the next), n_times in a row. */
struct fake_failure {
	uint64_t first, last; /* in counts of the op; 0: none */
	int status;
};

enum { FAKE_N_BUCKETS = 1024, FAKE_N_ANNOUNCED_MAX = 8 };

struct fake_item;

struct fake_table {
	struct fake_item *buckets[FAKE_N_BUCKETS];
	size_t n_items;
};

struct fake_backend {
	struct backend backend; /* first: what the pool sees */
	pthread_mutex_t lock;
	uint64_t capacity_bytes, held_bytes, peak_bytes;
	uint64_t next_addr;
	struct fake_table mappings; /* by address */
	struct fake_table fences;   /* by number */
	struct fake_item *freed;    /* address ranges to use again, newest first */
	uint64_t n_recorded, n_wide, n_complete;
	uint64_t now_ns, pause_ns;
	uint64_t counts[FAKE_OP_N];
	struct fake_failure failures[FAKE_OP_N];
	bool completes_at_once, is_busy;
	atomic_uint_fast64_t n_submissions;
	struct order_stream announced[FAKE_N_ANNOUNCED_MAX];
	unsigned n_announced;
	uint64_t edge_waited;
	void (*on_pause)(struct fake_backend *fake, void *arg);
	void *on_pause_arg;
};

void fake_backend_init(struct fake_backend *fake, uint64_t capacity_bytes);

/* Mappings and fences that are still alive are forgotten: whoever cares asks before. */
void fake_backend_fini(struct fake_backend *fake);

/* May be set below what is held: then nothing more is mapped. */
void fake_backend_set_capacity(struct fake_backend *fake, uint64_t capacity_bytes);

/* Where the next fresh range begins: a multiple of 512. */
void fake_backend_set_next_addr(struct fake_backend *fake, uint64_t addr);

/*
 * The fences numbered up to n complete, recorded or not; all recorded so far; or each as it is
 * recorded.
 */
void fake_backend_complete_upto(struct fake_backend *fake, uint64_t n);
void fake_backend_complete_all(struct fake_backend *fake);
void fake_backend_set_completes_at_once(struct fake_backend *fake, bool completes_at_once);

/*
 * A busy backend answers BACKEND_E_BUSY to fence_record and fence_query, as while a stream
 * captures.
 */
void fake_backend_set_busy(struct fake_backend *fake, bool is_busy);

/* The calls of op that fail, in place of those named before: n_times from the nth from now on. */
void fake_backend_fail(struct fake_backend *fake, enum fake_op op, uint64_t nth, uint64_t n_times,
		       int status);

/*
 * The clock. A pause moves it by pause_ns (1000 at first) and then calls on_pause without the lock.
 */
void fake_backend_advance(struct fake_backend *fake, uint64_t ns);
void fake_backend_set_pause(struct fake_backend *fake, uint64_t pause_ns,
			    void (*on_pause)(struct fake_backend *fake, void *arg), void *arg);

uint64_t fake_backend_count(struct fake_backend *fake, enum fake_op op);
uint64_t fake_backend_n_recorded(struct fake_backend *fake);
uint64_t fake_backend_n_wide(struct fake_backend *fake);
uint64_t fake_backend_n_complete(struct fake_backend *fake);
size_t fake_backend_n_mappings(struct fake_backend *fake);
size_t fake_backend_n_fences(struct fake_backend *fake);
uint64_t fake_backend_held_bytes(struct fake_backend *fake);
uint64_t fake_backend_peak_bytes(struct fake_backend *fake);

/* A submission has ended. */
void fake_backend_submit(struct fake_backend *fake);

/* What a look finds: streams to which somebody is submitting. */
void fake_backend_announce(struct fake_backend *fake, struct order_stream stream);
void fake_backend_announce_none(struct fake_backend *fake);

/* The fence that a stream was last made to wait for; 0: none. */
uint64_t fake_backend_edge_waited(struct fake_backend *fake);
