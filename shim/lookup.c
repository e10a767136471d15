/* SPDX-License-Identifier: MIT */
#include "shim/lookup.h"

#include <dlfcn.h>
#include <stdatomic.h>
#include <stddef.h>

#include "shim/coverage.h"
#include "shim/elf_walk.h"
#include "shim/hooks.h"
#include "shim/init.h"
#include "shim/runtime_find.h"

/*
 * How an answer is found. "From here" means evaluated at this library's place in the search order,
 * which is where the program would stand in without it:
 *
 *   a handle       the real answer; if that is this library's own export (dlopen(NULL)): from here
 *   RTLD_DEFAULT   the real answer; if that is this library's own export: from here, then the
 *                  caller's own object and what it needs (a plug-in may be loaded RTLD_LOCAL)
 *   RTLD_NEXT      from here, except where another interposer matters: one that stands between the
 *                  caller and this library is the answer, and one that calls is not its own next
 *
 * The last call made into the loader is always the one that decides, so dlerror() tells what it
 * natively tells.
 */
struct question {
	const char *name;
	const char *version; /* NULL: asked by dlsym */
	const void *caller;
	bool is_from_driver;
	const struct libc_calls *libc;
};

static struct libc_calls libc_calls;
static atomic_bool libc_is_found;

ELF_WALK_EARLY static bool
find_libc_calls(const char *basename)
{
	const struct link_map *map = elf_find_startup_object(basename);
	struct elf_symbols symbols;
	void *found[4];

	if (!map || !elf_symbols_init(&symbols, map->l_addr, map->l_ld))
		return false;
	found[0] = elf_find_function(&symbols, "dlsym");
	found[1] = elf_find_function(&symbols, "dlvsym");
	found[2] = elf_find_function(&symbols, "dlopen");
	found[3] = elf_find_function(&symbols, "dlclose");
	if (!found[0] || !found[1] || !found[2] || !found[3])
		return false;
	/* relaxed: threads that meet here store the same values; the flag below publishes them */
	__atomic_store_n((void **)&libc_calls.dlsym, found[0], __ATOMIC_RELAXED);
	__atomic_store_n((void **)&libc_calls.dlvsym, found[1], __ATOMIC_RELAXED);
	__atomic_store_n((void **)&libc_calls.dlopen, found[2], __ATOMIC_RELAXED);
	__atomic_store_n((void **)&libc_calls.dlclose, found[3], __ATOMIC_RELAXED);
	atomic_store_explicit(&libc_is_found, true, memory_order_release);
	return true;
}

ELF_WALK_EARLY const struct libc_calls *
lookup_libc(void)
{
	if (atomic_load_explicit(&libc_is_found, memory_order_acquire))
		return &libc_calls;
	/* before glibc 2.34 these functions are libdl's */
	if (find_libc_calls("libc.so.6") || find_libc_calls("libdl.so.2"))
		return &libc_calls;
	return NULL;
}

bool
lookup_is_driver_path(const char *path)
{
	const char *name = elf_basename(path);

	return elf_name_starts_with(name, "libcuda.so") ||
	       elf_name_starts_with(name, "libcuda_loader.so") || /* WSL */
	       elf_name_starts_with(name, "libcudadebugger.so") ||
	       elf_name_starts_with(name, "libnvidia-");
}

bool
lookup_is_driver(const void *caller)
{
	struct elf_object object;

	return elf_object_at(caller, &object) && lookup_is_driver_path(object.name);
}

/* Not a tail call: the real function must see this library as its caller. */
static void *
ask(const struct question *q, void *handle)
{
	void *found = q->version ? q->libc->dlvsym(handle, q->name, q->version)
				 : q->libc->dlsym(handle, q->name);

	__asm__ volatile("" : "+r"(found));
	return found;
}

static void *
ask_from_here(const struct question *q)
{
	return ask(q, RTLD_NEXT);
}

/*
 * NULL, with the error that a missing symbol leaves: libc has no name of ours. Its link map would
 * not do for a handle: an object has a search list of its own only once it was opened.
 */
static void *
answer_missing(const struct question *q)
{
	static _Atomic(void *) known; /* relaxed: all handles of libc, which stays, are one */
	void *libc_handle = atomic_load_explicit(&known, memory_order_relaxed);

	if (elf_is_starting_up())
		return NULL;
	if (!libc_handle) {
		libc_handle = q->libc->dlopen("libc.so.6", RTLD_LAZY | RTLD_NOLOAD);
		atomic_store_explicit(&known, libc_handle, memory_order_relaxed);
	}
	return libc_handle ? ask(q, libc_handle) : NULL;
}

static bool
is_our_own(const struct question *q, const void *found)
{
	const struct hook *hook = hook_by_symbol(q->name);

	return found && found == (hook ? hook->wrapper : runtime_wrapper_by_symbol(q->name));
}

static void *
answer_default(const struct question *q)
{
	void *found = ask(q, RTLD_DEFAULT), *handle;
	struct elf_object asker;

	if (!is_our_own(q, found))
		return found;
	found = ask_from_here(q);
	if (found || elf_is_starting_up() || !elf_object_at(q->caller, &asker) || !asker.name[0])
		return found;
	handle = q->libc->dlopen(asker.name, RTLD_LAZY | RTLD_NOLOAD);
	if (!handle)
		return ask_from_here(q);
	/* The handle outlives this reference: the code that is calling keeps its object loaded. */
	q->libc->dlclose(handle);
	found = ask(q, handle);
	return is_our_own(q, found) ? answer_missing(q) : found;
}

static void *
answer_next(const struct question *q)
{
	void *from_here = ask_from_here(q), *after;
	struct elf_object asker, here, owner;

	if (!elf_object_at(q->caller, &asker) || !elf_object_at((void *)answer_next, &here))
		return from_here;
	after = elf_find_function_after(asker.load_order, q->name);
	if (asker.load_order < here.load_order) /* another interposer may stand between */
		return is_our_own(q, after) ? from_here : after;
	if (!from_here)
		return NULL;
	if (!q->is_from_driver && hook_by_real(from_here, q->name, HOOK_STREAM0_NONE))
		return from_here; /* wherever the caller stands: this is what it is after */
	if (!elf_object_at(from_here, &owner) || asker.load_order < owner.load_order)
		return from_here;
	/* The caller owns that function or stands behind it: what comes next for it is another. */
	return after ? after : answer_missing(q);
}

static void *
answer_real(const struct question *q, void *handle)
{
	void *found;

	if (handle == RTLD_DEFAULT)
		return answer_default(q);
	if (handle == RTLD_NEXT)
		return answer_next(q);
	found = ask(q, handle);
	return is_our_own(q, found) ? ask_from_here(q) : found;
}

static void *
answer(struct question *q, void *handle)
{
	const struct hook *hook;
	void *found;

	/* At the start libcuda cannot be held yet, so its functions are not known by their
	 * addresses: the real answer. */
	if (!hook_by_symbol(q->name) || elf_is_starting_up())
		return answer_real(q, handle);

	q->is_from_driver = lookup_is_driver(q->caller);
	hooks_resolve(); /* before the answer, which has the last word on dlerror() */
	found = answer_real(q, handle);
	if (!found)
		return NULL;
	coverage_count(q->version ? COVERAGE_DLVSYM : COVERAGE_DLSYM);
	init_on_first_use();
	if (q->is_from_driver || !hooks_are_handed_out())
		return found;
	hook = hook_by_real(found, q->name, HOOK_STREAM0_NONE);
	return hook && hook->wrapper ? hook->wrapper : found;
}

/* dlsym for a name of ours; the caller is the return address, put there by assembly. */
static void *
answer_dlsym(void *handle, const char *name, const void *caller)
{
	struct question q = {.name = name, .caller = caller, .libc = lookup_libc()};

	return answer(&q, handle);
}

static void *
answer_dlvsym(void *handle, const char *name, const char *version, const void *caller)
{
	struct question q = {
		.name = name, .version = version, .caller = caller, .libc = lookup_libc()};

	return answer(&q, handle);
}

/* Where the real functions are not to be found, every name is missing. */
ELF_WALK_EARLY static void *
answer_nothing(void)
{
	return NULL;
}

ELF_WALK_EARLY static bool
is_owned(const char *name)
{
	if (!name || name[0] != 'c' || name[1] != 'u')
		return false;
	return hook_by_symbol(name) || runtime_wrapper_by_symbol(name);
}

ELF_WALK_EARLY void *
lookup_dlsym_target(const char *name)
{
	const struct libc_calls *libc = lookup_libc();

	if (!libc)
		return (void *)answer_nothing;
	if (is_owned(name))
		return (void *)answer_dlsym;
	hooks_note_name(name);
	return (void *)libc->dlsym;
}

ELF_WALK_EARLY void *
lookup_dlvsym_target(const char *name)
{
	const struct libc_calls *libc = lookup_libc();

	if (!libc)
		return (void *)answer_nothing;
	if (is_owned(name))
		return (void *)answer_dlvsym;
	hooks_note_name(name);
	return (void *)libc->dlvsym;
}
