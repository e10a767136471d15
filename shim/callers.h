/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * Which object asked for memory: from the return address of a driver hook to a tag for the pool.
 *
 * An object is known by its path. It keeps its tag when it is unloaded, since its blocks may live
 * on, and gets the same one when it is loaded again. Some tags are no object's: code that lies in
 * no object (a just-in-time compiler's, say), and every object that the table has no place for.
 *
 * Answers are remembered by address, so they are only as good as the knowledge of what was unloaded
 * since: this library exports dlclose for that. While one is under way nothing that is remembered
 * is used, and when it ends all of it is forgotten. An unload that passes by this library (in a
 * plug-in loaded with RTLD_DEEPBIND) is noticed at the next address that is not remembered.
 *
 * Locking: none for an address that is remembered. Others take the loader's lock, as
 * dl_iterate_phdr does, and a leaf of this file; call with no lock held.
 */
#include <stdint.h>

#include "pool/stats.h"

enum {
	CALLERS_DRIVER,    /* nobody asked: the driver took it for itself */
	CALLERS_OTHER,     /* objects beyond the table's end */
	CALLERS_ANONYMOUS, /* code in no object */
	CALLERS_FIRST,     /* the first object's */
};

/* The tag of the code at return_address. */
unsigned callers_tag(const void *return_address);

/*
 * The path of the object with this tag, "" for the main program; words in brackets for the tags
 * above; NULL: the tag is not in use. Valid for ever.
 */
const char *callers_path(unsigned tag);

/* Around an unload: between the two nothing remembered is used. */
void callers_begin_unload(void);
void callers_end_unload(void);
