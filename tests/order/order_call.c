/* SPDX-License-Identifier: MIT */
#include "tests/order/order.h"

enum { N_COMPLAINTS = 20 };

/*
 * Driver calls of the random program. Each is known to give one status; all statuses are kept, so
 * that a run can be compared with another one.
 */

void
order_expect(bool is_met, const char *format, ...)
{
	va_list args;

	if (is_met || atomic_fetch_add(&program.n_failed, 1) >= N_COMPLAINTS)
		return;
	flockfile(stderr);
	fprintf(stderr, "seed %llu: ", (unsigned long long)program.seed);
	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fputc('\n', stderr);
	funlockfile(stderr);
}

static void
keep_status(struct actor *a, CUresult status)
{
	if (a->n_statuses == a->n_statuses_max) {
		a->n_statuses_max = a->n_statuses_max ? 2 * a->n_statuses_max : 4096;
		a->statuses = realloc(a->statuses, a->n_statuses_max * sizeof(a->statuses[0]));
		if (!a->statuses)
			exit(2);
	}
	a->statuses[a->n_statuses++] = (uint16_t)status;
}

CUresult
call_done(struct actor *a, const char *name, CUresult must, CUresult status)
{
	keep_status(a, status);
	if (program.is_traced)
		fprintf(stderr, "trace: thread %d step %llu call %zu: %s = %d\n", a->number,
			(unsigned long long)a->n_steps, a->n_statuses, name, (int)status);
	order_expect(status == must, "thread %d step %llu call %zu: %s gave %d, not %d", a->number,
		     (unsigned long long)a->n_steps, a->n_statuses, name, (int)status, (int)must);
	return status;
}

void
call_current(struct actor *a, int context)
{
	CUcontext before;

	if (a->context == context)
		return;
	if (one_in(a, 4)) {
		CALL(a, cuCtxPopCurrent_v2, &before);
		CALL(a, cuCtxPushCurrent_v2, program.contexts[context]);
	} else {
		CALL(a, cuCtxSetCurrent, program.contexts[context]);
	}
	a->context = context;
}

/* Makes the stream's context current, and takes one of the ways to name the stream. */
struct at
call_at(struct actor *a, int stream)
{
	const struct stream *s = &a->streams[stream];
	const bool coin = one_in(a, 2), is_null = one_in(a, 2);

	call_current(a, s->context);
	if (program.is_traced)
		fprintf(stderr, "trace: thread %d in stream %d:\n", a->number, stream);
	switch (s->kind) {
	case LEGACY:
		return is_null ? (struct at){NULL, false} : (struct at){CU_STREAM_LEGACY, coin};
	case PER_THREAD:
		return is_null ? (struct at){NULL, true} : (struct at){CU_STREAM_PER_THREAD, coin};
	default:
		return (struct at){s->handle, coin};
	}
}

/* Dependent: it may start before the kernel in front of it has ended. */
void
call_launch(struct actor *a, struct at at, CUfunction function, void **parameters,
	    bool is_dependent)
{
	CUlaunchAttribute attribute = {
		.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
		.value.programmaticStreamSerializationAllowed = 1,
	};
	const CUlaunchConfig config = {
		.gridDimX = 1,
		.gridDimY = 1,
		.gridDimZ = 1,
		.blockDimX = 1,
		.blockDimY = 1,
		.blockDimZ = 1,
		.hStream = at.handle,
		.attrs = &attribute,
		.numAttrs = is_dependent,
	};

	if (is_dependent || one_in(a, 4))
		CALL_AT(a, at, cuLaunchKernelEx, &config, function, parameters, NULL);
	else
		CALL_AT(a, at, cuLaunchKernel, function, 1, 1, 1, 1, 1, 1, 0, at.handle, parameters,
			NULL);
}

void
call_fill(struct actor *a, struct at at, CUdeviceptr target, uint8_t value, size_t n_bytes,
	  bool is_dependent)
{
	unsigned int word = value;
	void *parameters[] = {&target, &word, &n_bytes};

	call_launch(a, at, program.fill, parameters, is_dependent);
}

void
call_copy(struct actor *a, struct at at, CUdeviceptr target, CUdeviceptr source, size_t n_bytes)
{
	void *parameters[] = {&target, &source, &n_bytes};

	call_launch(a, at, program.copy, parameters, false);
}

void
call_spin(struct actor *a, struct at at, CUdeviceptr flag, uint64_t n_ns)
{
	void *parameters[] = {&flag, &n_ns};

	call_launch(a, at, program.spin, parameters, false);
}

CUevent
call_event(struct actor *a, int context)
{
	CUevent event = NULL;

	call_current(a, context);
	CALL(a, cuEventCreate, &event, one_in(a, 4) ? 0 : CU_EVENT_DISABLE_TIMING);
	return event;
}

/* A new event behind all that the stream holds. */
CUevent
call_record(struct actor *a, int stream)
{
	const CUevent event = call_event(a, a->streams[stream].context);
	const struct at at = call_at(a, stream);

	if (one_in(a, 8))
		CALL_AT(a, at, cuEventRecordWithFlags, event, at.handle, 0);
	else
		CALL_AT(a, at, cuEventRecord, event, at.handle);
	model_submit(a, stream);
	return event;
}

/* The device's checker learns what the program's own code touches. */
void
call_cpu_access(const void *at, size_t n_bytes, bool is_write)
{
	if (program.is_checked)
		cusim_cpu_access((uint64_t)(uintptr_t)at, n_bytes, is_write);
}
