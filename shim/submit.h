/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * Who is submitting work to which stream right now, and how often it was done.
 *
 * Every hook of a function that submits calls submit_begin() before the driver and submit_end()
 * after it. What is announced in between is one word in a slot of the calling thread's own. Slots
 * are never freed: a reader walks them all, and the one of a thread that ended, counts and all,
 * goes to the next thread that needs one.
 *
 * What a reader may rely on. It first makes its change visible (a stream leaves the unfinished set,
 * a mode changes), then calls submit_look(). A submission that did not see the change had begun, so
 * it is either still announced or already counted: the count is raised before the word is cleared.
 * Nested submissions (the driver calling back into an export) leave the outer ones announced.
 * Doubt is always answered with "announced", or with a higher count: several streams at once, a
 * context's streams, a stream 0 of another context (the context is not known here), a thread
 * without a slot.
 *
 * Cost: a look at the slot, a store before the call, an increment and a store after it; no lock,
 * no atomic read-modify-write, no driver call. The reader pays: membarrier(2) makes every other
 * thread's stores come before its reads. Where the kernel has no private expedited membarrier,
 * every submission makes a full fence itself.
 *
 * Locking: none. All fields of a slot are written by its thread alone, and read by any.
 */
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "shim/hooks.h"

/* The low bits of a word; above them is the handle. NOTHING is 0 as a whole. */
enum submit_kind {
	SUBMIT_NOTHING,
	SUBMIT_LEGACY,     /* a stream, 0 being the legacy one */
	SUBMIT_PER_THREAD, /* a stream, 0 being the thread's own */
	SUBMIT_CONTEXT,    /* all streams of a context */
	SUBMIT_EVENT,      /* known by an event only; synchronised with, never submitted to */
	SUBMIT_MANY,       /* several streams, or one that there was no place to keep */
	SUBMIT_N_KINDS,
};

enum {
	SUBMIT_KIND_BITS =
		3, /* a handle is an address or 0, 1, 2: it has no use for its top bits */
	SUBMIT_N_STREAMS = 16,
	SUBMIT_PLACE_BITS = 4,
	SUBMIT_N_PLACES = 1 << SUBMIT_PLACE_BITS,
	SUBMIT_MAX_DEPTH = 4, /* nested deeper: counted and announced as SUBMIT_MANY */
};

/* What one thread did to one stream. */
struct submit_stream {
	_Atomic uintptr_t word; /* 0: free */
	_Atomic uint32_t id;    /* in the order of first use, from 1 */
	_Atomic uint64_t n_submissions;
	_Atomic uint64_t n_synchronisations;
};

struct submit_slot {
	/* 0: this thread is not in the driver with a submission */
	_Alignas(64) _Atomic uintptr_t announced;
	uintptr_t last_word;             /* the stream that `current` counts; 0: look for it */
	struct submit_stream *current;   /* where the submission under way is counted */
	unsigned depth;                  /* submissions that the announced one is nested in */
	atomic_uint n_outer;             /* the deepest since the outermost began */
	uint8_t places[SUBMIT_N_PLACES]; /* by hash of a word: where in streams[] it may be */
	atomic_bool is_owned;
	unsigned next_victim; /* of streams[], when all are in use */
	atomic_uint n_moves;  /* odd while a count moves from streams[] to others[] */
	struct {
		_Atomic uintptr_t word;
		struct submit_stream *stream;
	} outer[SUBMIT_MAX_DEPTH];
	struct submit_stream streams[1 + SUBMIT_N_STREAMS]; /* the first is nobody's */
	struct submit_stream others[SUBMIT_N_KINDS]; /* by kind: what streams[] had no place for */
};

/* Two hundred bodies have it: left to itself the compiler makes calls of it. */
#define SUBMIT_INLINE static inline __attribute__((always_inline))

/* Never NULL: a thread without a slot of its own has one that nobody looks at. */
extern __thread struct submit_slot *submit_own __attribute__((tls_model("initial-exec")));

SUBMIT_INLINE uintptr_t
submit_word(CUstream stream, enum hook_stream0 stream0)
{
	return (uintptr_t)stream << SUBMIT_KIND_BITS |
	       (stream0 == HOOK_STREAM0_PER_THREAD ? SUBMIT_PER_THREAD : SUBMIT_LEGACY);
}

/* submit_begin() for a stream that this thread did not use last, and for nested submissions. */
void submit_begin_slow(uintptr_t word);
void submit_end_nested(struct submit_slot *slot);

SUBMIT_INLINE void
submit_begin(uintptr_t word)
{
	struct submit_slot *slot = submit_own;

	/* relaxed: this thread's own */
	if (__builtin_expect(slot->last_word != word ||
				     atomic_load_explicit(&slot->announced, memory_order_relaxed) !=
					     0,
			     0)) {
		submit_begin_slow(word);
		return;
	}
	/*
	 * relaxed, and no more than a compiler barrier: the reader's membarrier orders this store
	 * before whatever this thread reads or submits next.
	 */
	atomic_store_explicit(&slot->announced, word, memory_order_relaxed);
	atomic_signal_fence(memory_order_seq_cst);
}

SUBMIT_INLINE void
submit_end_uncounted(struct submit_slot *slot)
{
	if (__builtin_expect(atomic_load_explicit(&slot->n_outer, memory_order_relaxed) != 0, 0))
		submit_end_nested(slot);
	else
		/* release: whoever sees it cleared sees the count */
		atomic_store_explicit(&slot->announced, SUBMIT_NOTHING, memory_order_release);
}

SUBMIT_INLINE void
submit_end(void)
{
	struct submit_slot *slot = submit_own;
	_Atomic uint64_t *count = &slot->current->n_submissions;

	/* relaxed: this thread is the only writer */
	atomic_store_explicit(count, atomic_load_explicit(count, memory_order_relaxed) + 1,
			      memory_order_relaxed);
	submit_end_uncounted(slot);
}

/* One driver call that submits to a stream, announced; its CUresult. */
#define SUBMIT_CALL(stream, stream0, call) \
	({ \
		CUresult submit_result; \
\
		submit_begin(submit_word(stream, stream0)); \
		submit_result = (call); \
		submit_end(); \
		submit_result; \
	})

/*
 * A call that submits to several streams is announced as SUBMIT_MANY; submit_count() for each of
 * them and then submit_end_many() take the place of submit_end().
 */
void submit_count(uintptr_t word);

SUBMIT_INLINE void
submit_end_many(void)
{
	submit_end_uncounted(submit_own);
}

/* The program has synchronised with a stream, an event (SUBMIT_EVENT) or a context. */
void submit_count_synchronisation(uintptr_t word);

/* Whose submissions are asked about; made by the thread that uses the stream. */
struct submit_target {
	enum submit_kind kind; /* LEGACY: handle 0, or made by the program; or PER_THREAD */
	uintptr_t handle;      /* 0 for a stream 0 */
	const struct submit_slot *slot; /* PER_THREAD: whose */
};

struct submit_target submit_target(CUstream stream, enum hook_stream0 stream0);

struct submit_view {
	bool is_announced;
	uint64_t n_submissions; /* unless announced: all that ever were, and perhaps others; only
				   rises */
};

/*
 * Makes this thread's stores so far visible to every submission that begins, and finds what had
 * begun. Costs a system call, the first time some milliseconds.
 */
void submit_look(const struct submit_target *target, struct submit_view *ret_view);

/* What is known of a stream, over all threads. */
struct submit_total {
	uint32_t id;
	enum submit_kind kind;
	uintptr_t handle;
	uint64_t n_submissions, n_synchronisations;
};

/*
 * Fills at most n_max, sorted by id; more are summed in the last. Streams 0 of all threads count as
 * one, so do those of all contexts. No barrier: figures for a dump.
 */
unsigned submit_totals(struct submit_total *ret_totals, unsigned n_max);

/* As the dump names it. */
const char *submit_total_kind(const struct submit_total *total);

/* In a forked child: the other threads and what they were doing are not here. */
void submit_on_fork_child(void);
