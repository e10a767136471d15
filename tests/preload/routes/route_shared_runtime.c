/* SPDX-License-Identifier: MIT */
/* A program that links the shared runtime, on a device. */
#include <cuda_runtime_api.h>

#include "route.h"

int
main(void)
{
	void *device = NULL, *host = NULL, *pinned = NULL;
	int is_shim = route_is_preloaded();

	route_check(route_is_in((void *)cudaFreeHost, is_shim ? "libpoolshim" : "libcudart.so"),
		    "cudaFreeHost is in %s", route_object((void *)cudaFreeHost));
	route_check(!cudaMalloc(&device, 1000) && device, "cudaMalloc gives memory");
	route_check(!cudaHostAlloc(&host, 1000, cudaHostAllocDefault) && host, "cudaHostAlloc");
	route_check(!cudaMallocHost(&pinned, 1000) && pinned, "cudaMallocHost");
	memset(host, 1, 1000);
	route_check(!cudaMemcpy(device, host, 1000, cudaMemcpyHostToDevice), "copy in");
	route_check(!cudaMemcpy(pinned, device, 1000, cudaMemcpyDeviceToHost), "copy out");
	route_check(!memcmp(host, pinned, 1000), "the bytes came back");
	route_check(!cudaFree(device) && !cudaFreeHost(host) && !cudaFreeHost(pinned), "free");

	route_check(cudaFree(host) == cudaErrorInvalidValue, "a wrong pointer is refused");
	route_check(cudaGetLastError() == cudaErrorInvalidValue, "and is the last error");
	return route_end();
}
