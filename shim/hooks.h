/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * The table of driver hooks, and the driver's own functions behind them.
 *
 * Made from hooks.def (what this library exports) and real.def (what it only calls). Knows names
 * and addresses, not what a hook does.
 *
 * Every body begins with hooks_ready(); after it `real` does not change any more. Without libcuda,
 * or with one that lacks a REQUIRED function, hooks_are_complete() is false and bodies only
 * forward.
 *
 * Locking: none. Any thread may resolve; threads that meet write the same values, each place once.
 */
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#define __CUDA_API_VERSION_INTERNAL /* nothing is renamed, and every version has a prototype */
#include <cuda.h>

enum hook_stream0 {
	HOOK_STREAM0_NONE, /* no stream, or any will do */
	HOOK_STREAM0_LEGACY,
	HOOK_STREAM0_PER_THREAD,
};

enum hook_need {
	HOOK_NEED_REQUIRED,
	HOOK_NEED_OPTIONAL,
};

/* In the body of a hook: where it returns to. */
#define HOOK_RETURN_ADDRESS() __builtin_return_address(0)

struct hook {
	const char *symbol; /* as exported */
	const char *query;  /* as asked of cuGetProcAddress */
	enum hook_stream0 stream0;
	enum hook_need need;
	void *wrapper;    /* this library's function */
	void **real_slot; /* where the driver's function is, inside `real` */
};

/*
 * The driver's functions. A function of hooks.def that this driver lacks answers
 * CUDA_ERROR_NOT_FOUND, so a body may always forward; a function of real.def that it lacks is NULL.
 */
struct real_calls {
#define HOOK(symbol, query, stream0, need) __typeof__(&symbol) symbol;
#include "shim/hooks.def"
#undef HOOK
#define REAL(symbol, need) __typeof__(&symbol) symbol;
#include "shim/real.def"
#undef REAL
};

extern struct real_calls real;

/* The rows are what is exported; all else in this library is hidden. */
#define HOOK(symbol, query, stream0, need) \
	extern __typeof__(symbol) symbol __attribute__((visibility("default")));
#include "shim/hooks.def"
#undef HOOK

enum hooks_state {
	HOOKS_UNRESOLVED,
	HOOKS_INCOMPLETE, /* a REQUIRED function is missing in this driver */
	HOOKS_COMPLETE,
};

extern _Atomic(enum hooks_state) hooks_state;

/*
 * Find libcuda among the loaded libraries, keep it loaded, and fill `real`. Does nothing while
 * libcuda is not loaded, and nothing once done. Calls into libc (dlopen with RTLD_NOLOAD, which
 * changes dlerror's state).
 */
void hooks_resolve(void);

/* hooks_ready() for the first hook call of a process: also counts the route and tells init. */
void hooks_ready_slow(void);

static inline void
hooks_ready(void)
{
	/* acquire: what hooks_resolve() stored in `real` before it published the state */
	if (__builtin_expect(atomic_load_explicit(&hooks_state, memory_order_acquire) ==
				     HOOKS_UNRESOLVED,
			     0))
		hooks_ready_slow();
}

/* Has this driver every REQUIRED function? False before hooks_resolve() found it. */
static inline bool
hooks_are_complete(void)
{
	return atomic_load_explicit(&hooks_state, memory_order_acquire) == HOOKS_COMPLETE;
}

/* Do look-ups hand out hooks? Not with POOLSHIM_MODE=off, nor with an incomplete driver. */
bool hooks_are_handed_out(void);

/* The row of an exported driver name; NULL: not hooked. Calls no libc function. */
const struct hook *hook_by_symbol(const char *name);

/* Is there a row that cuGetProcAddress callers ask for by this name? */
bool hook_has_query(const char *name);

/*
 * The row whose real function is at `real_ptr`; NULL: none. Several rows may share one function:
 * what counts then is the name (exported or asked for), then stream 0, then that the exported name
 * is `name`.
 */
const struct hook *hook_by_real(const void *real_ptr, const char *name, enum hook_stream0 stream0);
