/* SPDX-License-Identifier: MIT */
#include "tests/order/order.h"

/*
 * Captures and graphs. What a graph's nodes do to blocks is kept and applied to the model at each
 * launch. A captured stream does not come after anything outside: its launches do.
 */

/* One node; its effect is not the model's yet. */
static void
capture_node(struct actor *a, int stream, struct graph *graph)
{
	struct effect *effect = &graph->effects[graph->n_effects];
	struct block *to = pick_block(a, graph->context, false),
		     *from = pick_block(a, graph->context, true);
	const struct at at = call_at(a, stream);

	if (!to || graph->n_effects == N_EFFECTS)
		return;
	*effect = (struct effect){
		.target = (int)(to - a->blocks),
		.source = -1,
		.value = (uint8_t)(1 + random_below(a, 255)),
		.is_kernel = one_in(a, 2),
	};
	if (from && from != to && to->n_bytes <= from->n_bytes && one_in(a, 2)) {
		effect->source = (int)(from - a->blocks);
		if (effect->is_kernel)
			call_copy(a, at, to->address, from->address, to->n_bytes);
		else
			CALL_AT(a, at, cuMemcpyAsync, to->address, from->address, to->n_bytes,
				at.handle);
	} else if (effect->is_kernel) {
		call_fill(a, at, to->address, effect->value, to->n_bytes, false);
	} else {
		CALL_AT(a, at, cuMemsetD8Async, to->address, effect->value, to->n_bytes, at.handle);
	}
	graph->n_effects++;
}

static void
count(void *arg)
{
	(void)arg;
	atomic_fetch_add(&program.n_host_funcs, 1);
}

/* Another stream takes part, between the nodes before and those after. */
static void
capture_fork(struct actor *a, int stream, struct graph *graph)
{
	const int other = pick_stream(a, graph->context);
	const enum stream_kind kind = a->streams[other].kind;
	CUevent there, back;
	struct at at;

	if (other == stream || (kind != NON_BLOCKING && kind != GREEN))
		return;
	there = call_event(a, graph->context);
	back = call_event(a, graph->context);
	at = call_at(a, stream);
	CALL_AT(a, at, cuEventRecord, there, at.handle);
	at = call_at(a, other);
	CALL_AT(a, at, cuStreamWaitEvent, at.handle, there, 0);
	capture_node(a, other, graph);
	at = call_at(a, other);
	CALL_AT(a, at, cuEventRecord, back, at.handle);
	at = call_at(a, stream);
	CALL_AT(a, at, cuStreamWaitEvent, at.handle, back, 0);
	CALL(a, cuEventDestroy_v2, there);
	CALL(a, cuEventDestroy_v2, back);
}

/* In relaxed mode memory comes and goes meanwhile. */
static void
alloc_in_capture(struct actor *a, int context)
{
	CUdeviceptr block = 0;

	if (!model_may_wait(a))
		return;
	call_current(a, context);
	CALL(a, cuMemAlloc_v2, &block, 1 + random_below(a, 5000));
	CALL(a, cuMemFree_v2, block);
}

static struct graph *
empty_graph(struct actor *a)
{
	struct graph *graph = &a->graphs[random_below(a, N_GRAPHS)];

	if (graph->exec)
		graph_destroy(a, graph);
	return graph;
}

/* A question that a capture forbids: it fails, and so does the capture. */
static void
spoil(struct actor *a, struct at at)
{
	CUgraph none = NULL;

	CALL_STATUS_AT(a, at, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuStreamQuery, at.handle);
	CALL_STATUS_AT(a, at, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuStreamEndCapture, at.handle,
		       &none);
}

static void
launch(struct actor *a, struct graph *graph)
{
	const int stream = pick_stream(a, one_in(a, 16) ? !graph->context : graph->context);
	struct at at;

	for (unsigned i = 0; i < graph->n_effects; i++) {
		const struct effect *effect = &graph->effects[i];

		model_need(a, stream, &a->blocks[effect->target], true);
		if (effect->source >= 0)
			model_need(a, stream, &a->blocks[effect->source], false);
	}
	at = call_at(a, stream);
	CALL_AT(a, at, cuGraphLaunch, graph->exec, at.handle);
	model_submit(a, stream);
	for (unsigned i = 0; i < graph->n_effects; i++) {
		const struct effect *effect = &graph->effects[i];
		struct block *to = &a->blocks[effect->target];

		if (effect->source >= 0) {
			struct block *from = &a->blocks[effect->source];

			model_read(a, stream, from, effect->is_kernel);
			to->value = from->value;
			to->is_defined = from->is_defined;
		} else {
			to->value = effect->value;
			to->is_defined = true;
		}
		model_write(a, stream, to, effect->is_kernel);
	}
}

bool
step_capture(struct actor *a)
{
	const int stream = pick_stream(a, -1);
	const enum stream_kind kind = a->streams[stream].kind;
	const CUstreamCaptureMode mode =
		one_in(a, 2) ? CU_STREAM_CAPTURE_MODE_RELAXED : CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
	const unsigned n_nodes = 1 + random_below(a, N_EFFECTS);
	struct graph *graph;
	CUgraph made = NULL;
	struct at at;

	/* Work of others in the legacy stream would spoil the capture of a blocking one. */
	if (!a->may_capture)
		return false;
	if (kind != NON_BLOCKING && kind != GREEN && (program.n_actors > 1 || kind == LEGACY))
		return false;
	graph = empty_graph(a);
	*graph = (struct graph){.context = a->streams[stream].context};
	at = call_at(a, stream);
	CALL_AT(a, at, cuStreamBeginCapture_v2, at.handle, mode);
	for (unsigned i = 0; i < n_nodes; i++)
		capture_node(a, stream, graph);
	at = call_at(a, stream);
	if (one_in(a, 4))
		CALL_AT(a, at, cuLaunchHostFunc, at.handle, count, NULL);
	if (one_in(a, 4))
		capture_fork(a, stream, graph);
	if (mode == CU_STREAM_CAPTURE_MODE_RELAXED && one_in(a, 3))
		alloc_in_capture(a, graph->context);
	at = call_at(a, stream);
	if (mode == CU_STREAM_CAPTURE_MODE_THREAD_LOCAL && one_in(a, 8)) {
		spoil(a, at);
		return true;
	}
	CALL_AT(a, at, cuStreamEndCapture, at.handle, &made);
	CALL(a, cuGraphInstantiateWithFlags, &graph->exec, made, 0);
	CALL(a, cuGraphDestroy, made);
	for (unsigned n = random_below(a, 3); n > 0; n--)
		launch(a, graph);
	return true;
}

bool
step_graph(struct actor *a)
{
	struct graph *graph = &a->graphs[random_below(a, N_GRAPHS)];

	if (!graph->exec)
		return false;
	launch(a, graph);
	return true;
}

void
graph_destroy(struct actor *a, struct graph *graph)
{
	CALL(a, cuGraphExecDestroy, graph->exec);
	graph->exec = NULL;
}

/* The block goes: no graph may touch it any more. */
void
graph_forget_block(struct actor *a, const struct block *block)
{
	for (int i = 0; i < N_GRAPHS; i++) {
		struct graph *graph = &a->graphs[i];
		bool is_used = false;

		for (unsigned j = 0; j < graph->n_effects; j++) {
			is_used |= graph->effects[j].target == block - a->blocks ||
				   graph->effects[j].source == block - a->blocks;
		}
		if (graph->exec && is_used)
			graph_destroy(a, graph);
	}
}
