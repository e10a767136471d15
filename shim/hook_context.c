/* SPDX-License-Identifier: MIT */
/*
 * Life of contexts: known when made, closed around everything that may end them, dropped when they
 * are gone.
 */
#include "shim/context.h"
#include "shim/hooks.h"
#include "shim/imports.h"
#include "shim/init.h"
#include "shim/order.h"
#include "shim/outside.h"

static CUresult
after_create(const struct outside_context *before, CUresult r, CUcontext *handle, CUdevice device)
{
	if (r == CUDA_SUCCESS && init_is_active()) {
		context_register(*handle, device, false);
		outside_context_end(before, *handle);
	}
	return r;
}

#define CREATE(name, parameters, arguments) \
	CUresult name parameters \
	{ \
		struct outside_context before; \
\
		hooks_ready(); \
		before = outside_context_begin(dev, false, HOOK_RETURN_ADDRESS()); \
		return after_create(&before, real.name arguments, pctx, dev); \
	}

CREATE(cuCtxCreate, (CUcontext * pctx, unsigned int flags, CUdevice dev), (pctx, flags, dev))
CREATE(cuCtxCreate_v2, (CUcontext * pctx, unsigned int flags, CUdevice dev), (pctx, flags, dev))
CREATE(cuCtxCreate_v3,
       (CUcontext * pctx, CUexecAffinityParam *paramsArray, int numParams, unsigned int flags,
	CUdevice dev),
       (pctx, paramsArray, numParams, flags, dev))
CREATE(cuCtxCreate_v4,
       (CUcontext * pctx, CUctxCreateParams *ctxCreateParams, unsigned int flags, CUdevice dev),
       (pctx, ctxCreateParams, flags, dev))

CUresult
cuCtxFromGreenCtx(CUcontext *pContext, CUgreenCtx hCtx)
{
	CUresult r;

	hooks_ready();
	r = real.cuCtxFromGreenCtx(pContext, hCtx);
	if (r == CUDA_SUCCESS && init_is_active())
		context_register_green(*pContext);
	return r;
}

CUresult
cuDevicePrimaryCtxRetain(CUcontext *pctx, CUdevice dev)
{
	struct outside_context before;
	CUresult r;

	hooks_ready();
	before = outside_context_begin(dev, true, HOOK_RETURN_ADDRESS());
	r = real.cuDevicePrimaryCtxRetain(pctx, dev);
	if (r == CUDA_SUCCESS && init_is_active()) {
		context_register(*pctx, dev, true);
		outside_context_end(&before, *pctx);
	}
	return r;
}

/* A context around a call that may end it. */
struct ending {
	struct context *context; /* NULL: not known, so it has no heaps */
	bool is_unclosed;        /* this thread could not wait for it */
	unsigned generation;
	CUcontext handle;
	unsigned long long id;
	uint64_t imports_now; /* what was opened until here ends with it */
};

/* Tells contexts apart that come one after the other under the same handle; 0: this driver does
 * not. */
static unsigned long long
id_of(CUcontext handle)
{
	unsigned long long id;

	return real.cuCtxGetId && real.cuCtxGetId(handle, &id) == CUDA_SUCCESS ? id : 0;
}

/*
 * In a signal handler that interrupted the shim, as when it calls exit(): what the interrupted call
 * does cannot be waited for. The context ends as it is, and nothing of it is used any more.
 */
static bool
is_interrupting(void)
{
	return thread_holds() || thread_is_at_step();
}

static struct ending
leave_open(struct context *context)
{
	struct ending ending = {.context = context, .is_unclosed = true};

	if (context)
		ending.handle = atomic_load(&context->handle);
	if (ending.handle)
		ending.id = id_of(ending.handle);
	return ending;
}

static struct ending
close_context(struct context *context)
{
	struct ending ending = {.context = context};

	if (!context)
		return ending;
	ending.imports_now = imports_now();
	ending.generation = context_close(context);
	ending.handle = atomic_load(&context->handle);
	if (ending.handle)
		ending.id = id_of(ending.handle);
	return ending;
}

static struct ending
close_known(CUcontext handle)
{
	struct ending ending = {0};

	if (!init_is_on())
		return ending;
	if (is_interrupting())
		return leave_open(context_find(handle));
	ending = close_context(context_find(handle));
	if (!ending.context) {
		ending.handle = handle;
		ending.imports_now = imports_now();
	}
	return ending;
}

static CUresult
after_end(const struct ending *ending, bool is_gone, CUresult r)
{
	if (ending->is_unclosed) {
		if (is_gone && ending->context)
			context_break(ending->context, CUDA_ERROR_CONTEXT_IS_DESTROYED);
		return r;
	}
	if (is_gone && ending->handle)
		imports_forget(ending->handle, ending->imports_now);
	if (ending->context && is_gone)
		context_drop(ending->context, ending->generation);
	else if (ending->context)
		context_reopen(ending->context);
	return r;
}

static CUresult
destroy(CUcontext handle, CUresult (*real_destroy)(CUcontext))
{
	const struct ending ending = close_known(handle);
	CUresult r = real_destroy(handle);

	return after_end(&ending, r == CUDA_SUCCESS, r);
}

CUresult
cuCtxDestroy(CUcontext ctx)
{
	hooks_ready();
	return destroy(ctx, real.cuCtxDestroy);
}

CUresult
cuCtxDestroy_v2(CUcontext ctx)
{
	hooks_ready();
	return destroy(ctx, real.cuCtxDestroy_v2);
}

/* Ends the context with its last user; one that lived on is still current. */
CUresult
cuCtxDetach(CUcontext ctx)
{
	struct ending ending;
	CUcontext current = NULL;
	CUresult r;

	hooks_ready();
	ending = close_known(ctx);
	r = real.cuCtxDetach(ctx);
	if (r == CUDA_SUCCESS)
		real.cuCtxGetCurrent(&current);
	return after_end(&ending, r == CUDA_SUCCESS && current != ctx, r);
}

static struct ending
close_primary(CUdevice device)
{
	struct ending ending = {0};

	if (init_is_on() && is_interrupting())
		return leave_open(context_find_primary(device));
	while (init_is_on()) {
		ending = close_context(context_find_primary(device));
		/* Another thread may have seen the end of it before it was closed. */
		if (!ending.context || context_find_primary(device) == ending.context)
			break;
		context_reopen(ending.context);
	}
	return ending;
}

/* A user of the primary context went. Another thread may have made the context anew since it ended:
 * active is not alive. */
static CUresult
after_release(const struct ending *ending, CUdevice device, CUresult r)
{
	unsigned flags;
	int is_active = 1;

	if (!ending->context || !ending->handle || r != CUDA_SUCCESS)
		return after_end(ending, false, r);
	real.cuDevicePrimaryCtxGetState(device, &flags, &is_active);
	return after_end(ending, !is_active || id_of(ending->handle) != ending->id, r);
}

static CUresult
release(CUdevice device, CUresult (*real_release)(CUdevice))
{
	const struct ending ending = close_primary(device);

	return after_release(&ending, device, real_release(device));
}

/* A green context is a user of its device's primary one. */
CUresult
cuGreenCtxDestroy(CUgreenCtx hCtx)
{
	struct ending ending = {0};
	struct context *green = NULL;
	CUdevice device = 0;
	CUcontext handle;
	CUresult r;

	hooks_ready();
	if (init_is_active() && real.cuCtxFromGreenCtx(&handle, hCtx) == CUDA_SUCCESS)
		green = context_register_green(handle);
	if (green) {
		device = green->device->index;
		ending = close_primary(device);
	}
	r = real.cuGreenCtxDestroy(hCtx);
	if (green && r == CUDA_SUCCESS) {
		context_forget_green(green);
		order_after_green_destroy(context_find_primary(device));
	}
	return after_release(&ending, device, r);
}

CUresult
cuDevicePrimaryCtxRelease(CUdevice dev)
{
	hooks_ready();
	return release(dev, real.cuDevicePrimaryCtxRelease);
}

CUresult
cuDevicePrimaryCtxRelease_v2(CUdevice dev)
{
	hooks_ready();
	return release(dev, real.cuDevicePrimaryCtxRelease_v2);
}

static CUresult
reset(CUdevice device, CUresult (*real_reset)(CUdevice))
{
	const struct ending ending = close_primary(device);
	CUresult r = real_reset(device);

	return after_end(&ending, r == CUDA_SUCCESS, r);
}

CUresult
cuDevicePrimaryCtxReset(CUdevice dev)
{
	hooks_ready();
	return reset(dev, real.cuDevicePrimaryCtxReset);
}

CUresult
cuDevicePrimaryCtxReset_v2(CUdevice dev)
{
	hooks_ready();
	return reset(dev, real.cuDevicePrimaryCtxReset_v2);
}
