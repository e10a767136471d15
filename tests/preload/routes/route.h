/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * What the route tests share: TAP lines on stdout, and where a function lies.
 *
 * A route test is an ordinary program that reaches CUDA in one way. It runs alone, with the shim
 * preloaded, and preloaded with POOLSHIM_MODE=off; the same checks hold in all three, except that
 * a hooked name leads into libpoolshim.so in the second case only.
 */
#include <dlfcn.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int route_n_checks;
static int route_n_failed;

static inline void __attribute__((format(printf, 2, 3)))
route_check(bool holds, const char *format, ...)
{
	va_list args;

	printf("%s %d - ", holds ? "ok" : "not ok", ++route_n_checks);
	va_start(args, format);
	vprintf(format, args);
	va_end(args);
	printf("\n");
	fflush(stdout);
	if (!holds)
		route_n_failed++;
}

/* The last statement of main(). */
static inline int
route_end(void)
{
	printf("1..%d\n", route_n_checks);
	return route_n_failed ? 1 : 0;
}

/* Nothing can be checked here. */
static inline int
route_skip(const char *why)
{
	printf("1..0 # SKIP %s\n", why);
	return 0;
}

/* The file name of the object that holds a function; "nothing" for NULL. */
static inline const char *
route_object(const void *function)
{
	const char *slash;
	Dl_info info;

	if (!function || !dladdr(function, &info) || !info.dli_fname)
		return "nothing";
	slash = strrchr(info.dli_fname, '/');
	return slash ? slash + 1 : info.dli_fname;
}

static inline bool
route_is_in(const void *function, const char *object)
{
	return !strncmp(route_object(function), object, strlen(object));
}

static inline bool
route_is_preloaded(void)
{
	return route_is_in(dlsym(RTLD_DEFAULT, "dlsym"), "libpoolshim");
}

/* Does the shim hand out hooks in this run? */
static inline bool
route_is_hooking(void)
{
	const char *mode = getenv("POOLSHIM_MODE");

	return route_is_preloaded() && !(mode && !strcmp(mode, "off"));
}

/* Where a hooked name must lead. */
static inline const char *
route_hooked_object(void)
{
	return route_is_hooking() ? "libpoolshim" : "libcuda.so";
}
