/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * Memory that goes past the pool, from the driver's arguments to the records of external.h: where
 * it lies, whose it is, how large it is by the driver's own word.
 *
 * Nothing is counted before cuInit, in mode off and in a forked child. Locking: none; any thread.
 * A scope is taken before the driver call, so that a context that ends meanwhile takes the piece
 * along.
 */
#include "shim/external.h"
#include "shim/hooks.h"
#include "shim/init.h"

struct context;
struct device;

/* Whose memory a request is for that does not say it: the current context's. */
struct outside_scope {
	struct device *device; /* NULL: do not count */
	const atomic_uint *life;
	unsigned generation;
	unsigned tag; /* who asked */
};

struct outside_scope outside_scope(const void *return_address);

/* For a hook's body. */
#define OUTSIDE_SCOPE() outside_scope(HOOK_RETURN_ADDRESS())

/* Is there something to count? What a hook was given to write to may be looked at then only. */
static inline bool
outside_counts(CUresult r)
{
	return r == CUDA_SUCCESS && init_is_active();
}

/* A request of the scope's context succeeded. kind says where it lies, for those of one place. */
void outside_count(const struct outside_scope *scope, enum external_space space, uint64_t key,
		   enum external_kind kind, uint64_t bytes);

/* An array, of one level if n_levels is 0. Sparse and deferred ones take no memory. */
void outside_count_array(const struct outside_scope *scope, CUarray array,
			 const CUDA_ARRAY3D_DESCRIPTOR *how);
void outside_count_mipmap(const struct outside_scope *scope, CUmipmappedArray mipmap,
			  const CUDA_ARRAY3D_DESCRIPTOR *how, unsigned n_levels);

/* Physical memory by handle: made here, or another owner's (its size is known when it is mapped).
 */
void outside_count_created(CUmemGenericAllocationHandle handle, uint64_t bytes,
			   const CUmemAllocationProp *how, const void *return_address);
void outside_count_imported(CUmemGenericAllocationHandle handle, const void *return_address);

/* Another owner's memory at an address, mapped for the scope's context; its size is the driver's
 * word. */
void outside_count_ipc(const struct outside_scope *scope, CUdeviceptr addr);

/* The same in an imported pool. It is nobody's context's. */
void outside_count_imported_pointer(CUdeviceptr addr, const void *return_address);

/* Stream-ordered memory; a request of a capturing stream is a node of its graph instead. */
void outside_count_async(CUdeviceptr addr, uint64_t bytes, CUstream stream,
			 enum hook_stream0 stream0, const void *return_address);

/*
 * Around the creation of a context: what it takes of its device is what the device has less
 * afterwards, as far as that is not counted otherwise. Only another context of the device can ask,
 * so the first one of a process is never measured.
 */
struct outside_context {
	struct device *device;   /* NULL: not to be measured */
	struct context *witness; /* who asks */
	uint64_t free_bytes, counted_bytes;
	unsigned tag; /* who asked */
};

struct outside_context outside_context_begin(CUdevice device, bool is_primary,
					     const void *return_address);
/* handle: registered already. */
void outside_context_end(const struct outside_context *before, CUcontext handle);

/* external.h's calls for hook bodies, which may run in a forked child or before cuInit. */
static inline struct external_record *
outside_claim(enum external_space space, uint64_t key)
{
	return init_is_active() ? external_claim(space, key) : NULL;
}

static inline void
outside_retain(enum external_space space, uint64_t key)
{
	if (init_is_active())
		external_retain(space, key);
}

static inline struct external_record *
outside_map_begin(CUmemGenericAllocationHandle handle)
{
	return init_is_active() ? external_map_begin(handle) : NULL;
}

static inline struct external_record *
outside_unmap_begin(CUdeviceptr addr, size_t size_bytes)
{
	return init_is_active() ? external_unmap_begin(addr, size_bytes) : NULL;
}

/*
 * Memory nodes of graphs: the driver keeps memory for them by device, and says how much. It is
 * asked after calls that may change it, once there was such a node, and not at any other time.
 */
void outside_note_graph_node(int device);
void outside_note_graph_params(const CUgraphNodeParams *params);
void outside_read_graphs_slow(void);

extern _Atomic uint64_t outside_graph_devices; /* a bit for each that had such a node */

static inline void
outside_read_graphs(void)
{
	/* relaxed: a node that is being made just now is not in what was launched */
	if (__builtin_expect(
		    atomic_load_explicit(&outside_graph_devices, memory_order_relaxed) != 0, 0))
		outside_read_graphs_slow();
}
