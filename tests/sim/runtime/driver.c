/* SPDX-License-Identifier: MIT */
/*
 * Finding the driver: the same calls in the same order as NVIDIA's runtime makes them.
 *
 * Locking: pthread_once; `driver` is written there and read-only afterwards.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <string.h>

#include "tests/sim/runtime/runtime.h"

enum {
	LEGACY = CU_GET_PROC_ADDRESS_DEFAULT,
	PER_THREAD = CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM,
};

struct driver_calls driver;

static cudaError_t start_error;
static pthread_once_t start_once = PTHREAD_ONCE_INIT;

static void
look_up(__typeof__(&cuGetProcAddress_v2) get_proc, const char *query, int version, cuuint64_t flags,
	void *slot)
{
	void *address = NULL;

	if (get_proc(query, &address, version, flags, NULL) == CUDA_SUCCESS)
		memcpy(slot, &address, sizeof(address));
}

static void
start(void)
{
	__typeof__(&cuGetProcAddress_v2) get_proc;
	void *handle = dlopen("libcuda.so.1", RTLD_NOW);
	void *address = handle ? dlsym(handle, "cuGetProcAddress_v2") : NULL;

	if (!address) {
		start_error = cudaErrorInsufficientDriver;
		return;
	}
	memcpy(&get_proc, &address, sizeof(get_proc));
	get_proc("", NULL, 0, CU_GET_PROC_ADDRESS_DEFAULT, NULL);

#define DRIVER_CALL(symbol, query, version, flags) \
	look_up(get_proc, query, version, flags, &driver.symbol);
#include "tests/sim/runtime/driver_calls.def"
#undef DRIVER_CALL

	if (!driver.cuInit || !driver.cuCtxGetCurrent || !driver.cuCtxSetCurrent ||
	    !driver.cuDevicePrimaryCtxRetain)
		start_error = cudaErrorInsufficientDriver;
	else
		start_error = (cudaError_t)driver.cuInit(0);
}

cudaError_t
driver_start(void)
{
	pthread_once(&start_once, start);
	return start_error;
}
