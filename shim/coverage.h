/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * Which routes the program took to the driver, and what it reached there that this library does not
 * know. Early reuse (order by stream) may be on only while nothing unknown was reached.
 *
 * Routes count how often a pointer was found, not how often it was called: one count for each
 * answered look-up, one for a program that links libcuda, one for each object that links the
 * runtime.
 *
 * Locking: none; relaxed counters, names are claimed and published one by one. Allocates nothing.
 */
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum coverage_route {
	COVERAGE_DLSYM,
	COVERAGE_DLVSYM,
	COVERAGE_PROC_ADDRESS,
	COVERAGE_DIRECT,  /* a hook was called before any look-up: the program links libcuda */
	COVERAGE_RUNTIME, /* an object calls the runtime through its link */
	COVERAGE_N_ROUTES,
};

enum {
	COVERAGE_MAX_NAMES = 32,
	COVERAGE_NAME_BYTES = 64, /* with the end; longer names are cut */
};

struct coverage {
	uint64_t n_found[COVERAGE_N_ROUTES];
	bool is_in_doubt;
	unsigned int n_unknown;
	char unknown[COVERAGE_MAX_NAMES][COVERAGE_NAME_BYTES];
};

/* As the dump names it. */
const char *coverage_route_name(enum coverage_route route);

void coverage_count(enum coverage_route route);

/* Counts COVERAGE_DIRECT, once a process and only if nothing was counted before. */
void coverage_count_direct(void);

/* The counts so far, into the control block; once hooks are active it is kept up to date. */
void coverage_publish(_Atomic uint64_t *counts);

/* Did anything come by any of them? */
bool coverage_has_route(void);

/*
 * The program got at something of the driver's that no table knows: a function, or a table of
 * functions. What it submits there cannot be seen, so coverage is in doubt from now on. Calls no
 * libc function.
 */
void coverage_note_unknown(const char *name);

/* The same from a walk over the loader's list, whose lock is held: coverage_tell_doubt() comes
 * after it. */
void coverage_note_linked(const char *name);

/* An object reaches the driver past this library (missed.h). */
void coverage_note_missed(void);

/* A name of the right form was asked for before libcuda was found: it may be the driver's. Calls no
 * libc function. */
void coverage_note_asked(const char *name);

/* libcuda is found: of the names asked for before, those that it exports are unknown ones. */
void coverage_settle_asked(bool (*is_exported)(const char *name));

extern atomic_bool coverage_doubt;

/*
 * Has the program got at anything that is not known or not seen? Never goes back to false. For hot
 * paths. Objects that were loaded since the last linked_look() are not in it.
 */
static inline bool
coverage_is_in_doubt(void)
{
	/* relaxed: it orders nothing; the call that may use what was got comes after */
	return atomic_load_explicit(&coverage_doubt, memory_order_relaxed);
}

/*
 * Call fn once, when doubt begins, or now if it has begun; for one fn in the process. It runs in
 * whatever thread learns of it, perhaps in the middle of a look-up: this library holds no lock
 * then, but fn may not wait, allocate or call CUDA.
 */
void coverage_on_doubt(void (*fn)(void));
void coverage_tell_doubt(void);

/* A copy of the state. */
void coverage_get(struct coverage *ret_coverage);
