/* SPDX-License-Identifier: MIT */
/* A program that links the stand-in runtime with versioned references. */
#include "route.h"

int route_runtime_of_user(void);
void *route_malloc_of_user(void);

int
main(void)
{
	route_check(route_runtime_of_user() == 13, "its calls reach runtime 13");
	route_check(route_is_in(route_malloc_of_user(),
				route_is_preloaded() ? "libpoolshim" : "libcudart.so"),
		    "cudaMalloc is in %s", route_object(route_malloc_of_user()));
	route_check(route_is_in(dlsym(RTLD_DEFAULT, "cudaMalloc"), "libcudart.so"),
		    "RTLD_DEFAULT finds the runtime's own");
	route_check(route_is_in(dlsym(RTLD_NEXT, "cudaMalloc"), "libcudart.so"),
		    "so does RTLD_NEXT");
	return route_end();
}
