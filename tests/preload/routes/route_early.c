/* SPDX-License-Identifier: MIT */
/*
 * Look-ups before main: while the program is relocated (an indirect function's resolver), in
 * .preinit_array, before any library's constructor, and in a constructor. Also built with
 * AddressSanitizer: the first two come before it is ready, so they may use nothing of it, and a
 * name that is missing, for which the loader allocates, ends such a program even without the shim.
 */
#include "route.h"

#define EARLY __attribute__((no_sanitize("address", "undefined", "thread"), noinline))

#ifdef __SANITIZE_ADDRESS__
#define IS_ASAN true
#else
#define IS_ASAN false
#endif

enum moment {
	AT_RELOCATION,
	AT_PREINIT,
	AT_CONSTRUCTOR,
	N_MOMENTS,
};

static const char *const moments[N_MOMENTS] = {"relocation", "preinit", "constructor"};

static struct {
	bool was_there;
	void *foreign, *missing, *owned, *versioned;
} seen[N_MOMENTS];

EARLY static void
look(enum moment moment)
{
	seen[moment].was_there = true;
	seen[moment].foreign = dlsym(RTLD_DEFAULT, "malloc");
	if (IS_ASAN && moment == AT_RELOCATION)
		return;
	seen[moment].owned = dlsym(RTLD_DEFAULT, "cuMemAlloc_v2");
	seen[moment].missing = dlsym(RTLD_NEXT, "no_such_function");
	seen[moment].versioned = dlvsym(RTLD_DEFAULT, "malloc", "NONE_1");
}

static int
one(void)
{
	return 1;
}

/* The loader asks which function it is: before this program's own code may run otherwise. */
EARLY static int (*pick(void))(void)
{
	look(AT_RELOCATION);
	return one;
}

int indirect(void) __attribute__((ifunc("pick")));

EARLY static void
preinit(void)
{
	look(AT_PREINIT);
}

__attribute__((section(".preinit_array"), used)) static void (*const preinit_entry)(void) = preinit;

__attribute__((constructor)) static void
construct(void)
{
	look(AT_CONSTRUCTOR);
}

#ifdef ROUTE_LINKED
int cuInit(unsigned int flags);

/* Before libc is set up the shim cannot hold libcuda, and leaves the answer as it is. */
static void
check_owned(enum moment moment)
{
	const char *want = moment == AT_CONSTRUCTOR ? route_hooked_object() : "libcuda.so";

	route_check(route_is_in(seen[moment].owned, want), "%s: in %s, wanted %s", moments[moment],
		    route_object(seen[moment].owned), want);
}
#else
static void
check_owned(enum moment moment)
{
	route_check(!seen[moment].owned, "%s: no libcuda, no hook", moments[moment]);
}
#endif

int
main(void)
{
	route_check(indirect() == 1, "the indirect function works");
	route_check(getenv("LD_LIBRARY_PATH"), "the program has its environment");
	for (int i = 0; i < N_MOMENTS; i++) {
		route_check(seen[i].was_there, "%s: looked", moments[i]);
		route_check(seen[i].foreign == dlsym(RTLD_DEFAULT, "malloc"),
			    "%s: a foreign name is what it is later", moments[i]);
		check_owned(i);
		route_check(!seen[i].missing && !seen[i].versioned,
			    "%s: what is not there is not found", moments[i]);
	}
#ifdef ROUTE_LINKED
	route_check(cuInit(0) == 0, "cuInit works");
#else
	route_check(dlopen("libcuda.so.1", RTLD_NOW), "libcuda loads");
#endif
	return route_end();
}
