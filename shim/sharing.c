/* SPDX-License-Identifier: MIT */
#include "shim/sharing.h"

#include <stdatomic.h>
#include <time.h>

#include "pool/thread.h"
#include "shim/agents.h"
#include "shim/init.h"

static atomic_bool has_agents;

void
sharing_tell_locked(struct context *context)
{
	struct heap *heap = atomic_load_explicit(&context->device_heap, memory_order_relaxed);

	if (heap)
		heap_share(heap, atomic_load(&context->n_peers) > 0 || atomic_load(&has_agents));
}

/* Whoever comes later tells what is true then: both are read under the lock. */
static void
tell(struct context *context)
{
	struct heap *heap;
	bool is_new = false;

	thread_lock(&context->heaps_lock);
	heap = atomic_load_explicit(&context->device_heap, memory_order_relaxed);
	if (heap)
		is_new = heap_share(heap,
				    atomic_load(&context->n_peers) > 0 || atomic_load(&has_agents));
	thread_unlock(&context->heaps_lock);
	if (is_new)
		heap_await_edges(heap);
}

void
sharing_add_peer(struct context *context)
{
	atomic_fetch_add(&context->n_peers, 1);
	tell(context);
}

void
sharing_remove_peer(struct context *context)
{
	unsigned n = atomic_load(&context->n_peers);

	/* The slot may be another context's by now. */
	while (n > 0 && !atomic_compare_exchange_weak(&context->n_peers, &n, n - 1))
		;
	tell(context);
}

static void
tell_of_heap(struct context *context, struct heap *heap, enum heap_kind kind, void *arg)
{
	(void)heap, (void)arg;
	if (kind == HEAP_DEVICE)
		tell(context);
}

void
sharing_look(void)
{
	enum { BETWEEN_LOOKS_NS = 50000000 };
	static _Atomic uint64_t last_ns;
	uint64_t last = atomic_load_explicit(&last_ns, memory_order_relaxed);
	struct timespec now;
	uint64_t now_ns;
	bool are_open;

	clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
	now_ns = (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
	/* relaxed: it only keeps others from looking, too */
	if (now_ns - last < BETWEEN_LOOKS_NS ||
	    !atomic_compare_exchange_strong_explicit(&last_ns, &last, now_ns, memory_order_relaxed,
						     memory_order_relaxed))
		return;
	are_open = agents_are_open("/proc/self/fd");
	if (atomic_exchange(&has_agents, are_open) != are_open)
		context_for_each_heap(tell_of_heap, NULL);
}

bool
sharing_has_agents(void)
{
	return atomic_load(&has_agents);
}

static void
begin_with(struct context *context, struct heap *heap, enum heap_kind kind, void *arg)
{
	if (kind == HEAP_DEVICE && context != arg)
		heap_begin_foreign(heap, NULL);
}

static void
end_with(struct context *context, struct heap *heap, enum heap_kind kind, void *arg)
{
	if (kind == HEAP_DEVICE && context != arg)
		heap_end_foreign(heap);
}

/* The heap of another context than the stream's that the address lies in, or NULL. */
static struct heap *
foreign_heap(CUstream stream, uint64_t addr)
{
	struct block_info info;
	enum heap_kind kind;

	if (!pool_kind_at(&context_pool, addr, &kind) || kind != HEAP_DEVICE ||
	    pool_find(&context_pool, addr, &info) != HEAP_OK ||
	    info.owner == context_of_stream(stream))
		return NULL;
	return info.heap;
}

void
sharing_begin(CUstream stream, const struct heap_touch *touch, struct sharing *ret_sharing)
{
	*ret_sharing = (struct sharing){0};
	if (context_is_only() || !init_is_active() || thread_holds() || thread_is_at_step())
		return;
	if (!touch) {
		ret_sharing->is_of_all = true;
		ret_sharing->own = context_of_stream(stream);
		context_for_each_heap(begin_with, (void *)(uintptr_t)ret_sharing->own);
	}
	for (unsigned i = 0; touch && i < touch->n_ranges; i++) {
		ret_sharing->heaps[i] = foreign_heap(stream, touch->ranges[i].addr);
		if (ret_sharing->heaps[i])
			heap_begin_foreign(ret_sharing->heaps[i], touch);
	}
}

void
sharing_end(const struct sharing *sharing)
{
	if (sharing->is_of_all)
		context_for_each_heap(end_with, (void *)(uintptr_t)sharing->own);
	for (unsigned i = 0; i < 2; i++)
		if (sharing->heaps[i])
			heap_end_foreign(sharing->heaps[i]);
}
