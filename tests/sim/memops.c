/* SPDX-License-Identifier: MIT */
#include "tests/sim/sim_internal.h"

/* Stream memory operations (waits for and writes of values), and host functions. */

static CUresult
value(enum entry_id e, enum cusim_op_kind kind, CUstream handle, CUdeviceptr addr, uint64_t v,
      unsigned value_bytes, unsigned flags)
{
	CUresult r = sim_enter(e, NEED_CONTEXT);
	struct CUstream_st *s;
	struct op *op;

	if (r != CUDA_SUCCESS)
		return r;
	r = stream_resolve(e, handle, &s);
	if (r != CUDA_SUCCESS)
		return sim_leave(r);
	if (addr % value_bytes || !alloc_covers(addr, value_bytes, true))
		return sim_leave(CUDA_ERROR_INVALID_VALUE);
	op = op_new(kind);
	if (!op)
		return sim_leave(CUDA_ERROR_OUT_OF_MEMORY);
	op->device_only = true;
	op->value = (struct op_value){
		.addr = addr, .value = v, .value_bytes = value_bytes, .flags = flags};
	op_range(op, addr, value_bytes, kind == CUSIM_OP_WRITE_VALUE);
	return sim_leave(exec_submit(s, op));
}

static CUresult
write_value(enum entry_id e, CUstream s, CUdeviceptr addr, uint64_t v, unsigned value_bytes,
	    unsigned flags)
{
	return value(e, CUSIM_OP_WRITE_VALUE, s, addr, v, value_bytes, flags);
}

static CUresult
wait_value(enum entry_id e, CUstream s, CUdeviceptr addr, uint64_t v, unsigned value_bytes,
	   unsigned flags)
{
	return value(e, CUSIM_OP_WAIT_VALUE, s, addr, v, value_bytes, flags);
}

#define PARAMS_32 (CUstream s, CUdeviceptr addr, cuuint32_t v, unsigned int flags)
#define PARAMS_64 (CUstream s, CUdeviceptr addr, cuuint64_t v, unsigned int flags)
SIM_PAIR(cuStreamWriteValue32, _ptsz, PARAMS_32, write_value, s, addr, v, 4, flags)
SIM_PAIR(cuStreamWriteValue64, _ptsz, PARAMS_64, write_value, s, addr, v, 8, flags)
SIM_PAIR(cuStreamWaitValue32, _ptsz, PARAMS_32, wait_value, s, addr, v, 4, flags)
SIM_PAIR(cuStreamWaitValue64, _ptsz, PARAMS_64, wait_value, s, addr, v, 8, flags)
SIM_PAIR(cuStreamWriteValue32_v2, _ptsz, PARAMS_32, write_value, s, addr, v, 4, flags)
SIM_PAIR(cuStreamWriteValue64_v2, _ptsz, PARAMS_64, write_value, s, addr, v, 8, flags)
SIM_PAIR(cuStreamWaitValue32_v2, _ptsz, PARAMS_32, wait_value, s, addr, v, 4, flags)
SIM_PAIR(cuStreamWaitValue64_v2, _ptsz, PARAMS_64, wait_value, s, addr, v, 8, flags)

static struct op *
batch_op(const CUstreamBatchMemOpParams *p)
{
	bool is_write = p->operation == CU_STREAM_MEM_OP_WRITE_VALUE_32 ||
			p->operation == CU_STREAM_MEM_OP_WRITE_VALUE_64;
	bool is_wait = p->operation == CU_STREAM_MEM_OP_WAIT_VALUE_32 ||
		       p->operation == CU_STREAM_MEM_OP_WAIT_VALUE_64;
	bool is_wide = p->operation == CU_STREAM_MEM_OP_WRITE_VALUE_64 ||
		       p->operation == CU_STREAM_MEM_OP_WAIT_VALUE_64;
	struct op *op;

	op = op_new(is_write  ? CUSIM_OP_WRITE_VALUE
		    : is_wait ? CUSIM_OP_WAIT_VALUE
			      : CUSIM_OP_NOTHING);
	if (!op || (!is_write && !is_wait))
		return op;
	/* The write and wait parameters are laid out alike. */
	op->device_only = true;
	op->value = (struct op_value){
		.addr = p->waitValue.address,
		.value = is_wide ? p->waitValue.value64 : p->waitValue.value,
		.value_bytes = is_wide ? 8 : 4,
		.flags = p->waitValue.flags,
	};
	op_range(op, op->value.addr, op->value.value_bytes, is_write);
	return op;
}

static CUresult
batch(enum entry_id e, CUstream handle, unsigned n, const CUstreamBatchMemOpParams *params)
{
	CUresult r = sim_enter(e, NEED_CONTEXT);
	struct CUstream_st *s;
	struct op *op;

	if (r != CUDA_SUCCESS)
		return r;
	if (!params || n > 256)
		return sim_leave(CUDA_ERROR_INVALID_VALUE);
	r = stream_resolve(e, handle, &s);
	for (unsigned i = 0; r == CUDA_SUCCESS && i < n; i++) {
		op = batch_op(&params[i]);
		r = op ? exec_submit(s, op) : CUDA_ERROR_OUT_OF_MEMORY;
	}
	return sim_leave(r);
}

#define UNUSED __attribute__((unused))
#define PARAMS_BATCH \
	(CUstream s, unsigned int n, CUstreamBatchMemOpParams *params, unsigned int flags UNUSED)
SIM_PAIR(cuStreamBatchMemOp, _ptsz, PARAMS_BATCH, batch, s, n, params)
SIM_PAIR(cuStreamBatchMemOp_v2, _ptsz, PARAMS_BATCH, batch, s, n, params)

static CUresult
host(enum entry_id e, CUstream handle, struct op_host host_op)
{
	CUresult r = sim_enter(e, NEED_CONTEXT);
	struct CUstream_st *s;
	struct op *op;

	if (r != CUDA_SUCCESS)
		return r;
	if (!host_op.fn && !host_op.callback)
		return sim_leave(CUDA_ERROR_INVALID_VALUE);
	r = stream_resolve(e, handle, &s);
	if (r != CUDA_SUCCESS)
		return sim_leave(r);
	if (host_op.callback && s->capture) {
		/* Callbacks, unlike host functions, cannot be captured. */
		capture_invalidate(s->capture);
		return sim_leave(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	}
	op = op_new(CUSIM_OP_HOST_FUNC);
	if (!op)
		return sim_leave(CUDA_ERROR_OUT_OF_MEMORY);
	op->host = host_op;
	return sim_leave(exec_submit(s, op));
}

SIM_PAIR(cuLaunchHostFunc, _ptsz, (CUstream s, CUhostFn fn, void *arg), host, s,
	 ((struct op_host){.fn = fn, .arg = arg, .stream = s}))
SIM_PAIR(cuStreamAddCallback, _ptsz,
	 (CUstream s, CUstreamCallback callback, void *arg, unsigned int flags UNUSED), host, s,
	 ((struct op_host){.callback = callback, .arg = arg, .stream = s}))

static CUresult
attach(enum entry_id e, CUstream handle, CUdeviceptr ptr)
{
	CUresult r = sim_enter(e, NEED_CONTEXT);
	const struct alloc *a;
	struct CUstream_st *s;
	struct op *op;

	if (r != CUDA_SUCCESS)
		return r;
	r = stream_resolve(e, handle, &s);
	a = alloc_find(ptr);
	if (r == CUDA_SUCCESS && (!a || a->kind != ALLOC_MANAGED))
		r = CUDA_ERROR_INVALID_VALUE;
	op = r == CUDA_SUCCESS ? op_new(CUSIM_OP_NOTHING) : NULL;
	return sim_leave(op ? exec_submit(s, op) : r);
}

SIM_PAIR(cuStreamAttachMemAsync, _ptsz,
	 (CUstream s, CUdeviceptr ptr, size_t n UNUSED, unsigned int flags UNUSED), attach, s, ptr)
SIM_PAIR(cuMemPrefetchAsync, _ptsz,
	 (CUdeviceptr ptr, size_t n UNUSED, CUdevice dev UNUSED, CUstream s), attach, s, ptr)
SIM_PAIR(cuMemPrefetchAsync_v2, _ptsz,
	 (CUdeviceptr ptr, size_t n UNUSED, CUmemLocation where UNUSED, unsigned int flags UNUSED,
	  CUstream s),
	 attach, s, ptr)
