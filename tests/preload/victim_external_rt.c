/* SPDX-License-Identifier: MIT */
/*
 * What programs on the runtime get past the pool is counted by kind, with the shared runtime and
 * with the static one.
 *
 * usage: victim_external_rt DUMP-PATH
 */
#include <cuda_runtime_api.h>

#include "tests/preload/victim_dump.h"

enum { MIB = 1 << 20, WIDTH = 1000, ROWS = 300, PITCH = 1024, SIDE = 256 };

static struct poolshim_api api;
static bool is_shimmed;
static void *addr;
static cudaArray_t array;
static cudaMipmappedArray_t mipmap;
static char host_bytes[MIB];

static struct cudaChannelFormatDesc
one_float(void)
{
	return (struct cudaChannelFormatDesc){.x = 32, .f = cudaChannelFormatKindFloat};
}

static cudaError_t
get_pitch(void)
{
	size_t pitch;

	return cudaMallocPitch(&addr, &pitch, WIDTH, ROWS);
}

static cudaError_t
get_3d(void)
{
	const struct cudaExtent extent = {.width = WIDTH, .height = ROWS / 2, .depth = 2};
	struct cudaPitchedPtr pitched = {0};
	cudaError_t error = cudaMalloc3D(&pitched, extent);

	addr = pitched.ptr;
	return error;
}

static cudaError_t
get_managed(void)
{
	return cudaMallocManaged(&addr, MIB, cudaMemAttachGlobal);
}

static cudaError_t
free_addr(void)
{
	return cudaFree(addr);
}

static cudaError_t
get_array(void)
{
	const struct cudaChannelFormatDesc how = one_float();

	return cudaMallocArray(&array, &how, SIDE, SIDE, 0);
}

static cudaError_t
get_3d_array(void)
{
	const struct cudaChannelFormatDesc how = one_float();
	const struct cudaExtent extent = {.width = SIDE, .height = SIDE, .depth = 4};

	return cudaMalloc3DArray(&array, &how, extent, 0);
}

static cudaError_t
free_array(void)
{
	return cudaFreeArray(array);
}

static cudaError_t
get_mipmap(void)
{
	const struct cudaChannelFormatDesc how = one_float();
	const struct cudaExtent extent = {.width = SIDE, .height = SIDE};

	return cudaMallocMipmappedArray(&mipmap, &how, extent, 2, 0);
}

static cudaError_t
free_mipmap(void)
{
	return cudaFreeMipmappedArray(mipmap);
}

static cudaError_t
get_async(void)
{
	return cudaMallocAsync(&addr, MIB, NULL);
}

static cudaError_t
free_async(void)
{
	return cudaFreeAsync(addr, NULL);
}

static cudaError_t
get_registered(void)
{
	return cudaHostRegister(host_bytes, sizeof(host_bytes), 0);
}

static cudaError_t
end_registered(void)
{
	return cudaHostUnregister(host_bytes);
}

static const struct row {
	const char *kind;
	cudaError_t (*get)(void);
	cudaError_t (*end)(void);
	uint64_t bytes;
} rows[] = {
	{"pitched", get_pitch, free_addr, PITCH *ROWS},
	{"pitched", get_3d, free_addr, PITCH *ROWS},
	{"managed", get_managed, free_addr, MIB},
	{"arrays", get_array, free_array, SIDE *SIDE * 4},
	{"arrays", get_3d_array, free_array, SIDE *SIDE * 16},
	{"arrays", get_mipmap, free_mipmap, SIDE *SIDE * 5},
	{"async", get_async, free_async, MIB},
	{"async", get_async, free_addr, MIB},
	{"registered", get_registered, end_registered, MIB},
};

static void
check(size_t row, uint64_t bytes, const char *when)
{
	uint64_t found;

	if (!is_shimmed)
		return;
	found = victim_dump_number(&api, 0, "external", rows[row].kind);
	EXPECT(found == bytes, "row %zu, %s: %s has %llu bytes, not %llu", row, when,
	       rows[row].kind, (unsigned long long)found, (unsigned long long)bytes);
}

int
main(int argc, char **argv)
{
	if (argc != 2)
		return 2;
	victim_dump_path = argv[1];
	MUST(cudaFree(NULL));
	is_shimmed = poolshim_find(&api);
	for (size_t row = 0; row < sizeof(rows) / sizeof(rows[0]); row++) {
		MUST(rows[row].get());
		check(row, rows[row].bytes, "got");
		MUST(rows[row].end());
		check(row, 0, "ended");
	}
	return victim_end("victim_external_rt");
}
