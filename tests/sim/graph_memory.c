/* SPDX-License-Identifier: MIT */
#include "tests/sim/sim_internal.h"

/*
 * Memory nodes of graphs that are built by hand, and what the device keeps for memory nodes. As
 * measured, that figure grows at the first launch or upload and shrinks at a trim, and at no other
 * time. Pages are taken when the node is made.
 */

static CUresult
add_node(CUgraph graph, CUgraphNode dep, struct op *op, CUgraphNode *ret_node)
{
	if (!op)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*ret_node = graph_add(graph, dep, op);
	return *ret_node ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult
add_alloc(CUgraphNode *ret_node, CUgraph graph, CUgraphNode dep, const CUmemPoolProps *props,
	  size_t bytes, CUdeviceptr *ret_ptr)
{
	struct alloc init = {.kind = ALLOC_ASYNC, .is_graph = true}, *a;
	struct device *dev;
	struct op *op;
	CUresult r;

	if (!ret_node || !handle_is(graph, HANDLE_GRAPH) || bytes == 0 ||
	    props->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
		return CUDA_ERROR_INVALID_VALUE;
	r = device_find(props->location.id, &dev);
	if (r != CUDA_SUCCESS)
		return r;
	init.pool = dev->default_pool;
	r = alloc_device(&init.pool->arena, bytes, &init, &a);
	if (r != CUDA_SUCCESS)
		return r;
	pool_note_alloc(init.pool, bytes);
	op = op_new(CUSIM_OP_ALLOC_ASYNC);
	if (op) {
		op->alloc_base = a->base;
		op_range(op, a->base, a->size_bytes, true);
	}
	r = add_node(graph, dep, op, ret_node);
	if (r == CUDA_SUCCESS)
		*ret_ptr = a->base;
	else
		alloc_release(a);
	return r;
}

static CUresult
add_free(CUgraphNode *ret_node, CUgraph graph, CUgraphNode dep, CUdeviceptr ptr)
{
	const struct alloc *a = alloc_find(ptr);
	struct op *op;

	if (!ret_node || !handle_is(graph, HANDLE_GRAPH) || !a || a->base != ptr || !a->is_graph)
		return CUDA_ERROR_INVALID_VALUE;
	op = op_new(CUSIM_OP_NOTHING);
	if (op)
		op->alloc_base = ptr;
	return add_node(graph, dep, op, ret_node);
}

CUresult
cuGraphAddMemAllocNode(CUgraphNode *ret_node, CUgraph graph, const CUgraphNode *deps, size_t n_deps,
		       CUDA_MEM_ALLOC_NODE_PARAMS *params)
{
	CUresult r = sim_enter(E_cuGraphAddMemAllocNode, NEED_CONTEXT);

	if (r != CUDA_SUCCESS)
		return r;
	if (!params || (n_deps && !deps))
		return sim_leave(CUDA_ERROR_INVALID_VALUE);
	return sim_leave(add_alloc(ret_node, graph, n_deps ? deps[0] : NULL, &params->poolProps,
				   params->bytesize, &params->dptr));
}

CUresult
cuGraphAddMemFreeNode(CUgraphNode *ret_node, CUgraph graph, const CUgraphNode *deps, size_t n_deps,
		      CUdeviceptr ptr)
{
	CUresult r = sim_enter(E_cuGraphAddMemFreeNode, NEED_CONTEXT);

	if (r != CUDA_SUCCESS)
		return r;
	if (n_deps && !deps)
		return sim_leave(CUDA_ERROR_INVALID_VALUE);
	return sim_leave(add_free(ret_node, graph, n_deps ? deps[0] : NULL, ptr));
}

static CUresult
add_any(enum entry_id e, CUgraphNode *ret_node, CUgraph graph, const CUgraphNode *deps,
	size_t n_deps, CUgraphNodeParams *params)
{
	CUresult r = sim_enter(e, NEED_CONTEXT);
	CUgraphNode dep;

	if (r != CUDA_SUCCESS)
		return r;
	if (!params || (n_deps && !deps))
		return sim_leave(CUDA_ERROR_INVALID_VALUE);
	dep = n_deps ? deps[0] : NULL;
	if (params->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC)
		r = add_alloc(ret_node, graph, dep, &params->alloc.poolProps,
			      params->alloc.bytesize, &params->alloc.dptr);
	else if (params->type == CU_GRAPH_NODE_TYPE_MEM_FREE)
		r = add_free(ret_node, graph, dep, params->free.dptr);
	else
		r = CUDA_ERROR_NOT_SUPPORTED;
	return sim_leave(r);
}

CUresult
cuGraphAddNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *deps, size_t n_deps,
	       CUgraphNodeParams *params)
{
	return add_any(E_cuGraphAddNode, node, graph, deps, n_deps, params);
}

CUresult
cuGraphAddNode_v2(CUgraphNode *node, CUgraph graph, const CUgraphNode *deps,
		  const CUgraphEdgeData *edges, size_t n_deps, CUgraphNodeParams *params)
{
	(void)edges;
	return add_any(E_cuGraphAddNode_v2, node, graph, deps, n_deps, params);
}

void
graph_reserve(const struct CUgraph_st *graph)
{
	for (const struct CUgraphNode_st *node = graph->first; node; node = node->next) {
		struct alloc *a = node->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC
					  ? alloc_find(node->op->alloc_base)
					  : NULL;

		if (!a || a->is_reserved)
			continue;
		a->is_reserved = true;
		a->dev->graph_bytes += a->size_bytes;
		if (a->dev->graph_bytes > a->dev->graph_high_bytes)
			a->dev->graph_high_bytes = a->dev->graph_bytes;
	}
}

static bool
unreserve(struct alloc *a, void *dev)
{
	if (a->dev == dev)
		a->is_reserved = false;
	return false;
}

CUresult
cuDeviceGraphMemTrim(CUdevice device)
{
	CUresult r = sim_enter(E_cuDeviceGraphMemTrim, NEED_INIT);
	struct device *dev;

	if (r != CUDA_SUCCESS)
		return r;
	r = device_find(device, &dev);
	if (r == CUDA_SUCCESS) {
		dev->graph_bytes = 0;
		alloc_for_each(unreserve, dev);
	}
	return sim_leave(r);
}

static bool
is_high(CUgraphMem_attribute attr)
{
	return attr == CU_GRAPH_MEM_ATTR_USED_MEM_HIGH ||
	       attr == CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH;
}

CUresult
cuDeviceGetGraphMemAttribute(CUdevice device, CUgraphMem_attribute attr, void *value)
{
	CUresult r = sim_enter(E_cuDeviceGetGraphMemAttribute, NEED_INIT);
	struct device *dev;

	if (r != CUDA_SUCCESS)
		return r;
	r = value ? device_find(device, &dev) : CUDA_ERROR_INVALID_VALUE;
	if (r == CUDA_SUCCESS)
		*(cuuint64_t *)value = is_high(attr) ? dev->graph_high_bytes : dev->graph_bytes;
	return sim_leave(r);
}

/* The high marks may be reset to 0. */
CUresult
cuDeviceSetGraphMemAttribute(CUdevice device, CUgraphMem_attribute attr, void *value)
{
	CUresult r = sim_enter(E_cuDeviceSetGraphMemAttribute, NEED_INIT);
	struct device *dev;

	if (r != CUDA_SUCCESS)
		return r;
	if (!value || !is_high(attr) || *(cuuint64_t *)value != 0)
		return sim_leave(CUDA_ERROR_INVALID_VALUE);
	r = device_find(device, &dev);
	if (r == CUDA_SUCCESS)
		dev->graph_high_bytes = dev->graph_bytes;
	return sim_leave(r);
}
