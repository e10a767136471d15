/* SPDX-License-Identifier: MIT */
/*
 * Contexts and threads that come and go: made, pushed, popped and destroyed by different threads,
 * ended under the feet of threads that allocate; short-lived threads; a runtime that is loaded and
 * unloaded.
 *
 * Prints the statuses that do not depend on luck, to be compared between a native and a shimmed
 * run. Runs on the software device.
 */
#include <pthread.h>
#include <stdatomic.h>

#include "tests/preload/victim.h"

enum { N_THREADS = 4, N_SHORT = 200, N_ROUNDS = 12, N_LOADS = 6, N_BYTES = 3000000 };

static struct poolshim_api api;
static bool is_shimmed;
static CUdevice device;
static CUcontext primary;
static atomic_bool is_over;
static _Atomic(CUdeviceptr) handed_over;

static void
run_in_thread(void *(*body)(void *), void *arg)
{
	pthread_t thread;

	MUST(pthread_create(&thread, NULL, body, arg));
	MUST(pthread_join(thread, NULL));
}

static void
check_books(const char *when, size_t used_bytes)
{
	if (!is_shimmed)
		return;
	poolshim_check_identity(&api, when);
	EXPECT(api.used_bytes(0) == used_bytes, "%s: used %zu, not %zu", when, api.used_bytes(0),
	       used_bytes);
}

/* A context on its way through threads. */
struct guest {
	CUcontext handle;
	CUdeviceptr block;
};

static void *
create(void *arg)
{
	struct guest *guest = arg;
	CUcontext popped;

	MUST(cuCtxCreate_v2(&guest->handle, 0, device));
	MUST(cuMemAlloc_v2(&guest->block, N_BYTES));
	MUST(cuCtxPopCurrent_v2(&popped)); /* floats, as long as nobody pushes it */
	EXPECT(popped == guest->handle, "another context was popped");
	printf("created, popped: cuMemFree = %d\n", cuMemFree_v2(0));
	return NULL;
}

static void *
push_and_use(void *arg)
{
	struct guest *guest = arg;
	CUcontext popped;
	CUdeviceptr block;

	MUST(cuCtxPushCurrent_v2(guest->handle));
	MUST(cuMemsetD8_v2(guest->block, 0x61, N_BYTES));
	for (int i = 0; i < 10; i++) {
		MUST(cuMemAlloc_v2(&block, 1000));
		MUST(cuMemFree_v2(block));
	}
	MUST(cuCtxPopCurrent_v2(&popped));
	return NULL;
}

static void *
destroy(void *arg)
{
	struct guest *guest = arg;

	printf("destroy by another thread = %d\n", cuCtxDestroy_v2(guest->handle));
	return NULL;
}

static void
tell_destroyed(const struct guest *guest, const char *who)
{
	CUcontext current = primary;
	CUdeviceptr block = 0;
	size_t free_bytes, total_bytes;
	void *pinned;

	printf("%s: cuCtxGetCurrent = %d\n", who, cuCtxGetCurrent(&current));
	printf("%s: current is %s\n", who, current ? "there" : "NULL");
	printf("%s: cuMemAlloc = %d\n", who, cuMemAlloc_v2(&block, 1000));
	printf("%s: cuMemHostAlloc = %d\n", who, cuMemHostAlloc(&pinned, 1000, 0));
	printf("%s: cuMemFree = %d\n", who, cuMemFree_v2(guest->block));
	printf("%s: cuMemGetInfo = %d\n", who, cuMemGetInfo_v2(&free_bytes, &total_bytes));
	printf("%s: cuCtxSynchronize = %d\n", who, cuCtxSynchronize());
}

static void
destroyed_elsewhere(void)
{
	struct guest guest;
	CUcontext popped;

	run_in_thread(create, &guest);
	run_in_thread(push_and_use, &guest);
	MUST(cuCtxPushCurrent_v2(guest.handle));
	run_in_thread(destroy, &guest);
	tell_destroyed(&guest, "destroyed by another thread");
	printf("pop = %d\n", cuCtxPopCurrent_v2(&popped));
	MUST(cuCtxSetCurrent(primary));
	printf("in the primary context: cuMemFree = %d\n", cuMemFree_v2(guest.block));
	check_books("after a context that went through threads", 0);
}

static void *
live_shortly(void *arg)
{
	CUdeviceptr block, other;

	(void)arg;
	MUST(cuCtxSetCurrent(primary));
	for (int i = 0; i < 3; i++) {
		MUST(cuMemAlloc_v2(&block, 700u << i));
		MUST(cuMemsetD8_v2(block, 0x55, 700u << i));
		other = atomic_exchange(&handed_over, block); /* another thread's, often gone */
		if (other)
			MUST(cuMemFree_v2(other));
	}
	return NULL;
}

/* Eight at a time, ending while others work: nothing of a thread is lost with it. */
static void
short_lives(void)
{
	pthread_t threads[8];

	for (int i = 0; i < N_SHORT / 8; i++) {
		for (int j = 0; j < 8; j++)
			MUST(pthread_create(&threads[j], NULL, live_shortly, NULL));
		for (int j = 0; j < 8; j++)
			MUST(pthread_join(threads[j], NULL));
	}
	MUST(cuMemFree_v2(atomic_exchange(&handed_over, 0)));
	check_books("after short-lived threads", 0);
	if (!is_shimmed)
		return;
	MUST(cuCtxSynchronize());
	api.free_all_blocks(0);
	EXPECT(api.total_bytes(0) == 0, "%zu bytes went with threads", api.total_bytes(0));
}

static bool
is_end_of_context(CUresult r)
{
	return r == CUDA_ERROR_CONTEXT_IS_DESTROYED || r == CUDA_ERROR_INVALID_CONTEXT ||
	       r == CUDA_ERROR_INVALID_VALUE || r == CUDA_ERROR_DEINITIALIZED;
}

/* Allocates in a context that may end at any moment. */
static void *
allocate_until_over(void *arg)
{
	const CUcontext *context = arg;
	CUdeviceptr blocks[4] = {0};
	CUresult r = CUDA_SUCCESS;

	if (context && cuCtxSetCurrent(*context) != CUDA_SUCCESS)
		return NULL;
	for (unsigned i = 0; !atomic_load(&is_over) && r == CUDA_SUCCESS; i++) {
		CUdeviceptr *block = &blocks[i % 4];

		if (*block)
			r = cuMemFree_v2(*block);
		*block = 0;
		if (r == CUDA_SUCCESS)
			r = cuMemAlloc_v2(block, 600u << i % 12);
	}
	EXPECT(r == CUDA_SUCCESS || is_end_of_context(r), "an end of the context gave error %d", r);
	return NULL;
}

static void
end_under_threads(CUcontext context, CUresult (*end)(CUcontext))
{
	pthread_t threads[N_THREADS];
	CUdeviceptr block;

	atomic_store(&is_over, false);
	for (int i = 0; i < N_THREADS; i++)
		MUST(pthread_create(&threads[i], NULL, allocate_until_over, &context));
	for (int i = 0; i < 200; i++) { /* so that they have begun */
		MUST(cuMemAlloc_v2(&block, 5000));
		MUST(cuMemFree_v2(block));
	}
	MUST(end(context));
	atomic_store(&is_over, true);
	for (int i = 0; i < N_THREADS; i++)
		MUST(pthread_join(threads[i], NULL));
}

static CUresult
reset_primary(CUcontext context)
{
	(void)context;
	return cuDevicePrimaryCtxReset_v2(device);
}

static void
ends_under_threads(void)
{
	CUcontext own;

	for (int i = 0; i < N_ROUNDS; i++) {
		MUST(cuCtxCreate_v2(&own, 0, device));
		end_under_threads(own, cuCtxDestroy_v2);
		MUST(cuCtxSetCurrent(primary));
		check_books("after a destroy under threads", 0);

		end_under_threads(primary, reset_primary);
		check_books("after a reset under threads", 0);
		primary = victim_start();
		short_lives();
	}
}

/* A program that loads a runtime, uses it and closes it: what the shim keeps of it stays good. */
static void
load_and_unload(void)
{
	typedef int malloc_fn(void **ptr, size_t n_bytes);
	typedef int free_fn(void *ptr);

	for (int i = 0; i < N_LOADS; i++) {
		void *runtime = dlopen("libcudart.so.13", RTLD_NOW | RTLD_LOCAL);
		void *driver = dlopen("libcuda.so.1", RTLD_NOW);
		malloc_fn *allocate = runtime ? (malloc_fn *)dlsym(runtime, "cudaMalloc") : NULL;
		free_fn *release = runtime ? (free_fn *)dlsym(runtime, "cudaFree") : NULL;
		void *block = NULL;

		EXPECT(allocate && release && driver, "no runtime to load: %s", dlerror());
		if (!allocate || !release)
			return;
		MUST(allocate(&block, 5000));
		MUST(release(block));
		MUST(dlclose(runtime));
		MUST(dlclose(driver));
	}
	check_books("after runtimes that were closed", 0);
}

int
main(void)
{
	primary = victim_start();
	MUST(cuDeviceGet(&device, 0));
	is_shimmed = poolshim_find(&api);
	destroyed_elsewhere();
	short_lives();
	load_and_unload();
	ends_under_threads();
	load_and_unload();
	return victim_end("victim_life");
}
