/* SPDX-License-Identifier: MIT */
#include <linux/membarrier.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "shim/submit_slots.h"

enum registration {
	NOT_REGISTERED,
	REGISTERED,
	REFUSED, /* the kernel said it can, and then did not: nothing can be ruled out */
};

static _Atomic(enum registration) registration;

static long
membarrier(int command)
{
	return syscall(SYS_membarrier, command, 0, 0);
}

struct submit_target
submit_target_of(uintptr_t word, uint32_t thread)
{
	struct submit_target target = {
		.kind = word % (1 << SUBMIT_KIND_BITS),
		.handle = word >> SUBMIT_KIND_BITS,
	};

	if (target.kind != SUBMIT_LEGACY && target.kind != SUBMIT_PER_THREAD)
		return target;
	if (target.handle == (uintptr_t)CU_STREAM_LEGACY) {
		target.kind = SUBMIT_LEGACY;
		target.handle = 0;
	} else if (target.handle == (uintptr_t)CU_STREAM_PER_THREAD) {
		target.kind = SUBMIT_PER_THREAD;
		target.handle = 0;
	} else if (target.handle) {
		target.kind = SUBMIT_LEGACY;
	}
	if (target.kind == SUBMIT_PER_THREAD)
		target.thread = thread;
	return target;
}

/* False: nothing can be said about submissions of other threads. */
static bool
make_others_visible(void)
{
	enum registration known;

	if (submit_order() == SUBMIT_ORDER_FENCE) {
		/* this thread's stores before its reads of the slots; pairs with the submitters' */
		__sync_synchronize();
		return true;
	}
	known = atomic_load_explicit(&registration, memory_order_relaxed);
	if (known == NOT_REGISTERED) {
		known = membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) == 0 ? REGISTERED
										   : REFUSED;
		atomic_store_explicit(&registration, known, memory_order_relaxed);
	}
	return known == REGISTERED && membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED) == 0;
}

static void
visit_word(uintptr_t word, const struct submit_slot *slot,
	   void (*visit)(void *arg, const struct submit_target *target), void *arg)
{
	const struct submit_target target =
		submit_target_of(word, atomic_load_explicit(&slot->thread, memory_order_relaxed));

	if (target.kind != SUBMIT_NOTHING)
		visit(arg, &target);
}

static void
visit_slot(const struct submit_slot *slot,
	   void (*visit)(void *arg, const struct submit_target *target), void *arg)
{
	/* acquire, in this order: an outer one was kept before the inner one was announced */
	const uintptr_t word = atomic_load_explicit(&slot->announced, memory_order_acquire);
	const unsigned depth = atomic_load_explicit(&slot->n_outer, memory_order_acquire);

	visit_word(word, slot, visit, arg);
	if (depth > SUBMIT_MAX_DEPTH)
		visit_word(SUBMIT_MANY, slot, visit, arg);
	for (unsigned i = 0; i < depth && i < SUBMIT_MAX_DEPTH; i++)
		visit_word(atomic_load_explicit(&slot->outer[i].word, memory_order_relaxed), slot,
			   visit, arg);
}

void
submit_look(void (*visit)(void *arg, const struct submit_target *target), void *arg)
{
	const struct submit_target unknown = {.kind = SUBMIT_MANY};

	if (!make_others_visible() || atomic_load(&submit_is_slotless))
		visit(arg, &unknown);
	SUBMIT_FOR_EACH_SLOT(slot)
	visit_slot(slot, visit, arg);
}

uint64_t
submit_n_submissions(void)
{
	static _Atomic uint64_t n_asked = 1; /* the first may be compared with one from before */
	uint64_t n = 0;

	SUBMIT_FOR_EACH_SLOT(slot)
	/* acquire: what a thread did before it was counted */
	n += atomic_load_explicit(&slot->n_submissions, memory_order_acquire);
	/* Threads that have no slot may have submitted since the last time. */
	if (atomic_load(&submit_is_slotless))
		n += atomic_fetch_add(&n_asked, 1);
	return n;
}

uint64_t
submit_n_begun(void)
{
	uint64_t n_announced = 0;

	/* acquire: one that is not announced any more is counted below */
	SUBMIT_FOR_EACH_SLOT(slot)
	n_announced += atomic_load_explicit(&slot->announced, memory_order_acquire) != 0;
	return n_announced + submit_n_submissions();
}

/* What is counted in one place of a slot. */
struct counts {
	uintptr_t word;
	uint64_t n_submissions, n_synchronisations;
};

static struct counts
read_place(const struct submit_slot *slot, const struct submit_stream *stream)
{
	/* acquire: the stream's id; and what is read later is read after it, the number of moves
	 * last */
	struct counts counts = {
		.word = atomic_load_explicit(&stream->word, memory_order_acquire),
		.n_submissions = atomic_load_explicit(&stream->n_submissions, memory_order_acquire),
		.n_synchronisations =
			atomic_load_explicit(&stream->n_synchronisations, memory_order_acquire),
	};

	if (atomic_load_explicit(&slot->current, memory_order_acquire) == stream) {
		/* in this order: never less than 0 */
		const uint64_t n_folded =
			atomic_load_explicit(&slot->n_folded, memory_order_acquire);

		counts.n_submissions +=
			atomic_load_explicit(&slot->n_submissions, memory_order_acquire) - n_folded;
	}
	return counts;
}

/* A thread that moves its counts all the time, or was stopped as it did, is read as it is. */
static struct counts
count_place(const struct submit_slot *slot, const struct submit_stream *stream)
{
	enum { N_TRIES = 1000 };
	struct counts counts;

	for (int i = 0; i < N_TRIES; i++) {
		const unsigned n_moves = atomic_load_explicit(&slot->n_moves, memory_order_acquire);

		counts = read_place(slot, stream);
		/* relaxed: the acquires of read_place() keep it behind them */
		if (n_moves % 2 == 0 &&
		    atomic_load_explicit(&slot->n_moves, memory_order_relaxed) == n_moves)
			break;
	}
	return counts;
}

static struct submit_total *
find_total(struct submit_total *totals, unsigned *n, unsigned n_max, const struct submit_total *one)
{
	for (unsigned i = 0; i < *n; i++)
		if (totals[i].kind == one->kind && totals[i].handle == one->handle)
			return &totals[i];
	if (*n == n_max)
		return &totals[n_max - 1];
	totals[*n] = (struct submit_total){.id = one->id, .kind = one->kind, .handle = one->handle};
	if (*n == n_max - 1) /* the last takes all that there is no place for */
		totals[*n] = (struct submit_total){.kind = SUBMIT_MANY};
	return &totals[(*n)++];
}

/* word: what the place is shown as; 0: what is counted there. */
static void
add_total(struct submit_total *totals, unsigned *n, unsigned n_max, const struct submit_slot *slot,
	  const struct submit_stream *stream, uintptr_t word)
{
	const struct counts counts = count_place(slot, stream);
	const struct submit_target target = submit_target_of(word ? word : counts.word, 0);
	const struct submit_total one = {
		.id = target.kind == SUBMIT_MANY ? 0 : atomic_load(&stream->id),
		.kind = target.kind,
		.handle = target.handle,
	};
	struct submit_total *total;

	if (!counts.n_submissions && !counts.n_synchronisations)
		return;
	total = find_total(totals, n, n_max, &one);
	if (one.id < total->id)
		total->id = one.id;
	total->n_submissions += counts.n_submissions;
	total->n_synchronisations += counts.n_synchronisations;
}

static int
by_id(const void *a, const void *b)
{
	const struct submit_total *first = a, *second = b;

	return (first->id > second->id) - (first->id < second->id);
}

unsigned
submit_totals(struct submit_total *ret_totals, unsigned n_max)
{
	unsigned n = 0;

	SUBMIT_FOR_EACH_SLOT(slot)
	{
		for (unsigned i = 1; i <= SUBMIT_N_STREAMS; i++)
			add_total(ret_totals, &n, n_max, slot, &slot->streams[i], 0);
		for (unsigned i = 0; i < SUBMIT_N_KINDS; i++)
			add_total(ret_totals, &n, n_max, slot, &slot->others[i], SUBMIT_MANY);
	}
	add_total(ret_totals, &n, n_max, &submit_no_slot, &submit_no_slot.others[SUBMIT_MANY],
		  SUBMIT_MANY);
	qsort(ret_totals, n, sizeof(ret_totals[0]), by_id);
	return n;
}

const char *
submit_total_kind(const struct submit_total *total)
{
	static const char *const names[] = {
		[SUBMIT_LEGACY] = "legacy",   [SUBMIT_PER_THREAD] = "per_thread",
		[SUBMIT_CONTEXT] = "context", [SUBMIT_EVENT] = "event",
		[SUBMIT_MANY] = "other",
	};

	return total->kind == SUBMIT_LEGACY && total->handle ? "created" : names[total->kind];
}
