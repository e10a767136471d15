/* SPDX-License-Identifier: MIT */
/*
 * A preload that counts the changes of the current context that go through the driver's functions
 * as the CUDA runtime looks them up: dlsym for the resolver, the resolver for the rest. For
 * gpu_probe natively only; the shim is not in the process.
 */
#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>
#include <dlfcn.h>
#include <stddef.h>
#include <string.h>

static long n_changes;
static __typeof__(&cuGetProcAddress_v2) real_resolver;

/* Each kind of change: the real function and the one that counts. */
#define SPY(name, parameters, arguments) \
	static __typeof__(&name) real_##name; \
	static CUresult CUDAAPI spy_##name parameters \
	{ \
		__atomic_add_fetch(&n_changes, 1, __ATOMIC_RELAXED); \
		return real_##name arguments; \
	}
SPY(cuCtxSetCurrent, (CUcontext context), (context))
SPY(cuCtxPushCurrent_v2, (CUcontext context), (context))
SPY(cuCtxPopCurrent_v2, (CUcontext * context), (context))
SPY(cuDevicePrimaryCtxReset_v2, (CUdevice device), (device))

__attribute__((visibility("default"))) long
spy_context_changes(void)
{
	return __atomic_load_n(&n_changes, __ATOMIC_RELAXED);
}

/* The versions before v2 are not what a runtime of CUDA 13 asks for. */
static void *
spied(const char *name, void *real)
{
	if (!strcmp(name, "cuCtxSetCurrent"))
		return real_cuCtxSetCurrent = (__typeof__(real_cuCtxSetCurrent))real,
		       (void *)spy_cuCtxSetCurrent;
	if (!strcmp(name, "cuCtxPushCurrent"))
		return real_cuCtxPushCurrent_v2 = (__typeof__(real_cuCtxPushCurrent_v2))real,
		       (void *)spy_cuCtxPushCurrent_v2;
	if (!strcmp(name, "cuCtxPopCurrent"))
		return real_cuCtxPopCurrent_v2 = (__typeof__(real_cuCtxPopCurrent_v2))real,
		       (void *)spy_cuCtxPopCurrent_v2;
	if (!strcmp(name, "cuDevicePrimaryCtxReset"))
		return real_cuDevicePrimaryCtxReset_v2 =
			       (__typeof__(real_cuDevicePrimaryCtxReset_v2))real,
		       (void *)spy_cuDevicePrimaryCtxReset_v2;
	return real;
}

static CUresult CUDAAPI
resolve(const char *name, void **ret_function, int version, cuuint64_t flags,
	CUdriverProcAddressQueryResult *ret_status)
{
	const CUresult r = real_resolver(name, ret_function, version, flags, ret_status);

	if (!r && ret_function && *ret_function)
		*ret_function = spied(name, *ret_function);
	return r;
}

__attribute__((visibility("default"))) void *
dlsym(void *restrict handle, const char *restrict name)
{
	static __typeof__(&dlsym) real_dlsym;
	void *found;

	if (!real_dlsym)
		real_dlsym = (__typeof__(real_dlsym))dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5");
	found = real_dlsym(handle, name);
	if (!found || strcmp(name, "cuGetProcAddress_v2"))
		return found;
	real_resolver = (__typeof__(real_resolver))found;
	return (void *)resolve;
}
