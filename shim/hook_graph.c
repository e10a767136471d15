/* SPDX-License-Identifier: MIT */
/*
 * Graphs with memory nodes: noted when a node is made, and the driver's figure is read after the
 * calls that may change it. Launches are in hook_visible.c.
 */
#include "shim/hooks.h"
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

/* Measured: the driver's figure moves at the first upload or launch and at a trim, and no
 * instantiation or destruction moves it; an instantiation with parameters may upload. */
#define UPLOAD(name, suffix, stream0, stream, parameters, arguments) \
	CUresult name##suffix parameters \
	{ \
		CUresult r; \
\
		hooks_ready(); \
		r = SUBMIT_CALL(stream, stream0, real.name##suffix arguments); \
		outside_read_graphs(); \
		return r; \
	}
#define UPLOAD_PAIR(name, stream, parameters, arguments) \
	UPLOAD(name, , HOOK_STREAM0_LEGACY, stream, parameters, arguments) \
	UPLOAD(name, _ptsz, HOOK_STREAM0_PER_THREAD, stream, parameters, arguments)

UPLOAD_PAIR(cuGraphInstantiateWithParams,
	    (instantiateParams ? instantiateParams->hUploadStream : NULL),
	    (CUgraphExec * phGraphExec, CUgraph hGraph,
	     CUDA_GRAPH_INSTANTIATE_PARAMS *instantiateParams),
	    (phGraphExec, hGraph, instantiateParams))
UPLOAD_PAIR(cuGraphUpload, hStream, (CUgraphExec hGraphExec, CUstream hStream),
	    (hGraphExec, hStream))

CUresult
cuDeviceGraphMemTrim(CUdevice device)
{
	CUresult r;

	hooks_ready();
	r = real.cuDeviceGraphMemTrim(device);
	outside_read_graphs();
	return r;
}
