/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * What a dump says, gathered from memory: no CUDA call, so it works at exit. Printed by
 * report_text.c and report_json.c.
 *
 * Locking: heap locks, one after the other; figures of a running program are each right and not of
 * one moment.
 */
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>

#include "pool/frag.h"
#include "pool/stats.h"
#include "shim/coverage.h"
#include "shim/device.h"
#include "shim/missed.h"
#include "shim/out.h"
#include "shim/submit.h"

enum report_reason {
	REPORT_EXIT,
	REPORT_SIGNAL,
	REPORT_REQUEST,
};

/* One device's memory, or all pinned memory, at the time of the dump. */
struct report_memory {
#define GAUGE(name, peak, help) uint64_t name, peak;
#define COUNTER(name, help) uint64_t name;
#include "pool/stats.def"
#undef GAUGE
#undef COUNTER
	struct {
		uint64_t count, n_live;
	} sizes[STATS_N_SIZE_CLASSES];
	struct frag_figures frag;
	unsigned n_callers;
	struct report_caller {
		const char *path; /* of the object */
		uint64_t used_bytes, peak_bytes, count;
		uint64_t external_bytes, peak_external_bytes, external_count; /* past the pool */
	} callers[STATS_N_TAGS]; /* those that asked, largest peaks first */
};

/* What lies on one device, or on the host, past the pool. */
struct report_external {
	uint64_t bytes[EXTERNAL_N_KINDS], peak_bytes[EXTERNAL_N_KINDS];
	uint64_t total_bytes, peak_total_bytes;
	uint64_t n_unmeasured, peak_n_unmeasured;
};

struct report_device {
	const struct device *device;
	uint64_t limit_bytes; /* LIMIT_NONE: none */
	struct report_memory memory;
	struct report_external external;
};

enum { REPORT_N_STREAMS = 64 };

struct report {
	enum report_reason reason;
	pid_t pid;
	char exe[PATH_MAX];
	char host[256];
	char time[32];    /* ISO 8601, UTC */
	const char *rank; /* NULL: none of the launchers' variables is set */
	unsigned n_devices;
	struct report_device devices[DEVICE_N_MAX];
	struct report_memory pinned;
	struct report_external host_external;
	struct coverage coverage;
	struct missed missed;
	bool is_order_on; /* memory is handed out early */
	char why[128];    /* it is not */
	unsigned n_streams;
	struct submit_total streams[REPORT_N_STREAMS];
	bool was_used; /* a CUDA allocation was seen */
};

/*
 * report: large; the caller keeps it off small stacks. What needs a lock that is not to be had by
 * the deadline (CLOCK_REALTIME; NULL: wait for ever) is left out.
 */
void report_gather(struct report *report, enum report_reason reason,
		   const struct timespec *deadline);

const char *report_reason_name(enum report_reason reason);

/* The rank that a launcher gave this process, or NULL. */
const char *report_rank(void);

/* 25 lines at most, for a person. */
void report_print_text(const struct report *report, struct out *out);

/* Schema poolshim-stats-1. */
void report_print_json(const struct report *report, struct out *out);
