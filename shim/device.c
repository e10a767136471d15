/* SPDX-License-Identifier: MIT */
#include "shim/device.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "pool/thread.h"
#include "shim/control.h"
#include "shim/hooks.h"
#include "shim/init.h"

struct account device_host_account = {.limit_bytes = LIMIT_NONE};

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

struct stats *
device_host_stats(void)
{
	return &control->host.stats;
}

struct external *
device_host_external(void)
{
	return &control->host.external;
}

static void
print_uuid(const CUuuid *uuid, char *ret_text, size_t n_bytes)
{
	size_t n = (size_t)snprintf(ret_text, n_bytes, "GPU-");

	for (size_t i = 0; i < sizeof(uuid->bytes) && n < n_bytes; i++)
		n += (size_t)snprintf(ret_text + n, n_bytes - n, "%s%02x",
				      i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "",
				      (unsigned char)uuid->bytes[i]);
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
	if (real.cuDeviceGetUuid_v2 && real.cuDeviceGetUuid_v2(&uuid, index) == CUDA_SUCCESS)
		print_uuid(&uuid, device->uuid, sizeof(device->uuid));
	if (real.cuDeviceGetAttribute(&answer, CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS, index) ==
	    CUDA_SUCCESS)
		device->reads_pageable = answer != 0;
	return true;
}

static void
tell_limit(struct control_memory *memory, uint64_t limit_bytes)
{
	/* relaxed: a figure for readers, which orders nothing */
	atomic_store_explicit(&memory->limit_bytes, limit_bytes == LIMIT_NONE ? 0 : limit_bytes,
			      memory_order_relaxed);
}

/* In the control block, which from here on keeps the device's figures. */
static void
describe(struct device *device)
{
	struct control_device *place = control_device(device->index);

	place->index = (uint64_t)device->index;
	place->device_total_bytes = device->total_bytes;
	memcpy(place->name, device->name, sizeof(place->name));
	memcpy(place->uuid, device->uuid, sizeof(place->uuid));
	tell_limit(&place->memory, limit_get(&device->account));
	device->stats = &place->memory.stats;
	device->external = &place->memory.external;
	/* release: what describes the device, for readers that see that it is known */
	atomic_store_explicit(&place->is_known, 1, memory_order_release);
}

void
device_set_limit(struct device *device, uint64_t limit_bytes)
{
	limit_set(&device->account, limit_bytes);
	tell_limit(&control_device(device->index)->memory, limit_bytes);
}

void
device_set_host_limit(uint64_t limit_bytes)
{
	limit_set(&device_host_account, limit_bytes);
	tell_limit(&control->host, limit_bytes);
}

struct device *
device_get(int index)
{
	struct device *device = device_find(index);
	struct device fresh = {0};

	if (device || thread_holds() || index < 0 || index >= DEVICE_N_MAX || !ask(index, &fresh))
		return device;
	device = &devices[index];
	thread_lock(&publish_lock);
	if (!device_find(index)) {
		device->index = index;
		memcpy(device->name, fresh.name, sizeof(device->name));
		memcpy(device->uuid, fresh.uuid, sizeof(device->uuid));
		device->total_bytes = fresh.total_bytes;
		device->reads_pageable = fresh.reads_pageable;
		account_init(&device->account,
			     limit_spec_bytes(&init_options()->limit, index, fresh.total_bytes));
		describe(device);
		atomic_store_explicit(&is_filled[index], true, memory_order_release);
	}
	thread_unlock(&publish_lock);
	return device;
}
