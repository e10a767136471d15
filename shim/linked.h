/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * Functions that objects take from libcuda by their link, past every look-up: those that no row
 * knows are noted (coverage.h). What the catalogue knows needs no note: the linker found the hook.
 *
 * Looks at objects that need libcuda themselves, at the functions that their relocations name.
 * Locking: takes the loader's lock. Not for the look-ups of foreign names.
 */

/* Costs a few hundred nanoseconds where nothing was loaded since the last call. */
void linked_scan(void);

/*
 * The same, and whether one of the objects reaches the driver past this library (missed.h), which
 * takes milliseconds in large programs where something was loaded. Done once at cuInit, before
 * anybody can ask for coverage_is_in_doubt(); whoever relies on that afterwards calls it now and
 * then, never on a hot path, and never where another thread waits for the caller: one that loads an
 * object holds the loader's lock.
 */
void linked_look(void);
