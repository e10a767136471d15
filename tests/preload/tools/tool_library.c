/* SPDX-License-Identifier: MIT */
/*
 * A stand-in for the library that a tool brings into the process: preloaded, or loaded by the
 * driver. What tells one tool from another is its file name.
 */
#include <stddef.h>

extern int tool_n_initialized;
int tool_n_initialized;

int InitializeInjection(void);

int
InitializeInjection(void)
{
	tool_n_initialized++;
	return 1;
}
