/* SPDX-License-Identifier: MIT */
#include "tests/sim/sim_internal.h"

#include <signal.h>

/*
 * Threads of the device in automatic mode: one worker a device, and one that runs host functions,
 * so that a host function which waits for another stream holds up nobody. All run with every
 * signal blocked and live as long as the process.
 */

static bool has_callback_thread;
static struct op *callbacks[1024]; /* detached operations, oldest first */
static size_t n_callbacks;

/* The device's oldest operation that can complete; *ret_waits: some run and do not end yet. */
static struct op *
next_of_device(const struct device *dev, bool *ret_waits)
{
	struct op *best = NULL, *op;

	*ret_waits = false;
	for (const struct CUctx_st *ctx = sim.contexts; ctx; ctx = ctx->next) {
		for (const struct CUstream_st *s = ctx->dev == dev ? ctx->streams : NULL; s;
		     s = s->next) {
			if (!s->head)
				continue;
			op = exec_oldest_ready(s);
			if (op && (!best || op->seq < best->seq))
				best = op;
			else if (!op && (s->head->kind == CUSIM_OP_KERNEL ||
					 s->head->kind == CUSIM_OP_WAIT_VALUE))
				*ret_waits = true;
		}
	}
	return best;
}

static void *
worker_main(void *arg)
{
	struct device *dev = arg;
	bool waits;

	pthread_mutex_lock(&sim.lock);
	for (;;) {
		struct op *op = sim.mode == CUSIM_AUTO ? next_of_device(dev, &waits) : NULL;

		if (op)
			exec_run(op);
		else if (sim.mode == CUSIM_AUTO && waits && exec_skip_time())
			pthread_cond_broadcast(&sim.cond);
		else if (sim.mode == CUSIM_AUTO && waits)
			exec_poll();
		else
			pthread_cond_wait(&sim.cond, &sim.lock);
	}
	return NULL;
}

static bool
start_thread(void *(*fn)(void *arg), void *arg)
{
	sigset_t all, old;
	pthread_t thread;
	int r;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	r = pthread_create(&thread, NULL, fn, arg);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (r == 0)
		pthread_detach(thread);
	return r == 0;
}

void
worker_wake(struct device *dev)
{
	if (sim.mode == CUSIM_AUTO && !dev->has_worker)
		dev->has_worker = start_thread(worker_main, dev);
	pthread_cond_broadcast(&sim.cond);
}

static void
call(struct op *op)
{
	const struct op_host host = op->host;
	CUresult status = op->stream->ctx->sticky;

	op->state = OP_DETACHED;
	pthread_mutex_unlock(&sim.lock);
	sim_thread.in_host_func = true;
	sim_thread.host_op = op;
	if (host.callback)
		host.callback(host.stream, status, host.arg);
	else
		host.fn(host.arg);
	sim_thread.in_host_func = false;
	sim_thread.host_op = NULL;
	pthread_mutex_lock(&sim.lock);
	exec_complete(op);
}

static void *
callback_main(void *arg)
{
	(void)arg;
	pthread_mutex_lock(&sim.lock);
	for (;;) {
		if (n_callbacks == 0) {
			pthread_cond_wait(&sim.cond, &sim.lock);
			continue;
		}
		struct op *op = callbacks[0];

		n_callbacks--;
		for (size_t i = 0; i < n_callbacks; i++)
			callbacks[i] = callbacks[i + 1];
		call(op);
	}
	return NULL;
}

/* In manual mode the thread that drives the device runs it. True when it is complete. */
bool
worker_run_callback(struct op *op)
{
	if (sim.mode == CUSIM_AUTO && !has_callback_thread)
		has_callback_thread = start_thread(callback_main, NULL);
	if (sim.mode == CUSIM_MANUAL || !has_callback_thread ||
	    n_callbacks == sizeof(callbacks) / sizeof(callbacks[0])) {
		call(op);
		return true;
	}
	op->state = OP_DETACHED;
	callbacks[n_callbacks++] = op;
	pthread_cond_broadcast(&sim.cond);
	return false;
}

/* Only the forking thread exists in a child. */
void
worker_after_fork(void)
{
	has_callback_thread = false;
	n_callbacks = 0;
	for (int i = 0; i < SIM_MAX_DEVICES; i++)
		sim.devices[i].has_worker = false;
}
