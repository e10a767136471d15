/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * Heaps: the segments and blocks of one context and kind, and when a freed block may be used again.
 *
 * The promise: a block is handed out only when all work submitted before its free is ordered before
 * every access that the new owner can cause. A free puts the block into the open epoch; sealing an
 * epoch records a fence after all its frees; when the fence is complete, so is every block of the
 * epoch. Before that a block is handed out only while one stream alone has unfinished work (early,
 * see stream_order.h). What nobody can ask about (a capture is open) stays pending.
 *
 * These are single steps; which to take, and when to give up, is decided in policy/exhaust.c.
 *
 * Locking: every call takes what it needs; a heap's lock is never held across a backend call. Steps
 * that hold memory outside the lock have it "in transit": heap_await_transit() lets others wait for
 * them. Closing a heap waits for every step. Units: bytes, nanoseconds of the backend's clock.
 * Nothing changes on failure.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include "pool/addr_map.h"
#include "pool/backend.h"
#include "pool/frag.h"
#include "pool/list.h"
#include "pool/stats.h"
#include "pool/stream_order.h"

enum {
	HEAP_OK = 0,
	HEAP_E_MISS,      /* no complete block fits / nothing to wait for */
	HEAP_E_NO_MEMORY, /* the backend has no memory */
	HEAP_E_METADATA,  /* libc has no memory for the heap's own tables, or the address cannot be
			     kept */
	HEAP_E_TOO_LARGE, /* no segment can have this size: let the driver say so */
	HEAP_E_TIMEOUT,  /* the wait reached its bound, or met a closing: search again, and go on */
	HEAP_E_CLOSED,   /* the context is gone */
	HEAP_E_NOT_OURS, /* the address lies in no segment */
	HEAP_E_INVALID,  /* it lies in one, but no live block of this kind starts there */
	HEAP_E_LAST = HEAP_E_INVALID,
};

enum heap_kind {
	HEAP_DEVICE, /* requests up to 1 MiB share arenas; larger ones share segments for them, or
			have segments of their own, in whole 2 MiB */
	HEAP_HOST,   /* pinned: a segment each, rounded up by an eighth at most */
};

struct heap;

/*
 * All heaps of the process: one address map, and the memory of heaps and segments that went away.
 */
struct pool {
	struct addr_map map;
	pthread_mutex_t lock; /* leaf: the two lists */
	struct list spare_segments;
	struct list spare_heaps;
};

struct heap_config {
	struct backend *backend;
	struct stats *stats; /* shared by all heaps of the device */
	void *owner;         /* the caller's own; comes back in struct block_info */
	enum heap_kind kind;
	bool is_account; /* each request is a segment; nothing is kept: count only */
	bool is_split;   /* large requests share segments, until heap_set_exact() */

	/* Device memory: hand pending blocks out early. The caller tells of every submission then,
	 * with heap_before_submission() at least for a stream's first one after *attention moved.
	 */
	bool is_early;
	_Atomic uint64_t *attention;
};

struct block_info {
	struct heap *heap;
	void *owner;
	enum heap_kind kind;
	bool is_account;
	bool is_exported; /* live: others may reach it */
	bool is_live;
	bool is_whole;                      /* the only block of its segment */
	uint64_t addr;                      /* of the block */
	size_t size_bytes, requested_bytes; /* requested: 0 unless live */
	uint32_t serial;                    /* 0 unless live; see struct block */
	bool has_sync_memops;
	bool is_async; /* see heap_mark_async() */
	uint64_t segment_addr;
	size_t segment_bytes;
};

/* The memory that some work touches: all of it. */
struct heap_touch {
	unsigned n_ranges;
	struct {
		uint64_t addr;
		size_t size_bytes;
	} ranges[2];
};

void pool_init(struct pool *pool);
void pool_fini(struct pool *pool);

/*
 * The block that holds addr: HEAP_OK or HEAP_E_NOT_OURS. Waits while the block's heap is closing.
 */
int pool_find(struct pool *pool, uint64_t addr, struct block_info *ret_info);

/* Is addr in a segment, and of which kind? Takes no lock: the answer is as old as the return. */
bool pool_kind_at(struct pool *pool, uint64_t addr, enum heap_kind *ret_kind);

/* Can it be in a segment? Waits for nothing, not even for a change of the map: true in doubt. */
bool pool_may_hold(struct pool *pool, uint64_t addr);

/* NULL: no memory. */
struct heap *heap_new(struct pool *pool, const struct heap_config *config);

/* Give all segments back to the backend, whatever they hold, and the heap to the pool. For tools
 * and tests. */
void heap_free(struct heap *heap);

struct stats *heap_stats(struct heap *heap);
enum heap_kind heap_kind(const struct heap *heap);

/* Bytes that a request takes, as rounded; 0: too large for any segment. */
size_t heap_round(const struct heap *heap, size_t requested_bytes);

/* Sizes of the segment to get for a request: the usual one, and the smallest that serves it. */
size_t heap_segment_bytes(const struct heap *heap, size_t requested_bytes);
size_t heap_segment_bytes_min(const struct heap *heap, size_t requested_bytes);

/*
 * Hand out a complete block: HEAP_OK, HEAP_E_MISS, HEAP_E_TOO_LARGE or HEAP_E_CLOSED. tag, less
 * than STATS_N_TAGS: whose share of the figures it counts in, until it is freed by whomever.
 */
int heap_take(struct heap *heap, size_t requested_bytes, unsigned tag, uint64_t *ret_addr);

/*
 * The same for work in the order of a stream alone: also what was freed in that order
 * (heap_give_in()), and early only where nobody has to wait for it.
 */
int heap_take_in(struct heap *heap, struct order_stream stream, size_t requested_bytes,
		 unsigned tag, uint64_t *ret_addr);

/* Get one more segment and hand out a block of it. HEAP_E_NO_MEMORY, _METADATA, _CLOSED or the
 * backend's status. */
int heap_grow(struct heap *heap, size_t requested_bytes, size_t segment_bytes, unsigned tag,
	      uint64_t *ret_addr);

/*
 * Free the live block at addr. is_wide: work of other contexts may touch it too. is_complete: the
 * caller knows that all work submitted to the context before this call is complete. HEAP_OK,
 * HEAP_E_NOT_OURS or HEAP_E_INVALID.
 */
int heap_give(struct pool *pool, uint64_t addr, enum heap_kind kind, bool is_wide,
	      bool is_complete);

/*
 * The same in the order of a stream of the heap's context (wide: of another one's): all work that
 * uses the block comes before what is submitted to the stream from now on. Others get it when it is
 * complete.
 */
int heap_give_in(struct pool *pool, uint64_t addr, bool is_wide, struct order_stream stream);

/* Has no other stream of the context unfinished work? */
bool heap_is_alone(struct heap *heap, struct order_stream stream);

/* The live block at addr came from the stream-ordered API, and counts as such until it is freed. */
void heap_mark_async(struct pool *pool, uint64_t addr);

struct heap_async {
	uint64_t used_bytes, peak_used_bytes; /* as requested, in units of a block */
	uint64_t peak_reserved_bytes;         /* used, and all that the device's heaps held free */
};

void heap_read_async(struct heap *heap, struct heap_async *ret_async);
void heap_reset_async_used(struct heap *heap);
void heap_reset_async_reserved(struct heap *heap);

/*
 * Free the live block at addr, the only one of its segment, and give the segment back in the same
 * call: by unmap(arg, addr), which answers 0 or a status that comes back unchanged, and then the
 * block is live as before. Frees that wait, as the driver's does, wait in there.
 */
int heap_give_back(struct pool *pool, uint64_t addr, enum heap_kind kind,
		   int (*unmap)(void *arg, uint64_t addr), void *arg, size_t *ret_freed_bytes);

/*
 * Others than the program's streams may reach the live block that holds addr from now on: another
 * process, a network card, whoever was given a handle. Nobody knows when they are done, so the
 * block is not handed out again: a block that is a whole segment goes back to the backend when it
 * is freed (heap_give_back()), any other is held until its segment holds nothing live, and that
 * segment then goes back. Memory is not lost over it: what is held keeps no more segments than
 * there are live blocks to share them with, few segments wait for their way back, and
 * heap_release_held() gives it all up before a request is refused.
 *
 * They follow no stream, so the block's own old work has to be complete: it is waited for here. And
 * from here on the segment hands out complete blocks only.
 *
 * HEAP_OK, HEAP_E_NOT_OURS or HEAP_E_INVALID.
 */
int heap_mark_exported(struct pool *pool, uint64_t addr);

/* Bytes of wholly free segments that only wait to be given back: heap_trim() takes them first. */
uint64_t heap_withheld_bytes(struct heap *heap);

/* Memory is short: hand out again what was held for others. True: there was some. */
bool heap_release_held(struct heap *heap);

/* The program's wish for the live block that holds addr. HEAP_OK, HEAP_E_NOT_OURS, HEAP_E_INVALID.
 */
int heap_set_sync_memops(struct pool *pool, uint64_t addr, bool has_sync_memops);

/*
 * Before work is submitted to a stream of the heap's context, in the thread that submits, announced
 * already (backend's look()). Covers what was freed before with a fence, so that it covers nothing
 * that comes later; and makes the stream wait for the newest edge, if it has to. handle: NULL for a
 * stream that nobody can name; then the edge is waited for here. can_wait: the work can wait for
 * others; heap_after_blocker() follows once it is submitted. Does nothing for a heap that is not
 * early. False: the stream could not be made to wait (it captures), so its next submission has to
 * be told of too.
 */
bool heap_before_submission(struct heap *heap, struct order_stream stream,
			    const struct stream_handle *handle, bool can_wait);

/*
 * The same for work of which it is known what memory it touches; NULL: not known. It waits for no
 * edge if nothing of that was handed out early: false then, and the stream's next submission has to
 * be told of, whether or not the attention moved.
 */
bool heap_before_touching(struct heap *heap, struct order_stream stream,
			  const struct stream_handle *handle, bool can_wait,
			  const struct heap_touch *touch);
void heap_after_blocker(struct heap *heap);

/*
 * Work is about to be submitted that may begin before its predecessor in the stream has ended.
 * True: it must not, since memory was handed out early, or a wait was put in, after the last time
 * that this was so for the stream.
 */
bool heap_must_not_overlap(struct heap *heap, struct order_stream stream);

/* The stream is destroyed. Its word may mean another one from now on. */
void heap_forget_stream(struct heap *heap, struct order_stream stream);

/* The same for streams of which nobody knows how many and which. */
void heap_forget_streams(struct heap *heap);

/*
 * Begin the set of streams with unfinished work anew, if that can be of use now: with one left over
 * from a time of several, what is freed can be handed out early again. Costs every thread the fast
 * path of its next submission, and a fence.
 */
void heap_turn(struct heap *heap);

/* The program is about to wait for work of the context: what it frees next can be told from what
 * was freed before. */
void heap_before_sync(struct heap *heap);

/* No block is handed out early from now on; what was, stays ordered. */
void heap_stop_early(struct heap *heap);

/* The same for as long as others than the context's streams may touch its memory, at any time.
 * True: it was not so before. */
bool heap_share(struct heap *heap, bool is_shared);

/*
 * Around a submission of another context's that touches memory of the heap: all that touch says
 * (NULL: not known). What of it has unfinished work of an earlier owner is waited for. Until a wide
 * fence after it is complete no block is handed out early, and frees are wide.
 */
void heap_begin_foreign(struct heap *heap, const struct heap_touch *touch);
void heap_end_foreign(struct heap *heap);

/*
 * Others than the context's own streams are about to touch memory of the heap: wait until none of
 * it has unfinished work of an earlier owner.
 */
void heap_await_edges(struct heap *heap);

/*
 * Many frees want a fence. No questions here: the frees of a program must not take long. With
 * several streams it is also the time to begin the set of streams anew, see heap_turn().
 */
void heap_cover(struct heap *heap, bool is_wide);

/* Seal what was freed and take in all epochs whose fences are complete. HEAP_OK or the backend's
 * status. */
int heap_settle(struct heap *heap);

/*
 * Wait until one more epoch is complete: the oldest. At most bound_ns, unless the calling thread
 * freed a block of it: then the driver's free would have waited too. HEAP_E_MISS: nothing is
 * pending, or nothing may be asked now. An epoch that outlived a wait is not waited for again.
 */
int heap_wait(struct heap *heap, uint64_t bound_ns);

/* The same, and never longer than bound_ns, for a caller that can go on without. */
int heap_wait_briefly(struct heap *heap, uint64_t bound_ns);

/*
 * Memory is short: from now on each free gets a fence of its own, at once. A fence covers all that
 * was submitted before it, so one that is recorded later would make whoever waits for the block
 * wait for work that natively nobody waits for.
 */
void heap_press(struct heap *heap);

/*
 * From now on large requests take a segment of their exact size, new or idle: what is held for them
 * never exceeds what was live at once plus what is idle, so that idle segments can go back whole
 * and a program that fits natively fits with the pool.
 */
void heap_set_exact(struct heap *heap);

/* Is pending memory handed out early now? Then nothing is gained by waiting until it is complete.
 */
bool heap_is_early(struct heap *heap);

/* Seal what is freed at the latest when it is so much: what a wait waits for is no more then. */
void heap_set_seal_bytes(struct heap *heap, uint64_t bytes);

/* How many waits reach the end of what is freed now; threads that go on freeing have no end. */
unsigned heap_n_epochs(struct heap *heap);

/*
 * Give wholly free segments back, longest idle first, until want_bytes are freed. Only behind a
 * fence that shows the context's work complete, waited for at most bound_ns. HEAP_OK (also when
 * nothing could be given back) or the backend's status.
 */
int heap_trim(struct heap *heap, size_t want_bytes, uint64_t bound_ns, size_t *ret_freed_bytes);

/* The same; tell() hears of each segment while it is still in transit, so that nobody who waited
 * for transit finds books that still count it. Called with the heap's lock: it must take none. */
int heap_trim_told(struct heap *heap, size_t want_bytes, uint64_t bound_ns,
		   void (*tell)(void *arg, size_t freed_bytes), void *arg, size_t *ret_freed_bytes);

/* Wait until no other thread has memory of this heap in transit, or the heap is closing. True:
 * there was some. */
bool heap_await_transit(struct heap *heap);

/* Others see memory in transit between these two, for steps that go through the caller's books too.
 * A closing does not wait for them. */
void heap_begin_transit(struct heap *heap);
void heap_end_transit(struct heap *heap);

/*
 * The context is about to be destroyed, perhaps: other threads' calls on this heap wait from here
 * to heap_reopen() (it lives on) or heap_drop() (it is gone: all blocks are forgotten without a
 * call of unmap, fences are freed, the struct goes to the pool; answers the bytes that its segments
 * had).
 */
void heap_close(struct heap *heap);
void heap_reopen(struct heap *heap);
uint64_t heap_drop(struct heap *heap);

/* Bytes in wholly free segments, and in blocks that will be free when their fences are complete. */
void heap_idle_bytes(struct heap *heap, uint64_t *ret_idle_bytes, uint64_t *ret_pending_bytes);

struct heap_snapshot {
	struct frag frag;            /* as kept */
	struct frag frag_recomputed; /* from the blocks, now: equal, or the heap is broken */
	uint64_t largest_partial_bytes;
};

void heap_snapshot(struct heap *heap, struct heap_snapshot *ret_snapshot);

/*
 * The same; false: the lock was not to be had until then (CLOCK_REALTIME; NULL: wait for ever). The
 * calling thread may hold it itself: an exit() in a signal handler.
 */
bool heap_snapshot_until(struct heap *heap, const struct timespec *deadline,
			 struct heap_snapshot *ret_snapshot);
