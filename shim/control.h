/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * The control block of this process (pool/stats_abi.h): where the figures live that are counted all
 * the time, so that a process which is killed leaves them to `poolshim stats`.
 *
 * It is made at cuInit and mapped for the life of the process. Where it cannot be made (no
 * /dev/shm, a folder of somebody else, no room) the figures live in private memory and everything
 * else works. A forked child has private memory in its place.
 *
 * To add a figure: a row in pool/stats.def is all; a new group is a member of one of the structs
 * below and its rows in control_fields.c.
 *
 * Locking: none; figures are atomics, texts are written before hooks are active.
 */
#include <limits.h>

#include "policy/options.h"
#include "pool/stats.h"
#include "pool/stats_abi.h"
#include "shim/coverage.h"
#include "shim/external.h"

enum {
	CONTROL_N_DEVICES = LIMIT_N_DEVICES,
	CONTROL_N_FIELDS_MAX = 256,
};

enum control_section {
	CONTROL_PROCESS,
	CONTROL_HOST,
	CONTROL_DEVICES,
	CONTROL_N_SECTIONS,
};

/* What is counted for one device, or for all pinned memory. */
struct control_memory {
	_Atomic uint64_t limit_bytes; /* 0: none */
	struct stats stats;
	struct external external;
};

struct control_device {
	_Atomic uint64_t is_known; /* release: what follows up to memory was written */
	uint64_t index, device_total_bytes;
	char uuid[48], name[128];
	struct control_memory memory;
};

struct control_process {
	char version[32], mode[16], host_name[256], rank[32];
	char exe[PATH_MAX];
	char config[3 * PATH_MAX]; /* lines of NAME=value */
	_Atomic uint64_t routes[COVERAGE_N_ROUTES];
};

struct control_block {
	struct stats_abi_header header;
	struct stats_abi_section sections[CONTROL_N_SECTIONS];
	struct stats_abi_field fields[CONTROL_N_FIELDS_MAX];
	struct control_process process;
	struct control_memory host;
	struct control_device devices[CONTROL_N_DEVICES]; /* the file has those that there are */
};

/* Never NULL; does not change once hooks are active. */
extern struct control_block *control;

/* Once, before hooks are active. n_devices: how many there are. */
void control_open(const struct options *options, int n_devices);

/* The place of the device with this ordinal, below CONTROL_N_DEVICES. */
struct control_device *control_device(int index);

/* The process ends in order: nobody need read the block any more. */
void control_close(void);

/* In a forked child: from here on the parent's block is out of reach. */
void control_leave(void);

/* Fill in sections and fields. */
void control_describe(struct control_block *block, uint32_t n_devices);

/*
 * Remove what ended processes left in the folder, except the newest STATS_ABI_N_KEPT; looks at a
 * bounded number of files.
 */
void control_clean(int folder_fd, uint64_t pid_namespace, const char *boot_id);
