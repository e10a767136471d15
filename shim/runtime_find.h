/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * Which CUDA runtime an object calls: several can live in one process.
 *
 * Tried in this order: the caller's own object and what it needs, what is loaded after this
 * library, any loaded libcudart, any other object that has a runtime (a plug-in that was linked
 * with the static one and calls it by a jump: its caller seems to be somebody else). The answer is
 * kept for the range of the caller's object, and the runtime stays loaded.
 *
 * Locking: none; answers are appended, never changed.
 */
#include <stdint.h>

#include <cuda_runtime_api.h>

/* What the header has under one name only, by a macro. */
cudaError_t cudaMallocAsync_ptsz(void **ptr, size_t n_bytes, cudaStream_t stream);
cudaError_t cudaMallocFromPoolAsync_ptsz(void **ptr, size_t n_bytes, cudaMemPool_t pool,
					 cudaStream_t stream);

struct runtime_calls {
	uintptr_t start, end; /* of the runtime's object */
#define RUNTIME_HOOK(symbol, parameters, arguments) __typeof__(&symbol) symbol;
#include "shim/runtime_hooks.def"
#undef RUNTIME_HOOK
};

/* The rows are what is exported. */
#define RUNTIME_HOOK(symbol, parameters, arguments) \
	extern __typeof__(symbol) symbol __attribute__((visibility("default")));
#include "shim/runtime_hooks.def"
#undef RUNTIME_HOOK

/*
 * The runtime of the code at `caller`, never NULL. Without any runtime (a program with a weak
 * reference that only this library satisfies) every function answers cudaErrorInitializationError:
 * there is no CUDA to initialise. The result is valid for as long as the caller's object is loaded,
 * or until this thread's next call.
 */
const struct runtime_calls *runtime_calls_of(const void *caller);

/* This library's wrapper of an exported runtime name; NULL: not ours. Calls no libc function. */
const void *runtime_wrapper_by_symbol(const char *name);
