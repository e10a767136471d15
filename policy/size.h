/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * Sizes and shares as people write them: 512K 8g 8GB 8Gi 8GiB 1.5GiB 4096, and 12.5%.
 *
 * All units are powers of 1024, in any case of letters. A fraction needs a unit. No locale is
 * asked: the decimal point is always '.'. Nothing here allocates or keeps state; any thread may
 * call it.
 *
 * Units: bytes; a share is in parts per billion of a whole (_ppb).
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
	SIZE_PPB_WHOLE = 1000000000, /* 100% */
	SIZE_TEXT_MAX = 32,          /* holds all that the printers make, and the NUL */
};

/*
 * Read the whole of text[0..len) as a size. Returns 0, -EINVAL (not a size) or -ERANGE (more than
 * UINT64_MAX bytes).
 */
int size_parse(const char *text, size_t len, uint64_t *ret_bytes);

/*
 * Read the whole of text[0..len) as a share that ends in '%'. Digits that a billionth cannot hold
 * are cut. Returns 0, -EINVAL (not a share) or -ERANGE (above 100%).
 */
int size_parse_share(const char *text, size_t len, uint32_t *ret_ppb);

/* The share of total_bytes, rounded down; never overflows. */
uint64_t size_of_share(uint32_t ppb, uint64_t total_bytes);

/*
 * Write the text that reads back as the same value, in the largest unit that divides it. Returns
 * its length; the text is cut when buf is too small, as snprintf does.
 */
size_t size_print(uint64_t bytes, char *buf, size_t buf_bytes);
size_t size_print_share(uint32_t ppb, char *buf, size_t buf_bytes);

/*
 * Is text[0..len) this word, in any case of letters? Here because every reader of options needs it.
 */
bool size_text_is(const char *text, size_t len, const char *word);
