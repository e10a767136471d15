/* SPDX-License-Identifier: MIT */
/*
 * The cost of the shim's bodies of functions that submit, within one process: short batches in
 * turns, in random order, by what the program links (under the shim its body) and by libcuda's own
 * function, and by that one a second time, which shows the noise. Launches of an empty kernel, and
 * records of an event, which are cheap and vary little.
 *
 * Under the shim no look-up gives libcuda's own function, so it is read from the symbol table of
 * the loaded library.
 *
 * Prints, for each function, "PAIR name linked own own_again" in ns a call, one line a round.
 */
#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>
#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "gpu_pin.h"

enum { N_ROUNDS = 12000, N_WARM = 200, N_UNTIMED = 8, N_CALLS = 24, N_WAYS = 3 };

#define MUST(call) \
	do { \
		const CUresult must_status = (call); \
		if (must_status != CUDA_SUCCESS) { \
			fprintf(stderr, "%s:%d: %s = %d\n", __FILE__, __LINE__, #call, \
				must_status); \
			exit(1); \
		} \
	} while (0)

static const char empty_ptx[] = ".version 8.0\n"
				".target sm_75\n"
				".address_size 64\n"
				".visible .entry empty()\n"
				"{\n"
				"	ret;\n"
				"}\n";

static CUfunction empty;
static CUstream stream;
static CUevent event;

/* The symbol tables of a loaded library, as the dynamic section tells them. */
struct tables {
	const ElfW(Sym) * symbols;
	const char *names;
	const uint32_t *gnu_hash, *hash; /* a library has one of them, or both */
	ElfW(Addr) base;
};

static int
find_tables(struct dl_phdr_info *info, size_t size, void *data)
{
	struct tables *tables = data;

	(void)size;
	if (!strstr(info->dlpi_name, "libcuda.so"))
		return 0;
	tables->base = info->dlpi_addr;
	for (int i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Dyn) * entry;

		if (info->dlpi_phdr[i].p_type != PT_DYNAMIC)
			continue;
		entry = (const ElfW(Dyn) *)(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr);
		for (; entry->d_tag != DT_NULL; entry++) {
			/* glibc has put the base into these on the machines that CUDA is for. */
			if (entry->d_tag == DT_SYMTAB)
				tables->symbols = (const void *)entry->d_un.d_ptr;
			else if (entry->d_tag == DT_STRTAB)
				tables->names = (const void *)entry->d_un.d_ptr;
			else if (entry->d_tag == DT_GNU_HASH)
				tables->gnu_hash = (const void *)entry->d_un.d_ptr;
			else if (entry->d_tag == DT_HASH)
				tables->hash = (const void *)entry->d_un.d_ptr;
		}
	}
	return 1;
}

static size_t
count_hashed(const uint32_t *gnu_hash)
{
	const uint32_t n_buckets = gnu_hash[0], first = gnu_hash[1], n_bloom = gnu_hash[2];
	const uint32_t *buckets = &gnu_hash[4 + n_bloom * sizeof(ElfW(Addr)) / 4];
	const uint32_t *chains = &buckets[n_buckets];
	uint32_t last = 0;

	for (uint32_t i = 0; i < n_buckets; i++)
		last = buckets[i] > last ? buckets[i] : last;
	if (last < first)
		return 0;
	while (!(chains[last - first] & 1))
		last++;
	return last + 1;
}

static size_t
count_symbols(const struct tables *tables)
{
	if (tables->hash)
		return tables->hash[1];
	return tables->gnu_hash ? count_hashed(tables->gnu_hash) : 0;
}

/* Libcuda's own function, whatever dlsym says. */
static void *
own_function(const char *name)
{
	struct tables tables = {0};
	size_t n_symbols;

	if (!dl_iterate_phdr(find_tables, &tables) || !tables.symbols || !tables.names)
		return NULL;
	n_symbols = count_symbols(&tables);
	for (size_t i = 0; i < n_symbols; i++) {
		const ElfW(Sym) *symbol = &tables.symbols[i];

		if (symbol->st_shndx != SHN_UNDEF && ELF64_ST_TYPE(symbol->st_info) == STT_FUNC &&
		    !strcmp(tables.names + symbol->st_name, name))
			return (void *)(tables.base + symbol->st_value);
	}
	return NULL;
}

/*
 * One batch: some calls to be in a loop again, after the synchronise and the other way of calling;
 * the timed ones; a synchronise. Ns a call.
 */
#define BATCH(call) \
	do { \
		double start_ns = 0, end_ns; \
		int n_failed = 0; \
\
		for (int i = -N_UNTIMED; i < N_CALLS; i++) { \
			if (i == 0) \
				start_ns = now_ns(); \
			n_failed += (call) != CUDA_SUCCESS; \
		} \
		end_ns = now_ns(); \
		if (n_failed) \
			exit(1); \
		MUST(cuStreamSynchronize(stream)); \
		*ret_ns = (end_ns - start_ns) / N_CALLS; \
	} while (0)

static void
launch_batch(void *function, double *ret_ns)
{
	__typeof__(&cuLaunchKernel) launch = (__typeof__(&cuLaunchKernel))function;

	BATCH(launch(empty, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL));
}

static void
launch_ex_batch(void *function, double *ret_ns)
{
	__typeof__(&cuLaunchKernelEx) launch = (__typeof__(&cuLaunchKernelEx))function;
	const CUlaunchConfig config = {1, 1, 1, 1, 1, 1, 0, stream, NULL, 0};

	BATCH(launch(&config, empty, NULL, NULL));
}

static void
record_batch(void *function, double *ret_ns)
{
	__typeof__(&cuEventRecord) record = (__typeof__(&cuEventRecord))function;

	BATCH(record(event, stream));
}

static const struct row {
	const char *name;
	void *linked;
	void (*batch)(void *function, double *ret_ns);
} rows[] = {
	{"cuLaunchKernel", (void *)cuLaunchKernel, launch_batch},
	{"cuLaunchKernel_ptsz", (void *)cuLaunchKernel_ptsz, launch_batch},
	{"cuLaunchKernelEx", (void *)cuLaunchKernelEx, launch_ex_batch},
	{"cuEventRecord", (void *)cuEventRecord, record_batch},
};

/* Which library a function is in: the name behind the last slash. */
static const char *
object_of(void *function)
{
	const char *slash;
	Dl_info info;

	if (!dladdr(function, &info) || !info.dli_fname)
		return "?";
	slash = strrchr(info.dli_fname, '/');
	return slash ? slash + 1 : info.dli_fname;
}

/* 0 to 5: which of the six orders of three. */
static unsigned int
random_order(void)
{
	static uint64_t state = 0x2545f4914f6cdd1dull;

	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return (unsigned int)(state >> 32) % 6;
}

static int
measure(const struct row *row)
{
	static const unsigned char orders[6][N_WAYS] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2},
							{1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
	void *const own = own_function(row->name);
	void *const ways[N_WAYS] = {row->linked, own, own};
	double ns[N_WAYS];

	if (!own) {
		fprintf(stderr, "libcuda has no %s\n", row->name);
		return 1;
	}
	printf("TIME_IN %s linked %s own %s\n", row->name, object_of(row->linked), object_of(own));
	for (int round = -N_WARM; round < N_ROUNDS; round++) {
		const unsigned char *order = orders[random_order()];

		for (int i = 0; i < N_WAYS; i++)
			row->batch(ways[order[i]], &ns[order[i]]);
		if (round >= 0)
			printf("PAIR %s %.2f %.2f %.2f\n", row->name, ns[0], ns[1], ns[2]);
	}
	return 0;
}

int
main(void)
{
	CUdeviceptr kept, block;
	CUcontext context;
	CUdevice device;
	CUmodule module;
	int n_failed = 0;

	MUST(cuInit(0));
	MUST(cuDeviceGet(&device, 0));
	MUST(cuDevicePrimaryCtxRetain(&context, device));
	MUST(cuCtxSetCurrent(context));
	MUST(cuModuleLoadData(&module, empty_ptx));
	MUST(cuModuleGetFunction(&empty, module, "empty"));
	MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	MUST(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
	MUST(cuMemAlloc_v2(&kept, 1 << 20)); /* so that under the shim the pool is at work */
	MUST(cuMemAlloc_v2(&block, 5000));
	MUST(cuMemFree_v2(block));
	if (pin_to_one_core())
		fprintf(stderr, "not pinned to a core\n");
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		n_failed += measure(&rows[i]);
	return n_failed ? 1 : 0;
}
