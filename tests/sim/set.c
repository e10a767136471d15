/* SPDX-License-Identifier: MIT */
#include "tests/sim/sim_internal.h"

/*
 * Memsets. The synchronous forms too return before the memory is set, unless it is pinned host
 * memory; they go to stream 0.
 */

static CUresult
set(enum entry_id e, CUdeviceptr dst, uint64_t pitch, unsigned value, unsigned value_bytes,
    uint64_t n_values, uint64_t height, bool is_async, CUstream handle)
{
	CUresult r = sim_enter(e, NEED_CONTEXT);
	uint64_t width_bytes = n_values * value_bytes, span_bytes;
	struct CUstream_st *s;
	struct op *op;

	if (r != CUDA_SUCCESS)
		return r;
	r = stream_resolve(e, handle, &s);
	if (r != CUDA_SUCCESS)
		return sim_leave(r);
	if (width_bytes == 0 || height == 0)
		return sim_leave(CUDA_SUCCESS);
	span_bytes = (height - 1) * pitch + width_bytes;
	if (dst % value_bytes != 0 || !alloc_covers(dst, span_bytes, true))
		return sim_leave(CUDA_ERROR_INVALID_VALUE);
	op = op_new(CUSIM_OP_SET);
	if (!op)
		return sim_leave(CUDA_ERROR_OUT_OF_MEMORY);
	op->set = (struct op_set){
		.dst = {.addr = dst, .pitch = pitch},
		.width_bytes = width_bytes,
		.height = height,
		.value = value,
		.value_bytes = value_bytes,
	};
	op->device_only = true;
	op_range(op, dst, span_bytes, true);
	s->refs++;
	r = exec_submit(s, op);
	if (r == CUDA_SUCCESS && !is_async && !s->capture && host_is_pinned(dst))
		exec_wait_stream(s, sim.seq);
	stream_unref(s);
	return sim_leave(r);
}

SIM_PAIR(cuMemsetD8_v2, _ptds, (CUdeviceptr d, unsigned char v, size_t n), set, d, 0, v, 1, n, 1,
	 false, NULL)
SIM_PAIR(cuMemsetD16_v2, _ptds, (CUdeviceptr d, unsigned short v, size_t n), set, d, 0, v, 2, n, 1,
	 false, NULL)
SIM_PAIR(cuMemsetD32_v2, _ptds, (CUdeviceptr d, unsigned int v, size_t n), set, d, 0, v, 4, n, 1,
	 false, NULL)
SIM_PAIR(cuMemsetD2D8_v2, _ptds, (CUdeviceptr d, size_t pitch, unsigned char v, size_t w, size_t h),
	 set, d, pitch, v, 1, w, h, false, NULL)
SIM_PAIR(cuMemsetD2D16_v2, _ptds,
	 (CUdeviceptr d, size_t pitch, unsigned short v, size_t w, size_t h), set, d, pitch, v, 2,
	 w, h, false, NULL)
SIM_PAIR(cuMemsetD2D32_v2, _ptds, (CUdeviceptr d, size_t pitch, unsigned int v, size_t w, size_t h),
	 set, d, pitch, v, 4, w, h, false, NULL)
SIM_PAIR(cuMemsetD8Async, _ptsz, (CUdeviceptr d, unsigned char v, size_t n, CUstream s), set, d, 0,
	 v, 1, n, 1, true, s)
SIM_PAIR(cuMemsetD16Async, _ptsz, (CUdeviceptr d, unsigned short v, size_t n, CUstream s), set, d,
	 0, v, 2, n, 1, true, s)
SIM_PAIR(cuMemsetD32Async, _ptsz, (CUdeviceptr d, unsigned int v, size_t n, CUstream s), set, d, 0,
	 v, 4, n, 1, true, s)
SIM_PAIR(cuMemsetD2D8Async, _ptsz,
	 (CUdeviceptr d, size_t pitch, unsigned char v, size_t w, size_t h, CUstream s), set, d,
	 pitch, v, 1, w, h, true, s)
SIM_PAIR(cuMemsetD2D16Async, _ptsz,
	 (CUdeviceptr d, size_t pitch, unsigned short v, size_t w, size_t h, CUstream s), set, d,
	 pitch, v, 2, w, h, true, s)
SIM_PAIR(cuMemsetD2D32Async, _ptsz,
	 (CUdeviceptr d, size_t pitch, unsigned int v, size_t w, size_t h, CUstream s), set, d,
	 pitch, v, 4, w, h, true, s)
