/* SPDX-License-Identifier: MIT */
#include "shim/moved.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "shim/elf_walk.h"

static struct moved_calls calls;
static atomic_bool are_found;

static int
answer_missing(void)
{
	return ENOSYS;
}

static void
find(void **slot, const char *name)
{
	void *found = elf_find_first_function(name), *none = NULL;

	/*
	 * Threads that meet here find the same, and only the first store of a place changes it: one
	 * that reads it already never meets a writer. relaxed: the flag in moved() publishes it.
	 */
	__atomic_compare_exchange_n(slot, &none, found ? found : (void *)answer_missing, false,
				    __ATOMIC_RELAXED, __ATOMIC_RELAXED);
}

const struct moved_calls *
moved(void)
{
	/* acquire: the addresses, from the release below */
	if (atomic_load_explicit(&are_found, memory_order_acquire))
		return &calls;
#define MOVED(name) find((void **)&calls.name, #name);
#include "shim/moved.def"
#undef MOVED
	atomic_store_explicit(&are_found, true, memory_order_release);
	return &calls;
}
