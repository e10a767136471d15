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
	const void *caller;
};

static _Thread_local struct call_site current_site;

const void *
runtime_call_site(void)
{
	return current_site.caller;
}

/*
 * A runtime may end one entry with a jump to another. That one returns into the wrapper of the
 * first, whose caller is the one that counts.
 */
static const void *
site_of(const void *return_address)
{
	const char *address = return_address;
	bool is_own = address >= __ehdr_start && address < _end;

	return is_own && current_site.caller ? current_site.caller : return_address;
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
		current_site.caller = caller; \
		r = calls->symbol arguments; \
		current_site = outer; \
		return r; \
	}
#include "shim/runtime_hooks.def"
#undef RUNTIME_HOOK
