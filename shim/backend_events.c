/* SPDX-License-Identifier: MIT */
/* The events of a context that are not in use. */
#include <stdlib.h>

#include "pool/thread.h"
#include "shim/backend_cuda.h"
#include "shim/context.h"

void
backend_events_init(struct backend_events *events)
{
	pthread_mutex_init(&events->lock, NULL);
}

CUresult
backend_event_get(struct context *context, CUevent *ret_event)
{
	struct backend_events *events = &context->events;
	struct context_scope scope;
	CUresult r;

	thread_lock(&events->lock);
	if (events->n_spare > 0) {
		*ret_event = events->spare[--events->n_spare];
		thread_unlock(&events->lock);
		return CUDA_SUCCESS;
	}
	thread_unlock(&events->lock);

	r = context_enter(atomic_load(&context->handle), &scope);
	if (r != CUDA_SUCCESS)
		return r;
	r = real.cuEventCreate(ret_event, CU_EVENT_DISABLE_TIMING);
	context_leave(&scope);
	return r;
}

void
backend_event_put(struct context *context, CUevent event, unsigned generation)
{
	struct backend_events *events = &context->events;
	bool is_alive;

	thread_lock(&events->lock);
	/* Under the lock, and the generation goes up before the events are forgotten: one that died
	 * with its context never gets among those of the next. */
	is_alive = atomic_load_explicit(&context->generation, memory_order_acquire) == generation;
	if (is_alive && events->n_spare == events->n_room) {
		CUevent *spare = realloc(events->spare, (events->n_room + 64) * sizeof(*spare));

		if (spare) {
			events->spare = spare;
			events->n_room += 64;
		}
	}
	/* Without room the event stays with the context until its end. */
	if (is_alive && events->n_spare < events->n_room)
		events->spare[events->n_spare++] = event;
	thread_unlock(&events->lock);
}

void
backend_events_forget(struct backend_events *events)
{
	thread_lock(&events->lock);
	events->n_spare = 0;
	thread_unlock(&events->lock);
}
