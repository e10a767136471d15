/* SPDX-License-Identifier: MIT */
#include "tests/order/order.h"

/* Waits and questions, streams that come and go, host functions, and kernels that spin. */

enum {
	N_WINDOW_STEPS = 12,
	N_LOCKED_STEPS = 6,
	N_HELD_FLAGS = 4096,
	SPIN_NS = 50000,
};

/* Words that a thread of its own sets, soon. */
static struct {
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t cond;
	uint32_t *flags[N_HELD_FLAGS];
	unsigned n_flags;
	bool is_over;
} releaser = {.lock = PTHREAD_MUTEX_INITIALIZER, .cond = PTHREAD_COND_INITIALIZER};

static void
set_flag(uint32_t *flag)
{
	__atomic_store_n(flag, 1, __ATOMIC_RELEASE);
}

static void *
release_flags(void *arg)
{
	uint32_t *flag;

	(void)arg;
	pthread_mutex_lock(&releaser.lock);
	while (releaser.n_flags > 0 || !releaser.is_over) {
		if (releaser.n_flags == 0) {
			pthread_cond_wait(&releaser.cond, &releaser.lock);
			continue;
		}
		flag = releaser.flags[--releaser.n_flags];
		pthread_mutex_unlock(&releaser.lock);
		sched_yield(); /* so that a free is sometimes under way by then */
		set_flag(flag);
		pthread_mutex_lock(&releaser.lock);
	}
	pthread_mutex_unlock(&releaser.lock);
	return NULL;
}

void
order_release_init(void)
{
	if (pthread_create(&releaser.thread, NULL, release_flags, NULL) != 0)
		exit(2);
}

void
order_release_end(void)
{
	pthread_mutex_lock(&releaser.lock);
	releaser.is_over = true;
	pthread_cond_signal(&releaser.cond);
	pthread_mutex_unlock(&releaser.lock);
	pthread_join(releaser.thread, NULL);
}

static void
release_soon(uint32_t *flag)
{
	pthread_mutex_lock(&releaser.lock);
	if (releaser.n_flags == N_HELD_FLAGS)
		set_flag(flag);
	else
		releaser.flags[releaser.n_flags++] = flag;
	pthread_cond_signal(&releaser.cond);
	pthread_mutex_unlock(&releaser.lock);
}

static int
pick_free_running(struct actor *a, int context, int other_than)
{
	for (;;) {
		const int i = pick_stream(a, context);

		if (i != other_than &&
		    (a->streams[i].kind == NON_BLOCKING || a->streams[i].kind == GREEN))
			return i;
	}
}

/* A kernel or a wait for a value, until the word is 1. */
static void
spin_on(struct actor *a, int stream, CUdeviceptr flag)
{
	const struct at at = call_at(a, stream);

	if (one_in(a, 4))
		CALL_AT(a, at, cuStreamWaitValue32_v2, at.handle, flag, 1,
			CU_STREAM_WAIT_VALUE_GEQ);
	else
		call_spin(a, at, flag, 0);
	model_submit(a, stream);
}

static void
write_flag(struct actor *a, int stream, CUdeviceptr flag, enum release_way way)
{
	const struct at at = call_at(a, stream);

	/* To the checker a plain write beside a kernel that reads is a race, flag or not. */
	if (program.is_checked)
		way = BY_WRITE_VALUE;
	if (way == BY_FILL)
		call_fill(a, at, flag, 1, 4, false);
	else if (way == BY_SET)
		CALL_AT(a, at, cuMemsetD32Async, flag, 1, 1, at.handle);
	else if (way == BY_COPY)
		CALL_AT(a, at, cuMemcpyAsync, flag, program.ones[a->streams[stream].context], 4,
			at.handle);
	else
		CALL_AT(a, at, cuStreamWriteValue32_v2, at.handle, flag, 1, 0);
	model_submit(a, stream);
}

/* The word is device memory of the context, or pinned. */
static bool
take_flag(struct actor *a, int context, bool is_pinned, CUdeviceptr *ret_flag)
{
	const unsigned i = a->n_flags_used;

	if (i == N_FLAGS)
		return false;
	a->n_flags_used++;
	*ret_flag = is_pinned ? (CUdeviceptr)(uintptr_t)&a->host_flags[i]
			      : a->flags[context] + i * sizeof(uint32_t);
	return true;
}

/* Everything that was taint by the kernel will end now. */
static void
clear_taint(struct actor *a)
{
	for (int i = 0; i < N_STREAMS; i++)
		a->streams[i].is_tainted = false;
}

static void
close_window(struct actor *a)
{
	struct window *w = &a->window;

	if (w->way == BY_STORE)
		set_flag((uint32_t *)(uintptr_t)w->flag);
	else
		write_flag(a, w->releaser, w->flag, w->way);
	if (w->is_pair)
		spin_on(a, w->releaser, w->other_flag);
	*w = (struct window){0};
	clear_taint(a);
}

/* A kernel that another stream, or the host, releases some steps later. */
static void
open_window(struct actor *a, bool is_pair)
{
	struct window *w = &a->window;
	const bool is_pinned = is_pair || one_in(a, 2);
	int spinner = pick_stream(a, is_pair ? 0 : -1), context = a->streams[spinner].context;

	if (is_pair)
		spinner = pick_free_running(a, 0, NO_STREAM);
	*w = (struct window){
		.n_steps_left = 1 + random_below(a, N_WINDOW_STEPS),
		.spinner = spinner,
		.way = random_below(a, is_pinned && !is_pair ? BY_STORE + 1 : BY_STORE),
		.is_pair = is_pair,
	};
	w->releaser = pick_free_running(a, is_pair ? 1 : is_pinned ? -1 : context, spinner);
	if (!take_flag(a, context, is_pinned, &w->flag) ||
	    (is_pair && !take_flag(a, context, true, &w->other_flag)))
		return;
	if (is_pair)
		write_flag(a, spinner, w->other_flag, BY_SET);
	spin_on(a, spinner, w->flag);
	a->streams[spinner].is_tainted = true;
	w->is_open = true;
}

/* Released by another thread, at any time: whoever waits natively waits for that alone. */
static bool
spin_for_thread(struct actor *a)
{
	CUdeviceptr flag;

	if (!take_flag(a, 0, true, &flag))
		return false;
	spin_on(a, pick_stream(a, -1), flag);
	release_soon((uint32_t *)(uintptr_t)flag);
	return true;
}

bool
step_window(struct actor *a)
{
	if (a->window.is_open || a->n_flags_used + 2 > N_FLAGS)
		return false;
	if (one_in(a, 3))
		return spin_for_thread(a);
	open_window(a, program.n_actors == 1 && one_in(a, 4));
	return true;
}

/* All words are used: none is in use, so all are 0 again. Waits. */
static void
renew_flags(struct actor *a)
{
	work_flush(a);
	memset(a->host_flags, 0, N_FLAGS * sizeof(uint32_t));
	for (int c = 0; c < N_CONTEXTS; c++) {
		call_current(a, c);
		CALL(a, cuMemsetD8_v2, a->flags[c], 0, N_FLAGS * sizeof(uint32_t));
		CALL(a, cuStreamSynchronize, CU_STREAM_LEGACY);
	}
	a->n_flags_used = 0;
}

/* At the beginning of each step. */
void
order_tick(struct actor *a)
{
	if (a->window.is_open && a->window.n_steps_left-- == 0)
		close_window(a);
	if (a->n_locked_steps > 0 && --a->n_locked_steps == 0)
		pthread_mutex_unlock(&program.host_lock);
	if (a->n_flags_used + 2 > N_FLAGS && model_may_wait(a))
		renew_flags(a);
}

/* Nothing is held back any more. */
void
order_settle(struct actor *a)
{
	if (a->window.is_open)
		close_window(a);
	if (a->n_locked_steps > 0)
		pthread_mutex_unlock(&program.host_lock);
	a->n_locked_steps = 0;
}

/*
 * Kernels in two contexts that each wait until the other has started: two actors submit one each,
 * first thing in a round. Which actors do so all know from the seed and the round.
 */
void
order_collective(struct actor *a, uint64_t round)
{
	const int partner = a->number ^ 1, context = a->number % N_CONTEXTS;
	uint32_t *own = &program.pair_flags[round % N_FLAGS * N_ACTORS_MAX + (unsigned)a->number];
	uint32_t *its = &program.pair_flags[round % N_FLAGS * N_ACTORS_MAX + (unsigned)partner];
	uint64_t coin = (program.seed ^ round) * 0x9e3779b97f4a7c15u;
	int stream;

	if (partner >= program.n_actors || (coin >> 32) % 3 != 0 || round >= N_FLAGS)
		return;
	stream = pick_free_running(a, context, NO_STREAM);
	write_flag(a, stream, (CUdeviceptr)(uintptr_t)its, one_in(a, 2) ? BY_FILL : BY_SET);
	spin_on(a, stream, (CUdeviceptr)(uintptr_t)own);
}

bool
step_spin(struct actor *a)
{
	const int stream = pick_stream(a, -1);

	call_spin(a, call_at(a, stream), 0, 1 + random_below(a, SPIN_NS));
	model_submit(a, stream);
	return true;
}

bool
step_sync(struct actor *a)
{
	const int stream = pick_stream(a, -1), context = a->streams[stream].context;
	struct at at;
	CUevent event;

	if (!model_may_wait(a))
		return false;
	switch (random_below(a, 4)) {
	case 0:
		model_wait_for_context(a, context);
		return true;
	case 1:
		event = call_record(a, stream);
		CALL(a, cuEventSynchronize, event);
		CALL(a, cuEventDestroy_v2, event);
		break;
	default:
		at = call_at(a, stream);
		CALL_AT(a, at, cuStreamSynchronize, at.handle);
	}
	model_host_knows(a, stream);
	return true;
}

/* The answer depends on time, and nothing depends on the answer. */
bool
step_query(struct actor *a)
{
	const int stream = pick_stream(a, -1);
	const struct at at = call_at(a, stream);
	CUevent event;
	CUresult r;

	if (one_in(a, 2)) {
		r = at.is_thread_form ? cuStreamQuery_ptsz(at.handle) : cuStreamQuery(at.handle);
		call_done(a, "cuStreamQuery", CUDA_SUCCESS, r == CUDA_ERROR_NOT_READY ? 0 : r);
		return true;
	}
	event = call_record(a, stream);
	r = cuEventQuery(event);
	call_done(a, "cuEventQuery", CUDA_SUCCESS, r == CUDA_ERROR_NOT_READY ? 0 : r);
	CALL(a, cuEventDestroy_v2, event);
	return true;
}

static void
count_under_lock(void *arg)
{
	(void)arg;
	pthread_mutex_lock(&program.host_lock);
	atomic_fetch_add(&program.n_host_funcs, 1);
	pthread_mutex_unlock(&program.host_lock);
}

bool
step_host_func(struct actor *a)
{
	const int stream = pick_stream(a, -1);
	const struct at at = call_at(a, stream);

	CALL_AT(a, at, cuLaunchHostFunc, at.handle, count_under_lock, NULL);
	model_submit(a, stream);
	return true;
}

/* Hold the lock that host functions need, for some steps that natively wait for nothing. */
bool
step_lock(struct actor *a)
{
	if (a->n_locked_steps > 0)
		return false;
	pthread_mutex_lock(&program.host_lock);
	a->n_locked_steps = 1 + random_below(a, N_LOCKED_STEPS);
	return true;
}

void
order_stream_make(struct actor *a, int stream)
{
	struct stream *s = &a->streams[stream];
	const unsigned flags = s->kind == BLOCKING ? CU_STREAM_DEFAULT : CU_STREAM_NON_BLOCKING;

	s->handle = NULL;
	call_current(a, s->context);
	if (s->kind == GREEN && program.green)
		CALL(a, cuGreenCtxStreamCreate, &s->handle, program.green, flags, 0);
	else if (s->kind != LEGACY && s->kind != PER_THREAD && one_in(a, 2))
		CALL(a, cuStreamCreateWithPriority, &s->handle, flags, 0);
	else if (s->kind != LEGACY && s->kind != PER_THREAD)
		CALL(a, cuStreamCreate, &s->handle, flags);
	atomic_store(&program.handles[a->number * N_STREAMS + stream], s->handle);
}

/* Destroy a stream, with work in it, and make another one, maybe of the same handle. */
bool
step_stream(struct actor *a)
{
	const int stream = pick_stream(a, -1);
	struct stream *s = &a->streams[stream];
	int heir;

	if (s->kind == LEGACY || s->kind == PER_THREAD || s->is_tainted ||
	    (a->window.is_open && a->window.spinner == stream))
		return false;
	do {
		heir = pick_stream(a, s->context);
	} while (heir == stream);
	model_wait(a, heir, stream);
	CALL(a, cuStreamDestroy_v2, s->handle);
	model_move_touches(a, stream, heir);
	*s = (struct stream){.kind = s->kind, .context = s->context};
	order_stream_make(a, stream);
	return true;
}
