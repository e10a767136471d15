/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * The only way out of the pool: memory in whole segments, fences, and time.
 *
 * One backend serves one heap. Two implementations: the driver's (shim/backend_cuda.c) and the fake
 * one that tests and replay use (tools/replay/fake_backend.c).
 *
 * Status: BACKEND_OK, a positive condition below, or a negative number: the device's own status
 * with its sign turned, opaque here and handed through unchanged.
 *
 * Locking: every call may come from any thread; no lock of the pool is held across any of them.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "pool/stream_order.h"

enum {
	BACKEND_OK = 0,
	BACKEND_E_NO_MEMORY, /* map: the device has none left */
	BACKEND_E_NOT_READY, /* fence_query: work that the fence covers is unfinished */
	BACKEND_E_BUSY, /* no fence can be recorded or asked now (a stream captures): try later */
};

/* A point in time for the device; complete once all work submitted before it was recorded is
 * complete. */
struct fence;

struct backend;

/* A stream as the caller names it to its backend: valid only inside the call that brought it. */
struct stream_handle;

struct backend_ops {
	/* Get size_bytes of memory. On failure *ret_addr is untouched. */
	int (*map)(struct backend *backend, size_t size_bytes, uint64_t *ret_addr);

	/*
	 * Give a whole segment back. May wait for all work of the context, so the heap calls it
	 * only once a fence has shown that work complete. On failure the memory is still held.
	 */
	int (*unmap)(struct backend *backend, uint64_t addr, size_t size_bytes);

	/*
	 * Record a fence that covers all work submitted to the memory's context so far; wide: to
	 * every live context (pinned memory, and blocks that another context's stream used).
	 * BACKEND_E_BUSY while it cannot.
	 */
	int (*fence_record)(struct backend *backend, bool is_wide, struct fence **ret_fence);

	/*
	 * BACKEND_OK: complete, and it stays so. Several threads may ask about one fence at once.
	 */
	int (*fence_query)(struct backend *backend, struct fence *fence);

	/* The fence is no longer asked about by anybody. Its context may be gone. */
	void (*fence_free)(struct backend *backend, struct fence *fence);

	/*
	 * Let what is submitted to the stream from now on begin after the fence is complete.
	 * BACKEND_E_BUSY: the stream captures, so nothing runs in it now.
	 */
	int (*edge_wait)(struct backend *backend, const struct stream_handle *stream,
			 struct fence *fence);

	/*
	 * From here on every submission that begins finds out that a turn began (stream_order.h);
	 * those that had begun are entered with enter(arg, stream), word 0 for one that is not
	 * known.
	 */
	void (*look)(struct backend *backend, void (*enter)(void *arg, struct order_stream stream),
		     void *arg);

	/*
	 * Submissions of all contexts: those that have ended, and those that have begun. Whoever
	 * knows of one finds it counted; one that is under way may count more than once. No call of
	 * the driver's, no lock: allowed with a lock of the pool held.
	 */
	uint64_t (*n_submissions)(struct backend *backend);
	uint64_t (*n_begun)(struct backend *backend);

	/* Monotonic time; the coarse one may lag by some milliseconds, costs next to nothing, and
	 * is allowed with a lock of the pool held. */
	uint64_t (*now_ns)(struct backend *backend);
	uint64_t (*coarse_ns)(struct backend *backend);

	/* Let time pass between two queries of a wait; n_tries counts from 0 and lets early pauses
	 * be short. */
	void (*pause)(struct backend *backend, unsigned n_tries);
};

struct backend {
	const struct backend_ops *ops;
};
