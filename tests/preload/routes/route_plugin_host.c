/* SPDX-License-Identifier: MIT */
/*
 * A program that knows nothing of CUDA and loads plug-ins: route_plugin_host LOCAL DRIVER, where
 * LOCAL needs libcuda and DRIVER is named like a library of the driver.
 */
#include "route.h"

typedef void *ask_fn(void *handle, const char *name);

static ask_fn *
load(const char *path)
{
	void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	ask_fn *ask = handle ? (ask_fn *)dlsym(handle, "route_ask") : NULL;

	if (!ask) {
		route_check(false, "%s loads: %s", path, dlerror());
		exit(route_end());
	}
	return ask;
}

int
main(int argc, char **argv)
{
	ask_fn *local, *driver;
	void *libcuda;

	if (argc != 3)
		return 2;
	local = load(argv[1]);
	driver = load(argv[2]);
	libcuda = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);

	route_check(route_is_in(local(RTLD_DEFAULT, "cuMemAlloc_v2"), route_hooked_object()),
		    "a local plug-in finds the libcuda that it needs by RTLD_DEFAULT");
	route_check(!dlsym(RTLD_DEFAULT, "cuMemAlloc_v2"), "its host does not");
	route_check(!local(RTLD_DEFAULT, "cuNoSuchFunction"), "nor does it find what is not there");
	route_check(route_is_in(local(libcuda, "cuInit"), route_hooked_object()),
		    "a plug-in finds hooks by handle");
	route_check(route_is_in(driver(libcuda, "cuInit"), "libcuda.so"),
		    "a driver library gets the driver's function");
	route_check(!driver(RTLD_DEFAULT, "cuInit"), "a driver library that does not need libcuda "
						     "finds nothing by RTLD_DEFAULT");
	return route_end();
}
