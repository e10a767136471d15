/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * Spans of bytes that do not overlap, in order, each with accesses to it. A skip list.
 *
 * Locking: sim.lock, as everywhere in the device.
 */

#include <stdbool.h>
#include <stdint.h>

struct access; /* history.h */

struct entry {
	struct access *access; /* a reference */
	bool is_write;
	bool is_atomic; /* of a value that others wait for: does not race with its like */
};

enum {
	SPAN_LEVELS = 20,
};

struct span {
	uint64_t start, end;
	unsigned n, capacity;
	struct entry *entries; /* &one while there is but one */
	struct entry one;
	unsigned n_levels;
	struct span *next[];
};

/* Where a walk stands: the newest span behind it on each level. */
struct span_path {
	struct span *last[SPAN_LEVELS];
};

/* The first span that ends behind addr; NULL: none. */
struct span *span_seek(uint64_t addr, struct span_path *ret_path);
/* No span may reach over addr from now on. */
void span_split(uint64_t addr);
/* Step over what path stands before. */
struct span *span_next(struct span *span, struct span_path *path);
struct span *span_insert(uint64_t start, uint64_t end, struct span_path *path);
/* Remove what path stands before; returns what follows. */
struct span *span_remove(struct span *span, struct span_path *path);
bool span_is_alike(const struct span *a, const struct span *b);
uint64_t span_count(void);

void span_add(struct span *span, struct entry entry);
void span_drop(struct span *span, unsigned i);
void span_clear(struct span *span);

/* history.c: references of entries. */
struct access *access_ref(struct access *access);
void access_unref(struct access *access);
