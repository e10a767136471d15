/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * One heap on the fake backend, and what must always be true of it.
 *
 * heap_fixture_teardown() gives the heap back and asserts that the backend has no mapping and no
 * fence left: so every test with this fixture is a leak test. Each test is a process of its own, so
 * the state is static.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "pool/heap.h"
#include "tools/replay/fake_backend.h"

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)

extern struct fake_backend fake;
extern struct pool pool;
extern struct stats stats;
extern struct heap *heap;

enum { FIXTURE_CAPACITY_MIB = 256 };

void heap_fixture_setup(void);      /* HEAP_DEVICE */
void heap_fixture_setup_host(void); /* HEAP_HOST */
void heap_fixture_setup_account(void);

/* Device memory that may be handed out early, of a context that nobody has watched yet. */
void heap_fixture_setup_early(_Atomic uint64_t *attention);

/* Device memory in which large requests share segments. */
void heap_fixture_setup_split(void);

void heap_fixture_teardown(void);

/* Hand out from what is held, else grow by the usual segment. Asserts that one of them works. */
uint64_t take_or_grow(size_t requested_bytes);

/* Free with work still unfinished, and with all work complete. Assert success. */
void give(uint64_t addr);
void give_complete(uint64_t addr);

/* heap_give_back() with the fake backend's unmap as the free that the program called. */
int give_back(uint64_t addr, enum heap_kind kind, size_t *ret_freed_bytes);

/*
 * Assert what holds between any two calls while one thread uses the heap: blocks cover their
 * segments without a gap, free neighbours are merged, every figure is the sum that it stands for,
 * used + free = total, the running entropy is the recomputed one, and the backend holds what the
 * heap holds.
 */
void assert_heap_is_sound(const char *where);
