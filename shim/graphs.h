/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * What executable graphs can do: whether a launch can wait for others, and whether the CPU can see
 * the end of it. Read from the graph's nodes when it is instantiated; what is not known can do
 * both.
 *
 * Parameters of nodes may be changed later: facts are added then, and none is taken back.
 *
 * Locking: a leaf, never held across a driver call. Launches take it once.
 */
#include "shim/hooks.h"

enum {
	GRAPH_CAN_WAIT = 1 << 0,   /* for the CPU, other processes, other streams' later work */
	GRAPH_IS_VISIBLE = 1 << 1, /* it writes host memory or runs host code */
	GRAPH_UNKNOWN = GRAPH_CAN_WAIT | GRAPH_IS_VISIBLE,
};

/* What the nodes say, those of child graphs included. */
unsigned graphs_read(CUgraph graph);

/* What new parameters of a memcpy or memset node say. */
unsigned graphs_read_memcpy(const CUDA_MEMCPY3D *params);
unsigned graphs_read_memset(const CUDA_MEMSET_NODE_PARAMS *params);

/* An executable graph was made, changed, and is about to be destroyed. */
void graphs_note(CUgraphExec exec, unsigned facts);
void graphs_add(CUgraphExec exec, unsigned facts);
void graphs_forget(CUgraphExec exec);

/* Kernels may launch graphs, which may hold copies: nothing is known of any graph from now on. */
void graphs_distrust(void);

unsigned graphs_facts(CUgraphExec exec);
