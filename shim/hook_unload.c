/* SPDX-License-Identifier: MIT */
/*
 * dlclose, exported so that callers.h hears of what goes. The answer is that of whoever comes next:
 * another interposer, or libc.
 */
#include <dlfcn.h>
#include <stdatomic.h>

#include "shim/callers.h"
#include "shim/lookup.h"

typedef int dlclose_fn(void *handle);

extern __typeof__(dlclose) dlclose __attribute__((visibility("default")));

/* NULL: this libc has none that can be found. */
static dlclose_fn *
next_dlclose(void)
{
	static _Atomic(dlclose_fn *) known; /* relaxed: threads that meet find the same */
	dlclose_fn *next = atomic_load_explicit(&known, memory_order_relaxed);
	const struct libc_calls *libc = lookup_libc();

	if (next || !libc)
		return next;
	next = (dlclose_fn *)libc->dlsym(RTLD_NEXT, "dlclose");
	if (!next)
		next = libc->dlclose;
	atomic_store_explicit(&known, next, memory_order_relaxed);
	return next;
}

int
dlclose(void *handle)
{
	dlclose_fn *next = next_dlclose();
	int r;

	if (!next)
		return 0; /* the object stays */
	callers_begin_unload();
	r = next(handle);
	callers_end_unload();
	return r;
}
