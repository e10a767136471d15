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
submit_target_of(uintptr_t word, const struct submit_slot *slot)
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
		target.slot = slot;
	return target;
}

static bool
may_mean(uintptr_t word, const struct submit_slot *slot, const struct submit_target *target)
{
	const struct submit_target meant = submit_target_of(word, slot);

	if (meant.kind == SUBMIT_NOTHING || meant.kind == SUBMIT_EVENT)
		return false;
	if (meant.kind == SUBMIT_CONTEXT || meant.kind == SUBMIT_MANY)
		return true;
	return meant.kind == target->kind && meant.handle == target->handle &&
	       meant.slot == target->slot;
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

static bool
is_announced(const struct submit_slot *slot, const struct submit_target *target)
{
	/* acquire, in this order: an outer one was kept before the inner one was announced */
	const uintptr_t word = atomic_load_explicit(&slot->announced, memory_order_acquire);
	const unsigned depth = atomic_load_explicit(&slot->n_outer, memory_order_acquire);

	if (may_mean(word, slot, target) || depth > SUBMIT_MAX_DEPTH)
		return true;
	for (unsigned i = 0; i < depth; i++)
		if (may_mean(atomic_load_explicit(&slot->outer[i].word, memory_order_relaxed), slot,
			     target))
			return true;
	return false;
}

static uint64_t
read_counts(const struct submit_slot *slot, const struct submit_target *target)
{
	uint64_t n = 0;

	/* acquire: what is read later is read after it, the number of moves last */
	for (unsigned i = 1; i <= SUBMIT_N_STREAMS; i++) {
		const struct submit_stream *stream = &slot->streams[i];

		if (may_mean(atomic_load_explicit(&stream->word, memory_order_acquire), slot,
			     target))
			n += atomic_load_explicit(&stream->n_submissions, memory_order_acquire);
	}
	for (unsigned i = 0; i < SUBMIT_N_KINDS; i++)
		n += atomic_load_explicit(&slot->others[i].n_submissions, memory_order_acquire);
	return n;
}

/* False: counts are moving all the time, or their thread was stopped as it moved them. */
static bool
count(const struct submit_slot *slot, const struct submit_target *target, uint64_t *ret_n)
{
	enum { N_TRIES = 1000 };

	for (int i = 0; i < N_TRIES; i++) {
		const unsigned n_moves = atomic_load_explicit(&slot->n_moves, memory_order_acquire);
		const uint64_t n = read_counts(slot, target);

		/* relaxed: the acquires of read_counts() keep it behind them */
		if (n_moves % 2 == 0 &&
		    atomic_load_explicit(&slot->n_moves, memory_order_relaxed) == n_moves) {
			*ret_n = n;
			return true;
		}
	}
	return false;
}

void
submit_look(const struct submit_target *target, struct submit_view *ret_view)
{
	const bool is_known = make_others_visible();
	struct submit_view view = {.is_announced = !is_known || atomic_load(&submit_is_slotless)};

	SUBMIT_FOR_EACH_SLOT(slot)
	{
		uint64_t n = 0;

		/* the word first: a submission whose word is cleared is counted */
		view.is_announced |= is_announced(slot, target);
		view.is_announced |= !count(slot, target, &n);
		view.n_submissions += n;
	}
	*ret_view = view;
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

static void
add_total(struct submit_total *totals, unsigned *n, unsigned n_max, const struct submit_slot *slot,
	  const struct submit_stream *stream, uintptr_t word)
{
	const struct submit_target target = submit_target_of(word, slot);
	const struct submit_total one = {
		.id = target.kind == SUBMIT_MANY ? 0 : atomic_load(&stream->id),
		.kind = target.kind,
		.handle = target.handle,
		.n_submissions = atomic_load(&stream->n_submissions),
		.n_synchronisations = atomic_load(&stream->n_synchronisations),
	};
	struct submit_total *total;

	if (!one.n_submissions && !one.n_synchronisations)
		return;
	total = find_total(totals, n, n_max, &one);
	if (one.id < total->id)
		total->id = one.id;
	total->n_submissions += one.n_submissions;
	total->n_synchronisations += one.n_synchronisations;
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
			/* acquire: the stream's id */
			add_total(
				ret_totals, &n, n_max, slot, &slot->streams[i],
				atomic_load_explicit(&slot->streams[i].word, memory_order_acquire));
		for (unsigned i = 0; i < SUBMIT_N_KINDS; i++)
			add_total(ret_totals, &n, n_max, slot, &slot->others[i], SUBMIT_MANY);
	}
	add_total(ret_totals, &n, n_max, &submit_no_slot, submit_no_slot.current, SUBMIT_MANY);
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
