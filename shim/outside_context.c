/* SPDX-License-Identifier: MIT */
/*
 * What a context takes of its device when it is made. Measured on an H200: 524 MiB each, the first
 * one of a process too; but before the first one there is nobody to ask.
 *
 * What other processes take or give back meanwhile is in the figure, so one that is out of all
 * measure is not taken.
 */
#include "shim/callers.h"
#include "shim/context.h"
#include "shim/hook_runtime.h"
#include "shim/outside.h"

static uint64_t
counted_bytes(const struct device *device)
{
	return stats_read(&device->stats->total_bytes) + stats_read(&device->external->total_bytes);
}

/* Through a context that may be ending in another thread: the gate of capture.h. */
static bool
read_free(const struct outside_context *of, uint64_t *ret_bytes)
{
	struct context_scope scope;
	size_t free_bytes, total_bytes;
	CUcontext handle;
	bool is_read = false;

	if (!capture_enter_call(&of->witness->gate))
		return false;
	handle = atomic_load_explicit(&of->witness->handle, memory_order_acquire);
	if (handle && of->witness->device == of->device &&
	    context_enter(handle, &scope) == CUDA_SUCCESS) {
		is_read = real.cuMemGetInfo_v2(&free_bytes, &total_bytes) == CUDA_SUCCESS;
		context_leave(&scope);
	}
	capture_leave_call(&of->witness->gate);
	if (is_read)
		*ret_bytes = free_bytes;
	return is_read;
}

/* Retaining a primary context that is there makes none. */
static bool
is_active(CUdevice device)
{
	unsigned flags;
	int answer = 1;

	return real.cuDevicePrimaryCtxGetState(device, &flags, &answer) != CUDA_SUCCESS || answer;
}

struct outside_context
outside_context_begin(CUdevice device, bool is_primary, const void *return_address)
{
	struct outside_context before = {0};
	struct device *known = init_is_active() ? device_find(device) : NULL;
	bool has_primary;

	if (!known)
		return before;
	before.witness = context_find_on(known, &has_primary);
	if (!before.witness || (is_primary && (has_primary || is_active(device))))
		return before;
	before.device = known;
	before.tag = callers_tag(runtime_call_site(return_address));
	before.counted_bytes = counted_bytes(known);
	if (!read_free(&before, &before.free_bytes))
		before.device = NULL;
	return before;
}

void
outside_context_end(const struct outside_context *before, CUcontext handle)
{
	struct context *context = before->device ? context_find(handle) : NULL;
	struct external_item item = {
		.space = EXTERNAL_BY_CONTEXT,
		.key = (uintptr_t)handle,
		.kind = EXTERNAL_context,
		.tag = before->tag,
	};
	uint64_t free_bytes;
	int64_t taken_bytes;

	if (!context || !read_free(before, &free_bytes))
		return;
	taken_bytes = (int64_t)(before->free_bytes - free_bytes) -
		      (int64_t)(counted_bytes(before->device) - before->counted_bytes);
	if (taken_bytes <= 0 || (uint64_t)taken_bytes > before->device->total_bytes)
		return;
	item.bytes = (uint64_t)taken_bytes;
	item.place = before->device->external;
	item.life = &context->generation;
	/* acquire: the generation of this context, which is registered */
	item.generation = atomic_load_explicit(item.life, memory_order_acquire);
	external_add(&item);
}
