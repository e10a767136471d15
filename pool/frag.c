/* SPDX-License-Identifier: MIT */
#include "pool/frag.h"

#include <assert.h>

enum { LOG_FRACTION_BITS = 24 };

/*
 * log2 in fixed point, 2^-24: the whole part is the top bit's place, each bit of the fraction comes
 * from squaring the mantissa. No libm, and the same answer on every machine.
 */
static uint64_t
log2_fixed(uint64_t x)
{
	const int top = 63 - __builtin_clzll(x);
	uint64_t mantissa = top >= 31 ? x >> (top - 31) : x << (31 - top); /* 1.0 to 2.0 in 2^-31 */
	uint64_t result = (uint64_t)top << LOG_FRACTION_BITS;

	for (int bit = LOG_FRACTION_BITS - 1; bit >= 0; bit--) {
		mantissa = mantissa * mantissa >> 31;
		if (mantissa >> 32) {
			result |= UINT64_C(1) << bit;
			mantissa >>= 1;
		}
	}
	return result;
}

static double
log2_of(double x)
{
	/* x is a quotient of byte counts, at least 1: scale it so that small ones keep their
	 * fraction. */
	return (double)log2_fixed((uint64_t)(x * 1048576.0)) / (1 << LOG_FRACTION_BITS) - 20.0;
}

static double
exp2_of(double bits)
{
	const int whole = (int)bits;
	double term = 1.0, sum = 1.0, x = (bits - whole) * 0.69314718055994530942;

	for (int i = 1; i < 20; i++) {
		term *= x / i;
		sum += term;
	}
	return sum * (double)(UINT64_C(1) << whole);
}

static uint64_t
weighted_log(uint64_t extent_bytes)
{
	const uint64_t n_units = extent_bytes / FRAG_UNIT_BYTES;

	return n_units * log2_fixed(n_units);
}

void
frag_add(struct frag *frag, uint64_t extent_bytes)
{
	frag->weighted_log += weighted_log(extent_bytes);
	frag->partial_bytes += extent_bytes;
	frag->n_partial++;
}

void
frag_remove(struct frag *frag, uint64_t extent_bytes)
{
	assert(frag->n_partial > 0 && frag->partial_bytes >= extent_bytes);
	frag->weighted_log -= weighted_log(extent_bytes);
	frag->partial_bytes -= extent_bytes;
	frag->n_partial--;
}

void
frag_add_whole(struct frag *frag, uint64_t segment_bytes)
{
	frag->whole_bytes += segment_bytes;
	frag->n_whole++;
}

void
frag_remove_whole(struct frag *frag, uint64_t segment_bytes)
{
	assert(frag->n_whole > 0 && frag->whole_bytes >= segment_bytes);
	frag->whole_bytes -= segment_bytes;
	frag->n_whole--;
}

void
frag_merge(struct frag *into, const struct frag *from)
{
	into->weighted_log += from->weighted_log;
	into->partial_bytes += from->partial_bytes;
	into->n_partial += from->n_partial;
	into->whole_bytes += from->whole_bytes;
	into->n_whole += from->n_whole;
}

void
frag_compute(const struct frag *frag, uint64_t largest_partial_bytes,
	     struct frag_figures *ret_figures)
{
	const uint64_t free_bytes = frag->partial_bytes + frag->whole_bytes;
	const double n_units = (double)free_bytes / FRAG_UNIT_BYTES;
	struct frag_figures f = {.free_bytes = free_bytes, .level = FRAG_LOW};
	double sum, most;

	if (free_bytes) {
		sum = (double)(frag->weighted_log +
			       (frag->whole_bytes ? weighted_log(frag->whole_bytes) : 0)) /
		      (1 << LOG_FRACTION_BITS);
		f.entropy_bits = log2_of(n_units) - sum / n_units;
		if (f.entropy_bits <
		    1e-6) /* one extent: only the rounding of the logarithm is left */
			f.entropy_bits = 0;
		most = (double)free_bytes / (2 << 20);
		f.entropy = f.entropy_bits / log2_of(most > 64 ? most : 64);
		if (f.entropy > 1)
			f.entropy = 1;
		f.effective_holes = exp2_of(f.entropy_bits);
		f.largest_free_bytes = largest_partial_bytes > frag->whole_bytes
					       ? largest_partial_bytes
					       : frag->whole_bytes;
		f.external_ratio = 1.0 - (double)f.largest_free_bytes / (double)free_bytes;
		f.level = f.entropy < 0.3 ? FRAG_LOW : f.entropy < 0.7 ? FRAG_MEDIUM : FRAG_HIGH;
	}
	*ret_figures = f;
}

const char *
frag_level_name(enum frag_level level)
{
	static const char *const names[] = {"low", "medium", "high"};

	return names[level];
}
