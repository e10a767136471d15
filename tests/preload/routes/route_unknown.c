/* SPDX-License-Identifier: MIT */
/*
 * A driver that answers a hooked name with a function of no known name: the program gets that one.
 */
#include "route.h"

int
main(void)
{
	void *libcuda = dlopen("libcuda.so.1", RTLD_NOW), *pfn = NULL;
	int (*ask)(const char *, void **, int, unsigned long long, int *) = NULL;
	int r;

	if (libcuda)
		*(void **)&ask = dlsym(libcuda, "cuGetProcAddress_v2");
	if (!ask) {
		route_check(false, "cuGetProcAddress_v2 is there");
		return route_end();
	}
	r = ask("cuInit", &pfn, 13000, 0, NULL);
	route_check(!r && route_is_in(pfn, route_hooked_object()), "a known function is in %s",
		    route_object(pfn));
	r = ask("cuMemAlloc", &pfn, 13000, 0, NULL);
	route_check(!r && route_is_in(pfn, "libcuda.so"), "an unknown one is in %s",
		    route_object(pfn));
	route_check(ask("cuNoSuchFunction", &pfn, 13000, 0, NULL) == 500 && !pfn,
		    "a missing one is missing");
	return route_end();
}
