/* SPDX-License-Identifier: MIT */
#include "shim/graphs.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "pool/thread.h"
#include "shim/visible.h"

enum {
	N_BUCKETS = 256, /* a power of two */
	DEPTH_MAX = 8,   /* child graphs deeper than that are unknown */
};

struct known {
	CUgraphExec exec;
	unsigned facts;
	struct known *next;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct known *buckets[N_BUCKETS]; /* under lock */
static atomic_bool is_distrusted;

unsigned
graphs_read_memcpy(const CUDA_MEMCPY3D *params)
{
	return visible_writes_host(params->dstMemoryType, params->dstDevice) ? GRAPH_IS_VISIBLE : 0;
}

unsigned
graphs_read_memset(const CUDA_MEMSET_NODE_PARAMS *params)
{
	return visible_is_host(params->dst) ? GRAPH_IS_VISIBLE : 0;
}

static unsigned read_graph(CUgraph graph, unsigned depth);

static unsigned
read_child(CUgraphNode node, unsigned depth)
{
	CUgraph child;

	if (depth == DEPTH_MAX || !real.cuGraphChildGraphNodeGetGraph ||
	    real.cuGraphChildGraphNodeGetGraph(node, &child) != CUDA_SUCCESS)
		return GRAPH_UNKNOWN;
	return read_graph(child, depth + 1);
}

static unsigned
read_copy(CUgraphNode node)
{
	CUDA_MEMCPY3D params;

	if (!real.cuGraphMemcpyNodeGetParams ||
	    real.cuGraphMemcpyNodeGetParams(node, &params) != CUDA_SUCCESS)
		return GRAPH_IS_VISIBLE;
	return graphs_read_memcpy(&params);
}

static unsigned
read_set(CUgraphNode node)
{
	CUDA_MEMSET_NODE_PARAMS params;

	if (!real.cuGraphMemsetNodeGetParams ||
	    real.cuGraphMemsetNodeGetParams(node, &params) != CUDA_SUCCESS)
		return GRAPH_IS_VISIBLE;
	return graphs_read_memset(&params);
}

/* The bodies of conditional nodes cannot be asked for; nor can what a later driver adds. */
static unsigned
read_node(CUgraphNode node, unsigned depth)
{
	CUgraphNodeType type;

	if (real.cuGraphNodeGetType(node, &type) != CUDA_SUCCESS)
		return GRAPH_UNKNOWN;
	switch (type) {
	case CU_GRAPH_NODE_TYPE_KERNEL:
	case CU_GRAPH_NODE_TYPE_EMPTY:
	case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
	case CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL:
	case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
	case CU_GRAPH_NODE_TYPE_MEM_FREE:
		return 0;
	case CU_GRAPH_NODE_TYPE_MEMCPY:
		return read_copy(node);
	case CU_GRAPH_NODE_TYPE_MEMSET:
		return read_set(node);
	case CU_GRAPH_NODE_TYPE_GRAPH:
		return read_child(node, depth);
	case CU_GRAPH_NODE_TYPE_WAIT_EVENT: /* it may be another process's */
	case CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT:
		return GRAPH_CAN_WAIT;
	default:
		return GRAPH_UNKNOWN;
	}
}

static unsigned
read_graph(CUgraph graph, unsigned depth)
{
	CUgraphNode *nodes;
	unsigned facts = 0;
	size_t n = 0;

	if (!real.cuGraphGetNodes || !real.cuGraphNodeGetType ||
	    real.cuGraphGetNodes(graph, NULL, &n) != CUDA_SUCCESS)
		return GRAPH_UNKNOWN;
	if (n == 0)
		return 0;
	nodes = calloc(n, sizeof(CUgraphNode));
	if (!nodes)
		return GRAPH_UNKNOWN;
	if (real.cuGraphGetNodes(graph, nodes, &n) != CUDA_SUCCESS)
		facts = GRAPH_UNKNOWN;
	for (size_t i = 0; i < n && facts != GRAPH_UNKNOWN; i++)
		facts |= read_node(nodes[i], depth);
	free(nodes);
	return facts;
}

unsigned
graphs_read(CUgraph graph)
{
	return read_graph(graph, 0);
}

/* The place that points to it, or the end of its bucket. */
static struct known **
find_locked(CUgraphExec exec)
{
	const uint64_t hash = (uint64_t)(uintptr_t)exec * UINT64_C(0x9e3779b97f4a7c15);
	struct known **at = &buckets[hash >> 56];

	while (*at && (*at)->exec != exec)
		at = &(*at)->next;
	return at;
}

static void
forget_locked(CUgraphExec exec)
{
	struct known **at = find_locked(exec), *known = *at;

	if (!known)
		return;
	*at = known->next;
	free(known);
}

/* Without memory for it, it is unknown. */
void
graphs_note(CUgraphExec exec, unsigned facts)
{
	struct known **at, *known;

	if (thread_holds())
		return;
	known = malloc(sizeof(*known));
	thread_lock(&lock);
	forget_locked(exec);
	if (known) {
		at = find_locked(exec);
		*known = (struct known){.exec = exec, .facts = facts, .next = NULL};
		*at = known;
	}
	thread_unlock(&lock);
}

void
graphs_add(CUgraphExec exec, unsigned facts)
{
	struct known *known;

	if (!facts || thread_holds())
		return;
	thread_lock(&lock);
	known = *find_locked(exec);
	if (known)
		known->facts |= facts;
	thread_unlock(&lock);
}

void
graphs_forget(CUgraphExec exec)
{
	if (thread_holds())
		return;
	thread_lock(&lock);
	forget_locked(exec);
	thread_unlock(&lock);
}

void
graphs_distrust(void)
{
	atomic_store(&is_distrusted, true);
}

unsigned
graphs_facts(CUgraphExec exec)
{
	unsigned facts = GRAPH_UNKNOWN;
	const struct known *known;

	if (atomic_load(&is_distrusted) || thread_holds())
		return facts;
	thread_lock(&lock);
	known = *find_locked(exec);
	if (known)
		facts = known->facts;
	thread_unlock(&lock);
	return facts;
}
