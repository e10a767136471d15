/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * Devices as this process sees them: facts that dumps and limits need, read once while CUDA may
 * still be called, and what is counted for each.
 *
 * Locking: a device is filled by device_get()'s first caller and constant afterwards; stats and
 * account are atomics.
 */
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "policy/limits.h"
#include "pool/stats.h"
#include "shim/external.h"

enum { DEVICE_N_MAX = LIMIT_N_DEVICES };

struct device {
	int index;
	char name[128];
	unsigned char uuid[16];
	bool has_uuid;
	uint64_t total_bytes;
	bool reads_pageable; /* kernels may write any host memory: every free waits as natively */
	struct account account;
	struct stats stats;
	struct external external; /* what lies there past the pool */
};

/*
 * The device with this ordinal, filled; NULL: the driver did not tell, or the ordinal is too large.
 */
struct device *device_get(int index);

/* The same, only if it was filled before: for dumps, which call no CUDA. */
struct device *device_find(int index);

/* Pinned memory of all contexts. */
extern struct stats device_host_stats;
extern struct account device_host_account;

/* Host memory that the driver holds for the process past the pool. */
extern struct external device_host_external;
