/* SPDX-License-Identifier: MIT */
#include "tests/sim/sim_internal.h"

#include <stdlib.h>
#include <string.h>

const struct driver_entry entries[N_ENTRIES] = {
#define ENTRY(symbol, query, since, stream0) {#symbol, query, since, stream0, (void *)symbol},
#include "tests/sim/entries.def"
#undef ENTRY
#define UNSUPPORTED(query, suffix, since, stream0) {#query #suffix, #query, since, stream0, NULL},
#include "tests/sim/unsupported.def"
#undef UNSUPPORTED
};

struct sim sim = {
	.lock = PTHREAD_MUTEX_INITIALIZER,
	.cond = PTHREAD_COND_INITIALIZER,
};

__thread struct thread_state sim_thread;

uint64_t
sim_thread_id(void)
{
	static uint64_t n_threads;

	if (sim_thread.id == 0)
		sim_thread.id = __atomic_add_fetch(&n_threads, 1, __ATOMIC_RELAXED);
	return sim_thread.id;
}

const struct driver_entry *
entry_find(const char *symbol)
{
	for (size_t i = 0; i < N_ENTRIES; i++) {
		if (strcmp(entries[i].symbol, symbol) == 0)
			return &entries[i];
	}
	return NULL;
}

void *
entry_function(const struct driver_entry *entry)
{
	return entry->fn ? entry->fn : unsupported_functions[entry - &entries[N_SUPPORTED]];
}

int
unsupported_call(int idx)
{
	CUresult r = sim_enter((enum entry_id)(N_SUPPORTED + idx), NEED_NOTHING);

	return r != CUDA_SUCCESS ? r : sim_leave(CUDA_ERROR_NOT_SUPPORTED);
}

/* CUSIM_HIDE is read at every look-up, so that a program may change it between two. */
bool
entry_is_hidden(const struct driver_entry *entry)
{
	const char *p = getenv("CUSIM_HIDE");
	size_t n;

	if (entry->since > (unsigned)sim_driver_version)
		return true;
	while (p && *p) {
		n = strcspn(p, ",");
		if ((strlen(entry->query) == n && strncmp(entry->query, p, n) == 0) ||
		    (strlen(entry->symbol) == n && strncmp(entry->symbol, p, n) == 0))
			return true;
		p += n;
		p += *p == ',';
	}
	return false;
}

static CUresult
check_context(void)
{
	struct CUctx_st *ctx = ctx_current();

	if (!ctx)
		return CUDA_ERROR_INVALID_CONTEXT;
	if (!ctx->is_alive || !ctx->root->is_alive)
		return CUDA_ERROR_CONTEXT_IS_DESTROYED;
	return ctx->root->sticky;
}

/*
 * Order of the checks, as the driver makes them: initialised, allowed here, a context, and only
 * then what the call itself says. An injected failure comes first: the call does nothing.
 */
CUresult
sim_enter(enum entry_id e, enum need need)
{
	CUresult r;

	debugger_tell(entries[e].symbol);
	/* Before the lock, which a bare clone() may have left with a thread that is not here. */
	if (need != NEED_NOTHING && sim_is_child())
		return CUDA_ERROR_NOT_INITIALIZED;
	pthread_mutex_lock(&sim.lock);
	inject_count(e);
	r = inject_take(e);
	if (r == CUDA_SUCCESS && need != NEED_NOTHING) {
		if (!sim.is_init)
			r = CUDA_ERROR_NOT_INITIALIZED;
		else if (sim_thread.in_host_func)
			r = CUDA_ERROR_NOT_PERMITTED;
		else if (need == NEED_CONTEXT || (need == NEED_NO_ERROR && ctx_current()))
			r = check_context();
	}
	if (r != CUDA_SUCCESS)
		pthread_mutex_unlock(&sim.lock);
	return r;
}

CUresult
sim_leave(CUresult r)
{
	pthread_mutex_unlock(&sim.lock);
	return r;
}
