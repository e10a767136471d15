/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * What the tests of the software device share: TAP lines, and a device ready for use. Each test
 * program links the device directly and has one current context, the primary one of device 0.
 */

#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/sim/sim.h"

#define MIB ((size_t)1 << 20)

static int n_tests, n_failed;

/* One line of TAP; the text says what holds when it is right. */
__attribute__((format(printf, 2, 3))) static inline bool
ok(bool is_right, const char *text, ...)
{
	va_list args;

	printf("%sok %d - ", is_right ? "" : "not ", ++n_tests);
	va_start(args, text);
	vprintf(text, args);
	va_end(args);
	printf("\n");
	n_failed += !is_right;
	return is_right;
}

static inline void
status(CUresult got, CUresult want, const char *text)
{
	if (got == want)
		ok(true, "%s", text);
	else
		ok(false, "%s: status %d in place of %d", text, (int)got, (int)want);
}

static inline int
finish(void)
{
	printf("1..%d\n", n_tests);
	return n_failed > 0;
}

static inline CUcontext
start(int mode)
{
	CUcontext ctx;

	if (cuInit(0) != CUDA_SUCCESS || cuDevicePrimaryCtxRetain(&ctx, 0) != CUDA_SUCCESS ||
	    cuCtxSetCurrent(ctx) != CUDA_SUCCESS) {
		printf("Bail out! the device does not start\n");
		exit(1);
	}
	cusim_set_mode(mode);
	return ctx;
}

static inline CUfunction
kernel(const char *name)
{
	CUmodule module;
	CUfunction f = NULL;

	if (cuModuleLoadData(&module, "image") == CUDA_SUCCESS)
		cuModuleGetFunction(&f, module, name);
	return f;
}

/* sim_spin: until *flag != 0 (flag may be 0), or for ns. */
static inline CUresult
spin(CUstream s, CUdeviceptr flag, uint64_t ns)
{
	static CUfunction f;
	void *params[] = {&flag, &ns};

	if (!f)
		f = kernel("sim_spin");
	return cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, s, params, NULL);
}

static inline CUresult
fill(CUstream s, CUdeviceptr dst, unsigned value, size_t n_bytes)
{
	static CUfunction f;
	void *params[] = {&dst, &value, &n_bytes};

	if (!f)
		f = kernel("sim_fill");
	return cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, s, params, NULL);
}

static inline CUstream
new_stream(unsigned flags)
{
	CUstream s = NULL;

	cuStreamCreate(&s, flags);
	return s;
}

static inline CUevent
new_event(void)
{
	CUevent event = NULL;

	cuEventCreate(&event, CU_EVENT_DISABLE_TIMING);
	return event;
}

static inline size_t
free_bytes(void)
{
	size_t n_free = 0, n_total;

	cuMemGetInfo_v2(&n_free, &n_total);
	return n_free;
}
