/* SPDX-License-Identifier: MIT */
#include "shim/context.h"

#include <string.h>

#include "pool/thread.h"
#include "shim/init.h"
#include "shim/order.h"

struct pool context_pool;

static struct context contexts[CONTEXT_N_MAX];
static pthread_mutex_t context_lock = PTHREAD_MUTEX_INITIALIZER;
static atomic_uint n_contexts; /* with a handle; written under context_lock */

void
context_init(void)
{
	pool_init(&context_pool);
	for (size_t i = 0; i < CONTEXT_N_MAX; i++) {
		pthread_mutex_init(&contexts[i].heaps_lock, NULL);
		visible_init(&contexts[i].visible);
		backend_events_init(&contexts[i].events);
	}
}

bool
context_is_only(void)
{
	return atomic_load(&n_contexts) <= 1;
}

static CUcontext
handle_of(const struct context *context)
{
	/* Acquire: a slot's other fields were written before its handle. */
	return atomic_load_explicit(&context->handle, memory_order_acquire);
}

struct context *
context_find(CUcontext handle)
{
	static _Thread_local struct context *last;

	if (last && handle_of(last) == handle)
		return last;
	for (size_t i = 0; i < CONTEXT_N_MAX && handle; i++) {
		if (handle_of(&contexts[i]) == handle) {
			last = &contexts[i];
			return last;
		}
	}
	return NULL;
}

static struct context *
publish(CUcontext handle, struct device *device, bool is_primary, bool is_green)
{
	struct context *context, *spare = NULL;

	if (thread_holds())
		return context_find(handle);
	thread_lock(&context_lock);
	context = context_find(handle);
	if (context) {
		/* A handle seen anew is a new context: what a green one left behind does not
		 * describe it. Of one that is served nothing is written again: others read it
		 * without the lock. */
		if (context->device != device)
			context->device = device;
		if (context->is_green != is_green)
			context->is_green = is_green;
		if (is_primary && !context->is_primary)
			context->is_primary = true;
		goto unlock;
	}
	for (size_t i = 0; i < CONTEXT_N_MAX && !spare; i++)
		if (!handle_of(&contexts[i]) && !contexts[i].is_dropping)
			spare = &contexts[i];
	if (spare) {
		spare->device = device;
		spare->is_primary = is_primary;
		spare->is_green = is_green;
		atomic_store_explicit(&spare->broken, 0, memory_order_relaxed);
		atomic_store_explicit(&spare->handle, handle, memory_order_release);
		atomic_fetch_add(&n_contexts, 1);
		/* What a stream 0 is depends on the current context from here on. */
		order_forget_handles();
	}
	context = spare;
unlock:
	thread_unlock(&context_lock);
	return context;
}

void
context_register(CUcontext handle, CUdevice device, bool is_primary)
{
	struct device *facts = handle ? device_get(device) : NULL;

	if (facts)
		publish(handle, facts, is_primary, false);
}

static bool
device_of(CUcontext handle, CUdevice *ret_device)
{
	struct context_scope scope;
	bool is_known;

	if (!handle || context_enter(handle, &scope) != CUDA_SUCCESS)
		return false;
	is_known = real.cuCtxGetDevice(ret_device) == CUDA_SUCCESS;
	context_leave(&scope);
	return is_known;
}

struct context *
context_register_green(CUcontext handle)
{
	CUdevice device;

	return device_of(handle, &device) && device_get(device)
		       ? publish(handle, device_get(device), false, true)
		       : NULL;
}

void
context_forget_green(struct context *context)
{
	thread_lock(&context_lock);
	if (context->is_green && handle_of(context)) {
		atomic_store_explicit(&context->handle, NULL, memory_order_release);
		atomic_fetch_sub(&n_contexts, 1);
	}
	thread_unlock(&context_lock);
	order_forget_handles();
}

/* The context of a stream that the shim has not heard of: the primary one, or a green one, whose
 * streams can be made and used without its ever being named as a context. All others are known
 * from their creation. */
static struct context *
adopt_of_stream(CUcontext handle)
{
	struct context *context;
	CUdevice device;

	if (!device_of(handle, &device))
		return NULL;
	context = context_find_primary(device);
	return context && handle_of(context) == handle ? context : context_register_green(handle);
}

/* A context that was current before the shim heard of it: the primary one, as a rule. */
static struct context *
adopt_current(CUcontext handle)
{
	CUdevice device;
	struct device *facts;

	if (real.cuCtxGetDevice(&device) != CUDA_SUCCESS)
		return NULL;
	facts = device_get(device);
	return facts ? publish(handle, facts, false, false) : NULL;
}

static struct context *
serveable(struct context *context)
{
	if (!context || context->is_green ||
	    atomic_load_explicit(&context->broken, memory_order_relaxed))
		return NULL;
	return context;
}

static struct context *
known_current(void)
{
	CUcontext handle;
	struct context *context;

	if (real.cuCtxGetCurrent(&handle) != CUDA_SUCCESS || !handle)
		return NULL;
	context = context_find(handle);
	return context ? context : adopt_current(handle);
}

struct context *
context_current(void)
{
	return serveable(known_current());
}

struct context *
context_of_stream(CUstream stream)
{
	const bool is_named =
		stream && stream != CU_STREAM_LEGACY && stream != CU_STREAM_PER_THREAD;
	struct context *context = NULL;
	CUcontext handle;

	if (is_named && real.cuStreamGetCtx &&
	    real.cuStreamGetCtx(stream, &handle) == CUDA_SUCCESS) {
		context = context_find(handle);
		if (!context)
			context = adopt_of_stream(handle);
	} else {
		context = known_current();
	}
	return context && context->is_green ? context_find_primary(context->device->index)
					    : context;
}

struct context *
context_find_primary(CUdevice device)
{
	CUcontext handle;
	unsigned flags;
	int is_active;

	for (size_t i = 0; i < CONTEXT_N_MAX; i++)
		if (handle_of(&contexts[i]) && contexts[i].is_primary &&
		    contexts[i].device->index == device)
			return &contexts[i];
	if (real.cuDevicePrimaryCtxGetState(device, &flags, &is_active) != CUDA_SUCCESS ||
	    !is_active)
		return NULL;
	/* Retain is the only way to learn the handle; it is active, so this neither makes nor keeps
	 * anything. */
	if (real.cuDevicePrimaryCtxRetain(&handle, device) != CUDA_SUCCESS)
		return NULL;
	if (real.cuDevicePrimaryCtxRelease_v2(device) == CUDA_ERROR_NOT_FOUND)
		real.cuDevicePrimaryCtxRelease(device);
	context_register(handle, device, true);
	return context_find(handle);
}

struct context *
context_find_on(const struct device *device, bool *ret_has_primary)
{
	struct context *found = NULL;

	*ret_has_primary = false;
	for (size_t i = 0; i < CONTEXT_N_MAX; i++) {
		struct context *context = &contexts[i];

		if (!handle_of(context) || context->device != device)
			continue;
		*ret_has_primary |= context->is_primary;
		if (serveable(context))
			found = context;
	}
	return found;
}

void
context_break(struct context *context, CUresult status)
{
	int none = 0;

	/* The first error is the one that the driver goes on answering. Relaxed: nothing is
	 * published with it. */
	atomic_compare_exchange_strong_explicit(&context->broken, &none, (int)status,
						memory_order_relaxed, memory_order_relaxed);
}

unsigned
context_close(struct context *context)
{
	struct heap *heaps[1 + CONTEXT_N_HOST_HEAPS];
	const unsigned generation =
		atomic_load_explicit(&context->generation, memory_order_acquire);
	size_t n;

	thread_hold(); /* until end_ending() */
	thread_lock(&context->heaps_lock);
	context->n_endings++;
	thread_unlock(&context->heaps_lock);
	n = context_list_heaps_until(context, NULL, heaps);
	for (size_t i = 0; i < n; i++)
		heap_close(heaps[i]);
	capture_shut(&context->gate);
	return generation;
}

static void
end_ending(struct context *context)
{
	thread_lock(&context->heaps_lock);
	context->n_endings--;
	thread_unlock(&context->heaps_lock);
	thread_release();
}

void
context_reopen(struct context *context)
{
	struct heap *heaps[1 + CONTEXT_N_HOST_HEAPS];
	const size_t n = context_list_heaps_until(context, NULL, heaps);

	capture_unshut(&context->gate);
	for (size_t i = 0; i < n; i++)
		heap_reopen(heaps[i]);
	end_ending(context);
}

/* The handle goes first: it may be another context's already, which must not find this slot. False:
 * another thread was told of the end, too, and drops it. */
static bool
withdraw(struct context *context, unsigned generation)
{
	bool is_own;

	thread_lock(&context_lock);
	is_own = atomic_load_explicit(&context->generation, memory_order_relaxed) == generation &&
		 !context->is_dropping;
	if (is_own) {
		context->is_dropping = true;
		context->is_primary = false;
		atomic_store_explicit(&context->handle, NULL, memory_order_release);
		atomic_fetch_sub(&n_contexts, 1);
	}
	thread_unlock(&context_lock);
	if (is_own)
		order_forget_handles();
	return is_own;
}

void
context_drop(struct context *context, unsigned generation)
{
	struct heap *device_heap;

	if (!withdraw(context, generation)) {
		context_reopen(context);
		return;
	}
	thread_lock(&context->heaps_lock);
	device_heap = atomic_exchange_explicit(&context->device_heap, NULL, memory_order_relaxed);
	if (device_heap)
		limit_release(&context->device->account, heap_drop(device_heap));
	for (unsigned i = 0; i < context->n_host_heaps; i++)
		limit_release(&device_host_account, heap_drop(context->host[i].heap));
	context->n_host_heaps = 0;
	atomic_store(&context->n_peers, 0);
	thread_unlock(&context->heaps_lock);

	/* From here on fences of the old generation answer complete, without a driver call. */
	atomic_fetch_add_explicit(&context->generation, 1, memory_order_release);
	external_drop(&context->generation, generation);
	visible_reset(&context->visible);
	capture_reset(context);
	backend_events_forget(&context->events);
	thread_lock(&context_lock);
	context->is_dropping = false;
	thread_unlock(&context_lock);
	capture_unshut(&context->gate);
	end_ending(context);
}

int
context_for_each(int (*visit)(struct context *context, void *arg), void *arg)
{
	int n_devices = 0, r = 0;

	real.cuDeviceGetCount(&n_devices);
	for (int device = 0; device < n_devices && device < DEVICE_N_MAX; device++)
		context_find_primary(device); /* enters it in the table */
	for (size_t i = 0; i < CONTEXT_N_MAX && !r; i++)
		if (handle_of(&contexts[i]) && !contexts[i].is_green)
			r = visit(&contexts[i], arg);
	return r;
}

void
context_for_each_heap_until(const struct timespec *deadline,
			    void (*visit)(struct context *context, struct heap *heap,
					  enum heap_kind kind, void *arg),
			    void *arg)
{
	for (size_t i = 0; i < CONTEXT_N_MAX; i++) {
		struct heap *heaps[1 + CONTEXT_N_HOST_HEAPS];
		size_t n;

		if (!handle_of(&contexts[i]))
			continue;
		n = context_list_heaps_until(&contexts[i], deadline, heaps);
		for (size_t j = 0; j < n; j++)
			visit(&contexts[i], heaps[j], heap_kind(heaps[j]), arg);
	}
}

void
context_for_each_heap(void (*visit)(struct context *context, struct heap *heap, enum heap_kind kind,
				    void *arg),
		      void *arg)
{
	context_for_each_heap_until(NULL, visit, arg);
}

CUresult
context_enter(CUcontext handle, struct context_scope *ret_scope)
{
	CUcontext current = NULL;
	CUresult r = real.cuCtxGetCurrent(&current);

	ret_scope->was_pushed = false;
	if (r == CUDA_SUCCESS && current == handle)
		return CUDA_SUCCESS;
	r = real.cuCtxPushCurrent_v2(handle);
	ret_scope->was_pushed = r == CUDA_SUCCESS;
	return r;
}

void
context_leave(const struct context_scope *scope)
{
	CUcontext popped;

	if (scope->was_pushed)
		real.cuCtxPopCurrent_v2(&popped);
}
