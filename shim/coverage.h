/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * Which routes the program took to the driver, and which of its names this library does not know.
 *
 * Routes count how often a pointer was found, not how often it was called: one count for each
 * answered look-up, one for a program that links libcuda, one for each object that links the
 * runtime.
 *
 * Locking: none; relaxed counters, names are claimed and published one by one. Allocates nothing.
 */
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
	COVERAGE_MAX_NAMES = 16,
	COVERAGE_NAME_BYTES = 64, /* with the end; longer names are cut */
};

struct coverage {
	uint64_t n_found[COVERAGE_N_ROUTES];
	unsigned int n_unknown;
	char unknown[COVERAGE_MAX_NAMES][COVERAGE_NAME_BYTES];
};

/* As the dump names it. */
const char *coverage_route_name(enum coverage_route route);

void coverage_count(enum coverage_route route);

/* Counts COVERAGE_DIRECT, once a process and only if nothing was counted before. */
void coverage_count_direct(void);

/* The driver answered a hooked name with a function that has no row. */
void coverage_note_unknown(const char *name);

/* A copy of the state. */
void coverage_get(struct coverage *ret_coverage);
