/* SPDX-License-Identifier: MIT */
/*
 * Memory of one process, opened in another by IPC handles.
 *
 * usage: victim_ipc EXPORTER IMPORTER
 *   each: shimmed (as this program was started), plain (without the shim), or a POOLSHIM_MODE
 *
 * An importer gets the right bytes, or the driver's error; it gets them if it knows the exporter's
 * handles, which is so unless it is plain and the exporter shares segments. Runs on a GPU, where no
 * call is made to fail, and on the software device.
 */
#include "tests/preload/victim_ipc.h"

enum {
	N_BLOCKS = 8,
	N_CYCLES = 5000,
	ROOM_BYTES = 48 << 20, /* what exported and freed memory may keep */
};

static const size_t sizes[N_BLOCKS] = {1000, 700, 12288, 512, 1 << 20, 100000, 8 << 20, 2 << 20};

static struct block {
	CUdeviceptr addr;
	size_t n_bytes;
	unsigned int value;
	CUipcMemHandle handle;
	CUdeviceptr imported; /* the importer's address; 0: not open */
} blocks[N_BLOCKS];

static struct poolshim_api api;
static bool is_pooled;     /* this process: blocks share segments */
static bool is_understood; /* the importer knows every handle */

static void
make(struct block *block, size_t n_bytes)
{
	static unsigned int n_made;

	block->n_bytes = n_bytes;
	block->value = 0x51000000 + ++n_made;
	MUST(cuMemAlloc_v2(&block->addr, n_bytes));
	MUST(cuMemsetD32_v2(block->addr, block->value, n_bytes / 4));
	MUST(cuCtxSynchronize());
	MUST(cuIpcGetMemHandle(&block->handle, block->addr));
}

/* Does the importer have to have it? Otherwise it may get the driver's error. */
static bool
must_open(const struct block *block)
{
	static const char zeros[8];

	return is_understood ||
	       memcmp(block->handle.reserved + sizeof(block->handle) - 8, zeros, 8) == 0;
}

static void
expect_bytes(const struct block *block, const char *when)
{
	const size_t n_wrong = import_count_wrong(block->imported, block->n_bytes, block->value);

	EXPECT(n_wrong == 0, "%s: %zd words of a block of %zu bytes are wrong", when,
	       (ssize_t)n_wrong, block->n_bytes);
}

/* Open, once more if it is open. False: the importer got an error. */
static bool
open_block(struct block *block, const char *when)
{
	const struct import_reply reply = import_open(&block->handle, 2);

	if (reply.status != CUDA_SUCCESS) {
		EXPECT(!must_open(block), "%s: a block of %zu bytes did not open: %d", when,
		       block->n_bytes, reply.status);
		EXPECT(reply.addr == import_untouched, "%s: a failed open gave an address", when);
		return false;
	}
	EXPECT(!block->imported || reply.addr == block->imported,
	       "%s: a second open gave another address", when);
	block->imported = reply.addr;
	expect_bytes(block, when);
	return true;
}

static void
close_block(struct block *block, const char *when)
{
	const CUresult r = import_close(block->imported);

	EXPECT(r == CUDA_SUCCESS, "%s: close gave %d", when, r);
}

static void
expect_closed(struct block *block, const char *when)
{
	EXPECT(import_close(block->imported) == CUDA_ERROR_INVALID_VALUE,
	       "%s: a block that is not open was closed", when);
	EXPECT(import_range(block->imported).status == CUDA_ERROR_NOT_FOUND,
	       "%s: the address of a closed block is known", when);
	block->imported = 0;
}

static void
expect_range(const struct block *block, const char *when)
{
	const struct import_reply seen = import_range(block->imported + block->n_bytes / 2);

	if (!is_understood)
		return; /* it may be told the segment's size */
	EXPECT(seen.status == CUDA_SUCCESS && seen.addr == block->imported &&
		       seen.n_bytes == block->n_bytes,
	       "%s: the range of an imported block is %zu bytes from %lld, not %zu", when,
	       seen.n_bytes, (long long)(seen.addr - block->imported), block->n_bytes);
	EXPECT(seen.start == block->imported && seen.range_bytes == block->n_bytes,
	       "%s: the attributes of an imported block tell another range", when);
}

static void
one_at_a_time(void)
{
	size_t n_refused = 0;

	for (size_t i = 0; i < N_BLOCKS; i++) {
		struct block *block = &blocks[i];

		if (!open_block(block, "one at a time")) {
			n_refused++;
			continue;
		}
		expect_range(block, "one at a time");
		open_block(block, "a second time");
		EXPECT(import_close(block->imported + 4) == CUDA_ERROR_INVALID_VALUE,
		       "an interior pointer was closed");
		close_block(block, "the second time");
		expect_bytes(block, "after one of two closes");
		close_block(block, "the first time");
		expect_closed(block, "after both closes");
		if (open_block(block, "opened again"))
			close_block(block, "opened again");
		expect_closed(block, "closed again");
	}
	EXPECT(is_understood || !is_pooled || n_refused > 0,
	       "an importer without the shim opened every block");
}

static void
all_at_once(void)
{
	unsigned long long ids[N_BLOCKS];

	for (size_t i = 0; i < N_BLOCKS; i++)
		open_block(&blocks[i], "all at once");
	for (size_t i = 0; i < N_BLOCKS && is_understood; i++) {
		expect_range(&blocks[i], "all at once");
		ids[i] = import_range(blocks[i].imported).id;
		for (size_t j = 0; j < i; j++)
			EXPECT(ids[i] != ids[j], "two imported blocks have one id");
	}
	for (size_t i = 0; i < N_BLOCKS; i++) {
		if (!blocks[i].imported)
			continue;
		close_block(&blocks[i], "one of all");
		if (is_understood)
			expect_closed(&blocks[i], "one of all");
		blocks[i].imported = 0;
		for (size_t j = i + 1; j < N_BLOCKS; j++)
			if (blocks[j].imported)
				expect_bytes(&blocks[j], "after others were closed");
	}
}

/* The first version of the function too, and the mix of both. */
static void
both_versions(void)
{
	struct import_reply first = import_open(&blocks[0].handle, 1);

	if (first.status != CUDA_SUCCESS) {
		EXPECT(!must_open(&blocks[0]), "the first version gave %d", first.status);
		return;
	}
	blocks[0].imported = first.addr;
	open_block(&blocks[0], "the second version after the first");
	close_block(&blocks[0], "both versions");
	close_block(&blocks[0], "both versions");
	expect_closed(&blocks[0], "both versions");
}

/* An interior pointer names its block, as natively. */
static void
by_an_interior_pointer(void)
{
	struct block copy = blocks[2];

	MUST(cuIpcGetMemHandle(&copy.handle, copy.addr + 1024));
	EXPECT(memcmp(&copy.handle, &blocks[2].handle, sizeof(copy.handle)) == 0,
	       "an interior pointer has a handle of its own");
	EXPECT(cuIpcGetMemHandle(&copy.handle, copy.addr + copy.n_bytes) != CUDA_SUCCESS ||
		       memcmp(&copy.handle, &blocks[2].handle, sizeof(copy.handle)) != 0,
	       "the address behind a block names it");
}

static void
in_the_same_process(void)
{
	CUdeviceptr addr = import_untouched;

	for (size_t i = 0; i < N_BLOCKS; i++)
		EXPECT(cuIpcOpenMemHandle_v2(&addr, blocks[i].handle,
					     CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) ==
				       CUDA_ERROR_INVALID_CONTEXT &&
			       addr == import_untouched,
		       "the exporter opened its own block of %zu bytes", blocks[i].n_bytes);
}

/* The importer still reads a block that was freed, whatever its owner allocates meanwhile. Natively
 * the driver may carve the next small allocation from the same place at once. */
static void
freed_by_the_exporter(void)
{
	enum { N_NEW = 2500 }; /* more than a segment holds */
	static struct block fresh[N_NEW];
	struct block *block = &blocks[1];

	if (!open_block(block, "before its free"))
		return;
	MUST(cuMemFree_v2(block->addr));
	for (size_t i = 0; i < N_NEW; i++) {
		make(&fresh[i], block->n_bytes);
		EXPECT(!is_pooled || fresh[i].addr != block->addr,
		       "a block that another process has open was handed out again");
		EXPECT(!is_pooled ||
			       memcmp(&fresh[i].handle, &block->handle, sizeof(block->handle)) != 0,
		       "two blocks have one handle");
	}
	if (is_pooled)
		expect_bytes(block, "after its free");
	close_block(block, "after its free");
	block->imported = 0;
	for (size_t i = 0; i < N_NEW; i++)
		MUST(cuMemFree_v2(fresh[i].addr));
	make(block, block->n_bytes);
	if (open_block(block, "a new one"))
		close_block(block, "a new one");
	block->imported = 0;
}

/* What was exported and freed does not pile up, by whatever free. */
static void
many_times(CUresult (*free_block)(CUdeviceptr))
{
	const size_t before_bytes = is_pooled ? api.total_bytes(0) : 0;
	CUdeviceptr survivors[2] = {0};
	struct block block;

	for (int i = 0; i < N_CYCLES; i++) {
		make(&block, 3000);
		MUST(free_block(block.addr));
		if (i % 1000 == 0) {
			if (survivors[0])
				MUST(cuMemFree_v2(survivors[0]));
			survivors[0] = survivors[1];
			MUST(cuMemAlloc_v2(&survivors[1], 600));
		}
	}
	MUST(cuMemFree_v2(survivors[0]));
	MUST(cuMemFree_v2(survivors[1]));
	if (is_pooled)
		EXPECT(api.total_bytes(0) <= before_bytes + ROOM_BYTES,
		       "%zu bytes more are held for importers", api.total_bytes(0) - before_bytes);
}

static CUresult
free_async(CUdeviceptr addr)
{
	return cuMemFreeAsync(addr, NULL);
}

/* Blocks of one segment, opened in the primary context and in a green one of the same device. */
static void
in_a_green_context(void)
{
	if (!open_block(&blocks[0], "in the primary context") ||
	    import_green(true) != CUDA_SUCCESS) {
		blocks[0].imported = 0;
		return;
	}
	if (import_open(&blocks[1].handle, 2).status == CUDA_ERROR_INVALID_HANDLE) {
		/* A driver to which it is a second context of the device. */
		MUST(import_green(false));
		close_block(&blocks[0], "in the primary context");
		blocks[0].imported = 0;
		return;
	}
	open_block(&blocks[1], "in a green context");
	close_block(&blocks[1], "in a green context");
	expect_bytes(&blocks[0], "in a green context");
	close_block(&blocks[1], "in a green context");
	expect_closed(&blocks[1], "in a green context");
	open_block(&blocks[1], "in a green context, before its end");
	MUST(import_green(false));
	expect_bytes(&blocks[1], "after the end of a green context");
	close_block(&blocks[1], "after the end of a green context");
	close_block(&blocks[0], "in the primary context");
	expect_closed(&blocks[1], "after the end of a green context");
	expect_closed(&blocks[0], "in the primary context");
}

/* Many threads of the importer open and close blocks of one segment. */
static void
by_many_threads(void)
{
	enum { N_SMALL = 4, N_THREADS = 8 };
	struct import_reply reply = {0};

	for (size_t i = 0; i < N_THREADS; i++) {
		const struct block *block = &blocks[i % N_SMALL];

		reply = import_call(&(struct import_request){.op = IMPORT_STORM,
							     .handle = block->handle,
							     .n_bytes = block->n_bytes,
							     .value = block->value,
							     .n_threads = N_THREADS});
		EXPECT(reply.status == CUDA_SUCCESS, "threads that open and close: %d",
		       reply.status);
	}
	EXPECT(reply.n_bytes == 0, "threads read %zu wrong words", reply.n_bytes);
	for (size_t i = 0; i < N_SMALL; i++) {
		open_block(&blocks[i], "after the threads");
		close_block(&blocks[i], "after the threads");
		expect_closed(&blocks[i], "after the threads");
	}
}

/* A context that ends takes its imports along; the addresses are unknown then. */
static void
reset_of_the_importer(void)
{
	CUdeviceptr lost[N_BLOCKS];

	for (size_t i = 0; i < N_BLOCKS; i++) {
		open_block(&blocks[i], "before the reset");
		lost[i] = blocks[i].imported;
		blocks[i].imported = 0;
	}
	import_reset();
	for (size_t i = 0; i < N_BLOCKS; i++)
		if (lost[i])
			EXPECT(import_close(lost[i]) == CUDA_ERROR_INVALID_VALUE &&
				       import_range(lost[i]).status == CUDA_ERROR_NOT_FOUND,
			       "an import outlived its context");
	all_at_once();
}

/* Each driver call below an open and a close fails once: the program gets the error, and nothing
 * stays open or is lost. */
static void
failing_calls_of_the_importer(void)
{
	const char *const opening[] = {"cuIpcOpenMemHandle_v2", "cuMemGetAddressRange_v2",
				       "cuCtxGetCurrent"};
	struct block *block = &blocks[0];

	for (size_t i = 0; i < sizeof(opening) / sizeof(opening[0]); i++) {
		const struct import_reply reply = (import_fail(opening[i], CUDA_ERROR_UNKNOWN),
						   import_open(&block->handle, 2));

		EXPECT(reply.status == CUDA_ERROR_UNKNOWN || reply.status == CUDA_SUCCESS,
		       "%s failed, and an open gave %d", opening[i], reply.status);
		import_fail("", CUDA_SUCCESS); /* if nobody met it */
		block->imported = reply.addr;
		if (reply.status == CUDA_SUCCESS)
			close_block(block, opening[i]);
		block->imported = 0;
		open_block(block, opening[i]);
		import_fail("cuIpcCloseMemHandle", CUDA_ERROR_UNKNOWN);
		EXPECT(import_close(block->imported) == CUDA_ERROR_UNKNOWN,
		       "a failing close was hidden");
		expect_bytes(block, "after a close that failed");
		close_block(block, "after a close that failed");
		expect_closed(block, "after a close that failed");
		import_fail("", CUDA_SUCCESS);
	}
}

static void
failing_calls_of_the_exporter(void (*fail)(const char *, unsigned, int))
{
	const CUipcMemHandle before = blocks[3].handle;

	fail("cuIpcGetMemHandle", 1, CUDA_ERROR_UNKNOWN);
	EXPECT(cuIpcGetMemHandle(&blocks[3].handle, blocks[3].addr) == CUDA_ERROR_UNKNOWN,
	       "a failing export was hidden");
	EXPECT(memcmp(&before, &blocks[3].handle, sizeof(before)) == 0,
	       "a failing export left a handle");
}

static int
exporter_main(bool is_importer_plain)
{
	void (*fail)(const char *, unsigned, int);
	void *address = dlsym(RTLD_DEFAULT, "cusim_fail");
	const char *mode = getenv("POOLSHIM_MODE");

	memcpy(&fail, &address, sizeof(fail));
	is_pooled = poolshim_find(&api) && (!mode || strcmp(mode, "pool") == 0);
	is_understood = !is_pooled || !is_importer_plain;
	victim_start();
	for (size_t i = 0; i < N_BLOCKS; i++)
		make(&blocks[i], sizes[i]);
	one_at_a_time();
	all_at_once();
	both_versions();
	by_an_interior_pointer();
	in_the_same_process();
	freed_by_the_exporter();
	if (is_understood) {
		in_a_green_context();
		by_many_threads();
	}
	reset_of_the_importer();
	if (fail && is_understood) {
		failing_calls_of_the_importer();
		failing_calls_of_the_exporter(fail);
	}
	many_times(cuMemFree_v2);
	many_times(free_async);
	for (size_t i = 0; i < N_BLOCKS; i++)
		MUST(cuMemFree_v2(blocks[i].addr));
	if (is_pooled)
		poolshim_check_identity(&api, "at the end");
	return victim_end("victim_ipc");
}

int
main(int argc, char **argv)
{
	bool is_importer_plain, is_well;
	pid_t exporter, importer;
	int ends[2];

	if (argc == 4 && strcmp(argv[1], "importer") == 0)
		return importer_main(atoi(argv[2]));
	if (argc == 4 && strcmp(argv[1], "exporter") == 0) {
		import_socket = atoi(argv[2]);
		return exporter_main(strcmp(argv[3], "plain") == 0);
	}
	if (argc != 3 || socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0)
		return 2;
	/* In mode off the shim touches nothing. */
	is_importer_plain = strcmp(argv[2], "plain") == 0 || strcmp(argv[2], "off") == 0;
	importer = start(argv[0], "importer", argv[2], "", ends[1], ends[0]);
	exporter = start(argv[0], "exporter", argv[1], is_importer_plain ? "plain" : "knowing",
			 ends[0], ends[1]);
	close(ends[0]);
	close(ends[1]);
	is_well = ended_well(exporter);
	return ended_well(importer) && is_well ? 0 : 1;
}
