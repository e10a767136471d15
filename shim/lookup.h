/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * Answers of dlsym and dlvsym for the names in hooks.def and runtime_hooks.def.
 *
 * Every other name jumps to the real function without a libc call (dlsym_x86_64.S). For ours the
 * real function is asked first; its answer is swapped for a hook by pointer. Runtime names are
 * answered with the real runtime's function, never with this library's wrapper.
 *
 * Locking: none. Nothing here allocates or prints.
 */
#include <stdbool.h>

/* libc's own functions, found in its ELF tables: by name they would be this library's. */
struct libc_calls {
	void *(*dlsym)(void *handle, const char *name);
	void *(*dlvsym)(void *handle, const char *name, const char *version);
	void *(*dlopen)(const char *path, int flags);
	int (*dlclose)(void *handle);
};

/*
 * NULL: this libc has none that can be found; then nothing is ever swapped. Calls no libc function.
 */
const struct libc_calls *lookup_libc(void);

/* Is this one of the driver's own libraries, or code inside one? They get the real answers. */
bool lookup_is_driver_path(const char *path);
bool lookup_is_driver(const void *caller);

/*
 * Where dlsym and dlvsym go for this name. Called from assembly only; may run before libc is ready.
 */
void *lookup_dlsym_target(const char *name);
void *lookup_dlvsym_target(const char *name);
