/* SPDX-License-Identifier: MIT */
/* A library that links a CUDA runtime, or leaves it to its host (built without one). */
#include <stddef.h>

int cudaMalloc(void **ptr, size_t n_bytes);
int cudaFree(void *ptr);
int cudaHostAlloc(void **ptr, size_t n_bytes, unsigned int flags);
int cudaMallocHost(void **ptr, size_t n_bytes);
int cudaFreeHost(void *ptr);

int route_runtime_of_user(void);
void *route_malloc_of_user(void);

/* The major version of the runtime that all five calls reached; 0: they disagree or failed. */
int
route_runtime_of_user(void)
{
	void *a = NULL, *b = NULL, *c = NULL;
	int runtime;

	if (cudaMalloc(&a, 7) || cudaHostAlloc(&b, 3, 4) || cudaMallocHost(&c, 7) || a != b ||
	    a != c)
		return 0;
	runtime = (int)((size_t)a / 1000);
	return cudaFree(a) == runtime && cudaFreeHost(b) == runtime ? runtime : 0;
}

void *
route_malloc_of_user(void)
{
	return (void *)cudaMalloc;
}
