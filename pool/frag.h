/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * Fragmentation of free memory, kept as extents come and go.
 *
 * Free extents f (complete blocks only; a wholly free segment counts as part of one extent with all
 * other wholly free ones), F = sum of f, p = f / F: H = -sum p log2 p bits. Kept as the integer sum
 * of f * log2 f, so that the running value equals a recomputation to the last bit. Sums of several
 * heaps add.
 *
 * Units: bytes, multiples of FRAG_UNIT_BYTES. Locking: the caller's.
 */
#include <stdint.h>

enum { FRAG_UNIT_BYTES = 512 };

enum frag_level {
	FRAG_LOW,    /* entropy < 0.3: nothing to do */
	FRAG_MEDIUM, /* < 0.7: watch */
	FRAG_HIGH,   /* compact */
};

struct frag {
	uint64_t weighted_log;  /* sum of units * log2(units), in 2^-24, over the partial extents */
	uint64_t partial_bytes; /* free extents in segments that also hold other blocks */
	uint64_t n_partial;
	uint64_t whole_bytes; /* wholly free segments */
	uint64_t n_whole;
};

struct frag_figures {
	double entropy_bits;    /* H */
	double entropy;         /* H / log2(max(64, F / 2 MiB)), 0 to 1 */
	double effective_holes; /* 2^H; 0 when nothing is free */
	double external_ratio;  /* 1 - largest / F */
	uint64_t free_bytes;    /* F */
	uint64_t largest_free_bytes;
	enum frag_level level;
};

void frag_add(struct frag *frag, uint64_t extent_bytes);
void frag_remove(struct frag *frag, uint64_t extent_bytes);
void frag_add_whole(struct frag *frag, uint64_t segment_bytes);
void frag_remove_whole(struct frag *frag, uint64_t segment_bytes);

/* Add the sums of one heap to those of another. */
void frag_merge(struct frag *into, const struct frag *from);

/* largest_partial_bytes: the largest of the partial extents. */
void frag_compute(const struct frag *frag, uint64_t largest_partial_bytes,
		  struct frag_figures *ret_figures);

const char *frag_level_name(enum frag_level level);
