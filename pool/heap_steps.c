/* SPDX-License-Identifier: MIT */
/*
 * Steps outside the lock: what a closing waits for, and what others see as memory in transit.
 */
#include "pool/heap_internal.h"

#include <assert.h>

void
heap_step_out_locked(struct heap *heap)
{
	thread_begin_step();
	heap->n_outside++;
}

void
heap_step_in_locked(struct heap *heap)
{
	assert(heap->n_outside > 0);
	if (--heap->n_outside == 0)
		pthread_cond_broadcast(&heap->changed);
	thread_end_step();
}

static void
begin_transit_locked(struct heap *heap)
{
	thread_begin_step();
	heap->n_in_transit++;
}

static void
end_transit_locked(struct heap *heap)
{
	assert(heap->n_in_transit > 0);
	if (--heap->n_in_transit == 0)
		pthread_cond_broadcast(&heap->changed);
	thread_end_step();
}

void
heap_enter_transit_locked(struct heap *heap)
{
	heap_step_out_locked(heap);
	begin_transit_locked(heap);
}

void
heap_leave_transit_locked(struct heap *heap)
{
	end_transit_locked(heap);
	heap_step_in_locked(heap);
}

void
heap_begin_transit(struct heap *heap)
{
	thread_lock(&heap->lock);
	begin_transit_locked(heap);
	thread_unlock(&heap->lock);
}

void
heap_end_transit(struct heap *heap)
{
	thread_lock(&heap->lock);
	end_transit_locked(heap);
	thread_unlock(&heap->lock);
}

bool
heap_await_transit(struct heap *heap)
{
	bool was_some;

	thread_lock(&heap->lock);
	was_some = heap->n_in_transit > 0;
	while (heap->n_in_transit > 0 && heap->state == HEAP_OPEN && !thread_is_at_step())
		heap_await_change_locked(heap);
	thread_unlock(&heap->lock);
	return was_some;
}
