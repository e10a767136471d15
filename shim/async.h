/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * The driver's default pool of each device, in whose name this library's pool serves.
 *
 * Served is what is asked of the default pool while it is the program's choice and reached by its
 * own device only. Peers reach the driver's memory by the access that the program sets on the pool,
 * and other processes by exports of it: from then on the driver serves.
 *
 * Locking: none; any thread.
 */
#include <stdbool.h>

#include "shim/hooks.h"
#include "shim/order.h"

struct context;
struct device;

/* NULL: the driver has none. */
CUmemoryPool async_default_pool(int device);

/* The same for the device of a context. */
CUmemoryPool async_pool_of(const struct context *context);

/* Is a request of this pool (NULL: of the current one), in the order of the stream, for this
 * library to serve in the context? */
bool async_serves(const struct context *context, CUmemoryPool pool,
		  const struct stream_handle *stream, struct order_place *ret_place);

/* CUDA_SUCCESS: the stream is one and does not capture, so that memory which is no node of a graph
 * can be freed in it. */
CUresult async_check_free(CUstream stream, enum hook_stream0 stream0);

/* Before a request or a free in the order of a stream is served: leave there what the driver's
 * operation does to other streams' order. */
CUresult async_mark(struct context *context, struct heap *heap, const struct stream_handle *stream,
		    const struct order_place *place);

/* The device whose default pool it is, if requests of it may have been served here; NULL: none. */
struct device *async_find_device(CUmemoryPool pool);

/* Which pools are current may have changed. */
void async_forget_current(void);

/* The driver serves the device's requests from now on. */
void async_leave(const struct device *device);

/* What of the default pool lies here. used: live; reserved: that and what is held for more. */
struct async_bytes {
	uint64_t used, peak_used, reserved, peak_reserved;
};

struct async_bytes async_read(const struct device *device);
void async_reset_peak_used(struct device *device);
void async_reset_peak_reserved(struct device *device);

/* Give back what is idle until no more than so much is reserved. Waits for nothing. */
void async_trim(struct device *device, uint64_t keep_bytes);
