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
