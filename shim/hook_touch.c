/* SPDX-License-Identifier: MIT */
/*
 * Submissions of which the parameters say all the memory that they touch, beside those whose end
 * the CPU can see (hook_visible.c): announced with it, and forwarded. They do not wait for the edge
 * of an early hand-out that they have nothing to do with.
 *
 * One row gives the legacy and the per-thread body of a function.
 */
#include "shim/hooks.h"
#include "shim/sharing.h"
#include "shim/submit.h"
#include "shim/touch.h"

#define TOUCHING(name, suffix, stream0, parameters, arguments, stream, call, touch) \
	CUresult name##suffix parameters \
	{ \
		const struct heap_touch *known = TOUCHES(touch); \
\
		hooks_ready(); \
		return SHARING_CALL(stream, known, \
				    call(stream, stream0, known, real.name##suffix arguments)); \
	}
#define PAIR_BY(name, suffix, parameters, arguments, stream, call, touch) \
	TOUCHING(name, , HOOK_STREAM0_LEGACY, parameters, arguments, stream, call, touch) \
	TOUCHING(name, suffix, HOOK_STREAM0_PER_THREAD, parameters, arguments, stream, call, touch)
#define ASYNC_PAIR(name, parameters, arguments, stream, touch) \
	PAIR_BY(name, _ptsz, parameters, arguments, stream, SUBMIT_TOUCHING_CALL, touch)
#define BLOCKER_PAIR(name, parameters, arguments, stream, touch) \
	PAIR_BY(name, _ptsz, parameters, arguments, stream, SUBMIT_BLOCKER_CALL, touch)
#define SYNC_PAIR(name, parameters, arguments, touch) \
	PAIR_BY(name, _ptds, parameters, arguments, NULL, SUBMIT_TOUCHING_CALL, touch)

static inline CUdeviceptr
address(const void *host)
{
	return (CUdeviceptr)(uintptr_t)host;
}

/* Events touch no memory, and are cheap: nothing but what every submission does. */
static const struct heap_touch nothing;

#define MARK(name, stream0, parameters, arguments) \
	CUresult name parameters \
	{ \
		hooks_ready(); \
		return SUBMIT_TOUCHING_CALL(hStream, stream0, &nothing, real.name arguments); \
	}
#define MARK_PAIR(name, parameters, arguments) \
	MARK(name, HOOK_STREAM0_LEGACY, parameters, arguments) \
	MARK(name##_ptsz, HOOK_STREAM0_PER_THREAD, parameters, arguments)

MARK_PAIR(cuEventRecord, (CUevent hEvent, CUstream hStream), (hEvent, hStream))
MARK_PAIR(cuEventRecordWithFlags, (CUevent hEvent, CUstream hStream, unsigned int flags),
	  (hEvent, hStream, flags))

ASYNC_PAIR(cuMemcpyHtoDAsync_v2,
	   (CUdeviceptr dstDevice, const void *srcHost, size_t ByteCount, CUstream hStream),
	   (dstDevice, srcHost, ByteCount, hStream), hStream,
	   touch_two(dstDevice, address(srcHost), ByteCount))
ASYNC_PAIR(cuMemcpyHtoAAsync_v2,
	   (CUarray dstArray, size_t dstOffset, const void *srcHost, size_t ByteCount,
	    CUstream hStream),
	   (dstArray, dstOffset, srcHost, ByteCount, hStream), hStream,
	   touch_one(address(srcHost), ByteCount, 1))

#define WAIT_VALUE_PAIR(name, type, unit_bytes) \
	BLOCKER_PAIR(name, (CUstream stream, CUdeviceptr addr, type value, unsigned int flags), \
		     (stream, addr, value, flags), stream, touch_one(addr, 1, unit_bytes))

WAIT_VALUE_PAIR(cuStreamWaitValue32, cuuint32_t, 4)
WAIT_VALUE_PAIR(cuStreamWaitValue32_v2, cuuint32_t, 4)
WAIT_VALUE_PAIR(cuStreamWaitValue64, cuuint64_t, 8)
WAIT_VALUE_PAIR(cuStreamWaitValue64_v2, cuuint64_t, 8)

SYNC_PAIR(cuMemcpy, (CUdeviceptr dst, CUdeviceptr src, size_t ByteCount), (dst, src, ByteCount),
	  touch_two(dst, src, ByteCount))
SYNC_PAIR(cuMemcpyHtoD_v2, (CUdeviceptr dstDevice, const void *srcHost, size_t ByteCount),
	  (dstDevice, srcHost, ByteCount), touch_two(dstDevice, address(srcHost), ByteCount))
SYNC_PAIR(cuMemcpyDtoH_v2, (void *dstHost, CUdeviceptr srcDevice, size_t ByteCount),
	  (dstHost, srcDevice, ByteCount), touch_two(address(dstHost), srcDevice, ByteCount))
SYNC_PAIR(cuMemcpyDtoD_v2, (CUdeviceptr dstDevice, CUdeviceptr srcDevice, size_t ByteCount),
	  (dstDevice, srcDevice, ByteCount), touch_two(dstDevice, srcDevice, ByteCount))
SYNC_PAIR(cuMemcpyPeer,
	  (CUdeviceptr dstDevice, CUcontext dstContext, CUdeviceptr srcDevice, CUcontext srcContext,
	   size_t ByteCount),
	  (dstDevice, dstContext, srcDevice, srcContext, ByteCount),
	  touch_two(dstDevice, srcDevice, ByteCount))
SYNC_PAIR(cuMemcpy2D_v2, (const CUDA_MEMCPY2D *pCopy), (pCopy), touch_2d(pCopy))
SYNC_PAIR(cuMemcpy2DUnaligned_v2, (const CUDA_MEMCPY2D *pCopy), (pCopy), touch_2d(pCopy))
SYNC_PAIR(cuMemcpy3D_v2, (const CUDA_MEMCPY3D *pCopy), (pCopy), touch_3d(pCopy))
SYNC_PAIR(cuMemcpy3DPeer, (const CUDA_MEMCPY3D_PEER *pCopy), (pCopy), touch_3d_peer(pCopy))

#define MEMSET_PAIRS(bits, type) \
	SYNC_PAIR(cuMemsetD##bits##_v2, (CUdeviceptr dstDevice, type value, size_t N), \
		  (dstDevice, value, N), touch_one(dstDevice, N, (bits) / 8)) \
	SYNC_PAIR( \
		cuMemsetD2D##bits##_v2, \
		(CUdeviceptr dstDevice, size_t dstPitch, type value, size_t Width, size_t Height), \
		(dstDevice, dstPitch, value, Width, Height), \
		touch_rows(dstDevice, dstPitch, Width, (bits) / 8, Height))

MEMSET_PAIRS(8, unsigned char)
MEMSET_PAIRS(16, unsigned short)
MEMSET_PAIRS(32, unsigned int)
