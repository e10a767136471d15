/* SPDX-License-Identifier: MIT */
/*
 * libcuda looks up its own functions, as NVIDIA's does on some systems: it gets what it gets alone,
 * while the program gets hooks. A hook in its hand would call itself.
 */
#include "route.h"

typedef void *ask_fn(void *handle, const char *name);

static const char *const names[] = {"cuInit",         "cuMemAlloc_v2",  "cuMemFree_v2",
				    "cuMemHostAlloc", "cuLaunchKernel", "cuGetProcAddress_v2"};

enum {
	N_NAMES = sizeof(names) / sizeof(names[0]),
};

static void
check_names(void *libcuda, const char *how)
{
	ask_fn *ask = (ask_fn *)dlsym(libcuda, "cusim_dlsym");

	for (int i = 0; i < N_NAMES; i++) {
		void *own = ask(libcuda, names[i]);
		const char *error;

		route_check(route_is_in(own, "libcuda.so"), "%s: %s by handle is libcuda's", how,
			    names[i]);
		route_check(ask(RTLD_DEFAULT, names[i]) == own, "%s: %s by RTLD_DEFAULT too", how,
			    names[i]);
		route_check(!dlerror(), "%s: %s leaves no error", how, names[i]);
		route_check(!ask(RTLD_NEXT, names[i]), "%s: %s is nowhere behind libcuda", how,
			    names[i]);
		error = dlerror();
		route_check(error && strstr(error, "undefined symbol"), "%s: %s: %s", how, names[i],
			    error ? error : "no error");
		route_check(route_is_in(dlsym(libcuda, names[i]), route_hooked_object()),
			    "%s: the program's %s is in %s", how, names[i], route_hooked_object());
	}
	route_check(ask(libcuda, "cuInit") != NULL &&
			    ((int (*)(unsigned int))ask(libcuda, "cuInit"))(0) == 0,
		    "%s: what libcuda found works", how);
}

int
main(void)
{
	void *local = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);

	if (!local) {
		route_check(false, "libcuda.so.1 loads: %s", dlerror());
		return route_end();
	}
	check_names(local, "loaded for the program alone");
	dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
	check_names(local, "loaded for all");
	return route_end();
}
