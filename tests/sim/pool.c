/* SPDX-License-Identifier: MIT */
#include "tests/sim/sim_internal.h"

#include <stdlib.h>

/*
 * Memory pools and stream-ordered allocation. An address is given at once; a free takes effect
 * when its operation runs. Nothing is kept back: freed memory goes to the device's free pages.
 */

struct CUmemPoolHandle_st *
pool_new(struct device *dev)
{
	struct CUmemPoolHandle_st *pool = calloc(1, sizeof(*pool));

	if (!pool || handle_add(pool, HANDLE_POOL) != CUDA_SUCCESS) {
		free(pool);
		return NULL;
	}
	pool->dev = dev;
	pool->arena.dev = dev;
	pool->reuse_event = pool->reuse_opportunistic = pool->reuse_internal = 1;
	pool->access[dev->ordinal] = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
	pool->next = sim.pools;
	sim.pools = pool;
	return pool;
}

void
pool_note_alloc(struct CUmemPoolHandle_st *pool, uint64_t size_bytes)
{
	pool->used_bytes += size_bytes;
	if (pool->used_bytes > pool->used_high_bytes)
		pool->used_high_bytes = pool->used_bytes;
	if (pool->arena.n_pages * SIM_PAGE > pool->reserved_high_bytes)
		pool->reserved_high_bytes = pool->arena.n_pages * SIM_PAGE;
}

void
pool_note_free(struct alloc *a)
{
	a->pool->used_bytes -= a->size_bytes;
}

static struct op *
pending_free(void *arg)
{
	const struct device *dev = arg;

	for (const struct CUctx_st *ctx = sim.contexts; ctx; ctx = ctx->next) {
		for (const struct CUstream_st *s = ctx->dev == dev ? ctx->streams : NULL; s;
		     s = s->next) {
			for (struct op *op = s->head; op; op = op->next) {
				if (op->kind == CUSIM_OP_FREE_ASYNC)
					return op;
			}
		}
	}
	return NULL;
}

/* Memory whose free is still queued counts as free once its stream has come that far. */
static CUresult
take(struct CUmemPoolHandle_st *pool, uint64_t size_bytes, struct alloc **ret_alloc)
{
	struct alloc init = {.kind = ALLOC_ASYNC, .ctx = ctx_current_root(), .pool = pool};
	CUresult r;

	if (pool->max_bytes && pool->used_bytes + size_bytes > pool->max_bytes)
		return CUDA_ERROR_OUT_OF_MEMORY;
	r = alloc_device(&pool->arena, size_bytes, &init, ret_alloc);
	if (r == CUDA_ERROR_OUT_OF_MEMORY && size_bytes <= pool->dev->n_pages * SIM_PAGE) {
		exec_wait(pending_free, pool->dev);
		r = alloc_device(&pool->arena, size_bytes, &init, ret_alloc);
	}
	return r;
}

static CUresult
alloc_async(enum entry_id e, CUdeviceptr *ret_ptr, size_t size_bytes, CUmemoryPool pool,
	    bool is_explicit, CUstream handle)
{
	CUresult r = sim_enter(e, NEED_CONTEXT);
	struct CUstream_st *s;
	struct alloc *a;
	struct op *op;

	if (r != CUDA_SUCCESS)
		return r;
	if (!ret_ptr || size_bytes == 0 || (is_explicit && !handle_is(pool, HANDLE_POOL)))
		return sim_leave(CUDA_ERROR_INVALID_VALUE);
	r = stream_resolve(e, handle, &s);
	if (r != CUDA_SUCCESS)
		return sim_leave(r);
	if (!is_explicit)
		pool = s->ctx->dev->current_pool;
	r = take(pool, size_bytes, &a);
	op = r == CUDA_SUCCESS ? op_new(CUSIM_OP_ALLOC_ASYNC) : NULL;
	if (!op)
		return sim_leave(r == CUDA_SUCCESS ? CUDA_ERROR_OUT_OF_MEMORY : r);
	pool_note_alloc(pool, size_bytes);
	a->ctx = s->ctx;
	a->is_graph = s->capture != NULL;
	op->alloc_base = a->base;
	op_range(op, a->base, a->size_bytes, true);
	*ret_ptr = a->base;
	r = exec_submit(s, op);
	if (r != CUDA_SUCCESS)
		alloc_release(a);
	return sim_leave(r);
}

SIM_PAIR(cuMemAllocAsync, _ptsz, (CUdeviceptr * p, size_t n, CUstream s), alloc_async, p, n, NULL,
	 false, s)
SIM_PAIR(cuMemAllocFromPoolAsync, _ptsz, (CUdeviceptr * p, size_t n, CUmemoryPool pool, CUstream s),
	 alloc_async, p, n, pool, true, s)

/* Accepts memory of cuMemAlloc too. While capturing, only what was allocated in a capture. */
static CUresult
free_async(enum entry_id e, CUdeviceptr ptr, CUstream handle)
{
	CUresult r = sim_enter(e, NEED_CONTEXT);
	struct CUstream_st *s;
	struct alloc *a;
	struct op *op;

	if (r != CUDA_SUCCESS)
		return r;
	r = stream_resolve(e, handle, &s);
	if (r != CUDA_SUCCESS)
		return sim_leave(r);
	if (ptr == 0)
		return sim_leave(CUDA_SUCCESS);
	a = alloc_find(ptr);
	if (!a || a->base != ptr || a->is_freeing ||
	    (a->kind != ALLOC_ASYNC && a->kind != ALLOC_DEVICE && a->kind != ALLOC_POOL_IMPORT))
		return sim_leave(CUDA_ERROR_INVALID_VALUE);
	if (s->capture && !a->is_graph)
		return sim_leave(CUDA_ERROR_INVALID_VALUE);
	op = op_new(s->capture ? CUSIM_OP_NOTHING : CUSIM_OP_FREE_ASYNC);
	if (!op)
		return sim_leave(CUDA_ERROR_OUT_OF_MEMORY);
	op->alloc_base = a->base;
	op_range(op, a->base, a->size_bytes, true);
	r = exec_submit(s, op);
	if (r == CUDA_SUCCESS)
		a->is_freeing = !a->is_graph;
	return sim_leave(r);
}

SIM_PAIR(cuMemFreeAsync, _ptsz, (CUdeviceptr p, CUstream s), free_async, p, s)

CUresult
cuMemPoolCreate(CUmemoryPool *ret_pool, const CUmemPoolProps *props)
{
	CUresult r = sim_enter(E_cuMemPoolCreate, NEED_INIT);
	struct device *dev;

	if (r != CUDA_SUCCESS)
		return r;
	if (!ret_pool || !props || props->allocType != CU_MEM_ALLOCATION_TYPE_PINNED ||
	    props->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
		return sim_leave(CUDA_ERROR_INVALID_VALUE);
	r = device_find(props->location.id, &dev);
	if (r != CUDA_SUCCESS)
		return sim_leave(r);
	*ret_pool = pool_new(dev);
	if (!*ret_pool)
		return sim_leave(CUDA_ERROR_OUT_OF_MEMORY);
	(*ret_pool)->max_bytes = props->maxSize;
	return sim_leave(CUDA_SUCCESS);
}

/* The pool is forgotten by its device; its memory lives on until it is freed. */
CUresult
cuMemPoolDestroy(CUmemoryPool pool)
{
	CUresult r = sim_enter(E_cuMemPoolDestroy, NEED_INIT);

	if (r != CUDA_SUCCESS)
		return r;
	if (!handle_is(pool, HANDLE_POOL) || pool == pool->dev->default_pool)
		return sim_leave(CUDA_ERROR_INVALID_VALUE);
	if (pool->dev->current_pool == pool)
		pool->dev->current_pool = pool->dev->default_pool;
	handle_remove(pool);
	return sim_leave(CUDA_SUCCESS);
}

CUresult
cuMemPoolTrimTo(CUmemoryPool pool, size_t min_bytes)
{
	CUresult r = sim_enter(E_cuMemPoolTrimTo, NEED_INIT);

	(void)min_bytes;
	if (r != CUDA_SUCCESS)
		return r;
	return sim_leave(handle_is(pool, HANDLE_POOL) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
}

static CUresult
attribute(CUmemoryPool pool, CUmemPool_attribute attr, int **ret_int, uint64_t **ret_bytes)
{
	*ret_int = NULL;
	*ret_bytes = NULL;
	switch (attr) {
	case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
		*ret_int = &pool->reuse_event;
		return CUDA_SUCCESS;
	case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
		*ret_int = &pool->reuse_opportunistic;
		return CUDA_SUCCESS;
	case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
		*ret_int = &pool->reuse_internal;
		return CUDA_SUCCESS;
	case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
		*ret_bytes = &pool->release_threshold_bytes;
		return CUDA_SUCCESS;
	case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
		*ret_bytes = &pool->reserved_high_bytes;
		return CUDA_SUCCESS;
	case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
		*ret_bytes = &pool->used_bytes;
		return CUDA_SUCCESS;
	case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
		*ret_bytes = &pool->used_high_bytes;
		return CUDA_SUCCESS;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}

CUresult
cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attr, void *value)
{
	CUresult r = sim_enter(E_cuMemPoolGetAttribute, NEED_INIT);
	uint64_t *bytes;
	int *flag;

	if (r != CUDA_SUCCESS)
		return r;
	if (!value || !handle_is(pool, HANDLE_POOL))
		return sim_leave(CUDA_ERROR_INVALID_VALUE);
	if (attr == CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) {
		*(cuuint64_t *)value = pool->arena.n_pages * SIM_PAGE;
		return sim_leave(CUDA_SUCCESS);
	}
	r = attribute(pool, attr, &flag, &bytes);
	if (r == CUDA_SUCCESS && flag)
		*(int *)value = *flag;
	else if (r == CUDA_SUCCESS)
		*(cuuint64_t *)value = *bytes;
	return sim_leave(r);
}

/* The high marks may only be reset to 0; the current figures not be set at all. */
CUresult
cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attr, void *value)
{
	CUresult r = sim_enter(E_cuMemPoolSetAttribute, NEED_INIT);
	uint64_t *bytes;
	int *flag;

	if (r != CUDA_SUCCESS)
		return r;
	if (!value || !handle_is(pool, HANDLE_POOL) || attr == CU_MEMPOOL_ATTR_USED_MEM_CURRENT)
		return sim_leave(CUDA_ERROR_INVALID_VALUE);
	r = attribute(pool, attr, &flag, &bytes);
	if (r != CUDA_SUCCESS)
		return sim_leave(r);
	if (flag) {
		*flag = *(int *)value;
	} else if (attr == CU_MEMPOOL_ATTR_RELEASE_THRESHOLD) {
		*bytes = *(cuuint64_t *)value;
	} else {
		if (*(cuuint64_t *)value != 0)
			return sim_leave(CUDA_ERROR_INVALID_VALUE);
		*bytes = attr == CU_MEMPOOL_ATTR_USED_MEM_HIGH ? pool->used_bytes
							       : pool->arena.n_pages * SIM_PAGE;
	}
	return sim_leave(CUDA_SUCCESS);
}

CUresult
cuMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc *map, size_t n)
{
	CUresult r = sim_enter(E_cuMemPoolSetAccess, NEED_INIT);
	struct device *dev;

	if (r != CUDA_SUCCESS)
		return r;
	if (!handle_is(pool, HANDLE_POOL) || (!map && n > 0))
		return sim_leave(CUDA_ERROR_INVALID_VALUE);
	for (size_t i = 0; i < n; i++) {
		if (map[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
		    device_find(map[i].location.id, &dev) != CUDA_SUCCESS)
			return sim_leave(CUDA_ERROR_INVALID_VALUE);
		pool->access[dev->ordinal] = map[i].flags;
	}
	return sim_leave(CUDA_SUCCESS);
}

CUresult
cuMemPoolGetAccess(CUmemAccess_flags *flags, CUmemoryPool pool, CUmemLocation *location)
{
	CUresult r = sim_enter(E_cuMemPoolGetAccess, NEED_INIT);
	struct device *dev;

	if (r != CUDA_SUCCESS)
		return r;
	if (!flags || !location || !handle_is(pool, HANDLE_POOL) ||
	    device_find(location->id, &dev) != CUDA_SUCCESS)
		return sim_leave(CUDA_ERROR_INVALID_VALUE);
	*flags = pool->access[dev->ordinal];
	return sim_leave(CUDA_SUCCESS);
}

static CUresult
get_pool(enum entry_id e, CUmemoryPool *ret_pool, CUdevice device, bool wants_default)
{
	CUresult r = sim_enter(e, NEED_INIT);
	struct device *dev;

	if (r != CUDA_SUCCESS)
		return r;
	if (!ret_pool)
		return sim_leave(CUDA_ERROR_INVALID_VALUE);
	r = device_find(device, &dev);
	if (r == CUDA_SUCCESS)
		*ret_pool = wants_default ? dev->default_pool : dev->current_pool;
	return sim_leave(r);
}

CUresult
cuDeviceGetDefaultMemPool(CUmemoryPool *ret_pool, CUdevice dev)
{
	return get_pool(E_cuDeviceGetDefaultMemPool, ret_pool, dev, true);
}

CUresult
cuDeviceGetMemPool(CUmemoryPool *ret_pool, CUdevice dev)
{
	return get_pool(E_cuDeviceGetMemPool, ret_pool, dev, false);
}

static CUresult
set_pool(enum entry_id e, CUdevice device, CUmemoryPool pool)
{
	CUresult r = sim_enter(e, NEED_INIT);
	struct device *dev;

	if (r != CUDA_SUCCESS)
		return r;
	r = device_find(device, &dev);
	if (r == CUDA_SUCCESS && (!handle_is(pool, HANDLE_POOL) || pool->dev != dev))
		r = CUDA_ERROR_INVALID_VALUE;
	if (r == CUDA_SUCCESS)
		dev->current_pool = pool;
	return sim_leave(r);
}

CUresult
cuDeviceSetMemPool(CUdevice device, CUmemoryPool pool)
{
	return set_pool(E_cuDeviceSetMemPool, device, pool);
}

CUresult
cuMemSetMemPool(CUmemLocation *location, CUmemAllocationType type, CUmemoryPool pool)
{
	if (type != CU_MEM_ALLOCATION_TYPE_PINNED)
		return CUDA_ERROR_NOT_SUPPORTED;
	return set_pool(E_cuMemSetMemPool, location ? location->id : -1, pool);
}

/* The forms by location: device memory only. */
static CUresult
location_pool(enum entry_id e, CUmemoryPool *ret_pool, const CUmemLocation *location,
	      CUmemAllocationType type, bool wants_default)
{
	if (location && (location->type != CU_MEM_LOCATION_TYPE_DEVICE ||
			 type != CU_MEM_ALLOCATION_TYPE_PINNED))
		return CUDA_ERROR_NOT_SUPPORTED;
	return get_pool(e, location ? ret_pool : NULL, location ? location->id : 0, wants_default);
}

CUresult
cuMemGetDefaultMemPool(CUmemoryPool *ret_pool, CUmemLocation *location, CUmemAllocationType type)
{
	return location_pool(E_cuMemGetDefaultMemPool, ret_pool, location, type, true);
}

CUresult
cuMemGetMemPool(CUmemoryPool *ret_pool, CUmemLocation *location, CUmemAllocationType type)
{
	return location_pool(E_cuMemGetMemPool, ret_pool, location, type, false);
}
