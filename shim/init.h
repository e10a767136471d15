/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * The composition root: what happens at the first look-up, at cuInit, in a forked child and at
 * exit.
 *
 * Nothing runs when the library is loaded. Locking: each call may come from any thread at any time.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/types.h>

#include "policy/options.h"
#include "pool/thread.h"

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

/*
 * What is true of this very process. The kernel empties it in every child that has memory of its
 * own (MADV_WIPEONFORK), by whatever call it was made: a clone() runs no fork handlers. Where the
 * kernel cannot (before Linux 4.14), children made by fork() are told by a handler.
 */
struct init_process {
	atomic_bool is_active;
	_Atomic pid_t owner_pid; /* whose cuInit was seen; 0: none was */
	atomic_bool was_used;    /* init_on_first_use() */
	atomic_bool has_handler; /* signal.c installed the handler in this process, */
	atomic_uint n_signals;   /* and it ran so often */
	pthread_once_t once;     /* init_on_cu_init(); all zero is its initial state */
};

/* A page of its own, of the largest size that pages have. */
enum {
#ifdef __x86_64__
	INIT_PAGE_BYTES = 4096,
#else
	INIT_PAGE_BYTES = 65536,
#endif
};

union init_page {
	struct init_process process;
	char bytes[INIT_PAGE_BYTES];
};

extern union init_page init_page;

/* False before cuInit, in mode off and in a forked child. */
static inline bool
init_is_on(void)
{
	/* Acquire: options and tables were set up before. */
	return atomic_load_explicit(&init_page.process.is_active, memory_order_acquire);
}

/*
 * May this call be served by the shim? Not where it is not on, nor in a signal handler that
 * interrupted the shim with a lock held: there the driver gets the call as it came.
 */
static inline bool
init_is_active(void)
{
	return init_is_on() && !thread_holds();
}

/* Was cuInit seen, and is this the process that called it? Dumps are taken there only. */
bool init_is_own_process(void);

/* Valid once active. The mode is the one in force. */
const struct options *init_options(void);

/* Under which tool the mode became account by itself; NULL: the mode is as the user has it. */
const char *init_why_account(void);
