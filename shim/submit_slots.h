/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * The slots of submit.h, for the two files that know how they lie: submit.c writes the calling
 * thread's, submit_read.c reads all.
 */
#include "shim/submit.h"

/* How submissions are ordered before a reader's look. */
enum submit_order {
	SUBMIT_ORDER_UNKNOWN,
	SUBMIT_ORDER_MEMBARRIER, /* the reader pays */
	SUBMIT_ORDER_FENCE,      /* every submission pays: this kernel cannot */
};

/* Threads that meet find the same. */
enum submit_order submit_order(void);

/* Slots come in chunks, which are never given back. */
struct submit_chunk {
	struct submit_chunk *next;
	unsigned n_slots;
	struct submit_slot *slots;
};

extern _Atomic(struct submit_chunk *) submit_chunks; /* the newest first */

/*
 * For threads that could get no slot. It is shared, so what it says is of no use; that it was used
 * is remembered, and every look answers "announced" from then on.
 */
extern struct submit_slot submit_no_slot;
extern atomic_bool submit_is_slotless;

/* Every slot, in use or not. acquire: a chunk's own fields */
#define SUBMIT_FOR_EACH_SLOT(slot) \
	for (struct submit_chunk *chunk_ = \
		     atomic_load_explicit(&submit_chunks, memory_order_acquire); \
	     chunk_; chunk_ = chunk_->next) \
		for (struct submit_slot *slot = chunk_->slots; \
		     slot < chunk_->slots + chunk_->n_slots; slot++)
