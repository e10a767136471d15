/* SPDX-License-Identifier: MIT */
/*
 * A library as OpenMP's tools and runtimes are: a weak start function that forwards to whatever
 * comes next, and look-ups whose answer depends on who asks. TOOL_NAME makes several of them
 * different.
 */
#include <dlfcn.h>
#include <stddef.h>

#define EXPORT __attribute__((visibility("default")))
#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)

/* clang can be told to jump; gcc does so when it optimises. */
#ifdef __clang__
#define TAIL_CALL __attribute__((musttail))
#else
#define TAIL_CALL
#endif

EXPORT const char *ompt_start_tool(unsigned int depth);
EXPORT int cuInit(unsigned int flags);
EXPORT void *JOIN(tail_next_, TOOL_NAME)(void *handle, const char *name);
EXPORT void *JOIN(plain_next_, TOOL_NAME)(void *handle, const char *name);
EXPORT void *JOIN(tail_version_, TOOL_NAME)(void *handle, const char *name, const char *version);
EXPORT int JOIN(n_inits_, TOOL_NAME)(void);

static int n_inits;

/* How often it was passed on before nobody was next; more than there are libraries: for ever. */
EXPORT __attribute__((weak)) const char *
ompt_start_tool(unsigned int depth)
{
	const char *(*next)(unsigned int);
	static const char *const depths[] = {"next 0", "next 1", "next 2", "next 3"};

	if (depth >= sizeof(depths) / sizeof(depths[0]))
		return "itself";
	next = (const char *(*)(unsigned int))dlsym(RTLD_NEXT, "ompt_start_tool");
	return next ? next(depth + 1) : depths[depth];
}

EXPORT __attribute__((weak)) int
cuInit(unsigned int flags)
{
	int (*next)(unsigned int) = (int (*)(unsigned int))dlsym(RTLD_NEXT, "cuInit");

	if (!next || n_inits++ > 8)
		return -1;
	return next(flags);
}

EXPORT int
JOIN(n_inits_, TOOL_NAME)(void)
{
	return n_inits;
}

/* The jump leaves this library's caller as the one that asks. */
EXPORT void *
JOIN(tail_next_, TOOL_NAME)(void *handle, const char *name)
{
	TAIL_CALL return dlsym(handle, name);
}

EXPORT void *
JOIN(tail_version_, TOOL_NAME)(void *handle, const char *name, const char *version)
{
	TAIL_CALL return dlvsym(handle, name, version);
}

EXPORT void *
JOIN(plain_next_, TOOL_NAME)(void *handle, const char *name)
{
	void *found = dlsym(handle, name);

	__asm__ volatile("" : "+r"(found));
	return found;
}
