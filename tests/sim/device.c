/* SPDX-License-Identifier: MIT */
#include "tests/sim/sim_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Start of the device, and what it says about itself. */

static uint64_t
parse_bytes(const char *text, uint64_t fallback)
{
	char *end;
	uint64_t v = text ? strtoull(text, &end, 10) : 0;

	if (v == 0)
		return fallback;
	switch (*end) {
	case 'k':
	case 'K':
		return v << 10;
	case 'm':
	case 'M':
		return v << 20;
	case 'g':
	case 'G':
		return v << 30;
	default:
		return v;
	}
}

static void
before_fork(void)
{
	pthread_mutex_lock(&sim.lock);
}

static void
after_fork_in_parent(void)
{
	pthread_mutex_unlock(&sim.lock);
}

static void
after_fork_in_child(void)
{
	worker_after_fork();
	pthread_mutex_unlock(&sim.lock);
}

__attribute__((constructor)) static void
register_fork_handlers(void)
{
	pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
}

/*
 * A child of a process that had called cuInit() gets CUDA_ERROR_NOT_INITIALIZED for ever, by
 * whatever call it was made (measured: fork() and a bare clone()).
 */
bool
sim_is_child(void)
{
	return sim.owner_pid && sim.owner_pid != getpid();
}

static CUresult
start(void)
{
	const char *mode = getenv("CUSIM_MODE"), *n = getenv("CUSIM_DEVICES"), *check;
	uint64_t bytes = parse_bytes(getenv("CUSIM_MEMORY"), (uint64_t)1 << 30);
	CUresult r;

	sim.n_devices = n ? atoi(n) : 1;
	if (sim.n_devices < 0 || sim.n_devices > SIM_MAX_DEVICES)
		sim.n_devices = 1;
	check = getenv("CUSIM_CHECK");
	if (check)
		sim.check = atoi(check);
	sim.n_context_pages = parse_bytes(getenv("CUSIM_CONTEXT_MEMORY"), 0) / SIM_PAGE;
	if (mode)
		sim.mode = strcmp(mode, "manual") == 0 ? CUSIM_MANUAL : CUSIM_AUTO;
	if (sim.n_devices == 0)
		return CUDA_ERROR_NO_DEVICE;
	for (int i = 0; i < sim.n_devices; i++)
		sim.devices[i] = (struct device){.ordinal = i, .n_pages = bytes / SIM_PAGE};
	r = phys_init();
	for (int i = 0; r == CUDA_SUCCESS && i < sim.n_devices; i++) {
		struct device *dev = &sim.devices[i];

		r = phys_init_device(dev);
		if (r == CUDA_SUCCESS)
			dev->default_pool = dev->current_pool = pool_new(dev);
		if (r == CUDA_SUCCESS && !dev->default_pool)
			r = CUDA_ERROR_OUT_OF_MEMORY;
	}
	return r;
}

CUresult
cuInit(unsigned int flags)
{
	CUresult r;
	bool is_first = false;

	if (sim_is_child())
		return CUDA_ERROR_NOT_INITIALIZED;
	r = sim_enter(E_cuInit, NEED_NOTHING);
	if (r != CUDA_SUCCESS)
		return r;
	if (flags != 0)
		return sim_leave(CUDA_ERROR_INVALID_VALUE);
	if (!sim.is_init) {
		r = start();
		sim.is_init = r == CUDA_SUCCESS;
		sim.owner_pid = sim.is_init ? getpid() : 0;
		is_first = sim.is_init;
	}
	sim_leave(r);
	if (is_first)
		debugger_inject();
	return r;
}

CUresult
cuDriverGetVersion(int *version)
{
	CUresult r = sim_enter(E_cuDriverGetVersion, NEED_NOTHING);

	if (r != CUDA_SUCCESS)
		return r;
	if (!version)
		return sim_leave(CUDA_ERROR_INVALID_VALUE);
	*version = sim_driver_version;
	return sim_leave(CUDA_SUCCESS);
}

CUresult
device_find(CUdevice ordinal, struct device **ret_dev)
{
	if (ordinal < 0 || ordinal >= sim.n_devices)
		return CUDA_ERROR_INVALID_DEVICE;
	*ret_dev = &sim.devices[ordinal];
	return CUDA_SUCCESS;
}

CUresult
cuDeviceGet(CUdevice *device, int ordinal)
{
	CUresult r = sim_enter(E_cuDeviceGet, NEED_INIT);
	struct device *dev;

	if (r != CUDA_SUCCESS)
		return r;
	if (!device)
		return sim_leave(CUDA_ERROR_INVALID_VALUE);
	r = device_find(ordinal, &dev);
	if (r == CUDA_SUCCESS)
		*device = ordinal;
	return sim_leave(r);
}

CUresult
cuDeviceGetCount(int *count)
{
	CUresult r = sim_enter(E_cuDeviceGetCount, NEED_INIT);

	if (r != CUDA_SUCCESS)
		return r;
	if (!count)
		return sim_leave(CUDA_ERROR_INVALID_VALUE);
	*count = sim.n_devices;
	return sim_leave(CUDA_SUCCESS);
}

CUresult
cuDeviceGetName(char *name, int len, CUdevice device)
{
	CUresult r = sim_enter(E_cuDeviceGetName, NEED_INIT);
	struct device *dev;

	if (r != CUDA_SUCCESS)
		return r;
	if (!name || len < 1)
		return sim_leave(CUDA_ERROR_INVALID_VALUE);
	r = device_find(device, &dev);
	if (r == CUDA_SUCCESS)
		snprintf(name, (size_t)len, "Software device %d", device);
	return sim_leave(r);
}

static CUresult
total_mem(enum entry_id e, uint64_t *ret_bytes, CUdevice device)
{
	CUresult r = sim_enter(e, NEED_INIT);
	struct device *dev;

	if (r != CUDA_SUCCESS)
		return r;
	r = device_find(device, &dev);
	if (r == CUDA_SUCCESS)
		*ret_bytes = dev->n_pages * SIM_PAGE;
	return sim_leave(r);
}

CUresult
cuDeviceTotalMem_v2(size_t *bytes, CUdevice device)
{
	uint64_t n = 0;
	CUresult r = total_mem(E_cuDeviceTotalMem_v2, &n, device);

	if (r == CUDA_SUCCESS && !bytes)
		return CUDA_ERROR_INVALID_VALUE;
	if (r == CUDA_SUCCESS)
		*bytes = n;
	return r;
}

/* The 32-bit form saturates. */
CUresult
cuDeviceTotalMem(unsigned int *bytes, CUdevice device)
{
	uint64_t n = 0;
	CUresult r = total_mem(E_cuDeviceTotalMem, &n, device);

	if (r == CUDA_SUCCESS && !bytes)
		return CUDA_ERROR_INVALID_VALUE;
	if (r == CUDA_SUCCESS)
		*bytes = n > UINT32_MAX ? UINT32_MAX : (unsigned)n;
	return r;
}

/* Those that programs and the pool look at; every other known attribute is 0. */
static int
attribute(CUdevice_attribute which, int ordinal)
{
	static const struct {
		CUdevice_attribute which;
		int value;
	} values[] = {
		{CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 1024},
		{CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X, 1024},
		{CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y, 1024},
		{CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z, 64},
		{CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X, INT32_MAX},
		{CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y, 65535},
		{CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z, 65535},
		{CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK, 49152},
		{CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY, 65536},
		{CU_DEVICE_ATTRIBUTE_WARP_SIZE, 32},
		{CU_DEVICE_ATTRIBUTE_MAX_PITCH, INT32_MAX},
		{CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK, 65536},
		{CU_DEVICE_ATTRIBUTE_CLOCK_RATE, 1000000},
		{CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT, 512},
		{CU_DEVICE_ATTRIBUTE_TEXTURE_PITCH_ALIGNMENT, 32},
		{CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 8},
		{CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY, 1},
		{CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS, 1},
		{CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT, 2},
		{CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, 1},
		{CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE, 1000000},
		{CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH, 512},
		{CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, 4 << 20},
		{CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, 2048},
		{CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 9},
		{CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED, 1},
		{CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY, 1},
		{CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS, 1},
		{CU_DEVICE_ATTRIBUTE_COMPUTE_PREEMPTION_SUPPORTED, 1},
		{CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM, 1},
		{CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS, 1},
		{CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR, 1},
		{CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED, 1},
		{CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 1},
		{CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, 1},
		{CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED, 1},
		{CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED, 1},
		{CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, 1},
		{CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED, 0},
	};

	if (which == CU_DEVICE_ATTRIBUTE_PCI_BUS_ID)
		return ordinal + 1;
	for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
		if (values[i].which == which)
			return values[i].value;
	}
	return 0;
}

CUresult
cuDeviceGetAttribute(int *value, CUdevice_attribute which, CUdevice device)
{
	CUresult r = sim_enter(E_cuDeviceGetAttribute, NEED_INIT);
	struct device *dev;

	if (r != CUDA_SUCCESS)
		return r;
	if (!value || which < 1 || which >= CU_DEVICE_ATTRIBUTE_MAX)
		return sim_leave(CUDA_ERROR_INVALID_VALUE);
	r = device_find(device, &dev);
	if (r == CUDA_SUCCESS)
		*value = attribute(which, device);
	return sim_leave(r);
}

static CUresult
get_uuid(enum entry_id e, CUuuid *uuid, CUdevice device)
{
	CUresult r = sim_enter(e, NEED_INIT);
	struct device *dev;

	if (r != CUDA_SUCCESS)
		return r;
	if (!uuid)
		return sim_leave(CUDA_ERROR_INVALID_VALUE);
	r = device_find(device, &dev);
	if (r == CUDA_SUCCESS) {
		memcpy(uuid->bytes, "cusim-device-00", sizeof(uuid->bytes));
		uuid->bytes[15] = (char)device;
	}
	return sim_leave(r);
}

CUresult
cuDeviceGetUuid(CUuuid *uuid, CUdevice device)
{
	return get_uuid(E_cuDeviceGetUuid, uuid, device);
}

CUresult
cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice device)
{
	return get_uuid(E_cuDeviceGetUuid_v2, uuid, device);
}

CUresult
cuDeviceGetPCIBusId(char *id, int len, CUdevice device)
{
	CUresult r = sim_enter(E_cuDeviceGetPCIBusId, NEED_INIT);
	struct device *dev;

	if (r != CUDA_SUCCESS)
		return r;
	if (!id || len < 1)
		return sim_leave(CUDA_ERROR_INVALID_VALUE);
	r = device_find(device, &dev);
	if (r == CUDA_SUCCESS)
		snprintf(id, (size_t)len, "0000:%02X:00.0", (unsigned)device + 1);
	return sim_leave(r);
}

CUresult
cuDeviceGetByPCIBusId(CUdevice *ret_device, const char *id)
{
	CUresult r = sim_enter(E_cuDeviceGetByPCIBusId, NEED_INIT);
	unsigned domain, bus, slot;
	int n;

	if (r != CUDA_SUCCESS)
		return r;
	if (!ret_device || !id)
		return sim_leave(CUDA_ERROR_INVALID_VALUE);
	n = sscanf(id, "%x:%x:%x", &domain, &bus, &slot);
	if (n == 2)
		bus = domain;
	if (n < 2 || bus < 1 || bus > (unsigned)sim.n_devices)
		return sim_leave(CUDA_ERROR_INVALID_DEVICE);
	*ret_device = (CUdevice)bus - 1;
	return sim_leave(CUDA_SUCCESS);
}
