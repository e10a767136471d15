/* SPDX-License-Identifier: MIT */
/*
 * A driver that answers a hooked name with a function of no known name: the program gets that one.
 * And one that has a single function for two names: what was asked for decides.
 */
#include "route.h"

typedef int ask_fn(const char *name, void **pfn, int version, unsigned long long flags,
		   int *status);

static void
check_shared(ask_fn *ask, unsigned long long flags, const char *want)
{
	void *pfn = NULL;
	Dl_info info;
	int r = ask("cuMemFreeAsync", &pfn, 13000, flags, NULL);

	route_check(!r && route_is_in(pfn, route_hooked_object()), "a shared function is in %s",
		    route_object(pfn));
	if (route_is_hooking())
		route_check(dladdr(pfn, &info) && info.dli_sname && !strcmp(info.dli_sname, want),
			    "with flags %llu it is %s", flags, info.dli_sname);
}

int
main(void)
{
	void *libcuda = dlopen("libcuda.so.1", RTLD_NOW), *pfn = NULL;
	ask_fn *ask = NULL;
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
	check_shared(ask, 0, "cuMemFreeAsync");
	check_shared(ask, 1, "cuMemFreeAsync");
	check_shared(ask, 2, "cuMemFreeAsync_ptsz");
	return route_end();
}
