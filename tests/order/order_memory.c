/* SPDX-License-Identifier: MIT */
#include "tests/order/order.h"

/*
 * Allocations and frees, in every pair. Before a free nothing is waited for that the driver's free
 * waits for: all work of the context that owns the memory. Work of other contexts comes first.
 */

enum {
	SMALL_BYTES = 256,
	LARGE_BYTES = 3 << 20,
	N_SPARE_BLOCKS = 2, /* for what comes by mail */
};

static size_t
random_size(struct actor *a)
{
	const size_t most = (size_t)SMALL_BYTES << random_below(a, 8);
	const unsigned large = program.limit_bytes ? 8 : 200;

	return one_in(a, large) ? 1 + random_next(a) % LARGE_BYTES : 1 + random_next(a) % most;
}

static struct block *
empty_block(struct actor *a)
{
	struct block *found = NULL;
	unsigned n_empty = 0;

	for (int i = 0; i < N_BLOCKS; i++) {
		if (a->blocks[i].kind == NO_BLOCK) {
			found = &a->blocks[i];
			n_empty++;
		}
	}
	return n_empty > N_SPARE_BLOCKS ? found : NULL;
}

/* Requests that no limit refuses: an actor holds no more than its share of half the limit. */
static bool
has_room(const struct actor *a, size_t n_bytes)
{
	return !program.limit_bytes ||
	       a->live_bytes + n_bytes <= program.limit_bytes / 2 / (unsigned)program.n_actors;
}

static void
alloc_plain(struct actor *a, struct block *block)
{
	const bool is_green = block->context == 0 && one_in(a, 8);

	call_current(a, block->context);
	if (is_green)
		CALL(a, cuCtxSetCurrent, program.green_context);
	CALL(a, cuMemAlloc_v2, &block->address, block->n_bytes);
	if (is_green)
		CALL(a, cuCtxSetCurrent, program.contexts[0]);
}

/*
 * The driver's stream-ordered free is an operation, which in the legacy stream and the blocking
 * ones comes after the other kind's work and before it. The pool submits nothing for one: what a
 * program orders by nothing but such a free is not ordered with the pool, and so another operation
 * follows.
 */
static void
order_legacy(struct actor *a, int stream)
{
	const enum stream_kind kind = a->streams[stream].kind;

	if (kind != NON_BLOCKING && kind != GREEN)
		CALL(a, cuEventDestroy_v2, call_record(a, stream));
}

static void
alloc_async(struct actor *a, struct block *block)
{
	const int stream = pick_stream(a, block->context);
	const struct at at = call_at(a, stream);

	CALL_AT(a, at, cuMemAllocAsync, &block->address, block->n_bytes, at.handle);
	model_submit(a, stream);
	model_write(a, stream, block, true);
}

static void
alloc_pinned(struct actor *a, struct block *block)
{
	void *p = NULL;

	call_current(a, block->context);
	block->is_portable = one_in(a, 2);
	if (block->is_portable || one_in(a, 2))
		CALL(a, cuMemHostAlloc, &p, block->n_bytes,
		     block->is_portable ? CU_MEMHOSTALLOC_PORTABLE : 0);
	else
		CALL(a, cuMemAllocHost_v2, &p, block->n_bytes);
	block->address = (CUdeviceptr)(uintptr_t)p;
}

/* The first kernel on new memory may start early: nothing of the program's own is in its way. */
static void
first_fill(struct actor *a, struct block *block)
{
	const int stream = pick_stream(a, block->context);
	const struct at at = call_at(a, stream);

	block->value = (uint8_t)(1 + random_below(a, 255));
	block->is_defined = true;
	model_submit(a, stream);
	call_fill(a, at, block->address, block->value, block->n_bytes, one_in(a, 2));
	model_write(a, stream, block, true);
}

bool
step_alloc(struct actor *a)
{
	struct block *block = empty_block(a);
	const unsigned way = random_below(a, 16);
	const size_t n_bytes = random_size(a);

	if (!block || !has_room(a, n_bytes))
		return false;
	*block = (struct block){
		.kind = way < 8    ? DEVICE
			: way < 13 ? ASYNC
				   : PINNED,
		.context = one_in(a, 3),
		.n_bytes = n_bytes,
	};
	if (block->kind == DEVICE)
		alloc_plain(a, block);
	else if (block->kind == ASYNC)
		alloc_async(a, block);
	else
		alloc_pinned(a, block);
	a->live_bytes += n_bytes;
	if (block->kind == DEVICE && one_in(a, 2))
		first_fill(a, block);
	return true;
}

/* Work of other contexts on the block: the free does not wait for it. */
static void
settle_foreign(struct actor *a, const struct block *block)
{
	for (int i = 0; i < N_STREAMS; i++) {
		const struct touch *touch = &block->touches[i];

		if (a->streams[i].context != block->context &&
		    (touch->write > a->known[i] || touch->read > a->known[i]))
			model_order(a, pick_stream(a, block->context), i);
	}
}

/* The free is a barrier for what the CPU sees of that context. */
static void
free_plain(struct actor *a, struct block *block)
{
	settle_foreign(a, block);
	call_current(a, (int)random_below(a, N_CONTEXTS));
	if (block->kind == PINNED)
		CALL(a, cuMemFreeHost, (void *)(uintptr_t)block->address);
	else
		CALL(a, cuMemFree_v2, block->address);
	for (int i = 0; i < N_STREAMS; i++) {
		if (a->streams[i].context == block->context && !program.is_barrier_ignored)
			a->visible[i] = a->streams[i].clock;
	}
}

static void
free_async(struct actor *a, struct block *block)
{
	const int stream = pick_stream(a, block->context);
	struct at at;

	model_need(a, stream, block, true);
	at = call_at(a, stream);
	CALL_AT(a, at, cuMemFreeAsync, block->address, at.handle);
	model_submit(a, stream);
	order_legacy(a, stream);
}

void
memory_free(struct actor *a, struct block *block, bool may_wait)
{
	if (program.is_traced)
		fprintf(stderr, "trace: thread %d frees 0x%llx+%zu of context %d\n", a->number,
			block->address, block->n_bytes, block->context);
	graph_forget_block(a, block);
	if (one_in(a, 2))
		work_check(a, block);
	if (block->kind != PINNED && (!may_wait || one_in(a, 3)))
		free_async(a, block);
	else
		free_plain(a, block);
	a->live_bytes -= block->n_bytes;
	*block = (struct block){0};
}

/* While a kernel spins that this actor has yet to release, memory of a context whose streams do
 * not wait for it may be freed: natively that free does not wait for it either. Of one context
 * only, or two actors that do so would wait for each other's kernels. */
static bool
may_free_beside_spin(const struct actor *a, const struct block *block)
{
	return a->n_locked_steps == 0 && (program.n_actors == 1 || block->context == 1) &&
	       model_is_untainted(a, block->context);
}

bool
step_free(struct actor *a)
{
	const unsigned first = random_below(a, N_BLOCKS);
	struct block *block = NULL;
	bool may_wait;

	for (unsigned i = 0; i < N_BLOCKS && !block; i++) {
		block = &a->blocks[(first + i) % N_BLOCKS];
		if (block->kind == NO_BLOCK)
			block = NULL;
	}
	if (!block)
		return false;
	may_wait = model_may_wait(a) || may_free_beside_spin(a, block);
	if (block->kind == PINNED && !may_wait)
		return false;
	/* What has to come before such a free must not itself wait for the kernel. */
	if (!model_may_wait(a) && may_wait) {
		settle_foreign(a, block);
		may_wait = may_free_beside_spin(a, block);
		if (block->kind == PINNED && !may_wait)
			return true;
	}
	memory_free(a, block, may_wait);
	return true;
}

/* Requests that every driver refuses in the same way. */
bool
step_refuse(struct actor *a)
{
	const struct block *block;
	CUdeviceptr address = 0;
	void *p;

	call_current(a, (int)random_below(a, N_CONTEXTS));
	switch (random_below(a, 5)) {
	case 0:
		CALL_STATUS(a, CUDA_ERROR_INVALID_VALUE, cuMemAlloc_v2, &address, 0);
		return true;
	case 1:
		CALL_STATUS(a, CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc_v2, &address,
			    program.limit_bytes ? program.limit_bytes + 1 : (size_t)1 << 50);
		return true;
	case 2:
		CALL_STATUS(a, CUDA_ERROR_INVALID_VALUE, cuMemHostAlloc, &p, 0, 0);
		return true;
	case 3:
		CALL(a, cuMemFree_v2, 0);
		return true;
	default:
		block = pick_block(a, a->context, false);
		if (!block || block->kind == PINNED || block->n_bytes <= 512)
			return false;
		CALL_STATUS(a, CUDA_ERROR_INVALID_VALUE, cuMemFree_v2, block->address + 512);
		return true;
	}
}

/* A context that comes and goes, with work and memory in it at its end. */
bool
step_churn(struct actor *a)
{
	CUcontext context, popped;
	CUdeviceptr blocks[4];
	struct at own = {NULL, true};
	const struct at legacy = {NULL, false};

	if (!model_may_wait(a) || program.limit_bytes || !one_in(a, 4))
		return false;
	CALL(a, cuCtxCreate_v2, &context, 0, 0);
	CALL(a, cuStreamCreate, &own.handle, CU_STREAM_NON_BLOCKING);
	for (int i = 0; i < 4; i++) {
		CALL(a, cuMemAlloc_v2, &blocks[i], (size_t)1000 << i);
		call_spin(a, own, 0, random_below(a, 20000));
		call_fill(a, i % 2 ? legacy : own, blocks[i], 7, (size_t)1000 << i, false);
	}
	CALL(a, cuMemFree_v2, blocks[random_below(a, 4)]);
	if (one_in(a, 2))
		CALL(a, cuStreamDestroy_v2, own.handle);
	CALL(a, cuCtxDestroy_v2, context);
	CALL(a, cuCtxGetCurrent, &popped);
	order_expect(popped == program.contexts[a->context], "thread %d: not its context",
		     a->number);
	return true;
}
