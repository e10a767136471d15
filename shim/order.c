/* SPDX-License-Identifier: MIT */
#include "shim/order.h"

#include <time.h>

#include "pool/thread.h"
#include "shim/context.h"
#include "shim/coverage.h"
#include "shim/init.h"
#include "shim/linked.h"
#include "shim/sharing.h"

/* Goes up when a handle may mean another stream or context than before. */
static _Atomic uint64_t n_endings = 1;

/* No new hand-outs are early; all that were are complete, and nobody is told any more. */
static atomic_bool is_stopping, is_stopped;

bool
order_is_early(void)
{
	const enum option_reuse reuse = init_options()->reuse;

	return init_options()->mode == OPTION_MODE_POOL &&
	       (reuse == OPTION_REUSE_AUTO || reuse == OPTION_REUSE_RELAXED) &&
	       backend_has_fences() && real.cuStreamWaitEvent && !atomic_load(&is_stopping);
}

/* Until what was handed out early is complete every submission may have to wait for it. */
static bool
is_watching(void)
{
	const enum option_reuse reuse = init_options()->reuse;

	return init_is_active() && init_options()->mode == OPTION_MODE_POOL &&
	       (reuse == OPTION_REUSE_AUTO || reuse == OPTION_REUSE_RELAXED) &&
	       !atomic_load_explicit(&is_stopped, memory_order_relaxed);
}

/* A stream that the program made. */
struct kept_stream {
	uintptr_t handle;
	uint64_t n_endings;
	struct context *context;
	bool is_blocking; /* it waits for the legacy stream, and the other way round */
	bool is_known;    /* the driver knows it */
};

static const struct kept_stream *
look_up_handle(uintptr_t handle)
{
	enum { N_KEPT = 8 };
	static _Thread_local struct kept_stream kept[N_KEPT];
	const unsigned i = (handle >> 4 ^ handle >> 12) % N_KEPT;
	/* acquire: what ended is gone from the table of contexts */
	const uint64_t n = atomic_load_explicit(&n_endings, memory_order_acquire);

	if (kept[i].handle != handle || kept[i].n_endings != n) {
		unsigned flags = CU_STREAM_DEFAULT;

		kept[i].context = context_of_stream((CUstream)handle);
		kept[i].is_known = real.cuStreamGetFlags &&
				   real.cuStreamGetFlags((CUstream)handle, &flags) == CUDA_SUCCESS;
		kept[i].is_blocking = !(flags & CU_STREAM_NON_BLOCKING);
		kept[i].handle = handle;
		kept[i].n_endings = n;
	}
	return &kept[i];
}

static struct context *
context_of_handle(uintptr_t handle)
{
	return look_up_handle(handle)->context;
}

/*
 * The context of a stream 0 is the current one. A green one's stream 0 is another than that of the
 * primary one, which serves it: the context tells them apart.
 */
static struct context *
context_of_zero(struct order_stream *stream)
{
	CUcontext current = NULL;
	struct context *context;

	if (real.cuCtxGetCurrent(&current) != CUDA_SUCCESS || !current)
		return NULL;
	context = context_find(current);
	if (!context)
		context = context_of_stream(NULL); /* it is known from here on */
	if (context && atomic_load(&context->handle) != current)
		context = context_find(current);
	if (!context || !context->is_green)
		return context;
	stream->word |= (uintptr_t)current << SUBMIT_KIND_BITS;
	return context_find_primary(context->device->index);
}

static struct order_stream
stream_of(const struct submit_target *target)
{
	return (struct order_stream){target->handle << SUBMIT_KIND_BITS | target->kind,
				     target->thread};
}

static bool
is_stream(const struct submit_target *target)
{
	return target->kind == SUBMIT_LEGACY || target->kind == SUBMIT_PER_THREAD;
}

static struct heap *
heap_of(struct context *context)
{
	/* acquire: the heap was set up before it was published */
	return context ? atomic_load_explicit(&context->device_heap, memory_order_acquire) : NULL;
}

static void
join_unknown(struct context *context, struct heap *heap, enum heap_kind kind, void *arg)
{
	(void)context, (void)arg;
	if (kind == HEAP_DEVICE)
		heap_before_submission(heap, (struct order_stream){0}, NULL, false);
}

bool
order_before_submission(struct submit_target target, const struct heap_touch *touch, bool can_wait,
			struct heap **ret_blocked)
{
	struct order_stream stream = stream_of(&target);
	struct stream_handle handle = {
		.stream = (CUstream)target.handle,
		.stream0 = target.kind == SUBMIT_PER_THREAD ? HOOK_STREAM0_PER_THREAD
							    : HOOK_STREAM0_LEGACY,
	};
	struct context *context;
	bool is_settled = true;
	struct heap *heap;

	if (!is_watching())
		return !thread_holds(); /* a signal handler's says nothing of the next */
	if (!is_stream(&target)) {
		if (target.kind == SUBMIT_CONTEXT)
			context_for_each_heap(join_unknown, NULL);
		return false;
	}
	context = target.handle ? context_of_handle(target.handle) : context_of_zero(&stream);
	heap = heap_of(context);
	if (heap)
		is_settled = heap_before_touching(heap, stream, &handle, can_wait, touch);
	if (heap && ret_blocked && can_wait)
		*ret_blocked = heap;
	/* Which stream a stream 0 is depends on the current context, where there are several. */
	return is_settled && context && (target.handle || context_is_only());
}

void
order_after_blocker(struct heap *blocked)
{
	heap_after_blocker(blocked);
}

bool
order_must_not_overlap(CUstream stream, enum hook_stream0 stream0)
{
	const struct submit_target target = submit_target(stream, stream0);
	const struct stream_handle handle = {stream, stream0};
	struct order_stream key = stream_of(&target);
	struct context *context;
	struct heap *heap;

	if (!is_watching() || backend_ask_capture(&handle) == BACKEND_STREAM_CAPTURES)
		return false;
	context = target.handle ? context_of_handle(target.handle) : context_of_zero(&key);
	heap = heap_of(context);
	return heap && heap_must_not_overlap(heap, key);
}

bool
order_find_stream(CUstream stream, enum hook_stream0 stream0, const struct context *context,
		  struct order_place *ret_place)
{
	const struct submit_target target = submit_target(stream, stream0);
	const struct kept_stream *kept = target.handle ? look_up_handle(target.handle) : NULL;

	if (!is_stream(&target) || (kept && !kept->is_known))
		return false;
	ret_place->key = stream_of(&target);
	ret_place->is_blocking = !kept || kept->is_blocking;
	return (kept ? kept->context : context_of_zero(&ret_place->key)) == context;
}

struct looking {
	void (*enter)(void *arg, struct order_stream stream);
	void *arg;
};

static void
enter_target(void *arg, const struct submit_target *target)
{
	const struct looking *looking = arg;
	struct order_stream stream = stream_of(target);

	if (!is_stream(target) || (!target->handle && !context_is_only()))
		stream = (struct order_stream){0};
	looking->enter(looking->arg, stream);
}

void
order_look(void (*enter)(void *arg, struct order_stream stream), void *arg)
{
	struct looking looking = {enter, arg};

	submit_draw_attention();
	submit_look(enter_target, &looking);
}

/* The heap of the current context, if there is something that a synchronise could complete. */
static struct heap *
heap_to_settle(void)
{
	struct context *context = is_watching() ? context_current() : NULL;

	if (!context || stats_read(&context->device->stats->pending_bytes) == 0)
		return NULL;
	return heap_of(context);
}

void
order_before_sync(void)
{
	struct heap *heap = heap_to_settle();

	if (heap)
		heap_before_sync(heap);
}

/*
 * Objects that were loaded since may reach the driver past this library. Looked for in the
 * program's own synchronise, where nobody waits for this thread.
 */
static void
look_for_objects(void)
{
	enum { BETWEEN_LOOKS_NS = 50000000 };
	static _Atomic uint64_t last_ns;
	uint64_t last = atomic_load_explicit(&last_ns, memory_order_relaxed);
	struct timespec now;
	uint64_t now_ns;

	clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
	now_ns = (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
	/* relaxed: it only keeps others from looking, too */
	if (now_ns - last < BETWEEN_LOOKS_NS ||
	    !atomic_compare_exchange_strong_explicit(&last_ns, &last, now_ns, memory_order_relaxed,
						     memory_order_relaxed))
		return;
	linked_look();
	order_heed_doubt();
}

void
order_after_sync(void)
{
	struct heap *heap = heap_to_settle();

	if (is_watching() && !thread_holds() && !thread_is_at_step())
		look_for_objects();
	if (heap)
		heap_settle(heap); /* an error is the next request's to find */
}

void
order_forget_handles(void)
{
	/* release: what ended is gone from the table of contexts */
	atomic_fetch_add_explicit(&n_endings, 1, memory_order_release);
	submit_draw_attention();
}

void
order_before_destroy(CUstream stream)
{
	const struct submit_target target = submit_target(stream, HOOK_STREAM0_LEGACY);
	struct heap *heap;

	if (!is_watching() || !target.handle)
		return;
	heap = heap_of(context_of_handle(target.handle));
	if (heap)
		heap_forget_stream(heap, stream_of(&target));
	order_forget_handles();
}

void
order_after_green_destroy(struct context *primary)
{
	struct heap *heap = is_watching() ? heap_of(primary) : NULL;

	if (heap)
		heap_forget_streams(heap);
	order_forget_handles();
}

static void
stop(struct context *context, struct heap *heap, enum heap_kind kind, void *arg)
{
	(void)context, (void)arg;
	if (kind != HEAP_DEVICE)
		return;
	heap_stop_early(heap);
	heap_await_edges(heap);
}

/* Whoever meets another one here stops the heaps, too: nobody goes on before they are. */
void
order_heed_doubt(void)
{
	if (!coverage_is_in_doubt() || !is_watching())
		return;
	atomic_store(&is_stopping, true);
	context_for_each_heap(stop, NULL);
	atomic_store(&is_stopped, true);
}

const char *
order_why_off(void)
{
	if (coverage_is_in_doubt())
		return "coverage in doubt";
	if (init_options()->mode != OPTION_MODE_POOL)
		return "no pool";
	if (sharing_has_agents())
		return "a device file of RDMA, GDRCopy or nvidia-fs is open";
	if (!order_is_early())
		return backend_has_fences() ? "POOLSHIM_REUSE"
					    : "the driver has no cuCtxRecordEvent";
	return NULL;
}
