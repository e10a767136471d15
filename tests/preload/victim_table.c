/* SPDX-License-Identifier: MIT */
/*
 * The table of wrong and borderline calls to every allocation, free and information entry of the
 * driver.
 *
 * usage: victim_table direct|dlsym|proc
 *   how the driver is reached: linked symbols, dlopen and dlsym, or cuGetProcAddress
 *
 * One line a case: `name = CUresult, out-param changed yes|no`. The program judges nothing: its
 * runner compares the lines of a native run with those of a shimmed one. No line holds an address
 * or a number that may differ from run to run. Runs on a GPU and on the software device.
 */
#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* symbol, name and version for cuGetProcAddress, its flags */
#define TABLE_CALLS(X) \
	X(cuInit, "cuInit", 2000, 0) \
	X(cuDeviceGet, "cuDeviceGet", 2000, 0) \
	X(cuCtxCreate_v2, "cuCtxCreate", 3020, 0) \
	X(cuCtxDestroy_v2, "cuCtxDestroy", 4000, 0) \
	X(cuCtxSetCurrent, "cuCtxSetCurrent", 4000, 0) \
	X(cuDevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain", 7000, 0) \
	X(cuDevicePrimaryCtxRelease_v2, "cuDevicePrimaryCtxRelease", 11000, 0) \
	X(cuDevicePrimaryCtxReset_v2, "cuDevicePrimaryCtxReset", 11000, 0) \
	X(cuMemAlloc_v2, "cuMemAlloc", 3020, 0) \
	X(cuMemFree_v2, "cuMemFree", 3020, 0) \
	X(cuMemFreeAsync, "cuMemFreeAsync", 11020, 0) \
	X(cuMemFreeAsync_ptsz, "cuMemFreeAsync", 11020, 2) \
	X(cuMemAllocManaged, "cuMemAllocManaged", 6000, 0) \
	X(cuMemHostAlloc, "cuMemHostAlloc", 2020, 0) \
	X(cuMemAllocHost_v2, "cuMemAllocHost", 3020, 0) \
	X(cuMemFreeHost, "cuMemFreeHost", 2000, 0) \
	X(cuMemGetInfo_v2, "cuMemGetInfo", 3020, 0) \
	X(cuMemGetAddressRange_v2, "cuMemGetAddressRange", 3020, 0) \
	X(cuMemGetHandleForAddressRange, "cuMemGetHandleForAddressRange", 11070, 0) \
	X(cuIpcGetMemHandle, "cuIpcGetMemHandle", 4010, 0)

#define MEMBER(symbol, name, version, flags) __typeof__(&symbol) symbol;
static struct {
	TABLE_CALLS(MEMBER)
} call;

static const size_t impossible_bytes = (size_t)1 << 50;
static const CUdeviceptr bogus = 0xdead0000, untouched = 0x1234567;
static const size_t live_sizes[] = {1, 512, 513, 100000, 1 << 20, 2 << 20, (2 << 20) + 1, 64 << 20};

/* A driver that crashes on a wrong call gives a short table, natively and under the shim alike. */
static void
on_crash(int number)
{
	static const char line[] = "crash\n";

	(void)number;
	if (write(STDOUT_FILENO, line, sizeof(line) - 1) < 0)
		_exit(4);
	_exit(3);
}

static void
show(const char *phase, const char *name, CUresult status, bool is_changed)
{
	printf("%s: %s = %d, out-param changed %s\n", phase, name, status,
	       is_changed ? "yes" : "no");
	fflush(stdout);
}

#define SHOW(phase, name, expression) show(phase, name, expression, false)

static void
show_alloc(const char *phase, const char *name, size_t n_bytes)
{
	CUdeviceptr address = untouched;
	CUresult status = call.cuMemAlloc_v2(&address, n_bytes);

	show(phase, name, status, address != untouched);
	if (status == CUDA_SUCCESS)
		SHOW(phase, "  its free", call.cuMemFree_v2(address));
}

static void
show_managed(const char *phase, const char *name, size_t n_bytes, unsigned int flags)
{
	CUdeviceptr address = untouched;
	CUresult status = call.cuMemAllocManaged(&address, n_bytes, flags);

	show(phase, name, status, address != untouched);
	if (status == CUDA_SUCCESS)
		SHOW(phase, "  its free", call.cuMemFree_v2(address));
}

static void
show_host_alloc(const char *phase, const char *name, size_t n_bytes, unsigned int flags)
{
	void *const before = (void *)(uintptr_t)untouched;
	void *address = before;
	CUresult status = call.cuMemHostAlloc(&address, n_bytes, flags);

	show(phase, name, status, address != before);
	if (status == CUDA_SUCCESS)
		SHOW(phase, "  its free", call.cuMemFreeHost(address));
}

static void
show_alloc_host(const char *phase, const char *name, size_t n_bytes)
{
	void *const before = (void *)(uintptr_t)untouched;
	void *address = before;
	CUresult status = call.cuMemAllocHost_v2(&address, n_bytes);

	show(phase, name, status, address != before);
	if (status == CUDA_SUCCESS)
		SHOW(phase, "  its free", call.cuMemFreeHost(address));
}

static void
show_info(const char *phase, const char *name, bool wants_free, bool wants_total)
{
	size_t free_bytes = untouched, total_bytes = untouched;
	CUresult status = call.cuMemGetInfo_v2(wants_free ? &free_bytes : NULL,
					       wants_total ? &total_bytes : NULL);

	show(phase, name, status, free_bytes != untouched || total_bytes != untouched);
}

/* The range of a pointer, relative to the block that the program knows it by. */
static void
show_range(const char *phase, const char *name, CUdeviceptr address, CUdeviceptr block)
{
	CUdeviceptr base = untouched;
	size_t n_bytes = 0;
	CUresult status = call.cuMemGetAddressRange_v2(&base, &n_bytes, address);

	show(phase, name, status, base != untouched);
	if (status == CUDA_SUCCESS)
		printf("%s:   base at %lld of the block, %zu bytes\n", phase,
		       (long long)(base - block), n_bytes);
}

static void
show_export(const char *phase, const char *name, CUdeviceptr address)
{
	CUipcMemHandle handle, before;
	CUresult status;

	memset(&before, 0x5a, sizeof(before));
	handle = before;
	status = call.cuIpcGetMemHandle(&handle, address);
	show(phase, name, status, memcmp(&handle, &before, sizeof(handle)) != 0);
}

static void
show_dma_buf(const char *phase, const char *name, CUdeviceptr address, size_t n_bytes)
{
	int fd = -77;
	CUresult status = call.cuMemGetHandleForAddressRange(
		&fd, address, n_bytes, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0);

	show(phase, name, status, fd != -77);
}

static void
device_cases(const char *phase)
{
	SHOW(phase, "alloc into NULL", call.cuMemAlloc_v2(NULL, 512));
	SHOW(phase, "alloc of 0 into NULL", call.cuMemAlloc_v2(NULL, 0));
	show_alloc(phase, "alloc of 0", 0);
	show_alloc(phase, "alloc of 1", 1);
	show_alloc(phase, "alloc of 1 PiB", impossible_bytes);
	show_alloc(phase, "alloc of SIZE_MAX", SIZE_MAX);
	show_alloc(phase, "alloc of SIZE_MAX - 511", SIZE_MAX - 511);

	SHOW(phase, "free of NULL", call.cuMemFree_v2(0));
	SHOW(phase, "free of an unknown pointer", call.cuMemFree_v2(bogus));
	SHOW(phase, "free of the last address", call.cuMemFree_v2(~(CUdeviceptr)0));
	SHOW(phase, "free of a stack address", call.cuMemFree_v2((CUdeviceptr)(uintptr_t)&phase));
	SHOW(phase, "async free of NULL", call.cuMemFreeAsync(0, NULL));
	SHOW(phase, "async free of an unknown pointer", call.cuMemFreeAsync(bogus, NULL));
	SHOW(phase, "async free of NULL, per thread", call.cuMemFreeAsync_ptsz(0, NULL));
	SHOW(phase, "async free of an unknown pointer, per thread",
	     call.cuMemFreeAsync_ptsz(bogus, NULL));

	SHOW(phase, "managed into NULL", call.cuMemAllocManaged(NULL, 512, CU_MEM_ATTACH_GLOBAL));
	show_managed(phase, "managed of 0", 0, CU_MEM_ATTACH_GLOBAL);
	show_managed(phase, "managed with flags 0", 512, 0);
	show_managed(phase, "managed of 512", 512, CU_MEM_ATTACH_GLOBAL);
}

static void
pinned_cases(const char *phase)
{
	int on_stack = 0;

	SHOW(phase, "pinned into NULL", call.cuMemHostAlloc(NULL, 512, 0));
	show_host_alloc(phase, "pinned of 0", 0, 0);
	show_host_alloc(phase, "pinned of 1", 1, 0);
	show_host_alloc(phase, "pinned, portable and mapped", 4096, 3);
	show_host_alloc(phase, "pinned, write combined", 4096, CU_MEMHOSTALLOC_WRITECOMBINED);
	show_host_alloc(phase, "pinned with unknown flags", 512, 0xff00);
	show_host_alloc(phase, "pinned of 1 PiB", impossible_bytes, 0);
	show_host_alloc(phase, "pinned of SIZE_MAX", SIZE_MAX, 0);
	SHOW(phase, "host into NULL", call.cuMemAllocHost_v2(NULL, 512));
	show_alloc_host(phase, "host of 0", 0);
	show_alloc_host(phase, "host of 1", 1);
	show_alloc_host(phase, "host of 1 PiB", impossible_bytes);

	SHOW(phase, "host free of NULL", call.cuMemFreeHost(NULL));
	SHOW(phase, "host free of an unknown pointer",
	     call.cuMemFreeHost((void *)(uintptr_t)bogus));
	SHOW(phase, "host free of a stack address", call.cuMemFreeHost(&on_stack));
}

static void
info_cases(const char *phase)
{
	int fd;

	show_info(phase, "memory info", true, true);
	show_info(phase, "memory info, free only", true, false);
	show_info(phase, "memory info, total only", false, true);
	show_info(phase, "memory info, nothing", false, false);
	show_range(phase, "range of NULL", 0, 0);
	show_range(phase, "range of an unknown pointer", bogus, bogus);
	SHOW(phase, "range into NULL", call.cuMemGetAddressRange_v2(NULL, NULL, bogus));
	show_export(phase, "export of NULL", 0);
	show_export(phase, "export of an unknown pointer", bogus);
	show_dma_buf(phase, "dma-buf of NULL", 0, 4096);
	show_dma_buf(phase, "dma-buf of an unknown pointer", bogus, 4096);
	SHOW(phase, "dma-buf of type 0",
	     call.cuMemGetHandleForAddressRange(&fd, bogus, 4096, 0, 0));
}

static void
context_cases(const char *phase)
{
	SHOW(phase, "retain into NULL", call.cuDevicePrimaryCtxRetain(NULL, 0));
	SHOW(phase, "release of device 99", call.cuDevicePrimaryCtxRelease_v2(99));
	SHOW(phase, "reset of device 99", call.cuDevicePrimaryCtxReset_v2(99));
	SHOW(phase, "create into NULL", call.cuCtxCreate_v2(NULL, 0, 0));
	SHOW(phase, "destroy of NULL", call.cuCtxDestroy_v2(NULL));
}

static void
all_cases(const char *phase)
{
	device_cases(phase);
	pinned_cases(phase);
	info_cases(phase);
	context_cases(phase);
}

static CUdeviceptr
take(const char *phase, size_t n_bytes)
{
	CUdeviceptr address = untouched;

	show(phase, "block", call.cuMemAlloc_v2(&address, n_bytes), address != untouched);
	return address;
}

static void *
take_pinned(const char *phase, size_t n_bytes)
{
	void *address = NULL;

	show(phase, "pinned block", call.cuMemHostAlloc(&address, n_bytes, 0), address != NULL);
	return address;
}

/* A fresh block of this size: the first of its segment where the pool makes one for it. */
static void
live_device_cases(size_t n_bytes)
{
	char phase[64];
	CUdeviceptr block, other;

	snprintf(phase, sizeof(phase), "block of %zu", n_bytes);
	block = take(phase, n_bytes);
	other = take(phase, n_bytes);
	show_range(phase, "range of the block", block, block);
	show_range(phase, "range of its last byte", block + n_bytes - 1, block);
	if (n_bytes > 1) {
		SHOW(phase, "free of the second byte", call.cuMemFree_v2(block + 1));
		SHOW(phase, "free of the middle", call.cuMemFree_v2(block + n_bytes / 2));
		SHOW(phase, "async free of the middle",
		     call.cuMemFreeAsync(block + n_bytes / 2, NULL));
	}
	SHOW(phase, "host free of a device block", call.cuMemFreeHost((void *)(uintptr_t)block));
	SHOW(phase, "free", call.cuMemFree_v2(block));
	SHOW(phase, "second free", call.cuMemFree_v2(block));
	SHOW(phase, "host free after the free", call.cuMemFreeHost((void *)(uintptr_t)block));
	show_export(phase, "export after the free", block);
	SHOW(phase, "free of the other", call.cuMemFree_v2(other));
	SHOW(phase, "second free of the other", call.cuMemFree_v2(other));
	SHOW(phase, "third free of the first", call.cuMemFree_v2(block));
	SHOW(phase, "async free after the free", call.cuMemFreeAsync(block, NULL));
}

static void
live_pinned_cases(size_t n_bytes)
{
	char phase[64];
	char *block, *other;

	snprintf(phase, sizeof(phase), "pinned block of %zu", n_bytes);
	block = take_pinned(phase, n_bytes);
	other = take_pinned(phase, n_bytes);
	show_range(phase, "range of the block", (CUdeviceptr)(uintptr_t)block,
		   (CUdeviceptr)(uintptr_t)block);
	show_range(phase, "range of its last byte", (CUdeviceptr)(uintptr_t)block + n_bytes - 1,
		   (CUdeviceptr)(uintptr_t)block);
	if (n_bytes > 1) {
		SHOW(phase, "free of the second byte", call.cuMemFreeHost(block + 1));
		SHOW(phase, "free of the middle", call.cuMemFreeHost(block + n_bytes / 2));
	}
	SHOW(phase, "device free of a pinned block",
	     call.cuMemFree_v2((CUdeviceptr)(uintptr_t)block));
	SHOW(phase, "free", call.cuMemFreeHost(block));
	SHOW(phase, "second free", call.cuMemFreeHost(block));
	SHOW(phase, "device free after the free", call.cuMemFree_v2((CUdeviceptr)(uintptr_t)block));
	show_range(phase, "range after the free", (CUdeviceptr)(uintptr_t)block,
		   (CUdeviceptr)(uintptr_t)block);
	SHOW(phase, "free of the other", call.cuMemFreeHost(other));
	SHOW(phase, "second free of the other", call.cuMemFreeHost(other));
}

/* What another thread does with blocks it did not make; it has the context given here, or none. */
struct visit {
	const char *phase;
	CUcontext context, doomed;
	CUdeviceptr block;
	void *pinned;
};

static void *
visitor(void *arg)
{
	const struct visit *visit = arg;

	SHOW(visit->phase, "set current", call.cuCtxSetCurrent(visit->context));
	if (visit->doomed)
		SHOW(visit->phase, "destroy", call.cuCtxDestroy_v2(visit->doomed));
	show_alloc(visit->phase, "alloc", 512);
	show_host_alloc(visit->phase, "pinned", 512, 0);
	show_info(visit->phase, "memory info", true, true);
	show_range(visit->phase, "range of the block", visit->block, visit->block);
	SHOW(visit->phase, "free of the block", call.cuMemFree_v2(visit->block));
	SHOW(visit->phase, "second free of the block", call.cuMemFree_v2(visit->block));
	SHOW(visit->phase, "free of the pinned block", call.cuMemFreeHost(visit->pinned));
	SHOW(visit->phase, "second free of the pinned block", call.cuMemFreeHost(visit->pinned));
	return NULL;
}

static void
visit_from_a_thread(struct visit visit)
{
	pthread_t thread;

	if (pthread_create(&thread, NULL, visitor, &visit) != 0)
		exit(2);
	pthread_join(thread, NULL);
}

static void
other_thread_cases(CUcontext primary, CUdevice device)
{
	const char *phase = "thread without a context";
	CUdeviceptr block = take(phase, 4096);
	void *pinned = take_pinned(phase, 4096);
	CUcontext other;

	visit_from_a_thread((struct visit){phase, NULL, NULL, block, pinned});
	SHOW(phase, "free by the owner", call.cuMemFree_v2(block));
	SHOW(phase, "pinned free by the owner", call.cuMemFreeHost(pinned));

	phase = "thread with the same context";
	block = take(phase, 4096);
	pinned = take_pinned(phase, 4096);
	visit_from_a_thread((struct visit){phase, primary, NULL, block, pinned});

	phase = "thread with another context";
	SHOW(phase, "create", call.cuCtxCreate_v2(&other, 0, device));
	SHOW(phase, "set current", call.cuCtxSetCurrent(primary));
	block = take(phase, 4096);
	pinned = take_pinned(phase, 4096);
	visit_from_a_thread((struct visit){phase, other, NULL, block, pinned});

	phase = "thread whose context it destroys";
	SHOW(phase, "set current", call.cuCtxSetCurrent(other));
	block = take(phase, 4096);
	pinned = take_pinned(phase, 4096);
	SHOW(phase, "set current", call.cuCtxSetCurrent(primary));
	visit_from_a_thread((struct visit){phase, other, other, block, pinned});
}

static void
destroyed_context_cases(CUcontext primary, CUdevice device)
{
	const char *phase = "destroyed context";
	CUcontext doomed;
	CUdeviceptr block, large;
	void *pinned;

	SHOW(phase, "create", call.cuCtxCreate_v2(&doomed, 0, device));
	block = take(phase, 1000);
	large = take(phase, 8 << 20);
	pinned = take_pinned(phase, 1000);
	SHOW(phase, "destroy", call.cuCtxDestroy_v2(doomed));
	SHOW(phase, "set current", call.cuCtxSetCurrent(primary));

	show_range(phase, "range of a lost block", block, block);
	SHOW(phase, "free of a lost block", call.cuMemFree_v2(block));
	SHOW(phase, "free of a lost large block", call.cuMemFree_v2(large));
	SHOW(phase, "host free of a lost pinned block", call.cuMemFreeHost(pinned));
	show_alloc(phase, "alloc in the primary context", 1000);

	phase = "reset device";
	block = take(phase, 1000);
	large = take(phase, 8 << 20);
	pinned = take_pinned(phase, 1000);
	SHOW(phase, "reset", call.cuDevicePrimaryCtxReset_v2(device));
	SHOW(phase, "retain", call.cuDevicePrimaryCtxRetain(&primary, device));
	SHOW(phase, "set current", call.cuCtxSetCurrent(primary));
	show_range(phase, "range of a lost block", block, block);
	SHOW(phase, "free of a lost block", call.cuMemFree_v2(block));
	SHOW(phase, "free of a lost large block", call.cuMemFree_v2(large));
	SHOW(phase, "host free of a lost pinned block", call.cuMemFreeHost(pinned));
	show_alloc(phase, "alloc after the reset", 1000);
	show_host_alloc(phase, "pinned after the reset", 1000, 0);
}

static bool
reach_driver(const char *route)
{
	void *handle = dlopen("libcuda.so.1", RTLD_NOW);
	bool is_complete = true;

	if (!handle)
		return false;
#define BY_LINK(symbol, name, version, flags) call.symbol = symbol;
#define BY_DLSYM(symbol, name, version, flags) \
	*(void **)&call.symbol = dlsym(handle, #symbol); \
	is_complete &= call.symbol != NULL;
#define BY_PROC(symbol, name, version, flags) \
	is_complete &= cuGetProcAddress_v2(name, (void **)&call.symbol, version, flags, NULL) == \
		       CUDA_SUCCESS;
	if (strcmp(route, "direct") == 0) {
		TABLE_CALLS(BY_LINK)
	} else if (strcmp(route, "dlsym") == 0) {
		TABLE_CALLS(BY_DLSYM)
	} else if (strcmp(route, "proc") == 0) {
		TABLE_CALLS(BY_PROC)
	} else {
		return false;
	}
	return is_complete;
}

int
main(int argc, char **argv)
{
	struct sigaction action = {.sa_handler = on_crash};
	CUcontext primary;
	CUdevice device;

	if (argc != 2 || !reach_driver(argv[1])) {
		fprintf(stderr,
			"usage: %s direct|dlsym|proc (and a driver that knows every entry)\n",
			argv[0]);
		return 2;
	}
	sigaction(SIGSEGV, &action, NULL);
	sigaction(SIGBUS, &action, NULL);

	all_cases("before init");
	SHOW("init", "cuInit with flags 1", call.cuInit(1));
	SHOW("init", "cuInit", call.cuInit(0));
	all_cases("no context");
	SHOW("context", "device", call.cuDeviceGet(&device, 0));
	SHOW("context", "retain", call.cuDevicePrimaryCtxRetain(&primary, device));
	SHOW("context", "set current", call.cuCtxSetCurrent(primary));
	all_cases("context");
	for (size_t i = 0; i < sizeof(live_sizes) / sizeof(live_sizes[0]); i++)
		live_device_cases(live_sizes[i]);
	for (size_t i = 0; i < sizeof(live_sizes) / sizeof(live_sizes[0]); i++)
		live_pinned_cases(live_sizes[i]);
	other_thread_cases(primary, device);
	all_cases("context, used");
	destroyed_context_cases(primary, device);
	return 0;
}
