/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * pool/backend.h on the driver's own calls: cuMemAlloc or cuMemHostAlloc segments, cuCtxRecordEvent
 * fences.
 *
 * A driver without cuCtxRecordEvent (before CUDA 12.5) has no fences: frees synchronise first
 * (backend_has_fences()), and what could not be synchronised then, inside a capture, is when a
 * fence is asked for.
 */
#include <pthread.h>
#include <stdbool.h>

#include "pool/backend.h"
#include "shim/hooks.h"

struct context;

enum backend_memory {
	BACKEND_DEVICE,
	BACKEND_HOST_ALLOC, /* cuMemHostAlloc with flags */
	BACKEND_ALLOC_HOST, /* cuMemAllocHost, which takes none */
};

/* As a hook has it. */
struct stream_handle {
	CUstream stream;
	enum hook_stream0 stream0;
};

struct backend_cuda {
	struct backend base;
	struct context *context;
	enum backend_memory memory;
	unsigned flags;
};

/* Events of one context that are not in use. */
struct backend_events {
	pthread_mutex_t lock;
	CUevent *spare;
	size_t n_spare, n_room;
};

void backend_cuda_init(struct backend_cuda *backend, struct context *context,
		       enum backend_memory memory, unsigned flags);

enum backend_capture {
	BACKEND_STREAM_RUNS,
	BACKEND_STREAM_CAPTURES,
	BACKEND_STREAM_UNKNOWN,
};

/* Does the stream capture? Costs nothing while none does. */
enum backend_capture backend_ask_capture(const struct stream_handle *stream);

void backend_events_init(struct backend_events *events);

/* An event without timing of this context, which need not be current. */
CUresult backend_event_get(struct context *context, CUevent *ret_event);

/* generation: that of the context when the event was got; the event of one that is gone is
 * forgotten. */
void backend_event_put(struct context *context, CUevent event, unsigned generation);

/* The context is gone, and its events with it; its generation went up before. */
void backend_events_forget(struct backend_events *events);

bool backend_has_fences(void);

/* Monotonic time. */
uint64_t backend_now_ns(void);

/* Ask about an event that was recorded outside any capture; no capture is disturbed. */
CUresult backend_query_event(CUevent event);

/*
 * Wait for an event that was recorded outside any capture. The thread's capture mode is relaxed
 * meanwhile, so a capture that another thread begins is not disturbed. Holds no gate: it may take
 * as long as the work does.
 */
CUresult backend_await_event(CUevent event);

/*
 * Wait, as the driver's free does, until all work submitted to the context so far is complete.
 * False: it could not be asked (a capture is open, or the context is broken).
 */
bool backend_wait_for_context(struct context *context);
