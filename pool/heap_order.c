/* SPDX-License-Identifier: MIT */
/*
 * Early hand-outs: memory whose earlier work is not complete, for work that comes after it.
 *
 * Rule 2. While one stream S alone has unfinished work, a pending block whose epoch has its fence
 * is handed out at once: what is submitted to S comes after the work that used it. The fence is the
 * edge that every other stream waits for before its first submission from then on. It was recorded
 * after the free and before anything was submitted after the free, so whoever waits for it waits
 * for what the program's free would have waited for, never for later work of S.
 * Rule 3. With several streams: completed blocks only.
 * Rule 4. No early hand-out while S has unfinished work that can wait for others, nor when no fence
 * of it has completed for a second.
 * Rule 8. A submission joins before it looks at the edge, a hand-out looks at who has joined before
 * it makes one, both under the heap's lock: one of them sees the other.
 * Work that touches none of what was handed out early need not come after the edge, and must not
 * wait for it: S may spin for that very copy. It counts as a stream's work all the same.
 * Idle. While nothing is unfinished, what is freed is complete.
 * Rule 5. None of this while others than the context's streams touch its memory: peers, network
 * cards, copies that another context's stream makes. Frees are wide then, since the context's own
 * fences cover no other's work.
 */
#include "pool/heap_internal.h"

#define STALL_NS UINT64_C(1000000000)

static struct free_index *
index_of(struct heap *heap, const struct block *block)
{
	return segment_is_arena(block->segment) ? &heap->arena_early : &heap->whole_early;
}

bool
order_is_idle_locked(const struct heap *heap, bool is_wide)
{
	struct order_stream only;

	return heap->order.is_on && !is_wide && order_mode(&heap->order, &only) == ORDER_IDLE;
}

/* With several streams the next submission does not seal: the fence may come much later, and cover
 * what natively nobody waits for. */
bool
order_lists_locked(const struct heap *heap, const struct block *block, bool is_wide)
{
	struct order_stream only;

	return heap->order.is_on && !is_wide && !block->segment->is_exported &&
	       order_mode(&heap->order, &only) == ORDER_ONE;
}

/* The first of an epoch asks for the next submission's attention: to be covered before it. */
void
order_list_locked(struct heap *heap, struct block *block)
{
	if (block->share)
		share_list_locked(heap, block);
	else
		free_index_append(index_of(heap, block), block);
	order_ask_cover_locked(heap, block->epoch);
}

void
order_ask_cover_locked(struct heap *heap, struct epoch *epoch)
{
	if (epoch->fence || epoch->is_awaited)
		return;
	epoch->is_awaited = true;
	if (heap->config.attention) /* relaxed: whoever knows of the free sees it */
		atomic_fetch_add_explicit(heap->config.attention, 1, memory_order_relaxed);
}

void
order_unlist_locked(struct heap *heap, struct block *block)
{
	if (block->share)
		share_unlist_locked(heap, block);
	else if (!list_is_empty(&block->link))
		free_index_remove(index_of(heap, block), block);
}

static bool
is_moving_locked(const struct heap *heap)
{
	struct backend *backend = heap->config.backend;

	return backend->ops->coarse_ns(backend) - heap->order.progress_ns < STALL_NS;
}

/* Two fences that were recorded at the same time do not cover each other, and waiting for the
 * newest edge has to be enough. */
static bool
are_ordered(const struct epoch *edge, const struct epoch *epoch)
{
	return !edge || edge == epoch || edge->covers_id >= epoch->id ||
	       epoch->covers_id >= edge->id;
}

static bool
is_early_locked(const struct heap *heap)
{
	const struct stream_order *order = &heap->order;
	struct order_stream only;

	return order->is_on && order_mode(order, &only) == ORDER_ONE &&
	       order->n_passed == order->n_blockers;
}

bool
heap_is_early(struct heap *heap)
{
	bool is_early;

	thread_lock(&heap->lock);
	is_early = is_early_locked(heap) && is_moving_locked(heap);
	thread_unlock(&heap->lock);
	return is_early;
}

struct block *
order_find_early_locked(struct heap *heap, const struct order_stream *stream,
			size_t requested_bytes)
{
	struct order_stream only;
	struct block *block;

	if (!is_early_locked(heap))
		return NULL;
	order_mode(&heap->order, &only);
	if (stream && !order_same(only, *stream))
		return NULL;
	block = heap_find_locked(heap, &heap->arena_early, &heap->whole_early, requested_bytes);
	if (!block || !is_moving_locked(heap) ||
	    (block->epoch->fence && !are_ordered(heap->order.edge, block->epoch)))
		return NULL;
	return block;
}

void
order_take_early_locked(struct heap *heap, struct block *block)
{
	struct epoch *epoch = block->epoch;
	struct order_stream only;

	order_mode(&heap->order, &only);
	epoch_leave_locked(heap, block);
	order_add_edge(&heap->order, epoch, epoch->id, only);
	stats_count(&heap->config.stats->early_count, 1);
}

static bool
is_listed(const struct block *block)
{
	return block->state == BLOCK_PENDING && !block->share && !list_is_empty(&block->link);
}

/* Out of where it is, to be part of a pending block. */
static bool
give_up_locked(struct heap *heap, struct block *block)
{
	if (!block)
		return false;
	if (is_listed(block))
		epoch_leave_locked(heap, block);
	else if (block->state == BLOCK_FREE)
		heap_withdraw_locked(heap, block);
	else
		return false;
	return true;
}

/*
 * While one stream alone has unfinished work, whose memory it was before is no difference to the
 * next owner: the newest fence covers all. If a second stream comes meanwhile, what was complete
 * waits for that fence.
 */
void
order_merge_locked(struct heap *heap, struct block *block)
{
	struct segment *segment = block->segment;
	struct epoch *epoch = block->epoch;
	struct block *prev = block->prev;
	const uint32_t freed_by = block->freed_by;

	epoch_leave_locked(heap, block);
	if (give_up_locked(heap, prev)) {
		segment_merge_next(segment, &heap->blocks, prev);
		block = prev;
	}
	if (give_up_locked(heap, block->next))
		segment_merge_next(segment, &heap->blocks, block);
	block->freed_by = freed_by;
	epoch_add_rest_locked(heap, block, epoch);
}

/* Let the stream come after the edge; natively the free has waited for that work. False: it does
 * not, since nothing runs in it now. Lets go of the lock. */
static bool
wait_for_edge_locked(struct heap *heap, struct order_stream stream,
		     const struct stream_handle *handle)
{
	struct backend *backend = heap->config.backend;
	struct epoch *edge = heap->order.edge;
	bool is_behind;
	int r = -1;

	epoch_enter_locked(edge);
	if (handle) {
		heap_step_out_locked(heap);
		thread_unlock(&heap->lock);
		r = backend->ops->edge_wait(backend, handle, edge->fence);
		thread_lock(&heap->lock);
		heap_step_in_locked(heap);
	}
	if (r == BACKEND_OK) {
		stats_count(&heap->config.stats->edge_count, 1);
		if (heap->order.edge == edge)
			order_note_wait(&heap->order, stream);
	} else if (r < 0 && !edge->is_retired && heap->state == HEAP_OPEN) {
		epoch_await_locked(heap, edge);
	}
	is_behind = r == BACKEND_OK || edge->is_retired;
	epoch_exit_locked(heap, edge);
	return is_behind;
}

/* What covers the epoch later covers more than its frees: none of it is handed out early. What is
 * one stream's stays so: it needs no fence. */
void
order_stop_early_locked(struct heap *heap, struct epoch *epoch)
{
	for (struct list *at = epoch->blocks.next; at != &epoch->blocks; at = at->next) {
		struct block *block = list_entry(at, struct block, epoch_link);

		if (!block->share)
			order_unlist_locked(heap, block);
	}
}

/* Before anything is submitted after the free. */
static void
cover_locked(struct heap *heap)
{
	struct epoch *open = heap->open[false];

	if (!open->is_awaited ||
	    (heap->state == HEAP_OPEN && epoch_seal_locked(heap, false) == BACKEND_OK))
		return;
	/* It cannot be covered now. What covers it later covers more. */
	open = heap->open[false];
	order_stop_early_locked(heap, open);
	open->is_awaited = false;
}

/* Can the range lie in a block that was handed out early, under an edge that is not complete? One
 * that is not within a live block is the driver's to judge. */
static bool
range_meets_edge_locked(struct heap *heap, uint64_t addr, size_t size_bytes)
{
	struct segment *segment = addr_map_find(&heap->pool->map, addr);
	const struct block *block;

	if (!segment || size_bytes == 0)
		return false;
	/* relaxed: a segment of this heap stays one, since the lock is held */
	if (atomic_load_explicit(&segment->heap, memory_order_relaxed) != heap ||
	    addr - segment->addr >= segment->size_bytes)
		return false;
	block = segment_block_holding(segment, addr);
	return block->state != BLOCK_LIVE || size_bytes > block->addr + block->size_bytes - addr ||
	       block->edge_id > heap->order.passed_id;
}

static bool
meets_edge_locked(struct heap *heap, const struct heap_touch *touch)
{
	for (unsigned i = 0; touch && i < touch->n_ranges; i++)
		if (range_meets_edge_locked(heap, touch->ranges[i].addr,
					    touch->ranges[i].size_bytes))
			return true;
	return !touch;
}

bool
heap_before_submission(struct heap *heap, struct order_stream stream,
		       const struct stream_handle *handle, bool can_wait)
{
	return heap_before_touching(heap, stream, handle, can_wait, NULL);
}

/* A context that is closing may live on, so who submits to it meanwhile counts as always. */
bool
heap_before_touching(struct heap *heap, struct order_stream stream,
		     const struct stream_handle *handle, bool can_wait,
		     const struct heap_touch *touch)
{
	struct stream_order *order = &heap->order;
	bool is_heard = true;

	thread_lock(&heap->lock);
	if (!order->is_on || heap->state == HEAP_GONE)
		goto unlock;
	if (can_wait)
		order->n_blockers++;
	cover_locked(heap);
	if (!handle)
		order_join_unknown(order);
	else if (order_join(order, stream))
		stats_count(&heap->config.stats->stream_switch_count, 1);
	if (order_must_wait(order, stream))
		is_heard = meets_edge_locked(heap, touch) && heap_is_open_locked(heap) &&
			   (!order->edge || wait_for_edge_locked(heap, stream, handle));
unlock:
	thread_unlock(&heap->lock);
	return is_heard;
}

void
heap_after_blocker(struct heap *heap)
{
	thread_lock(&heap->lock);
	heap->order.n_ended_blockers++;
	thread_unlock(&heap->lock);
}

bool
heap_must_not_overlap(struct heap *heap, struct order_stream stream)
{
	bool must_not;

	thread_lock(&heap->lock);
	must_not = order_ends_overlap(&heap->order, stream);
	thread_unlock(&heap->lock);
	return must_not;
}

void
heap_forget_stream(struct heap *heap, struct order_stream stream)
{
	thread_lock(&heap->lock);
	order_forget(&heap->order, stream);
	share_forget_locked(heap, stream);
	thread_unlock(&heap->lock);
}

void
heap_forget_streams(struct heap *heap)
{
	thread_lock(&heap->lock);
	order_forget_all(&heap->order);
	share_forget_all_locked(heap);
	thread_unlock(&heap->lock);
}

static void
enter(void *arg, struct order_stream stream)
{
	struct heap *heap = arg;

	thread_lock(&heap->lock);
	if (stream.word)
		order_join(&heap->order, stream);
	else
		order_join_unknown(&heap->order);
	thread_unlock(&heap->lock);
}

void
heap_turn(struct heap *heap)
{
	struct backend *backend = heap->config.backend;
	struct order_stream only;

	thread_lock(&heap->lock);
	if (heap->state != HEAP_OPEN || order_mode(&heap->order, &only) != ORDER_SEVERAL ||
	    !order_may_turn(&heap->order, backend->ops->coarse_ns(backend)))
		goto unlock;
	order_begin_turn(&heap->order, backend->ops->coarse_ns(backend));
	stats_count(&heap->config.stats->turn_count, 1);
	heap_step_out_locked(heap);
	thread_unlock(&heap->lock);
	backend->ops->look(backend, enter, heap);
	thread_lock(&heap->lock);
	heap_step_in_locked(heap);
	order_end_turn(&heap->order, epoch_drain_locked(heap));
unlock:
	thread_unlock(&heap->lock);
}

void
heap_before_sync(struct heap *heap)
{
	heap_turn(heap); /* with several streams: afterwards there may be one, or none */
	thread_lock(&heap->lock);
	if (heap->state == HEAP_OPEN)
		epoch_seal_locked(heap, false);
	thread_unlock(&heap->lock);
}

void
heap_cover(struct heap *heap, bool is_wide)
{
	if (!is_wide)
		heap_turn(heap);
	thread_lock(&heap->lock);
	if (heap->state == HEAP_OPEN)
		epoch_seal_locked(heap, is_wide);
	thread_unlock(&heap->lock);
}

void
heap_stop_early(struct heap *heap)
{
	thread_lock(&heap->lock);
	heap->order.is_stopped = true;
	thread_unlock(&heap->lock);
}

void
heap_await_edges(struct heap *heap)
{
	thread_lock(&heap->lock);
	if (heap->state == HEAP_OPEN && heap->order.edge)
		epoch_await_locked(heap, heap->order.edge);
	thread_unlock(&heap->lock);
}

bool
heap_share(struct heap *heap, bool is_shared)
{
	bool is_new;

	thread_lock(&heap->lock);
	is_new = is_shared && !heap->order.is_shared;
	heap->order.is_shared = is_shared;
	thread_unlock(&heap->lock);
	return is_new;
}

void
heap_begin_foreign(struct heap *heap, const struct heap_touch *touch)
{
	thread_lock(&heap->lock);
	heap->order.n_foreign++;
	if (heap->state == HEAP_OPEN && heap->order.edge && meets_edge_locked(heap, touch))
		epoch_await_locked(heap, heap->order.edge);
	thread_unlock(&heap->lock);
}

void
heap_end_foreign(struct heap *heap)
{
	thread_lock(&heap->lock);
	heap->order.n_ended_foreign++;
	thread_unlock(&heap->lock);
}
