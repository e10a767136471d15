/* SPDX-License-Identifier: MIT */
/*
 * A program under a profiler (tools/tool_profiler.c): the tool hears of each call that the driver
 * sees and of no other, and what it does inside them disturbs nothing.
 */
#include <pthread.h>
#include <stdatomic.h>

#include "tests/preload/victim.h"
#include "tests/sim/sim.h"

enum { N_THREADS = 3, N_ROUNDS = 300, N_HELD = 8 };

static atomic_uint *tool_n_allocs, *tool_n_frees, *tool_n_own, *tool_n_early, *tool_n_wrong;

static void *
find(const char *name)
{
	void *tool = dlopen(getenv("CUDA_INJECTION64_PATH"), RTLD_NOW | RTLD_NOLOAD);
	void *found = tool ? dlsym(tool, name) : NULL;

	MUST(!found);
	return found;
}

static void *
work(void *arg)
{
	CUdeviceptr held[N_HELD] = {0};
	unsigned seed = (unsigned)(uintptr_t)arg;
	CUcontext context;

	MUST(cuDevicePrimaryCtxRetain(&context, 0));
	MUST(cuCtxSetCurrent(context));
	for (int i = 0; i < N_ROUNDS; i++) {
		CUdeviceptr *slot = &held[rand_r(&seed) % N_HELD];

		if (*slot)
			MUST(cuMemFree_v2(*slot));
		MUST(cuMemAlloc_v2(slot, 1 + rand_r(&seed) % (4 << 20)));
	}
	for (int i = 0; i < N_HELD; i++)
		if (held[i])
			MUST(cuMemFree_v2(held[i]));
	return NULL;
}

int
main(void)
{
	pthread_t threads[N_THREADS];
	struct poolshim_api api;
	bool is_shimmed = poolshim_find(&api);

	victim_start();
	tool_n_allocs = find("tool_n_allocs");
	tool_n_frees = find("tool_n_frees");
	tool_n_own = find("tool_n_own");
	tool_n_early = find("tool_n_early");
	tool_n_wrong = find("tool_n_wrong");
	EXPECT(*tool_n_early == 1, "the tool was started %u times", *tool_n_early);
	for (uintptr_t i = 0; i < N_THREADS; i++)
		MUST(pthread_create(&threads[i], NULL, work, (void *)(i + 1)));
	for (int i = 0; i < N_THREADS; i++)
		MUST(pthread_join(threads[i], NULL));
	MUST(cuCtxSynchronize());
	cusim_subscribe(NULL, NULL);
	EXPECT(*tool_n_wrong == 0, "%u calls of the tool's failed", *tool_n_wrong);
	EXPECT(*tool_n_allocs > 0 && *tool_n_frees + is_shimmed > 0, "the tool heard of nothing");
	if (getenv("TOOL_IS_QUIET"))
		EXPECT(*tool_n_allocs == cusim_call_count("cuMemAlloc_v2") &&
			       *tool_n_frees == cusim_call_count("cuMemFree_v2"),
		       "the tool heard of %u requests and %u frees, the driver of %d and %d",
		       *tool_n_allocs, *tool_n_frees, (int)cusim_call_count("cuMemAlloc_v2"),
		       (int)cusim_call_count("cuMemFree_v2"));
	else
		EXPECT(*tool_n_own > 0, "the tool made no request of its own");
	EXPECT(!is_shimmed || *tool_n_allocs < N_THREADS * N_ROUNDS, "the pool is not at work");
	EXPECT(cusim_violations() == 0, "memory was touched that was not allocated");
	if (is_shimmed) {
		EXPECT(api.used_bytes(0) == 0, "%zu bytes stay in use", api.used_bytes(0));
		poolshim_check_identity(&api, "at the end");
	}
	return victim_end("victim_profiled");
}
