/* SPDX-License-Identifier: MIT */
/*
 * What the order hears of beside plain submissions: the program's own waits, waits for events of
 * other processes, streams that end, and launches that begin before their predecessors have ended.
 */
#include "shim/hooks.h"
#include "shim/order.h"
#include "shim/submit.h"
#include "shim/touch.h"

#define SYNC(name, parameters, arguments, word) \
	CUresult name parameters \
	{ \
		CUresult r; \
\
		hooks_ready(); \
		order_before_sync(); \
		r = real.name arguments; \
		if (r == CUDA_SUCCESS) { \
			submit_count_synchronisation(word); \
			order_after_sync(); \
		} \
		return r; \
	}

SYNC(cuCtxSynchronize, (void), (), SUBMIT_CONTEXT)
SYNC(cuCtxSynchronize_v2, (CUcontext ctx), (ctx), SUBMIT_CONTEXT)
SYNC(cuStreamSynchronize, (CUstream hStream), (hStream), submit_word(hStream, HOOK_STREAM0_LEGACY))
SYNC(cuStreamSynchronize_ptsz, (CUstream hStream), (hStream),
     submit_word(hStream, HOOK_STREAM0_PER_THREAD))
SYNC(cuEventSynchronize, (CUevent hEvent), (hEvent), SUBMIT_EVENT)

/* Once there are events of other processes, any wait may be for one. */
static atomic_bool has_others_events;

CUresult
cuIpcOpenEventHandle(CUevent *phEvent, CUipcEventHandle handle)
{
	hooks_ready();
	atomic_store(&has_others_events, true);
	return real.cuIpcOpenEventHandle(phEvent, handle);
}

CUresult
cuEventCreateFromEGLSync(CUevent *phEvent, EGLSyncKHR eglSync, unsigned int flags)
{
	hooks_ready();
	atomic_store(&has_others_events, true);
	return real.cuEventCreateFromEGLSync(phEvent, eglSync, flags);
}

#define WAIT_EVENT(name, stream0) \
	CUresult name(CUstream hStream, CUevent hEvent, unsigned int Flags) \
	{ \
		hooks_ready(); \
		if (atomic_load_explicit(&has_others_events, memory_order_relaxed)) \
			return SUBMIT_BLOCKER_CALL(hStream, stream0, TOUCHES(touch_nothing()), \
						   real.name(hStream, hEvent, Flags)); \
		return SUBMIT_TOUCHING_CALL(hStream, stream0, TOUCHES(touch_nothing()), \
					    real.name(hStream, hEvent, Flags)); \
	}

WAIT_EVENT(cuStreamWaitEvent, HOOK_STREAM0_LEGACY)
WAIT_EVENT(cuStreamWaitEvent_ptsz, HOOK_STREAM0_PER_THREAD)

static CUlaunchAttribute *
find_overlap(const CUlaunchConfig *config)
{
	for (unsigned i = 0; config && config->attrs && i < config->numAttrs; i++)
		if (config->attrs[i].id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION &&
		    config->attrs[i].value.programmaticStreamSerializationAllowed)
			return &config->attrs[i];
	return NULL;
}

/*
 * Rule 10. A dependent launch may begin before its predecessor has ended, so it does not come after
 * the work that used a block handed out early, nor after a wait put in before it: the attribute
 * comes off that one launch. Captured launches keep it, since nothing runs now.
 */
static CUresult
launch(const CUlaunchConfig *config, CUfunction f, void **params, void **extra,
       enum hook_stream0 stream0,
       CUresult (*real_launch)(const CUlaunchConfig *, CUfunction, void **, void **))
{
	enum { N_ATTRS_MAX = 64 };
	const CUstream stream = config ? config->hStream : NULL;
	const CUlaunchAttribute *overlap = find_overlap(config);
	CUlaunchAttribute attrs[N_ATTRS_MAX];
	CUlaunchConfig plain;
	CUresult r;

	submit_begin(submit_word(stream, stream0));
	if (__builtin_expect(overlap != NULL, 0) && order_must_not_overlap(stream, stream0)) {
		plain = *config;
		plain.attrs = attrs;
		plain.numAttrs = 0;
		for (unsigned i = 0; i < config->numAttrs && plain.numAttrs < N_ATTRS_MAX; i++)
			if (config->attrs[i].id != overlap->id)
				attrs[plain.numAttrs++] = config->attrs[i];
		r = real_launch(&plain, f, params, extra);
	} else {
		r = real_launch(config, f, params, extra);
	}
	submit_end();
	return r;
}

CUresult
cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction f, void **kernelParams, void **extra)
{
	hooks_ready();
	return launch(config, f, kernelParams, extra, HOOK_STREAM0_LEGACY, real.cuLaunchKernelEx);
}

CUresult
cuLaunchKernelEx_ptsz(const CUlaunchConfig *config, CUfunction f, void **kernelParams, void **extra)
{
	hooks_ready();
	return launch(config, f, kernelParams, extra, HOOK_STREAM0_PER_THREAD,
		      real.cuLaunchKernelEx_ptsz);
}
