/* SPDX-License-Identifier: MIT */
/* The program above a second interposer (route_layer.c), preloaded before or after the shim. */
#include "route.h"

typedef int init_fn(unsigned int flags);

static void
check_init(init_fn *init, const char *how, bool must_pass_layer)
{
	int (*n_inits)(void) = (int (*)(void))dlsym(RTLD_DEFAULT, "route_layer_n_inits");
	int n_before = n_inits(), n_after;

	if (!init) {
		route_check(false, "%s finds cuInit", how);
		return;
	}
	route_check(init(0) == 0, "%s: cuInit reaches the driver", how);
	n_after = n_inits();
	route_check(n_after - n_before == must_pass_layer, "%s: passed the interposer %d times",
		    how, n_after - n_before);
}

int
main(void)
{
	void *(*start)(unsigned int, const char *) =
		(void *(*)(unsigned int, const char *))dlsym(RTLD_DEFAULT, "ompt_start_tool");
	void *libcuda = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);

	if (!libcuda || !start) {
		route_check(false, "libcuda and the interposer are loaded");
		return route_end();
	}
	route_check(!start(5, "test"), "a weak forwarder finds nothing after itself");
	route_check(dlsym(RTLD_NEXT, "ompt_start_tool") == (void *)start,
		    "the program's next is the interposer");

	check_init((init_fn *)dlsym(RTLD_DEFAULT, "cuInit"), "RTLD_DEFAULT", true);
	check_init((init_fn *)dlsym(RTLD_NEXT, "cuInit"), "RTLD_NEXT", true);
	check_init((init_fn *)dlsym(libcuda, "cuInit"), "handle", false);
	return route_end();
}
