/* SPDX-License-Identifier: MIT */
#include "tests/sim/sim_internal.h"

#include <stdlib.h>
#include <string.h>

/*
 * Contexts and the stack of them that each thread has. The primary context of a device keeps its
 * handle over resets and releases; while nobody retains it, calls that need it answer
 * CUDA_ERROR_CONTEXT_IS_DESTROYED.
 */

struct CUctx_st *
ctx_current(void)
{
	return sim_thread.depth > 0 ? sim_thread.stack[sim_thread.depth - 1] : NULL;
}

struct CUctx_st *
ctx_current_root(void)
{
	return ctx_current()->root;
}

bool
ctx_is_known(CUcontext handle)
{
	for (const struct CUctx_st *ctx = sim.contexts; ctx; ctx = ctx->next) {
		if (ctx == handle)
			return true;
	}
	return false;
}

static void
open_context(struct CUctx_st *ctx, unsigned flags)
{
	ctx->id = ++sim.next_id; /* a primary context that is opened again is another one */
	ctx->flags = flags;
	ctx->sticky = CUDA_SUCCESS;
	ctx->peers = 0;
	ctx->arena = (struct arena){.dev = ctx->dev};
	ctx->is_alive = true;
	ctx->n_usage = 1;
	/* Without so much memory it lives with less. */
	if (sim.n_context_pages &&
	    phys_new(ctx->dev, sim.n_context_pages, &ctx->own) != CUDA_SUCCESS)
		ctx->own = NULL;
}

struct CUctx_st *
ctx_new(struct device *dev, unsigned flags, unsigned api_version)
{
	struct CUctx_st *ctx = calloc(1, sizeof(*ctx));

	if (!ctx)
		return NULL;
	ctx->dev = dev;
	ctx->root = ctx;
	ctx->api_version = api_version;
	ctx->next = sim.contexts;
	sim.contexts = ctx;
	open_context(ctx, flags);
	ctx->legacy = stream_new(ctx, STREAM_LEGACY, 0);
	if (ctx->legacy)
		return ctx;
	sim.contexts = ctx->next;
	free(ctx);
	return NULL;
}

/* Wait for its work (not if it is in error), then drop everything it owns. */
void
ctx_close(struct CUctx_st *ctx)
{
	struct CUstream_st *s, *next;

	if (ctx->sticky == CUDA_SUCCESS)
		exec_wait_context(ctx->root, ctx == ctx->root ? NULL : ctx, sim.seq);
	ctx->is_alive = false;
	ctx->n_ends++;
	capture_invalidate_context(ctx->root);
	if (ctx != ctx->root)
		return;
	for (s = ctx->streams; s; s = next) {
		next = s->next;
		capture_leave(s);
		exec_drop(s);
		if (s->kind != STREAM_LEGACY && !s->is_destroyed) {
			s->is_destroyed = true;
			handle_remove(s);
			stream_free_if_idle(s);
		}
	}
	alloc_close_context(ctx);
	if (ctx->own)
		phys_unref(ctx->own);
	ctx->own = NULL;
	pthread_cond_broadcast(&sim.cond);
}

CUresult
ctx_retain_primary(struct device *dev, struct CUctx_st **ret_ctx)
{
	if (!dev->primary) {
		dev->primary = ctx_new(dev, dev->primary_flags, 3020);
		if (!dev->primary)
			return CUDA_ERROR_OUT_OF_MEMORY;
		dev->primary->is_primary = true;
	} else if (!dev->primary->is_alive) {
		open_context(dev->primary, dev->primary_flags);
	}
	dev->n_primary++;
	*ret_ctx = dev->primary;
	return CUDA_SUCCESS;
}

static CUresult
push(struct CUctx_st *ctx)
{
	if (sim_thread.depth == SIM_CTX_DEPTH)
		return CUDA_ERROR_OUT_OF_MEMORY;
	sim_thread.stack[sim_thread.depth++] = ctx;
	return CUDA_SUCCESS;
}

static CUresult
create(enum entry_id e, CUcontext *ret_ctx, unsigned flags, CUdevice device)
{
	CUresult r = sim_enter(e, NEED_INIT);
	struct CUctx_st *ctx;
	struct device *dev;

	if (r != CUDA_SUCCESS)
		return r;
	if (!ret_ctx)
		return sim_leave(CUDA_ERROR_INVALID_VALUE);
	r = device_find(device, &dev);
	if (r != CUDA_SUCCESS)
		return sim_leave(r);
	ctx = ctx_new(dev, flags, e == E_cuCtxCreate ? 3010 : 3020);
	if (!ctx)
		return sim_leave(CUDA_ERROR_OUT_OF_MEMORY);
	r = push(ctx);
	if (r == CUDA_SUCCESS)
		*ret_ctx = ctx;
	return sim_leave(r);
}

CUresult
cuCtxCreate(CUcontext *ctx, unsigned int flags, CUdevice dev)
{
	return create(E_cuCtxCreate, ctx, flags, dev);
}

CUresult
cuCtxCreate_v2(CUcontext *ctx, unsigned int flags, CUdevice dev)
{
	return create(E_cuCtxCreate_v2, ctx, flags, dev);
}

CUresult
cuCtxCreate_v3(CUcontext *ctx, CUexecAffinityParam *params, int n_params, unsigned int flags,
	       CUdevice dev)
{
	(void)params, (void)n_params;
	return create(E_cuCtxCreate_v3, ctx, flags, dev);
}

CUresult
cuCtxCreate_v4(CUcontext *ctx, CUctxCreateParams *params, unsigned int flags, CUdevice dev)
{
	(void)params;
	return create(E_cuCtxCreate_v4, ctx, flags, dev);
}

static CUresult
destroy(enum entry_id e, CUcontext ctx)
{
	CUresult r = sim_enter(e, NEED_INIT);

	if (r != CUDA_SUCCESS)
		return r;
	if (!ctx_is_known(ctx) || ctx->is_primary)
		return sim_leave(CUDA_ERROR_INVALID_CONTEXT);
	if (!ctx->is_alive)
		return sim_leave(CUDA_ERROR_CONTEXT_IS_DESTROYED);
	ctx_close(ctx);
	if (ctx_current() == ctx)
		sim_thread.depth--;
	return sim_leave(CUDA_SUCCESS);
}

CUresult
cuCtxDestroy(CUcontext ctx)
{
	return destroy(E_cuCtxDestroy, ctx);
}

CUresult
cuCtxDestroy_v2(CUcontext ctx)
{
	return destroy(E_cuCtxDestroy_v2, ctx);
}

CUresult
cuCtxAttach(CUcontext *ret_ctx, unsigned int flags)
{
	CUresult r = sim_enter(E_cuCtxAttach, NEED_CONTEXT);

	if (r != CUDA_SUCCESS)
		return r;
	if (!ret_ctx || flags != 0)
		return sim_leave(CUDA_ERROR_INVALID_VALUE);
	*ret_ctx = ctx_current();
	(*ret_ctx)->n_usage++;
	return sim_leave(CUDA_SUCCESS);
}

CUresult
cuCtxDetach(CUcontext ctx)
{
	CUresult r = sim_enter(E_cuCtxDetach, NEED_CONTEXT);

	if (r != CUDA_SUCCESS)
		return r;
	if (ctx != ctx_current())
		return sim_leave(CUDA_ERROR_INVALID_CONTEXT);
	if (--ctx->n_usage == 0) {
		ctx_close(ctx);
		sim_thread.depth--;
	}
	return sim_leave(CUDA_SUCCESS);
}

static CUresult
push_current(enum entry_id e, CUcontext ctx)
{
	CUresult r = sim_enter(e, NEED_INIT);

	if (r != CUDA_SUCCESS)
		return r;
	if (!ctx_is_known(ctx))
		return sim_leave(CUDA_ERROR_INVALID_CONTEXT);
	return sim_leave(push(ctx));
}

static CUresult
pop_current(enum entry_id e, CUcontext *ret_ctx)
{
	CUresult r = sim_enter(e, NEED_INIT);

	if (r != CUDA_SUCCESS)
		return r;
	if (sim_thread.depth == 0)
		return sim_leave(CUDA_ERROR_INVALID_CONTEXT);
	if (ret_ctx)
		*ret_ctx = ctx_current();
	sim_thread.depth--;
	return sim_leave(CUDA_SUCCESS);
}

CUresult
cuCtxPushCurrent(CUcontext ctx)
{
	return push_current(E_cuCtxPushCurrent, ctx);
}

CUresult
cuCtxPushCurrent_v2(CUcontext ctx)
{
	return push_current(E_cuCtxPushCurrent_v2, ctx);
}

CUresult
cuCtxPopCurrent(CUcontext *ret_ctx)
{
	return pop_current(E_cuCtxPopCurrent, ret_ctx);
}

CUresult
cuCtxPopCurrent_v2(CUcontext *ret_ctx)
{
	return pop_current(E_cuCtxPopCurrent_v2, ret_ctx);
}

CUresult
cuCtxSetCurrent(CUcontext ctx)
{
	CUresult r = sim_enter(E_cuCtxSetCurrent, NEED_INIT);

	if (r != CUDA_SUCCESS)
		return r;
	if (ctx && !ctx_is_known(ctx))
		return sim_leave(CUDA_ERROR_INVALID_CONTEXT);
	if (sim_thread.depth > 0)
		sim_thread.depth--;
	return sim_leave(ctx ? push(ctx) : CUDA_SUCCESS);
}

/* One that cuCtxDestroy ended is NULL, though calls in it say that it is destroyed (measured). */
CUresult
cuCtxGetCurrent(CUcontext *ret_ctx)
{
	CUresult r = sim_enter(E_cuCtxGetCurrent, NEED_INIT);
	const struct CUctx_st *ctx;

	if (r != CUDA_SUCCESS)
		return r;
	if (!ret_ctx)
		return sim_leave(CUDA_ERROR_INVALID_VALUE);
	ctx = ctx_current();
	*ret_ctx = ctx && !ctx->is_alive && ctx != ctx->dev->primary ? NULL : ctx_current();
	return sim_leave(CUDA_SUCCESS);
}

/* The device of ctx, or of the current context when ctx is NULL. */
static CUresult
get_device(enum entry_id e, CUdevice *device, CUcontext ctx)
{
	CUresult r = sim_enter(e, ctx ? NEED_INIT : NEED_CONTEXT);

	if (r != CUDA_SUCCESS)
		return r;
	if (!device)
		return sim_leave(CUDA_ERROR_INVALID_VALUE);
	if (ctx && (!ctx_is_known(ctx) || !ctx->is_alive))
		return sim_leave(CUDA_ERROR_INVALID_CONTEXT);
	*device = (ctx ? ctx : ctx_current())->dev->ordinal;
	return sim_leave(CUDA_SUCCESS);
}

CUresult
cuCtxGetDevice(CUdevice *device)
{
	return get_device(E_cuCtxGetDevice, device, NULL);
}

CUresult
cuCtxGetDevice_v2(CUdevice *device, CUcontext ctx)
{
	return get_device(E_cuCtxGetDevice_v2, device, ctx);
}

CUresult
cuCtxGetId(CUcontext ctx, unsigned long long *ret_id)
{
	CUresult r = sim_enter(E_cuCtxGetId, ctx ? NEED_INIT : NEED_CONTEXT);

	if (r != CUDA_SUCCESS)
		return r;
	if (!ret_id)
		return sim_leave(CUDA_ERROR_INVALID_VALUE);
	if (ctx && !ctx_is_known(ctx))
		return sim_leave(CUDA_ERROR_CONTEXT_IS_DESTROYED);
	*ret_id = (ctx ? ctx : ctx_current())->id;
	return sim_leave(CUDA_SUCCESS);
}

CUresult
cuCtxGetFlags(unsigned int *flags)
{
	CUresult r = sim_enter(E_cuCtxGetFlags, NEED_CONTEXT);

	if (r != CUDA_SUCCESS)
		return r;
	if (!flags)
		return sim_leave(CUDA_ERROR_INVALID_VALUE);
	*flags = ctx_current_root()->flags;
	return sim_leave(CUDA_SUCCESS);
}

CUresult
cuCtxGetApiVersion(CUcontext ctx, unsigned int *version)
{
	CUresult r = sim_enter(E_cuCtxGetApiVersion, ctx ? NEED_INIT : NEED_CONTEXT);

	if (r != CUDA_SUCCESS)
		return r;
	if (!version)
		return sim_leave(CUDA_ERROR_INVALID_VALUE);
	if (ctx && !ctx_is_known(ctx))
		return sim_leave(CUDA_ERROR_INVALID_CONTEXT);
	*version = (ctx ? ctx : ctx_current())->api_version;
	return sim_leave(CUDA_SUCCESS);
}

static CUresult
synchronize(enum entry_id e, CUcontext ctx)
{
	CUresult r = sim_enter(e, ctx ? NEED_INIT : NEED_CONTEXT);

	if (r != CUDA_SUCCESS)
		return r;
	if (!ctx)
		ctx = ctx_current();
	if (!ctx_is_known(ctx) || !ctx->is_alive)
		return sim_leave(CUDA_ERROR_INVALID_CONTEXT);
	if (capture_invalidate_context(ctx->root))
		return sim_leave(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	exec_wait_context(ctx->root, ctx == ctx->root ? NULL : ctx, sim.seq);
	report_mark(CUSIM_OP_SYNC_CTX, ctx, NULL, 0, 0, 0);
	return sim_leave(ctx->root->sticky);
}

CUresult
cuCtxSynchronize(void)
{
	return synchronize(E_cuCtxSynchronize, NULL);
}

CUresult
cuCtxSynchronize_v2(CUcontext ctx)
{
	return synchronize(E_cuCtxSynchronize_v2, ctx);
}
