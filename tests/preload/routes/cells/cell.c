/* SPDX-License-Identifier: MIT */
#include "tests/preload/routes/cells/cell.h"

#include <fcntl.h>
#include <unistd.h>

#include "tests/preload/victim.h"

enum {
	SMALL_BYTES = 1000, /* shares a segment with others in the pool */
	BLOCK_BYTES = 32 << 20,
	ROUND_BYTES = 2 << 20,
	MIB = 1 << 20,
	BYTE = 0x5a,
	OUT_OF_MEMORY = CUDA_ERROR_OUT_OF_MEMORY,
	NOT_SUPPORTED = CUDA_ERROR_NOT_SUPPORTED,
};

static const size_t large_bytes = (size_t)4 << 30;
static struct poolshim_api shim;
static bool has_shim;
static const char *run_tag = "";

void
cell_print(const char *kind, const char *format, ...)
{
	va_list args;

	printf("cell %s %s%s", kind, run_tag, run_tag[0] ? ": " : "");
	va_start(args, format);
	vprintf(format, args);
	va_end(args);
	putchar('\n');
}

/* Only under the shim is there anything to prove. */
static void
prove(const char *kind, bool is_seen, const char *what)
{
	if (has_shim)
		printf("proof %s %s %s\n", kind, is_seen ? "yes" : "no", what);
}

static void
prove_nothing(const char *kind, const char *why)
{
	if (has_shim)
		printf("proof %s none %s\n", kind, why);
}

/*
 * Bytes of the first device that the shim counts past the pool under this name, read from a dump;
 * 0 without the shim, and where it counts nothing.
 */
static size_t
counted(const char *name)
{
	char path[] = "/tmp/cells-XXXXXX.json", key[32], text[1 << 16] = "";
	const char *at = NULL;
	ssize_t n;
	int fd;

	if (!has_shim || (fd = mkstemps(path, 5)) < 0)
		return 0;
	close(fd);
	if (!shim.dump(path) && (fd = open(path, O_RDONLY)) >= 0) { /* it is another file now */
		n = read(fd, text, sizeof(text) - 1);
		text[n > 0 ? n : 0] = '\0';
		close(fd);
		at = strstr(text, "\"devices\"");
	}
	unlink(path);
	snprintf(key, sizeof(key), "\"%s\": ", name);
	if (at)
		at = strstr(at, "\"external\": {");
	if (at)
		at = strstr(at, key);
	return at ? strtoull(at + strlen(key), NULL, 10) : 0;
}

/* The count of memory past the pool went up by the memory's size at least, and down again. */
static void
prove_counted(const char *kind, size_t n_bytes, const size_t counts[3])
{
	prove(kind, counts[1] >= counts[0] + n_bytes && counts[2] == counts[0],
	      "it was counted, and its free too");
}

static size_t
device_used(void)
{
	return has_shim ? shim.used_bytes(0) : 0;
}

static size_t
device_held(void)
{
	return has_shim ? shim.total_bytes(0) : 0;
}

static size_t
host_used(void)
{
	return has_shim ? shim.host_used_bytes() : 0;
}

static void
print_content(const struct cell_ops *ops, const char *kind, void *ptr)
{
	unsigned char bytes[SMALL_BYTES] = {0};
	int filled = ops->fill(ptr, BYTE, sizeof(bytes));
	int copied = ops->read(bytes, ptr, sizeof(bytes));

	cell_print(kind, "fill %d, read %d, content %d", filled, copied,
		   bytes[0] == BYTE && bytes[SMALL_BYTES - 1] == BYTE);
}

static void
print_refusal(const struct cell_ops *ops)
{
	void *ptr = NULL;

	cell_print("device", "impossible alloc %d", ops->device_alloc(&ptr, (size_t)1 << 45));
	if (!ops->last_error)
		return;
	cell_print("device", "last error %d", ops->last_error());
	cell_print("device", "and then %d", ops->last_error());
}

static void
run_device(const struct cell_ops *ops)
{
	const size_t at_first = device_used();
	void *ptr = NULL;
	size_t meanwhile;

	cell_print("device", "alloc %d", ops->device_alloc(&ptr, SMALL_BYTES));
	cell_print("device", "aligned %d", ptr && (uintptr_t)ptr % 256 == 0);
	meanwhile = device_used();
	print_content(ops, "device", ptr);
	cell_print("device", "free %d", ops->device_free(ptr));
	cell_print("device", "free again %d", ops->device_free(ptr));
	cell_print("device", "free null %d", ops->device_free(NULL));
	print_refusal(ops);
	prove("device", meanwhile >= at_first + SMALL_BYTES && device_used() == at_first,
	      "the pool's counters moved");
}

static void
run_pinned(const struct cell_ops *ops)
{
	for (int i = 0; i < 2; i++) {
		const size_t at_first = host_used();
		unsigned char bytes[SMALL_BYTES] = {0};
		void *ptr = NULL;
		size_t meanwhile;

		cell_print("pinned", "alloc %d", ops->host_alloc[i](&ptr, SMALL_BYTES));
		meanwhile = host_used();
		if (ptr)
			memset(ptr, BYTE, SMALL_BYTES);
		cell_print("pinned", "read %d", ops->read(bytes, ptr, SMALL_BYTES));
		cell_print("pinned", "content %d",
			   bytes[0] == BYTE && bytes[SMALL_BYTES - 1] == BYTE);
		cell_print("pinned", "free %d", ops->host_free(ptr));
		cell_print("pinned", "free again %d", ops->host_free(ptr));
		prove("pinned", meanwhile >= at_first + SMALL_BYTES && host_used() == at_first,
		      "the pool's counters moved");
	}
}

static size_t
free_now(const struct cell_ops *ops)
{
	size_t free_bytes = 0, total_bytes = 0;

	ops->memory_info(&free_bytes, &total_bytes);
	return free_bytes;
}

typedef int big_fn(const struct cell_ops *ops, int form, size_t n_bytes);

/*
 * A large device takes a second to fill and has no array of half its size: it is filled only for
 * who asks, with CELL_FILL in the environment, and arrays are left out.
 */
static bool
is_to_be_filled(const struct cell_ops *ops, bool has_such_arrays)
{
	return free_now(ops) < large_bytes || (has_such_arrays && getenv("CELL_FILL"));
}

/*
 * A request that the device can serve only if the pool gives back what it holds idle: it does, if
 * and only if its hook sees the driver refuse this very call.
 */
static void
run_big(const struct cell_ops *ops, const char *kind, big_fn *ask, int form)
{
	const size_t free_bytes = free_now(ops);
	size_t held_bytes;
	void *filler = NULL;
	int filled, r;

	filled = ops->device_alloc(&filler, free_bytes / 16 * 15 / ROUND_BYTES * ROUND_BYTES);
	if (!filled)
		filled = ops->device_free(filler);
	held_bytes = device_held();
	r = ask(ops, form, free_bytes / 2 / ROUND_BYTES * ROUND_BYTES);
	cell_print(kind, "device filled and freed %d, half of it %d", filled, r);
	prove(kind, !r && device_held() + free_bytes / 2 < held_bytes + free_bytes / 8,
	      "the pool gave its idle memory back for it");
}

static int
async_once(const struct cell_ops *ops, int body, size_t n_bytes)
{
	void *ptr = NULL;
	int r = ops->async_alloc[body](&ptr, n_bytes);

	if (!r)
		r = ops->async_free[body](ptr);
	return r ? r : ops->synchronize();
}

static void
run_async(const struct cell_ops *ops, bool is_caught)
{
	for (int body = 0; body < 2; body++) {
		size_t counts[3] = {counted("async")};
		void *ptr = NULL;

		if (!ops->async_alloc[body])
			continue;
		cell_print("async", "body %d: alloc %d", body,
			   ops->async_alloc[body](&ptr, SMALL_BYTES));
		counts[1] = counted("async");
		cell_print("async", "synchronize %d", ops->synchronize());
		print_content(ops, "async", ptr);
		cell_print("async", "free %d", ops->async_free[body](ptr));
		counts[2] = counted("async");
		prove_counted("async", SMALL_BYTES, counts);
		cell_print("async", "synchronize %d", ops->synchronize());
		if (is_caught && is_to_be_filled(ops, true))
			run_big(ops, "async", async_once, body);
	}
}

static int
pitch_once(const struct cell_ops *ops, int form, size_t n_bytes)
{
	size_t pitch_bytes = 0;
	void *ptr = NULL;
	int r = ops->pitch_alloc[form](&ptr, &pitch_bytes, MIB, n_bytes / MIB);

	return r ? r : ops->device_free(ptr);
}

static void
run_pitch(const struct cell_ops *ops, bool is_caught)
{
	for (int form = 0; form < 2 && ops->pitch_alloc[form]; form++) {
		size_t pitch_bytes = 0, counts[3] = {counted("pitched")};
		void *ptr = NULL;

		cell_print("pitch", "form %d: alloc %d", form,
			   ops->pitch_alloc[form](&ptr, &pitch_bytes, 513, 10));
		counts[1] = counted("pitched");
		cell_print("pitch", "pitch %zu, aligned %d", pitch_bytes,
			   (uintptr_t)ptr % 256 == 0);
		print_content(ops, "pitch", ptr);
		cell_print("pitch", "free %d", ops->device_free(ptr));
		counts[2] = counted("pitched");
		prove_counted("pitch", 5130, counts);
		if (is_caught && is_to_be_filled(ops, true))
			run_big(ops, "pitch", pitch_once, form);
	}
}

typedef int fail_fn(const char *function, unsigned int nth, int code);

/* The software device's switch for failures; NULL on a real one. */
static fail_fn *
find_fail(void)
{
	void *libcuda = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
	fail_fn *fail = libcuda ? (fail_fn *)dlsym(libcuda, "cusim_fail") : NULL;

	if (libcuda)
		dlclose(libcuda);
	return fail;
}

/* Managed memory takes no memory of the device, so the driver is made to refuse once. */
static void
prove_managed(const struct cell_ops *ops)
{
	fail_fn *fail = find_fail();
	void *ptr = NULL;
	int r;

	if (!has_shim || !fail) /* a real driver refuses no managed memory */
		return;
	if (!ops->device_alloc(&ptr, BLOCK_BYTES))
		ops->device_free(ptr);
	fail("cuMemAllocManaged", 1, OUT_OF_MEMORY);
	r = ops->managed_alloc(&ptr, SMALL_BYTES);
	if (!r)
		ops->device_free(ptr);
	prove("managed", !r, "a refused request was made again");
}

static void
run_managed(const struct cell_ops *ops, bool is_caught)
{
	size_t counts[3] = {counted("managed")};
	void *ptr = NULL;
	int r = ops->managed_alloc(&ptr, SMALL_BYTES);

	cell_print("managed", "alloc %d", r);
	counts[1] = counted("managed");
	if (!r) {
		memset(ptr, BYTE, SMALL_BYTES);
		print_content(ops, "managed", ptr);
		cell_print("managed", "seen by the host %d", *(unsigned char *)ptr == BYTE);
		cell_print("managed", "free %d", ops->device_free(ptr));
	}
	counts[2] = counted("managed");
	prove_counted("managed", SMALL_BYTES, counts);
	if (is_caught)
		prove_managed(ops);
}

static const CUmemAllocationProp vmm_prop = {
	.type = CU_MEM_ALLOCATION_TYPE_PINNED,
	.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0},
};

static int
vmm_once(const struct cell_ops *ops, int form, size_t n_bytes)
{
	CUmemGenericAllocationHandle handle = 0;
	int r = (int)ops->driver->cuMemCreate(&handle, n_bytes, &vmm_prop, 0);

	(void)form;
	return r ? r : (int)ops->driver->cuMemRelease(handle);
}

static void
run_vmm(const struct cell_ops *ops, bool is_caught)
{
	const struct cell_driver *driver = ops->driver;
	const CUmemAccessDesc access = {
		.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0},
		.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
	};
	CUmemGenericAllocationHandle handle = 0;
	size_t n_bytes = 0, counts[3] = {counted("vmm")};
	CUdeviceptr addr = 0;

	cell_print("vmm", "granularity %d of %zu",
		   driver->cuMemGetAllocationGranularity(&n_bytes, &vmm_prop,
							 CU_MEM_ALLOC_GRANULARITY_MINIMUM),
		   n_bytes);
	cell_print("vmm", "create %d", driver->cuMemCreate(&handle, n_bytes, &vmm_prop, 0));
	counts[1] = counted("vmm");
	cell_print("vmm", "reserve %d", driver->cuMemAddressReserve(&addr, n_bytes, 0, 0, 0));
	cell_print("vmm", "map %d", driver->cuMemMap(addr, n_bytes, 0, handle, 0));
	cell_print("vmm", "access %d", driver->cuMemSetAccess(addr, n_bytes, &access, 1));
	print_content(ops, "vmm", (void *)(uintptr_t)addr);
	cell_print("vmm", "unmap %d", driver->cuMemUnmap(addr, n_bytes));
	cell_print("vmm", "release %d", driver->cuMemRelease(handle));
	counts[2] = counted("vmm");
	prove_counted("vmm", n_bytes, counts);
	cell_print("vmm", "address free %d", driver->cuMemAddressFree(addr, n_bytes));
	if (is_caught && is_to_be_filled(ops, true))
		run_big(ops, "vmm", vmm_once, 0);
}

static int
array_once(const struct cell_ops *ops, int form, size_t n_bytes)
{
	/* a row of 64 Ki elements is 1 MiB */
	const size_t n_rows = n_bytes / MIB;
	const struct cell_extent extents[CELL_N_ARRAYS] = {
		[CELL_ARRAY_PLAIN] = {65536, n_rows, 0},
		[CELL_ARRAY_3D] = {1024, 1024, n_rows / 16},
		[CELL_ARRAY_MIPMAPPED] = {32768, n_rows, 0}, /* the levels below are a third */
	};
	void *array = NULL;
	int r = ops->array_create((enum cell_array)form, extents[form], &array);

	return r ? r : ops->array_destroy((enum cell_array)form, array);
}

static void
run_array(const struct cell_ops *ops, bool is_caught)
{
	const struct cell_extent extents[CELL_N_ARRAYS] = {
		[CELL_ARRAY_PLAIN] = {64, 64, 0},
		[CELL_ARRAY_3D] = {16, 16, 16},
		[CELL_ARRAY_MIPMAPPED] = {64, 64, 0},
	};

	for (int form = 0; form < CELL_N_ARRAYS; form++) {
		size_t counts[3] = {counted("arrays")};
		void *array = NULL;
		int r = ops->array_create((enum cell_array)form, extents[form], &array);

		counts[1] = counted("arrays");
		cell_print("array", "form %d: create %d, is set %d", form, r, array != NULL);
		if (r == NOT_SUPPORTED) {
			prove_nothing("array", "the device has none");
			continue;
		}
		cell_print("array", "destroy %d", ops->array_destroy((enum cell_array)form, array));
		counts[2] = counted("arrays");
		prove_counted("array", (size_t)16 * 4096, counts); /* 4096 elements each */
		if (is_caught && is_to_be_filled(ops, false))
			run_big(ops, "array", array_once, form);
	}
}

static void
print_facts(const struct cell_ops *ops, const char *what, const void *ptr)
{
	struct cell_pointer_facts facts = {0};
	int r = ops->pointer_facts(ptr, &facts);

	cell_print("info", "%s: attributes %d, type %u, device %d, managed %d", what, r, facts.type,
		   facts.device, facts.is_managed);
}

static void
run_info(const struct cell_ops *ops)
{
	void *small = NULL, *block = NULL, *host = NULL;
	size_t at_first, meanwhile, n_bytes = 0;
	CUdeviceptr base = 0;
	bool is_range_right;
	int r;

	cell_print("info", "alloc %d", ops->device_alloc(&small, SMALL_BYTES));
	cell_print("info", "alloc %d", ops->host_alloc[0](&host, SMALL_BYTES));
	print_facts(ops, "device", small);
	print_facts(ops, "pinned", host);
	r = (int)ops->driver->cuMemGetAddressRange_v2(&base, &n_bytes,
						      (CUdeviceptr)(uintptr_t)small + 10);
	is_range_right = base == (CUdeviceptr)(uintptr_t)small && n_bytes == SMALL_BYTES;
	cell_print("info", "range %d of %zu, begins at it %d", r, n_bytes, is_range_right);
	prove("info", is_range_right && device_held() > n_bytes,
	      "the range is the block's, not the segment's");

	at_first = free_now(ops);
	cell_print("info", "alloc %d", ops->device_alloc(&block, BLOCK_BYTES));
	meanwhile = free_now(ops);
	cell_print("info", "taken %zu", at_first - meanwhile);
	cell_print("info", "free %d", ops->device_free(block));
	cell_print("info", "given back %zu", free_now(ops) - meanwhile);
	prove("info", free_now(ops) == at_first && device_held() >= BLOCK_BYTES,
	      "what the pool holds idle counts as free");
	cell_print("info", "free %d", ops->device_free(small));
	cell_print("info", "free %d", ops->host_free(host));
}

void
cell_run_all(const struct cell_ops *ops, const char *tag, bool is_caught)
{
	run_tag = tag;
	has_shim = poolshim_find(&shim);
	cell_print("device", "start %d", ops->start());
	run_device(ops);
	run_pinned(ops);
	run_async(ops, is_caught);
	run_pitch(ops, is_caught);
	run_managed(ops, is_caught);
	run_vmm(ops, is_caught);
	run_array(ops, is_caught);
	run_info(ops);
}
