/* SPDX-License-Identifier: MIT */
/* What the nodes of a graph say of its launches. */
#include <criterion/criterion.h>

#include "shim/graphs.h"
#include "shim/visible.h"

/* A graph is an array of nodes up to one whose type is END. */
enum { END = -1 };

struct node {
	int type;
	CUmemorytype dst_type;
	CUdeviceptr dst;
	struct node *child;
};

static const CUdeviceptr host = 0x1000, device = 0x2000;

struct real_calls real;

bool
visible_is_host(CUdeviceptr addr)
{
	return addr == host;
}

static CUresult
get_nodes(CUgraph graph, CUgraphNode *nodes, size_t *n)
{
	struct node *first = (struct node *)graph;
	size_t i = 0;

	for (; first[i].type != END; i++)
		if (nodes)
			nodes[i] = (CUgraphNode)&first[i];
	*n = i;
	return CUDA_SUCCESS;
}

static CUresult
get_type(CUgraphNode node, CUgraphNodeType *type)
{
	*type = (CUgraphNodeType)((struct node *)node)->type;
	return CUDA_SUCCESS;
}

static CUresult
get_memcpy(CUgraphNode node, CUDA_MEMCPY3D *params)
{
	*params = (CUDA_MEMCPY3D){.dstMemoryType = ((struct node *)node)->dst_type,
				  .dstDevice = ((struct node *)node)->dst};
	return CUDA_SUCCESS;
}

static CUresult
get_memset(CUgraphNode node, CUDA_MEMSET_NODE_PARAMS *params)
{
	*params = (CUDA_MEMSET_NODE_PARAMS){.dst = ((struct node *)node)->dst};
	return CUDA_SUCCESS;
}

static CUresult
get_child(CUgraphNode node, CUgraph *graph)
{
	*graph = (CUgraph)((struct node *)node)->child;
	return CUDA_SUCCESS;
}

static void
setup(void)
{
	real.cuGraphGetNodes = get_nodes;
	real.cuGraphNodeGetType = get_type;
	real.cuGraphMemcpyNodeGetParams = get_memcpy;
	real.cuGraphMemsetNodeGetParams = get_memset;
	real.cuGraphChildGraphNodeGetGraph = get_child;
}

TestSuite(graphs, .init = setup);

/* A kernel and then this. */
static unsigned
facts_of(struct node node)
{
	struct node graph[] = {{.type = CU_GRAPH_NODE_TYPE_KERNEL}, node, {.type = END}};

	return graphs_read((CUgraph)graph);
}

Test(graphs, kernels_and_copies_on_the_device_do_neither)
{
	cr_expect_eq(facts_of((struct node){.type = CU_GRAPH_NODE_TYPE_EMPTY}), 0);
	cr_expect_eq(facts_of((struct node){.type = CU_GRAPH_NODE_TYPE_MEMCPY,
					    .dst_type = CU_MEMORYTYPE_UNIFIED,
					    .dst = device}),
		     0);
	cr_expect_eq(facts_of((struct node){.type = CU_GRAPH_NODE_TYPE_MEMSET, .dst = device}), 0);
}

Test(graphs, copies_and_memsets_to_the_host_are_seen)
{
	cr_expect_eq(facts_of((struct node){.type = CU_GRAPH_NODE_TYPE_MEMCPY,
					    .dst_type = CU_MEMORYTYPE_HOST}),
		     GRAPH_IS_VISIBLE);
	cr_expect_eq(facts_of((struct node){.type = CU_GRAPH_NODE_TYPE_MEMCPY,
					    .dst_type = CU_MEMORYTYPE_UNIFIED,
					    .dst = host}),
		     GRAPH_IS_VISIBLE);
	cr_expect_eq(facts_of((struct node){.type = CU_GRAPH_NODE_TYPE_MEMSET, .dst = host}),
		     GRAPH_IS_VISIBLE);
}

Test(graphs, waits_can_wait)
{
	cr_expect_eq(facts_of((struct node){.type = CU_GRAPH_NODE_TYPE_WAIT_EVENT}),
		     GRAPH_CAN_WAIT);
	cr_expect_eq(facts_of((struct node){.type = CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT}),
		     GRAPH_CAN_WAIT);
}

Test(graphs, host_functions_memory_operations_and_what_is_not_known_can_do_both)
{
	cr_expect_eq(facts_of((struct node){.type = CU_GRAPH_NODE_TYPE_HOST}), GRAPH_UNKNOWN);
	cr_expect_eq(facts_of((struct node){.type = CU_GRAPH_NODE_TYPE_BATCH_MEM_OP}),
		     GRAPH_UNKNOWN);
	cr_expect_eq(facts_of((struct node){.type = CU_GRAPH_NODE_TYPE_CONDITIONAL}),
		     GRAPH_UNKNOWN);
	cr_expect_eq(facts_of((struct node){.type = 77}), GRAPH_UNKNOWN);
}

Test(graphs, a_child_is_a_part_of_it)
{
	struct node plain[] = {{.type = CU_GRAPH_NODE_TYPE_KERNEL}, {.type = END}};
	struct node waits[] = {{.type = CU_GRAPH_NODE_TYPE_WAIT_EVENT}, {.type = END}};

	cr_expect_eq(facts_of((struct node){.type = CU_GRAPH_NODE_TYPE_GRAPH, .child = plain}), 0);
	cr_expect_eq(facts_of((struct node){.type = CU_GRAPH_NODE_TYPE_GRAPH, .child = waits}),
		     GRAPH_CAN_WAIT);
}

Test(graphs, a_graph_that_holds_itself_is_not_read_for_ever)
{
	struct node graph[] = {{.type = CU_GRAPH_NODE_TYPE_GRAPH}, {.type = END}};

	graph[0].child = graph;
	cr_expect_eq(graphs_read((CUgraph)graph), GRAPH_UNKNOWN);
}

Test(graphs, what_this_driver_cannot_be_asked_is_not_known)
{
	real.cuGraphMemcpyNodeGetParams = NULL;
	cr_expect_eq(facts_of((struct node){.type = CU_GRAPH_NODE_TYPE_MEMCPY}), GRAPH_IS_VISIBLE);
	real.cuGraphGetNodes = NULL;
	cr_expect_eq(facts_of((struct node){.type = CU_GRAPH_NODE_TYPE_EMPTY}), GRAPH_UNKNOWN);
}

Test(graphs, facts_are_kept_for_as_long_as_the_graph)
{
	enum { N = 2000, STEP = 64 };

	for (uintptr_t i = 1; i <= N; i++)
		graphs_note((CUgraphExec)(i * STEP), i % 3);
	graphs_add((CUgraphExec)STEP, GRAPH_CAN_WAIT | GRAPH_IS_VISIBLE);
	graphs_forget((CUgraphExec)(2 * STEP));
	graphs_note((CUgraphExec)(4 * STEP), 0);
	cr_expect_eq(graphs_facts((CUgraphExec)STEP), GRAPH_UNKNOWN, "nothing was added");
	cr_expect_eq(graphs_facts((CUgraphExec)(2 * STEP)), GRAPH_UNKNOWN, "it is gone");
	cr_expect_eq(graphs_facts((CUgraphExec)(4 * STEP)), 0, "another one's facts");
	for (uintptr_t i = 5; i <= N; i++)
		cr_expect_eq(graphs_facts((CUgraphExec)(i * STEP)), i % 3);
	cr_expect_eq(graphs_facts((CUgraphExec)(uintptr_t)7), GRAPH_UNKNOWN, "never seen");
	graphs_distrust();
	cr_expect_eq(graphs_facts((CUgraphExec)(6 * STEP)), GRAPH_UNKNOWN, "kernels launch graphs");
}
