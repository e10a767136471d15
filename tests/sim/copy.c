/* SPDX-License-Identifier: MIT */
#include "tests/sim/copy.h"

#include <stdlib.h>
#include <string.h>

/*
 * Linear copies, and the submission of all copies. When a call returns:
 *   - asynchronous: at once, except to pageable memory (then the copy is complete); a pageable
 *     source has been taken;
 *   - synchronous: when the copy is complete, except device to device, and small copies from
 *     pageable memory, which are taken and left to run.
 */

static uint64_t
area_span(const struct area *area, const struct op_copy *c)
{
	if (c->width == 0 || c->height == 0 || c->depth == 0)
		return 0;
	return (c->depth - 1) * area->slice + (c->height - 1) * area->pitch + c->width;
}

static bool
is_pageable(uint64_t addr)
{
	return !va_is_device(addr) && !host_is_pinned(addr);
}

static CUresult
check_side(const struct area *area, enum copy_side side, uint64_t span_bytes)
{
	if (area->addr == 0)
		return CUDA_ERROR_INVALID_VALUE;
	if (side == SIDE_DEVICE || va_is_device(area->addr))
		return alloc_covers(area->addr, span_bytes, true) ? CUDA_SUCCESS
								  : CUDA_ERROR_INVALID_VALUE;
	return CUDA_SUCCESS;
}

/* Without peer access the owner of the memory covers the copy too. */
static struct CUctx_st *
foreign_owner(const struct CUstream_st *s, uint64_t addr)
{
	const struct alloc *a = alloc_find(addr);

	if (!a || a->kind != ALLOC_DEVICE || a->dev == s->ctx->dev)
		return NULL;
	return s->ctx->peers >> a->dev->ordinal & 1 ? NULL : a->ctx;
}

static CUresult
stage(struct op *op, uint64_t src_span_bytes)
{
	op->staged = malloc(src_span_bytes);
	if (!op->staged)
		return CUDA_ERROR_OUT_OF_MEMORY;
	memcpy(op->staged, (const void *)op->copy.src.addr, src_span_bytes);
	op->copy.src.addr = (uint64_t)op->staged;
	op->tracked = 0;
	return CUDA_SUCCESS;
}

static CUresult
make_op(const struct copy_request *request, struct CUstream_st *s, struct op **ret_op)
{
	const struct op_copy *shape = &request->shape;
	uint64_t dst_span = area_span(&shape->dst, shape), src_span = area_span(&shape->src, shape);
	struct op *op;
	CUresult r;

	r = check_side(&shape->dst, request->dst, dst_span);
	if (r == CUDA_SUCCESS)
		r = check_side(&shape->src, request->src, src_span);
	if (r != CUDA_SUCCESS)
		return r;
	op = op_new(CUSIM_OP_COPY);
	if (!op)
		return CUDA_ERROR_OUT_OF_MEMORY;
	op->copy = *shape;
	op_range(op, shape->dst.addr, dst_span, true);
	op_range(op, shape->src.addr, src_span, false);
	op->foreign = foreign_owner(s, shape->dst.addr);
	if (!op->foreign)
		op->foreign = foreign_owner(s, shape->src.addr);
	if (is_pageable(shape->src.addr) && !s->capture &&
	    (request->is_async || src_span <= SIM_STAGED)) {
		r = stage(op, src_span);
		if (r != CUDA_SUCCESS) {
			op_free(op);
			return r;
		}
		op->n_ranges = 1; /* the source was read by this call */
	}
	*ret_op = op;
	return CUDA_SUCCESS;
}

static bool
must_wait(const struct copy_request *request)
{
	uint64_t dst = request->shape.dst.addr, src = request->shape.src.addr;

	if (is_pageable(dst))
		return true;
	if (request->is_async)
		return false;
	if (!is_pageable(src))
		return host_is_pinned(dst) || host_is_pinned(src);
	return area_span(&request->shape.src, &request->shape) > SIM_STAGED;
}

CUresult
copy_submit(enum entry_id e, const struct copy_request *request, CUstream handle)
{
	struct CUstream_st *s;
	struct op *op;
	CUresult r;

	r = stream_resolve(e, handle, &s);
	if (r == CUDA_SUCCESS && !request->is_async)
		r = capture_check_unsafe();
	if (r != CUDA_SUCCESS)
		return r;
	if (request->shape.width == 0 || request->shape.height == 0 || request->shape.depth == 0)
		return CUDA_SUCCESS;
	r = make_op(request, s, &op);
	if (r != CUDA_SUCCESS)
		return r;
	s->refs++;
	r = exec_submit(s, op);
	if (r == CUDA_SUCCESS && !s->capture && must_wait(request)) {
		exec_wait_stream(s, sim.seq);
		report_mark(CUSIM_OP_SYNC_STREAM, s->ctx, s, 0, 0, 0);
	}
	stream_unref(s);
	return r;
}

static CUresult
linear(enum entry_id e, uint64_t dst, enum copy_side dst_side, uint64_t src,
       enum copy_side src_side, size_t n_bytes, bool is_async, CUstream handle)
{
	CUresult r = sim_enter(e, NEED_CONTEXT);
	const struct copy_request request = {
		.shape = {.dst = {.addr = dst},
			  .src = {.addr = src},
			  .width = n_bytes,
			  .height = 1,
			  .depth = 1},
		.dst = dst_side,
		.src = src_side,
		.is_async = is_async,
	};

	return r != CUDA_SUCCESS ? r : sim_leave(copy_submit(e, &request, handle));
}

static CUresult
peer(enum entry_id e, CUdeviceptr dst, CUcontext dst_ctx, CUdeviceptr src, CUcontext src_ctx,
     size_t n_bytes, bool is_async, CUstream handle)
{
	CUresult r = sim_enter(e, NEED_CONTEXT);
	const struct copy_request request = {
		.shape = {.dst = {.addr = dst},
			  .src = {.addr = src},
			  .width = n_bytes,
			  .height = 1,
			  .depth = 1},
		.is_async = is_async,
	};

	if (r != CUDA_SUCCESS)
		return r;
	if (!ctx_is_known(dst_ctx) || !ctx_is_known(src_ctx))
		return sim_leave(CUDA_ERROR_INVALID_CONTEXT);
	return sim_leave(copy_submit(e, &request, handle));
}

#define D SIDE_DEVICE
#define H SIDE_HOST
#define A SIDE_ANY
SIM_PAIR(cuMemcpy, _ptds, (CUdeviceptr dst, CUdeviceptr src, size_t n), linear, dst, A, src, A, n,
	 false, NULL)
SIM_PAIR(cuMemcpyHtoD_v2, _ptds, (CUdeviceptr dst, const void *src, size_t n), linear, dst, D,
	 (uint64_t)src, H, n, false, NULL)
SIM_PAIR(cuMemcpyDtoH_v2, _ptds, (void *dst, CUdeviceptr src, size_t n), linear, (uint64_t)dst, H,
	 src, D, n, false, NULL)
SIM_PAIR(cuMemcpyDtoD_v2, _ptds, (CUdeviceptr dst, CUdeviceptr src, size_t n), linear, dst, D, src,
	 D, n, false, NULL)
SIM_PAIR(cuMemcpyAsync, _ptsz, (CUdeviceptr dst, CUdeviceptr src, size_t n, CUstream s), linear,
	 dst, A, src, A, n, true, s)
SIM_PAIR(cuMemcpyHtoDAsync_v2, _ptsz, (CUdeviceptr dst, const void *src, size_t n, CUstream s),
	 linear, dst, D, (uint64_t)src, H, n, true, s)
SIM_PAIR(cuMemcpyDtoHAsync_v2, _ptsz, (void *dst, CUdeviceptr src, size_t n, CUstream s), linear,
	 (uint64_t)dst, H, src, D, n, true, s)
SIM_PAIR(cuMemcpyDtoDAsync_v2, _ptsz, (CUdeviceptr dst, CUdeviceptr src, size_t n, CUstream s),
	 linear, dst, D, src, D, n, true, s)
SIM_PAIR(cuMemcpyPeer, _ptds,
	 (CUdeviceptr dst, CUcontext dst_ctx, CUdeviceptr src, CUcontext src_ctx, size_t n), peer,
	 dst, dst_ctx, src, src_ctx, n, false, NULL)
SIM_PAIR(cuMemcpyPeerAsync, _ptsz,
	 (CUdeviceptr dst, CUcontext dst_ctx, CUdeviceptr src, CUcontext src_ctx, size_t n,
	  CUstream s),
	 peer, dst, dst_ctx, src, src_ctx, n, true, s)
