/* SPDX-License-Identifier: MIT */
/*
 * dlsym and dlvsym on every kind of handle: route_dlsym [VERSION], with the version of libcuda's
 * names if it has one. Also built with AddressSanitizer, whose runtime asks dlsym before its own
 * string functions work.
 */
#include "route.h"

#include <search.h>

static const char *libcuda_version; /* NULL: none; whether dlvsym then finds its names varies */

static const char *const hooked[] = {
#define HOOK(symbol, query, stream0, need) #symbol,
#include "shim/hooks.def"
#undef HOOK
#define DRIVER_API_VERSION(version)
#define DRIVER(symbol, ...)
#define SUBMIT(symbol, ...) #symbol,
#define SYNC(symbol, ...) #symbol,
#include "shim/driver_api.def"
};

enum {
	N_HOOKED = sizeof(hooked) / sizeof(hooked[0]),
};

static void
check_missing(void *handle, const char *handle_name, const char *name)
{
	const char *error;
	char want[128];

	snprintf(want, sizeof(want), "undefined symbol: %s", name);
	dlerror();
	route_check(!dlsym(handle, name), "%s: %s is missing", handle_name, name);
	error = dlerror();
	route_check(error && strstr(error, want), "%s: dlerror names %s (%s)", handle_name, name,
		    error ? error : "no error");
	route_check(!dlvsym(handle, name, "NONE_1"), "%s: dlvsym misses %s too", handle_name, name);
	route_check(dlerror(), "%s: dlvsym of %s leaves an error", handle_name, name);
}

static void
check_before_load(void)
{
	void *self = dlopen(NULL, RTLD_LAZY);

	check_missing(RTLD_DEFAULT, "RTLD_DEFAULT without libcuda", "cuInit");
	check_missing(RTLD_NEXT, "RTLD_NEXT without libcuda", "cuInit");
	check_missing(self, "dlopen(NULL) without libcuda", "cuMemAlloc_v2");
	check_missing(RTLD_DEFAULT, "RTLD_DEFAULT without a runtime", "cudaMalloc");
	check_missing(RTLD_NEXT, "RTLD_NEXT without a runtime", "cudaFree");
	check_missing(RTLD_DEFAULT, "RTLD_DEFAULT", "cuNoSuchFunction");
	check_missing(RTLD_DEFAULT, "RTLD_DEFAULT", "no_such_function");
	dlclose(self);
}

/* Is this the function of that name? An alias in libcuda may go by another. */
static bool
is_named(void *function, const char *name)
{
	Dl_info info;

	return !route_is_hooking() ||
	       (dladdr(function, &info) && info.dli_sname && !strcmp(info.dli_sname, name));
}

/* Every row: found where it should be, the same each time, and by both functions. */
static void
check_every_row(void *handle, const char *handle_name)
{
	int n_misplaced = 0, n_changed = 0, n_unlike = 0, n_missing = 0;

	for (int i = 0; i < N_HOOKED; i++) {
		void *found = dlsym(handle, hooked[i]), *versioned;

		if (!found) {
			n_missing++;
			continue;
		}
		if (!route_is_in(found, route_hooked_object()) || !is_named(found, hooked[i])) {
			printf("# %s: %s is in %s\n", handle_name, hooked[i], route_object(found));
			n_misplaced++;
		}
		if (found != dlsym(handle, hooked[i]))
			n_changed++;
		versioned = dlvsym(handle, hooked[i], libcuda_version ? libcuda_version : "NONE_1");
		if (versioned != found && (versioned || libcuda_version))
			n_unlike++;
	}
	route_check(!n_misplaced, "%s: rows lead to their functions in %s", handle_name,
		    route_hooked_object());
	route_check(!n_changed, "%s: asked again: the same answer", handle_name);
	route_check(!n_unlike, "%s: dlvsym %s", handle_name,
		    libcuda_version ? "gives the same" : "gives the same or nothing");
	route_check(n_missing < N_HOOKED / 2, "%s: %d of %d rows are found", handle_name,
		    N_HOOKED - n_missing, N_HOOKED);
}

static void
check_handle(void *handle, const char *handle_name)
{
	check_every_row(handle, handle_name);
	route_check(route_is_in(dlsym(handle, "cuCtxGetCurrent"), "libcuda.so"),
		    "%s: a driver function without a row is libcuda's", handle_name);
	check_missing(handle, handle_name, "cuNoSuchFunction");

	dlsym(handle, "no_such_function"); /* leaves an error, which the next success takes away */
	dlsym(handle, "cuInit");
	route_check(!dlerror(), "%s: a found name leaves no error", handle_name);
}

/* The version of libc's oldest names */
#ifdef __x86_64__
#define LIBC_VERSION "GLIBC_2.2.5"
#else
#define LIBC_VERSION "GLIBC_2.17"
#endif

static void
check_foreign_names(void)
{
	void *libc = dlopen("libc.so.6", RTLD_LAZY);

	route_check(dlsym(libc, "lfind") == (void *)lfind, "a libc name is libc's");
	route_check(route_is_in(dlvsym(RTLD_DEFAULT, "lfind", LIBC_VERSION), "libc.so.6"),
		    "a versioned libc name is libc's");
	route_check(!dlvsym(RTLD_DEFAULT, "lfind", "GLIBC_99"), "an unknown version is missing");
	route_check(dlerror(), "an unknown version leaves an error");
	dlclose(libc);
}

int
main(int argc, char **argv)
{
	int (*init)(unsigned int);
	void *local, *global, *self;

	libcuda_version = argc > 1 ? argv[1] : NULL;
	check_before_load();
	check_foreign_names();

	local = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
	if (!local) {
		route_check(false, "libcuda.so.1 loads: %s", dlerror());
		return route_end();
	}
	check_handle(local, "handle");
	check_missing(RTLD_DEFAULT, "RTLD_DEFAULT with a local libcuda", "cuInit");
	check_missing(RTLD_NEXT, "RTLD_NEXT with a local libcuda", "cuInit");

	global = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
	self = dlopen(NULL, RTLD_LAZY);
	check_handle(RTLD_DEFAULT, "RTLD_DEFAULT");
	check_handle(RTLD_NEXT, "RTLD_NEXT");
	check_handle(self, "dlopen(NULL)");

	init = (int (*)(unsigned int))dlsym(local, "cuInit");
	route_check(init(0) == 0, "cuInit works through its pointer");
	if (route_is_preloaded()) {
		dlclose(global);
		dlclose(local);
		route_check(init(0) == 0, "a hook works after the program closed libcuda");
	}
	return route_end();
}
