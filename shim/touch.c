/* SPDX-License-Identifier: MIT */
#include "shim/touch.h"

/* Where one side of a pitched copy lies. */
struct pitched {
	CUmemorytype type;
	CUdeviceptr base;
	size_t pitch_bytes, n_rows_a_slice; /* n_rows_a_slice: 0 for a copy of one slice */
	size_t x_bytes, y, z;
};

static size_t
add(size_t a, size_t b)
{
	size_t sum;

	return __builtin_add_overflow(a, b, &sum) ? SIZE_MAX : sum;
}

static size_t
multiply(size_t a, size_t b)
{
	size_t product;

	return __builtin_mul_overflow(a, b, &product) ? SIZE_MAX : product;
}

static void
add_side(struct heap_touch *touch, const struct pitched *side, size_t width_bytes, size_t n_rows,
	 size_t n_slices)
{
	const size_t first = side->z * side->n_rows_a_slice + side->y;
	size_t last;

	if (side->type == CU_MEMORYTYPE_ARRAY || !width_bytes || !n_rows || !n_slices)
		return;
	last = add(multiply(n_slices - 1, side->n_rows_a_slice), n_rows - 1);
	touch->ranges[touch->n_ranges].addr =
		side->base + first * side->pitch_bytes + side->x_bytes;
	touch->ranges[touch->n_ranges].size_bytes =
		add(multiply(last, side->pitch_bytes), width_bytes);
	touch->n_ranges++;
}

struct heap_touch
touch_rows(CUdeviceptr dst, size_t pitch_bytes, size_t width, size_t unit_bytes, size_t n_rows)
{
	const struct pitched side = {
		.type = CU_MEMORYTYPE_DEVICE, .base = dst, .pitch_bytes = pitch_bytes};
	struct heap_touch touch = {0};

	add_side(&touch, &side, multiply(width, unit_bytes), n_rows, 1);
	return touch;
}

#define SIDE(copy, side, n_rows, slice) \
	((struct pitched){ \
		.type = (copy)->side##MemoryType, \
		.base = (copy)->side##MemoryType == CU_MEMORYTYPE_HOST \
				? (CUdeviceptr)(uintptr_t)(copy)->side##Host \
				: (copy)->side##Device, \
		.pitch_bytes = (copy)->side##Pitch, \
		.n_rows_a_slice = (n_rows), \
		.x_bytes = (copy)->side##XInBytes, \
		.y = (copy)->side##Y, \
		.z = (slice), \
	})

struct heap_touch
touch_2d(const CUDA_MEMCPY2D *copy)
{
	struct heap_touch touch = {0};

	if (!copy)
		return touch;
	add_side(&touch, &SIDE(copy, dst, 0, 0), copy->WidthInBytes, copy->Height, 1);
	add_side(&touch, &SIDE(copy, src, 0, 0), copy->WidthInBytes, copy->Height, 1);
	return touch;
}

#define TOUCH_3D(name, type) \
	struct heap_touch name(const type *copy) \
	{ \
		struct heap_touch touch = {0}; \
\
		if (!copy) \
			return touch; \
		add_side(&touch, &SIDE(copy, dst, copy->dstHeight, copy->dstZ), \
			 copy->WidthInBytes, copy->Height, copy->Depth); \
		add_side(&touch, &SIDE(copy, src, copy->srcHeight, copy->srcZ), \
			 copy->WidthInBytes, copy->Height, copy->Depth); \
		return touch; \
	}

TOUCH_3D(touch_3d, CUDA_MEMCPY3D)
TOUCH_3D(touch_3d_peer, CUDA_MEMCPY3D_PEER)
