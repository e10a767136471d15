/* SPDX-License-Identifier: MIT */
#include <sys/wait.h>
#include <unistd.h>

#include "tests/sim/test_sim.h"

/* Memory of every kind: device, pinned, managed, virtual, pools, and between processes. */

static void
device_memory(void)
{
	size_t at_start = free_bytes(), size = 0, pitch = 0;
	CUdeviceptr a, b, big, base = 0;

	status(cuMemAlloc_v2(&a, 0), CUDA_ERROR_INVALID_VALUE,
	       "an allocation of nothing is refused");
	status(cuMemAlloc_v2(NULL, 16), CUDA_ERROR_INVALID_VALUE,
	       "so is one without a place for the address");
	status(cuMemAlloc_v2(&a, (size_t)1 << 50), CUDA_ERROR_OUT_OF_MEMORY,
	       "an impossible size is out of memory");
	status(cuMemAlloc_v2(&a, 1000), CUDA_SUCCESS, "a small allocation works");
	ok(a % 512 == 0, "it is aligned to 512");
	ok(at_start - free_bytes() == 2 * MIB, "the memory info moves by one driver block");
	cuMemAlloc_v2(&b, 1);
	ok(at_start - free_bytes() == 2 * MIB, "a second small one comes from the same block");
	cuMemAlloc_v2(&big, 2 * MIB + 1);
	ok(at_start - free_bytes() == 6 * MIB, "a large one is rounded to whole blocks");
	status(cuMemGetAddressRange_v2(&base, &size, a + 10), CUDA_SUCCESS,
	       "an interior pointer has a range");
	ok(base == a && size == 1000, "the range is that of the allocation, as requested");
	status(cuMemGetAddressRange_v2(&base, &size, 4096), CUDA_ERROR_NOT_FOUND,
	       "a bogus pointer has none");
	ok(base == 0 && size == 0, "and its range is empty");
	status(cuMemGetAddressRange_v2(NULL, NULL, 4096), CUDA_SUCCESS,
	       "asking for nothing is no error");
	status(cuMemGetInfo_v2(NULL, NULL), CUDA_SUCCESS, "nor is it for the memory info");
	status(cuMemFree_v2(a + 512), CUDA_ERROR_INVALID_VALUE, "an interior pointer is not freed");
	status(cuMemFree_v2(4096), CUDA_ERROR_INVALID_VALUE, "nor a bogus one");
	status(cuMemFreeHost((void *)a), CUDA_ERROR_INVALID_VALUE, "nor by the wrong kind of free");
	status(cuMemFree_v2(a), CUDA_SUCCESS, "the pointer itself is");
	status(cuMemFree_v2(a), CUDA_ERROR_INVALID_VALUE, "but not twice");
	status(cuMemFree_v2(0), CUDA_SUCCESS, "NULL is accepted");
	cuMemFree_v2(b);
	cuMemFree_v2(big);
	ok(free_bytes() == at_start, "everything came back");
	status(cuMemAllocPitch_v2(&a, &pitch, 513, 10, 4), CUDA_SUCCESS,
	       "a pitched allocation works");
	ok(pitch == 1024, "its pitch is rounded up to 512");
	cuMemFree_v2(a);
	cuMemAlloc_v2(&a, 16);
	status(cuMemFreeAsync(a, NULL), CUDA_SUCCESS, "cuMemFreeAsync takes memory of cuMemAlloc");
	cuMemAllocAsync(&a, 16, NULL);
	status(cuMemFree_v2(a), CUDA_SUCCESS, "cuMemFree takes memory of cuMemAllocAsync");
	cuCtxSynchronize();
	ok(free_bytes() == at_start, "everything came back again");
}

static void
host_and_managed_memory(void)
{
	size_t at_start = free_bytes();
	unsigned type = 0, flags = 0, is_managed = 0;
	CUdeviceptr p;
	char *h = (char *)1, *own = malloc(4096);

	status(cuMemHostAlloc((void **)&h, 16, 64), CUDA_ERROR_INVALID_VALUE, "unknown flags");
	ok(!h, "a failed allocation of pinned memory sets the pointer");
	status(cuMemHostAlloc((void **)&h, 5000, CU_MEMHOSTALLOC_PORTABLE), CUDA_SUCCESS,
	       "pinned memory");
	status(cuMemHostGetDevicePointer_v2(&p, h, 0), CUDA_SUCCESS, "it has a device pointer");
	cuMemHostGetFlags(&flags, h);
	ok(flags & CU_MEMHOSTALLOC_PORTABLE, "and keeps its flags");
	cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, (CUdeviceptr)h);
	ok(type == CU_MEMORYTYPE_HOST, "its type is host");
	status(cuMemFree_v2((CUdeviceptr)h), CUDA_ERROR_INVALID_VALUE,
	       "cuMemFree does not take it");
	status(cuMemFreeHost(h), CUDA_SUCCESS, "cuMemFreeHost does");
	status(cuMemFreeHost(h), CUDA_ERROR_INVALID_VALUE, "once");
	status(cuMemFreeHost(NULL), CUDA_SUCCESS, "and NULL");
	status(cuMemHostRegister_v2(own, 4096, 0), CUDA_SUCCESS, "memory can be registered");
	status(cuMemHostRegister_v2(own, 4096, 0), CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED,
	       "once");
	status(cuMemHostUnregister(own), CUDA_SUCCESS, "and unregistered");
	status(cuMemHostUnregister(own), CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, "once");
	free(own);
	status(cuMemAllocManaged(&p, 3 * MIB, CU_MEM_ATTACH_GLOBAL), CUDA_SUCCESS,
	       "managed memory");
	*(int *)p = 7;
	ok(free_bytes() == at_start, "it takes no device memory");
	cuPointerGetAttribute(&is_managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, p);
	ok(is_managed == 1, "and says that it is managed");
	status(cuMemFree_v2(p), CUDA_SUCCESS, "cuMemFree takes it");
}

static void
virtual_memory(void)
{
	const CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
					  .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
	const CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, 0},
					CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	CUmemGenericAllocationHandle handle, same;
	size_t at_start = free_bytes(), granularity = 0;
	/* Under ThreadSanitizer a process has hardly more than a TiB of addresses. */
#ifdef __SANITIZE_THREAD__
	const size_t huge_bytes = (size_t)64 << 30;
#else
	const size_t huge_bytes = (size_t)1 << 40;
#endif
	CUdeviceptr va, huge;

	cuMemGetAllocationGranularity(&granularity, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
	ok(granularity == 2 * MIB, "the granularity is 2 MiB");
	status(cuMemAddressReserve(&huge, huge_bytes, 0, 0, 0), CUDA_SUCCESS,
	       "a large range can be reserved");
	status(cuMemAddressFree(huge, huge_bytes), CUDA_SUCCESS, "and given back");
	status(cuMemAddressReserve(&va, 8 * MIB, 0, 0, 0), CUDA_SUCCESS,
	       "addresses for four pages");
	status(cuMemCreate(&handle, 1000, &prop, 0), CUDA_ERROR_INVALID_VALUE,
	       "a handle is made of whole pages");
	status(cuMemCreate(&handle, 4 * MIB, &prop, 0), CUDA_SUCCESS, "a handle of two pages");
	ok(at_start - free_bytes() == 4 * MIB, "which take device memory");
	status(cuMemMap(va, 4 * MIB, 0, handle, 0), CUDA_SUCCESS, "it is mapped");
	status(cuMemMap(va + 2 * MIB, 4 * MIB, 0, handle, 0), CUDA_ERROR_INVALID_VALUE,
	       "not over a mapping");
	status(cuMemMap(va + 4 * MIB, 2 * MIB, 2 * MIB, handle, 0), CUDA_SUCCESS,
	       "but in part at a second place");
	status(cuMemsetD8_v2(va, 1, 16), CUDA_ERROR_INVALID_VALUE,
	       "without access it cannot be set");
	status(cuMemSetAccess(va, 6 * MIB, &access, 1), CUDA_SUCCESS,
	       "access for both mappings in one call");
	status(cuMemSetAccess(va, 2 * MIB, &access, 1), CUDA_ERROR_INVALID_VALUE,
	       "but not for half of one");
	cuMemsetD8_v2(va + 2 * MIB, 5, 16);
	cuCtxSynchronize();
	ok(*(char *)(va + 4 * MIB) == 5, "both places show the same bytes");
	status(cuMemRetainAllocationHandle(&same, (void *)(va + 10)), CUDA_SUCCESS,
	       "the handle can be asked back");
	ok(same == handle, "and is the same");
	cuMemRelease(same);
	status(cuMemRelease(handle), CUDA_SUCCESS, "and released");
	status(cuMemRelease(handle), CUDA_ERROR_INVALID_VALUE, "as often as it was held");
	ok(at_start - free_bytes() == 4 * MIB, "while it is mapped its memory stays");
	status(cuMemAddressFree(va, 8 * MIB), CUDA_ERROR_INVALID_VALUE, "and its addresses too");
	status(cuMemUnmap(va, 6 * MIB), CUDA_SUCCESS, "unmapped");
	status(cuMemAddressFree(va, 8 * MIB), CUDA_SUCCESS, "the addresses go back");
	ok(free_bytes() == at_start, "and the memory");
}

static void
pools(void)
{
	const CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
				      .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
	CUmemoryPool pool, current, of_pointer = NULL;
	cuuint64_t used = 0;
	CUdeviceptr p;

	cuDeviceGetDefaultMemPool(&pool, 0);
	cuDeviceGetMemPool(&current, 0);
	ok(pool == current, "the current pool is the default one");
	status(cuMemPoolDestroy(pool), CUDA_ERROR_INVALID_VALUE, "which cannot be destroyed");
	cuMemAllocAsync(&p, 1000, NULL);
	cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used);
	ok(used == 1000, "the pool counts what it gave");
	cuPointerGetAttribute(&of_pointer, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, p);
	ok(of_pointer == pool, "the pointer names its pool");
	cuMemFreeAsync(p, NULL);
	status(cuMemFreeAsync(p, NULL), CUDA_ERROR_INVALID_VALUE, "a second free is refused");
	cuCtxSynchronize();
	cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used);
	ok(used == 0, "and took it back once the stream was there");
	status(cuMemPoolCreate(&pool, &props), CUDA_SUCCESS, "a pool of the program's own");
	status(cuMemAllocFromPoolAsync(&p, 5 * MIB, pool, NULL), CUDA_SUCCESS, "gives memory");
	cuMemFreeAsync(p, NULL);
	cuCtxSynchronize();
	status(cuMemPoolDestroy(pool), CUDA_SUCCESS, "and ends");
	status(cuMemAllocFromPoolAsync(&p, 16, pool, NULL), CUDA_ERROR_INVALID_VALUE, "for good");
}

static void
ipc(void)
{
	CUdeviceptr large, small, opened = 0, async;
	CUipcMemHandle handle, other;
	int result = 0, zeros = 0;
	pid_t pid;

	cuMemAlloc_v2(&large, 4 * MIB);
	cuMemAlloc_v2(&small, 512);
	cuMemAllocAsync(&async, 512, NULL);
	status(cuIpcGetMemHandle(&handle, async), CUDA_ERROR_INVALID_VALUE,
	       "pool memory has no IPC handle");
	status(cuIpcGetMemHandle(&handle, large + 4096), CUDA_SUCCESS,
	       "an interior pointer has one");
	status(cuIpcGetMemHandle(&other, large), CUDA_SUCCESS, "its base has one");
	ok(memcmp(&handle, &other, sizeof(handle)) == 0, "which is the same");
	for (int i = 56; i < 64; i++)
		zeros += handle.reserved[i] == 0;
	ok(zeros == 8, "the last 8 bytes of a handle are zero");
	status(cuIpcOpenMemHandle_v2(&opened, handle, 1), CUDA_ERROR_INVALID_CONTEXT,
	       "a process does not open its own memory");
	status(cuIpcOpenMemHandle_v2(&opened, handle, 0), CUDA_ERROR_INVALID_VALUE,
	       "nor with flags of 0");
	cuMemFree_v2(small);
	fflush(stdout);
	pid = fork();
	if (pid == 0)
		_exit(cuMemAlloc_v2(&small, 16) == CUDA_ERROR_NOT_INITIALIZED &&
		      cuInit(0) == CUDA_ERROR_NOT_INITIALIZED);
	waitpid(pid, &result, 0);
	ok(WIFEXITED(result) && WEXITSTATUS(result) == 1,
	   "a forked child is not initialised, for ever");
	cuMemFree_v2(large);
	cuMemFree_v2(async);
}

/* An importer, started before the device is: it reads handles, changes the bytes, answers. */
struct importer {
	pid_t pid;
	int to, from;
};

struct exported {
	CUipcMemHandle large, small;
};

/* Opens and closes as a driver counts them. Answers the line of the check that failed, or 0. */
static int
import_both(struct exported exported)
{
	CUdeviceptr opened = 0, again = 0;

#define CHECK(condition) \
	do { \
		if (!(condition)) \
			return __LINE__; \
	} while (0)
	CHECK(cuIpcOpenMemHandle_v2(&opened, exported.large, 1) == CUDA_SUCCESS);
	CHECK(*(int *)opened == 4711);
	exported.large.reserved[60] = 77; /* in the tail, which is ignored */
	CHECK(cuIpcOpenMemHandle_v2(&again, exported.large, 1) == CUDA_SUCCESS && again == opened);
	CHECK(cuIpcCloseMemHandle(again) == CUDA_SUCCESS && *(int *)opened == 4711);
	CHECK(cuIpcOpenMemHandle_v2(&again, exported.small, 1) == CUDA_SUCCESS);
	CHECK(*(int *)again == 4712);
	CHECK(cuMemFree_v2(again) == CUDA_ERROR_INVALID_VALUE);
	CHECK(cuIpcCloseMemHandle(again) == CUDA_SUCCESS);
	*(int *)opened += 2;
	CHECK(cuIpcCloseMemHandle(opened) == CUDA_SUCCESS);
	CHECK(cuIpcCloseMemHandle(opened) == CUDA_ERROR_INVALID_VALUE);
	exported.large.reserved[20] ^= 1;
	CHECK(cuIpcOpenMemHandle_v2(&again, exported.large, 1) == CUDA_ERROR_INVALID_VALUE);
#undef CHECK
	return 0;
}

static void
import_in_child(int in, int out)
{
	struct exported exported;
	int failed_line;

	if (read(in, &exported, sizeof(exported)) != (ssize_t)sizeof(exported))
		_exit(1);
	start(CUSIM_AUTO);
	failed_line = import_both(exported);
	_exit(write(out, &failed_line, sizeof(failed_line)) != (ssize_t)sizeof(failed_line));
}

static struct importer
start_importer(void)
{
	struct importer child = {0};
	int to[2], from[2];

	if (pipe(to) != 0 || pipe(from) != 0)
		exit(1);
	child.pid = fork();
	if (child.pid == 0) {
		close(to[1]); /* or the end of the parent would not be seen */
		import_in_child(to[0], from[1]);
	}
	child.to = to[1];
	child.from = from[0];
	return child;
}

static void
ipc_between_processes(struct importer child)
{
	struct exported exported;
	CUdeviceptr large, small;
	int failed_line = -1, result = 1;

	cuMemAlloc_v2(&large, 3 * MIB);
	cuMemAlloc_v2(&small, 512);
	*(int *)large = 4711;
	*(int *)small = 4712;
	cuIpcGetMemHandle(&exported.large, large + 4096);
	cuIpcGetMemHandle(&exported.small, small);
	if (write(child.to, &exported, sizeof(exported)) != (ssize_t)sizeof(exported) ||
	    read(child.from, &failed_line, sizeof(failed_line)) != (ssize_t)sizeof(failed_line))
		failed_line = -2;
	waitpid(child.pid, &result, 0);
	if (failed_line)
		printf("# the importer's check in line %d\n", failed_line);
	ok(failed_line == 0 && result == 0, "another process opens, counts and closes");
	ok(*(int *)large == 4713, "and its writes are seen here");
	cuMemFree_v2(large);
	cuMemFree_v2(small);
}

int
main(void)
{
	struct importer importer = start_importer();

	start(CUSIM_AUTO);
	device_memory();
	host_and_managed_memory();
	virtual_memory();
	pools();
	ipc();
	ipc_between_processes(importer);
	ok(cusim_violations() == 0, "no operation touched memory that was gone");
	return finish();
}
