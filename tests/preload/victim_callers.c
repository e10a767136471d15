/* SPDX-License-Identifier: MIT */
/*
 * Who asked for the memory: victim_callers FOLDER DIRECT SHARED STATIC EAGER, where DIRECT uses the
 * driver, SHARED the shared runtime, STATIC a runtime of its own, and EAGER allocates while it is
 * loaded. The libraries are loaded by
 * copies of theirs, so that each test has objects that nobody saw before.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>

#include "tests/preload/callers/caller_dump.h"
#include "tests/preload/callers/caller_load.h"

static const char *paths[4];

enum { N_BYTES = 3 << 20, ROUNDED = 4 << 20, N_COPIES = 70 };

static uint64_t
take(const struct plugin *plugin)
{
	uint64_t address = 0;

	MUST(plugin->alloc(&address, N_BYTES));
	return address;
}

static void
expect_has(const char *name, unsigned long long n_blocks, unsigned long long count,
	   const char *what)
{
	const struct caller_row row = caller_of(name, false);
	const unsigned long long one = api.used_bytes(0) % ROUNDED ? N_BYTES : ROUNDED;

	EXPECT(row.used_bytes == n_blocks * one && row.count == count,
	       "%s: %s has %llu bytes after %llu requests, not %llu after %llu", what, name,
	       row.used_bytes, row.count, n_blocks * one, count);
	callers_add_up(what);
}

static void
each_route_has_its_object(void)
{
	static const char *const names[] = {"direct.so", "shared.so", "static.so"};
	uint64_t blocks[3];

	for (int i = 0; i < 3; i++) {
		const struct plugin plugin = load(paths[i], names[i]);

		blocks[i] = take(&plugin);
		expect_has(names[i], 1, 1, "after a request");
		MUST(cuMemFree_v2(blocks[i]));
		expect_has(names[i], 0, 1, "freed by the program");
		blocks[i] = take(&plugin);
		expect_has(names[i], 1, 2, "taken again");
	}
	for (int i = 0; i < 3; i++)
		MUST(cuMemFree_v2(blocks[i]));
	expect_has("direct.so", 0, 2, "at the end");
	EXPECT(caller_of("libcudart.so.13", false).count == 0,
	       "a runtime stands for the library that called it");
}

static void
expect_outside(const char *name, bool is_host, unsigned long long bytes, unsigned long long count,
	       int kind)
{
	const struct caller_row row = caller_of(name, is_host);

	EXPECT(row.external_bytes == bytes && row.external_count == count,
	       "%s has %llu bytes outside the pool after %llu requests, not %llu after %llu: kind "
	       "%d",
	       name, row.external_bytes, row.external_count, bytes, count, kind);
	callers_add_up("outside the pool");
}

static void
end_outside(int kind, uint64_t piece)
{
	switch (kind) {
	case CALLER_ARRAY:
		MUST(cuArrayDestroy((CUarray)(uintptr_t)piece));
		break;
	case CALLER_REGISTERED:
		MUST(cuMemHostUnregister((void *)(uintptr_t)piece));
		break;
	case CALLER_PHYSICAL:
		MUST(cuMemRelease(piece));
		break;
	default:
		MUST(cuMemFree_v2(piece));
	}
}

/* Each kind is the object's from its beginning to its end, whoever ends it. */
static void
memory_outside_the_pool(const char *from, const char *name, int n_kinds)
{
	const struct plugin plugin = load(from, name);
	int (*get)(enum caller_outside, uint64_t *, size_t) =
		(int (*)(enum caller_outside, uint64_t *, size_t))dlsym(plugin.handle,
									"plugin_alloc_outside");
	unsigned long long count[2] = {0, 0};

	for (int kind = 0; kind < n_kinds; kind++) {
		const bool is_host = kind == CALLER_REGISTERED;
		void *memory = aligned_alloc(4096, 4 << 20);
		uint64_t piece = (uintptr_t)memory;

		MUST(!memory || get((enum caller_outside)kind, &piece, 4 << 20));
		count[is_host]++;
		expect_outside(name, is_host, 4 << 20, count[is_host], kind);
		end_outside(kind, piece);
		expect_outside(name, is_host, 0, count[is_host], kind);
		free(memory);
	}
	EXPECT(caller_of(name, false).peak_external_bytes == 4 << 20, "the peak is not theirs");
}

static void
the_program_is_an_object_too(void)
{
	const unsigned long long before = caller_of("victim_callers", false).count;
	CUdeviceptr block;
	void *pinned, *second;

	MUST(cuMemAlloc_v2(&block, N_BYTES));
	MUST(cuMemHostAlloc(&pinned, 4096, 0));
	MUST(cuMemAllocHost_v2(&second, 4096));
	EXPECT(caller_of("victim_callers", false).count == before + 1, "the program did not count");
	EXPECT(caller_of("victim_callers", true).used_bytes == 8192 &&
		       caller_of("victim_callers", true).count == 2,
	       "the program's pinned memory did not count");
	callers_add_up("the program's own");
	MUST(cuMemFreeHost(second));
	MUST(cuMemFreeHost(pinned));
	MUST(cuMemFree_v2(block));
	EXPECT(caller_of("victim_callers", true).used_bytes == 0, "pinned bytes stay counted");
	EXPECT(caller_of("victim_callers", true).peak_bytes == 8192,
	       "the pinned peak is not theirs");
}

/* Load another copy where the first one was. */
static struct plugin
take_the_place(const struct plugin *gone, const char *name)
{
	struct plugin plugin = load_copy(name);

	EXPECT(plugin.base == gone->base, "%s lies elsewhere: this tests nothing", name);
	return plugin;
}

static void
an_object_in_the_place_of_another(void)
{
	uint64_t blocks[3];
	struct plugin plugin;

	make_copy(paths[0], "second.so");
	plugin = load(paths[0], "first.so");
	blocks[0] = take(&plugin);
	MUST(dlclose(plugin.handle));
	expect_has("first.so", 1, 1, "unloaded with a block");
	plugin = take_the_place(&plugin, "second.so");
	blocks[1] = take(&plugin);
	expect_has("second.so", 1, 1, "in the place of another");
	expect_has("first.so", 1, 1, "whose place was taken");
	MUST(dlclose(plugin.handle));
	plugin = take_the_place(&plugin, "first.so");
	blocks[2] = take(&plugin);
	expect_has("first.so", 2, 2, "loaded again");
	MUST(dlclose(plugin.handle));
	for (int i = 0; i < 3; i++)
		MUST(cuMemFree_v2(blocks[i]));
	expect_has("first.so", 0, 2, "freed after it went");
}

static struct plugin while_closing;
static uint64_t while_closing_block;

static void
load_while_closing(void)
{
	while_closing = take_the_place(&while_closing, "closing2.so");
	while_closing_block = take(&while_closing);
}

/* An unload is over before everybody knows. */
static void
an_object_that_comes_while_another_goes(void)
{
	void (**after_close)(void) = dlsym(RTLD_DEFAULT, "layer_after_close");
	int *n_closes = dlsym(RTLD_DEFAULT, "layer_n_closes");
	uint64_t block;

	EXPECT(after_close && n_closes, "the layer behind the shim is not there");
	if (!after_close || !n_closes)
		return;
	EXPECT(*n_closes > 0, "the shim's dlclose passes by the interposer behind it");
	make_copy(paths[0], "closing2.so");
	while_closing = load(paths[0], "closing1.so");
	block = take(&while_closing);
	*after_close = load_while_closing;
	MUST(dlclose(while_closing.handle));
	*after_close = NULL;
	expect_has("closing2.so", 1, 1, "asked while another was on its way out");
	expect_has("closing1.so", 1, 1, "on its way out");
	MUST(cuMemFree_v2(while_closing_block));
	while_closing_block = take(&while_closing);
	expect_has("closing2.so", 1, 2, "and again when it was gone");
	MUST(cuMemFree_v2(block));
	MUST(cuMemFree_v2(while_closing_block));
}

/* An unload that does not pass by the shim, as in a plug-in with RTLD_DEEPBIND. */
static void
an_unload_that_nobody_told_of(void)
{
	void *libc = dlopen("libc.so.6", RTLD_NOW | RTLD_NOLOAD);
	int (*close_unseen)(void *) = (int (*)(void *))dlsym(libc, "dlclose");
	uint64_t blocks[3];
	struct plugin plugin, other;

	make_copy(paths[0], "unseen2.so");
	plugin = load(paths[0], "unseen1.so");
	blocks[0] = take(&plugin);
	MUST(close_unseen(plugin.handle));
	plugin = take_the_place(&plugin, "unseen2.so");
	other = load(paths[0], "unseen3.so");
	blocks[1] = take(&other); /* an address that is not remembered */
	blocks[2] = take(&plugin);
	expect_has("unseen2.so", 1, 1, "after an unload that nobody told of");
	for (int i = 0; i < 3; i++)
		MUST(cuMemFree_v2(blocks[i]));
}

static uintptr_t probed;

static int
probe(uint64_t *ret_address, size_t n_bytes)
{
	(void)ret_address;
	(void)n_bytes;
	probed = (uintptr_t)__builtin_return_address(0);
	return 0;
}

#ifdef __x86_64__
/*
 * Code that a compiler could have made just now: call function(address, n_bytes), and return to
 * return_to from it.
 */
static call_fn *
write_code(uintptr_t return_to)
{
	static const unsigned char before[] = {
		0x48, 0x83, 0xec, 0x08, /* sub rsp, 8 */
		0x48, 0x89, 0xf8,       /* mov rax, rdi */
		0x48, 0x89, 0xf7,       /* mov rdi, rsi */
		0x48, 0x89, 0xd6,       /* mov rsi, rdx */
		0xff, 0xd0,             /* call rax */
	};
	static const unsigned char after[] = {0x48, 0x83, 0xc4, 0x08, 0xc3}; /* add rsp, 8; ret */
	const uintptr_t page = return_to & ~(uintptr_t)4095;
	void *code = mmap((void *)(page - 4096), 3 * 4096, PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);

	MUST(code == MAP_FAILED);
	memcpy((void *)(return_to - sizeof(before)), before, sizeof(before));
	memcpy((void *)return_to, after, sizeof(after));
	MUST(mprotect(code, 3 * 4096, PROT_READ | PROT_EXEC));
	return (call_fn *)(return_to - sizeof(before));
}

/* The same address is in no object at first, and in one later. */
static void
code_in_no_object(void)
{
	alloc_fn *const by_driver = (alloc_fn *)dlsym(RTLD_DEFAULT, "cuMemAlloc_v2");
	uint64_t blocks[3];
	struct plugin plugin = load(paths[0], "compiled.so");
	call_fn *code;

	MUST(!by_driver);
	MUST(plugin.call(probe, NULL, 0));
	MUST(dlclose(plugin.handle));
	code = write_code(probed);
	MUST(code(by_driver, &blocks[0], N_BYTES));
	MUST(code(by_driver, &blocks[1], N_BYTES));
	expect_has("[anonymous]", 2, 2, "code in no object");
	MUST(munmap((void *)((probed & ~(uintptr_t)4095) - 4096), 3 * 4096));
	plugin = take_the_place(&plugin, "compiled.so");
	MUST(plugin.call(by_driver, &blocks[2], N_BYTES));
	expect_has("compiled.so", 1, 1, "where code was in no object");
	expect_has("[anonymous]", 2, 2, "whose place an object took");
	for (int i = 0; i < 3; i++)
		MUST(cuMemFree_v2(blocks[i]));
}
#else
static void
code_in_no_object(void)
{
	(void)probe;
}
#endif

/* The context's end drops what it holds, whoever asked. */
static void
a_context_that_goes(void)
{
	const struct plugin plugin = load(paths[0], "context.so");
	CUcontext before, context;
	CUdevice device;

	MUST(cuCtxGetCurrent(&before));
	MUST(cuDeviceGet(&device, 0));
	MUST(cuCtxCreate_v2(&context, 0, device));
	take(&plugin);
	take(&plugin);
	expect_has("context.so", 2, 2, "in a context of its own");
	MUST(cuCtxDestroy_v2(context));
	MUST(cuCtxSetCurrent(before));
	expect_has("context.so", 0, 2, "when its context is gone");
}

struct worker {
	const struct plugin *plugins;
	unsigned n_plugins, seed;
};

static atomic_bool is_over;

static void *
work(void *arg)
{
	struct worker *worker = arg;
	uint64_t held[16] = {0};
	CUcontext context;
	CUdevice device;

	MUST(cuDeviceGet(&device, 0));
	MUST(cuDevicePrimaryCtxRetain(&context, device));
	MUST(cuCtxSetCurrent(context));
	for (int i = 0; i < 2000; i++) {
		uint64_t *slot = &held[rand_r(&worker->seed) % 16];

		if (*slot)
			MUST(cuMemFree_v2(*slot));
		*slot = 0;
		if (rand_r(&worker->seed) % 2)
			MUST(worker->plugins[rand_r(&worker->seed) % worker->n_plugins].alloc(
				slot, 512 + rand_r(&worker->seed) % 4096));
	}
	for (int i = 0; i < 16; i++)
		if (held[i])
			MUST(cuMemFree_v2(held[i]));
	return NULL;
}

static unsigned n_eager; /* of the thread below, until it has ended */

static void *
load_and_unload(void *arg)
{
	CUcontext context = arg;

	MUST(cuCtxSetCurrent(context));
	for (int i = 0; i < 75 || !is_over; i++) {
		struct plugin plugin = load_copy(i % 3 == 0   ? "eager.so"
						 : i % 3 == 1 ? "loop1.so"
							      : "loop2.so");

		n_eager += i % 3 == 0;
		MUST(cuMemFree_v2(take(&plugin)));
		MUST(dlclose(plugin.handle));
	}
	return NULL;
}

static void
threads(void)
{
	enum { N_THREADS = 4 };
	const struct plugin plugins[] = {load_copy("direct.so"), load_copy("shared.so")};
	struct worker workers[N_THREADS];
	pthread_t ids[N_THREADS], loader;
	unsigned long long sum;
	CUcontext context;

	make_copy(paths[0], "loop1.so");
	make_copy(paths[0], "loop2.so");
	make_copy(paths[3], "eager.so");
	MUST(cuCtxGetCurrent(&context));
	MUST(pthread_create(&loader, NULL, load_and_unload, context));
	for (unsigned i = 0; i < N_THREADS; i++) {
		workers[i] = (struct worker){plugins, 2, i + 1};
		MUST(pthread_create(&ids[i], NULL, work, &workers[i]));
	}
	for (unsigned i = 0; i < N_THREADS; i++)
		MUST(pthread_join(ids[i], NULL));
	is_over = true;
	MUST(pthread_join(loader, NULL));
	callers_add_up("after threads");
	sum = caller_of("direct.so", false).used_bytes + caller_of("shared.so", false).used_bytes;
	EXPECT(sum == 0, "threads: %llu bytes stay with objects that hold none", sum);
	EXPECT(caller_of("loop1.so", false).count >= 25 && caller_of("loop2.so", false).count >= 25,
	       "threads: libraries that came and went took each other's requests");
	EXPECT(caller_of("eager.so", false).count == 2 * n_eager,
	       "threads: a library that allocates when it is loaded, %u times, asked %llu times",
	       n_eager, caller_of("eager.so", false).count);
}

/* More objects than the table has places. Last: it stays full. */
static void
more_objects_than_places(void)
{
	uint64_t blocks[N_COPIES];
	struct caller_row other;

	for (int i = 0; i < N_COPIES; i++) {
		struct plugin plugin;
		char name[32];

		snprintf(name, sizeof(name), "many%d.so", i);
		plugin = load(paths[0], name);
		blocks[i] = take(&plugin);
	}
	callers_add_up("with more objects than places");
	other = caller_of("[other]", false);
	EXPECT(caller_of("many0.so", false).count == 1, "the first of many is not there");
	EXPECT(other.count >= 8 && other.count < N_COPIES, "%llu of %d objects are others",
	       other.count, N_COPIES);
	for (int i = 0; i < N_COPIES; i++)
		MUST(cuMemFree_v2(blocks[i]));
	EXPECT(caller_of("[other]", false).used_bytes == 0, "bytes stay with the others");
	callers_add_up("at the end of many");
}

int
main(int argc, char **argv)
{
	if (argc != 6)
		return 2;
	folder = argv[1];
	memcpy(paths, argv + 2, sizeof(paths));
	snprintf(dump_path, sizeof(dump_path), "%s/callers.json", folder);
	if (!poolshim_find(&api))
		return 2;
	victim_start();
	each_route_has_its_object();
	memory_outside_the_pool(paths[0], "outside_direct.so", CALLER_N_OUTSIDE);
	memory_outside_the_pool(paths[1], "outside_shared.so", CALLER_PHYSICAL);
	memory_outside_the_pool(paths[2], "outside_static.so", CALLER_PHYSICAL);
	the_program_is_an_object_too();
	an_object_in_the_place_of_another();
	an_object_that_comes_while_another_goes();
	an_unload_that_nobody_told_of();
	code_in_no_object();
	a_context_that_goes();
	threads();
	more_objects_than_places();
	return victim_end("victim_callers");
}
