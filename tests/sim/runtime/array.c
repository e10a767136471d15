/* SPDX-License-Identifier: MIT */
/*
 * Arrays: one driver call each. A plain array without flags is cuArrayCreate's, all else that of
 * cuArray3DCreate.
 */
#include <stddef.h>

#include "tests/sim/runtime/runtime.h"

static bool
format_of(const struct cudaChannelFormatDesc *desc, CUarray_format *ret_format)
{
	static const struct {
		enum cudaChannelFormatKind kind;
		int bits;
		CUarray_format format;
	} formats[] = {
		{cudaChannelFormatKindUnsigned, 8, CU_AD_FORMAT_UNSIGNED_INT8},
		{cudaChannelFormatKindUnsigned, 16, CU_AD_FORMAT_UNSIGNED_INT16},
		{cudaChannelFormatKindUnsigned, 32, CU_AD_FORMAT_UNSIGNED_INT32},
		{cudaChannelFormatKindSigned, 8, CU_AD_FORMAT_SIGNED_INT8},
		{cudaChannelFormatKindSigned, 16, CU_AD_FORMAT_SIGNED_INT16},
		{cudaChannelFormatKindSigned, 32, CU_AD_FORMAT_SIGNED_INT32},
		{cudaChannelFormatKindFloat, 16, CU_AD_FORMAT_HALF},
		{cudaChannelFormatKindFloat, 32, CU_AD_FORMAT_FLOAT},
	};

	for (size_t i = 0; i < sizeof(formats) / sizeof(formats[0]); i++) {
		if (formats[i].kind == desc->f && formats[i].bits == desc->x) {
			*ret_format = formats[i].format;
			return true;
		}
	}
	return false;
}

/* False: no such format. */
static bool
describe(const struct cudaChannelFormatDesc *desc, struct cudaExtent extent, unsigned int flags,
	 CUDA_ARRAY3D_DESCRIPTOR *ret_description)
{
	CUarray_format format;

	if (!desc || !format_of(desc, &format))
		return false;
	*ret_description = (CUDA_ARRAY3D_DESCRIPTOR){
		.Width = extent.width,
		.Height = extent.height,
		.Depth = extent.depth,
		.Format = format,
		.NumChannels = desc->w   ? 4
			       : desc->z ? 3
			       : desc->y ? 2
					 : 1,
		.Flags = flags,
	};
	return true;
}

RUNTIME_EXPORT cudaError_t
cudaMallocArray(cudaArray_t *ret_array, const struct cudaChannelFormatDesc *desc, size_t width,
		size_t height, unsigned int flags)
{
	const struct cudaExtent extent = {.width = width, .height = height};
	CUDA_ARRAY3D_DESCRIPTOR deep;
	CUDA_ARRAY_DESCRIPTOR flat;

	if (!ret_array || !describe(desc, extent, flags, &deep))
		return runtime_record_error(cudaErrorInvalidValue);
	if (flags)
		return RUNTIME_CALL(driver.cuArray3DCreate_v2, (CUarray *)ret_array, &deep);
	flat = (CUDA_ARRAY_DESCRIPTOR){
		.Width = width,
		.Height = height,
		.Format = deep.Format,
		.NumChannels = deep.NumChannels,
	};
	return RUNTIME_CALL(driver.cuArrayCreate_v2, (CUarray *)ret_array, &flat);
}

RUNTIME_EXPORT cudaError_t
cudaMalloc3DArray(cudaArray_t *ret_array, const struct cudaChannelFormatDesc *desc,
		  struct cudaExtent extent, unsigned int flags)
{
	CUDA_ARRAY3D_DESCRIPTOR deep;

	if (!ret_array || !describe(desc, extent, flags, &deep))
		return runtime_record_error(cudaErrorInvalidValue);
	return RUNTIME_CALL(driver.cuArray3DCreate_v2, (CUarray *)ret_array, &deep);
}

RUNTIME_EXPORT cudaError_t
cudaMallocMipmappedArray(cudaMipmappedArray_t *ret_array, const struct cudaChannelFormatDesc *desc,
			 struct cudaExtent extent, unsigned int n_levels, unsigned int flags)
{
	CUDA_ARRAY3D_DESCRIPTOR deep;

	if (!ret_array || !describe(desc, extent, flags, &deep))
		return runtime_record_error(cudaErrorInvalidValue);
	return RUNTIME_CALL(driver.cuMipmappedArrayCreate, (CUmipmappedArray *)ret_array, &deep,
			    n_levels);
}

RUNTIME_EXPORT cudaError_t
cudaFreeArray(cudaArray_t array)
{
	if (!array)
		return runtime_enter();
	return RUNTIME_CALL(driver.cuArrayDestroy, (CUarray)array);
}

RUNTIME_EXPORT cudaError_t
cudaFreeMipmappedArray(cudaMipmappedArray_t array)
{
	if (!array)
		return runtime_enter();
	return RUNTIME_CALL(driver.cuMipmappedArrayDestroy, (CUmipmappedArray)array);
}
