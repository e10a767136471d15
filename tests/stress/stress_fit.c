/* SPDX-License-Identifier: MIT */
/*
 * Threads that always fit the limit together must never be refused, whatever idle memory of the
 * wrong sizes is on its way back to the device meanwhile. Two heaps share the limit.
 *
 * STRESS_SECONDS: default 2.
 */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "policy/exhaust.h"
#include "tools/replay/fake_backend.h"

#define MIB ((size_t)1 << 20)

enum {
	N_THREADS = 4,
	N_HEAPS = 2,
	LIVE_MIB = 16, /* of each thread at most, in whole segments */
};

static struct fake_backend fakes[N_HEAPS];
static struct pool pool;
static struct stats stats;
static struct heap *heaps[N_HEAPS];
static struct account account;
static _Atomic bool is_over;
static _Atomic unsigned n_refused, n_served;

static void
trim_others(void *arg, struct heap *except, size_t want_bytes, uint64_t bound_ns)
{
	(void)arg;
	for (size_t i = 0; i < N_HEAPS; i++) {
		if (heaps[i] == except)
			continue;
		heap_await_transit(heaps[i]);
		exhaust_make_room(heaps[i], &account, want_bytes, bound_ns);
	}
}

static bool
is_never_tight(void *arg, size_t grow_bytes)
{
	(void)arg;
	(void)grow_bytes;
	return false;
}

static void *
work(void *arg)
{
	static const struct exhaust_peers peers = {.trim = trim_others, .is_tight = is_never_tight};
	const size_t id = (size_t)arg;
	unsigned random = (unsigned)id + 1;

	while (!atomic_load(&is_over)) {
		const size_t n_mib = 2 + 2 * (size_t)(rand_r(&random) / 7 % (LIVE_MIB / 2));
		uint64_t addr;
		int r = exhaust_alloc(heaps[id % N_HEAPS], &account, &peers, n_mib * MIB, 0, &addr);

		if (r != EXHAUST_OK) {
			atomic_fetch_add(&n_refused, 1);
			continue;
		}
		atomic_fetch_add(&n_served, 1);
		if (heap_give(&pool, addr, HEAP_DEVICE, false, false) != HEAP_OK)
			abort();
	}
	return NULL;
}

/* Gives the processor away in the middle of a driver call. */
static int (*fake_unmap)(struct backend *backend, uint64_t addr, size_t size_bytes);

static int
slow_unmap(struct backend *backend, uint64_t addr, size_t size_bytes)
{
	sched_yield();
	return fake_unmap(backend, addr, size_bytes);
}

int
main(void)
{
	const char *seconds = getenv("STRESS_SECONDS");
	struct timespec run = {.tv_sec = seconds ? atoi(seconds) : 2};
	struct backend_ops ops[N_HEAPS];
	pthread_t threads[N_THREADS];

	pool_init(&pool);
	account_init(&account, N_THREADS * LIVE_MIB * MIB);
	for (size_t i = 0; i < N_HEAPS; i++) {
		struct heap_config config = {
			.backend = &fakes[i].backend, .stats = &stats, .kind = HEAP_DEVICE};

		fake_backend_init(&fakes[i], UINT64_MAX);
		fake_backend_set_next_addr(&fakes[i], UINT64_C(0x100000000000) * (i + 1));
		fake_backend_set_completes_at_once(&fakes[i], true);
		ops[i] = *fakes[i].backend.ops;
		fake_unmap = ops[i].unmap;
		ops[i].unmap = slow_unmap;
		fakes[i].backend.ops = &ops[i];
		heaps[i] = heap_new(&pool, &config);
	}
	for (size_t i = 0; i < N_THREADS; i++)
		pthread_create(&threads[i], NULL, work, (void *)i);
	nanosleep(&run, NULL);
	atomic_store(&is_over, true);
	for (size_t i = 0; i < N_THREADS; i++)
		pthread_join(threads[i], NULL);
	for (size_t i = 0; i < N_HEAPS; i++)
		heap_free(heaps[i]);
	printf("stress_fit: %u requests served, %u refused\n", n_served, n_refused);
	return n_refused != 0;
}
