/* SPDX-License-Identifier: MIT */
#include "shim/runtime_find.h"

#include <dlfcn.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include "shim/coverage.h"
#include "shim/elf_walk.h"
#include "shim/lookup.h"

enum {
	MAX_CALLERS = 64, /* objects that link a runtime; more are looked up at every call */
};

static const struct runtime_row {
	const char *symbol;
	const void *wrapper;
	size_t offset; /* in struct runtime_calls */
} rows[] = {
#define RUNTIME_HOOK(symbol, parameters, arguments) \
	{#symbol, (const void *)symbol, offsetof(struct runtime_calls, symbol)},
#include "shim/runtime_hooks.def"
#undef RUNTIME_HOOK
};

enum {
	N_ROWS = sizeof(rows) / sizeof(rows[0]),
};

struct known_caller {
	uintptr_t start;
	uintptr_t end;
	struct runtime_calls calls;
	atomic_bool is_ready;
};

static struct known_caller callers[MAX_CALLERS];
static atomic_uint n_claimed; /* may pass MAX_CALLERS */

ELF_WALK_EARLY const void *
runtime_wrapper_by_symbol(const char *name)
{
	for (unsigned int i = 0; i < N_ROWS; i++)
		if (elf_names_are_equal(rows[i].symbol, name))
			return rows[i].wrapper;
	return NULL;
}

static cudaError_t
answer_no_runtime(void)
{
	return cudaErrorInitializationError;
}

static const struct runtime_calls no_runtime = {
#define RUNTIME_HOOK(symbol, parameters, arguments) .symbol = (void *)answer_no_runtime,
#include "shim/runtime_hooks.def"
#undef RUNTIME_HOOK
};

/* Fills ret_calls if the first row is found there, and is not this library's. */
static bool
find_calls(void *handle, struct runtime_calls *ret_calls)
{
	const struct libc_calls *libc = lookup_libc();
	void *found = libc->dlsym(handle, rows[0].symbol);

	if (!found || found == rows[0].wrapper)
		return false;
	*ret_calls = no_runtime;
	for (unsigned int i = 0; i < N_ROWS; i++) {
		found = libc->dlsym(handle, rows[i].symbol);
		if (found && found != rows[i].wrapper)
			*(void **)((char *)ret_calls + rows[i].offset) = found;
	}
	return true;
}

/* A handle of a loaded object, with a reference of its own; NULL: not loaded. */
static void *
take_handle(const struct elf_object *object)
{
	return lookup_libc()->dlopen(object->name[0] ? object->name : NULL,
				     RTLD_LAZY | RTLD_NOLOAD);
}

static bool
find_calls_in_object(const struct elf_object *object, struct runtime_calls *ret_calls)
{
	void *handle = take_handle(object);
	bool is_found;

	if (!handle)
		return false;
	is_found = find_calls(handle, ret_calls);
	lookup_libc()->dlclose(handle);
	return is_found;
}

/* The first object behind this library that has a runtime, whatever it is called and however it was
 * loaded. */
static bool
find_runtime_object(struct elf_object *ret_object)
{
	struct elf_object here;
	void *found;

	if (elf_object_named("libcudart.so", ret_object))
		return true;
	if (!elf_object_at((void *)find_runtime_object, &here))
		return false;
	found = elf_find_function_after(here.load_order, rows[0].symbol);
	return found && elf_object_at(found, ret_object);
}

/* The reference is never given back: what is remembered here must stay callable. */
static void
keep_loaded(struct runtime_calls *calls)
{
	struct elf_object object;

	if (!elf_object_at(*(void *const *)((const char *)calls + rows[0].offset), &object))
		return;
	take_handle(&object);
	calls->start = object.start;
	calls->end = object.end;
}

static bool
find_runtime(const struct elf_object *caller, struct runtime_calls *ret_calls)
{
	struct elf_object runtime;

	if (!lookup_libc())
		return false;
	if (!(caller && find_calls_in_object(caller, ret_calls)) &&
	    !find_calls(RTLD_NEXT, ret_calls) &&
	    !(find_runtime_object(&runtime) && find_calls_in_object(&runtime, ret_calls)))
		return false;
	keep_loaded(ret_calls);
	return true;
}

static const struct runtime_calls *
find_known(uintptr_t caller)
{
	unsigned int n = atomic_load_explicit(&n_claimed, memory_order_relaxed);

	for (unsigned int i = 0; i < n && i < MAX_CALLERS; i++) {
		const struct known_caller *known = &callers[i];

		/* acquire: the entry, from the release in remember() */
		if (atomic_load_explicit(&known->is_ready, memory_order_acquire) &&
		    caller >= known->start && caller < known->end)
			return &known->calls;
	}
	return NULL;
}

/* Two threads may remember one caller twice: the first entry answers. */
static void
remember(const struct elf_object *caller, const struct runtime_calls *calls)
{
	/* relaxed: hands out places only; is_ready publishes them */
	unsigned int place = atomic_fetch_add_explicit(&n_claimed, 1, memory_order_relaxed);

	if (place >= MAX_CALLERS)
		return;
	callers[place].start = caller->start;
	callers[place].end = caller->end;
	callers[place].calls = *calls;
	atomic_store_explicit(&callers[place].is_ready, true, memory_order_release);
}

const struct runtime_calls *
runtime_calls_of(const void *caller)
{
	static _Thread_local struct runtime_calls found;
	const struct runtime_calls *known = find_known((uintptr_t)caller);
	struct elf_object object;
	bool has_object;

	if (known)
		return known;
	has_object = elf_object_at(caller, &object);
	if (!find_runtime(has_object ? &object : NULL, &found))
		return &no_runtime;
	coverage_count(COVERAGE_RUNTIME);
	if (has_object)
		remember(&object, &found);
	return &found;
}
