/* SPDX-License-Identifier: MIT */
/*
 * What a program sees of its memory and of memory that is not: pointer attributes in both forms,
 * ranges, host pointers, what network cards need.
 *
 * One line a question. The program judges nothing: its runner compares the lines of a native run
 * with those of a shimmed one. No line holds an address or an id; an id is told by whether it is
 * the block's and whether another block had it. Not asked: what the driver maps as one piece
 * (MAPPING_*, MEMORY_BLOCK_ID), which is the segment's. Runs on a GPU and on the software device.
 */
#include <pthread.h>
#include <unistd.h>

#include "tests/preload/victim.h"

#define UNTOUCHED UINT64_C(0xaaaaaaaaaaaaaaaa)

static const struct attribute {
	CUpointer_attribute which;
	const char *name;
	bool is_wide; /* 8 bytes; else 4 */
} attributes[] = {
	{CU_POINTER_ATTRIBUTE_CONTEXT, "context", true},
	{CU_POINTER_ATTRIBUTE_MEMORY_TYPE, "type", false},
	{CU_POINTER_ATTRIBUTE_DEVICE_POINTER, "device pointer", true},
	{CU_POINTER_ATTRIBUTE_HOST_POINTER, "host pointer", true},
	{CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, "sync memops", false},
	{CU_POINTER_ATTRIBUTE_BUFFER_ID, "id", true},
	{CU_POINTER_ATTRIBUTE_IS_MANAGED, "managed", false},
	{CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, "device", false},
	{CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, "ipc", false},
	{CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, "start", true},
	{CU_POINTER_ATTRIBUTE_RANGE_SIZE, "size", true},
	{CU_POINTER_ATTRIBUTE_MAPPED, "mapped", false},
	{CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES, "handle types", true},
	{CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE, "rdma", false},
	{CU_POINTER_ATTRIBUTE_ACCESS_FLAGS, "access", false},
	{CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, "pool", true},
};

enum { N_ATTRIBUTES = sizeof(attributes) / sizeof(attributes[0]), N_IDS_MAX = 4096 };

static CUcontext context;
static uint64_t ids[N_IDS_MAX]; /* of blocks, each once */
static size_t n_ids;

static uint64_t
id_of(CUdeviceptr addr)
{
	unsigned long long id = 0;

	if (cuPointerGetAttribute(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID, addr) != CUDA_SUCCESS)
		return 0;
	return id;
}

/* Print an answer so that it is the same wherever the block lies. */
static void
show_value(const struct attribute *attribute, uint64_t value, CUdeviceptr addr, CUdeviceptr block)
{
	printf(" %s ", attribute->name);
	if (!attribute->is_wide)
		value &= UINT32_MAX;
	if (value == (attribute->is_wide ? UNTOUCHED : (UNTOUCHED & UINT32_MAX)))
		printf("untouched");
	else if (value == 0)
		printf("0");
	else if (attribute->which == CU_POINTER_ATTRIBUTE_CONTEXT)
		printf("%s", value == (uint64_t)(uintptr_t)context ? "ours" : "another");
	else if (attribute->which == CU_POINTER_ATTRIBUTE_BUFFER_ID)
		printf("%s", block && value == id_of(block) ? "of the block" : "another");
	else if (value == addr)
		printf("the address");
	else if (block && value - block < (64 << 20))
		printf("block + %llu", (unsigned long long)(value - block));
	else
		printf("%lld", attribute->is_wide ? (long long)value : (long long)(int)value);
}

static void
show_range(CUdeviceptr addr, CUdeviceptr block)
{
	CUdeviceptr base = 0x7777;
	size_t n_bytes = 0x7777;
	CUresult r = cuMemGetAddressRange_v2(&base, &n_bytes, addr);

	printf("  range %d %s %zu", r,
	       base == block ? "of the block"
	       : base        ? "other"
			     : "0",
	       n_bytes);
	base = 0x7777;
	r = cuMemGetAddressRange_v2(&base, NULL, addr);
	printf(", base %d %s", r, base == block ? "of the block" : base ? "other" : "0");
	n_bytes = 0x7777;
	printf(", size %d", cuMemGetAddressRange_v2(NULL, &n_bytes, addr));
	printf(" %zu, nothing %d\n", n_bytes, cuMemGetAddressRange_v2(NULL, NULL, addr));
}

/* All there is to know of an address; block: of the program's that holds it, or 0. */
static void
show(const char *what, CUdeviceptr addr, CUdeviceptr block)
{
	CUpointer_attribute which[N_ATTRIBUTES];
	uint64_t values[N_ATTRIBUTES];
	void *slots[N_ATTRIBUTES];
	CUresult r;

	printf("%s\n  one by one:", what);
	for (size_t i = 0; i < N_ATTRIBUTES; i++) {
		values[i] = UNTOUCHED;
		r = cuPointerGetAttribute(&values[i], attributes[i].which, addr);
		printf(" %d", r);
		show_value(&attributes[i], values[i], addr, block);
		values[i] = UNTOUCHED;
		which[i] = attributes[i].which;
		slots[i] = &values[i];
	}
	r = cuPointerGetAttributes(N_ATTRIBUTES, which, slots, addr);
	printf("\n  together: %d", r);
	for (size_t i = 0; i < N_ATTRIBUTES; i++)
		show_value(&attributes[i], values[i], addr, block);
	printf("\n");
	show_range(addr, block);
}

/* Every block, freed ones too, has an id of its own. */
static void
note_id(CUdeviceptr addr)
{
	const uint64_t id = id_of(addr);

	for (size_t i = 0; i < n_ids; i++)
		if (ids[i] == id)
			printf("an id came a second time\n");
	if (n_ids < N_IDS_MAX)
		ids[n_ids++] = id;
}

static void
device_blocks(void)
{
	static const size_t sizes[] = {100, 1000, 1 << 20, (3 << 20) + 100, 8 << 20};
	char what[64];

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		CUdeviceptr block, other;

		MUST(cuMemAlloc_v2(&block, sizes[i]));
		MUST(cuMemAlloc_v2(&other, sizes[i]));
		note_id(block);
		note_id(other);
		snprintf(what, sizeof(what), "device block of %zu", sizes[i]);
		show(what, block, block);
		show("its middle", block + sizes[i] / 2, block);
		show("its last byte", block + sizes[i] - 1, block);
		if (sizes[i] % 512)
			show("the byte behind it", block + sizes[i], 0);
		MUST(cuMemFree_v2(block));
		show("freed", block, 0);
		show("the middle of a freed one", block + sizes[i] / 2, 0);
		MUST(cuMemFree_v2(other));
	}
}

static void
show_host(const char *what, void *pointer, void *block)
{
	CUdeviceptr addr = 0x7777;
	unsigned int flags = 0x7777;
	CUresult r = cuMemHostGetDevicePointer_v2(&addr, pointer, 0);

	printf("%s: device pointer %d %lld", what, r,
	       r == CUDA_SUCCESS ? (long long)(addr - (CUdeviceptr)(uintptr_t)block) : -1);
	r = cuMemHostGetFlags(&flags, pointer);
	printf(", flags %d %x, with flags %d\n", r, r == CUDA_SUCCESS ? flags : 0,
	       cuMemHostGetDevicePointer_v2(&addr, pointer, 1));
}

static void
pinned_blocks(void)
{
	static const struct {
		size_t n_bytes;
		unsigned int flags;
	} kinds[] = {
		{100, 0},
		/* too large for the driver to put it beside another with other flags */
		{3 << 20, CU_MEMHOSTALLOC_PORTABLE},
		{10000, CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_WRITECOMBINED},
		{100, CU_MEMHOSTALLOC_PORTABLE}, /* the last: by cuMemAllocHost */
	};
	enum { N_KINDS = sizeof(kinds) / sizeof(kinds[0]) };

	for (size_t i = 0; i < N_KINDS; i++) {
		const size_t n_bytes = kinds[i].n_bytes;
		void *pointer;
		CUdeviceptr block;

		if (i == N_KINDS - 1)
			MUST(cuMemAllocHost_v2(&pointer, n_bytes));
		else
			MUST(cuMemHostAlloc(&pointer, n_bytes, kinds[i].flags));
		block = (CUdeviceptr)(uintptr_t)pointer;
		note_id(block);
		printf("pinned block of %zu, flags %x\n", n_bytes, kinds[i].flags);
		show("itself", block, block);
		show("the byte behind it", block + n_bytes, 0);
		show_host("itself", pointer, pointer);
		show_host("its middle", (char *)pointer + n_bytes / 2, pointer);
		show_host("behind it", (char *)pointer + n_bytes, pointer);
		MUST(cuMemFreeHost(pointer));
		show("freed", block, 0);
		show_host("freed", pointer, pointer);
	}
	show_host("NULL", NULL, NULL);
}

static int
sync_memops(CUdeviceptr addr)
{
	unsigned int value = 77;
	const CUresult r = cuPointerGetAttribute(&value, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, addr);

	return r == CUDA_SUCCESS ? (int)value : -(int)r;
}

static CUresult
set_sync_memops(CUdeviceptr addr, unsigned int value)
{
	return cuPointerSetAttribute(&value, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, addr);
}

/* A wish for one block is not one for its neighbours, and ends with it. */
static void
wishes(size_t n_bytes)
{
	CUDA_POINTER_ATTRIBUTE_P2P_TOKENS tokens;
	CUdeviceptr block, other, next[3];
	CUresult r;

	MUST(cuMemAlloc_v2(&block, n_bytes));
	MUST(cuMemAlloc_v2(&other, n_bytes));
	printf("blocks of %zu: at first %d %d\n", n_bytes, sync_memops(block), sync_memops(other));
	r = set_sync_memops(block + n_bytes / 2, 1);
	printf("set one: %d, then %d %d\n", r, sync_memops(block), sync_memops(other));
	r = set_sync_memops(block, 0);
	printf("and back: %d, then %d %d\n", r, sync_memops(block), sync_memops(other));
	r = cuPointerGetAttribute(&tokens, CU_POINTER_ATTRIBUTE_P2P_TOKENS, other);
	printf("tokens of the other: %d, then %d %d\n", r, sync_memops(block), sync_memops(other));
	MUST(set_sync_memops(block, 1));
	MUST(cuMemFree_v2(block));
	MUST(cuMemFree_v2(other));
	printf("set on a freed one: %d, asked %d\n", set_sync_memops(block, 1),
	       sync_memops(block)); /* the order does not matter: both are errors */
	for (size_t i = 0; i < 3; i++) {
		MUST(cuMemAlloc_v2(&next[i], n_bytes));
		note_id(next[i]);
		printf("a new one: %d\n", sync_memops(next[i]));
	}
	for (size_t i = 0; i < 3; i++)
		MUST(cuMemFree_v2(next[i]));
}

static void
show_dma_buf(const char *what, CUdeviceptr addr, size_t n_bytes, unsigned long long flags)
{
	int fd = -77;
	const CUresult r = cuMemGetHandleForAddressRange(
		&fd, addr, n_bytes, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, flags);

	printf("dma-buf of %s: %d, %s\n", what, r,
	       fd == -77 ? "untouched"
	       : fd < 0  ? "-1"
			 : "a descriptor");
	if (r == CUDA_SUCCESS)
		close(fd);
}

static void
dma_bufs(void)
{
	CUdeviceptr block, freed;

	MUST(cuMemAlloc_v2(&freed, 12 << 20));
	MUST(cuMemAlloc_v2(&block, 8 << 20));
	show_dma_buf("all", block, 8 << 20, 0);
	show_dma_buf("a page", block + 4096, 4096, 0);
	show_dma_buf("half", block + (4 << 20), 4 << 20, 0);
	show_dma_buf("half a page", block, 2048, 0);
	show_dma_buf("an odd address", block + 512, 4096, 0);
	show_dma_buf("nothing", block, 0, 0);
	show_dma_buf("a page with flags", block, 4096, 1);
	show_dma_buf("NULL", 0, 4096, 0);
	show_dma_buf("an unknown address", 0x1000, 4096, 0);
	MUST(cuMemFree_v2(freed));
	show_dma_buf("a freed block", freed, 4096, 0);
	MUST(cuMemFree_v2(block));
}

static void
wrong_calls(void)
{
	CUpointer_attribute which[2] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, (CUpointer_attribute)99};
	unsigned long long value = 5;
	void *slots[2] = {&value, &value}, *none[1] = {NULL};
	CUdeviceptr block;

	MUST(cuMemAlloc_v2(&block, 100));
	printf("no attributes %d, no names %d, no values %d, no value %d, an unknown one %d\n",
	       cuPointerGetAttributes(0, which, slots, block),
	       cuPointerGetAttributes(1, NULL, slots, block),
	       cuPointerGetAttributes(1, which, NULL, block),
	       cuPointerGetAttributes(1, which, none, block),
	       cuPointerGetAttributes(2, which, slots, block));
	printf("into NULL %d, an unknown one %d\n", cuPointerGetAttribute(NULL, which[0], block),
	       cuPointerGetAttribute(&value, which[1], block));
	for (int i = 1; i < 22; i++)
		if (i != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS)
			printf("set %d: %d\n", i,
			       cuPointerSetAttribute(&value, (CUpointer_attribute)i, block));
	printf("set from NULL %d, of an unknown address %d\n",
	       cuPointerSetAttribute(NULL, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, block),
	       set_sync_memops(0x1000, 1));
	printf("device pointer into NULL %d, flags into NULL %d\n",
	       cuMemHostGetDevicePointer_v2(NULL, &value, 0), cuMemHostGetFlags(NULL, &value));
	MUST(cuMemFree_v2(block));
}

static void *
without_a_context(void *arg)
{
	const CUdeviceptr block = *(CUdeviceptr *)arg;

	show("without a context", block, block);
	show("an unknown address without a context", 0x1000, 0);
	printf("set %d, ", set_sync_memops(block, 1));
	printf("back %d\n", set_sync_memops(block, 0));
	return NULL;
}

static void
in_a_thread(size_t n_bytes)
{
	CUdeviceptr block;
	pthread_t thread;

	MUST(cuMemAlloc_v2(&block, n_bytes));
	if (pthread_create(&thread, NULL, without_a_context, &block) != 0)
		exit(2);
	pthread_join(thread, NULL);
	MUST(cuMemFree_v2(block));
}

static void
unknown_addresses(void)
{
	void *pointer = malloc(1000);

	show("NULL", 0, 0);
	show("the lowest page", 0x1000, 0);
	show("memory of malloc", (CUdeviceptr)(uintptr_t)pointer, 0);
	show_host("memory of malloc", pointer, pointer);
	free(pointer);
}

/* An id is never had twice, however often memory goes round. */
static void
ids_of_many(void)
{
	for (int i = 0; i < 300; i++) {
		CUdeviceptr small, large;

		MUST(cuMemAlloc_v2(&small, 3000));
		MUST(cuMemAlloc_v2(&large, 4 << 20));
		note_id(small);
		note_id(large);
		MUST(cuMemFree_v2(small));
		MUST(cuMemFree_v2(large));
	}
	printf("%zu ids\n", n_ids);
}

int
main(void)
{
	context = victim_start();
	device_blocks();
	pinned_blocks();
	unknown_addresses();
	wishes(1000);
	wishes(4 << 20);
	dma_bufs();
	wrong_calls();
	in_a_thread(1000);
	in_a_thread(4 << 20);
	ids_of_many();
	return victim_end("victim_seen");
}
