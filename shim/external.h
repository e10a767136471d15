/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * Memory that the process gets past the pool: how much of each kind (external.def) lies where, and
 * a record of each piece, so that its end lowers what its beginning raised. Counts only; nothing is
 * refused. Knows addresses and handles as numbers, and no CUDA.
 *
 * A free claims the record before it asks the driver, since the address may be another thread's the
 * moment after, and settles it with the answer. What nobody recorded is not claimed, and changes
 * nothing.
 *
 * Locking: one mutex, a leaf, never held across a driver call; the gauges are relaxed atomics that
 * any thread may read. A forked child must not call.
 */
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "pool/stats.h"

enum external_kind {
#define EXTERNAL(name, place, help) EXTERNAL_##name,
#include "shim/external.def"
#undef EXTERNAL
	EXTERNAL_N_KINDS,
};

enum external_place {
	EXTERNAL_ON_DEVICE,
	EXTERNAL_ON_HOST,
	EXTERNAL_ON_EITHER,
};

struct external_kind_info {
	const char *name;
	enum external_place place;
};

extern const struct external_kind_info external_kinds[EXTERNAL_N_KINDS];

/* What lies in one place, a device or the host. */
struct external {
	_Atomic uint64_t bytes[EXTERNAL_N_KINDS], peak_bytes[EXTERNAL_N_KINDS];
	_Atomic uint64_t total_bytes, peak_total_bytes;
	_Atomic uint64_t n_unmeasured, peak_n_unmeasured; /* pieces of unknown size, counted as 0 */
	struct stats_share shares[STATS_N_TAGS];          /* of total_bytes */
};

/* What a piece is known by. The same number may be in use in several of them. */
enum external_space {
	EXTERNAL_BY_ADDRESS, /* what cuMemFree ends */
	EXTERNAL_BY_PINNED,
	EXTERNAL_BY_REGISTERED,
	EXTERNAL_BY_ARRAY,
	EXTERNAL_BY_MIPMAP,
	EXTERNAL_BY_IPC,
	EXTERNAL_BY_FOREIGN, /* a CUexternalMemory */
	EXTERNAL_BY_VMM,     /* the handle of cuMemCreate */
	EXTERNAL_BY_MAPPING, /* the address of cuMemMap */
	EXTERNAL_BY_CONTEXT,
};

struct external_item {
	enum external_space space;
	uint64_t key;
	enum external_kind kind;
	uint64_t bytes;
	unsigned tag; /* who asked (callers.h) */
	bool is_unmeasured;
	bool is_shared;         /* a piece that is known by this key already is opened once more */
	struct external *place; /* where it lies */
	struct external
		*via; /* a device that it is counted for, too, but not in the sum; or NULL */
	/* It ends when *life is not generation any more, without a free; NULL: it does not. */
	const atomic_uint *life;
	unsigned generation;
};

struct external_record;

/* A piece is there. Without host memory for a record it is counted as not measured, for ever. */
void external_add(const struct external_item *item);

/* One more handle of a piece, if it is known. */
void external_retain(enum external_space space, uint64_t key);

/*
 * Around the call that ends a piece, or one handle of it. NULL: not known, and settling does
 * nothing. Between the two nobody else finds the piece, unless it has other handles.
 */
struct external_record *external_claim(enum external_space space, uint64_t key);
void external_settle(struct external_record *record, bool is_freed);

/*
 * Around a mapping of handle: the memory stays while it is mapped. NULL: the handle is not known.
 */
struct external_record *external_map_begin(uint64_t handle);
void external_map_end(struct external_record *memory, uint64_t addr, uint64_t offset_bytes,
		      uint64_t size_bytes, bool is_mapped);

/* Around the unmapping of a range: takes the mappings that lie in it, one after the other. */
struct external_record *external_unmap_begin(uint64_t addr, uint64_t size_bytes);
void external_unmap_end(struct external_record *mappings, bool is_unmapped);

/* The life of a context is over, after its generation was raised: its pieces are gone. */
void external_drop(const atomic_uint *life, unsigned generation);

/* A figure that is read from the driver, not summed up here; nobody asked for it. */
void external_set(struct external *place, enum external_kind kind, uint64_t bytes);
