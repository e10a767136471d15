/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * One request or free of the program, from the driver's arguments to the driver's status: what the
 * hook bodies share.
 *
 * Each answers true if the shim served it, with the status for the program; false: forward,
 * untouched. Locking: none; any thread.
 */
#include <stdbool.h>

#include "pool/heap.h"
#include "shim/backend_cuda.h"
#include "shim/hooks.h"

struct context;

/* The context to serve the calling thread's request in; NULL: the driver shall. */
struct context *serve_context(void);

/* The status that the driver gives the calling thread before it looks at an address: no context, as
 * a rule. */
CUresult serve_refusal(void);

/* A refused request sets its pointer to NULL, as the driver's do (measured). return_address: of the
 * hook. */
bool serve_device_alloc(size_t size_bytes, const void *return_address, CUdeviceptr *ret_addr,
			CUresult *ret_status);
bool serve_host_alloc(enum backend_memory memory, unsigned flags, size_t size_bytes,
		      const void *return_address, void **ret_addr, CUresult *ret_status);

/* A request in the order of a stream, for the device's current pool (NULL) or another one. A
 * refused one leaves its pointer alone. */
bool serve_alloc_async(size_t size_bytes, const struct stream_handle *stream, CUmemoryPool pool,
		       const void *return_address, CUdeviceptr *ret_addr, CUresult *ret_status);

/* cuMemFree and cuMemFreeHost. */
bool serve_free(uint64_t addr, enum heap_kind kind, CUresult *ret_status);

/* cuMemFreeAsync. free_async: the driver's function of the same body, for memory that is only
 * counted. */
bool serve_free_async(uint64_t addr, CUstream stream, enum hook_stream0 stream0,
		      CUresult (*free_async)(CUdeviceptr, CUstream), CUresult *ret_status);

/* Give all idle memory of a device back, or all idle pinned memory: waits for pending blocks for a
 * moment. */
void serve_trim_device(int device);
void serve_trim_host(void);

/*
 * The driver had no memory for a call that goes past the pool. True: the pool had idle memory and
 * has given back what it could, so the driver may be asked once more.
 */
bool serve_made_room(void);
