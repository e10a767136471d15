/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * The composition root: what happens at the first look-up, at cuInit, in a forked child and at
 * exit.
 *
 * Nothing runs when the library is loaded. Locking: each call may come from any thread at any time.
 */
#include <stdatomic.h>
#include <stdbool.h>

#include "policy/options.h"

/*
 * The first CUDA name was looked up, or the first hook was called by a program that links libcuda.
 * Installs the dump signal's handler. Allocates nothing, prints nothing, calls no CUDA.
 */
void init_on_first_use(void);

/*
 * The real cuInit has just succeeded: parses the options (once a process) and makes hooks active.
 */
void init_on_cu_init(void);

/* The first request was served: starts the helper thread. */
void init_on_first_request(void);

extern atomic_bool init_active;

/* May this call be served by the shim? False before cuInit, in mode off and in a forked child. */
static inline bool
init_is_active(void)
{
	/* Acquire: options and tables were set up before. */
	return atomic_load_explicit(&init_active, memory_order_acquire);
}

/* Was cuInit seen, and is this the process that called it? Dumps are taken there only. */
bool init_is_own_process(void);

/* Valid once active. The mode is the one in force. */
const struct options *init_options(void);

/* Under which tool the mode became account by itself; NULL: the mode is as the user has it. */
const char *init_why_account(void);
