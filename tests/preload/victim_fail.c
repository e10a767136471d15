/* SPDX-License-Identifier: MIT */
/*
 * Each driver call that the pool makes fails once, at each place where it is made: the program sees
 * the error as natively or none at all, and nothing is lost.
 *
 * A small program runs in a child process of its own for each (function, nth call, code). It goes
 * on after errors, frees what it got, and at the end every allocation must be back where it was
 * before, on the device and in the pool's books.
 */
#include <sys/wait.h>
#include <unistd.h>

#include "tests/preload/victim_sim.h"

enum {
	N_SLOTS = 24,
	N_STEPS = 120,
	N_NTH = 6,
	SMALL_BYTES = 3000,
	LARGE_BYTES = 5 << 20,
};

static const struct fault {
	const char *function;
	int code;
	bool may_show; /* the program's own call, or one that no call works without */
} faults[] = {
	{"cuMemAlloc_v2", CUDA_ERROR_OUT_OF_MEMORY, true},
	{"cuMemAlloc_v2", CUDA_ERROR_UNKNOWN, true},
	{"cuMemFree_v2", CUDA_ERROR_UNKNOWN, true},
	{"cuMemHostAlloc", CUDA_ERROR_OUT_OF_MEMORY, true},
	{"cuMemHostAlloc", CUDA_ERROR_UNKNOWN, true},
	{"cuMemFreeHost", CUDA_ERROR_UNKNOWN, true},
	{"cuMemGetInfo_v2", CUDA_ERROR_UNKNOWN, true},
	{"cuMemGetAddressRange_v2", CUDA_ERROR_UNKNOWN, true},
	{"cuCtxRecordEvent", CUDA_ERROR_OUT_OF_MEMORY, false},
	{"cuEventCreate", CUDA_ERROR_OUT_OF_MEMORY, false},
	{"cuEventDestroy_v2", CUDA_ERROR_OUT_OF_MEMORY, false},
	{"cuEventSynchronize", CUDA_ERROR_OUT_OF_MEMORY, false},
	{"cuCtxSynchronize", CUDA_ERROR_OUT_OF_MEMORY, true},
	{"cuCtxGetCurrent", CUDA_ERROR_UNKNOWN, true},
	{"cuCtxGetDevice", CUDA_ERROR_UNKNOWN, false},
	{"cuCtxPushCurrent_v2", CUDA_ERROR_UNKNOWN, false},
	{"cuCtxPopCurrent_v2", CUDA_ERROR_UNKNOWN, false},
	{"cuStreamIsCapturing", CUDA_ERROR_UNKNOWN, false},
	{"cuPointerGetAttribute", CUDA_ERROR_UNKNOWN, false},
	{"cuThreadExchangeStreamCaptureMode", CUDA_ERROR_UNKNOWN, false},
};

static struct slot {
	CUdeviceptr device;
	void *pinned;
} slots[N_SLOTS];

static const struct fault *fault;
static struct victim_kernels kernels;

/* Success, or the injected error where natively the program could see one. */
static bool
took(CUresult status, const char *what)
{
	EXPECT(status == CUDA_SUCCESS || (status == (CUresult)fault->code && fault->may_show),
	       "%s with code %d: %s gave %d", fault->function, fault->code, what, status);
	return status == CUDA_SUCCESS;
}

/* A free that failed is tried again once the fault is over: natively the block is still the
 * program's. */
static void
release(struct slot *slot)
{
	if (slot->device && took(cuMemFree_v2(slot->device), "cuMemFree"))
		slot->device = 0;
	if (slot->pinned && took(cuMemFreeHost(slot->pinned), "cuMemFreeHost"))
		slot->pinned = NULL;
}

static void
fill(struct slot *slot, bool is_large, CUstream stream)
{
	const size_t n_bytes = is_large ? LARGE_BYTES : SMALL_BYTES;

	if (!took(cuMemAlloc_v2(&slot->device, n_bytes), "cuMemAlloc"))
		slot->device = 0;
	if (!took(cuMemHostAlloc(&slot->pinned, SMALL_BYTES, 0), "cuMemHostAlloc"))
		slot->pinned = NULL;
	if (slot->device && slot->pinned) {
		memset(slot->pinned, 0x55, SMALL_BYTES);
		MUST(cuMemcpyHtoDAsync_v2(slot->device, slot->pinned, SMALL_BYTES, stream));
		victim_fill(&kernels, stream, slot->device, 0x66, SMALL_BYTES);
	}
}

static void
ask(void)
{
	size_t free_bytes, total_bytes;
	CUdeviceptr base;
	size_t n_bytes;

	took(cuMemGetInfo_v2(&free_bytes, &total_bytes), "cuMemGetInfo");
	for (int i = 0; i < N_SLOTS; i++) {
		if (slots[i].device)
			took(cuMemGetAddressRange_v2(&base, &n_bytes, slots[i].device),
			     "cuMemGetAddressRange");
	}
}

static void
work(const struct poolshim_api *api, bool is_shimmed)
{
	uint64_t random = 99;
	CUstream stream;

	MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	for (int i = 0; i < N_STEPS; i++) {
		struct slot *slot = &slots[victim_random(&random) % N_SLOTS];

		release(slot);
		if (!slot->device && !slot->pinned)
			fill(slot, victim_random(&random) % 4 == 0, stream);
		if (i % 16 == 0)
			ask();
		if (i % 32 == 31)
			took(cuCtxSynchronize(), "cuCtxSynchronize");
		if (i % 40 == 39 && is_shimmed) {
			api->free_all_blocks(0);
			api->host_free_all_blocks();
		}
	}
	MUST(cuStreamDestroy_v2(stream));
}

static void
check_nothing_lost(const struct poolshim_api *api, bool is_shimmed, uint64_t n_live_before)
{
	struct cusim_report report;

	cusim_fail_clear();
	for (int i = 0; i < N_SLOTS; i++)
		release(&slots[i]);
	MUST(cuCtxSynchronize());
	if (is_shimmed) {
		poolshim_check_identity(api, fault->function);
		EXPECT(api->used_bytes(0) == 0, "%s: used %zu after the last free", fault->function,
		       api->used_bytes(0));
		EXPECT(api->host_used_bytes() == 0, "%s: pinned used %zu after the last free",
		       fault->function, api->host_used_bytes());
		api->free_all_blocks(0);
		api->host_free_all_blocks();
		EXPECT(api->total_bytes(0) == 0, "%s: %zu bytes are still held", fault->function,
		       api->total_bytes(0));
		EXPECT(api->host_total_bytes() == 0, "%s: %zu pinned bytes are still held",
		       fault->function, api->host_total_bytes());
	}
	cusim_get_report(&report);
	EXPECT(report.n_live_allocations == n_live_before,
	       "%s with code %d: %llu allocations of the driver, %llu before", fault->function,
	       fault->code, (unsigned long long)report.n_live_allocations,
	       (unsigned long long)n_live_before);
	victim_check_device();
}

/* The child: one fault, one life. */
static int
live(unsigned int nth)
{
	struct poolshim_api api;
	struct cusim_report report;
	bool is_shimmed;

	victim_n_failed = 0;
	victim_start();
	is_shimmed = poolshim_find(&api);
	kernels = victim_kernels_load();
	cusim_get_report(&report);
	if (cusim_fail(fault->function, nth, fault->code) < 0) {
		fprintf(stderr, "the device has no %s\n", fault->function);
		return 1;
	}
	work(&api, is_shimmed);
	check_nothing_lost(&api, is_shimmed, report.n_live_allocations);
	if (victim_n_failed)
		fprintf(stderr, "victim_fail: the above was %s failing at call %u with %d\n",
			fault->function, nth, fault->code);
	return victim_n_failed != 0;
}

static void
run_child(unsigned int nth)
{
	int status = 0;
	pid_t pid = fork();

	if (pid == 0)
		_exit(live(nth));
	EXPECT(pid > 0 && waitpid(pid, &status, 0) == pid, "no child could be run");
	EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == 0,
	       "%s failing at call %u with %d: the child ended with %#x", fault->function, nth,
	       fault->code, status);
}

int
main(void)
{
	/* Calls 1 to 4 show the first uses; later ones come when the pool is warm. */
	static const unsigned int nths[N_NTH] = {1, 2, 3, 4, 9, 25};

	for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++) {
		fault = &faults[i];
		for (size_t n = 0; n < N_NTH; n++)
			run_child(nths[n]);
	}
	return victim_end("victim_fail");
}
