/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * The history of memory: who touched which bytes, as far as later accesses may have to be ordered
 * after it, and the comparison of an access with it. Bytes have keys here (races.c), not addresses.
 *
 * Locking: sim.lock, as everywhere in the device.
 */

#include <stdbool.h>
#include <stdint.h>

#include "tests/sim/sim.h"

struct clock;

struct access {
	unsigned refs, slot;
	uint64_t tick;
	uint64_t raced_with; /* seq_submit of the newest access that this one raced with */
	const char *actor;   /* NULL: an operation of a stream */
	struct cusim_op op;
};

/* How an access touches memory. */
struct touch {
	struct access *access;
	const struct clock *earlier; /* what the access is after */
	bool is_write, is_atomic;
	bool is_late; /* made by an operation while it runs: newer ones are in the history */
};

extern uint64_t history_races;

struct access *access_new(unsigned slot, uint64_t tick);
struct access *access_ref(struct access *access);
void access_unref(struct access *access);

/* addr: what the program calls the first byte. */
void history_touch(uint64_t key, uint64_t size_bytes, uint64_t addr, const struct touch *t);
void history_forget(uint64_t start, uint64_t end);
