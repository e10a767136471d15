/* SPDX-License-Identifier: MIT */
/*
 * Runtime entries: they note who called and forward to that caller's own runtime, so last-error and
 * lazy initialisation stay the runtime's. The memory is served one level below, by the driver
 * hooks.
 */
#include "shim/hook_runtime.h"

#include <stdbool.h>

#include "shim/runtime_find.h"

/* The bounds of this library, from the linker. */
extern const char __ehdr_start[] __attribute__((visibility("hidden")));
extern const char _end[] __attribute__((visibility("hidden")));

struct call_site {
	const void *caller; /* NULL: the thread is in no such call */
	uintptr_t runtime_start, runtime_end;
};

static _Thread_local struct call_site current_site;

static bool
is_own(const void *address)
{
	return (const char *)address >= __ehdr_start && (const char *)address < _end;
}

/* A runtime may end its entry with a jump to the driver: that one returns into the wrapper. */
const void *
runtime_call_site(const void *return_address)
{
	const struct call_site *site = &current_site;
	const uintptr_t address = (uintptr_t)return_address;

	if (__builtin_expect(!site->caller, 1))
		return return_address;
	return is_own(return_address) ||
			       (address >= site->runtime_start && address < site->runtime_end)
		       ? site->caller
		       : return_address;
}

/*
 * A runtime may end one entry with a jump to another. That one returns into the wrapper of the
 * first, whose caller is the one that counts.
 */
static const void *
site_of(const void *return_address)
{
	return is_own(return_address) && current_site.caller ? current_site.caller : return_address;
}

/* A call inside another (from a host function, say) gives the outer site back when it ends. */
#define RUNTIME_HOOK(symbol, parameters, arguments) \
	cudaError_t symbol parameters \
	{ \
		const void *caller = site_of(__builtin_return_address(0)); \
		const struct runtime_calls *calls = runtime_calls_of(caller); \
		struct call_site outer = current_site; \
		cudaError_t r; \
\
		current_site = (struct call_site){caller, calls->start, calls->end}; \
		r = calls->symbol arguments; \
		current_site = outer; \
		return r; \
	}
#include "shim/runtime_hooks.def"
#undef RUNTIME_HOOK
