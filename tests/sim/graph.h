/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * Graphs and their nodes (graph.c).
 *
 * Locking: sim.lock, as everywhere in the device.
 */

#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tests/sim/order.h"

struct CUstream_st;
struct op;

/* Nodes of a graph, each once. */
struct node_set {
	unsigned n;
	struct CUgraphNode_st **nodes;
};

struct CUgraphNode_st {
	struct CUgraphNode_st *next;
	struct node_set deps;
	struct op *op; /* a template */
	uint64_t stream_id;
	CUgraphNodeType type;
	struct CUgraph_st *graph;
	struct node_order order;
};

struct CUgraph_st {
	struct CUgraphNode_st *first, *last;
	size_t n_nodes;
	uint64_t id;
	unsigned refs; /* executable graphs keep the memory of their graph */
	bool is_destroyed;
};

struct CUgraph_st *graph_new(void);
CUgraphNode graph_add(struct CUgraph_st *graph, CUgraphNode dep, struct op *op);
bool node_set_add(struct node_set *set, struct CUgraphNode_st *node);
bool node_set_join(struct node_set *set, const struct node_set *from);
void node_set_clear(struct node_set *set);
void graph_append(struct CUgraph_st *graph, struct CUstream_st *s, struct op *op);
void graph_unref(struct CUgraph_st *graph);
