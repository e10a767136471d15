/* SPDX-License-Identifier: MIT */
#include "shim/coverage.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>

enum name_state {
	NAME_FREE,
	NAME_CLAIMED, /* one thread is writing it */
	NAME_READY,
};

static struct {
	_Atomic(enum name_state) state;
	char text[COVERAGE_NAME_BYTES];
} names[COVERAGE_MAX_NAMES];

static _Atomic uint64_t n_found[COVERAGE_N_ROUTES];

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
	/* relaxed: a figure for the dump that orders nothing */
	atomic_fetch_add_explicit(&n_found[route], 1, memory_order_relaxed);
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

void
coverage_note_unknown(const char *name)
{
	for (int i = 0; i < COVERAGE_MAX_NAMES; i++) {
		enum name_state state = NAME_FREE;

		/* acquire: the text of a name that another thread made ready */
		if (atomic_compare_exchange_strong_explicit(&names[i].state, &state, NAME_CLAIMED,
							    memory_order_acquire,
							    memory_order_acquire)) {
			strncpy(names[i].text, name, COVERAGE_NAME_BYTES - 1);
			/* release: the text, for readers that see NAME_READY */
			atomic_store_explicit(&names[i].state, NAME_READY, memory_order_release);
			return;
		}
		if (state == NAME_READY && !strncmp(names[i].text, name, COVERAGE_NAME_BYTES - 1))
			return;
	}
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
	for (int i = 0; i < COVERAGE_N_ROUTES; i++)
		ret_coverage->n_found[i] = atomic_load_explicit(&n_found[i], memory_order_relaxed);
	for (int i = 0; i < COVERAGE_MAX_NAMES; i++) {
		/* acquire: pairs with the release in coverage_note_unknown() */
		if (atomic_load_explicit(&names[i].state, memory_order_acquire) != NAME_READY)
			continue;
		/* two threads may have noted one name at the same time */
		if (!is_listed(ret_coverage, names[i].text))
			memcpy(ret_coverage->unknown[ret_coverage->n_unknown++], names[i].text,
			       COVERAGE_NAME_BYTES);
	}
}
