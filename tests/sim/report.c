/* SPDX-License-Identifier: MIT */
#include "tests/sim/sim_internal.h"

#include <stdio.h>

/*
 * What happened: counts, and a ring of the newest operations in the order of their submission.
 * The ring keeps what a checker of order needs: submission and completion, the stream, the ranges,
 * which record an event operation makes or waits for, and marks of the host's own waits.
 */

enum {
	RING = 16384,
};

static struct cusim_op ring[RING];
static uint64_t n_ring; /* ever added; entry i is ring[i % RING] */

static const char *const kind_names[CUSIM_N_OP_KINDS] = {
	"copy",        "set",        "kernel",      "host-func",  "event-record", "event-wait",
	"write-value", "wait-value", "alloc-async", "free-async", "nothing",      "alloc",
	"free",        "ctx-record", "sync-stream", "sync-event", "sync-ctx",
};

const char *
report_kind_name(int kind)
{
	return kind_names[kind];
}

void
report_describe(const struct op *op, struct cusim_op *ret_op)
{
	*ret_op = (struct cusim_op){
		.kind = op->kind,
		.n_ranges = op->n_ranges,
		.context = op->stream->ctx->id,
		.stream = op->stream->id,
		.thread = op->thread,
		.seq_submit = op->seq,
		.record = op->made     ? op->made->id
			  : op->waited ? op->waited->id
				       : 0,
	};
	for (unsigned i = 0; i < op->n_ranges; i++)
		ret_op->ranges[i] = op->ranges[i];
}

uint64_t
report_add(const struct op *op)
{
	report_describe(op, &ring[n_ring % RING]);
	return n_ring++;
}

void
report_complete(const struct op *op)
{
	struct cusim_op *slot = &ring[op->ring_idx % RING];

	if (n_ring - op->ring_idx > RING)
		return;
	slot->seq_complete = sim.seq;
	slot->complete_ns = sim.clock_ns;
}

void
report_mark(enum cusim_op_kind kind, struct CUctx_st *ctx, struct CUstream_st *s, uint64_t record,
	    uint64_t addr, uint64_t size_bytes)
{
	struct cusim_op *slot = &ring[n_ring++ % RING];

	*slot = (struct cusim_op){
		.kind = kind,
		.context = ctx ? ctx->id : 0,
		.stream = s ? s->id : 0,
		.thread = sim_thread_id(),
		.seq_submit = ++sim.seq,
		.record = record,
		.complete_ns = sim.clock_ns,
	};
	slot->seq_complete = slot->seq_submit;
	if (size_bytes > 0) {
		slot->n_ranges = 1;
		slot->ranges[0] = (struct cusim_range){addr, size_bytes, 0};
	}
}

void
report_violation(const struct op *op, const struct cusim_range *range)
{
	if (sim.report.n_violations++ > 0)
		return;
	fprintf(stderr,
		"cusim: violation: a %s operation %s 0x%llx, %llu bytes, which is not allocated "
		"now "
		"(context %llu, stream %llu, submitted by thread %llu as number %llu)\n",
		kind_names[op->kind], range->is_write ? "writes" : "reads",
		(unsigned long long)range->addr, (unsigned long long)range->size_bytes,
		(unsigned long long)op->stream->ctx->id, (unsigned long long)op->stream->id,
		(unsigned long long)op->thread, (unsigned long long)op->seq);
}

uint64_t
cusim_violations(void)
{
	uint64_t n;

	pthread_mutex_lock(&sim.lock);
	n = sim.report.n_violations;
	pthread_mutex_unlock(&sim.lock);
	return n;
}

static void
fill_report(struct cusim_report *ret_report)
{
	*ret_report = sim.report;
	ret_report->n_pending = sim.report.n_submitted - sim.report.n_completed;
	ret_report->n_live_allocations = sim.n_allocs;
	ret_report->n_ops_lost = n_ring > RING ? n_ring - RING : 0;
	ret_report->device_used_bytes = 0;
	for (int i = 0; i < sim.n_devices; i++)
		ret_report->device_used_bytes += sim.devices[i].n_used_pages * SIM_PAGE;
}

void
cusim_get_report(struct cusim_report *ret_report)
{
	pthread_mutex_lock(&sim.lock);
	fill_report(ret_report);
	pthread_mutex_unlock(&sim.lock);
}

static size_t
copy_ops(struct cusim_op *ret_ops, size_t n_max)
{
	uint64_t n = n_ring < RING ? n_ring : RING;

	if (n > n_max)
		n = n_max;
	for (uint64_t i = 0; i < n; i++)
		ret_ops[i] = ring[(n_ring - n + i) % RING];
	return n;
}

size_t
cusim_ops(struct cusim_op *ret_ops, size_t n_max)
{
	size_t n;

	pthread_mutex_lock(&sim.lock);
	n = copy_ops(ret_ops, n_max);
	pthread_mutex_unlock(&sim.lock);
	return n;
}

void
cusim_set_sticky(void *context, int code)
{
	pthread_mutex_lock(&sim.lock);
	if (ctx_is_known(context))
		((struct CUctx_st *)context)->root->sticky = (CUresult)code;
	pthread_mutex_unlock(&sim.lock);
}

void
cusim_report(void)
{
	struct cusim_report report;
	struct cusim_op ops[16];
	size_t n;

	pthread_mutex_lock(&sim.lock);
	fill_report(&report);
	n = copy_ops(ops, sizeof(ops) / sizeof(ops[0]));
	pthread_mutex_unlock(&sim.lock);
	fprintf(stderr,
		"cusim: %llu operations submitted, %llu complete, %llu violations, %llu frees "
		"waited\n",
		(unsigned long long)report.n_submitted, (unsigned long long)report.n_completed,
		(unsigned long long)report.n_violations, (unsigned long long)report.n_free_waits);
	for (size_t i = 0; i < n; i++) {
		fprintf(stderr,
			"cusim: %6llu..%-6llu %-12s context %llu stream %llu thread %llu record "
			"%llu\n",
			(unsigned long long)ops[i].seq_submit,
			(unsigned long long)ops[i].seq_complete, kind_names[ops[i].kind],
			(unsigned long long)ops[i].context, (unsigned long long)ops[i].stream,
			(unsigned long long)ops[i].thread, (unsigned long long)ops[i].record);
	}
}
