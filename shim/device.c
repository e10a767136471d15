/* SPDX-License-Identifier: MIT */
#include "shim/device.h"

#include <pthread.h>
#include <string.h>

#include "shim/hooks.h"
#include "shim/init.h"

struct stats device_host_stats;
struct account device_host_account = {.limit_bytes = LIMIT_NONE};
struct external device_host_external;

static struct device devices[DEVICE_N_MAX];
static atomic_bool is_filled[DEVICE_N_MAX];
static pthread_mutex_t publish_lock = PTHREAD_MUTEX_INITIALIZER;

struct device *
device_find(int index)
{
	if (index < 0 || index >= DEVICE_N_MAX)
		return NULL;
	/* Acquire: what the publisher wrote. */
	return atomic_load_explicit(&is_filled[index], memory_order_acquire) ? &devices[index]
									     : NULL;
}

static bool
ask(int index, struct device *device)
{
	size_t total_bytes;
	CUuuid uuid;
	int answer;

	device->index = index;
	if (real.cuDeviceTotalMem_v2(&total_bytes, index) != CUDA_SUCCESS)
		return false;
	device->total_bytes = total_bytes;
	if (real.cuDeviceGetName(device->name, sizeof(device->name), index) != CUDA_SUCCESS)
		device->name[0] = '\0';
	if (real.cuDeviceGetUuid_v2 && real.cuDeviceGetUuid_v2(&uuid, index) == CUDA_SUCCESS) {
		memcpy(device->uuid, uuid.bytes, sizeof(device->uuid));
		device->has_uuid = true;
	}
	if (real.cuDeviceGetAttribute(&answer, CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS, index) ==
	    CUDA_SUCCESS)
		device->reads_pageable = answer != 0;
	return true;
}

struct device *
device_get(int index)
{
	struct device *device = device_find(index);
	struct device fresh = {0};

	if (device || index < 0 || index >= DEVICE_N_MAX || !ask(index, &fresh))
		return device;
	device = &devices[index];
	pthread_mutex_lock(&publish_lock);
	if (!device_find(index)) {
		device->index = index;
		memcpy(device->name, fresh.name, sizeof(device->name));
		memcpy(device->uuid, fresh.uuid, sizeof(device->uuid));
		device->has_uuid = fresh.has_uuid;
		device->total_bytes = fresh.total_bytes;
		device->reads_pageable = fresh.reads_pageable;
		account_init(&device->account,
			     limit_spec_bytes(&init_options()->limit, index, fresh.total_bytes));
		atomic_store_explicit(&is_filled[index], true, memory_order_release);
	}
	pthread_mutex_unlock(&publish_lock);
	return device;
}
