/* SPDX-License-Identifier: MIT */
#include "tests/sim/sim_internal.h"

/* What a stream says about itself. */

static CUresult
begin(enum entry_id e, CUstream handle, const void *out, struct CUstream_st **ret_stream)
{
	CUresult r = sim_enter(e, NEED_CONTEXT);

	if (r != CUDA_SUCCESS)
		return r;
	r = out ? stream_resolve(e, handle, ret_stream) : CUDA_ERROR_INVALID_VALUE;
	return r == CUDA_SUCCESS ? r : sim_leave(r);
}

/* For the streams that have no handle of their own it is the current context. */
static CUresult
get_ctx(enum entry_id e, CUstream handle, CUcontext *ret_ctx, CUgreenCtx *ret_green)
{
	struct CUstream_st *s;
	CUresult r = begin(e, handle, ret_ctx, &s);

	if (r != CUDA_SUCCESS)
		return r;
	*ret_ctx = s->kind == STREAM_LEGACY || s->kind == STREAM_THREAD ? ctx_current() : s->owner;
	if (ret_green)
		*ret_green = (*ret_ctx)->green;
	return sim_leave(CUDA_SUCCESS);
}

SIM_PAIR(cuStreamGetCtx, _ptsz, (CUstream s, CUcontext *ctx), get_ctx, s, ctx, NULL)
SIM_PAIR(cuStreamGetCtx_v2, _ptsz, (CUstream s, CUcontext *ctx, CUgreenCtx *green), get_ctx, s, ctx,
	 green)

static CUresult
get_id(enum entry_id e, CUstream handle, unsigned long long *ret_id)
{
	struct CUstream_st *s;
	CUresult r = begin(e, handle, ret_id, &s);

	if (r != CUDA_SUCCESS)
		return r;
	*ret_id = s->id;
	return sim_leave(CUDA_SUCCESS);
}

SIM_PAIR(cuStreamGetId, _ptsz, (CUstream s, unsigned long long *id), get_id, s, id)

static CUresult
get_flags(enum entry_id e, CUstream handle, unsigned *ret_flags)
{
	struct CUstream_st *s;
	CUresult r = begin(e, handle, ret_flags, &s);

	if (r != CUDA_SUCCESS)
		return r;
	*ret_flags = s->kind == STREAM_NON_BLOCKING ? CU_STREAM_NON_BLOCKING : CU_STREAM_DEFAULT;
	return sim_leave(CUDA_SUCCESS);
}

SIM_PAIR(cuStreamGetFlags, _ptsz, (CUstream s, unsigned int *flags), get_flags, s, flags)

static CUresult
get_priority(enum entry_id e, CUstream handle, int *ret_priority)
{
	struct CUstream_st *s;
	CUresult r = begin(e, handle, ret_priority, &s);

	if (r != CUDA_SUCCESS)
		return r;
	*ret_priority = s->priority;
	return sim_leave(CUDA_SUCCESS);
}

SIM_PAIR(cuStreamGetPriority, _ptsz, (CUstream s, int *priority), get_priority, s, priority)

static CUresult
get_device(enum entry_id e, CUstream handle, CUdevice *ret_device)
{
	struct CUstream_st *s;
	CUresult r = begin(e, handle, ret_device, &s);

	if (r != CUDA_SUCCESS)
		return r;
	*ret_device = s->ctx->dev->ordinal;
	return sim_leave(CUDA_SUCCESS);
}

SIM_PAIR(cuStreamGetDevice, _ptsz, (CUstream s, CUdevice *dev), get_device, s, dev)

CUresult
cuCtxGetStreamPriorityRange(int *least, int *greatest)
{
	CUresult r = sim_enter(E_cuCtxGetStreamPriorityRange, NEED_CONTEXT);

	if (r != CUDA_SUCCESS)
		return r;
	if (least)
		*least = 0;
	if (greatest)
		*greatest = -5;
	return sim_leave(CUDA_SUCCESS);
}
