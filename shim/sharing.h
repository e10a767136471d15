/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * Who else may touch the memory of a context than its own streams, which alone wait for the edges
 * of early hand-outs: peers that were given access, network cards and the like (agents.h), and work
 * of other contexts that names it. Its heap gives completed blocks only, while it is so.
 *
 * Locking: a context's heaps_lock, for what its heap is told.
 */
#include <stdbool.h>

#include "pool/heap.h"
#include "shim/context.h"
#include "shim/hooks.h"

/* The context has got a heap, and its heaps_lock is held. */
void sharing_tell_locked(struct context *context);

/* Others get access to all memory of the context, or lose it. */
void sharing_add_peer(struct context *context);
void sharing_remove_peer(struct context *context);

/* Look for agents, every 50 ms at most. May run at a step of a heap. */
void sharing_look(void);

/* Were there any when they were last looked for? */
bool sharing_has_agents(void);

/*
 * Around a driver call that submits to the stream: all the memory that it touches; NULL: not known.
 * Marks the heaps of other contexts that it may touch.
 */
struct sharing {
	bool is_of_all;
	struct heap *heaps[2];
	const struct context *own;
};
void sharing_begin(CUstream stream, const struct heap_touch *touch, struct sharing *ret_sharing);
void sharing_end(const struct sharing *sharing);

#define SHARING_CALL(stream, touch, call) \
	({ \
		struct sharing sharing_of_call; \
		CUresult sharing_result; \
\
		sharing_begin(stream, touch, &sharing_of_call); \
		sharing_result = (call); \
		sharing_end(&sharing_of_call); \
		sharing_result; \
	})
