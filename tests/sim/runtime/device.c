/* SPDX-License-Identifier: MIT */
/*
 * What a program asks about devices and versions, and the look-up of driver functions. None of it
 * needs a context.
 */
#include <stddef.h>
#include <string.h>

#include "tests/sim/runtime/runtime.h"

static int
attribute(CUdevice device, CUdevice_attribute which)
{
	int value = 0;

	if (driver.cuDeviceGetAttribute(&value, which, device) != CUDA_SUCCESS)
		return 0;
	return value;
}

static void
fill_limits(struct cudaDeviceProp *prop, CUdevice device)
{
	prop->warpSize = attribute(device, CU_DEVICE_ATTRIBUTE_WARP_SIZE);
	prop->maxThreadsPerBlock = attribute(device, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
	prop->multiProcessorCount = attribute(device, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
	prop->major = attribute(device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
	prop->minor = attribute(device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
	prop->textureAlignment = (size_t)attribute(device, CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT);
	prop->memPitch = (size_t)attribute(device, CU_DEVICE_ATTRIBUTE_MAX_PITCH);
}

static void
fill_abilities(struct cudaDeviceProp *prop, CUdevice device)
{
	prop->pciBusID = attribute(device, CU_DEVICE_ATTRIBUTE_PCI_BUS_ID);
	prop->pciDeviceID = attribute(device, CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID);
	prop->pciDomainID = attribute(device, CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID);
	prop->unifiedAddressing = attribute(device, CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING);
	prop->canMapHostMemory = attribute(device, CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY);
	prop->managedMemory = attribute(device, CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY);
	prop->concurrentManagedAccess =
		attribute(device, CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS);
	prop->pageableMemoryAccess = attribute(device, CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS);
	prop->memoryPoolsSupported = attribute(device, CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED);
}

RUNTIME_EXPORT cudaError_t
cudaGetDeviceProperties(struct cudaDeviceProp *prop, int device)
{
	cudaError_t error = driver_start();
	CUresult status;
	CUdevice handle;
	CUuuid uuid = {0};

	if (error)
		return runtime_record_error(error);
	if (!prop)
		return runtime_record_error(cudaErrorInvalidValue);
	if (driver.cuDeviceGet(&handle, device) != CUDA_SUCCESS)
		return runtime_record_error(cudaErrorInvalidDevice);

	memset(prop, 0, sizeof(*prop));
	status = driver.cuDeviceGetName(prop->name, sizeof(prop->name), handle);
	if (status == CUDA_SUCCESS)
		status = driver.cuDeviceTotalMem_v2(&prop->totalGlobalMem, handle);
	if (status == CUDA_SUCCESS && driver.cuDeviceGetUuid)
		status = driver.cuDeviceGetUuid(&uuid, handle);
	if (status != CUDA_SUCCESS)
		return runtime_record(status);
	memcpy(&prop->uuid, &uuid, sizeof(uuid));
	fill_limits(prop, handle);
	fill_abilities(prop, handle);
	return cudaSuccess;
}

RUNTIME_EXPORT cudaError_t
cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr which, int device)
{
	cudaError_t error = driver_start();

	if (error)
		return runtime_record_error(error);
	return runtime_record(
		driver.cuDeviceGetAttribute(value, (CUdevice_attribute)which, device));
}

RUNTIME_EXPORT cudaError_t
cudaDriverGetVersion(int *version)
{
	cudaError_t error = driver_start();

	if (error == cudaErrorInsufficientDriver && version) {
		*version = 0;
		return cudaSuccess;
	}
	if (!version)
		return runtime_record_error(cudaErrorInvalidValue);
	return runtime_record(driver.cuDriverGetVersion(version));
}

RUNTIME_EXPORT cudaError_t
cudaRuntimeGetVersion(int *version)
{
	if (!version)
		return runtime_record_error(cudaErrorInvalidValue);
	*version = RUNTIME_VERSION;
	return cudaSuccess;
}

static cudaError_t
entry_point(const char *name, void **ret_function, int version, unsigned long long flags,
	    cuuint64_t default_flags, enum cudaDriverEntryPointQueryResult *ret_result)
{
	CUdriverProcAddressQueryResult result = CU_GET_PROC_ADDRESS_SUCCESS;
	cudaError_t error = driver_start();
	CUresult status;

	if (error)
		return runtime_record_error(error);
	if (!name || !ret_function)
		return runtime_record_error(cudaErrorInvalidValue);

	status = driver.cuGetProcAddress_v2(name, ret_function, version,
					    flags == cudaEnableDefault ? default_flags : flags,
					    &result);
	if (ret_result)
		*ret_result = (enum cudaDriverEntryPointQueryResult)result;
	if (status == CUDA_ERROR_NOT_FOUND && ret_result) /* said by the result */
		return cudaSuccess;
	return runtime_record(status);
}

RUNTIME_EXPORT cudaError_t
cudaGetDriverEntryPoint(const char *name, void **ret_function, unsigned long long flags,
			enum cudaDriverEntryPointQueryResult *ret_result)
{
	return entry_point(name, ret_function, RUNTIME_VERSION, flags,
			   CU_GET_PROC_ADDRESS_LEGACY_STREAM, ret_result);
}

RUNTIME_EXPORT cudaError_t
cudaGetDriverEntryPoint_ptsz(const char *name, void **ret_function, unsigned long long flags,
			     enum cudaDriverEntryPointQueryResult *ret_result)
{
	return entry_point(name, ret_function, RUNTIME_VERSION, flags,
			   CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM, ret_result);
}

RUNTIME_EXPORT cudaError_t
cudaGetDriverEntryPointByVersion(const char *name, void **ret_function, unsigned int version,
				 unsigned long long flags,
				 enum cudaDriverEntryPointQueryResult *ret_result)
{
	return entry_point(name, ret_function, (int)version, flags,
			   CU_GET_PROC_ADDRESS_LEGACY_STREAM, ret_result);
}

RUNTIME_EXPORT cudaError_t
cudaGetDriverEntryPointByVersion_ptsz(const char *name, void **ret_function, unsigned int version,
				      unsigned long long flags,
				      enum cudaDriverEntryPointQueryResult *ret_result)
{
	return entry_point(name, ret_function, (int)version, flags,
			   CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM, ret_result);
}
