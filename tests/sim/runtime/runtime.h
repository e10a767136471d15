/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * The software CUDA runtime: what its files share. From the public headers only.
 *
 * It reaches the driver as NVIDIA's runtime does, and only so: dlopen("libcuda.so.1"), dlsym of
 * cuGetProcAddress_v2, a probe with an empty name, then every function through that pointer, each
 * form (stream 0 legacy or per thread) apart. It launches no kernels: programs that need them use
 * the driver.
 *
 * Locking: one mutex in context.c around retain and reset; the rest is per thread or written once.
 */
#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <stdbool.h>

/* What it says of itself; tests build a second runtime of another version. */
#ifndef RUNTIME_VERSION
#define RUNTIME_VERSION CUDART_VERSION
#endif

/* In NVIDIA's static library every symbol is hidden. */
#ifdef RUNTIME_IS_STATIC
#define RUNTIME_EXPORT
#else
#define RUNTIME_EXPORT __attribute__((visibility("default")))
#endif

/*
 * Members are NULL when the driver does not know them; RUNTIME_CALL answers "not supported" then.
 */
struct driver_calls {
#define DRIVER_CALL(symbol, query, version, flags) __typeof__(&symbol) symbol;
#include "tests/sim/runtime/driver_calls.def"
#undef DRIVER_CALL
};

extern struct driver_calls driver;

/* Load the driver and run cuInit, once a process; every later call gives the same answer. */
cudaError_t driver_start(void);

/*
 * Make the calling thread ready: driver started, a context current (the primary one of the thread's
 * device unless the program made another one current). Failure is recorded as the thread's last
 * error.
 */
cudaError_t runtime_enter(void);

/* Turn a driver status into the runtime's and record it as the thread's last error unless it is
 * success. */
cudaError_t runtime_record(CUresult status);

/* The same for an error that the runtime itself finds. */
cudaError_t runtime_record_error(cudaError_t error);

/* One driver call as the whole body of a runtime call. */
#define RUNTIME_CALL(function, ...) \
	({ \
		cudaError_t runtime_error = runtime_enter(); \
		if (!runtime_error) \
			runtime_error = runtime_record((function) ? (function)(__VA_ARGS__) \
								  : CUDA_ERROR_NOT_SUPPORTED); \
		runtime_error; \
	})

/* Which of the two bodies of a driver function: stream 0 is the calling thread's stream in the
 * second. */
#define BODY(is_per_thread, function, suffix) \
	((is_per_thread) ? driver.function##suffix : driver.function)
