/* SPDX-License-Identifier: MIT */
#include "tests/sim/copy.h"

/* Copies of rows and slices, and batches of linear ones. CUDA arrays are not there. */

static CUresult
side_of(CUmemorytype type, const void *host, CUdeviceptr device, uint64_t *ret_addr,
	enum copy_side *ret_side)
{
	switch (type) {
	case CU_MEMORYTYPE_HOST:
		*ret_addr = (uint64_t)host;
		*ret_side = SIDE_HOST;
		return CUDA_SUCCESS;
	case CU_MEMORYTYPE_DEVICE:
	case CU_MEMORYTYPE_UNIFIED:
		*ret_addr = device;
		*ret_side = type == CU_MEMORYTYPE_DEVICE ? SIDE_DEVICE : SIDE_ANY;
		return CUDA_SUCCESS;
	case CU_MEMORYTYPE_ARRAY:
		return CUDA_ERROR_NOT_SUPPORTED;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}

static CUresult
check_shape(const struct op_copy *c)
{
	bool is_flat = c->height <= 1 && c->depth <= 1;

	if (!is_flat && (c->dst.pitch < c->width || c->src.pitch < c->width))
		return CUDA_ERROR_INVALID_VALUE;
	return CUDA_SUCCESS;
}

static CUresult
copy_2d(enum entry_id e, const CUDA_MEMCPY2D *p, bool is_async, CUstream handle)
{
	CUresult r = sim_enter(e, NEED_CONTEXT);
	struct copy_request request = {.is_async = is_async};
	struct op_copy *c = &request.shape;

	if (r != CUDA_SUCCESS)
		return r;
	if (!p)
		return sim_leave(CUDA_ERROR_INVALID_VALUE);
	r = side_of(p->dstMemoryType, p->dstHost, p->dstDevice, &c->dst.addr, &request.dst);
	if (r == CUDA_SUCCESS)
		r = side_of(p->srcMemoryType, p->srcHost, p->srcDevice, &c->src.addr, &request.src);
	if (r != CUDA_SUCCESS)
		return sim_leave(r);
	c->width = p->WidthInBytes;
	c->height = p->Height;
	c->depth = 1;
	c->dst.pitch = p->dstPitch ? p->dstPitch : p->WidthInBytes;
	c->src.pitch = p->srcPitch ? p->srcPitch : p->WidthInBytes;
	c->dst.addr += p->dstY * c->dst.pitch + p->dstXInBytes;
	c->src.addr += p->srcY * c->src.pitch + p->srcXInBytes;
	r = check_shape(c);
	return sim_leave(r == CUDA_SUCCESS ? copy_submit(e, &request, handle) : r);
}

/* The fields that the plain and the peer form of the 3D parameters have in common. */
#define SHAPE_3D(request, p) \
	do { \
		struct op_copy *c_ = &(request)->shape; \
		c_->width = (p)->WidthInBytes; \
		c_->height = (p)->Height; \
		c_->depth = (p)->Depth; \
		c_->dst.pitch = (p)->dstPitch ? (p)->dstPitch : (p)->WidthInBytes; \
		c_->src.pitch = (p)->srcPitch ? (p)->srcPitch : (p)->WidthInBytes; \
		c_->dst.slice = c_->dst.pitch * ((p)->dstHeight ? (p)->dstHeight : (p)->Height); \
		c_->src.slice = c_->src.pitch * ((p)->srcHeight ? (p)->srcHeight : (p)->Height); \
		c_->dst.addr += \
			(p)->dstZ * c_->dst.slice + (p)->dstY * c_->dst.pitch + (p)->dstXInBytes; \
		c_->src.addr += \
			(p)->srcZ * c_->src.slice + (p)->srcY * c_->src.pitch + (p)->srcXInBytes; \
	} while (0)

static CUresult
copy_3d(enum entry_id e, const CUDA_MEMCPY3D *p, bool is_async, CUstream handle)
{
	CUresult r = sim_enter(e, NEED_CONTEXT);
	struct copy_request request = {.is_async = is_async};

	if (r != CUDA_SUCCESS)
		return r;
	if (!p)
		return sim_leave(CUDA_ERROR_INVALID_VALUE);
	r = side_of(p->dstMemoryType, p->dstHost, p->dstDevice, &request.shape.dst.addr,
		    &request.dst);
	if (r == CUDA_SUCCESS)
		r = side_of(p->srcMemoryType, p->srcHost, p->srcDevice, &request.shape.src.addr,
			    &request.src);
	if (r != CUDA_SUCCESS)
		return sim_leave(r);
	SHAPE_3D(&request, p);
	r = check_shape(&request.shape);
	return sim_leave(r == CUDA_SUCCESS ? copy_submit(e, &request, handle) : r);
}

static CUresult
copy_3d_peer(enum entry_id e, const CUDA_MEMCPY3D_PEER *p, bool is_async, CUstream handle)
{
	CUresult r = sim_enter(e, NEED_CONTEXT);
	struct copy_request request = {.is_async = is_async};

	if (r != CUDA_SUCCESS)
		return r;
	if (!p)
		return sim_leave(CUDA_ERROR_INVALID_VALUE);
	r = side_of(p->dstMemoryType, p->dstHost, p->dstDevice, &request.shape.dst.addr,
		    &request.dst);
	if (r == CUDA_SUCCESS)
		r = side_of(p->srcMemoryType, p->srcHost, p->srcDevice, &request.shape.src.addr,
			    &request.src);
	if (r != CUDA_SUCCESS)
		return sim_leave(r);
	SHAPE_3D(&request, p);
	r = check_shape(&request.shape);
	return sim_leave(r == CUDA_SUCCESS ? copy_submit(e, &request, handle) : r);
}

SIM_PAIR(cuMemcpy2D_v2, _ptds, (const CUDA_MEMCPY2D *p), copy_2d, p, false, NULL)
SIM_PAIR(cuMemcpy2DUnaligned_v2, _ptds, (const CUDA_MEMCPY2D *p), copy_2d, p, false, NULL)
SIM_PAIR(cuMemcpy2DAsync_v2, _ptsz, (const CUDA_MEMCPY2D *p, CUstream s), copy_2d, p, true, s)
SIM_PAIR(cuMemcpy3D_v2, _ptds, (const CUDA_MEMCPY3D *p), copy_3d, p, false, NULL)
SIM_PAIR(cuMemcpy3DAsync_v2, _ptsz, (const CUDA_MEMCPY3D *p, CUstream s), copy_3d, p, true, s)
SIM_PAIR(cuMemcpy3DPeer, _ptds, (const CUDA_MEMCPY3D_PEER *p), copy_3d_peer, p, false, NULL)
SIM_PAIR(cuMemcpy3DPeerAsync, _ptsz, (const CUDA_MEMCPY3D_PEER *p, CUstream s), copy_3d_peer, p,
	 true, s)

struct batch {
	const CUdeviceptr *dsts, *srcs;
	const size_t *sizes;
	size_t n;
};

/* A batch goes to no default stream; its copies run in the order given. */
static CUresult
copy_batch(enum entry_id e, struct batch batch, size_t *ret_fail_idx, CUstream handle)
{
	CUresult r = sim_enter(e, NEED_CONTEXT);

	if (r != CUDA_SUCCESS)
		return r;
	if (!batch.dsts || !batch.srcs || !batch.sizes || batch.n == 0 || !handle)
		return sim_leave(CUDA_ERROR_INVALID_VALUE);
	for (size_t i = 0; r == CUDA_SUCCESS && i < batch.n; i++) {
		const struct copy_request request = {
			.shape = {.dst = {.addr = batch.dsts[i]},
				  .src = {.addr = batch.srcs[i]},
				  .width = batch.sizes[i],
				  .height = 1,
				  .depth = 1},
			.dst = SIDE_ANY,
			.src = SIDE_ANY,
			.is_async = true,
		};

		r = copy_submit(e, &request, handle);
		if (r != CUDA_SUCCESS && ret_fail_idx)
			*ret_fail_idx = i;
	}
	return sim_leave(r);
}

#define UNUSED __attribute__((unused))
SIM_PAIR(cuMemcpyBatchAsync, _ptsz,
	 (CUdeviceptr * dsts, CUdeviceptr *srcs, size_t *sizes, size_t n,
	  CUmemcpyAttributes *attrs UNUSED, size_t *attr_idxs UNUSED, size_t n_attrs UNUSED,
	  size_t *ret_fail_idx, CUstream s),
	 copy_batch, ((struct batch){dsts, srcs, sizes, n}), ret_fail_idx, s)
SIM_PAIR(cuMemcpyBatchAsync_v2, _ptsz,
	 (CUdeviceptr * dsts, CUdeviceptr *srcs, size_t *sizes, size_t n,
	  CUmemcpyAttributes *attrs UNUSED, size_t *attr_idxs UNUSED, size_t n_attrs UNUSED,
	  CUstream s),
	 copy_batch, ((struct batch){dsts, srcs, sizes, n}), NULL, s)
