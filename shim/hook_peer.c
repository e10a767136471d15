/* SPDX-License-Identifier: MIT */
/*
 * Access for peers: from now on their kernels may touch memory of a context without waiting for the
 * edges of what it hands out early.
 */
#include "shim/context.h"
#include "shim/hooks.h"
#include "shim/init.h"
#include "shim/sharing.h"

CUresult
cuCtxEnablePeerAccess(CUcontext peerContext, unsigned int Flags)
{
	struct context *peer;
	CUresult r;

	hooks_ready();
	peer = init_is_active() ? context_find(peerContext) : NULL;
	if (peer)
		sharing_add_peer(peer); /* before: the access begins with the driver's answer */
	r = real.cuCtxEnablePeerAccess(peerContext, Flags);
	if (peer && r != CUDA_SUCCESS)
		sharing_remove_peer(peer);
	return r;
}

CUresult
cuCtxDisablePeerAccess(CUcontext peerContext)
{
	struct context *peer;
	CUresult r;

	hooks_ready();
	r = real.cuCtxDisablePeerAccess(peerContext);
	peer = init_is_active() ? context_find(peerContext) : NULL;
	if (peer && r == CUDA_SUCCESS)
		sharing_remove_peer(peer);
	return r;
}
