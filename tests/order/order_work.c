/* SPDX-License-Identifier: MIT */
#include "tests/order/order.h"

/* Work on blocks, by the device and by the CPU, and checks of what they hold. */

enum { PAGEABLE_BYTES = 4096 };

static void
complain(struct actor *a, const char *what, const unsigned char *seen, size_t n_bytes,
	 uint8_t value)
{
	size_t n_wrong = 0;

	for (size_t i = 0; i < n_bytes; i++) {
		n_wrong += seen[i] != value;
		a->checksum = (a->checksum ^ seen[i]) * 0x100000001b3;
	}
	if (n_wrong > 0 && a->n_wrong++ < 10)
		order_expect(false,
			     "thread %d step %llu: %zu of %zu bytes of %s are not what was written",
			     a->number, (unsigned long long)a->n_steps, n_wrong, n_bytes, what);
}

bool
step_fill(struct actor *a)
{
	const int stream = pick_stream(a, -1);
	struct block *block = pick_block(a, a->streams[stream].context, false);
	const bool is_kernel = one_in(a, 2);
	struct at at;

	if (!block)
		return false;
	model_need(a, stream, block, true);
	at = call_at(a, stream);
	block->value = (uint8_t)(1 + random_below(a, 255));
	block->is_defined = true;
	if (is_kernel)
		call_fill(a, at, block->address, block->value, block->n_bytes, false);
	else if (block->n_bytes % 4 == 0 && one_in(a, 2))
		CALL_AT(a, at, cuMemsetD32Async, block->address, block->value * 0x01010101u,
			block->n_bytes / 4, at.handle);
	else
		CALL_AT(a, at, cuMemsetD8Async, block->address, block->value, block->n_bytes,
			at.handle);
	model_submit(a, stream);
	model_write(a, stream, block, is_kernel);
	return true;
}

/* By the call that fits where the two lie, or one that fits any. */
static void
copy_by_call(struct actor *a, struct at at, const struct block *to, const struct block *from)
{
	void *const to_host = (void *)(uintptr_t)to->address;
	const void *const from_host = (const void *)(uintptr_t)from->address;

	if (one_in(a, 3) || (to->kind == PINNED && from->kind == PINNED))
		CALL_AT(a, at, cuMemcpyAsync, to->address, from->address, to->n_bytes, at.handle);
	else if (to->kind == PINNED)
		CALL_AT(a, at, cuMemcpyDtoHAsync_v2, to_host, from->address, to->n_bytes,
			at.handle);
	else if (from->kind == PINNED)
		CALL_AT(a, at, cuMemcpyHtoDAsync_v2, to->address, from_host, to->n_bytes,
			at.handle);
	else
		CALL_AT(a, at, cuMemcpyDtoDAsync_v2, to->address, from->address, to->n_bytes,
			at.handle);
}

bool
step_copy(struct actor *a)
{
	const int stream = pick_stream(a, -1);
	const int context = a->streams[stream].context;
	struct block *to = pick_block(a, context, false), *from = pick_block(a, context, true);
	const bool is_kernel = one_in(a, 3);
	struct at at;

	if (!to || !from || to == from || to->n_bytes > from->n_bytes)
		return false;
	model_need(a, stream, to, true);
	model_need(a, stream, from, false);
	at = call_at(a, stream);
	if (is_kernel)
		call_copy(a, at, to->address, from->address, to->n_bytes);
	else
		copy_by_call(a, at, to, from);
	model_submit(a, stream);
	model_read(a, stream, from, is_kernel);
	model_write(a, stream, to, is_kernel);
	to->value = from->value;
	to->is_defined = true;
	return true;
}

/* Between two contexts, in a stream of either. */
bool
step_peer(struct actor *a)
{
	const int context = (int)random_below(a, N_CONTEXTS), stream = pick_stream(a, -1);
	struct block *to = pick_block(a, context, false), *from = pick_block(a, !context, true);
	struct at at;

	if (!to || !from || to == from || to->n_bytes > from->n_bytes || to->kind == PINNED ||
	    from->kind == PINNED)
		return false;
	model_need(a, stream, to, true);
	model_need(a, stream, from, false);
	at = call_at(a, stream);
	CALL_AT(a, at, cuMemcpyPeerAsync, to->address, program.contexts[context], from->address,
		program.contexts[!context], to->n_bytes, at.handle);
	model_submit(a, stream);
	model_read(a, stream, from, false);
	model_write(a, stream, to, false);
	to->value = from->value;
	to->is_defined = true;
	return true;
}

/* Read back all results so far. Waits. */
void
work_flush(struct actor *a)
{
	static __thread unsigned char seen[N_CONTEXTS][(size_t)N_RESULTS * RESULT_BYTES];

	for (int c = 0; c < N_CONTEXTS; c++) {
		model_wait_for_context(a, c);
		call_current(a, c);
		CALL(a, cuMemcpyDtoH_v2, seen[c], a->results[c],
		     (size_t)a->n_results * RESULT_BYTES);
	}
	for (unsigned i = 0; i < a->n_results; i++)
		complain(a, "a block read by a kernel",
			 &seen[a->expected[i].context][(size_t)i * RESULT_BYTES], RESULT_BYTES,
			 a->expected[i].value);
	a->n_results = 0;
}

/* A kernel copies some of the block to where it is looked at later. */
void
work_check(struct actor *a, struct block *block)
{
	const int stream = pick_stream(a, block->context);
	CUdeviceptr to;
	struct at at;

	if (!block->is_defined || block->n_bytes < RESULT_BYTES || a->n_results == N_RESULTS)
		return;
	model_need(a, stream, block, false);
	at = call_at(a, stream);
	to = a->results[block->context] + (CUdeviceptr)a->n_results * RESULT_BYTES;
	call_copy(a, at, to, block->address + random_next(a) % (block->n_bytes - RESULT_BYTES + 1),
		  RESULT_BYTES);
	model_submit(a, stream);
	model_read(a, stream, block, true);
	a->expected[a->n_results++] = (struct result){block->context, block->value};
}

bool
step_check(struct actor *a)
{
	struct block *block = pick_block(a, (int)random_below(a, N_CONTEXTS), true);

	if (a->n_results == N_RESULTS) {
		if (!model_may_wait(a))
			return false;
		work_flush(a);
		return true;
	}
	if (!block)
		return false;
	work_check(a, block);
	return true;
}

static struct block *
pinned_block(struct actor *a, bool is_defined)
{
	const unsigned first = random_below(a, N_BLOCKS);

	for (unsigned i = 0; i < N_BLOCKS; i++) {
		struct block *block = &a->blocks[(first + i) % N_BLOCKS];

		if (block->kind == PINNED && (block->is_defined || !is_defined))
			return block;
	}
	return NULL;
}

/* Let the host come after the block's work. Nothing is done if a free has waited for what of it
 * the CPU can see. */
static bool
host_may(struct actor *a, const struct block *block, bool is_write)
{
	struct at at;

	for (int i = 0; i < N_STREAMS && !model_host_may(a, block, is_write); i++) {
		if (block->touches[i].write <= a->known[i] && block->touches[i].read <= a->known[i])
			continue;
		if (!model_may_wait(a))
			return false;
		at = call_at(a, i);
		CALL_AT(a, at, cuStreamSynchronize, at.handle);
		model_host_knows(a, i);
	}
	return true;
}

bool
step_host_write(struct actor *a)
{
	struct block *block = pinned_block(a, false);

	if (!block || !host_may(a, block, true))
		return false;
	block->value = (uint8_t)(1 + random_below(a, 255));
	block->is_defined = true;
	call_cpu_access((void *)(uintptr_t)block->address, block->n_bytes, true);
	memset((void *)(uintptr_t)block->address, block->value, block->n_bytes);
	memset(block->touches, 0, sizeof(block->touches));
	return true;
}

bool
step_host_read(struct actor *a)
{
	struct block *block = pinned_block(a, true);

	if (!block || !host_may(a, block, false))
		return false;
	call_cpu_access((void *)(uintptr_t)block->address, block->n_bytes, false);
	complain(a, "pinned memory", (void *)(uintptr_t)block->address, block->n_bytes,
		 block->value);
	return true;
}

/* Copies between the device and ordinary memory, in stream 0 of either kind. */
bool
step_pageable(struct actor *a)
{
	const int context = (int)random_below(a, N_CONTEXTS);
	struct block *block = pick_block(a, context, false);
	const enum stream_kind kind = one_in(a, 2) ? LEGACY : PER_THREAD;
	const bool is_read = one_in(a, 2);
	struct at at = {NULL, kind == PER_THREAD};
	int stream = 0;

	if (!model_may_wait(a) || !block || block->kind == PINNED ||
	    block->n_bytes > PAGEABLE_BYTES || (is_read && !block->is_defined))
		return false;
	while (a->streams[stream].kind != kind || a->streams[stream].context != context)
		stream++;
	model_need(a, stream, block, !is_read);
	call_current(a, context);
	if (is_read) {
		if (at.is_thread_form)
			CALL(a, cuMemcpyDtoH_v2_ptds, a->pageable, block->address, block->n_bytes);
		else
			CALL(a, cuMemcpyDtoH_v2, a->pageable, block->address, block->n_bytes);
		model_submit(a, stream);
		model_host_knows(a, stream);
		complain(a, "a block", a->pageable, block->n_bytes, block->value);
		return true;
	}
	block->value = (uint8_t)(1 + random_below(a, 255));
	block->is_defined = true;
	memset(a->pageable, block->value, block->n_bytes);
	if (at.is_thread_form)
		CALL(a, cuMemcpyHtoD_v2_ptds, block->address, a->pageable, block->n_bytes);
	else
		CALL(a, cuMemcpyHtoD_v2, block->address, a->pageable, block->n_bytes);
	model_submit(a, stream);
	model_write(a, stream, block, true);
	return true;
}
