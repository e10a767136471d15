/* SPDX-License-Identifier: MIT */
/*
 * Graphs with memory nodes: noted when a node is made, and the driver's figure is read after the
 * calls that may change it. Launches are in hook_visible.c.
 */
#include "shim/hooks.h"
#include "shim/outside.h"

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
#define READ_AFTER(name, parameters, arguments) \
	CUresult name parameters \
	{ \
		CUresult r; \
\
		hooks_ready(); \
		r = real.name arguments; \
		outside_read_graphs(); \
		return r; \
	}
#define READ_AFTER_PAIR(name, parameters, arguments) \
	READ_AFTER(name, parameters, arguments) \
	READ_AFTER(name##_ptsz, parameters, arguments)

READ_AFTER_PAIR(cuGraphInstantiateWithParams,
		(CUgraphExec * phGraphExec, CUgraph hGraph,
		 CUDA_GRAPH_INSTANTIATE_PARAMS *instantiateParams),
		(phGraphExec, hGraph, instantiateParams))
READ_AFTER_PAIR(cuGraphUpload, (CUgraphExec hGraphExec, CUstream hStream), (hGraphExec, hStream))
READ_AFTER(cuDeviceGraphMemTrim, (CUdevice device), (device))
