/* SPDX-License-Identifier: MIT */
#include "shim/coverage.h"

#include <stdatomic.h>
#include <string.h>

#include "shim/control.h"
#include "shim/elf_walk.h"
#include "shim/init.h"

enum name_state {
	NAME_FREE,
	NAME_CLAIMED, /* one thread is writing it */
	NAME_ASKED,   /* is it the driver's? libcuda is not found yet */
	NAME_READY,
};

static struct {
	_Atomic(enum name_state) state;
	char text[COVERAGE_NAME_BYTES];
} names[COVERAGE_MAX_NAMES];

static _Atomic uint64_t n_found[COVERAGE_N_ROUTES];
atomic_bool coverage_doubt;

static _Atomic(void (*)(void)) on_doubt;
static atomic_bool was_told;

const char *
coverage_route_name(enum coverage_route route)
{
	static const char *const route_names[COVERAGE_N_ROUTES] = {
		[COVERAGE_DLSYM] = "dlsym",
		[COVERAGE_DLVSYM] = "dlvsym",
		[COVERAGE_PROC_ADDRESS] = "proc_address",
		[COVERAGE_DIRECT] = "direct",
		[COVERAGE_RUNTIME] = "runtime",
	};

	return route_names[route];
}

void
coverage_count(enum coverage_route route)
{
	/* relaxed: figures for readers, which order nothing */
	const uint64_t n = atomic_fetch_add_explicit(&n_found[route], 1, memory_order_relaxed) + 1;

	if (init_is_active())
		atomic_store_explicit(&control->process.routes[route], n, memory_order_relaxed);
}

void
coverage_publish(_Atomic uint64_t *counts)
{
	for (int i = 0; i < COVERAGE_N_ROUTES; i++)
		atomic_store_explicit(&counts[i],
				      atomic_load_explicit(&n_found[i], memory_order_relaxed),
				      memory_order_relaxed);
}

bool
coverage_has_route(void)
{
	for (int i = 0; i < COVERAGE_N_ROUTES; i++)
		if (atomic_load_explicit(&n_found[i], memory_order_relaxed))
			return true;
	return false;
}

void
coverage_count_direct(void)
{
	uint64_t none = 0;

	if (atomic_load_explicit(&n_found[COVERAGE_DLSYM], memory_order_relaxed) ||
	    atomic_load_explicit(&n_found[COVERAGE_DLVSYM], memory_order_relaxed) ||
	    atomic_load_explicit(&n_found[COVERAGE_PROC_ADDRESS], memory_order_relaxed))
		return;
	atomic_compare_exchange_strong_explicit(&n_found[COVERAGE_DIRECT], &none, 1,
						memory_order_relaxed, memory_order_relaxed);
}

/* Is text what is left of name in COVERAGE_NAME_BYTES? */
ELF_WALK_EARLY static bool
is_same(const char *text, const char *name)
{
	int i;

	for (i = 0; i < COVERAGE_NAME_BYTES - 1 && text[i] && text[i] == name[i]; i++)
		;
	return i == COVERAGE_NAME_BYTES - 1 || text[i] == name[i];
}

/* The places may all be taken: then the name is not listed. */
ELF_WALK_EARLY static void
note(const char *name, enum name_state as)
{
	for (int i = 0; i < COVERAGE_MAX_NAMES; i++) {
		enum name_state state = NAME_FREE;

		/* acquire: the text of a name that another thread made ready */
		if (atomic_compare_exchange_strong_explicit(&names[i].state, &state, NAME_CLAIMED,
							    memory_order_acquire,
							    memory_order_acquire)) {
			for (int j = 0; j < COVERAGE_NAME_BYTES - 1; j++) {
				names[i].text[j] = name[j];
				if (!name[j])
					break;
			}
			/* release: the text, for readers that see the state */
			atomic_store_explicit(&names[i].state, as, memory_order_release);
			return;
		}
		if (state == as && is_same(names[i].text, name))
			return;
	}
}

ELF_WALK_EARLY void
coverage_tell_doubt(void)
{
	/* Sequentially consistent, as are the stores: whoever raises doubt then looks for fn,
	 * whoever gives fn then looks for doubt, and one of them sees the other. */
	void (*fn)(void) = atomic_load(&on_doubt);

	if (fn && atomic_load(&coverage_doubt) && !atomic_exchange(&was_told, true))
		fn();
}

void
coverage_on_doubt(void (*fn)(void))
{
	atomic_store(&on_doubt, fn);
	coverage_tell_doubt();
}

ELF_WALK_EARLY void
coverage_note_linked(const char *name)
{
	note(name, NAME_READY);
	atomic_store(&coverage_doubt, true);
}

ELF_WALK_EARLY void
coverage_note_unknown(const char *name)
{
	coverage_note_linked(name);
	coverage_tell_doubt();
}

void
coverage_note_missed(void)
{
	atomic_store(&coverage_doubt, true);
	coverage_tell_doubt();
}

ELF_WALK_EARLY void
coverage_note_asked(const char *name)
{
	note(name, NAME_ASKED);
}

void
coverage_settle_asked(bool (*is_exported)(const char *name))
{
	for (int i = 0; i < COVERAGE_MAX_NAMES; i++) {
		enum name_state state = NAME_ASKED;

		/* acquire: the text. One thread settles a name. */
		if (!atomic_compare_exchange_strong_explicit(&names[i].state, &state, NAME_CLAIMED,
							     memory_order_acquire,
							     memory_order_relaxed))
			continue;
		if (is_exported(names[i].text)) {
			atomic_store_explicit(&names[i].state, NAME_READY, memory_order_release);
			atomic_store(&coverage_doubt, true);
		} else {
			memset(names[i].text, 0, sizeof(names[i].text));
			atomic_store_explicit(&names[i].state, NAME_FREE, memory_order_release);
		}
	}
	coverage_tell_doubt();
}

static bool
is_listed(const struct coverage *coverage, const char *name)
{
	for (unsigned int i = 0; i < coverage->n_unknown; i++)
		if (!strcmp(coverage->unknown[i], name))
			return true;
	return false;
}

void
coverage_get(struct coverage *ret_coverage)
{
	memset(ret_coverage, 0, sizeof(*ret_coverage));
	ret_coverage->is_in_doubt = coverage_is_in_doubt();
	for (int i = 0; i < COVERAGE_N_ROUTES; i++)
		ret_coverage->n_found[i] = atomic_load_explicit(&n_found[i], memory_order_relaxed);
	for (int i = 0; i < COVERAGE_MAX_NAMES; i++) {
		/* acquire: pairs with the release in note() */
		if (atomic_load_explicit(&names[i].state, memory_order_acquire) != NAME_READY)
			continue;
		/* two threads may have noted one name at the same time */
		if (!is_listed(ret_coverage, names[i].text))
			memcpy(ret_coverage->unknown[ret_coverage->n_unknown++], names[i].text,
			       COVERAGE_NAME_BYTES);
	}
}
