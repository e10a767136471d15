/* SPDX-License-Identifier: MIT */
#include "tests/order/order.h"

/*
 * The order that the program has made, and making more of it. Vector clocks: a stream comes after
 * so many operations of each other stream of its actor. Streams of other actors need no clock: what
 * moves between actors moves with an event or after a wait.
 */

static void
raise(uint32_t *clock, uint32_t to)
{
	if (*clock < to)
		*clock = to;
}

static bool
is_blocking(const struct stream *s)
{
	return s->kind == PER_THREAD || s->kind == BLOCKING;
}

/* The legacy stream comes after the blocking ones of its context, and they after it. */
static bool
is_implicit(const struct stream *s, const struct stream *other)
{
	return s->context == other->context && ((s->kind == LEGACY && is_blocking(other)) ||
						(is_blocking(s) && other->kind == LEGACY));
}

static void
join(struct actor *a, struct stream *s, int other)
{
	const struct stream *o = &a->streams[other];

	for (int i = 0; i < N_STREAMS; i++)
		raise(&s->seen[i], o->seen[i]);
	raise(&s->seen[other], o->clock);
	s->is_tainted |= o->is_tainted;
}

static void
join_all(struct actor *a, int stream)
{
	struct stream *s = &a->streams[stream];

	for (int i = 0; i < N_STREAMS; i++) {
		raise(&s->seen[i], a->known[i]);
		if (i != stream && is_implicit(s, &a->streams[i]))
			join(a, s, i);
	}
}

/* One more operation is in the stream. */
void
model_submit(struct actor *a, int stream)
{
	join_all(a, stream);
	a->streams[stream].clock++;
}

bool
model_may_wait(const struct actor *a)
{
	return !a->window.is_open && a->n_locked_steps == 0;
}

/* The stream waits for what another one holds now. */
void
model_wait(struct actor *a, int stream, int other)
{
	const CUevent event = call_record(a, other);
	const struct at at = call_at(a, stream);

	if (program.is_traced)
		fprintf(stderr, "trace: thread %d stream %d waits for stream %d\n", a->number,
			stream, other);
	CALL_AT(a, at, cuStreamWaitEvent, at.handle, event, 0);
	join(a, &a->streams[stream], other);
	model_submit(a, stream);
	CALL(a, cuEventDestroy_v2, event);
}

/* By a wait of the stream or, now and then, of the host. */
void
model_order(struct actor *a, int stream, int other)
{
	CUevent event;

	if (!model_may_wait(a) || !one_in(a, 6)) {
		model_wait(a, stream, other);
	} else if (one_in(a, 2)) {
		const struct at at = call_at(a, other);

		CALL_AT(a, at, cuStreamSynchronize, at.handle);
		model_host_knows(a, other);
	} else {
		event = call_record(a, other);
		CALL(a, cuEventSynchronize, event);
		model_host_knows(a, other);
		CALL(a, cuEventDestroy_v2, event);
	}
}

/* Order the stream's next operation after whatever touches the block. */
void
model_need(struct actor *a, int stream, const struct block *block, bool is_write)
{
	join_all(a, stream);
	for (int i = 0; i < N_STREAMS; i++) {
		uint32_t need = block->touches[i].write;

		if (is_write)
			raise(&need, block->touches[i].read);
		if (i != stream && need > a->streams[stream].seen[i] && need > a->known[i])
			model_order(a, stream, i);
	}
}

static void
trace(const struct actor *a, const char *what, int stream, const struct block *block)
{
	if (program.is_traced)
		fprintf(stderr, "trace: thread %d %s 0x%llx+%zu in stream %d of context %d\n",
			a->number, what, block->address, block->n_bytes, stream,
			a->streams[stream].context);
}

void
model_read(struct actor *a, int stream, struct block *block, bool is_kernel)
{
	struct touch *touch = &block->touches[stream];

	(void)is_kernel;
	trace(a, "reads", stream, block);
	touch->read = a->streams[stream].clock;
	touch->unseen = a->streams[stream].clock;
}

/* It comes after all others: they need not be remembered. */
void
model_write(struct actor *a, int stream, struct block *block, bool is_kernel)
{
	const uint32_t clock = a->streams[stream].clock;

	trace(a, "writes", stream, block);
	memset(block->touches, 0, sizeof(block->touches));
	block->touches[stream].write = clock;
	block->touches[stream].unseen = is_kernel ? clock : 0;
}

/* The host has waited for the stream. Only for the legacy stream is that a wait for others, too. */
void
model_host_knows(struct actor *a, int stream)
{
	if (a->streams[stream].kind == LEGACY)
		join_all(a, stream);
	for (int i = 0; i < N_STREAMS; i++)
		raise(&a->known[i], a->streams[stream].seen[i]);
	raise(&a->known[stream], a->streams[stream].clock);
}

/* At once, or stream by stream. */
void
model_wait_for_context(struct actor *a, int context)
{
	struct at at;

	call_current(a, context);
	if (a->may_wait_for_contexts)
		CALL(a, cuCtxSynchronize);
	for (int i = 0; i < N_STREAMS; i++) {
		if (a->streams[i].context != context)
			continue;
		at = call_at(a, i);
		if (!a->may_wait_for_contexts)
			CALL_AT(a, at, cuStreamSynchronize, at.handle);
		model_host_knows(a, i);
	}
}

/* May the CPU touch it: nothing unfinished does, as far as the CPU has waited or a free has. */
bool
model_host_may(const struct actor *a, const struct block *block, bool is_write)
{
	for (int i = 0; i < N_STREAMS; i++) {
		const struct touch *touch = &block->touches[i];
		uint32_t need = touch->write;

		if (is_write)
			raise(&need, touch->read);
		if (need > a->known[i] && (need > a->visible[i] || touch->unseen > a->known[i]))
			return false;
	}
	return true;
}

/* The stream goes; another one comes after all it holds and stands for it. */
void
model_move_touches(struct actor *a, int from, int to)
{
	const uint32_t clock = a->streams[to].clock;

	for (int i = 0; i < N_BLOCKS; i++) {
		struct touch *old = &a->blocks[i].touches[from], *new = &a->blocks[i].touches[to];

		if (old->write > a->known[from])
			new->write = clock;
		if (old->read > a->known[from])
			new->read = clock;
		if (old->write > a->known[from] || old->read > a->known[from])
			new->unseen = clock;
		*old = (struct touch){0};
	}
	for (int i = 0; i < N_STREAMS; i++)
		a->streams[i].seen[from] = 0;
	a->known[from] = a->visible[from] = 0;
}

/* No stream of the context waits, directly or not, for the kernel that spins now. */
bool
model_is_untainted(const struct actor *a, int context)
{
	for (int i = 0; i < N_STREAMS; i++) {
		if (a->streams[i].is_tainted &&
		    (a->streams[i].context == context || is_blocking(&a->streams[i]) ||
		     a->streams[i].kind == LEGACY))
			return false;
	}
	return true;
}

/* A stream of the context (-1: of any) that may be given work that waits for other streams. */
int
pick_stream(struct actor *a, int context)
{
	for (;;) {
		const bool is_any = !a->is_narrow || one_in(a, 16);
		const int i = (int)random_below(a, N_STREAMS);

		if ((is_any || a->streams[i].kind == LEGACY) &&
		    (context < 0 || a->streams[i].context == context) &&
		    !(a->window.is_open && a->window.releaser == i))
			return i;
	}
}

bool
block_is_reachable(const struct block *block, int context)
{
	return block->kind != NO_BLOCK &&
	       (block->context == context || (block->kind == PINNED && block->is_portable));
}

/* A block that streams of the context may touch, or NULL. */
struct block *
pick_block(struct actor *a, int context, bool is_defined)
{
	const unsigned first = random_below(a, N_BLOCKS);

	for (unsigned i = 0; i < N_BLOCKS; i++) {
		struct block *block = &a->blocks[(first + i) % N_BLOCKS];

		if (block_is_reachable(block, context) && (block->is_defined || !is_defined))
			return block;
	}
	return NULL;
}
