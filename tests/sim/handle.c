/* SPDX-License-Identifier: MIT */
#include "tests/sim/sim_internal.h"

#include <search.h>
#include <stdlib.h>

/*
 * The set of live handles. A program may pass anything as a handle: the device looks it up here
 * before it follows the pointer, and answers CUDA_ERROR_INVALID_HANDLE where a driver might crash.
 */

struct handle {
	const void *ptr;
	enum handle_kind kind;
};

static void *root;

static int
compare(const void *a, const void *b)
{
	const struct handle *x = a, *y = b;

	return (x->ptr > y->ptr) - (x->ptr < y->ptr);
}

CUresult
handle_add(const void *ptr, enum handle_kind kind)
{
	struct handle *handle = malloc(sizeof(*handle));

	if (!handle)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*handle = (struct handle){ptr, kind};
	if (!tsearch(handle, &root, compare)) {
		free(handle);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	return CUDA_SUCCESS;
}

static struct handle *
find(const void *ptr)
{
	struct handle key = {ptr, 0};
	struct handle **found = tfind(&key, &root, compare);

	return found ? *found : NULL;
}

bool
handle_is(const void *ptr, enum handle_kind kind)
{
	const struct handle *handle = ptr ? find(ptr) : NULL;

	return handle && handle->kind == kind;
}

void
handle_remove(const void *ptr)
{
	struct handle *handle = find(ptr);

	if (!handle)
		return;
	tdelete(handle, &root, compare);
	free(handle);
}
