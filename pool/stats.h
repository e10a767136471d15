/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * Figures of all heaps of one device, or of all pinned heaps: made from stats.def.
 *
 * Locking: none; every figure is a relaxed atomic. They order nothing and a reader may see a malloc
 * half counted.
 */
#include <stdatomic.h>
#include <stdint.h>

enum {
	STATS_N_SIZE_CLASSES = 48,
	STATS_N_TAGS = 64, /* small numbers that come with the requests; what they mean is the
			      caller's to know */
};

/* What the requests of one tag hold. Over all tags used_bytes and count add up to used_bytes and
 * alloc_count. */
struct stats_share {
	_Atomic uint64_t used_bytes, peak_used_bytes, count;
};

struct stats {
#define GAUGE(name, peak, help) _Atomic uint64_t name, peak;
#define COUNTER(name, help) _Atomic uint64_t name;
#include "pool/stats.def"
#undef GAUGE
#undef COUNTER
	/* Requests by size: class i counts those of 2^i to 2^(i+1) - 1 bytes. */
	struct {
		_Atomic uint64_t count, n_live;
	} sizes[STATS_N_SIZE_CLASSES];
	struct stats_share shares[STATS_N_TAGS];
};

static inline void
stats_count(_Atomic uint64_t *counter, uint64_t n)
{
	atomic_fetch_add_explicit(counter, n, memory_order_relaxed);
}

static inline uint64_t
stats_read(const _Atomic uint64_t *value)
{
	return atomic_load_explicit(value, memory_order_relaxed);
}

static inline void
stats_raise(_Atomic uint64_t *gauge, _Atomic uint64_t *peak, uint64_t n)
{
	const uint64_t now = atomic_fetch_add_explicit(gauge, n, memory_order_relaxed) + n;
	uint64_t high = stats_read(peak);

	while (now > high && !atomic_compare_exchange_weak_explicit(
				     peak, &high, now, memory_order_relaxed, memory_order_relaxed))
		;
}

static inline void
stats_lower(_Atomic uint64_t *gauge, uint64_t n)
{
	atomic_fetch_sub_explicit(gauge, n, memory_order_relaxed);
}

static inline unsigned
stats_size_class(uint64_t bytes)
{
	const unsigned top = bytes ? 63 - (unsigned)__builtin_clzll(bytes) : 0;

	return top < STATS_N_SIZE_CLASSES ? top : STATS_N_SIZE_CLASSES - 1;
}

/* stats_raise() for a gauge whose peak has the name that stats.def gives it. */
#define STATS_RAISE(stats, name, n) stats_raise(&(stats)->name, &(stats)->peak_##name, n)
