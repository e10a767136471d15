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
	char uuid[48]; /* as nvidia-smi prints it; empty: not known */
	uint64_t total_bytes;
	bool reads_pageable; /* kernels may write any host memory: every free waits as natively */
	struct account account;
	struct stats *stats;       /* in the control block */
	struct external *external; /* what lies there past the pool; in the control block */
};

/*
 * The device with this ordinal, filled; NULL: the driver did not tell, or the ordinal is too large.
 */
struct device *device_get(int index);

/* The same, only if it was filled before: for dumps, which call no CUDA. */
struct device *device_find(int index);

/* Most that the pool may hold there; LIMIT_NONE: no limit. */
void device_set_limit(struct device *device, uint64_t limit_bytes);

/* Pinned memory of all contexts. */
struct stats *device_host_stats(void);
extern struct account device_host_account;
void device_set_host_limit(uint64_t limit_bytes);

/* Host memory that the driver holds for the process past the pool. */
struct external *device_host_external(void);
