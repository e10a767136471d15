/* SPDX-License-Identifier: MIT */
#include "tests/sim/sim_internal.h"

#include <stdlib.h>
#include <string.h>

/*
 * Graphs made by capture: a list of operations in the order of their capture, which is one of the
 * orders that its edges allow. A launch submits copies of them, in that order, to one stream.
 */

struct CUgraphExec_st {
	struct CUgraph_st *graph; /* holds a reference */
	unsigned long long flags;
	struct clock clock; /* of its newest launch */
};

struct CUgraph_st *
graph_new(void)
{
	struct CUgraph_st *graph = calloc(1, sizeof(*graph));

	if (!graph || handle_add(graph, HANDLE_GRAPH) != CUDA_SUCCESS) {
		free(graph);
		return NULL;
	}
	graph->id = ++sim.next_id;
	graph->refs = 1;
	return graph;
}

static CUgraphNodeType
node_type(const struct op *op)
{
	switch (op->kind) {
	case CUSIM_OP_COPY:
		return CU_GRAPH_NODE_TYPE_MEMCPY;
	case CUSIM_OP_SET:
		return CU_GRAPH_NODE_TYPE_MEMSET;
	case CUSIM_OP_KERNEL:
		return CU_GRAPH_NODE_TYPE_KERNEL;
	case CUSIM_OP_HOST_FUNC:
		return CU_GRAPH_NODE_TYPE_HOST;
	case CUSIM_OP_EVENT_RECORD:
		return CU_GRAPH_NODE_TYPE_EVENT_RECORD;
	case CUSIM_OP_EVENT_WAIT:
		return CU_GRAPH_NODE_TYPE_WAIT_EVENT;
	case CUSIM_OP_WRITE_VALUE:
	case CUSIM_OP_WAIT_VALUE:
		return CU_GRAPH_NODE_TYPE_BATCH_MEM_OP;
	case CUSIM_OP_ALLOC_ASYNC:
		return CU_GRAPH_NODE_TYPE_MEM_ALLOC;
	default:
		return op->alloc_base ? CU_GRAPH_NODE_TYPE_MEM_FREE : CU_GRAPH_NODE_TYPE_EMPTY;
	}
}

bool
node_set_add(struct node_set *set, struct CUgraphNode_st *node)
{
	struct CUgraphNode_st **grown;

	for (unsigned i = 0; i < set->n; i++) {
		if (set->nodes[i] == node)
			return true;
	}
	grown = realloc(set->nodes, (set->n + 1) * sizeof(*grown));
	if (!grown)
		return false;
	set->nodes = grown;
	set->nodes[set->n++] = node;
	return true;
}

bool
node_set_join(struct node_set *set, const struct node_set *from)
{
	bool r = true;

	for (unsigned i = 0; i < from->n; i++)
		r = node_set_add(set, from->nodes[i]) && r;
	return r;
}

void
node_set_clear(struct node_set *set)
{
	free(set->nodes);
	*set = (struct node_set){0};
}

/* Takes op over; NULL: no memory for a node, and the operation is lost. */
CUgraphNode
graph_add(struct CUgraph_st *graph, CUgraphNode dep, struct op *op)
{
	struct CUgraphNode_st *node = calloc(1, sizeof(*node));

	if (!node || (dep && !node_set_add(&node->deps, dep))) {
		free(node);
		op_free(op);
		return NULL;
	}
	node->op = op;
	node->type = node_type(op);
	node->graph = graph;
	if (graph->last)
		graph->last->next = node;
	else
		graph->first = node;
	graph->last = node;
	graph->n_nodes++;
	return node;
}

/* Without memory for a node the graph is shorter. */
void
graph_append(struct CUgraph_st *graph, struct CUstream_st *s, struct op *op)
{
	CUgraphNode node = graph_add(graph, s->capture_last, op);

	if (!node)
		return;
	node->stream_id = s->id;
	node_set_join(&node->deps, &s->capture_waits);
	node_set_clear(&s->capture_waits);
}

void
graph_unref(struct CUgraph_st *graph)
{
	struct CUgraphNode_st *node, *next;
	struct alloc *a;

	if (--graph->refs > 0)
		return;
	for (node = graph->first; node; node = next) {
		next = node->next;
		a = node->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC ? alloc_find(node->op->alloc_base)
							       : NULL;
		if (a && a->is_graph)
			alloc_release(a);
		op_free(node->op);
		node_set_clear(&node->deps);
		clock_fini(&node->order.earlier);
		clock_fini(&node->order.after);
		free(node);
	}
	handle_remove(graph);
	free(graph);
}

static struct op *
op_clone(const struct op *from)
{
	struct op *op = op_new(from->kind);
	size_t n_ranges = from->n_ranges;

	if (!op)
		return NULL;
	*op = *from;
	op->n_ranges = (unsigned)n_ranges;
	op->next = NULL;
	op->made = NULL;
	op->waited = NULL;
	op->staged = NULL;
	if (op->kind == CUSIM_OP_EVENT_WAIT && op->event && handle_is(op->event, HANDLE_EVENT) &&
	    op->event->record)
		op->waited = record_get(op->event->record);
	return op;
}

CUresult
cuGraphCreate(CUgraph *ret_graph, unsigned int flags)
{
	CUresult r = sim_enter(E_cuGraphCreate, NEED_INIT);

	if (r != CUDA_SUCCESS)
		return r;
	if (!ret_graph || flags != 0)
		return sim_leave(CUDA_ERROR_INVALID_VALUE);
	*ret_graph = graph_new();
	return sim_leave(*ret_graph ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY);
}

CUresult
cuGraphDestroy(CUgraph graph)
{
	CUresult r = sim_enter(E_cuGraphDestroy, NEED_INIT);

	if (r != CUDA_SUCCESS)
		return r;
	if (!handle_is(graph, HANDLE_GRAPH) || graph->is_destroyed)
		return sim_leave(CUDA_ERROR_INVALID_VALUE);
	graph->is_destroyed = true;
	graph_unref(graph);
	return sim_leave(CUDA_SUCCESS);
}

CUresult
cuGraphGetNodes(CUgraph graph, CUgraphNode *nodes, size_t *n_nodes)
{
	CUresult r = sim_enter(E_cuGraphGetNodes, NEED_INIT);
	size_t i = 0;

	if (r != CUDA_SUCCESS)
		return r;
	if (!n_nodes || !handle_is(graph, HANDLE_GRAPH))
		return sim_leave(CUDA_ERROR_INVALID_VALUE);
	if (nodes) {
		for (CUgraphNode node = graph->first; node && i < *n_nodes; node = node->next)
			nodes[i++] = node;
		for (size_t j = i; j < *n_nodes; j++)
			nodes[j] = NULL;
		*n_nodes = i;
	} else {
		*n_nodes = graph->n_nodes;
	}
	return sim_leave(CUDA_SUCCESS);
}

CUresult
cuGraphNodeGetType(CUgraphNode node, CUgraphNodeType *type)
{
	CUresult r = sim_enter(E_cuGraphNodeGetType, NEED_INIT);

	if (r != CUDA_SUCCESS)
		return r;
	if (!node || !type)
		return sim_leave(CUDA_ERROR_INVALID_VALUE);
	*type = node->type;
	return sim_leave(CUDA_SUCCESS);
}

static CUresult
instantiate(enum entry_id e, CUgraphExec *ret_exec, CUgraph graph, unsigned long long flags)
{
	CUresult r = sim_enter(e, NEED_CONTEXT);
	struct CUgraphExec_st *exec;

	if (r != CUDA_SUCCESS)
		return r;
	if (!ret_exec || !handle_is(graph, HANDLE_GRAPH))
		return sim_leave(CUDA_ERROR_INVALID_VALUE);
	exec = calloc(1, sizeof(*exec));
	if (!exec || handle_add(exec, HANDLE_EXEC) != CUDA_SUCCESS) {
		free(exec);
		return sim_leave(CUDA_ERROR_OUT_OF_MEMORY);
	}
	graph->refs++;
	exec->graph = graph;
	exec->flags = flags;
	*ret_exec = exec;
	return sim_leave(CUDA_SUCCESS);
}

CUresult
cuGraphInstantiate(CUgraphExec *exec, CUgraph graph, CUgraphNode *error_node, char *log,
		   size_t log_bytes)
{
	(void)error_node, (void)log, (void)log_bytes;
	return instantiate(E_cuGraphInstantiate, exec, graph, 0);
}

CUresult
cuGraphInstantiate_v2(CUgraphExec *exec, CUgraph graph, CUgraphNode *error_node, char *log,
		      size_t log_bytes)
{
	(void)error_node, (void)log, (void)log_bytes;
	return instantiate(E_cuGraphInstantiate_v2, exec, graph, 0);
}

CUresult
cuGraphInstantiateWithFlags(CUgraphExec *exec, CUgraph graph, unsigned long long flags)
{
	return instantiate(E_cuGraphInstantiateWithFlags, exec, graph, flags);
}

SIM_PAIR(cuGraphInstantiateWithParams, _ptsz,
	 (CUgraphExec * exec, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *params), instantiate,
	 exec, graph, params ? params->flags : 0)

CUresult
cuGraphExecDestroy(CUgraphExec exec)
{
	CUresult r = sim_enter(E_cuGraphExecDestroy, NEED_INIT);

	if (r != CUDA_SUCCESS)
		return r;
	if (!handle_is(exec, HANDLE_EXEC))
		return sim_leave(CUDA_ERROR_INVALID_VALUE);
	handle_remove(exec);
	graph_unref(exec->graph);
	clock_fini(&exec->clock);
	free(exec);
	return sim_leave(CUDA_SUCCESS);
}

static CUresult
launch(enum entry_id e, CUgraphExec exec, CUstream handle)
{
	CUresult r = sim_enter(e, NEED_CONTEXT);
	struct CUstream_st *s;
	struct op *op;
	bool is_ordered;

	if (r != CUDA_SUCCESS)
		return r;
	if (!handle_is(exec, HANDLE_EXEC))
		return sim_leave(CUDA_ERROR_INVALID_VALUE);
	r = stream_resolve(e, handle, &s);
	if (r == CUDA_SUCCESS)
		graph_reserve(exec->graph);
	is_ordered = r == CUDA_SUCCESS && sim.check && !s->capture;
	if (is_ordered)
		order_begin_launch(s, exec->graph, &exec->clock);
	for (CUgraphNode node = exec->graph->first; r == CUDA_SUCCESS && node; node = node->next) {
		op = op_clone(node->op);
		if (op && is_ordered)
			op->node = node;
		r = op ? exec_submit(s, op) : CUDA_ERROR_OUT_OF_MEMORY;
	}
	if (is_ordered)
		order_end_launch(s, &exec->clock);
	return sim_leave(r);
}

SIM_PAIR(cuGraphLaunch, _ptsz, (CUgraphExec exec, CUstream s), launch, exec, s)

static CUresult
upload(enum entry_id e, CUgraphExec exec, CUstream handle)
{
	CUresult r = sim_enter(e, NEED_CONTEXT);
	struct CUstream_st *s;

	if (r != CUDA_SUCCESS)
		return r;
	r = stream_resolve(e, handle, &s);
	if (r == CUDA_SUCCESS && !handle_is(exec, HANDLE_EXEC))
		r = CUDA_ERROR_INVALID_VALUE;
	if (r == CUDA_SUCCESS)
		graph_reserve(exec->graph);
	return sim_leave(r);
}

SIM_PAIR(cuGraphUpload, _ptsz, (CUgraphExec exec, CUstream s), upload, exec, s)
