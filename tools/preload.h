/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * LD_PRELOAD of a program that is to run under the shim.
 *
 * The loader splits the variable at spaces and colons and knows no quoting, so a library in a
 * folder whose name holds one is loaded by its bare name through LD_LIBRARY_PATH.
 * No locking: one thread. What is returned belongs to the caller.
 */
#include <stdbool.h>

/* Where the library is: beside the command in a build tree, else where it was installed, else the
 * bare name, which the loader looks for. */
char *preload_find_library(void);

/*
 * Adds the library to an environment (as from g_get_environ()) and returns the new one. What was
 * preloaded before stays, in front: a sanitizer's library must come first. False when the folder's
 * name holds a colon, which no variable of the loader can express; the environment is unchanged.
 */
bool preload_add(char ***environment, const char *library);
