/* SPDX-License-Identifier: MIT */
#include "tests/sim/sim_internal.h"

#include <stdlib.h>

/*
 * Green contexts, thin: a context of its own over the device's primary context, whose memory and
 * stream list it shares. It retains the primary context.
 */

/* Any description will do: resources are not divided here. */
CUresult
cuDevResourceGenerateDesc(CUdevResourceDesc *ret_desc, CUdevResource *resources, unsigned int n)
{
	CUresult r = sim_enter(E_cuDevResourceGenerateDesc, NEED_INIT);
	static char desc;

	if (r != CUDA_SUCCESS)
		return r;
	if (!ret_desc || !resources || n == 0)
		return sim_leave(CUDA_ERROR_INVALID_VALUE);
	*ret_desc = (CUdevResourceDesc)(void *)&desc;
	return sim_leave(CUDA_SUCCESS);
}

CUresult
cuDeviceGetDevResource(CUdevice device, CUdevResource *resource, CUdevResourceType type)
{
	CUresult r = sim_enter(E_cuDeviceGetDevResource, NEED_INIT);
	struct device *dev;

	if (r != CUDA_SUCCESS)
		return r;
	if (!resource || type != CU_DEV_RESOURCE_TYPE_SM)
		return sim_leave(CUDA_ERROR_INVALID_VALUE);
	r = device_find(device, &dev);
	if (r == CUDA_SUCCESS) {
		*resource = (CUdevResource){.type = type};
		resource->sm.smCount = 8;
	}
	return sim_leave(r);
}

static CUresult
create(struct device *dev, struct CUgreenCtx_st *green)
{
	struct CUctx_st *root, *ctx;
	CUresult r;

	r = ctx_retain_primary(dev, &root);
	if (r != CUDA_SUCCESS)
		return r;
	ctx = calloc(1, sizeof(*ctx));
	if (!ctx) {
		dev->n_primary--;
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	ctx->root = root;
	ctx->dev = dev;
	ctx->id = ++sim.next_id;
	ctx->api_version = root->api_version;
	ctx->is_alive = true;
	ctx->green = green;
	ctx->next = sim.contexts;
	sim.contexts = ctx;
	green->ctx = ctx;
	return CUDA_SUCCESS;
}

CUresult
cuGreenCtxCreate(CUgreenCtx *ret_green, CUdevResourceDesc desc, CUdevice device, unsigned int flags)
{
	CUresult r = sim_enter(E_cuGreenCtxCreate, NEED_INIT);
	struct CUgreenCtx_st *green;
	struct device *dev;

	if (r != CUDA_SUCCESS)
		return r;
	if (!ret_green || !desc || flags != CU_GREEN_CTX_DEFAULT_STREAM)
		return sim_leave(CUDA_ERROR_INVALID_VALUE);
	r = device_find(device, &dev);
	if (r != CUDA_SUCCESS)
		return sim_leave(r);
	green = calloc(1, sizeof(*green));
	if (!green || handle_add(green, HANDLE_GREEN) != CUDA_SUCCESS) {
		free(green);
		return sim_leave(CUDA_ERROR_OUT_OF_MEMORY);
	}
	r = create(dev, green);
	if (r != CUDA_SUCCESS) {
		handle_remove(green);
		free(green);
		return sim_leave(r);
	}
	*ret_green = green;
	return sim_leave(CUDA_SUCCESS);
}

CUresult
cuGreenCtxDestroy(CUgreenCtx green)
{
	CUresult r = sim_enter(E_cuGreenCtxDestroy, NEED_INIT);
	struct device *dev;

	if (r != CUDA_SUCCESS)
		return r;
	if (!handle_is(green, HANDLE_GREEN))
		return sim_leave(CUDA_ERROR_INVALID_HANDLE);
	dev = green->ctx->dev;
	ctx_close(green->ctx);
	green->ctx->green = NULL;
	handle_remove(green);
	free(green);
	if (--dev->n_primary == 0 && dev->primary->is_alive)
		ctx_close(dev->primary);
	return sim_leave(CUDA_SUCCESS);
}

CUresult
cuCtxFromGreenCtx(CUcontext *ret_ctx, CUgreenCtx green)
{
	CUresult r = sim_enter(E_cuCtxFromGreenCtx, NEED_INIT);

	if (r != CUDA_SUCCESS)
		return r;
	if (!ret_ctx || !handle_is(green, HANDLE_GREEN))
		return sim_leave(CUDA_ERROR_INVALID_VALUE);
	*ret_ctx = green->ctx;
	return sim_leave(CUDA_SUCCESS);
}

static CUresult
stream_create(enum entry_id e, CUstream *ret_stream, CUgreenCtx green, unsigned flags, int priority)
{
	CUresult r = sim_enter(e, NEED_INIT);

	if (r != CUDA_SUCCESS)
		return r;
	if (!ret_stream || !handle_is(green, HANDLE_GREEN) || flags != CU_STREAM_NON_BLOCKING)
		return sim_leave(CUDA_ERROR_INVALID_VALUE);
	*ret_stream = stream_new(green->ctx, STREAM_NON_BLOCKING, priority);
	return sim_leave(*ret_stream ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY);
}

CUresult
cuGreenCtxStreamCreate(CUstream *ret_stream, CUgreenCtx green, unsigned int flags, int priority)
{
	return stream_create(E_cuGreenCtxStreamCreate, ret_stream, green, flags, priority);
}
