/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * Driver functions that exist by name only. They are defined without their prototypes (no caller
 * gets as far as an argument), so the files that use this header cannot include cuda.h.
 */

enum {
#define UNSUPPORTED(query, suffix, since, stream0) UNSUPPORTED_##query##suffix,
#include "tests/sim/unsupported.def"
#undef UNSUPPORTED
	N_UNSUPPORTED,
};

extern void *const unsupported_functions[N_UNSUPPORTED];

/* Counts the call; returns CUDA_ERROR_NOT_SUPPORTED, or what a test injected. */
int unsupported_call(int idx);
