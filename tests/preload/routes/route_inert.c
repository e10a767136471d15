/* SPDX-License-Identifier: MIT */
/* Under a driver that lacks a required function the shim stays out of the way. */
#include "route.h"

extern int cuMemAlloc_v2(void *ptr, size_t n_bytes) __attribute__((weak));
extern int cuMemFree_v2(unsigned long long ptr) __attribute__((weak));

int
main(void)
{
	void *libcuda = dlopen("libcuda.so.1", RTLD_NOW);

	if (!libcuda) {
		route_check(false, "libcuda.so.1 loads: %s", dlerror());
		return route_end();
	}
	route_check(route_is_in(dlsym(libcuda, "cuInit"), "libcuda.so"),
		    "look-ups get the driver's own functions");
	route_check(!dlsym(libcuda, "cuMemFree_v2"), "a missing one is missing");
	if (route_is_preloaded()) {
		route_check(cuMemAlloc_v2(NULL, 1) == 0, "a linked call reaches the driver");
		route_check(cuMemFree_v2(1) == 500, "a linked call of a missing function says so");
	}
	return route_end();
}
