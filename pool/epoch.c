/* SPDX-License-Identifier: MIT */
/*
 * Order: when a freed block may be handed out again. Completed blocks only.
 *
 * 1. A fence is recorded after every free of its epoch: an epoch is detached under the lock, and
 *    only then is its fence recorded, so no free can join an epoch whose fence may be on its way.
 * 2. A block leaves its epoch only when the backend has answered that the epoch's fence is
 *    complete.
 * 3. A fence that could not be recorded covers nothing: its blocks go back to the open epoch.
 * 4. A block that other contexts' streams used is in a wide epoch, whose fence covers every live
 *    context.
 *
 * A detached epoch is on no list while its fence is recorded; other threads see it as in transit
 * (heap_await_transit), so that nobody reports exhaustion while memory is only on its way from one
 * list to the next.
 */
#include "pool/heap_internal.h"

#include <assert.h>
#include <stdlib.h>

#include "pool/thread.h"

void
epoch_add_locked(struct heap *heap, struct block *block, bool is_wide)
{
	struct open_epoch *open = &heap->open[is_wide];

	assert(block->state == BLOCK_PENDING);
	list_append(&open->blocks, &block->link);
	open->n_blocks++;
	STATS_RAISE(heap->config.stats, pending_bytes, block->size_bytes);
	STATS_RAISE(heap->config.stats, n_free_blocks, 1);
}

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

static struct epoch *
epoch_new_locked(struct heap *heap)
{
	struct epoch *epoch;

	if (!list_is_empty(&heap->spare_epochs)) {
		epoch = list_entry(heap->spare_epochs.next, struct epoch, link);
		list_remove(&epoch->link);
	} else {
		epoch = malloc(sizeof(*epoch));
		if (!epoch)
			return NULL;
	}
	*epoch = (struct epoch){0};
	list_init(&epoch->link);
	list_init(&epoch->blocks);
	return epoch;
}

static void
epoch_free_locked(struct heap *heap, struct epoch *epoch)
{
	assert(list_is_empty(&epoch->blocks));
	list_append(&heap->spare_epochs, &epoch->link);
}

static void
reopen_locked(struct heap *heap, struct epoch *epoch)
{
	struct open_epoch *open = &heap->open[epoch->is_wide];

	list_splice(&open->blocks, &epoch->blocks);
	open->n_blocks += epoch->n_blocks;
	epoch_free_locked(heap, epoch);
}

/* Cover what was freed so far with a fence. Called with the lock, which it lets go in between. */
static int
seal_locked(struct heap *heap, bool is_wide)
{
	struct backend *backend = heap->config.backend;
	struct open_epoch *open = &heap->open[is_wide];
	struct fence *fence;
	struct epoch *epoch;
	int r;

	if (open->n_blocks == 0)
		return BACKEND_OK;
	epoch = epoch_new_locked(heap);
	if (!epoch)
		return BACKEND_OK; /* the frees stay uncovered, and so pending */
	epoch->is_wide = is_wide;
	epoch->n_blocks = open->n_blocks;
	list_splice(&epoch->blocks, &open->blocks);
	open->n_blocks = 0;

	heap_enter_transit_locked(heap);
	thread_unlock(&heap->lock);
	r = backend->ops->fence_record(backend, is_wide, &fence);
	thread_lock(&heap->lock);
	heap_leave_transit_locked(heap);

	if (r != BACKEND_OK) {
		reopen_locked(heap, epoch);
		return r;
	}
	stats_count(&heap->config.stats->fence_count, 1);
	epoch->fence = fence;
	list_append(&heap->sealed, &epoch->link);
	return BACKEND_OK;
}

static void
retire_epoch_locked(struct heap *heap, struct epoch *epoch)
{
	struct stats *stats = heap->config.stats;

	list_remove(&epoch->link);
	epoch->is_retired = true;
	while (!list_is_empty(&epoch->blocks)) {
		struct block *block = list_entry(epoch->blocks.next, struct block, link);

		list_remove(&block->link);
		stats_lower(&stats->pending_bytes, block->size_bytes);
		stats_lower(&stats->n_free_blocks, 1);
		heap_retire_block_locked(heap, block);
	}
	epoch->n_blocks = 0;
}

/*
 * Ask once whether an epoch is complete and take it in if so. The epoch is used by this thread
 * before and after (n_users), the lock is let go during the question.
 */
static int
ask_locked(struct heap *heap, struct epoch *epoch)
{
	struct backend *backend = heap->config.backend;
	int r;

	heap_step_out_locked(heap);
	thread_unlock(&heap->lock);
	r = backend->ops->fence_query(backend, epoch->fence);
	thread_lock(&heap->lock);
	heap_step_in_locked(heap);

	stats_count(&heap->config.stats->fence_query_count, 1);
	if (r == BACKEND_OK && !epoch->is_retired)
		retire_epoch_locked(heap, epoch);
	return r;
}

static void
leave_epoch_locked(struct heap *heap, struct epoch *epoch)
{
	struct backend *backend = heap->config.backend;
	struct fence *fence = epoch->fence;

	if (--epoch->n_users > 0 || !epoch->is_retired)
		return;
	epoch_free_locked(heap, epoch);
	heap_step_out_locked(heap);
	thread_unlock(&heap->lock);
	backend->ops->fence_free(backend, fence);
	thread_lock(&heap->lock);
	heap_step_in_locked(heap);
}

static int
seal_all_locked(struct heap *heap)
{
	int r = seal_locked(heap, false);

	return r < 0 ? r : seal_locked(heap, true);
}

/* The oldest sealed epoch that may be complete although those of unready[] are not; NULL: none. */
static struct epoch *
next_to_ask_locked(struct heap *heap, const bool is_unready[2])
{
	for (struct list *at = heap->sealed.next; at != &heap->sealed; at = at->next) {
		struct epoch *epoch = list_entry(at, struct epoch, link);

		if (!is_unready[epoch->is_wide])
			return epoch;
	}
	return NULL;
}

int
heap_settle(struct heap *heap)
{
	bool is_unready[2] = {false, false};
	struct epoch *epoch;
	int r = BACKEND_OK;

	thread_lock(&heap->lock);
	if (!heap_is_open_locked(heap))
		goto unlock;
	r = seal_all_locked(heap);
	/* Later fences of a kind cover what earlier ones do: behind the first that is not ready
	 * none is. */
	while (r >= 0 && heap->state == HEAP_OPEN &&
	       (epoch = next_to_ask_locked(heap, is_unready))) {
		epoch->n_users++;
		r = ask_locked(heap, epoch);
		if (r > 0)
			is_unready[epoch->is_wide] = true;
		leave_epoch_locked(heap, epoch);
	}
unlock:
	thread_unlock(&heap->lock);
	return r < 0 ? r : HEAP_OK;
}

static bool
was_freed_here_locked(const struct epoch *epoch)
{
	const uint32_t self = thread_self();

	for (const struct list *at = epoch->blocks.next; at != &epoch->blocks; at = at->next)
		if (list_entry(at, struct block, link)->freed_by == self)
			return true;
	return false;
}

static struct epoch *
next_to_await_locked(struct heap *heap, bool is_brief)
{
	for (struct list *at = heap->sealed.next; at != &heap->sealed; at = at->next) {
		struct epoch *epoch = list_entry(at, struct epoch, link);

		if (!epoch->is_stalled || (!is_brief && was_freed_here_locked(epoch)))
			return epoch;
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
		r = waiting_is_over_locked(heap, epoch, ask_locked(heap, epoch));
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
	r = seal_all_locked(heap);
	if (r < 0)
		goto unlock;
	epoch = next_to_await_locked(heap, is_brief);
	r = HEAP_E_MISS;
	if (epoch) {
		epoch->n_users++;
		r = await_locked(heap, epoch, is_brief, begin_ns, bound_ns);
		leave_epoch_locked(heap, epoch);
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

unsigned
heap_n_epochs(struct heap *heap)
{
	unsigned n;

	thread_lock(&heap->lock);
	n = heap->n_in_transit; /* they may be epochs on their way to the list */
	for (const struct list *at = heap->sealed.next; at != &heap->sealed; at = at->next)
		n++;
	n += heap->open[false].n_blocks > 0;
	n += heap->open[true].n_blocks > 0;
	thread_unlock(&heap->lock);
	return n;
}

void
epoch_drop_all(struct heap *heap)
{
	struct backend *backend = heap->config.backend;
	struct list dropped;

	list_init(&dropped);
	thread_lock(&heap->lock);
	for (size_t i = 0; i < 2; i++)
		heap->open[i].n_blocks = 0;
	list_splice(&dropped, &heap->sealed);
	thread_unlock(&heap->lock);
	while (!list_is_empty(&dropped)) {
		struct epoch *epoch = list_entry(dropped.next, struct epoch, link);

		assert(epoch->n_users == 0);
		list_remove(&epoch->link);
		backend->ops->fence_free(backend, epoch->fence);
		free(epoch);
	}
}
