/* SPDX-License-Identifier: MIT */
/* The driver's own look-ups: NVIDIA's asks dlsym for its own functions on some systems. */
#include "tests/sim/sim.h"

#include <dlfcn.h>

void *
cusim_dlsym(void *handle, const char *name)
{
	void *found = dlsym(handle, name);

	/* not a tail call: this library is the caller that dlsym sees */
	__asm__ volatile("" : "+r"(found));
	return found;
}
