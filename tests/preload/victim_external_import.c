/* SPDX-License-Identifier: MIT */
/*
 * Memory of other owners is counted while it is open here: handles of cuMemCreate, pointers of
 * pools, IPC handles of another process, external memory.
 *
 * usage: victim_external_import DUMP-PATH
 */
#include <sys/wait.h>
#include <unistd.h>

#include "tests/preload/victim_dump.h"
#include "tests/preload/victim_sim.h"

enum { MIB = 1 << 20, UNIT = 2 * MIB };

static struct poolshim_api api;
static bool is_shimmed;

static void
expect(int device, const char *kind, uint64_t bytes, const char *when)
{
	if (is_shimmed)
		victim_dump_expect(&api, device, kind, bytes, when);
}

static CUmemAllocationProp
device_prop(void)
{
	return (CUmemAllocationProp){
		.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0},
	};
}

static void
test_imported_handle(void)
{
	CUmemAllocationProp prop = device_prop();
	CUmemGenericAllocationHandle handle, imported;
	CUdeviceptr at;
	int fd;

	prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
	MUST(cuMemAddressReserve(&at, UNIT, 0, 0, 0));
	MUST(cuMemCreate(&handle, UNIT, &prop, 0));
	MUST(cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
					  0));
	MUST(cuMemImportFromShareableHandle(&imported, (void *)(intptr_t)fd,
					    CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
	expect(0, "imported", 0, "not mapped yet");
	MUST(cuMemMap(at, UNIT, 0, imported, 0));
	expect(0, "imported", UNIT, "mapped");
	MUST(cuMemRelease(imported));
	expect(0, "imported", UNIT, "released, mapped");
	MUST(cuMemUnmap(at, UNIT));
	expect(0, "imported", 0, "unmapped");
	MUST(cuMemRelease(handle));
	expect(0, "vmm", 0, "the exporter's");
	MUST(cuMemAddressFree(at, UNIT));
}

static void
test_imported_pointer(void)
{
	const CUmemPoolProps props = {
		.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
		.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
		.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0},
	};
	CUmemPoolPtrExportData data;
	CUmemoryPool pool, imported;
	CUdeviceptr own, other;
	int fd;

	MUST(cuMemPoolCreate(&pool, &props));
	MUST(cuMemAllocFromPoolAsync(&own, MIB, pool, NULL));
	MUST(cuMemPoolExportToShareableHandle(&fd, pool, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
					      0));
	MUST(cuMemPoolImportFromShareableHandle(&imported, (void *)(intptr_t)fd,
						CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
	MUST(cuMemPoolExportPointer(&data, own));
	MUST(cusim_fail("cuMemPoolImportPointer", 1, CUDA_ERROR_UNKNOWN));
	EXPECT(cuMemPoolImportPointer(&other, imported, &data) == CUDA_ERROR_UNKNOWN,
	       "the import did not fail");
	expect(0, "imported", 0, "not imported");
	MUST(cuMemPoolImportPointer(&other, imported, &data));
	expect(0, "imported", MIB, "imported");
	MUST(cuMemFreeAsync(other, NULL));
	expect(0, "imported", 0, "freed");
	expect(0, "user_pools", MIB, "the exporter's");
	MUST(cuMemFreeAsync(own, NULL));
	expect(0, "user_pools", 0, "the exporter's, freed");
	MUST(cuCtxSynchronize());
}

/* Another process exports; it is started before CUDA is, and ends when it is told to. */
struct exporter {
	int handles, end; /* pipes */
	pid_t pid;
};

static void
export_and_wait(int handles, int end)
{
	CUipcMemHandle handle;
	CUdeviceptr addr;
	char byte;

	victim_start();
	MUST(cuMemAlloc_v2(&addr, 12 * UNIT));
	MUST(cuIpcGetMemHandle(&handle, addr));
	if (write(handles, &handle, sizeof(handle)) != sizeof(handle) || read(end, &byte, 1) < 0)
		_exit(1);
	_exit(victim_n_failed);
}

static struct exporter
start_exporter(void)
{
	int handles[2], end[2];
	struct exporter exporter = {.pid = -1};

	if (pipe(handles) != 0 || pipe(end) != 0)
		exit(2);
	exporter.pid = fork();
	if (exporter.pid == 0) {
		close(end[1]);
		export_and_wait(handles[1], end[0]);
	}
	close(handles[1]);
	close(end[0]);
	exporter.handles = handles[0];
	exporter.end = end[1];
	return exporter;
}

static void
test_ipc(const struct exporter *exporter)
{
	CUipcMemHandle handle;
	CUdeviceptr first, second;

	if (read(exporter->handles, &handle, sizeof(handle)) != sizeof(handle)) {
		EXPECT(false, "the other process exported nothing");
		return;
	}
	MUST(cuIpcOpenMemHandle_v2(&first, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
	expect(0, "imported", 12 * UNIT, "opened");
	MUST(cuIpcOpenMemHandle(&second, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
	EXPECT(first == second, "opened twice, it is at two addresses");
	expect(0, "imported", 12 * UNIT, "opened twice");
	MUST(cuIpcCloseMemHandle(first));
	expect(0, "imported", 12 * UNIT, "closed once");
	MUST(cusim_fail("cuIpcCloseMemHandle", 1, CUDA_ERROR_UNKNOWN));
	EXPECT(cuIpcCloseMemHandle(first) == CUDA_ERROR_UNKNOWN, "the close did not fail");
	expect(0, "imported", 12 * UNIT, "not closed");
	MUST(cuIpcCloseMemHandle(first));
	expect(0, "imported", 0, "closed twice");
	EXPECT(cuIpcCloseMemHandle(first) != CUDA_SUCCESS, "closed three times");
	expect(0, "imported", 0, "closed once too often");
	close(exporter->end);
	waitpid(exporter->pid, NULL, 0);
}

static void
test_external_memory(void)
{
	const CUDA_EXTERNAL_MEMORY_HANDLE_DESC how = {
		.type = CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD, .size = 3 * MIB};
	CUexternalMemory memory;

	MUST(cuImportExternalMemory(&memory, &how));
	expect(0, "imported", 3 * MIB, "external memory");
	MUST(cusim_fail("cuDestroyExternalMemory", 1, CUDA_ERROR_UNKNOWN));
	EXPECT(cuDestroyExternalMemory(memory) == CUDA_ERROR_UNKNOWN, "the destroy did not fail");
	expect(0, "imported", 3 * MIB, "external memory, not destroyed");
	MUST(cuDestroyExternalMemory(memory));
	expect(0, "imported", 0, "external memory, destroyed");
}

int
main(int argc, char **argv)
{
	struct exporter exporter;

	if (argc != 2)
		return 2;
	victim_dump_path = argv[1];
	exporter = start_exporter();
	victim_start();
	is_shimmed = poolshim_find(&api);
	test_imported_handle();
	test_imported_pointer();
	test_ipc(&exporter);
	test_external_memory();
	victim_check_device();
	return victim_end("victim_external_import");
}
