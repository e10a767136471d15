/* SPDX-License-Identifier: MIT */
#include "shim/imports.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "pool/list.h"
#include "pool/thread.h"
#include "shim/context.h"

/* A block, as opened. */
struct part {
	struct list link; /* allocation->parts */
	CUdeviceptr addr;
	size_t size_bytes;
	uint64_t generation;
	uint64_t serial;
	unsigned n_opens; /* > 0 */
};

/* What the driver has mapped. */
struct allocation {
	struct list link; /* allocations */
	CUcontext context;
	CUipcMemHandle handle;
	CUdeviceptr addr;
	size_t size_bytes;
	uint64_t serial;
	struct list parts;
	bool is_moving; /* the driver opens or closes it now: addr is not to be used */
	bool is_gone;   /* its context ended meanwhile: whoever moves it drops it */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t moved = PTHREAD_COND_INITIALIZER; /* an allocation is_moving no more */
static struct list allocations = {&allocations, &allocations};
static uint64_t n_serials;
/* Allocations on the list. Relaxed: whoever has an address of one opened it before. */
static _Atomic unsigned n_allocations;

/* No point of cancellation: a thread that ended in here would keep the lock. */
static void
await_move_locked(void)
{
	int before, none;

	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
	pthread_cond_wait(&moved, &lock);
	pthread_setcancelstate(before, &none);
}

/* Whose memory the calling thread's imports are: a green context's are its primary's. */
static CUresult
get_owner(CUcontext *ret_owner)
{
	CUcontext handle = NULL;
	CUresult r = real.cuCtxGetCurrent(&handle);
	struct context *context = r == CUDA_SUCCESS ? context_find(handle) : NULL;

	if (context && context->is_green)
		context = context_find_primary(context->device->index);
	*ret_owner = context ? atomic_load(&context->handle) : handle;
	return r;
}

static struct allocation *
find_opened_locked(CUcontext context, const CUipcMemHandle *handle)
{
	for (struct list *at = allocations.next; at != &allocations; at = at->next) {
		struct allocation *allocation = list_entry(at, struct allocation, link);

		if (allocation->context == context && !allocation->is_gone &&
		    memcmp(&allocation->handle, handle, sizeof(*handle)) == 0)
			return allocation;
	}
	return NULL;
}

static struct allocation *
find_holding_locked(CUdeviceptr addr)
{
	for (struct list *at = allocations.next; at != &allocations; at = at->next) {
		struct allocation *allocation = list_entry(at, struct allocation, link);

		if (!allocation->is_gone && addr - allocation->addr < allocation->size_bytes)
			return allocation;
	}
	return NULL;
}

static void
forget_locked(struct allocation *allocation)
{
	while (!list_is_empty(&allocation->parts)) {
		struct part *part = list_entry(allocation->parts.next, struct part, link);

		list_remove(&part->link);
		free(part);
	}
	list_remove(&allocation->link);
	atomic_fetch_sub_explicit(&n_allocations, 1, memory_order_relaxed);
	free(allocation);
}

static void
begin_move_locked(struct allocation *allocation)
{
	thread_begin_step();
	allocation->is_moving = true;
}

static void
end_move_locked(struct allocation *allocation)
{
	allocation->is_moving = false;
	pthread_cond_broadcast(&moved);
	thread_end_step();
	if (allocation->is_gone)
		forget_locked(allocation);
}

/* On the list and moving: it is this thread's to open. NULL: libc has no memory. */
static struct allocation *
add_allocation_locked(CUcontext context, const CUipcMemHandle *handle)
{
	struct allocation *allocation = calloc(1, sizeof(*allocation));

	if (!allocation)
		return NULL;
	allocation->context = context;
	allocation->handle = *handle;
	allocation->serial = ++n_serials;
	begin_move_locked(allocation);
	list_init(&allocation->parts);
	list_append(&allocations, &allocation->link);
	atomic_fetch_add_explicit(&n_allocations, 1, memory_order_relaxed);
	return allocation;
}

/* Called with the lock, which it lets go in between. */
static CUresult
map_locked(struct allocation *allocation, unsigned flags, imports_open_fn *open,
	   imports_close_fn *close)
{
	const CUipcMemHandle handle = allocation->handle;
	CUdeviceptr addr = 0, base;
	size_t size_bytes = 0;
	CUresult r;

	thread_unlock(&lock);
	r = open(&addr, handle, flags);
	if (r == CUDA_SUCCESS) {
		r = real.cuMemGetAddressRange_v2(&base, &size_bytes, addr);
		if (r != CUDA_SUCCESS)
			close(addr);
	}
	thread_lock(&lock);
	if (r != CUDA_SUCCESS)
		return r;
	allocation->addr = addr;
	allocation->size_bytes = size_bytes;
	return CUDA_SUCCESS;
}

/* Give the allocation back to the driver; on failure it is open as before, for somebody to try
 * again. Called with the lock, which it lets go in between. */
static CUresult
unmap_locked(struct allocation *allocation, imports_close_fn *close)
{
	const CUdeviceptr addr = allocation->addr;
	CUresult r;

	begin_move_locked(allocation);
	thread_unlock(&lock);
	r = close(addr);
	thread_lock(&lock);
	allocation->is_gone |= r == CUDA_SUCCESS;
	end_move_locked(allocation);
	return r;
}

/* Starting at addr, or holding it. What an exporter put at an older block's place comes first. */
static struct part *
find_part_locked(struct allocation *allocation, CUdeviceptr addr, bool is_start)
{
	for (struct list *at = allocation->parts.next; at != &allocation->parts; at = at->next) {
		struct part *part = list_entry(at, struct part, link);

		if (is_start ? part->addr == addr : addr - part->addr < part->size_bytes)
			return part;
	}
	return NULL;
}

/* One more open of a block. Takes spare if the block was not open. */
static CUresult
open_part_locked(struct allocation *allocation, const struct ipc_part *wanted, struct part **spare,
		 CUdeviceptr *ret_addr)
{
	const CUdeviceptr addr = allocation->addr + wanted->offset_bytes;
	struct part *part = find_part_locked(allocation, addr, true);

	if (wanted->offset_bytes > allocation->size_bytes ||
	    wanted->size_bytes > allocation->size_bytes - wanted->offset_bytes)
		return CUDA_ERROR_INVALID_VALUE; /* no handle of that exporter's */
	if (!part) {
		part = *spare;
		*spare = NULL;
		part->addr = addr;
	}
	if (part->n_opens == 0 || part->generation != wanted->generation) {
		part->size_bytes = wanted->size_bytes;
		part->generation = wanted->generation;
		part->serial = ++n_serials;
	}
	part->n_opens++;
	list_remove(&part->link);
	list_prepend(&allocation->parts, &part->link);
	*ret_addr = addr;
	return CUDA_SUCCESS;
}

/* The open allocation of the handle in this context, made if there is none. */
static CUresult
get_allocation_locked(CUcontext context, const CUipcMemHandle *handle, unsigned flags,
		      imports_open_fn *open, imports_close_fn *close,
		      struct allocation **ret_allocation)
{
	struct allocation *allocation;
	CUresult r;

	while ((allocation = find_opened_locked(context, handle)) && allocation->is_moving) {
		if (thread_is_at_step()) /* of an interrupted call, perhaps this one */
			return CUDA_ERROR_OUT_OF_MEMORY;
		await_move_locked();
	}
	if (!allocation) {
		allocation = add_allocation_locked(context, handle);
		if (!allocation)
			return CUDA_ERROR_OUT_OF_MEMORY;
		r = map_locked(allocation, flags, open, close);
		allocation->is_gone |= r != CUDA_SUCCESS;
		if (allocation->is_gone && r == CUDA_SUCCESS)
			r = CUDA_ERROR_CONTEXT_IS_DESTROYED;
		end_move_locked(allocation);
		if (r != CUDA_SUCCESS)
			return r;
	}
	*ret_allocation = allocation;
	return CUDA_SUCCESS;
}

CUresult
imports_open(const CUipcMemHandle *handle, const struct ipc_part *part, unsigned flags,
	     imports_open_fn *open, imports_close_fn *close, CUdeviceptr *ret_addr)
{
	struct part *spare = calloc(1, sizeof(*spare));
	struct allocation *allocation;
	CUcontext context = NULL;
	CUresult r;

	if (!spare)
		return CUDA_ERROR_OUT_OF_MEMORY;
	list_init(&spare->link);
	r = get_owner(&context);
	thread_lock(&lock);
	if (r == CUDA_SUCCESS)
		r = get_allocation_locked(context, handle, flags, open, close, &allocation);
	if (r == CUDA_SUCCESS) {
		r = open_part_locked(allocation, part, &spare, ret_addr);
		if (r != CUDA_SUCCESS && list_is_empty(&allocation->parts))
			unmap_locked(allocation, close);
	}
	thread_unlock(&lock);
	free(spare);
	return r;
}

/* One open less; with the last of all blocks the driver closes. */
static CUresult
close_part_locked(struct allocation *allocation, struct part *part, imports_close_fn *close)
{
	const bool is_last = part->n_opens == 1 && allocation->parts.next == &part->link &&
			     allocation->parts.prev == &part->link;

	if (is_last)
		return unmap_locked(allocation, close);
	if (--part->n_opens == 0) {
		list_remove(&part->link);
		free(part);
	}
	return CUDA_SUCCESS;
}

bool
imports_close(CUdeviceptr addr, imports_close_fn *close, CUresult *ret_status)
{
	struct allocation *allocation;
	struct part *part = NULL;
	bool is_ours;

	if (atomic_load_explicit(&n_allocations, memory_order_relaxed) == 0)
		return false;
	if (thread_holds() || thread_is_at_step()) {
		*ret_status = CUDA_SUCCESS; /* the call that was interrupted may have it in hand: it
					       stays open */
		return true;
	}
	thread_lock(&lock);
	while ((allocation = find_holding_locked(addr)) && allocation->is_moving)
		await_move_locked();
	is_ours = allocation != NULL;
	if (is_ours)
		part = find_part_locked(allocation, addr, true);
	if (part)
		*ret_status = close_part_locked(allocation, part, close);
	else if (is_ours) /* the driver would take its own address for the whole mapping's */
		*ret_status = CUDA_ERROR_INVALID_VALUE;
	thread_unlock(&lock);
	return is_ours;
}

bool
imports_find(CUdeviceptr addr, struct import_info *ret_info)
{
	struct allocation *allocation;
	const struct part *part;
	bool is_ours;

	if (atomic_load_explicit(&n_allocations, memory_order_relaxed) == 0)
		return false;
	thread_lock(&lock);
	allocation = find_holding_locked(addr);
	is_ours = allocation != NULL;
	if (is_ours) {
		part = find_part_locked(allocation, addr, false);
		*ret_info = part ? (struct import_info){part->addr, part->size_bytes, part->serial}
				 : (struct import_info){0};
	}
	thread_unlock(&lock);
	return is_ours;
}

uint64_t
imports_now(void)
{
	uint64_t now;

	thread_lock(&lock);
	now = n_serials;
	thread_unlock(&lock);
	return now;
}

void
imports_forget(CUcontext context, uint64_t before)
{
	struct list *at, *next;

	thread_lock(&lock);
	for (at = allocations.next; at != &allocations; at = next) {
		struct allocation *allocation = list_entry(at, struct allocation, link);

		next = at->next;
		if (allocation->context != context || allocation->serial > before)
			continue;
		allocation->is_gone = true;
		if (!allocation->is_moving)
			forget_locked(allocation);
	}
	thread_unlock(&lock);
}
