/* SPDX-License-Identifier: MIT */
/*
 * A library that asks dlsym from its own place in the search order. Built in several ways: it
 * may need libcuda, and it may bear a driver library's name.
 */
#include <dlfcn.h>

void *route_ask(void *handle, const char *name);

#ifdef ROUTE_NEEDS_CUDA
int cuDriverGetVersion(int *version);

extern int (*route_need)(int *version);
int (*route_need)(int *version) = cuDriverGetVersion;
#endif

void *
route_ask(void *handle, const char *name)
{
	void *found = dlsym(handle, name);

	/* not a tail call: this library is the caller that dlsym sees */
	__asm__ volatile("" : "+r"(found));
	return found;
}
