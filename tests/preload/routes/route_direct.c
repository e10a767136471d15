/* SPDX-License-Identifier: MIT */
/* A program that links libcuda: its calls, and the pointers that it takes, are the shim's. */
#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>

#include "route.h"

static void
check_pointer(void *linked, const char *name)
{
	void *libcuda = dlopen("libcuda.so.1", RTLD_NOW);

	/* a linked name is bound to the shim in mode off too: the body forwards there */
	route_check(route_is_in(linked, route_is_preloaded() ? "libpoolshim" : "libcuda.so"),
		    "linked %s is in %s", name, route_object(linked));
	if (!route_is_preloaded() || route_is_hooking())
		route_check(dlsym(libcuda, name) == linked, "%s by handle is the same", name);
	route_check(route_is_in(dlsym(RTLD_DEFAULT, name), route_hooked_object()),
		    "%s by RTLD_DEFAULT is in %s", name, route_hooked_object());
	dlclose(libcuda);
}

int
main(void)
{
	CUdeviceptr ptr = 0;
	CUdevice device = -1;
	CUcontext context;

	check_pointer((void *)cuInit, "cuInit");
	check_pointer((void *)cuMemAlloc_v2, "cuMemAlloc_v2");
	check_pointer((void *)cuGetProcAddress_v2, "cuGetProcAddress_v2");

	route_check(cuInit(0) == CUDA_SUCCESS, "cuInit");
	route_check(cuDeviceGet(&device, 0) == CUDA_SUCCESS, "cuDeviceGet");
	route_check(cuDevicePrimaryCtxRetain(&context, device) == CUDA_SUCCESS, "retain");
	route_check(cuCtxSetCurrent(context) == CUDA_SUCCESS, "cuCtxSetCurrent");
	route_check(cuMemAlloc_v2(&ptr, 1000) == CUDA_SUCCESS && ptr, "cuMemAlloc gives memory");
	route_check(cuMemFree_v2(ptr) == CUDA_SUCCESS, "cuMemFree takes it back");
	return route_end();
}
