/* SPDX-License-Identifier: MIT */
/*
 * Threads on one heap, with frees that cross threads, failing and busy moments, and a device that
 * finishes its work late. A plain program, so that it runs under ThreadSanitizer.
 *
 * The proof is an owner table with one entry for each unit of the address space: whoever is handed
 * a block claims its units, so a block that is out twice is seen at once; and each unit remembers
 * the fence that must be complete before it may be handed out again.
 *
 * The table is relaxed on purpose: were it to order anything, it would hide a missing order in the
 * heap.
 *
 * STRESS_SEED, STRESS_SECONDS: default from the clock, and 2. The schedule itself is the machine's.
 */
#include <inttypes.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "policy/exhaust.h"
#include "tools/replay/fake_backend.h"

#define MIB ((size_t)1 << 20)
#define BASE UINT64_C(0x700000000000)
#define CHURN_BASE UINT64_C(0x600000000000)

enum {
	N_THREADS = 4,
	N_HELD_MAX = 64, /* blocks that a thread holds */
	N_SLOTS = 32,    /* blocks on their way to another thread */
	CAPACITY_MIB = 192,
	UNIT_BYTES = 512,
	N_UNITS = 16 << 20, /* 8 GiB of addresses: fresh ranges beyond it end the run early */
};

struct unit {
	_Atomic uint32_t owner; /* 0: nobody */
	_Atomic uint32_t fence; /* number that must be complete before the next owner */
};

struct held {
	uint64_t addr;
	size_t size_bytes;
};

struct worker {
	pthread_t thread;
	uint32_t id;
	uint64_t random;
	uint64_t n_ops;
	size_t n_held;
	struct held held[N_HELD_MAX];
};

static struct fake_backend fake, churn_fake;
static struct pool pool;
static struct stats stats, churn_stats;
static struct heap *heap;
static struct account account, churn_account;
static struct unit *units;
static _Atomic bool is_over;

static struct {
	pthread_mutex_t lock;
	struct held held[N_SLOTS];
} slots = {.lock = PTHREAD_MUTEX_INITIALIZER};

static uint64_t seed;

#define REQUIRE(condition, ...) \
	do { \
		if (!(condition)) \
			give_up(__LINE__, __VA_ARGS__); \
	} while (0)

static void __attribute__((noreturn, format(printf, 2, 3)))
give_up(int line, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	fprintf(stderr, "stress_heap: STRESS_SEED=%" PRIu64 ", line %d: ", seed, line);
	vfprintf(stderr, format, args);
	fputc('\n', stderr);
	va_end(args);
	_exit(1);
}

/* xorshift64* */
static uint64_t
below(uint64_t *random, uint64_t n)
{
	*random ^= *random >> 12;
	*random ^= *random << 25;
	*random ^= *random >> 27;
	return (*random * UINT64_C(2685821657736338717) >> 11) % n;
}

static struct unit *
units_of(struct held held)
{
	size_t first = (held.addr - BASE) / UNIT_BYTES;

	REQUIRE(held.addr >= BASE && first + held.size_bytes / UNIT_BYTES <= N_UNITS,
		"0x%" PRIx64 " is no address of the fake backend", held.addr);
	return &units[first];
}

static void
claim(struct worker *worker, struct held held)
{
	uint64_t n_complete = fake_backend_n_complete(&fake);
	struct unit *unit = units_of(held);
	uint32_t nobody, fence;
	size_t i;

	for (i = 0; i < held.size_bytes / UNIT_BYTES; i++) {
		nobody = 0;
		REQUIRE(atomic_compare_exchange_strong_explicit(&unit[i].owner, &nobody, worker->id,
								memory_order_relaxed,
								memory_order_relaxed),
			"0x%" PRIx64 " is handed to thread %u while thread %u has it", held.addr,
			worker->id, nobody);
		fence = atomic_load_explicit(&unit[i].fence, memory_order_relaxed);
		REQUIRE(fence <= n_complete,
			"0x%" PRIx64 " is handed out before fence %u is complete (%" PRIu64 " are)",
			held.addr, fence, n_complete);
	}
}

/* Before the free: from then on the units may be anybody's. */
static void
disclaim(struct held held, uint64_t fence)
{
	struct unit *unit = units_of(held);
	size_t i;

	for (i = 0; i < held.size_bytes / UNIT_BYTES; i++) {
		atomic_store_explicit(&unit[i].fence, (uint32_t)fence, memory_order_relaxed);
		REQUIRE(atomic_exchange_explicit(&unit[i].owner, 0, memory_order_relaxed) != 0,
			"a unit of 0x%" PRIx64 " has lost its owner", held.addr);
	}
}

static size_t
random_size(struct worker *worker)
{
	switch (below(&worker->random, 16)) {
	case 0:
		return MIB + 1 + below(&worker->random, 6 * MIB);
	case 1:
		return 1 + below(&worker->random, MIB);
	default:
		return 1 + below(&worker->random, (uint64_t)1 << (4 + below(&worker->random, 12)));
	}
}

static void
no_peers(void *arg, struct heap *except, size_t want_bytes, uint64_t bound_ns)
{
	(void)arg;
	(void)except;
	(void)want_bytes;
	(void)bound_ns;
}

static void
do_alloc(struct worker *worker)
{
	static const struct exhaust_peers peers = {.trim = no_peers};
	size_t requested_bytes = random_size(worker);
	struct held held = {.size_bytes = heap_round(heap, requested_bytes)};
	int r;

	if (worker->n_held == N_HELD_MAX)
		return;
	r = exhaust_alloc(heap, &account, &peers, requested_bytes, 0, &held.addr);
	REQUIRE(r == EXHAUST_OK || r == EXHAUST_E_NO_MEMORY || r == -700,
		"a request for %zu bytes is answered with %d", requested_bytes, r);
	if (r != EXHAUST_OK)
		return;
	claim(worker, held);
	worker->held[worker->n_held++] = held;
}

static void
do_free(struct worker *worker)
{
	/*
	 * Read first: the fence that covers this free is recorded after it, so it has a higher
	 * number.
	 */
	uint64_t fence = fake_backend_n_recorded(&fake) + 1;
	struct held held;
	size_t i;
	int r;

	if (worker->n_held == 0)
		return;
	i = below(&worker->random, worker->n_held);
	held = worker->held[i];
	worker->held[i] = worker->held[--worker->n_held];
	disclaim(held, fence);
	r = heap_give(&pool, held.addr, HEAP_DEVICE, below(&worker->random, 8) == 0, false);
	REQUIRE(r == HEAP_OK, "the free of a live block is answered with %d", r);
}

/* Swap a block with whoever comes by: it will be freed by another thread. */
static void
do_swap(struct worker *worker)
{
	size_t slot = below(&worker->random, N_SLOTS);
	struct held held = {0}, other;

	if (worker->n_held)
		held = worker->held[--worker->n_held];
	pthread_mutex_lock(&slots.lock);
	other = slots.held[slot];
	slots.held[slot] = held;
	pthread_mutex_unlock(&slots.lock);
	if (other.addr)
		worker->held[worker->n_held++] = other;
}

/* What a dump asks, and what an application may ask about any address at any time. */
static void
do_look(struct worker *worker)
{
	struct heap_snapshot snapshot;
	struct block_info info;
	struct held held;
	uint64_t addr;

	heap_snapshot(heap, &snapshot);
	REQUIRE(memcmp(&snapshot.frag, &snapshot.frag_recomputed, sizeof(snapshot.frag)) == 0,
		"the running entropy is not the recomputed one");
	if (worker->n_held) {
		held = worker->held[below(&worker->random, worker->n_held)];
		REQUIRE(pool_find(&pool, held.addr, &info) == HEAP_OK && info.is_live &&
				info.addr == held.addr && info.size_bytes >= held.size_bytes,
			"a live block is not found");
	}
	/* Segments of the other heap come and go: any answer is right, but it must be an answer. */
	addr = CHURN_BASE + below(&worker->random, 64 * MIB);
	if (pool_find(&pool, addr, &info) == HEAP_OK)
		REQUIRE(info.addr <= addr && addr < info.addr + info.size_bytes,
			"0x%" PRIx64 " is found in a block at 0x%" PRIx64, addr, info.addr);
}

static void *
work(void *arg)
{
	struct worker *worker = arg;
	uint64_t what;

	while (!atomic_load_explicit(&is_over, memory_order_relaxed)) {
		what = below(&worker->random, 1000);
		if (what < 450)
			do_alloc(worker);
		else if (what < 850)
			do_free(worker);
		else if (what < 950)
			do_swap(worker);
		else if (what < 970)
			heap_settle(heap);
		else if (what < 975)
			exhaust_trim(heap, &account, 8 * MIB, 1000);
		else if (what < 985)
			do_look(worker);
		else if (what < 986)
			fake_backend_fail(&fake, FAKE_OP_MAP, 1, 1, -700);
		worker->n_ops++;
	}
	return NULL;
}

/*
 * The device: fences complete late and in bursts, captures open and close, contexts nearly go away.
 */
static void *
run_device(void *arg)
{
	uint64_t *random = arg;
	bool is_busy = false;

	while (!atomic_load_explicit(&is_over, memory_order_relaxed)) {
		uint64_t n_complete = fake_backend_n_complete(&fake);
		uint64_t n_recorded = fake_backend_n_recorded(&fake);

		if (n_complete < n_recorded)
			fake_backend_complete_upto(
				&fake, n_complete + below(random, n_recorded - n_complete + 1));
		is_busy = !is_busy && below(random, 20) == 0;
		fake_backend_set_busy(&fake, is_busy);
		if (below(random, 50) == 0) {
			heap_close(heap);
			heap_reopen(heap);
		}
		usleep((useconds_t)below(random, 200));
	}
	fake_backend_set_busy(&fake, false);
	return NULL;
}

/*
 * Heaps of another context that comes and goes: their segments and structs are used again and
 * again.
 */
static void *
churn(void *arg)
{
	static const struct exhaust_peers peers = {.trim = no_peers};
	const struct heap_config config = {.backend = &churn_fake.backend, .stats = &churn_stats};
	uint64_t *random = arg;
	uint64_t addr;
	size_t i;

	while (!atomic_load_explicit(&is_over, memory_order_relaxed)) {
		struct heap *other = heap_new(&pool, &config);

		REQUIRE(other, "no memory for a heap");
		for (i = 0; i < 8; i++)
			exhaust_alloc(other, &churn_account, &peers, 1 + below(random, 4 * MIB), 0,
				      &addr);
		heap_close(other);
		limit_release(&churn_account, limit_held_bytes(&churn_account));
		heap_free(other);
	}
	return NULL;
}

static uint64_t
number_from(const char *name, uint64_t otherwise)
{
	const char *text = getenv(name);

	return text ? strtoull(text, NULL, 0) : otherwise;
}

static void
set_up(void)
{
	const struct heap_config config = {.backend = &fake.backend, .stats = &stats};

	fake_backend_init(&fake, CAPACITY_MIB * MIB);
	fake_backend_set_next_addr(&fake, BASE);
	fake_backend_init(&churn_fake, 64 * MIB);
	fake_backend_set_next_addr(&churn_fake, CHURN_BASE);
	pool_init(&pool);
	account_init(&account, CAPACITY_MIB * MIB);
	account_init(&churn_account, LIMIT_NONE);
	heap = heap_new(&pool, &config);
	units = calloc(N_UNITS, sizeof(*units));
	REQUIRE(heap && units, "no memory");
}

/*
 * All blocks freed and complete: the heap must be empty and the backend must have everything back.
 */
static void
wind_down(struct worker *workers)
{
	size_t i;

	for (i = 0; i < N_SLOTS; i++) {
		if (!slots.held[i].addr)
			continue;
		REQUIRE(heap_give(&pool, slots.held[i].addr, HEAP_DEVICE, false, false) == HEAP_OK,
			"a live block was lost");
	}
	for (i = 0; i < N_THREADS; i++)
		while (workers[i].n_held)
			do_free(&workers[i]);
	fake_backend_fail(&fake, FAKE_OP_MAP, 0, 0, BACKEND_OK);
	fake_backend_set_completes_at_once(&fake, true);
	heap_settle(heap);
	heap_settle(heap);
	REQUIRE(stats_read(&stats.used_bytes) == 0, "used bytes are left");
	REQUIRE(stats_read(&stats.pending_bytes) == 0, "pending bytes are left");
	REQUIRE(limit_held_bytes(&account) == stats_read(&stats.total_bytes),
		"the account holds another amount than the heap");
	exhaust_trim(heap, &account, SIZE_MAX, 0);
	REQUIRE(fake_backend_n_mappings(&fake) == 0, "a mapping leaked");
	REQUIRE(fake_backend_n_fences(&fake) == 0, "a fence leaked");
	REQUIRE(fake_backend_n_mappings(&churn_fake) == 0, "a mapping of the other heap leaked");
	REQUIRE(limit_held_bytes(&account) == 0, "reserved bytes are left");
	REQUIRE(stats_read(&stats.total_bytes) == 0, "total bytes are left");
}

int
main(void)
{
	static struct worker workers[N_THREADS];
	uint64_t device_random, churn_random, n_ops = 0;
	pthread_t device, churner;
	size_t i;

	seed = number_from("STRESS_SEED", (uint64_t)time(NULL));
	set_up();
	device_random = seed * 31 + 1;
	churn_random = seed * 37 + 1;
	for (i = 0; i < N_THREADS; i++) {
		workers[i].id = (uint32_t)i + 1;
		workers[i].random = seed * 41 + i + 1;
		REQUIRE(!pthread_create(&workers[i].thread, NULL, work, &workers[i]), "no thread");
	}
	REQUIRE(!pthread_create(&device, NULL, run_device, &device_random), "no thread");
	REQUIRE(!pthread_create(&churner, NULL, churn, &churn_random), "no thread");

	sleep((unsigned)number_from("STRESS_SECONDS", 2));
	atomic_store_explicit(&is_over, true, memory_order_relaxed);
	pthread_join(device, NULL);
	/* Whoever waits for a fence now must not wait for a device that has gone home. */
	fake_backend_set_completes_at_once(&fake, true);
	fake_backend_complete_all(&fake);
	for (i = 0; i < N_THREADS; i++) {
		pthread_join(workers[i].thread, NULL);
		n_ops += workers[i].n_ops;
	}
	pthread_join(churner, NULL);
	wind_down(workers);
	printf("stress_heap: STRESS_SEED=%" PRIu64 ": %" PRIu64 " operations, %" PRIu64
	       " fences, all in order\n",
	       seed, n_ops, fake_backend_n_recorded(&fake));
	heap_free(heap);
	pool_fini(&pool);
	free(units);
	return 0;
}
