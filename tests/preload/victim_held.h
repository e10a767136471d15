/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * Streams that are held by a kernel until the program lets them go, and what must not happen to the
 * memory behind it meanwhile.
 *
 * A native free waits for the kernel, so a program that also runs alone lets go before it frees:
 * victim_before_free().
 */
#include <pthread.h>
#include <time.h>

#include "tests/preload/victim_sim.h"

enum { VICTIM_HOLD_NS = 30000000 };

/* A kernel that spins until *flag (pinned, portable) is not 0. */
struct victim_hold {
	uint32_t *flag;
	pthread_t releaser;
};

static struct victim_hold *victim_holds[4];

/* A program that ends early must not wait for its own kernels. */
static inline void
victim_let_all_go(void)
{
	for (size_t i = 0; i < sizeof(victim_holds) / sizeof(victim_holds[0]); i++)
		if (victim_holds[i])
			__atomic_store_n(victim_holds[i]->flag, 1, __ATOMIC_SEQ_CST);
}

static inline void VICTIM_UNUSED
victim_hold_init(struct victim_hold *hold)
{
	size_t i = 0;

	MUST(cuMemHostAlloc((void **)&hold->flag, sizeof(*hold->flag), CU_MEMHOSTALLOC_PORTABLE));
	*hold->flag = 0;
	while (victim_holds[i])
		i++;
	if (i == 0)
		atexit(victim_let_all_go);
	victim_holds[i] = hold;
}

static inline void VICTIM_UNUSED
victim_hold_fini(struct victim_hold *hold)
{
	for (size_t i = 0; i < sizeof(victim_holds) / sizeof(victim_holds[0]); i++)
		if (victim_holds[i] == hold)
			victim_holds[i] = NULL;
	MUST(cuMemFreeHost(hold->flag));
}

static inline void VICTIM_UNUSED
victim_hold_stream(struct victim_hold *hold, const struct victim_kernels *kernels, CUstream stream)
{
	__atomic_store_n(hold->flag, 0, __ATOMIC_SEQ_CST);
	victim_spin(kernels, stream, (CUdeviceptr)(uintptr_t)hold->flag, 0);
}

static inline void VICTIM_UNUSED
victim_let_go(struct victim_hold *hold)
{
	__atomic_store_n(hold->flag, 1, __ATOMIC_SEQ_CST);
}

static inline void *
victim_release_later(void *arg)
{
	const struct timespec pause = {.tv_nsec = VICTIM_HOLD_NS};

	nanosleep(&pause, NULL);
	victim_let_go(arg);
	return NULL;
}

/* Let go in another thread after a while; victim_hold_join() follows. */
static inline void VICTIM_UNUSED
victim_let_go_later(struct victim_hold *hold)
{
	if (pthread_create(&hold->releaser, NULL, victim_release_later, hold) != 0)
		exit(2);
}

static inline void VICTIM_UNUSED
victim_hold_join(struct victim_hold *hold)
{
	pthread_join(hold->releaser, NULL);
}

static inline void VICTIM_UNUSED
victim_before_free(struct victim_hold *hold, bool is_shimmed)
{
	if (!is_shimmed)
		victim_let_go(hold);
}

static inline CUstream VICTIM_UNUSED
victim_stream(void)
{
	CUstream stream;

	MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	return stream;
}

/* Memory that is freed when nothing uses it any more is used again: the pool serves, and grows by
 * no more than two of so many. */
static inline void VICTIM_UNUSED
victim_expect_recycling(const struct poolshim_api *api, const char *when)
{
	enum { N_ROUNDS = 8, N_BYTES = 12 << 20 };
	const size_t total_before = api->total_bytes(0), used_before = api->used_bytes(0);

	for (int i = 0; i < N_ROUNDS; i++) {
		CUdeviceptr block = 0;

		EXPECT(cuMemAlloc_v2(&block, N_BYTES) == CUDA_SUCCESS, "%s: a request was refused",
		       when);
		EXPECT(api->used_bytes(0) == used_before + N_BYTES,
		       "%s: the pool does not serve any more", when);
		MUST(cuMemsetD8_v2(block, 0x31, N_BYTES));
		MUST(cuMemFree_v2(block));
		MUST(cuCtxSynchronize());
	}
	EXPECT(api->total_bytes(0) <= total_before + 2 * (size_t)N_BYTES,
	       "%s: freed memory is not used again", when);
}
