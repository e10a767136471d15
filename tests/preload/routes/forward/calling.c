/* SPDX-License-Identifier: MIT */
/* What the shim must not be: a dlsym that calls the real one, which then takes it for the caller.
 */
#include <dlfcn.h>
#include <stddef.h>

void *dlsym(void *handle, const char *name);

#ifdef __x86_64__
#define OLDEST "GLIBC_2.2.5"
#else
#define OLDEST "GLIBC_2.17"
#endif

void *
dlsym(void *handle, const char *name)
{
	static void *(*next)(void *, const char *);
	void *found;

	if (!next)
		next = (void *(*)(void *, const char *))dlvsym(RTLD_NEXT, "dlsym", OLDEST);
	found = next(handle, name);
	__asm__ volatile("" : "+r"(found));
	return found;
}
