/* SPDX-License-Identifier: MIT */
#include "tests/sim/sim_internal.h"

#include <string.h>

/* Pointer attributes. */

static CUmemorytype
memory_type(const struct alloc *a)
{
	if (a->kind == ALLOC_HOST || a->kind == ALLOC_REGISTERED)
		return CU_MEMORYTYPE_HOST;
	return CU_MEMORYTYPE_DEVICE;
}

static uint64_t
mapping_base(const struct alloc *a)
{
	return a->chunk ? a->chunk->base : a->base;
}

/* Where the host may use the pointer: host and managed memory. */
static bool
has_host_pointer(const struct alloc *a)
{
	return memory_type(a) != CU_MEMORYTYPE_DEVICE || a->kind == ALLOC_MANAGED;
}

/* Asking for them sets SYNC_MEMOPS too. */
static CUresult
p2p_tokens(struct alloc *a, CUDA_POINTER_ATTRIBUTE_P2P_TOKENS *ret_tokens)
{
	memset(ret_tokens, 0, sizeof(*ret_tokens));
	if (memory_type(a) != CU_MEMORYTYPE_DEVICE)
		return CUDA_ERROR_INVALID_VALUE;
	a->has_sync_memops = true;
	return CUDA_SUCCESS;
}

static CUresult
get(struct alloc *a, CUdeviceptr ptr, CUpointer_attribute attr, void *data)
{
	switch (attr) {
	case CU_POINTER_ATTRIBUTE_CONTEXT:
		*(CUcontext *)data = a->kind == ALLOC_VMM || a->kind == ALLOC_ASYNC ? NULL : a->ctx;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
		*(unsigned *)data = memory_type(a);
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
		*(CUdeviceptr *)data = ptr;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_HOST_POINTER:
		*(void **)data = has_host_pointer(a) ? (void *)ptr : NULL;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_P2P_TOKENS:
		return p2p_tokens(a, data);
	case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
		*(unsigned *)data = a->has_sync_memops;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_BUFFER_ID:
	case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
		*(unsigned long long *)data = a->id;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_IS_MANAGED:
		*(unsigned *)data = a->kind == ALLOC_MANAGED;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
		*(int *)data = a->dev ? a->dev->ordinal : a->ctx->dev->ordinal;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
		*(unsigned *)data = a->kind == ALLOC_DEVICE;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
		*(CUdeviceptr *)data = a->base;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
		*(size_t *)data = a->size_bytes;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_MAPPED:
		*(unsigned *)data = 1;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
		*(uint64_t *)data = 0;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
		*(unsigned *)data = a->kind == ALLOC_DEVICE;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
		*(int *)data = a->kind == ALLOC_VMM && !a->access
				       ? CU_POINTER_ATTRIBUTE_ACCESS_FLAG_NONE
				       : CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
		*(CUmemoryPool *)data = a->pool;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
		*(size_t *)data = a->chunk ? SIM_PAGE : a->span_bytes;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
		*(CUdeviceptr *)data = mapping_base(a);
		return CUDA_SUCCESS;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}

CUresult
cuPointerGetAttribute(void *data, CUpointer_attribute attr, CUdeviceptr ptr)
{
	CUresult r = sim_enter(E_cuPointerGetAttribute, NEED_INIT);
	struct alloc *a;

	if (r != CUDA_SUCCESS)
		return r;
	a = alloc_find_requested(ptr);
	if (!data || !a)
		return sim_leave(CUDA_ERROR_INVALID_VALUE);
	return sim_leave(get(a, ptr, attr, data));
}

/* Bytes that an attribute takes, for zeroing those of an unknown pointer. */
static size_t
attribute_bytes(CUpointer_attribute attr)
{
	switch (attr) {
	case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
	case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
	case CU_POINTER_ATTRIBUTE_IS_MANAGED:
	case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
	case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
	case CU_POINTER_ATTRIBUTE_MAPPED:
	case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
	case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
		return sizeof(unsigned);
	default:
		return sizeof(uint64_t);
	}
}

/* What does not apply to an unknown pointer is zero, or stays as it was. */
static void
get_unknown(CUdeviceptr ptr, CUpointer_attribute attr, void *data)
{
	switch (attr) {
	case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
	case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
		break;
	case CU_POINTER_ATTRIBUTE_HOST_POINTER:
		*(CUdeviceptr *)data = ptr;
		break;
	case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
		*(int *)data = CU_DEVICE_INVALID;
		break;
	default:
		memset(data, 0, attribute_bytes(attr));
	}
}

/* Unlike the single form it succeeds for any pointer, and only for one that is known it needs a
 * context. */
CUresult
cuPointerGetAttributes(unsigned int n, CUpointer_attribute *attrs, void **data, CUdeviceptr ptr)
{
	CUresult r = sim_enter(E_cuPointerGetAttributes, NEED_INIT);
	struct alloc *a;

	if (r != CUDA_SUCCESS)
		return r;
	if (!n || !attrs || !data)
		return sim_leave(CUDA_ERROR_INVALID_VALUE);
	for (unsigned i = 0; i < n; i++)
		if (!data[i] || attrs[i] < CU_POINTER_ATTRIBUTE_CONTEXT ||
		    attrs[i] == CU_POINTER_ATTRIBUTE_P2P_TOKENS ||
		    attrs[i] > CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID)
			return sim_leave(CUDA_ERROR_INVALID_VALUE);
	a = alloc_find_requested(ptr);
	if (a && !ctx_current())
		return sim_leave(CUDA_ERROR_INVALID_CONTEXT);
	for (unsigned i = 0; i < n; i++) {
		if (a)
			get(a, ptr, attrs[i], data[i]);
		else
			get_unknown(ptr, attrs[i], data[i]);
	}
	return sim_leave(CUDA_SUCCESS);
}

CUresult
cuPointerSetAttribute(const void *value, CUpointer_attribute attr, CUdeviceptr ptr)
{
	CUresult r = sim_enter(E_cuPointerSetAttribute, NEED_INIT);
	struct alloc *a;

	if (r != CUDA_SUCCESS)
		return r;
	a = alloc_find_requested(ptr);
	if (!value || !a || attr != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS)
		return sim_leave(CUDA_ERROR_INVALID_VALUE);
	if (a->kind == ALLOC_VMM || a->kind == ALLOC_ASYNC)
		return sim_leave(CUDA_ERROR_NOT_SUPPORTED);
	a->has_sync_memops = *(const unsigned *)value != 0;
	return sim_leave(CUDA_SUCCESS);
}
