/* SPDX-License-Identifier: MIT */
/*
 * Eight threads allocate, stamp, check and free at random, each in a stream of its own and in the
 * shared ones; a third of the blocks is freed by a thread that did not allocate it. Every byte must
 * be what its owner wrote.
 */
#include <pthread.h>
#include <stdatomic.h>

#include "tests/preload/victim_sim.h"

enum { N_THREADS = 8, N_STEPS = 1500, N_SLOTS = 12, N_SHARED = 16, BYTES_MAX = 96 * 1024 };

struct block {
	CUdeviceptr address;
	size_t n_bytes;
	unsigned char pattern;
};

struct worker {
	pthread_t thread;
	uint64_t random;
	unsigned char number;
	CUstream stream;
	unsigned char *seen; /* pinned */
	struct block blocks[N_SLOTS];
};

static CUcontext context;
static struct victim_kernels kernels;

/* Blocks on the way from one thread to another. */
static _Atomic(struct block *) shared[N_SHARED];

static void
check(struct worker *worker, const struct block *block)
{
	size_t n_wrong = 0;

	MUST(cuMemcpyDtoHAsync_v2(worker->seen, block->address, block->n_bytes, worker->stream));
	MUST(cuStreamSynchronize(worker->stream));
	for (size_t i = 0; i < block->n_bytes; i++)
		n_wrong += worker->seen[i] != block->pattern;
	EXPECT(n_wrong == 0, "%zu of %zu bytes of a block are not what its owner wrote", n_wrong,
	       block->n_bytes);
}

static void
make(struct worker *worker, struct block *block)
{
	block->n_bytes = 1 + victim_random(&worker->random) %
				     (victim_random(&worker->random) % 8 ? 4096 : BYTES_MAX);
	block->pattern =
		(unsigned char)(worker->number * 29 + victim_random(&worker->random) % 17 + 1);
	MUST(cuMemAlloc_v2(&block->address, block->n_bytes));
	victim_fill(&kernels, worker->stream, block->address, block->pattern, block->n_bytes);
}

/* Freed with its fill, and sometimes its check, still on the way. */
static void
drop(struct worker *worker, struct block *block)
{
	if (victim_random(&worker->random) % 2)
		check(worker, block);
	MUST(cuMemFree_v2(block->address));
	block->address = 0;
}

/* Give the block away, and end the one that lay there. */
static void
hand_over(struct worker *worker, struct block *block)
{
	struct block *moved = malloc(sizeof(*moved));

	if (!moved)
		exit(2);
	*moved = *block;
	block->address = 0;
	MUST(cuStreamSynchronize(worker->stream));
	moved = atomic_exchange(&shared[victim_random(&worker->random) % N_SHARED], moved);
	if (!moved)
		return;
	check(worker, moved);
	MUST(cuMemFree_v2(moved->address));
	free(moved);
}

static void *
run(void *arg)
{
	struct worker *worker = arg;

	MUST(cuCtxSetCurrent(context));
	MUST(cuMemHostAlloc((void **)&worker->seen, BYTES_MAX + 4096, 0));
	if (worker->number % 4)
		MUST(cuStreamCreate(&worker->stream,
				    worker->number % 2 ? CU_STREAM_NON_BLOCKING : 0));
	for (int i = 0; i < N_STEPS; i++) {
		struct block *block = &worker->blocks[victim_random(&worker->random) % N_SLOTS];

		if (!block->address)
			make(worker, block);
		else if (victim_random(&worker->random) % 3 == 0)
			hand_over(worker, block);
		else
			drop(worker, block);
	}
	for (int i = 0; i < N_SLOTS; i++) {
		if (worker->blocks[i].address)
			drop(worker, &worker->blocks[i]);
	}
	MUST(cuMemFreeHost(worker->seen));
	if (worker->stream)
		MUST(cuStreamDestroy_v2(worker->stream));
	return NULL;
}

int
main(void)
{
	static struct worker workers[N_THREADS];
	uint64_t random = victim_seed(1234567);
	struct poolshim_api api;

	context = victim_start();
	kernels = victim_kernels_load();
	for (int i = 0; i < N_THREADS; i++) {
		workers[i].number = (unsigned char)i;
		workers[i].random = victim_random(&random);
		pthread_create(&workers[i].thread, NULL, run, &workers[i]);
	}
	for (int i = 0; i < N_THREADS; i++)
		pthread_join(workers[i].thread, NULL);
	for (int i = 0; i < N_SHARED; i++) {
		if (shared[i])
			MUST(cuMemFree_v2(shared[i]->address));
		free(shared[i]);
	}
	MUST(cuCtxSynchronize());
	if (poolshim_find(&api)) {
		poolshim_check_identity(&api, "at the end");
		EXPECT(api.used_bytes(0) == 0, "used %zu after the last free", api.used_bytes(0));
		EXPECT(api.host_used_bytes() == 0, "pinned used %zu after the last free",
		       api.host_used_bytes());
		api.free_all_blocks(0);
		EXPECT(api.total_bytes(0) == 0, "%zu bytes were not given back",
		       api.total_bytes(0));
	}
	victim_check_device();
	return victim_end("victim_threads");
}
