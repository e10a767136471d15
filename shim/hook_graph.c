/* SPDX-License-Identifier: MIT */
/*
 * Graphs with memory nodes: noted when a node is made, and the driver's figure is read after the
 * calls that may change it. And what executable graphs can do (graphs.h), where they are made and
 * changed. Launches are in hook_visible.c.
 */
#include "shim/graphs.h"
#include "shim/hooks.h"
#include "shim/init.h"
#include "shim/outside.h"
#include "shim/submit.h"

CUresult
cuGraphAddMemAllocNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
		       size_t numDependencies, CUDA_MEM_ALLOC_NODE_PARAMS *nodeParams)
{
	CUresult r;

	hooks_ready();
	r = real.cuGraphAddMemAllocNode(phGraphNode, hGraph, dependencies, numDependencies,
					nodeParams);
	if (outside_counts(r))
		outside_note_graph_node(nodeParams->poolProps.location.id);
	return r;
}

CUresult
cuGraphAddNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
	       size_t numDependencies, CUgraphNodeParams *nodeParams)
{
	CUresult r;

	hooks_ready();
	r = real.cuGraphAddNode(phGraphNode, hGraph, dependencies, numDependencies, nodeParams);
	if (outside_counts(r))
		outside_note_graph_params(nodeParams);
	return r;
}

CUresult
cuGraphAddNode_v2(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
		  const CUgraphEdgeData *dependencyData, size_t numDependencies,
		  CUgraphNodeParams *nodeParams)
{
	CUresult r;

	hooks_ready();
	r = real.cuGraphAddNode_v2(phGraphNode, hGraph, dependencies, dependencyData,
				   numDependencies, nodeParams);
	if (outside_counts(r))
		outside_note_graph_params(nodeParams);
	return r;
}

static void
note(CUresult status, const CUgraphExec *exec, CUgraph graph, unsigned long long flags)
{
	if (status != CUDA_SUCCESS || !init_is_active())
		return;
	if (flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH)
		graphs_distrust();
	graphs_note(*exec, graphs_read(graph));
}

#define INSTANTIATE(name, parameters, arguments, flags) \
	CUresult name parameters \
	{ \
		CUresult r; \
\
		hooks_ready(); \
		r = real.name arguments; \
		note(r, phGraphExec, hGraph, flags); \
		return r; \
	}

INSTANTIATE(cuGraphInstantiate,
	    (CUgraphExec * phGraphExec, CUgraph hGraph, CUgraphNode *phErrorNode, char *logBuffer,
	     size_t bufferSize),
	    (phGraphExec, hGraph, phErrorNode, logBuffer, bufferSize), 0)
INSTANTIATE(cuGraphInstantiate_v2,
	    (CUgraphExec * phGraphExec, CUgraph hGraph, CUgraphNode *phErrorNode, char *logBuffer,
	     size_t bufferSize),
	    (phGraphExec, hGraph, phErrorNode, logBuffer, bufferSize), 0)
INSTANTIATE(cuGraphInstantiateWithFlags,
	    (CUgraphExec * phGraphExec, CUgraph hGraph, unsigned long long flags),
	    (phGraphExec, hGraph, flags), flags)

/* Before the change, since a launch in another thread may come right after it. One that fails may
 * have been made in part. */
#define CHANGE(name, parameters, arguments, facts) \
	CUresult name parameters \
	{ \
		hooks_ready(); \
		if (init_is_active()) \
			graphs_add(hGraphExec, facts); \
		return real.name arguments; \
	}

CHANGE(cuGraphExecUpdate,
       (CUgraphExec hGraphExec, CUgraph hGraph, CUgraphNode *hErrorNode_out,
	CUgraphExecUpdateResult *updateResult_out),
       (hGraphExec, hGraph, hErrorNode_out, updateResult_out), graphs_read(hGraph))
CHANGE(cuGraphExecUpdate_v2,
       (CUgraphExec hGraphExec, CUgraph hGraph, CUgraphExecUpdateResultInfo *resultInfo),
       (hGraphExec, hGraph, resultInfo), graphs_read(hGraph))
CHANGE(cuGraphExecMemcpyNodeSetParams,
       (CUgraphExec hGraphExec, CUgraphNode hNode, const CUDA_MEMCPY3D *copyParams, CUcontext ctx),
       (hGraphExec, hNode, copyParams, ctx), copyParams ? graphs_read_memcpy(copyParams) : 0)
CHANGE(cuGraphExecMemsetNodeSetParams,
       (CUgraphExec hGraphExec, CUgraphNode hNode, const CUDA_MEMSET_NODE_PARAMS *memsetParams,
	CUcontext ctx),
       (hGraphExec, hNode, memsetParams, ctx), memsetParams ? graphs_read_memset(memsetParams) : 0)
CHANGE(cuGraphExecChildGraphNodeSetParams,
       (CUgraphExec hGraphExec, CUgraphNode hNode, CUgraph childGraph),
       (hGraphExec, hNode, childGraph), graphs_read(childGraph))
CHANGE(cuGraphExecNodeSetParams,
       (CUgraphExec hGraphExec, CUgraphNode hNode, CUgraphNodeParams *nodeParams),
       (hGraphExec, hNode, nodeParams),
       nodeParams && nodeParams->type != CU_GRAPH_NODE_TYPE_KERNEL ? GRAPH_UNKNOWN : 0)

CUresult
cuGraphExecDestroy(CUgraphExec hGraphExec)
{
	hooks_ready();
	graphs_forget(hGraphExec); /* before another one can have its handle */
	return real.cuGraphExecDestroy(hGraphExec);
}

/* Measured: the driver's figure moves at the first upload or launch and at a trim, and no
 * instantiation or destruction moves it; an instantiation with parameters may upload. */
#define UPLOAD(name, suffix, stream0, stream, parameters, arguments, then) \
	CUresult name##suffix parameters \
	{ \
		CUresult r; \
\
		hooks_ready(); \
		r = SUBMIT_CALL(stream, stream0, real.name##suffix arguments); \
		outside_read_graphs(); \
		then; \
		return r; \
	}
#define UPLOAD_PAIR(name, stream, parameters, arguments, then) \
	UPLOAD(name, , HOOK_STREAM0_LEGACY, stream, parameters, arguments, then) \
	UPLOAD(name, _ptsz, HOOK_STREAM0_PER_THREAD, stream, parameters, arguments, then)

UPLOAD_PAIR(cuGraphInstantiateWithParams,
	    (instantiateParams ? instantiateParams->hUploadStream : NULL),
	    (CUgraphExec * phGraphExec, CUgraph hGraph,
	     CUDA_GRAPH_INSTANTIATE_PARAMS *instantiateParams),
	    (phGraphExec, hGraph, instantiateParams),
	    note(r, phGraphExec, hGraph, instantiateParams ? instantiateParams->flags : 0))
UPLOAD_PAIR(cuGraphUpload, hStream, (CUgraphExec hGraphExec, CUstream hStream),
	    (hGraphExec, hStream), (void)0)

CUresult
cuDeviceGraphMemTrim(CUdevice device)
{
	CUresult r;

	hooks_ready();
	r = real.cuDeviceGraphMemTrim(device);
	outside_read_graphs();
	return r;
}
