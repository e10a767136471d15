/* SPDX-License-Identifier: MIT */
/*
 * Another preloaded library that wraps dlclose, as memory profilers do: it stands behind the shim,
 * and calls back when an object is gone and the shim's own dlclose has not yet returned.
 */
#include <dlfcn.h>
#include <stddef.h>

extern void (*layer_after_close)(void);
extern int layer_n_closes;
void (*layer_after_close)(void);
int layer_n_closes;

int
dlclose(void *handle)
{
	int (*next)(void *) = (int (*)(void *))dlsym(RTLD_NEXT, "dlclose");
	int r = next(handle);

	__atomic_fetch_add(&layer_n_closes, 1, __ATOMIC_RELAXED);
	if (layer_after_close)
		layer_after_close();
	return r;
}
