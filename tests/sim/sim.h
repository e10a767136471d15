/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * Control surface of the software device.
 *
 * The calls are exported by the software libcuda.so.1 beside the cu* names. Types are plain C so
 * that a test may link them or find them with dlsym(). Handles are passed as void *.
 *
 * Every call may be made from any thread, before cuInit too; none needs a current context, except
 * that a NULL-like stream handle (CU_STREAM_LEGACY, CU_STREAM_PER_THREAD) means that of the
 * caller's current context. None is counted as a driver call. Times are nanoseconds of the
 * simulated clock, which only the device and cusim_advance_ns() move.
 *
 * Kernels that cuModuleGetFunction() finds in any image, with their parameters:
 *   sim_fill(CUdeviceptr dst, unsigned int value, size_t n_bytes)   low 8 bits of value
 *   sim_copy(CUdeviceptr dst, CUdeviceptr src, size_t n_bytes)
 *   sim_spin(CUdeviceptr flag, uint64_t ns)   until *(uint32_t *)flag != 0 or ns have passed; flag
 *                                             may be 0; ns == 0 with a flag means no end by time
 */

#include <stddef.h>
#include <stdint.h>

enum cusim_mode {
	CUSIM_AUTO,   /* a worker thread per device runs what is ready */
	CUSIM_MANUAL, /* work runs when a test steps it or the program waits for it */
};

enum cusim_op_kind {
	CUSIM_OP_COPY,
	CUSIM_OP_SET,
	CUSIM_OP_KERNEL,
	CUSIM_OP_HOST_FUNC,
	CUSIM_OP_EVENT_RECORD,
	CUSIM_OP_EVENT_WAIT,
	CUSIM_OP_WRITE_VALUE,
	CUSIM_OP_WAIT_VALUE,
	CUSIM_OP_ALLOC_ASYNC,
	CUSIM_OP_FREE_ASYNC,
	CUSIM_OP_NOTHING, /* barriers, prefetches, empty nodes */
	/* Below: marks of host calls, which take part in the order but run in no stream. */
	CUSIM_OP_ALLOC,
	CUSIM_OP_FREE,
	CUSIM_OP_CTX_RECORD,
	CUSIM_OP_SYNC_STREAM, /* a stream was waited for, or a query found it empty */
	CUSIM_OP_SYNC_EVENT,  /* an event was waited for, or a query found it complete */
	CUSIM_OP_SYNC_CTX,
	CUSIM_N_OP_KINDS,
};

enum {
	CUSIM_MAX_RANGES = 4,
};

struct cusim_range {
	uint64_t addr;
	uint64_t size_bytes;
	int is_write;
};

/* One operation as it was seen. Marks have seq_complete == seq_submit. */
struct cusim_op {
	int kind;              /* enum cusim_op_kind */
	unsigned n_ranges;     /* entries of ranges in use */
	uint64_t context;      /* small numbers, never used twice in a process */
	uint64_t stream;       /* 0: none */
	uint64_t thread;       /* submitting thread */
	uint64_t seq_submit;   /* one count for the process, over submissions and completions */
	uint64_t seq_complete; /* 0: not complete when it was read */
	uint64_t record; /* EVENT_RECORD makes it, EVENT_WAIT and SYNC_EVENT name it; else 0 */
	uint64_t complete_ns;
	struct cusim_range ranges[CUSIM_MAX_RANGES];
};

struct cusim_report {
	uint64_t n_submitted;
	uint64_t n_completed;
	uint64_t n_pending;
	uint64_t n_violations;  /* operations that touched memory that was not allocated */
	uint64_t n_free_waits;  /* frees that had to wait for work */
	uint64_t n_invalidated; /* captures that a call made invalid */
	uint64_t n_export_table_calls;
	uint64_t n_ctx_records;
	uint64_t n_live_allocations;
	uint64_t device_used_bytes; /* pages taken, all devices */
	uint64_t n_ops_lost;        /* entries that left the ring before anyone read them */
};

void cusim_set_mode(int mode);

/*
 * Run up to n operations that are ready, of one stream or (NULL) of all, oldest first. The clock
 * does not move, so a kernel that still spins is not run. Returns how many completed.
 */
int cusim_step(void *stream, int n);

/* Run until nothing can run, moving the clock to the end of timed spins. Returns how many. */
int cusim_run_all(void);

uint64_t cusim_clock_ns(void);
void cusim_advance_ns(uint64_t ns);

/*
 * Let the nth call from now of a driver function (1: the next; 0: every call) return code and do
 * nothing. The name is the exported symbol, or the base name for all its forms. Code 0 takes the
 * rule back. Returns 0, or -1 when no such function exists.
 */
int cusim_fail(const char *function, unsigned nth, int code);
void cusim_fail_clear(void);

/* Calls of an exported symbol since the last reset, or of all forms of a base name. */
uint64_t cusim_call_count(const char *function);
void cusim_reset_counts(void);

/*
 * Call function(arg, symbol) at the beginning of every driver call from now on, in the calling
 * thread, as CUPTI's callbacks do; NULL: no more. The library that CUDA_INJECTION64_PATH names is
 * loaded in the first cuInit, and its InitializeInjection() called.
 */
void cusim_subscribe(void (*function)(void *arg, const char *symbol), void *arg);

/* What dlsym() tells the driver itself: it is asked from within libcuda. */
void *cusim_dlsym(void *handle, const char *name);

/* Every later call that needs this context answers code. Code 0 takes it back. */
void cusim_set_sticky(void *context, int code);

uint64_t cusim_violations(void);
void cusim_get_report(struct cusim_report *ret_report);

/* The newest n_max operations, oldest of them first. Returns how many were written. */
size_t cusim_ops(struct cusim_op *ret_ops, size_t n_max);

/* Print the report and the newest operations to stderr. */
void cusim_report(void);

enum {
	CUSIM_CHECK_OFF,
	CUSIM_CHECK_ON,
	CUSIM_CHECK_FREES_SHOW_NOTHING, /* the wait in the driver's own frees orders nothing too */
};

/*
 * The happens-before checker, off unless a test or CUSIM_CHECK=1 (or 2) in the environment says
 * so: two accesses to the same bytes of device, pinned or managed memory, one of them a write,
 * must be ordered by streams, events, graphs or what the host has been shown to be complete. The
 * first ten pairs that are not are printed. Turning it on, also anew, forgets what was.
 */
void cusim_check(int level);

/* Unordered pairs found since the checker was last turned on. */
uint64_t cusim_races(void);

/*
 * The CPU touches this memory now: after what the host has been shown, and nothing else. In a host
 * function: as a part of that operation, and compared only with what was submitted before it.
 */
void cusim_cpu_access(uint64_t addr, size_t size_bytes, int is_write);

/*
 * An agent that knows no streams (a network card, a disk, another process) begins to touch this
 * memory now, or (begin == 0) all that it began is complete. It begins after what the host has
 * been shown; what is submitted meanwhile is not ordered with it.
 */
void cusim_agent_access(const char *agent, uint64_t addr, size_t size_bytes, int is_write,
			int begin);
