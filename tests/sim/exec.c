/* SPDX-License-Identifier: MIT */
#include "tests/sim/sim_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <time.h>

/*
 * Queues of operations. An operation may run when it is the oldest of its stream and nothing
 * blocks it; what blocks it is always older, so following blockers ends. Order between streams:
 *   - the legacy stream waits for the older work of all blocking streams, and they for its;
 *   - an event wait waits for its record.
 * A spinning kernel and a value wait are not blocked: they run and do not end yet.
 */

enum {
	POLL_NS =
		200 * 1000, /* how often flags in memory are looked at while nothing else happens */
};

struct op *
op_new(enum cusim_op_kind kind)
{
	struct op *op = calloc(1, sizeof(*op));

	if (op)
		op->kind = kind;
	return op;
}

void
op_free(struct op *op)
{
	if (!op)
		return;
	record_put(op->made);
	record_put(op->waited);
	clock_fini(&op->clock);
	free(op->staged);
	free(op);
}

void
op_range(struct op *op, uint64_t addr, uint64_t size_bytes, bool is_write)
{
	if (size_bytes > 0 && op->n_ranges < CUSIM_MAX_RANGES)
		op->ranges[op->n_ranges++] = (struct cusim_range){addr, size_bytes, is_write};
}

void
exec_enqueue(struct CUstream_st *s, struct op *op)
{
	op->stream = s;
	op->seq = ++sim.seq;
	op->thread = sim_thread_id();
	for (unsigned i = 0; i < op->n_ranges; i++) {
		if (alloc_find(op->ranges[i].addr))
			op->tracked |= 1u << i;
	}
	if (op->made)
		op->made->op = op;
	if (op->foreign)
		op->foreign->n_foreign++;
	op->ring_idx = report_add(op);
	if (sim.check)
		order_submit(op);
	if (s->tail)
		s->tail->next = op;
	else
		s->head = op;
	s->tail = op;
	sim.report.n_submitted++;
	worker_wake(s->ctx->dev);
}

/* Takes op over, also when it fails. */
CUresult
exec_submit(struct CUstream_st *s, struct op *op)
{
	CUresult r;

	if (s->capture)
		return capture_append(s, op);
	r = s->ctx->is_alive ? capture_check_legacy(s) : CUDA_ERROR_CONTEXT_IS_DESTROYED;
	if (r == CUDA_SUCCESS)
		exec_enqueue(s, op);
	else
		op_free(op);
	return r;
}

struct op *
exec_op_blocker(const struct op *op)
{
	const struct CUstream_st *s = op->stream;

	if (op != s->head)
		return s->head;
	if (op->kind == CUSIM_OP_EVENT_WAIT && op->waited) {
		struct op *blocker = record_blocker(op->waited);

		if (blocker)
			return blocker;
	}
	if (s->kind == STREAM_NON_BLOCKING)
		return NULL;
	if (s->kind != STREAM_LEGACY) {
		struct op *head = s->ctx->legacy->head;

		return head && head->seq < op->seq ? head : NULL;
	}
	for (const struct CUstream_st *t = s->ctx->streams; t; t = t->next) {
		if (t != s && t->kind != STREAM_NON_BLOCKING && t->head && t->head->seq < op->seq)
			return t->head;
	}
	return NULL;
}

/* The operation would complete if it were run now. Starts kernels that spin. */
static bool
can_complete(struct op *op)
{
	if (op->state == OP_DETACHED || exec_op_blocker(op))
		return false;
	if (op->kind == CUSIM_OP_WAIT_VALUE)
		return perform_value_is_reached(op);
	if (op->kind == CUSIM_OP_KERNEL)
		return perform_spin_is_over(op);
	return true;
}

struct op *
exec_oldest_ready(const struct CUstream_st *only)
{
	struct op *best = NULL;

	for (const struct CUctx_st *ctx = sim.contexts; ctx; ctx = ctx->next) {
		for (const struct CUstream_st *s = ctx->streams; s; s = s->next) {
			if (s->head && (!only || s == only) &&
			    (!best || s->head->seq < best->seq) && can_complete(s->head))
				best = s->head;
		}
	}
	return best;
}

void
exec_complete(struct op *op)
{
	struct CUstream_st *s = op->stream;

	s->head = op->next;
	if (!s->head)
		s->tail = NULL;
	if (op->made)
		record_complete(op->made);
	if (op->foreign)
		op->foreign->n_foreign--;
	sim.seq++;
	sim.report.n_completed++;
	report_complete(op);
	op_free(op);
	stream_free_if_idle(s);
	pthread_cond_broadcast(&sim.cond);
}

/* Run an operation that can complete. True: it did; false: a host function went to its thread. */
bool
exec_run(struct op *op)
{
	if (op->kind == CUSIM_OP_HOST_FUNC)
		return worker_run_callback(op);
	perform(op);
	exec_complete(op);
	return true;
}

/* Move the clock to the end of the timed spin that ends first. False when there is none. */
bool
exec_skip_time(void)
{
	uint64_t first_ns = UINT64_MAX;

	for (const struct CUctx_st *ctx = sim.contexts; ctx; ctx = ctx->next) {
		for (const struct CUstream_st *s = ctx->streams; s; s = s->next) {
			if (s->head && s->head->kind == CUSIM_OP_KERNEL &&
			    s->head->state == OP_STARTED && s->head->spin.end_ns < first_ns)
				first_ns = s->head->spin.end_ns;
		}
	}
	if (first_ns == UINT64_MAX)
		return false;
	if (first_ns > sim.clock_ns)
		sim.clock_ns = first_ns;
	return true;
}

/* Wait a little for something that no operation brings about: a flag, another thread. */
void
exec_poll(void)
{
	struct timespec at;

	clock_gettime(CLOCK_REALTIME, &at);
	at.tv_nsec += POLL_NS;
	if (at.tv_nsec >= 1000000000) {
		at.tv_nsec -= 1000000000;
		at.tv_sec++;
	}
	pthread_cond_timedwait(&sim.cond, &sim.lock, &at);
}

/*
 * One step towards the completion of op, in manual mode. Only what op needs is run, so that a
 * wait shows nothing about other streams; other work runs only when op waits for memory to change.
 */
static void
drive(struct op *op)
{
	struct op *blocker;

	while ((blocker = exec_op_blocker(op)))
		op = blocker;
	if (can_complete(op)) {
		exec_run(op);
		return;
	}
	if (op->kind == CUSIM_OP_KERNEL && op->state == OP_STARTED &&
	    op->spin.end_ns != UINT64_MAX) {
		if (op->spin.end_ns > sim.clock_ns)
			sim.clock_ns = op->spin.end_ns;
		return;
	}
	op = exec_oldest_ready(NULL);
	if (op)
		exec_run(op);
	else if (!exec_skip_time())
		exec_poll();
}

/* Until blocker(arg) finds nothing. Lets the lock go. True when it had to wait. */
bool
exec_wait(struct op *(*blocker)(void *arg), void *arg)
{
	struct op *op;
	bool has_waited = false;

	while ((op = blocker(arg))) {
		has_waited = true;
		if (sim.mode == CUSIM_MANUAL)
			drive(op);
		else
			pthread_cond_wait(&sim.cond, &sim.lock);
	}
	return has_waited;
}

struct stream_point {
	struct CUstream_st *s;
	uint64_t seq;
};

static struct op *
stream_blocker(void *arg)
{
	const struct stream_point *p = arg;

	return p->s->head && p->s->head->seq <= p->seq ? p->s->head : NULL;
}

/* The caller holds a reference to the stream. */
void
exec_wait_stream(struct CUstream_st *s, uint64_t seq)
{
	struct stream_point p = {s, seq};
	struct clock clock = {0};

	if (sim.check)
		order_of_stream(s, &clock);
	exec_wait(stream_blocker, &p);
	order_show(&clock);
	clock_fini(&clock);
}

/*
 * An unfinished operation of the context up to seq. With an owner (a green context), only of the
 * streams made in it. Copies that another context's stream makes without peer access count too.
 */
struct op *
exec_context_blocker(struct CUctx_st *root, struct CUctx_st *owner, uint64_t seq)
{
	for (const struct CUstream_st *s = root->streams; s; s = s->next) {
		if (s->head && s->head->seq <= seq && (!owner || s->owner == owner))
			return s->head;
	}
	for (const struct CUctx_st *ctx = root->n_foreign ? sim.contexts : NULL; ctx;
	     ctx = ctx->next) {
		for (const struct CUstream_st *s = ctx->streams; s; s = s->next) {
			for (struct op *op = s->head; op && op->seq <= seq; op = op->next) {
				if (op->foreign == root)
					return op;
			}
		}
	}
	return NULL;
}

struct context_point {
	struct CUctx_st *root, *owner;
	uint64_t seq;
};

static struct op *
context_blocker(void *arg)
{
	const struct context_point *p = arg;

	return exec_context_blocker(p->root, p->owner, p->seq);
}

/* The host is shown what it waited for while the check is no stricter. True: it had to wait. */
static bool
wait_context(struct CUctx_st *root, struct CUctx_st *owner, uint64_t seq, int max_check)
{
	struct context_point p = {root, owner, seq};
	struct clock clock = {0};
	bool has_waited;

	if (sim.check && sim.check <= max_check)
		order_of_context(root, owner, &clock);
	has_waited = exec_wait(context_blocker, &p);
	order_show(&clock);
	clock_fini(&clock);
	return has_waited;
}

void
exec_wait_context(struct CUctx_st *root, struct CUctx_st *owner, uint64_t seq)
{
	wait_context(root, owner, seq, CUSIM_CHECK_FREES_SHOW_NOTHING);
}

/* As the driver's frees do: for all work of the context that owns the memory. */
void
exec_wait_free(struct CUctx_st *ctx)
{
	sim.report.n_free_waits += wait_context(ctx, NULL, sim.seq, CUSIM_CHECK_ON);
}

/* Complete what the stream holds without running it: its context is gone. */
void
exec_drop(struct CUstream_st *s)
{
	s->refs++;
	while (s->head) {
		if (s->head->state == OP_DETACHED)
			pthread_cond_wait(&sim.cond, &sim.lock);
		else
			exec_complete(s->head);
	}
	s->refs--;
}

void
cusim_set_mode(int mode)
{
	pthread_mutex_lock(&sim.lock);
	sim.mode = mode;
	for (int i = 0; i < sim.n_devices && mode == CUSIM_AUTO; i++)
		worker_wake(&sim.devices[i]);
	pthread_cond_broadcast(&sim.cond);
	pthread_mutex_unlock(&sim.lock);
}

int
cusim_step(void *handle, int n)
{
	struct CUstream_st *s = NULL;
	struct op *op;
	int n_run = 0;

	pthread_mutex_lock(&sim.lock);
	if (!handle || stream_resolve(E_cuStreamQuery, handle, &s) == CUDA_SUCCESS) {
		while (n_run < n && (op = exec_oldest_ready(s)))
			n_run += exec_run(op);
	}
	pthread_mutex_unlock(&sim.lock);
	return n_run;
}

int
cusim_run_all(void)
{
	struct op *op;
	int n_run = 0;

	pthread_mutex_lock(&sim.lock);
	do {
		while ((op = exec_oldest_ready(NULL)))
			n_run += exec_run(op);
	} while (exec_skip_time());
	pthread_mutex_unlock(&sim.lock);
	return n_run;
}

uint64_t
cusim_clock_ns(void)
{
	uint64_t ns;

	pthread_mutex_lock(&sim.lock);
	ns = sim.clock_ns;
	pthread_mutex_unlock(&sim.lock);
	return ns;
}

void
cusim_advance_ns(uint64_t ns)
{
	pthread_mutex_lock(&sim.lock);
	sim.clock_ns += ns;
	pthread_cond_broadcast(&sim.cond);
	pthread_mutex_unlock(&sim.lock);
}
