/* SPDX-License-Identifier: MIT */
/*
 * The table of wrong and borderline calls to the runtime's allocation, free and information
 * entries, with the last error after each. Built once with the shared and once with the static
 * runtime.
 *
 * One line a case, judged by comparing a native run with a shimmed one; see victim_table.c. Runs on
 * a GPU and on the software device.
 */
#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

static void *const bogus = (void *)(uintptr_t)0xdead0000;
static void *const untouched = (void *)(uintptr_t)0x1234567;

static void
show(const char *name, cudaError_t error, const char *out_param)
{
	printf("%s = %d %s, out-param %s, last error %d\n", name, error, cudaGetErrorName(error),
	       out_param, cudaGetLastError());
	fflush(stdout);
}

/* NULL on failure is part of what programs see. */
static const char *
describe(const void *pointer)
{
	if (pointer == untouched)
		return "unchanged";
	return pointer ? "set" : "NULL";
}

static void
show_malloc(const char *name, size_t n_bytes)
{
	void *pointer = untouched;
	cudaError_t error = cudaMalloc(&pointer, n_bytes);

	show(name, error, describe(pointer));
	if (!error)
		show("  its free", cudaFree(pointer), "-");
}

static void
show_pinned(const char *name, size_t n_bytes, unsigned int flags)
{
	void *pointer = untouched;
	cudaError_t error = cudaHostAlloc(&pointer, n_bytes, flags);

	show(name, error, describe(pointer));
	if (!error)
		show("  its free", cudaFreeHost(pointer), "-");
	pointer = untouched;
	error = cudaMallocHost(&pointer, n_bytes);
	show("  by cudaMallocHost", error, describe(pointer));
	if (!error)
		show("  its free", cudaFreeHost(pointer), "-");
}

static void
requests(void)
{
	int on_stack = 0;

	show("malloc into NULL", cudaMalloc(NULL, 512), "-");
	show_malloc("malloc of 1", 1);
	show_malloc("malloc of 100000", 100000);
	show_malloc("malloc of 1 PiB", (size_t)1 << 50);
	show_malloc("malloc of SIZE_MAX", SIZE_MAX);
	show("pinned into NULL", cudaHostAlloc(NULL, 512, 0), "-");
	show_pinned("pinned of 1", 1, 0);
	show_pinned("pinned, mapped", 4096, cudaHostAllocMapped);
	show_pinned("pinned of 1 PiB", (size_t)1 << 50, 0);
	show_pinned("pinned with unknown flags", 512, 0xff00);

	show("free of NULL", cudaFree(NULL), "-");
	show("free of an unknown pointer", cudaFree(bogus), "-");
	show("free of a stack address", cudaFree(&on_stack), "-");
	show("host free of NULL", cudaFreeHost(NULL), "-");
	show("host free of an unknown pointer", cudaFreeHost(bogus), "-");
	show("host free of a stack address", cudaFreeHost(&on_stack), "-");
	show("async free of an unknown pointer", cudaFreeAsync(bogus, 0), "-");
}

static void
live_block(size_t n_bytes)
{
	char *block = NULL, *pinned = NULL;

	printf("blocks of %zu\n", n_bytes);
	show("malloc", cudaMalloc((void **)&block, n_bytes), block ? "set" : "NULL");
	show("pinned", cudaMallocHost((void **)&pinned, n_bytes), pinned ? "set" : "NULL");
	show("free of the middle", cudaFree(block + n_bytes / 2), "-");
	show("host free of the middle", cudaFreeHost(pinned + n_bytes / 2), "-");
	show("host free of the device block", cudaFreeHost(block), "-");
	show("device free of the pinned block", cudaFree(pinned), "-");
	show("set", cudaMemset(block, 1, n_bytes), "-");
	show("free", cudaFree(block), "-");
	show("second free", cudaFree(block), "-");
	show("host free", cudaFreeHost(pinned), "-");
	show("second host free", cudaFreeHost(pinned), "-");
}

static void
information(void)
{
	size_t free_bytes = 0, total_bytes = 0;
	void *block = NULL;

	show("memory info", cudaMemGetInfo(&free_bytes, &total_bytes),
	     free_bytes && free_bytes <= total_bytes ? "sensible" : "not sensible");
	show("malloc", cudaMalloc(&block, 1000), block ? "set" : "NULL");
	show("free", cudaFree(block), "-");
	show("malloc that fails", cudaMalloc(&block, (size_t)1 << 50), describe(block));
	show("synchronise after it", cudaDeviceSynchronize(), "-");
}

int
main(void)
{
	requests();
	live_block(1000);
	live_block(3 << 20);
	live_block(40 << 20);
	information();
	requests();
	show("reset", cudaDeviceReset(), "-");
	requests();
	return 0;
}
