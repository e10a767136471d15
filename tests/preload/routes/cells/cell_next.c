/* SPDX-License-Identifier: MIT */
/* Another preloaded library, which asks for what comes after itself. */
#include <dlfcn.h>

void *cell_next(const char *symbol);

void *
cell_next(const char *symbol)
{
	void *found = dlsym(RTLD_NEXT, symbol);

	/* not a tail call: this library is the caller that dlsym sees */
	__asm__ volatile("" : "+r"(found));
	return found;
}
