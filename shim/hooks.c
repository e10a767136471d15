/* SPDX-License-Identifier: MIT */
#include "shim/hooks.h"

#include <dlfcn.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include "policy/size.h"
#include "shim/coverage.h"
#include "shim/elf_walk.h"
#include "shim/init.h"
#include "shim/linked.h"
#include "shim/lookup.h"

/*
 * Two open-addressing tables lead to the rows, those of hooks.def first: by exported name, built at
 * the first look-up, and by the address of the driver's function, built when libcuda is found. A
 * place is written once, by compare-and-swap, and never emptied; every thread inserts the same rows
 * in the same order, so threads that build at the same time end with one table, and one that is
 * stopped half-way (or forked away) holds up nobody.
 */
static CUresult answer_not_found(void);

struct real_calls real = {
#define HOOK(symbol, query, stream0, need) .symbol = (void *)answer_not_found,
#include "shim/hooks.def"
#undef HOOK
};

#define ROW(name, asked, zero, needed, ours) \
	{ \
		.symbol = #name, \
		.query = asked, \
		.stream0 = HOOK_STREAM0_##zero, \
		.need = HOOK_NEED_##needed, \
		.wrapper = ours, \
		.real_slot = (void **)&real.name, \
	},
static const struct hook hooks[] = {
#define HOOK(name, asked, zero, needed) ROW(name, asked, zero, needed, (void *)name)
#include "shim/hooks.def"
#undef HOOK
#define DRIVER_API_VERSION(version)
#define DRIVER(name, asked, kind, flags, zero, ...) ROW(name, asked, zero, OPTIONAL, NULL)
#define SUBMIT(name, asked, kind, flags, zero, ...) ROW(name, asked, zero, OPTIONAL, (void *)name)
#define SYNC SUBMIT
#include "shim/driver_api.def"
};

static const struct called {
	const char *symbol;
	enum hook_need need;
	void **real_slot;
} called[] = {
#define REAL(symbol, need) {#symbol, HOOK_NEED_##need, (void **)&real.symbol},
#include "shim/real.def"
#undef REAL
};

enum {
#define HOOK(name, asked, zero, needed) +1
	N_BY_HAND = 0
#include "shim/hooks.def"
	,
#undef HOOK
	N_HOOKS = sizeof(hooks) / sizeof(hooks[0]),
	N_CALLED = sizeof(called) / sizeof(called[0]),
};

/* The smallest power of two that is twice the rows at least: no probe runs for ever, few run long.
 */
#define FILL(n, shift) ((n) | (n) >> (shift))
#define ALL_BELOW(n) FILL(FILL(FILL(FILL(n, 1), 2), 4), 8)
enum {
	N_PLACES = ALL_BELOW(2 * N_HOOKS - 1) + 1,
};

_Static_assert(N_PLACES >= 2 * N_HOOKS && (N_PLACES & (N_PLACES - 1)) == 0 && N_HOOKS < UINT16_MAX,
	       "the tables do not fit the rows");

_Atomic(enum hooks_state) hooks_state = HOOKS_UNRESOLVED;

static _Atomic uint16_t rows_by_symbol[N_PLACES]; /* row + 1; 0: empty */
static _Atomic uint16_t rows_by_real[N_PLACES];
static atomic_bool symbols_are_indexed;

/* libcuda, once found; a reference to it is held. */
static _Atomic(const struct link_map *) driver_map;

static CUresult
answer_not_found(void)
{
	return CUDA_ERROR_NOT_FOUND;
}

ELF_WALK_EARLY static void
insert_row(_Atomic uint16_t *places, uint32_t hash, unsigned int row)
{
	for (;; hash++) {
		uint16_t seen = 0;

		/* relaxed: whoever publishes the whole table orders it */
		atomic_compare_exchange_strong_explicit(&places[hash % N_PLACES], &seen, row + 1,
							memory_order_relaxed, memory_order_relaxed);
		if (!seen || seen == row + 1)
			return;
	}
}

ELF_WALK_EARLY static void
index_symbols(void)
{
	for (unsigned int row = 0; row < N_HOOKS; row++)
		insert_row(rows_by_symbol, elf_hash(hooks[row].symbol), row);
	/* release: the places, for the acquire in find_row() */
	atomic_store_explicit(&symbols_are_indexed, true, memory_order_release);
}

/* The first row of an exported name, which is the one by hand where there are two. */
ELF_WALK_EARLY static const struct hook *
find_row(const char *name)
{
	uint32_t hash = elf_hash(name);
	unsigned int row;

	if (!atomic_load_explicit(&symbols_are_indexed, memory_order_acquire))
		index_symbols();
	for (;; hash++) {
		row = atomic_load_explicit(&rows_by_symbol[hash % N_PLACES], memory_order_relaxed);
		if (!row)
			return NULL;
		if (elf_names_are_equal(hooks[row - 1].symbol, name))
			return &hooks[row - 1];
	}
}

ELF_WALK_EARLY const struct hook *
hook_by_symbol(const char *name)
{
	const struct hook *hook = find_row(name);

	return hook && hook->wrapper ? hook : NULL;
}

/* Does libcuda export this name? False while it is not found. */
ELF_WALK_EARLY static bool
driver_exports(const char *name)
{
	const struct link_map *map = atomic_load_explicit(&driver_map, memory_order_acquire);
	struct elf_symbols symbols;

	return map && elf_symbols_init(&symbols, map->l_addr, map->l_ld) &&
	       elf_find_function(&symbols, name);
}

ELF_WALK_EARLY bool
hooks_is_driver_name(const char *name)
{
	return name[0] == 'c' && name[1] == 'u' && name[2] >= 'A' && name[2] <= 'Z';
}

bool
hooks_is_unknown(const char *name)
{
	return hooks_is_driver_name(name) && !find_row(name) && driver_exports(name);
}

ELF_WALK_EARLY void
hooks_note_name(const char *name)
{
	if (!name || !hooks_is_driver_name(name) || find_row(name))
		return;
	if (!atomic_load_explicit(&driver_map, memory_order_acquire))
		coverage_note_asked(name);
	else if (driver_exports(name))
		coverage_note_unknown(name);
}

/* Functions are aligned to 16 bytes as a rule; the factor spreads neighbours. */
static uint32_t
pointer_hash(const void *pointer)
{
	return (uint32_t)(((uintptr_t)pointer >> 4) * UINT64_C(0x9e3779b97f4a7c15) >> 32);
}

/* How well a row that has the right address fits the request; more is better. */
static int
fitness(const struct hook *hook, const char *name, enum hook_stream0 stream0)
{
	bool is_symbol = elf_names_are_equal(hook->symbol, name);
	bool is_named = is_symbol || elf_names_are_equal(hook->query, name);
	bool stream0_fits = stream0 == HOOK_STREAM0_NONE || hook->stream0 == HOOK_STREAM0_NONE ||
			    hook->stream0 == stream0;

	return 8 * is_named + 4 * (hook->wrapper != NULL) + 2 * stream0_fits + is_symbol;
}

const struct hook *
hook_by_real(const void *real_ptr, const char *name, enum hook_stream0 stream0)
{
	const struct hook *best = NULL;
	uint32_t hash = pointer_hash(real_ptr);
	unsigned int row;

	if (atomic_load_explicit(&hooks_state, memory_order_acquire) == HOOKS_UNRESOLVED)
		return NULL;
	for (;; hash++) {
		const struct hook *hook;

		row = atomic_load_explicit(&rows_by_real[hash % N_PLACES], memory_order_relaxed);
		if (!row)
			return best;
		hook = &hooks[row - 1];
		if (*hook->real_slot == real_ptr &&
		    (!best || fitness(hook, name, stream0) > fitness(best, name, stream0)))
			best = hook;
	}
}

/* Only the first store of a place changes it: a reader of `real` never meets a writer. */
static void
store_once(void **slot, void *initial, void *found)
{
	__atomic_compare_exchange_n(slot, &initial, found, false, __ATOMIC_RELAXED,
				    __ATOMIC_RELAXED);
}

struct driver {
	void *handle;
	struct elf_symbols symbols;
	bool is_searchable;
	const struct libc_calls *libc;
};

static void *
find_in_driver(const struct driver *driver, const char *name)
{
	if (driver->is_searchable)
		return elf_find_function(&driver->symbols, name);
	return driver->libc->dlsym(driver->handle, name);
}

/* Both rows of a function that has two lead to one place, which is looked up once. */
static void
store_row(const struct driver *driver, unsigned int row)
{
	const struct hook *hook = &hooks[row];
	void *found = __atomic_load_n(hook->real_slot, __ATOMIC_RELAXED);
	const bool is_by_hand = row < N_BY_HAND;

	if (is_by_hand || !found) {
		found = find_in_driver(driver, hook->symbol);
		if (found)
			store_once(hook->real_slot, is_by_hand ? (void *)answer_not_found : NULL,
				   found);
	}
	if (found && found != (void *)answer_not_found)
		insert_row(rows_by_real, pointer_hash(found), row);
}

static bool
has_all_required(void)
{
	for (unsigned int row = 0; row < N_BY_HAND; row++)
		if (hooks[row].need == HOOK_NEED_REQUIRED &&
		    __atomic_load_n(hooks[row].real_slot, __ATOMIC_RELAXED) ==
			    (void *)answer_not_found)
			return false;
	for (unsigned int row = 0; row < N_CALLED; row++)
		if (called[row].need == HOOK_NEED_REQUIRED &&
		    !__atomic_load_n(called[row].real_slot, __ATOMIC_RELAXED))
			return false;
	return true;
}

void
hooks_resolve(void)
{
	struct driver driver = {.libc = lookup_libc()};
	const struct link_map *map;
	bool is_complete;

	if (atomic_load_explicit(&hooks_state, memory_order_acquire) != HOOKS_UNRESOLVED ||
	    !driver.libc)
		return;
	/*
	 * The reference is never given back: `real` stays valid when the program closes its own
	 * handle. The loader is entered before anything is claimed, so a thread that waits for its
	 * lock holds up no other.
	 */
	driver.handle = driver.libc->dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
	if (!driver.handle)
		return;
	map = driver.handle; /* in glibc a handle is the object's link map */
	driver.is_searchable = elf_symbols_init(&driver.symbols, map->l_addr, map->l_ld);

	for (unsigned int row = 0; row < N_HOOKS; row++)
		store_row(&driver, row);
	is_complete = has_all_required();
	/* release: the map's own fields are the loader's, who has just entered it into its list */
	atomic_store_explicit(&driver_map, map, memory_order_release);
	coverage_settle_asked(driver_exports);
	linked_scan();
	/* release: `real` and its table, for the acquires in hooks_ready() and hook_by_real() */
	atomic_store_explicit(&hooks_state, is_complete ? HOOKS_COMPLETE : HOOKS_INCOMPLETE,
			      memory_order_release);
}

void
hooks_ready_slow(void)
{
	coverage_count_direct();
	hooks_resolve();
	init_on_first_use();
}

/*
 * Looked for by hand: getenv may be another library's, and this is asked before the options are
 * read.
 */
static bool
environment_says_off(void)
{
	static const char prefix[] = "POOLSHIM_MODE=";

	for (char **variable = environ; variable && *variable; variable++) {
		const char *value = *variable + sizeof(prefix) - 1;

		if (elf_name_starts_with(*variable, prefix))
			return size_text_is(value, strlen(value), "off");
	}
	return false;
}

bool
hooks_are_handed_out(void)
{
	enum { UNKNOWN, ON, OFF };
	static _Atomic int mode = UNKNOWN;
	/* relaxed: threads that meet find the same, and nothing depends on it */
	int known = atomic_load_explicit(&mode, memory_order_relaxed);

	if (known == UNKNOWN) {
		known = environment_says_off() ? OFF : ON;
		atomic_store_explicit(&mode, known, memory_order_relaxed);
	}
	return known == ON && hooks_are_complete();
}
