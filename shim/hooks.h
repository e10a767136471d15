/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * The table of driver functions: what this library exports of them, and the driver's own behind it.
 *
 * Made from driver_api.def (every driver function there is; those that submit or synchronise are
 * exported), hooks.def (exported, with a body by hand) and real.def (what the shim calls itself).
 * Knows names and addresses, not what a hook does.
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

#include "shim/driver_api.h"

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
#define HOOK_RETURN_ADDRESS() __builtin_extract_return_addr(__builtin_return_address(0))

/* A driver function that is known. hooks.def's rows come before those of driver_api.def. */
struct hook {
	const char *symbol; /* as exported */
	const char *query;  /* as asked of cuGetProcAddress */
	enum hook_stream0 stream0;
	enum hook_need need;
	void *wrapper; /* this library's function; NULL: it has none, the function is only known */
	void **real_slot; /* where the driver's function is, inside `real` */
};

/*
 * The driver's functions. A function of hooks.def that this driver lacks answers
 * CUDA_ERROR_NOT_FOUND, so a body may always forward; any other that it lacks is NULL.
 */
#define ROW(symbol) __typeof__(&symbol) symbol;
#define DRIVER_API_VERSION(version)
#define DRIVER(symbol, ...) ROW(symbol)
#define SUBMIT(symbol, ...) ROW(symbol)
#define SYNC(symbol, ...) ROW(symbol)
struct real_calls {
#include "shim/driver_api.def"
};
#undef ROW
#undef DRIVER
#undef SUBMIT
#undef SYNC

extern struct real_calls real;

/* These rows are what is exported; all else in this library is hidden. */
#define EXPORT(symbol) extern __typeof__(symbol) symbol __attribute__((visibility("default")));
#define HOOK(symbol, query, stream0, need) EXPORT(symbol)
#include "shim/hooks.def"
#undef HOOK
#define DRIVER(symbol, ...)
#define SUBMIT(symbol, ...) EXPORT(symbol)
#define SYNC(symbol, ...) EXPORT(symbol)
#include "shim/driver_api.def"
#undef DRIVER_API_VERSION
#undef DRIVER
#undef SUBMIT
#undef SYNC
#undef EXPORT

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

/*
 * The row whose real function is at `real_ptr`, hooked or not; NULL: none. Several rows may share
 * one function: what counts then is the name (exported or asked for), then that there is a hook,
 * then stream 0, then that the exported name is `name`.
 */
const struct hook *hook_by_real(const void *real_ptr, const char *name, enum hook_stream0 stream0);

/* Is this the form of a driver function's name? Not cudaMalloc, nor cublasCreate. Calls no libc
 * function. */
bool hooks_is_driver_name(const char *name);

/* Does libcuda export this driver function, and no row know it? */
bool hooks_is_unknown(const char *name);

/*
 * A name that is asked of dlsym and not hooked: noted (coverage.h) if it looks like a driver
 * function, libcuda exports it, and no row knows it. Calls no libc function.
 */
void hooks_note_name(const char *name);
