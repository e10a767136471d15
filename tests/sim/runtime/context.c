/* SPDX-License-Identifier: MIT */
/*
 * Lazy initialisation: a device's primary context is retained at the first call that needs it, and
 * again after a reset.
 *
 * A thread works in the context that is current; only where none is, or where the runtime itself
 * bound one that a reset has since ended, does the runtime bind the primary context of the thread's
 * device.
 *
 * Locking: `lock` covers `primaries`. No other lock is taken under it.
 */
#include <pthread.h>
#include <stddef.h>

#include "tests/sim/runtime/runtime.h"

enum { N_DEVICES_MAX = 64 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static struct primary {
	CUcontext context;
	unsigned int generation; /* goes up with each reset */
	bool is_retained;
} primaries[N_DEVICES_MAX];

static _Thread_local struct {
	int device;
	CUcontext bound; /* what the runtime last made current here */
	unsigned int generation;
} self;

static bool
is_bound_stale(void)
{
	bool is_stale;

	pthread_mutex_lock(&lock);
	is_stale = self.generation != primaries[self.device].generation;
	pthread_mutex_unlock(&lock);
	return is_stale;
}

static CUresult
bind_primary(int device)
{
	struct primary *primary = &primaries[device];
	CUresult status = CUDA_SUCCESS;
	CUdevice handle;

	pthread_mutex_lock(&lock);
	if (!primary->is_retained) {
		status = driver.cuDeviceGet(&handle, device);
		if (status == CUDA_SUCCESS)
			status = driver.cuDevicePrimaryCtxRetain(&primary->context, handle);
		primary->is_retained = status == CUDA_SUCCESS;
	}
	if (status == CUDA_SUCCESS)
		status = driver.cuCtxSetCurrent(primary->context);
	if (status == CUDA_SUCCESS) {
		self.device = device;
		self.bound = primary->context;
		self.generation = primary->generation;
	}
	pthread_mutex_unlock(&lock);
	return status;
}

cudaError_t
runtime_enter(void)
{
	cudaError_t error = driver_start();
	CUcontext current = NULL;
	CUresult status;

	if (error)
		return runtime_record_error(error);
	status = driver.cuCtxGetCurrent(&current);
	if (status != CUDA_SUCCESS)
		return runtime_record(status);
	if (current && (current != self.bound || !is_bound_stale()))
		return cudaSuccess;
	return runtime_record(bind_primary(self.device));
}

RUNTIME_EXPORT cudaError_t
cudaGetDeviceCount(int *count)
{
	cudaError_t error = driver_start();

	if (error)
		return runtime_record_error(error);
	return runtime_record(driver.cuDeviceGetCount(count));
}

RUNTIME_EXPORT cudaError_t
cudaSetDevice(int device)
{
	int n_devices = 0;
	cudaError_t error = cudaGetDeviceCount(&n_devices);

	if (error)
		return error;
	if (device < 0 || device >= n_devices || device >= N_DEVICES_MAX)
		return runtime_record_error(cudaErrorInvalidDevice);
	return runtime_record(bind_primary(device));
}

RUNTIME_EXPORT cudaError_t
cudaGetDevice(int *device)
{
	cudaError_t error = driver_start();
	CUcontext current = NULL;
	CUdevice handle;

	if (error)
		return runtime_record_error(error);
	if (!device)
		return runtime_record_error(cudaErrorInvalidValue);
	if (driver.cuCtxGetCurrent(&current) == CUDA_SUCCESS && current && current != self.bound &&
	    driver.cuCtxGetDevice(&handle) == CUDA_SUCCESS)
		*device = handle;
	else
		*device = self.device;
	return cudaSuccess;
}

RUNTIME_EXPORT cudaError_t
cudaDeviceSynchronize(void)
{
	return RUNTIME_CALL(driver.cuCtxSynchronize);
}

RUNTIME_EXPORT cudaError_t
cudaDeviceReset(void)
{
	cudaError_t error = driver_start();
	CUresult status;
	CUdevice handle;
	int device;

	if (error)
		return runtime_record_error(error);
	cudaGetDevice(&device);
	status = driver.cuDeviceGet(&handle, device);
	if (status != CUDA_SUCCESS)
		return runtime_record(status);

	pthread_mutex_lock(&lock);
	status = driver.cuDevicePrimaryCtxReset(handle);
	if (status == CUDA_SUCCESS) {
		primaries[device].is_retained = false;
		primaries[device].generation++;
	}
	pthread_mutex_unlock(&lock);
	return runtime_record(status);
}
