/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * Tests of the happens-before checker. Each program touches the same bytes twice, once with an edge
 * between the two and once without: then it must be found, and the text must name the two. Manual
 * mode.
 */

#include <sys/mman.h>
#include <unistd.h>

#include "tests/sim/test_sim.h"

enum {
	BYTES = 4096,
	TEXT_BYTES = 8192,
};

struct program {
	const char *name;
	void (*run)(bool is_ordered);
};

#define PROGRAM(name) \
	{ \
#name, name \
	}

static CUcontext ctx;
static CUstream a, b; /* non-blocking */
static CUevent event;
static CUdeviceptr p;
static char first[32], second[32]; /* as the text names the two */
static char text[TEXT_BYTES];

/* What the text calls the newest operation's stream. */
static inline void
note(char *ret_name)
{
	struct cusim_op op;

	if (cusim_ops(&op, 1) == 1)
		snprintf(ret_name, 32, "(stream %llu)", (unsigned long long)op.stream);
}

static inline void
write_first(CUstream s)
{
	fill(s, p, 1, BYTES);
	note(first);
}

static inline void
write_second(CUstream s)
{
	fill(s, p, 2, BYTES);
	note(second);
}

/* A fill that may start before the kernel before it ends. */
static inline void
fill_early(CUstream s, bool is_early)
{
	static CUfunction f;
	CUdeviceptr dst = p;
	unsigned value = 3;
	size_t n_bytes = BYTES;
	void *params[] = {&dst, &value, &n_bytes};
	CUlaunchAttribute attr = {.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION};
	CUlaunchConfig config = {.gridDimX = 1,
				 .gridDimY = 1,
				 .gridDimZ = 1,
				 .blockDimX = 1,
				 .blockDimY = 1,
				 .blockDimZ = 1,
				 .hStream = s,
				 .attrs = &attr,
				 .numAttrs = 1};

	if (!f)
		f = kernel("sim_fill");
	attr.value.programmaticStreamSerializationAllowed = is_early;
	cuLaunchKernelEx(&config, f, params, NULL);
	note(second);
}

/* Run it in a fresh place, and take what it prints. */
static inline uint64_t
races_of(void (*run)(bool is_ordered), bool is_ordered)
{
	int fd = memfd_create("stderr", MFD_CLOEXEC), saved = dup(STDERR_FILENO);
	ssize_t n;

	a = new_stream(CU_STREAM_NON_BLOCKING);
	b = new_stream(CU_STREAM_NON_BLOCKING);
	event = new_event();
	cuMemAlloc_v2(&p, 8 * (size_t)BYTES);
	cusim_check(CUSIM_CHECK_ON);
	dup2(fd, STDERR_FILENO);
	run(is_ordered);
	dup2(saved, STDERR_FILENO);
	cuCtxSynchronize();
	cuMemFree_v2(p);
	cuEventDestroy_v2(event);
	cuStreamDestroy_v2(a);
	cuStreamDestroy_v2(b);
	n = pread(fd, text, sizeof(text) - 1, 0);
	text[n > 0 ? n : 0] = 0;
	close(fd);
	close(saved);
	return cusim_races();
}

static inline bool
names_both(void)
{
	const char *line = strstr(text, "no path from op #");
	const char *from = line ? strstr(line, first) : NULL;
	const char *to = from ? strstr(from, " to op #") : NULL;

	return to && strstr(to, second);
}

static inline void
run_programs(const struct program *programs, size_t n_programs)
{
	uint64_t n;

	setenv("CUSIM_DEVICES", "2", 1);
	ctx = start(CUSIM_MANUAL);
	for (size_t i = 0; i < n_programs; i++) {
		n = races_of(programs[i].run, true);
		if (!ok(n == 0, "%s orders", programs[i].name))
			printf("# %llu races\n# %s\n", (unsigned long long)n, text);
		n = races_of(programs[i].run, false);
		if (!ok(n == 1 && names_both(), "%s: without it a race between the two is found",
			programs[i].name))
			printf("# %llu races, wanted %s and %s\n# %s\n", (unsigned long long)n,
			       first, second, text);
	}
	ok(cusim_violations() == 0, "no program touched memory that is gone");
}
