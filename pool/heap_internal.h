/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * What the files of the heap share: heap.c (blocks), heap_give.c (frees), heap_figures.c (counting
 * them), epoch.c and epoch_wait.c (fences), heap_order.c (streams), heap_stream.c (what is one
 * stream's), heap_segments.c (growing and giving back), heap_steps.c (work outside the lock).
 *
 * Lock order: heap->lock, then pool->lock or the map's (both leaves). Names that end in _locked
 * need heap->lock.
 */
#include <pthread.h>

#include "pool/free_index.h"
#include "pool/heap.h"
#include "pool/segment.h"
#include "pool/thread.h"

enum heap_state {
	HEAP_OPEN,
	HEAP_CLOSING, /* somebody destroys the context: calls wait */
	HEAP_GONE,    /* spare */
};

/* The frees between two fences. */
struct epoch {
	struct list link;   /* heap->sealed, oldest first, or heap->spare_epochs */
	struct list blocks; /* pending */
	uint64_t n_blocks, n_bytes;
	struct fence *fence; /* NULL: the epoch is open */
	uint64_t id;         /* in the order in which they were closed, from 1 */
	uint64_t covers_id;  /* the fences of all epochs up to this one were recorded before it */
	uint64_t n_foreign;  /* of the order, before the fence was recorded */
	uint64_t n_begun;    /* by the backend's count, when the first block came in */
	bool is_precise;     /* nothing was submitted between the frees and the fence */
	uint64_t n_blockers, n_submissions; /* as the order and the backend counted before that */
	unsigned n_users;                   /* threads that ask the backend about the fence now */
	bool is_wide;
	bool is_awaited; /* open: the next submission seals it */
	bool is_stalled; /* outlived a wait */
	bool is_retired; /* complete, its blocks are taken in; goes away with its last user */
};

/*
 * So many frees at most stay without a fence: the longer one is put off, the more work it covers.
 */
enum { EPOCH_N_FREES_MAX = 64 };

enum { HEAP_N_SHARES = 8 };

/* Pending blocks that one stream may have, see heap_stream.c. */
struct stream_share {
	struct order_stream stream; /* word 0: none any more */
	uint64_t n_blocks;
	bool is_set_up;
	struct free_index arena, whole;
};

struct heap {
	struct pool *pool;
	struct heap_config config;
	_Atomic(enum heap_kind) kind; /* config.kind, for those who hold no lock */
	struct list link;             /* pool->spare_heaps */

	pthread_mutex_t lock;
	pthread_cond_t changed; /* state, or one of the counts reached 0 */
	enum heap_state state;
	unsigned n_outside;    /* steps at work outside the lock: a closing waits for them */
	unsigned n_in_transit; /* steps that hold memory which nobody else can find meanwhile */

	struct free_index arena_free; /* for requests that share arenas */
	struct free_index whole_free; /* for requests with a segment of their own */
	struct frag frag;
	struct block_store blocks;
	struct list segments;
	struct list idle;    /* wholly free segments, longest first; before them those withheld */
	struct list held;    /* blocks in BLOCK_HELD, longest first */
	unsigned n_withheld; /* exported segments on idle, which no request gets */
	uint32_t n_serials;  /* the newest block's; goes on in this struct's next heap */

	/* Device memory: pending blocks that may be handed out early, see heap_order.c. */
	struct free_index arena_early, whole_early;
	struct stream_order order;
	struct stream_share shares[HEAP_N_SHARES];
	struct heap_async async;

	uint64_t seal_bytes;   /* of the open epoch at most; 0: any */
	bool is_pressed;       /* a free is sealed at once */
	atomic_bool is_exact;  /* large requests share no segments any more */
	struct epoch *open[2]; /* frees that no fence covers yet: [0] of the memory's own context,
				  [1] wide */
	struct list sealed;
	struct list spare_epochs;
	uint64_t n_epochs;      /* closed so far */
	unsigned n_wide_sealed; /* epochs of heap->sealed */
	unsigned n_sealing;     /* of them, those whose fence is being recorded */
};

/* Wait out a closing; false: the heap is gone. At a step, which the closing waits for, it is as
 * good as gone. */
bool heap_is_open_locked(struct heap *heap);

/* Wait for heap->changed. No point of cancellation: a thread that ended in here would keep the
 * lock. */
void heap_await_change_locked(struct heap *heap);

/* Around what is done without the lock. A step that waits for the device's work, or asks about it,
 * only steps out: memory that it does not hold is for others to use. */
void heap_step_out_locked(struct heap *heap);
void heap_step_in_locked(struct heap *heap);

/* The same for a step that holds memory meanwhile. These are short, and wait for no work. */
void heap_enter_transit_locked(struct heap *heap);
void heap_leave_transit_locked(struct heap *heap);

/*
 * The segment that holds addr, with its heap locked and open; NULL: no segment, or one that closes
 * while this thread is at a step; nothing is locked.
 */
struct segment *pool_lock_segment(struct pool *pool, uint64_t addr, struct heap **ret_heap);

/* A pending block that is on no list is complete: merge it with its free neighbours and make it
 * findable. */
void heap_retire_block_locked(struct heap *heap, struct block *block);

/* The end of a block that others may still reach, and of one whose segment has such: see
 * heap_exported.c. */
void heap_hold_locked(struct heap *heap, struct block *block);
void heap_release_if_spent_locked(struct heap *heap, struct segment *segment);

/* Room for one more segment on heap->idle that no request gets: there is a bound to them. */
void heap_make_room_withheld_locked(struct heap *heap);

/* Make a block on no list findable; it and its neighbours are not free. */
void heap_insert_free_locked(struct heap *heap, struct block *block);

/* Take a free block out of the index. */
void heap_withdraw_locked(struct heap *heap, struct block *block);

/* Make a block that is on no list the program's. What it does not need of it is free, or pending in
 * the epoch and the share that it came from. */
void heap_hand_out_locked(struct heap *heap, struct block *block, struct epoch *epoch,
			  unsigned share, size_t requested_bytes, unsigned tag);

/* Make a block live, with its requested_bytes and tag set; undoes heap_take_back_locked(). */
void heap_relive_locked(struct heap *heap, struct block *block);

/* A live block is live no more; it stays on no list. */
void heap_take_back_locked(struct heap *heap, struct block *block);

/* Does the request share an arena with others? */
bool heap_is_arena_request(const struct heap *heap, size_t requested_bytes);

/* Two open epochs for a heap that has none. False: libc has no memory. */
bool epoch_set_up_locked(struct heap *heap);

/* Put a freed block into the open epoch, and take one out that is handed out. */
void epoch_add_locked(struct heap *heap, struct block *block, bool is_wide);
void epoch_leave_locked(struct heap *heap, struct block *block);

/* The same for one that was freed in the order of a stream; its share is set. */
void epoch_add_shared_locked(struct heap *heap, struct block *block);

/* A part of a pending block that was split off, in the same epoch. */
void epoch_add_rest_locked(struct heap *heap, struct block *block, struct epoch *epoch);

/*
 * Cover what was freed so far with a fence. Let go of the lock in between. BACKEND_OK also where
 * there was nothing to cover.
 */
int epoch_seal_locked(struct heap *heap, bool is_wide);

/* A fence now, whatever it covers; NULL: it could not be recorded. Lets go of the lock. */
struct epoch *epoch_drain_locked(struct heap *heap);

/* The same for both open epochs. */
int epoch_seal_all_locked(struct heap *heap);

/*
 * Ask once whether an epoch is complete and take it in if so. The epoch is used by this thread
 * before and after (epoch_enter_locked), the lock is let go during the question.
 */
int epoch_ask_locked(struct heap *heap, struct epoch *epoch);

/* Use an epoch outside the lock; leaving may let go of it. */
void epoch_enter_locked(struct epoch *epoch);
void epoch_exit_locked(struct heap *heap, struct epoch *epoch);

/* Wait, however long, until the epoch is complete. Lets go of the lock. */
void epoch_await_locked(struct heap *heap, struct epoch *epoch);

/* Forget every epoch and its fence; the blocks were torn down, and nobody else uses the heap. */
void epoch_drop_all(struct heap *heap);

/* May a block that is freed now be handed out early, as far as the order goes? */
bool order_lists_locked(const struct heap *heap, const struct block *block, bool is_wide);

/* Is what is freed now complete, because nothing is unfinished? */
bool order_is_idle_locked(const struct heap *heap, bool is_wide);

/* In and out of the index of those, or of its share. */
void order_list_locked(struct heap *heap, struct block *block);
void order_unlist_locked(struct heap *heap, struct block *block);

/* The next submission shall cover the open epoch. */
void order_ask_cover_locked(struct heap *heap, struct epoch *epoch);

/* A pending block that may be handed out early, once its epoch has its fence; NULL: none. stream:
 * only if that one alone has unfinished work; or NULL. */
struct block *order_find_early_locked(struct heap *heap, const struct order_stream *stream,
				      size_t requested_bytes);

/* None of the epoch's blocks is handed out early any more. */
void order_stop_early_locked(struct heap *heap, struct epoch *epoch);

/* Take it out of its epoch; it is on no list. */
void order_take_early_locked(struct heap *heap, struct block *block);

/* A pending block becomes one with its free and its pending neighbours, in its own epoch. */
void order_merge_locked(struct heap *heap, struct block *block);

/* No stream has a share. */
void share_init_locked(struct heap *heap);

/* May a stream have what is freed now? Put it into the stream's share, and into the open epoch. */
bool share_may_have_locked(const struct heap *heap, const struct block *block, bool is_wide);
void share_give_locked(struct heap *heap, struct block *block, struct order_stream stream);

/* In and out of the index of the block's share. */
void share_list_locked(struct heap *heap, struct block *block);
void share_unlist_locked(struct heap *heap, struct block *block);

/* A block for a request of the stream; NULL: none. Take it out of its epoch; it is on no list. */
struct block *share_find_locked(struct heap *heap, struct order_stream stream,
				size_t requested_bytes);
void share_take_locked(struct heap *heap, struct block *block);

/* Under which edge it may be: see struct block. */
uint64_t share_edge_id_locked(const struct heap *heap);

/* The stream's word may mean another one from now on; every stream's may. */
void share_forget_locked(struct heap *heap, struct order_stream stream);
void share_forget_all_locked(struct heap *heap);

/* A block of the stream-ordered API becomes live, and ends. */
void async_raise_locked(struct heap *heap, const struct block *block);
void async_lower_locked(struct heap *heap, const struct block *block);

/* May large requests share segments? */
bool heap_splits(const struct heap *heap);

/* The best block for a request in one of two indexes; NULL: none. */
struct block *heap_find_locked(struct heap *heap, const struct free_index *arena,
			       const struct free_index *large, size_t requested_bytes);
