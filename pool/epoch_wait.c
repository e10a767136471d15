/* SPDX-License-Identifier: MIT */
/*
 * Waiting for epochs, by asking again and again with the lock let go in between.
 */
#include "pool/heap_internal.h"

#include "pool/thread.h"

/* Then natively the free has waited for all that the fence covers; not for what was submitted
 * between the two. */
static bool
was_freed_here_locked(const struct epoch *epoch)
{
	const uint32_t self = thread_self();

	if (!epoch->is_precise)
		return false;
	for (const struct list *at = epoch->blocks.next; at != &epoch->blocks; at = at->next)
		if (list_entry(at, struct block, epoch_link)->freed_by == self)
			return true;
	return false;
}

static struct epoch *
next_to_await_locked(struct heap *heap, bool is_brief)
{
	for (struct list *at = heap->sealed.next; at != &heap->sealed; at = at->next) {
		struct epoch *epoch = list_entry(at, struct epoch, link);

		if (epoch->n_blocks == 0)
			continue;
		if (!epoch->is_stalled || (!is_brief && was_freed_here_locked(epoch)))
			return epoch;
		if (is_brief) /* later ones are not complete before it */
			return NULL;
	}
	return NULL;
}

enum { WAIT_GOES_ON = HEAP_E_LAST + 1 };

/* What an answer about the epoch's fence means for the thread that waits for it. */
static int
waiting_is_over_locked(const struct heap *heap, const struct epoch *epoch, int answer)
{
	if (epoch->is_retired)
		return HEAP_OK;
	if (answer < 0)
		return answer;
	/*
	 * The caller's next step waits until the closing has come to an end, one way or the other.
	 */
	if (heap->state != HEAP_OPEN)
		return HEAP_E_TIMEOUT;
	return answer == BACKEND_E_BUSY ? HEAP_E_MISS : WAIT_GOES_ON;
}

/* Ask until the epoch is complete (perhaps found so by another thread). The lock is let go in
 * between. */
static int
await_locked(struct heap *heap, struct epoch *epoch, bool is_brief, uint64_t begin_ns,
	     uint64_t bound_ns)
{
	struct backend *backend = heap->config.backend;
	const bool is_bounded = is_brief || !was_freed_here_locked(epoch);
	uint64_t end_ns = begin_ns;
	int r;

	stats_count(&heap->config.stats->wait_count, 1);
	for (unsigned n_tries = 0;; n_tries++) {
		r = waiting_is_over_locked(heap, epoch, epoch_ask_locked(heap, epoch));
		if (r == WAIT_GOES_ON && is_bounded && end_ns - begin_ns >= bound_ns) {
			epoch->is_stalled = true;
			r = HEAP_E_TIMEOUT;
		}
		if (r != WAIT_GOES_ON)
			break;
		heap_step_out_locked(heap);
		thread_unlock(&heap->lock);
		backend->ops->pause(backend, n_tries);
		end_ns = backend->ops->now_ns(backend);
		thread_lock(&heap->lock);
		heap_step_in_locked(heap);
	}
	stats_count(&heap->config.stats->wait_ns, end_ns - begin_ns);
	return r;
}

/* Not while something captures: then nothing may be asked. */
void
epoch_await_locked(struct heap *heap, struct epoch *epoch)
{
	struct backend *backend = heap->config.backend;

	epoch_enter_locked(epoch);
	stats_count(&heap->config.stats->wait_count, 1);
	for (unsigned n_tries = 0;; n_tries++) {
		if (waiting_is_over_locked(heap, epoch, epoch_ask_locked(heap, epoch)) !=
		    WAIT_GOES_ON)
			break;
		heap_step_out_locked(heap);
		thread_unlock(&heap->lock);
		backend->ops->pause(backend, n_tries);
		thread_lock(&heap->lock);
		heap_step_in_locked(heap);
	}
	epoch_exit_locked(heap, epoch);
}

static int
wait_for_oldest(struct heap *heap, bool is_brief, uint64_t bound_ns)
{
	struct backend *backend = heap->config.backend;
	const uint64_t begin_ns = backend->ops->now_ns(backend);
	struct epoch *epoch;
	int r = HEAP_E_CLOSED;

	thread_lock(&heap->lock);
	if (!heap_is_open_locked(heap))
		goto unlock;
	r = epoch_seal_all_locked(heap);
	if (r < 0)
		goto unlock;
	epoch = next_to_await_locked(heap, is_brief);
	r = HEAP_E_MISS;
	if (epoch) {
		epoch_enter_locked(epoch);
		r = await_locked(heap, epoch, is_brief, begin_ns, bound_ns);
		epoch_exit_locked(heap, epoch);
	}
unlock:
	thread_unlock(&heap->lock);
	return r;
}

int
heap_wait(struct heap *heap, uint64_t bound_ns)
{
	return wait_for_oldest(heap, false, bound_ns);
}

int
heap_wait_briefly(struct heap *heap, uint64_t bound_ns)
{
	return wait_for_oldest(heap, true, bound_ns);
}

void
heap_press(struct heap *heap)
{
	thread_lock(&heap->lock);
	heap->is_pressed = true;
	thread_unlock(&heap->lock);
}

void
heap_set_seal_bytes(struct heap *heap, uint64_t bytes)
{
	thread_lock(&heap->lock);
	heap->seal_bytes = bytes;
	thread_unlock(&heap->lock);
}

void
heap_set_exact(struct heap *heap)
{
	/* relaxed: requests that meet are served in one way or the other */
	atomic_store_explicit(&heap->is_exact, true, memory_order_relaxed);
}

unsigned
heap_n_epochs(struct heap *heap)
{
	unsigned n;

	thread_lock(&heap->lock);
	n = heap->n_in_transit; /* they may be epochs on their way to the list */
	for (const struct list *at = heap->sealed.next; at != &heap->sealed; at = at->next)
		n++;
	n += heap->open[false]->n_blocks > 0;
	n += heap->open[true]->n_blocks > 0;
	thread_unlock(&heap->lock);
	return n;
}
