/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * Limits: how much device memory may be held, as the user wrote it and as it is counted.
 *
 * A limit_spec is what POOLSHIM_LIMIT says, before any device is known. An account is the count of
 * one device: bytes are reserved in it before the driver is asked and released when the driver has
 * them back (or has refused), so that two threads can never pass the limit together.
 *
 * What to do when a limit is reached is not decided here, see exhaust.h.
 *
 * Locking: none; every account call may come from any thread at any time. A limit_spec does not
 * change once parsed.
 */
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#define LIMIT_NONE UINT64_MAX /* in place of a number of bytes: no limit */

enum {
	LIMIT_N_DEVICES = 64,  /* ordinals that a list may name: 0..63 */
	LIMIT_TEXT_MAX = 2560, /* holds whatever limit_spec_print() writes, and the NUL */
};

enum {
	LIMIT_OK = 0,
	LIMIT_E_REACHED, /* the limit would be passed: nothing was reserved */
};

enum limit_kind {
	LIMIT_KIND_NONE,
	LIMIT_KIND_BYTES,
	LIMIT_KIND_SHARE,
};

struct limit_value {
	enum limit_kind kind;
	uint32_t share_ppb; /* of the device's total; valid for LIMIT_KIND_SHARE */
	uint64_t bytes;     /* valid for LIMIT_KIND_BYTES, never 0 */
};

struct limit_spec {
	uint64_t listed; /* bit d: by_device[d] holds; when no bit is set, all holds */
	struct limit_value all;
	struct limit_value by_device[LIMIT_N_DEVICES];
};

/*
 * Read none, a size, a share, or a list such as 0=8GiB,1=50% (devices not in the list have no
 * limit). 0 means none. Returns 0, -EINVAL or -ERANGE.
 */
int limit_spec_parse(const char *text, struct limit_spec *ret_spec);

/* Write the text that reads back as the same spec. Returns its length, as snprintf does. */
size_t limit_spec_print(const struct limit_spec *spec, char *buf, size_t buf_bytes);

/* What the spec allows on this device: at least 1 byte, or LIMIT_NONE. */
uint64_t limit_spec_bytes(const struct limit_spec *spec, int device, uint64_t total_bytes);

struct account {
	_Atomic uint64_t held_bytes;
	_Atomic uint64_t peak_bytes;  /* most that held_bytes ever was */
	_Atomic uint64_t limit_bytes; /* LIMIT_NONE: no limit */
	_Atomic uint64_t n_released;  /* calls of limit_release() */
};

void account_init(struct account *account, uint64_t limit_bytes);

/*
 * Take bytes from the account. Returns LIMIT_OK, or LIMIT_E_REACHED with nothing changed, also when
 * the sum would not fit in 64 bits.
 */
int limit_reserve(struct account *account, uint64_t bytes);

/* Give back bytes that limit_reserve() took. */
void limit_release(struct account *account, uint64_t bytes);

/*
 * May be set below what is held: then nothing is taken away, but growth is refused until it fits
 * again.
 */
void limit_set(struct account *account, uint64_t limit_bytes);

uint64_t limit_get(const struct account *account);
uint64_t limit_held_bytes(const struct account *account);
uint64_t limit_peak_bytes(const struct account *account);

/* How often bytes were given back: if it moved, a refusal may be out of date. */
uint64_t limit_n_released(const struct account *account);

/*
 * What a program may still get: the driver's free memory or the room below the limit, whichever is
 * less.
 */
uint64_t limit_free_bytes(const struct account *account, uint64_t driver_free_bytes);
