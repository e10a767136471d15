/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * Who is submitting work to which stream right now, how often it was done, and who has to be told.
 *
 * Every hook of a function that submits calls submit_begin() before the driver and submit_end()
 * after it. What is announced in between is one word in a slot of the calling thread's own. Slots
 * are never freed: a reader walks them all, and the one of a thread that ended, counts and all,
 * goes to the next thread that needs one.
 *
 * The order (order.h) hears of a submission, once it is announced and before the driver is called,
 * unless the thread's last one went to the same stream and submit_attention has not moved since.
 * Whoever wants to hear of each stream's next submission moves it.
 *
 * What a reader may rely on. It first moves submit_attention, then calls submit_look(). A
 * submission that the order does not hear of after that had begun, so it is either still announced,
 * or has ended and is counted by submit_n_submissions(): the count is raised before the word is
 * cleared. Nested submissions (the driver calling back into an export) leave the outer ones
 * announced. Doubt is always answered with SUBMIT_MANY: several streams at once, a context's
 * streams, a thread without a slot. The context of a stream 0 is not known here.
 *
 * Cost: a look at the slot, a store and a look at submit_attention before the call, an increment
 * and a store after it, all on one line of the cache but the attention, which is rarely written; no
 * lock, no atomic read-modify-write, no driver call. The reader pays: membarrier(2) makes every
 * other thread's stores come before its reads. Where the kernel has no private expedited
 * membarrier, every submission makes a full fence itself.
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
	uint64_t seen; /* submit_attention when the order last heard of it; 0: it wants to hear */
};

struct submit_slot {
	/* 0: this thread is not in the driver with a submission */
	_Alignas(64) _Atomic uintptr_t announced;
	uintptr_t last_word;            /* the stream that `current` counts; 0: look for it */
	uint64_t seen;                  /* of `current` */
	_Atomic uint64_t n_submissions; /* that ended, to whatever stream */
	_Atomic uint64_t n_folded;      /* of them, those that are counted in a stream */
	_Atomic(struct submit_stream *) current; /* where the others are counted */
	unsigned depth;      /* submissions that the announced one is nested in */
	atomic_uint n_outer; /* the deepest since the outermost began */
	/* here ends the line that every submission writes */
	uint8_t places[SUBMIT_N_PLACES]; /* by hash of a word: where in streams[] it may be */
	atomic_bool is_owned;
	_Atomic uint32_t thread; /* thread_self() of its thread */
	unsigned next_victim;    /* of streams[], when all are in use */
	atomic_uint n_moves;     /* odd while counts move */
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

/* Never 0. On a line of its own: every submission reads it. */
struct submit_attention {
	_Alignas(64) _Atomic uint64_t n;
};
extern struct submit_attention submit_attention;

SUBMIT_INLINE uintptr_t
submit_word(CUstream stream, enum hook_stream0 stream0)
{
	return (uintptr_t)stream << SUBMIT_KIND_BITS |
	       (stream0 == HOOK_STREAM0_PER_THREAD ? SUBMIT_PER_THREAD : SUBMIT_LEGACY);
}

struct heap_touch;

/* submit_begin_touching() for a stream that this thread did not use last, and for nested
 * submissions. */
void submit_begin_slow(uintptr_t word, const struct heap_touch *touch);

/* The stream is announced, and the order wants to hear of it. */
void submit_tell(struct submit_slot *slot, uintptr_t word, const struct heap_touch *touch);

void submit_end_nested(struct submit_slot *slot);

/* touch: all the memory that the work touches; NULL: not known. */
SUBMIT_INLINE void
submit_begin_touching(uintptr_t word, const struct heap_touch *touch)
{
	struct submit_slot *slot = submit_own;

	/* relaxed: this thread's own */
	if (__builtin_expect(slot->last_word != word ||
				     atomic_load_explicit(&slot->announced, memory_order_relaxed) !=
					     0,
			     0)) {
		submit_begin_slow(word, touch);
		return;
	}
	/*
	 * relaxed, and no more than a compiler barrier: the reader's membarrier orders this store
	 * before the look at the attention, which it has moved before, and before whatever this
	 * thread submits next.
	 */
	atomic_store_explicit(&slot->announced, word, memory_order_relaxed);
	atomic_signal_fence(memory_order_seq_cst);
	if (__builtin_expect(atomic_load_explicit(&submit_attention.n, memory_order_relaxed) !=
				     slot->seen,
			     0))
		submit_tell(slot, word, touch);
}

SUBMIT_INLINE void
submit_begin(uintptr_t word)
{
	submit_begin_touching(word, NULL);
}

SUBMIT_INLINE void
submit_end(void)
{
	struct submit_slot *slot = submit_own;

	/* release: what this thread did before is there for whoever finds it counted. Only this
	 * thread writes it. */
	atomic_store_explicit(&slot->n_submissions,
			      atomic_load_explicit(&slot->n_submissions, memory_order_relaxed) + 1,
			      memory_order_release);
	if (__builtin_expect(atomic_load_explicit(&slot->n_outer, memory_order_relaxed) != 0, 0))
		submit_end_nested(slot);
	else
		/* release: whoever sees it cleared sees the count */
		atomic_store_explicit(&slot->announced, SUBMIT_NOTHING, memory_order_release);
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

/* The same for work of which it is known what it touches. */
#define SUBMIT_TOUCHING_CALL(stream, stream0, touch, call) \
	({ \
		CUresult submit_result; \
\
		submit_begin_touching(submit_word(stream, stream0), touch); \
		submit_result = (call); \
		submit_end(); \
		submit_result; \
	})

/*
 * The same for work that can wait for others (the CPU, other processes, other streams' later work).
 * The order hears of each, before and after.
 */
struct heap;
struct heap *submit_begin_blocker(uintptr_t word, const struct heap_touch *touch);
void submit_end_blocker(struct heap *blocked);

#define SUBMIT_BLOCKER_CALL(stream, stream0, touch, call) \
	({ \
		struct heap *submit_blocked = \
			submit_begin_blocker(submit_word(stream, stream0), touch); \
		CUresult submit_blocker_result = (call); \
\
		submit_end_blocker(submit_blocked); \
		submit_blocker_result; \
	})

/*
 * A call that submits to several streams is announced as SUBMIT_MANY; submit_also() for each of
 * them follows submit_begin(), and submit_count() for each of them and then submit_end_many() take
 * the place of submit_end().
 */
void submit_also(uintptr_t word);
void submit_count(uintptr_t word);
void submit_end_many(void);

/* The program has synchronised with a stream, an event (SUBMIT_EVENT) or a context. */
void submit_count_synchronisation(uintptr_t word);

/* A stream, by whatever name. */
struct submit_target {
	enum submit_kind kind; /* LEGACY: handle 0, or made by the program; or PER_THREAD; or one of
				  those that are no stream */
	uintptr_t handle;      /* 0 for a stream 0 */
	uint32_t thread;       /* PER_THREAD: whose */
};

struct submit_target submit_target_of(uintptr_t word, uint32_t thread);

/* As this thread would use it. */
struct submit_target submit_target(CUstream stream, enum hook_stream0 stream0);

/*
 * Makes this thread's stores so far visible to every submission that begins, and calls visit for
 * all that had begun and are announced. Costs a system call, the first time some milliseconds.
 */
void submit_look(void (*visit)(void *arg, const struct submit_target *target), void *arg);

/* All that ever ended, by all threads; only rises. */
uint64_t submit_n_submissions(void);

/* The same and those under way, which may count more than once. */
uint64_t submit_n_begun(void);

/* Every stream's next submission is told of. */
void submit_draw_attention(void);

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
