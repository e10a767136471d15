/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * What reaches CUDA past this library, read from the loader's tables at the time of a dump.
 *
 * A preloaded library is not seen by an object that was loaded with RTLD_DEEPBIND, nor in another
 * namespace (dlmopen). Neither can be helped; both can be told: the references of such an object
 * are bound to libc's dlsym or to libcuda itself, and another namespace has a libcuda that is not
 * among the objects of this one.
 *
 * No CUDA call, no allocation. Locking: the loader's list is held while it is read.
 */
#include <stdbool.h>
#include <stdint.h>

enum missed_how {
	MISSED_DEEPBIND,  /* bound to what lies behind this library */
	MISSED_NAMESPACE, /* another namespace has its own libcuda */
	MISSED_DRIVER,    /* a second libcuda, whose functions are not the known ones */
	MISSED_NO_LOOKUP, /* libcuda is loaded, and nobody came by any route that is watched */
};

enum {
	MISSED_MAX = 8,
	MISSED_NAME_BYTES = 256, /* with the end; longer paths are cut */
};

struct missed {
	unsigned int n;
	struct missed_object {
		enum missed_how how;
		char path[MISSED_NAME_BYTES];
		uintptr_t start, end; /* 0: not in this namespace */
	} objects[MISSED_MAX];
};

/* has_route: some look-up or linked call was seen so far. */
void missed_find(struct missed *ret_missed, bool has_route);

/* As the dump names it. */
const char *missed_how_name(enum missed_how how);
