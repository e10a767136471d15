/* SPDX-License-Identifier: MIT */
/*
 * Calls whose end the CPU can see: forwarded, then noted (visible.h) if they may write host memory
 * or run host code.
 *
 * One row gives the legacy and the per-thread body of a function, which differ in nothing but what
 * stream 0 means.
 */
#include "shim/graphs.h"
#include "shim/hooks.h"
#include "shim/init.h"
#include "shim/outside.h"
#include "shim/sharing.h"
#include "shim/submit.h"
#include "shim/touch.h"
#include "shim/visible.h"

#define VISIBLE(name, suffix, stream0, parameters, arguments, stream, call, touch, is_visible) \
	CUresult name##suffix parameters \
	{ \
		const struct heap_touch *known = touch; \
		CUresult r; \
\
		hooks_ready(); \
		r = SHARING_CALL(stream, known, \
				 call(stream, stream0, known, real.name##suffix arguments)); \
		if (r == CUDA_SUCCESS && init_is_active() && (is_visible)) \
			visible_note(stream, stream0); \
		return r; \
	}
#define VISIBLE_BY(name, parameters, arguments, stream, call, touch, is_visible) \
	VISIBLE(name, , HOOK_STREAM0_LEGACY, parameters, arguments, stream, call, touch, \
		is_visible) \
	VISIBLE(name, _ptsz, HOOK_STREAM0_PER_THREAD, parameters, arguments, stream, call, touch, \
		is_visible)
#define VISIBLE_PAIR(name, parameters, arguments, stream, touch, is_visible) \
	VISIBLE_BY(name, parameters, arguments, stream, SUBMIT_TOUCHING_CALL, touch, is_visible)
/* The same for what can wait for others. */
#define VISIBLE_BLOCKER_PAIR(name, parameters, arguments, stream, touch, is_visible) \
	VISIBLE_BY(name, parameters, arguments, stream, SUBMIT_BLOCKER_CALL, touch, is_visible)

VISIBLE_PAIR(cuMemcpyAsync, (CUdeviceptr dst, CUdeviceptr src, size_t ByteCount, CUstream hStream),
	     (dst, src, ByteCount, hStream), hStream, TOUCHES(touch_two(dst, src, ByteCount)),
	     visible_is_host(dst))
VISIBLE_PAIR(cuMemcpyDtoHAsync_v2,
	     (void *dstHost, CUdeviceptr srcDevice, size_t ByteCount, CUstream hStream),
	     (dstHost, srcDevice, ByteCount, hStream), hStream,
	     TOUCHES(touch_two((CUdeviceptr)(uintptr_t)dstHost, srcDevice, ByteCount)), true)
VISIBLE_PAIR(cuMemcpyDtoDAsync_v2,
	     (CUdeviceptr dstDevice, CUdeviceptr srcDevice, size_t ByteCount, CUstream hStream),
	     (dstDevice, srcDevice, ByteCount, hStream), hStream,
	     TOUCHES(touch_two(dstDevice, srcDevice, ByteCount)), visible_is_host(dstDevice))
VISIBLE_PAIR(cuMemcpyPeerAsync,
	     (CUdeviceptr dstDevice, CUcontext dstContext, CUdeviceptr srcDevice,
	      CUcontext srcContext, size_t ByteCount, CUstream hStream),
	     (dstDevice, dstContext, srcDevice, srcContext, ByteCount, hStream), hStream,
	     TOUCHES(touch_two(dstDevice, srcDevice, ByteCount)), visible_is_host(dstDevice))
VISIBLE_PAIR(cuMemcpyAtoHAsync_v2,
	     (void *dstHost, CUarray srcArray, size_t srcOffset, size_t ByteCount,
	      CUstream hStream),
	     (dstHost, srcArray, srcOffset, ByteCount, hStream), hStream,
	     TOUCHES(touch_one((CUdeviceptr)(uintptr_t)dstHost, ByteCount, 1)), true)
VISIBLE_PAIR(cuMemcpy2DAsync_v2, (const CUDA_MEMCPY2D *pCopy, CUstream hStream), (pCopy, hStream),
	     hStream, TOUCHES(touch_2d(pCopy)),
	     visible_writes_host(pCopy->dstMemoryType, pCopy->dstDevice))
VISIBLE_PAIR(cuMemcpy3DAsync_v2, (const CUDA_MEMCPY3D *pCopy, CUstream hStream), (pCopy, hStream),
	     hStream, TOUCHES(touch_3d(pCopy)),
	     visible_writes_host(pCopy->dstMemoryType, pCopy->dstDevice))
VISIBLE_PAIR(cuMemcpy3DPeerAsync, (const CUDA_MEMCPY3D_PEER *pCopy, CUstream hStream),
	     (pCopy, hStream), hStream, TOUCHES(touch_3d_peer(pCopy)),
	     visible_writes_host(pCopy->dstMemoryType, pCopy->dstDevice))
/* Batches: where each of them writes is not looked at. */
VISIBLE_PAIR(cuMemcpyBatchAsync,
	     (CUdeviceptr * dsts, CUdeviceptr *srcs, size_t *sizes, size_t count,
	      CUmemcpyAttributes *attrs, size_t *attrsIdxs, size_t numAttrs, size_t *failIdx,
	      CUstream hStream),
	     (dsts, srcs, sizes, count, attrs, attrsIdxs, numAttrs, failIdx, hStream), hStream,
	     NULL, true)
VISIBLE_PAIR(cuMemcpyBatchAsync_v2,
	     (CUdeviceptr * dsts, CUdeviceptr *srcs, size_t *sizes, size_t count,
	      CUmemcpyAttributes *attrs, size_t *attrsIdxs, size_t numAttrs, CUstream hStream),
	     (dsts, srcs, sizes, count, attrs, attrsIdxs, numAttrs, hStream), hStream, NULL, true)
VISIBLE_PAIR(cuMemcpy3DBatchAsync,
	     (size_t numOps, CUDA_MEMCPY3D_BATCH_OP *opList, size_t *failIdx,
	      unsigned long long flags, CUstream hStream),
	     (numOps, opList, failIdx, flags, hStream), hStream, NULL, true)
VISIBLE_PAIR(cuMemcpy3DBatchAsync_v2,
	     (size_t numOps, CUDA_MEMCPY3D_BATCH_OP *opList, unsigned long long flags,
	      CUstream hStream),
	     (numOps, opList, flags, hStream), hStream, NULL, true)

VISIBLE_PAIR(cuMemsetD8Async, (CUdeviceptr dstDevice, unsigned char uc, size_t N, CUstream hStream),
	     (dstDevice, uc, N, hStream), hStream, TOUCHES(touch_one(dstDevice, N, 1)),
	     visible_is_host(dstDevice))
VISIBLE_PAIR(cuMemsetD16Async,
	     (CUdeviceptr dstDevice, unsigned short us, size_t N, CUstream hStream),
	     (dstDevice, us, N, hStream), hStream, TOUCHES(touch_one(dstDevice, N, 2)),
	     visible_is_host(dstDevice))
VISIBLE_PAIR(cuMemsetD32Async, (CUdeviceptr dstDevice, unsigned int ui, size_t N, CUstream hStream),
	     (dstDevice, ui, N, hStream), hStream, TOUCHES(touch_one(dstDevice, N, 4)),
	     visible_is_host(dstDevice))
VISIBLE_PAIR(cuMemsetD2D8Async,
	     (CUdeviceptr dstDevice, size_t dstPitch, unsigned char uc, size_t Width, size_t Height,
	      CUstream hStream),
	     (dstDevice, dstPitch, uc, Width, Height, hStream), hStream,
	     TOUCHES(touch_rows(dstDevice, dstPitch, Width, 1, Height)), visible_is_host(dstDevice))
VISIBLE_PAIR(cuMemsetD2D16Async,
	     (CUdeviceptr dstDevice, size_t dstPitch, unsigned short us, size_t Width,
	      size_t Height, CUstream hStream),
	     (dstDevice, dstPitch, us, Width, Height, hStream), hStream,
	     TOUCHES(touch_rows(dstDevice, dstPitch, Width, 2, Height)), visible_is_host(dstDevice))
VISIBLE_PAIR(cuMemsetD2D32Async,
	     (CUdeviceptr dstDevice, size_t dstPitch, unsigned int ui, size_t Width, size_t Height,
	      CUstream hStream),
	     (dstDevice, dstPitch, ui, Width, Height, hStream), hStream,
	     TOUCHES(touch_rows(dstDevice, dstPitch, Width, 4, Height)), visible_is_host(dstDevice))

VISIBLE_BLOCKER_PAIR(cuLaunchHostFunc, (CUstream hStream, CUhostFn fn, void *userData),
		     (hStream, fn, userData), hStream, TOUCHES(touch_nothing()), true)
VISIBLE_BLOCKER_PAIR(cuStreamAddCallback,
		     (CUstream hStream, CUstreamCallback callback, void *userData,
		      unsigned int flags),
		     (hStream, callback, userData, flags), hStream, TOUCHES(touch_nothing()), true)

VISIBLE_PAIR(cuStreamWriteValue32,
	     (CUstream stream, CUdeviceptr addr, cuuint32_t value, unsigned int flags),
	     (stream, addr, value, flags), stream, TOUCHES(touch_one(addr, 1, 4)),
	     visible_is_host(addr))
VISIBLE_PAIR(cuStreamWriteValue32_v2,
	     (CUstream stream, CUdeviceptr addr, cuuint32_t value, unsigned int flags),
	     (stream, addr, value, flags), stream, TOUCHES(touch_one(addr, 1, 4)),
	     visible_is_host(addr))
VISIBLE_PAIR(cuStreamWriteValue64,
	     (CUstream stream, CUdeviceptr addr, cuuint64_t value, unsigned int flags),
	     (stream, addr, value, flags), stream, TOUCHES(touch_one(addr, 1, 8)),
	     visible_is_host(addr))
VISIBLE_PAIR(cuStreamWriteValue64_v2,
	     (CUstream stream, CUdeviceptr addr, cuuint64_t value, unsigned int flags),
	     (stream, addr, value, flags), stream, TOUCHES(touch_one(addr, 1, 8)),
	     visible_is_host(addr))
VISIBLE_BLOCKER_PAIR(cuStreamBatchMemOp,
		     (CUstream stream, unsigned int count, CUstreamBatchMemOpParams *paramArray,
		      unsigned int flags),
		     (stream, count, paramArray, flags), stream, NULL, true)
VISIBLE_BLOCKER_PAIR(cuStreamBatchMemOp_v2,
		     (CUstream stream, unsigned int count, CUstreamBatchMemOpParams *paramArray,
		      unsigned int flags),
		     (stream, count, paramArray, flags), stream, NULL, true)

/* A graph may hold any of the above, and memory nodes. */
static CUresult
launch_graph(CUgraphExec exec, CUstream stream, enum hook_stream0 stream0,
	     CUresult (*real_launch)(CUgraphExec, CUstream))
{
	const unsigned facts = graphs_facts(exec);
	CUresult r;

	r = SHARING_CALL(
		stream, NULL,
		facts & GRAPH_CAN_WAIT
			? SUBMIT_BLOCKER_CALL(stream, stream0, NULL, real_launch(exec, stream))
			: SUBMIT_CALL(stream, stream0, real_launch(exec, stream)));
	if (r != CUDA_SUCCESS || !init_is_active())
		return r;
	outside_read_graphs();
	if (facts & GRAPH_IS_VISIBLE)
		visible_note(stream, stream0);
	return r;
}

CUresult
cuGraphLaunch(CUgraphExec hGraphExec, CUstream hStream)
{
	hooks_ready();
	return launch_graph(hGraphExec, hStream, HOOK_STREAM0_LEGACY, real.cuGraphLaunch);
}

CUresult
cuGraphLaunch_ptsz(CUgraphExec hGraphExec, CUstream hStream)
{
	hooks_ready();
	return launch_graph(hGraphExec, hStream, HOOK_STREAM0_PER_THREAD, real.cuGraphLaunch_ptsz);
}
