/* SPDX-License-Identifier: MIT */
/* The heaps of one context: one of device memory, and one of pinned memory for each set of flags.
 */
#include "shim/context.h"

#include "pool/thread.h"
#include "shim/init.h"
#include "shim/order.h"
#include "shim/sharing.h"

static struct heap *
new_heap(struct context *context, struct backend_cuda *backend, enum heap_kind kind,
	 struct stats *stats)
{
	struct heap_config config = {
		.backend = &backend->base,
		.stats = stats,
		.owner = context,
		.kind = kind,
		.is_account = init_options()->mode == OPTION_MODE_ACCOUNT,
		.is_split = kind == HEAP_DEVICE,
		.is_early = order_is_early(),
		.attention = &submit_attention.n,
	};

	return heap_new(&context_pool, &config);
}

/* Heaps made while the context ends would be dropped with the memory of the next one in them. */
static bool
may_have_heaps_locked(const struct context *context)
{
	return context->n_endings == 0 && atomic_load(&context->handle);
}

static struct heap *
device_heap_slow(struct context *context)
{
	struct heap *heap;

	sharing_look();
	thread_lock(&context->heaps_lock);
	heap = atomic_load_explicit(&context->device_heap, memory_order_relaxed);
	if (!heap && may_have_heaps_locked(context)) {
		backend_cuda_init(&context->device_backend, context, BACKEND_DEVICE, 0);
		heap = new_heap(context, &context->device_backend, HEAP_DEVICE,
				context->device->stats);
		atomic_store_explicit(&context->device_heap, heap, memory_order_release);
		sharing_tell_locked(context);
	}
	thread_unlock(&context->heaps_lock);
	return heap;
}

struct heap *
context_device_heap(struct context *context)
{
	/* Acquire: the heap was set up before it was published. */
	struct heap *heap = atomic_load_explicit(&context->device_heap, memory_order_acquire);

	return heap ? heap : device_heap_slow(context);
}

struct heap *
context_host_heap(struct context *context, enum backend_memory memory, unsigned flags)
{
	struct heap *heap = NULL;
	struct backend_cuda *backend;
	unsigned i;

	thread_lock(&context->heaps_lock);
	for (i = 0; i < context->n_host_heaps; i++) {
		backend = &context->host[i].backend;
		if (backend->memory == memory && backend->flags == flags)
			break;
	}
	if (i < context->n_host_heaps) {
		heap = context->host[i].heap;
	} else if (i < CONTEXT_N_HOST_HEAPS && may_have_heaps_locked(context)) {
		backend = &context->host[i].backend;
		backend_cuda_init(backend, context, memory, flags);
		heap = new_heap(context, backend, HEAP_HOST, device_host_stats());
		if (heap) {
			context->host[i].heap = heap;
			context->n_host_heaps++;
		}
	}
	thread_unlock(&context->heaps_lock);
	return heap;
}

size_t
context_list_heaps_until(struct context *context, const struct timespec *deadline,
			 struct heap *heaps[1 + CONTEXT_N_HOST_HEAPS])
{
	size_t n = 0;

	if (!thread_lock_until(&context->heaps_lock, deadline))
		return 0;
	heaps[n] = atomic_load_explicit(&context->device_heap, memory_order_relaxed);
	n += heaps[n] != NULL;
	for (unsigned i = 0; i < context->n_host_heaps; i++)
		heaps[n++] = context->host[i].heap;
	thread_unlock(&context->heaps_lock);
	return n;
}
