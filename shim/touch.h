/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * What a driver call's parameters say of the memory that its work touches, for the order.
 *
 * Ranges may be larger than what is touched (pitched copies: from the first byte to the last),
 * never smaller. Arrays are no memory of the pool's. Sizes that overflow are as large as can be.
 *
 * Locking: none. Units: bytes.
 */
#include <stddef.h>
#include <stdint.h>

#include "pool/heap.h"
#include "shim/hooks.h"

/* For SUBMIT_TOUCHING_CALL: a pointer to what one of the functions below answers. */
#define TOUCHES(touch) ((struct heap_touch[]){touch})

static inline struct heap_touch
touch_nothing(void)
{
	return (struct heap_touch){0};
}

static inline struct heap_touch
touch_one(CUdeviceptr addr, size_t n, size_t unit_bytes)
{
	size_t size_bytes;

	if (__builtin_mul_overflow(n, unit_bytes, &size_bytes))
		size_bytes = SIZE_MAX;
	return (struct heap_touch){.n_ranges = 1, .ranges = {{addr, size_bytes}}};
}

static inline struct heap_touch
touch_two(CUdeviceptr dst, CUdeviceptr src, size_t size_bytes)
{
	return (struct heap_touch){.n_ranges = 2, .ranges = {{dst, size_bytes}, {src, size_bytes}}};
}

struct heap_touch touch_rows(CUdeviceptr dst, size_t pitch_bytes, size_t width, size_t unit_bytes,
			     size_t n_rows);
struct heap_touch touch_2d(const CUDA_MEMCPY2D *copy);
struct heap_touch touch_3d(const CUDA_MEMCPY3D *copy);
struct heap_touch touch_3d_peer(const CUDA_MEMCPY3D_PEER *copy);
