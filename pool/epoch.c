/* SPDX-License-Identifier: MIT */
/*
 * Epochs: the frees between two fences, and when they are complete.
 *
 * 1. A fence is recorded after every free of its epoch: an epoch is detached under the lock, and
 *    only then is its fence recorded, so no free can join an epoch whose fence may be on its way.
 *    One exception: while the backend counts no more submissions than before a fence was recorded,
 *    that fence covers a later free just as well.
 * 2. A block leaves its epoch only when the backend has answered that the epoch's fence is
 *    complete, or that of one whose fence was recorded after it; or early, see heap_order.c.
 * 3. A fence that could not be recorded covers nothing: its blocks go back to the open epoch.
 * 4. A block that other contexts' streams used is in a wide epoch, whose fence covers every live
 *    context.
 *
 * A detached epoch is on no list while its fence is recorded; other threads see it as in transit
 * (heap_await_transit), so that nobody reports exhaustion while memory is only on its way from one
 * list to the next. Two that are recorded at the same time cover each other neither way.
 */
#include "pool/heap_internal.h"

#include <assert.h>
#include <stdlib.h>

#include "pool/thread.h"

static void
add_locked(struct heap *heap, struct block *block, struct epoch *epoch)
{
	struct backend *backend = heap->config.backend;

	assert(block->state == BLOCK_PENDING);
	if (epoch->n_blocks == 0 && !epoch->fence)
		epoch->n_begun = backend->ops->n_begun(backend);
	block->epoch = epoch;
	list_append(&epoch->blocks, &block->epoch_link);
	epoch->n_blocks++;
	epoch->n_bytes += block->size_bytes;
	STATS_RAISE(heap->config.stats, pending_bytes, block->size_bytes);
	STATS_RAISE(heap->config.stats, n_free_blocks, 1);
}

void
epoch_add_locked(struct heap *heap, struct block *block, bool is_wide)
{
	add_locked(heap, block, heap->open[is_wide]);
	if (order_lists_locked(heap, block, is_wide)) {
		order_list_locked(heap, block);
		order_merge_locked(heap, block);
	}
}

void
epoch_add_shared_locked(struct heap *heap, struct block *block)
{
	add_locked(heap, block, heap->open[false]);
	if (block->share)
		order_list_locked(heap, block);
	else
		order_ask_cover_locked(heap, block->epoch);
}

void
epoch_add_rest_locked(struct heap *heap, struct block *block, struct epoch *epoch)
{
	add_locked(heap, block, epoch);
	order_list_locked(heap, block);
}

void
epoch_leave_locked(struct heap *heap, struct block *block)
{
	struct stats *stats = heap->config.stats;

	order_unlist_locked(heap, block);
	list_remove(&block->epoch_link);
	block->epoch->n_blocks--;
	block->epoch->n_bytes -= block->size_bytes;
	stats_lower(&stats->pending_bytes, block->size_bytes);
	stats_lower(&stats->n_free_blocks, 1);
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

bool
epoch_set_up_locked(struct heap *heap)
{
	for (size_t i = 0; i < 2; i++) {
		heap->open[i] = epoch_new_locked(heap);
		if (!heap->open[i]) {
			if (i > 0)
				epoch_free_locked(heap, heap->open[0]);
			return false;
		}
		heap->open[i]->is_wide = i;
	}
	return true;
}

/* Move all blocks of an epoch to another one. */
static void
move_blocks(struct epoch *to, struct epoch *from)
{
	for (struct list *at = from->blocks.next; at != &from->blocks; at = at->next)
		list_entry(at, struct block, epoch_link)->epoch = to;
	list_splice(&to->blocks, &from->blocks);
	to->n_blocks += from->n_blocks;
	to->n_bytes += from->n_bytes;
	from->n_blocks = 0;
	from->n_bytes = 0;
}

/* What a later fence covers besides, nobody knows: none of these blocks is handed out early. */
static void
reopen_locked(struct heap *heap, struct epoch *epoch)
{
	order_stop_early_locked(heap, epoch);
	move_blocks(heap->open[epoch->is_wide], epoch);
	heap->open[epoch->is_wide]->n_begun = 0; /* it is not known any more */
	epoch_free_locked(heap, epoch);
}

static struct epoch *
newest_sealed_locked(struct heap *heap)
{
	for (struct list *at = heap->sealed.prev; at != &heap->sealed; at = at->prev) {
		struct epoch *epoch = list_entry(at, struct epoch, link);

		if (!epoch->is_wide)
			return epoch;
	}
	return NULL;
}

static void
retire_blocks_locked(struct heap *heap, struct epoch *epoch)
{
	while (!list_is_empty(&epoch->blocks)) {
		struct block *block = list_entry(epoch->blocks.next, struct block, epoch_link);

		epoch_leave_locked(heap, block);
		heap_retire_block_locked(heap, block);
	}
}

/*
 * Is all that was freed covered already? If nothing was submitted since the newest fence, then by
 * that one; and if that one is complete, so is the open epoch. What had ended before the record is
 * covered; what has begun by now may have been submitted after it, though it has not ended yet.
 */
static bool
is_covered_locked(struct heap *heap)
{
	struct backend *backend = heap->config.backend;
	struct epoch *open = heap->open[false], *newest = newest_sealed_locked(heap);
	const uint64_t n_covered = newest ? newest->n_submissions : heap->order.n_submissions;

	if (!heap->order.is_on || heap->order.is_stopped || heap->n_sealing > 0 || n_covered == 0 ||
	    backend->ops->n_begun(backend) + 1 != n_covered)
		return false;
	open->is_awaited = false;
	if (newest)
		move_blocks(newest, open);
	else
		retire_blocks_locked(heap, open);
	return true;
}

/* Record a fence for the open epoch and begin another. Called with the lock, which it lets go in
 * between. */
static int
close_locked(struct heap *heap, bool is_wide, struct epoch **ret_epoch)
{
	struct backend *backend = heap->config.backend;
	struct epoch *fresh = epoch_new_locked(heap), *epoch = heap->open[is_wide];
	struct fence *fence;
	int r;

	*ret_epoch = NULL;
	if (!fresh)
		return BACKEND_E_BUSY; /* the frees stay uncovered, and so pending */
	fresh->is_wide = is_wide;
	heap->open[is_wide] = fresh;
	epoch->is_awaited = false;
	epoch->id = ++heap->n_epochs;
	epoch->covers_id = heap->n_sealing > 0 ? 0 : epoch->id - 1;
	epoch->n_blockers = order_n_coverable_blockers(&heap->order);
	epoch->n_foreign = order_n_coverable_foreign(&heap->order);
	/* One more than counted, so that 0 is none. Before the record: a submission that ends later
	 * is not covered for all that is known here. */
	epoch->n_submissions = heap->order.is_on ? backend->ops->n_submissions(backend) + 1 : 0;
	epoch->is_precise = epoch->n_blocks > 0 && backend->ops->n_begun(backend) == epoch->n_begun;
	if (list_is_empty(&heap->sealed) && heap->order.is_on)
		heap->order.progress_ns = backend->ops->coarse_ns(backend);

	heap->n_sealing++;
	heap_enter_transit_locked(heap);
	thread_unlock(&heap->lock);
	r = backend->ops->fence_record(backend, is_wide, &fence);
	thread_lock(&heap->lock);
	heap_leave_transit_locked(heap);
	heap->n_sealing--;

	if (r != BACKEND_OK) {
		reopen_locked(heap, epoch);
		return r;
	}
	stats_count(&heap->config.stats->fence_count, 1);
	epoch->fence = fence;
	list_append(&heap->sealed, &epoch->link);
	heap->n_wide_sealed += epoch->is_wide;
	*ret_epoch = epoch;
	return BACKEND_OK;
}

static void retire_some_locked(struct heap *heap);

int
epoch_seal_locked(struct heap *heap, bool is_wide)
{
	enum { N_BETWEEN_LOOKS = 16 };
	struct epoch *epoch;
	int r;

	if (heap->open[is_wide]->n_blocks == 0) {
		heap->open[is_wide]->is_awaited = false; /* all of it was handed out again */
		return BACKEND_OK;
	}
	if (!is_wide && is_covered_locked(heap))
		return BACKEND_OK;
	r = close_locked(heap, is_wide, &epoch);
	if (epoch && epoch->id % N_BETWEEN_LOOKS == 0)
		retire_some_locked(heap);
	return r;
}

struct epoch *
epoch_drain_locked(struct heap *heap)
{
	struct epoch *epoch;

	close_locked(heap, false, &epoch);
	return epoch;
}

static void
retire_epoch_locked(struct heap *heap, struct epoch *epoch)
{
	struct backend *backend = heap->config.backend;
	uint64_t passed_id = epoch->covers_id;

	list_remove(&epoch->link);
	heap->n_wide_sealed -= epoch->is_wide;
	epoch->is_retired = true;
	/* Of those that were recorded at the same time, only what both cover is known. */
	if (epoch->covers_id + 1 == epoch->id)
		passed_id = epoch->id;
	if (epoch->is_wide && epoch->n_foreign > heap->order.n_passed_foreign)
		heap->order.n_passed_foreign = epoch->n_foreign;
	if (heap->order.is_on)
		order_complete(&heap->order, epoch, epoch->is_wide ? 0 : passed_id,
			       epoch->n_blockers, epoch->n_submissions,
			       backend->ops->coarse_ns(backend));
	retire_blocks_locked(heap, epoch);
}

void
epoch_enter_locked(struct epoch *epoch)
{
	epoch->n_users++;
}

void
epoch_exit_locked(struct heap *heap, struct epoch *epoch)
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

/* Later fences of a context cover what earlier ones do. Lets go of the lock. */
static void
retire_covered_locked(struct heap *heap, uint64_t covers_id)
{
	struct list *at = heap->sealed.next;

	while (at != &heap->sealed) {
		struct epoch *epoch = list_entry(at, struct epoch, link);

		if (epoch->is_wide || epoch->id > covers_id) {
			at = at->next;
			continue;
		}
		epoch_enter_locked(epoch);
		retire_epoch_locked(heap, epoch);
		epoch_exit_locked(heap, epoch);
		at = heap->sealed.next;
	}
}

int
epoch_ask_locked(struct heap *heap, struct epoch *epoch)
{
	struct backend *backend = heap->config.backend;
	int r;

	heap_step_out_locked(heap);
	thread_unlock(&heap->lock);
	r = backend->ops->fence_query(backend, epoch->fence);
	thread_lock(&heap->lock);
	heap_step_in_locked(heap);

	stats_count(&heap->config.stats->fence_query_count, 1);
	if (r != BACKEND_OK || epoch->is_retired)
		return r;
	retire_epoch_locked(heap, epoch);
	if (!epoch->is_wide)
		retire_covered_locked(heap, epoch->covers_id);
	return r;
}

int
epoch_seal_all_locked(struct heap *heap)
{
	int r = epoch_seal_locked(heap, false);

	return r < 0 ? r : epoch_seal_locked(heap, true);
}

/*
 * Of the sealed epochs that may be complete although those of unready[] are not: the oldest but
 * n_skip, or the last of them; NULL: none.
 */
static struct epoch *
next_to_ask_locked(struct heap *heap, const bool is_unready[2], unsigned n_skip)
{
	struct epoch *found = NULL;

	if (is_unready[false] && heap->n_wide_sealed == 0)
		return NULL; /* the list may be long */
	for (struct list *at = heap->sealed.next; at != &heap->sealed; at = at->next) {
		struct epoch *epoch = list_entry(at, struct epoch, link);

		if (is_unready[epoch->is_wide])
			continue;
		found = epoch;
		if (n_skip-- == 0)
			break;
	}
	return found;
}

/*
 * Take in what is complete: the question about the oldest first, then further and further ahead.
 * Later fences of a kind cover what earlier ones do: behind the first that is not ready none is.
 */
static int
take_in_locked(struct heap *heap)
{
	bool is_unready[2] = {false, false};
	unsigned n_skip = 0;
	struct epoch *epoch;
	int r = BACKEND_OK;

	while (r >= 0 && heap->state == HEAP_OPEN &&
	       (epoch = next_to_ask_locked(heap, is_unready, n_skip))) {
		epoch_enter_locked(epoch);
		r = epoch_ask_locked(heap, epoch);
		if (r > 0 && (n_skip == 0 || epoch->is_wide))
			is_unready[epoch->is_wide] = true;
		n_skip = r == BACKEND_OK ? 2 * n_skip + 1 : 0;
		epoch_exit_locked(heap, epoch);
	}
	return r;
}

/* The queue moves: take in some of what is complete, for a question now and then. */
static void
retire_some_locked(struct heap *heap)
{
	enum { N_AT_ONCE = 16 };
	const bool is_unready[2] = {false, true};
	struct epoch *epoch = next_to_ask_locked(heap, is_unready, N_AT_ONCE);

	if (!epoch)
		return;
	epoch_enter_locked(epoch);
	epoch_ask_locked(heap, epoch);
	epoch_exit_locked(heap, epoch);
}

int
heap_settle(struct heap *heap)
{
	int r = BACKEND_OK;

	thread_lock(&heap->lock);
	if (heap_is_open_locked(heap)) {
		r = epoch_seal_all_locked(heap);
		if (r >= 0)
			r = take_in_locked(heap);
	}
	thread_unlock(&heap->lock);
	return r < 0 ? r : HEAP_OK;
}

void
epoch_drop_all(struct heap *heap)
{
	struct backend *backend = heap->config.backend;
	struct list dropped;

	list_init(&dropped);
	thread_lock(&heap->lock);
	for (size_t i = 0; i < 2; i++)
		epoch_free_locked(heap, heap->open[i]);
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
