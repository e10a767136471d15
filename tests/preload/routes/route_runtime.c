/* SPDX-License-Identifier: MIT */
/*
 * Several shared runtimes in one process: route_runtime USER_12 USER_13 USER_ANY. Each plug-in is
 * loaded locally and must reach the runtime that it links; the third links none.
 */
#include "route.h"

struct user {
	void *handle;
	int (*runtime)(void);
	void *(*malloc_pointer)(void);
};

static struct user
load(const char *path)
{
	struct user user = {.handle = dlopen(path, RTLD_LAZY | RTLD_LOCAL)};

	if (!user.handle) {
		route_check(false, "%s loads: %s", path, dlerror());
		exit(route_end());
	}
	user.runtime = (int (*)(void))dlsym(user.handle, "route_runtime_of_user");
	user.malloc_pointer = (void *(*)(void))dlsym(user.handle, "route_malloc_of_user");
	return user;
}

static void
check_user(const struct user *user, int runtime)
{
	for (int i = 0; i < 2; i++)
		route_check(user->runtime() == runtime, "call %d reaches runtime %d", i, runtime);
	/* a definition without a version satisfies cudaMalloc@libcudart.so.N */
	route_check(route_is_in(user->malloc_pointer(),
				route_is_preloaded() ? "libpoolshim" : "libcudart.so"),
		    "the linked cudaMalloc is in %s", route_object(user->malloc_pointer()));
	route_check(route_is_in(dlsym(user->handle, "cudaMalloc"), "libcudart.so"),
		    "by handle it is the runtime's own");
}

int
main(int argc, char **argv)
{
	struct user user;

	if (argc != 4)
		return 2;
	if (route_is_preloaded()) {
		int (*linked)(void **, size_t) = NULL;

		user = load(argv[3]);
		linked = (int (*)(void **, size_t))user.malloc_pointer();
		route_check(linked(&(void *){NULL}, 1) == 3,
			    "without any runtime: cudaErrorInitializationError");
	}
	user = load(argv[1]);
	check_user(&user, 12);
	user = load(argv[2]);
	check_user(&user, 13);
	route_check(!dlsym(RTLD_DEFAULT, "cudaMalloc"), "RTLD_DEFAULT finds no local runtime");
	if (route_is_preloaded()) {
		user = load(argv[3]);
		route_check(user.runtime() == 12, "one that links none gets the first loaded");
	}
	return route_end();
}
