/* SPDX-License-Identifier: MIT */
/*
 * A stand-in for a CUDA runtime, ROUTE_RUNTIME its major version, exported under a named version
 * node as NVIDIA's are. Each result tells which runtime was called.
 */
#include <stddef.h>

int cudaMalloc(void **ptr, size_t n_bytes);
int cudaFree(void *ptr);
int cudaHostAlloc(void **ptr, size_t n_bytes, unsigned int flags);
int cudaMallocHost(void **ptr, size_t n_bytes);
int cudaFreeHost(void *ptr);

static int
answer(void **ptr, size_t n_bytes)
{
	*ptr = (void *)(ROUTE_RUNTIME * (size_t)1000 + n_bytes);
	return 0;
}

int
cudaMalloc(void **ptr, size_t n_bytes)
{
	return answer(ptr, n_bytes);
}

int
cudaFree(void *ptr)
{
	return ptr ? ROUTE_RUNTIME : 0;
}

int
cudaHostAlloc(void **ptr, size_t n_bytes, unsigned int flags)
{
	return answer(ptr, n_bytes + flags);
}

int
cudaMallocHost(void **ptr, size_t n_bytes)
{
	return answer(ptr, n_bytes);
}

int
cudaFreeHost(void *ptr)
{
	return cudaFree(ptr); /* by its export, a jump: see site_of() in shim/hook_runtime.c */
}
