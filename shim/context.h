/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * Contexts: which heaps belong to which CUcontext, and the life of both.
 *
 * Entries are type-stable: a slot whose context is gone is used for another, so a thread that still
 * holds the pointer holds a context, if a new one. A context is known from its creation (every form
 * is hooked), or from the first call that finds it current. Contexts made from green contexts are
 * known and not served.
 *
 * Locking: context_lock (internal) guards the table's slots and is never held across a driver call.
 * The fields of one context say their own.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "pool/heap.h"
#include "shim/backend_cuda.h"
#include "shim/capture.h"
#include "shim/device.h"
#include "shim/hooks.h"
#include "shim/visible.h"

enum {
	CONTEXT_N_MAX = 256,
	CONTEXT_N_HOST_HEAPS = 16,
};

struct context {
	_Atomic(CUcontext) handle; /* NULL: the slot is free, or about to be */
	bool is_dropping;          /* under context_lock: not free yet */
	struct device *device;
	bool is_primary;        /* known from a retain */
	atomic_uint generation; /* how many contexts this slot has seen the end of */
	bool is_green; /* the driver serves it; the device's primary context owns its memory and
			  covers its work */
	_Atomic int broken;       /* a sticky error (CUresult): everything is forwarded; 0: none */
	struct capture_gate gate; /* shut while the context may be ending */
	struct visible visible;
	struct backend_events events;

	pthread_mutex_t heaps_lock; /* creation of heaps */
	unsigned n_endings; /* under heaps_lock: context_close() without its other half yet; no heap
			       is created */
	atomic_uint n_peers; /* contexts that were given access to this one's memory */
	_Atomic(struct heap *) device_heap;
	struct backend_cuda device_backend;
	unsigned n_host_heaps; /* under heaps_lock */
	struct {
		struct heap *heap;
		struct backend_cuda backend;
	} host[CONTEXT_N_HOST_HEAPS]; /* one for each set of flags */
};

/* All heaps of the process. */
extern struct pool context_pool;

void context_init(void);

/* The calling thread's current context; NULL: none, or not to be served (green, broken, table
 * full). */
struct context *context_current(void);

/* The context whose fences cover a stream, as the calling thread would use its handle; NULL: not
 * known. */
struct context *context_of_stream(CUstream stream);

/* A context was made, or its handle was given out. device: its ordinal. */
void context_register(CUcontext handle, CUdevice device, bool is_primary);
struct context *context_register_green(CUcontext handle); /* NULL: it cannot be known */
void context_forget_green(struct context *context);

/* Is there no more than one context, green ones included, that the shim has heard of? */
bool context_is_only(void);

/* The entry of a handle, or NULL. No driver call. */
struct context *context_find(CUcontext handle);

/* The device's primary context, if it is known or active; NULL: neither. */
struct context *context_find_primary(CUdevice device);

/* One of the contexts of a device that may be asked, and whether its primary one is known; NULL:
 * none. */
struct context *context_find_on(const struct device *device, bool *ret_has_primary);

/*
 * The context may be destroyed by the driver call that follows; exactly one of the other two comes
 * after it. In between the shim makes no driver call on it: the gate of capture.h is closed, and
 * calls that need its heaps wait.
 */
unsigned
context_close(struct context *context); /* answers the generation that context_drop() wants */
void context_reopen(struct context *context);
void context_drop(struct context *context, unsigned generation);

/* A driver call answered with an error that will not go away. */
void context_break(struct context *context, CUresult status);

/* The heap of plain device memory, and the one of pinned memory with these flags; NULL: the driver
 * shall serve. */
struct heap *context_device_heap(struct context *context);
struct heap *context_host_heap(struct context *context, enum backend_memory memory, unsigned flags);

/* The heaps of one context as they are now. Returns how many; none if the lock was not to be had
 * until then (CLOCK_REALTIME; NULL: wait for ever). */
size_t context_list_heaps_until(struct context *context, const struct timespec *deadline,
				struct heap *heaps[1 + CONTEXT_N_HOST_HEAPS]);

/* Call for every context that is alive, primaries that nobody told of included. Returns the first
 * non-zero answer. */
int context_for_each(int (*visit)(struct context *context, void *arg), void *arg);

/* Call for every heap, without a driver call. until: leave out the contexts whose heaps cannot be
 * listed by that time (CLOCK_REALTIME; NULL: wait for ever). */
void context_for_each_heap_until(const struct timespec *deadline,
				 void (*visit)(struct context *context, struct heap *heap,
					       enum heap_kind kind, void *arg),
				 void *arg);
void context_for_each_heap(void (*visit)(struct context *context, struct heap *heap,
					 enum heap_kind kind, void *arg),
			   void *arg);

/* Make context current for a few driver calls and put back what was. */
struct context_scope {
	bool was_pushed;
};

CUresult context_enter(CUcontext handle, struct context_scope *ret_scope);
void context_leave(const struct context_scope *scope);
