/* SPDX-License-Identifier: MIT */
#include "tests/sim/sim_internal.h"

/* Peer access: any device may reach any other. What it changes is who covers a copy (copy.c). */

CUresult
cuDeviceCanAccessPeer(int *can, CUdevice device, CUdevice peer)
{
	CUresult r = sim_enter(E_cuDeviceCanAccessPeer, NEED_INIT);
	struct device *dev;

	if (r != CUDA_SUCCESS)
		return r;
	if (!can)
		return sim_leave(CUDA_ERROR_INVALID_VALUE);
	r = device_find(device, &dev);
	if (r == CUDA_SUCCESS)
		r = device_find(peer, &dev);
	if (r == CUDA_SUCCESS)
		*can = device != peer;
	return sim_leave(r);
}

CUresult
cuDeviceGetP2PAttribute(int *value, CUdevice_P2PAttribute attr, CUdevice device, CUdevice peer)
{
	CUresult r = sim_enter(E_cuDeviceGetP2PAttribute, NEED_INIT);
	struct device *dev;

	if (r != CUDA_SUCCESS)
		return r;
	if (!value || device == peer)
		return sim_leave(CUDA_ERROR_INVALID_VALUE);
	r = device_find(device, &dev);
	if (r == CUDA_SUCCESS)
		r = device_find(peer, &dev);
	if (r == CUDA_SUCCESS)
		*value = attr == CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED;
	return sim_leave(r);
}

/* Bit of the peer's device, 0 when peer is no other device's live context. */
static unsigned
peer_bit(CUcontext peer)
{
	if (!ctx_is_known(peer) || !peer->is_alive || peer->dev == ctx_current()->dev)
		return 0;
	return 1u << peer->dev->ordinal;
}

CUresult
cuCtxEnablePeerAccess(CUcontext peer, unsigned int flags)
{
	CUresult r = sim_enter(E_cuCtxEnablePeerAccess, NEED_CONTEXT);
	struct CUctx_st *ctx;
	unsigned bit;

	if (r != CUDA_SUCCESS)
		return r;
	ctx = ctx_current_root();
	bit = peer_bit(peer);
	if (flags != 0)
		return sim_leave(CUDA_ERROR_INVALID_VALUE);
	if (!bit)
		return sim_leave(CUDA_ERROR_INVALID_CONTEXT);
	if (ctx->peers & bit)
		return sim_leave(CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
	ctx->peers |= bit;
	return sim_leave(CUDA_SUCCESS);
}

CUresult
cuCtxDisablePeerAccess(CUcontext peer)
{
	CUresult r = sim_enter(E_cuCtxDisablePeerAccess, NEED_CONTEXT);
	unsigned bit;

	if (r != CUDA_SUCCESS)
		return r;
	bit = peer_bit(peer);
	if (!bit || !(ctx_current_root()->peers & bit))
		return sim_leave(CUDA_ERROR_PEER_ACCESS_NOT_ENABLED);
	ctx_current_root()->peers &= ~bit;
	return sim_leave(CUDA_SUCCESS);
}
