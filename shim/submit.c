/* SPDX-License-Identifier: MIT */
#include "shim/submit_slots.h"

#include <linux/membarrier.h>
#include <pthread.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
	N_FIRST_SLOTS = 16,
	N_MORE_SLOTS = 64,
};

static struct {
	struct submit_chunk chunk;
	struct submit_slot slots[N_FIRST_SLOTS];
} first_chunk = {.chunk.n_slots = N_FIRST_SLOTS};

_Static_assert(offsetof(__typeof__(first_chunk), slots) == offsetof(struct submit_chunk, slots),
	       "the first slots do not follow their chunk");

_Atomic(struct submit_chunk *) submit_chunks = &first_chunk.chunk;
static _Atomic uint32_t n_ids;

/*
 * For threads that could get no slot. It is shared, so what it says is of no use; that it was used
 * is remembered, and every look answers "announced" from then on.
 */
struct submit_slot submit_no_slot = {.current = &submit_no_slot.others[SUBMIT_MANY]};
atomic_bool submit_is_slotless;

__thread struct submit_slot *submit_own = &submit_no_slot;

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
	const size_t n_bytes =
		sizeof(struct submit_chunk) + N_MORE_SLOTS * sizeof(struct submit_slot);
	struct submit_chunk *chunk =
		mmap(NULL, n_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (chunk == MAP_FAILED)
		return false;
	chunk->n_slots = N_MORE_SLOTS;
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
	has_exit_key = pthread_key_create(&exit_key, give_slot) == 0;
}

static struct submit_slot *
take_slot(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	struct submit_slot *slot = claim_slot();

	while (!slot && add_chunk())
		slot = claim_slot();
	if (!slot) {
		atomic_store(&submit_is_slotless, true);
		return &submit_no_slot;
	}
	pthread_once(&once, make_exit_key);
	if (has_exit_key)
		pthread_setspecific(exit_key, slot);
	submit_own = slot;
	return slot;
}

static void
add(_Atomic uint64_t *count, uint64_t n)
{
	/* Read and written by the slot's thread alone. release: a reader that still sees the old
	 * place of an evicted count sees it here as well, never in neither. */
	atomic_store_explicit(count, atomic_load_explicit(count, memory_order_relaxed) + n,
			      memory_order_release);
}

/* Make room for another stream: the victim's counts go to its kind's. */
static struct submit_stream *
evict(struct submit_slot *slot)
{
	struct submit_stream *stream = &slot->streams[slot->next_victim];
	const uintptr_t word = atomic_load_explicit(&stream->word, memory_order_relaxed);
	struct submit_stream *others = &slot->others[word % (1 << SUBMIT_KIND_BITS)];

	slot->next_victim = (slot->next_victim + 1) % SUBMIT_N_STREAMS;
	if (stream == slot->current)
		slot->last_word = SUBMIT_NOTHING;
	add(&others->n_submissions, atomic_load(&stream->n_submissions));
	add(&others->n_synchronisations, atomic_load(&stream->n_synchronisations));
	/* release, in this order: see add() */
	atomic_store_explicit(&stream->n_submissions, 0, memory_order_release);
	atomic_store_explicit(&stream->n_synchronisations, 0, memory_order_release);
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
	for (stream = slot->streams; stream < slot->streams + SUBMIT_N_STREAMS; stream++) {
		const uintptr_t seen = atomic_load_explicit(&stream->word, memory_order_relaxed);

		if (seen == word)
			return stream;
		if (!seen)
			break;
	}
	if (stream == slot->streams + SUBMIT_N_STREAMS) {
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
		slot->outer[slot->depth].stream = slot->current;
	}
	slot->depth++;
	/* release: the word, for a reader that sees the number */
	if (atomic_load_explicit(&slot->n_outer, memory_order_relaxed) < slot->depth)
		atomic_store_explicit(&slot->n_outer, slot->depth, memory_order_release);
}

void
submit_begin_slow(uintptr_t word)
{
	struct submit_slot *slot = submit_own == &submit_no_slot ? take_slot() : submit_own;
	const uintptr_t outer = atomic_load_explicit(&slot->announced, memory_order_relaxed);
	struct submit_stream *stream = find_stream(slot, word);

	if (slot == &submit_no_slot)
		return;
	if (outer != SUBMIT_NOTHING)
		push_outer(slot, outer);
	slot->current = stream;
	slot->last_word = submit_order() == SUBMIT_ORDER_MEMBARRIER ? word : SUBMIT_NOTHING;
	/* release: a reader that sees this one sees that the outer one was kept */
	atomic_store_explicit(&slot->announced, word, memory_order_release);
	if (submit_order() == SUBMIT_ORDER_FENCE)
		/* before whatever this thread reads next; pairs with the reader's fence */
		atomic_thread_fence(memory_order_seq_cst);
	atomic_signal_fence(memory_order_seq_cst);
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
	slot->current = &slot->others[SUBMIT_MANY];
	if (slot->depth < SUBMIT_MAX_DEPTH) {
		word = atomic_load_explicit(&slot->outer[slot->depth].word, memory_order_relaxed);
		slot->current = slot->outer[slot->depth].stream;
	}
	/* release: the count of the one that ended */
	atomic_store_explicit(&slot->announced, word, memory_order_release);
}

void
submit_count(uintptr_t word)
{
	struct submit_slot *slot = submit_own == &submit_no_slot ? take_slot() : submit_own;

	add(&find_stream(slot, word)->n_submissions, 1);
}

void
submit_count_synchronisation(uintptr_t word)
{
	struct submit_slot *slot = submit_own == &submit_no_slot ? take_slot() : submit_own;

	add(&find_stream(slot, word)->n_synchronisations, 1);
}

struct submit_target
submit_target(CUstream stream, enum hook_stream0 stream0)
{
	struct submit_slot *slot = submit_own == &submit_no_slot ? take_slot() : submit_own;

	return submit_target_of(submit_word(stream, stream0), slot);
}

void
submit_on_fork_child(void)
{
	SUBMIT_FOR_EACH_SLOT(slot)
	if (slot != submit_own)
		abandon_slot(slot);
}
