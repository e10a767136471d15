/* SPDX-License-Identifier: MIT */
#include "shim/submit_slots.h"

#include <linux/membarrier.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "pool/thread.h"
#include "shim/moved.h"
#include "shim/order.h"

enum {
	N_FIRST_SLOTS = 16,
	N_MORE_SLOTS = 64,
};

static struct submit_slot first_slots[N_FIRST_SLOTS];
static struct submit_chunk first_chunk = {.n_slots = N_FIRST_SLOTS, .slots = first_slots};

_Atomic(struct submit_chunk *) submit_chunks = &first_chunk;
static _Atomic uint32_t n_ids;

struct submit_slot submit_no_slot = {.current = &submit_no_slot.others[SUBMIT_MANY]};
atomic_bool submit_is_slotless;

__thread struct submit_slot *submit_own = &submit_no_slot;
struct submit_attention submit_attention = {1};

/* Threads that meet find the same. */
enum submit_order
submit_order(void)
{
	/* relaxed: nothing else is published with it */
	static _Atomic(enum submit_order) order;
	enum submit_order known = atomic_load_explicit(&order, memory_order_relaxed);
	long commands;

	if (known != SUBMIT_ORDER_UNKNOWN)
		return known;
	commands = syscall(SYS_membarrier, MEMBARRIER_CMD_QUERY, 0, 0);
	known = commands > 0 && commands & MEMBARRIER_CMD_PRIVATE_EXPEDITED
			? SUBMIT_ORDER_MEMBARRIER
			: SUBMIT_ORDER_FENCE;
	atomic_store_explicit(&order, known, memory_order_relaxed);
	return known;
}

static struct submit_slot *
claim_slot(void)
{
	SUBMIT_FOR_EACH_SLOT(slot)
	{
		bool is_owned = false;

		/* acquire: what its last thread left in it */
		if (!atomic_load_explicit(&slot->is_owned, memory_order_relaxed) &&
		    atomic_compare_exchange_strong_explicit(&slot->is_owned, &is_owned, true,
							    memory_order_acquire,
							    memory_order_relaxed))
			return slot;
	}
	return NULL;
}

/* Not from malloc: that may be the program's, and may be the one that is calling. */
static bool
add_chunk(void)
{
	struct {
		struct submit_chunk chunk;
		struct submit_slot slots[N_MORE_SLOTS];
	} *memory = mmap(NULL, sizeof(*memory), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
			 -1, 0);
	struct submit_chunk *chunk;

	if (memory == MAP_FAILED)
		return false;
	chunk = &memory->chunk;
	chunk->n_slots = N_MORE_SLOTS;
	chunk->slots = memory->slots;
	chunk->next = atomic_load_explicit(&submit_chunks, memory_order_relaxed);
	/* release: the chunk's own fields, for the acquire in SUBMIT_FOR_EACH_SLOT */
	while (!atomic_compare_exchange_weak_explicit(&submit_chunks, &chunk->next, chunk,
						      memory_order_release, memory_order_relaxed))
		;
	return true;
}

/* Its thread is gone, perhaps out of the driver: by cancellation, or from a callback. */
static void
abandon_slot(struct submit_slot *slot)
{
	slot->last_word = SUBMIT_NOTHING;
	slot->depth = 0;
	atomic_store_explicit(&slot->announced, SUBMIT_NOTHING, memory_order_release);
	atomic_store_explicit(&slot->n_outer, 0, memory_order_release);
	/* even, wherever a fork has stopped it */
	atomic_fetch_and_explicit(&slot->n_moves, ~1U, memory_order_relaxed);
	/* release: everything in the slot, for the thread that claims it */
	atomic_store_explicit(&slot->is_owned, false, memory_order_release);
}

static void
give_slot(void *slot)
{
	submit_own = &submit_no_slot; /* later destructors of this thread may submit yet */
	abandon_slot(slot);
}

/* The key whose destructor gives the slot back. Without one (there are too many keys) slots stay
 * with threads that are gone, and more are made. */
static pthread_key_t exit_key;
static bool has_exit_key;

static void
make_exit_key(void)
{
	has_exit_key = moved()->pthread_key_create(&exit_key, give_slot) == 0;
}

static struct submit_slot *
take_slot(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	struct submit_slot *slot = NULL;

	/* A signal handler that interrupted the shim gets none, and keeps none from others. */
	while (!thread_holds() && !(slot = claim_slot()) && add_chunk())
		;
	if (!slot) {
		atomic_store(&submit_is_slotless, true);
		return &submit_no_slot;
	}
	atomic_store_explicit(&slot->thread, thread_self(), memory_order_relaxed);
	if (!atomic_load_explicit(&slot->current, memory_order_relaxed))
		atomic_store_explicit(&slot->current, &slot->others[SUBMIT_MANY],
				      memory_order_relaxed);
	/* Another thread's own stream was counted in the place of this one's. */
	for (unsigned i = 0; i <= SUBMIT_N_STREAMS; i++)
		slot->streams[i].seen = 0;
	thread_hold();
	moved()->pthread_once(&once, make_exit_key);
	thread_release();
	if (has_exit_key)
		moved()->pthread_setspecific(exit_key, slot);
	submit_own = slot;
	return slot;
}

static struct submit_slot *
own_slot(void)
{
	return submit_own == &submit_no_slot ? take_slot() : submit_own;
}

static void
add(_Atomic uint64_t *count, uint64_t n)
{
	/* Written by the slot's thread alone. release: see evict() */
	atomic_store_explicit(count, atomic_load_explicit(count, memory_order_relaxed) + n,
			      memory_order_release);
}

/* This thread's own. */
static struct submit_stream *
current_of(struct submit_slot *slot)
{
	return atomic_load_explicit(&slot->current, memory_order_relaxed);
}

/*
 * Counts move between two of these: a reader that finds the same even number before and after has
 * seen all of a move or none of it. Only this thread writes the number.
 */
static void
begin_move(struct submit_slot *slot)
{
	const unsigned n = atomic_load_explicit(&slot->n_moves, memory_order_relaxed);

	/* relaxed: every store of the move is a release, which puts this one before it */
	atomic_store_explicit(&slot->n_moves, n + 1, memory_order_relaxed);
}

static void
end_move(struct submit_slot *slot)
{
	const unsigned n = atomic_load_explicit(&slot->n_moves, memory_order_relaxed);

	/* release: all of it, for a reader that finds an even number */
	atomic_store_explicit(&slot->n_moves, n + 1, memory_order_release);
}

/* What was counted for the current stream goes into its place, and another one is current. */
static void
set_current(struct submit_slot *slot, struct submit_stream *stream)
{
	const uint64_t n_folded = atomic_load_explicit(&slot->n_folded, memory_order_relaxed);
	const uint64_t n = atomic_load_explicit(&slot->n_submissions, memory_order_relaxed);
	struct submit_stream *before = current_of(slot);

	if (before == stream)
		return;
	begin_move(slot);
	add(&before->n_submissions, n - n_folded);
	atomic_store_explicit(&slot->n_folded, n, memory_order_release);
	atomic_store_explicit(&slot->current, stream, memory_order_release);
	end_move(slot);
}

/* Make room for another stream: the victim's counts go to its kind's. */
static struct submit_stream *
evict(struct submit_slot *slot)
{
	struct submit_stream *stream = &slot->streams[1 + slot->next_victim];
	const uintptr_t word = atomic_load_explicit(&stream->word, memory_order_relaxed);
	struct submit_stream *others = &slot->others[word % (1 << SUBMIT_KIND_BITS)];

	slot->next_victim = (slot->next_victim + 1) % SUBMIT_N_STREAMS;
	if (stream == current_of(slot)) {
		slot->last_word = SUBMIT_NOTHING;
		set_current(slot, others);
	}
	stream->seen = 0;
	begin_move(slot);
	add(&others->n_submissions, atomic_load(&stream->n_submissions));
	add(&others->n_synchronisations, atomic_load(&stream->n_synchronisations));
	atomic_store_explicit(&stream->n_submissions, 0, memory_order_release);
	atomic_store_explicit(&stream->n_synchronisations, 0, memory_order_release);
	atomic_store_explicit(&stream->word, SUBMIT_NOTHING, memory_order_release);
	end_move(slot);
	return stream;
}

/* Where a stream is counted. While submissions are nested nothing is evicted: an outer one may be
 * counted there yet. */
static struct submit_stream *
find_stream(struct submit_slot *slot, uintptr_t word)
{
	struct submit_stream *stream;

	if (slot == &submit_no_slot || word % (1 << SUBMIT_KIND_BITS) == SUBMIT_MANY)
		return &slot->others[SUBMIT_MANY];
	for (stream = slot->streams + 1; stream <= slot->streams + SUBMIT_N_STREAMS; stream++) {
		const uintptr_t seen = atomic_load_explicit(&stream->word, memory_order_relaxed);

		if (seen == word)
			return stream;
		if (!seen)
			break;
	}
	if (stream > slot->streams + SUBMIT_N_STREAMS) {
		if (atomic_load_explicit(&slot->announced, memory_order_relaxed))
			return &slot->others[word % (1 << SUBMIT_KIND_BITS)];
		stream = evict(slot);
	}
	atomic_store_explicit(&stream->id, atomic_fetch_add(&n_ids, 1) + 1, memory_order_relaxed);
	/* release: the id, for whoever sees the word */
	atomic_store_explicit(&stream->word, word, memory_order_release);
	return stream;
}

/* Keep what is announced where readers find it as long as it lasts. */
static void
push_outer(struct submit_slot *slot, uintptr_t outer_word)
{
	if (slot->depth < SUBMIT_MAX_DEPTH) {
		atomic_store_explicit(&slot->outer[slot->depth].word, outer_word,
				      memory_order_relaxed);
		slot->outer[slot->depth].stream = current_of(slot);
	}
	slot->depth++;
	/* release: the word, for a reader that sees the number */
	if (atomic_load_explicit(&slot->n_outer, memory_order_relaxed) < slot->depth)
		atomic_store_explicit(&slot->n_outer, slot->depth, memory_order_release);
}

static uint8_t *
place_of(struct submit_slot *slot, uintptr_t word)
{
	return &slot->places[(uint64_t)word * UINT64_C(0x9e3779b97f4a7c15) >>
			     (64 - SUBMIT_PLACE_BITS)];
}

/* Announces, and says where it is counted. */
static struct submit_slot *
announce_anew(uintptr_t word)
{
	struct submit_slot *slot = own_slot();
	const uintptr_t outer = atomic_load_explicit(&slot->announced, memory_order_relaxed);
	struct submit_stream *stream = find_stream(slot, word);

	if (slot == &submit_no_slot)
		return slot;
	if (outer != SUBMIT_NOTHING)
		push_outer(slot, outer);
	set_current(slot, stream);
	if (submit_order() == SUBMIT_ORDER_MEMBARRIER) {
		slot->last_word = word;
		if (stream <= slot->streams + SUBMIT_N_STREAMS)
			*place_of(slot, word) = (uint8_t)(stream - slot->streams);
	} /* else nobody finds it again: the way here is the one with the fence */

	/* release: a reader that sees this one sees that the outer one was kept */
	atomic_store_explicit(&slot->announced, word, memory_order_release);
	if (submit_order() == SUBMIT_ORDER_FENCE)
		/* before whatever this thread reads next; pairs with the reader's fence */
		__sync_synchronize();
	atomic_signal_fence(memory_order_seq_cst);
	return slot;
}

/* Programs that go from stream to stream come this way each time. NULL: it is not there. */
static struct submit_slot *
announce_known(uintptr_t word)
{
	struct submit_slot *slot = submit_own;
	struct submit_stream *stream = &slot->streams[*place_of(slot, word)];

	/* relaxed: as there */
	if (atomic_load_explicit(&stream->word, memory_order_relaxed) != word ||
	    atomic_load_explicit(&slot->announced, memory_order_relaxed) != SUBMIT_NOTHING)
		return NULL;
	set_current(slot, stream);
	slot->last_word = word;
	atomic_store_explicit(&slot->announced, word, memory_order_relaxed);
	atomic_signal_fence(memory_order_seq_cst);
	return slot;
}

static struct submit_slot *
announce(uintptr_t word)
{
	struct submit_slot *slot = announce_known(word);

	return slot ? slot : announce_anew(word);
}

/*
 * The attention is read before the order hears: whatever moves it meanwhile makes the next
 * submission tell again. A stream that has no place of its own, and one that the order wants to
 * hear of each time, is never taken for seen.
 */
void
submit_tell(struct submit_slot *slot, uintptr_t word, const struct heap_touch *touch)
{
	/* acquire: what was changed before it moved */
	const uint64_t seen = atomic_load_explicit(&submit_attention.n, memory_order_acquire);
	const bool is_seen =
		order_before_submission(submit_target_of(word, thread_self()), touch, false, NULL);

	slot->seen = is_seen && current_of(slot) <= slot->streams + SUBMIT_N_STREAMS ? seen : 0;
	current_of(slot)->seen = slot->seen;
}

void
submit_also(uintptr_t word)
{
	order_before_submission(submit_target_of(word, thread_self()), NULL, false, NULL);
}

void
submit_begin_slow(uintptr_t word, const struct heap_touch *touch)
{
	struct submit_slot *slot = announce(word);

	if (slot == &submit_no_slot) {
		order_before_submission(submit_target_of(word, thread_self()), touch, false, NULL);
		return;
	}
	/* A place that several streams share has seen nothing: 0 is never the attention's. */
	slot->seen = current_of(slot)->seen;
	if (atomic_load_explicit(&submit_attention.n, memory_order_relaxed) != slot->seen)
		submit_tell(slot, word, touch);
}

struct heap *
submit_begin_blocker(uintptr_t word, const struct heap_touch *touch)
{
	struct submit_slot *slot = announce(word);
	struct heap *blocked = NULL;

	if (slot != &submit_no_slot) /* what may be left out the next time is the same as before */
		slot->seen = current_of(slot)->seen;
	order_before_submission(submit_target_of(word, thread_self()), touch, true, &blocked);
	return blocked;
}

void
submit_end_blocker(struct heap *blocked)
{
	if (blocked)
		order_after_blocker(blocked);
	submit_end();
}

/*
 * The copies in outer[] stay until the outermost submission ends: whoever read the inner word finds
 * the outer one there, though this thread may have gone back to it meanwhile, or on to another
 * inner one.
 */
void
submit_end_nested(struct submit_slot *slot)
{
	uintptr_t word = SUBMIT_MANY;

	slot->last_word = SUBMIT_NOTHING;
	if (slot->depth == 0) {
		atomic_store_explicit(&slot->announced, SUBMIT_NOTHING, memory_order_release);
		atomic_store_explicit(&slot->n_outer, 0, memory_order_release);
		return;
	}
	slot->depth--;
	if (slot->depth < SUBMIT_MAX_DEPTH) {
		word = atomic_load_explicit(&slot->outer[slot->depth].word, memory_order_relaxed);
		set_current(slot, slot->outer[slot->depth].stream);
	} else {
		set_current(slot, &slot->others[SUBMIT_MANY]);
	}
	/* release: the count of the one that ended */
	atomic_store_explicit(&slot->announced, word, memory_order_release);
}

/* Something is announced, so nothing is evicted for it. */
void
submit_count(uintptr_t word)
{
	struct submit_slot *slot = own_slot();

	begin_move(slot);
	add(&find_stream(slot, word)->n_submissions, 1);
	add(&slot->n_folded, 1);
	add(&slot->n_submissions, 1);
	end_move(slot);
}

void
submit_end_many(void)
{
	struct submit_slot *slot = submit_own;

	if (atomic_load_explicit(&slot->n_outer, memory_order_relaxed) != 0)
		submit_end_nested(slot);
	else
		atomic_store_explicit(&slot->announced, SUBMIT_NOTHING, memory_order_release);
}

void
submit_count_synchronisation(uintptr_t word)
{
	add(&find_stream(own_slot(), word)->n_synchronisations, 1);
}

struct submit_target
submit_target(CUstream stream, enum hook_stream0 stream0)
{
	return submit_target_of(submit_word(stream, stream0), thread_self());
}

void
submit_draw_attention(void)
{
	/* release: what was changed before, for whoever sees that it moved */
	atomic_fetch_add_explicit(&submit_attention.n, 1, memory_order_release);
}

void
submit_on_fork_child(void)
{
	SUBMIT_FOR_EACH_SLOT(slot)
	if (slot != submit_own)
		abandon_slot(slot);
}
