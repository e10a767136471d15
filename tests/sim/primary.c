/* SPDX-License-Identifier: MIT */
#include "tests/sim/sim_internal.h"

/* The primary context of a device: retained, released, reset. */

CUresult
cuDevicePrimaryCtxRetain(CUcontext *ret_ctx, CUdevice device)
{
	CUresult r = sim_enter(E_cuDevicePrimaryCtxRetain, NEED_INIT);
	struct device *dev;

	if (r != CUDA_SUCCESS)
		return r;
	if (!ret_ctx)
		return sim_leave(CUDA_ERROR_INVALID_VALUE);
	r = device_find(device, &dev);
	return sim_leave(r == CUDA_SUCCESS ? ctx_retain_primary(dev, ret_ctx) : r);
}

static CUresult
release(enum entry_id e, CUdevice device)
{
	CUresult r = sim_enter(e, NEED_INIT);
	struct device *dev;

	if (r != CUDA_SUCCESS)
		return r;
	r = device_find(device, &dev);
	if (r == CUDA_SUCCESS && dev->n_primary == 0)
		r = CUDA_ERROR_INVALID_CONTEXT;
	if (r == CUDA_SUCCESS && --dev->n_primary == 0 && dev->primary->is_alive)
		ctx_close(dev->primary);
	return sim_leave(r);
}

CUresult
cuDevicePrimaryCtxRelease(CUdevice dev)
{
	return release(E_cuDevicePrimaryCtxRelease, dev);
}

CUresult
cuDevicePrimaryCtxRelease_v2(CUdevice dev)
{
	return release(E_cuDevicePrimaryCtxRelease_v2, dev);
}

/* Drops everything in it, but releases nothing: who retained it still has to release it. */
static CUresult
reset(enum entry_id e, CUdevice device)
{
	CUresult r = sim_enter(e, NEED_INIT);
	struct device *dev;

	if (r != CUDA_SUCCESS)
		return r;
	r = device_find(device, &dev);
	if (r == CUDA_SUCCESS && dev->primary && dev->primary->is_alive)
		ctx_close(dev->primary);
	return sim_leave(r);
}

CUresult
cuDevicePrimaryCtxReset(CUdevice dev)
{
	return reset(E_cuDevicePrimaryCtxReset, dev);
}

CUresult
cuDevicePrimaryCtxReset_v2(CUdevice dev)
{
	return reset(E_cuDevicePrimaryCtxReset_v2, dev);
}

CUresult
cuDevicePrimaryCtxGetState(CUdevice device, unsigned int *flags, int *is_active)
{
	CUresult r = sim_enter(E_cuDevicePrimaryCtxGetState, NEED_INIT);
	struct device *dev;

	if (r != CUDA_SUCCESS)
		return r;
	if (!flags || !is_active)
		return sim_leave(CUDA_ERROR_INVALID_VALUE);
	r = device_find(device, &dev);
	if (r == CUDA_SUCCESS) {
		*flags = dev->primary_flags;
		*is_active = dev->primary && dev->primary->is_alive;
	}
	return sim_leave(r);
}

static CUresult
set_flags(enum entry_id e, CUdevice device, unsigned flags)
{
	CUresult r = sim_enter(e, NEED_INIT);
	struct device *dev;

	if (r != CUDA_SUCCESS)
		return r;
	r = device_find(device, &dev);
	if (r == CUDA_SUCCESS) {
		dev->primary_flags = flags;
		if (dev->primary)
			dev->primary->flags = flags;
	}
	return sim_leave(r);
}

CUresult
cuDevicePrimaryCtxSetFlags(CUdevice dev, unsigned int flags)
{
	return set_flags(E_cuDevicePrimaryCtxSetFlags, dev, flags);
}

CUresult
cuDevicePrimaryCtxSetFlags_v2(CUdevice dev, unsigned int flags)
{
	return set_flags(E_cuDevicePrimaryCtxSetFlags_v2, dev, flags);
}
