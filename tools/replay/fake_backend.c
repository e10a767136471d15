/* SPDX-License-Identifier: MIT */
/*
 * A fence handle is its number, never a pointer to something: a handle that is used too late cannot
 * hit a newer fence, it is simply not in the table. Address ranges are used again by the next
 * mapping of the same size, newest first, as drivers do: what the pool keeps about an old segment
 * must not come back.
 */
#include "tools/replay/fake_backend.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FAKE_UNIT_BYTES = 512 };

struct fake_item {
	struct fake_item *next;
	uint64_t key;        /* a mapping's address, a fence's number */
	uint64_t size_bytes; /* mappings only */
	bool was_complete;   /* fences only: it was said so, and stays so */
};

/* The user of the backend broke its contract: no result after this could be trusted. */
static void
refuse(const char *why, uint64_t key)
{
	fprintf(stderr, "fake backend: %s (0x%" PRIx64 ")\n", why, key);
	abort();
}

static struct fake_item **
table_slot(struct fake_table *table, uint64_t key)
{
	uint64_t hash = key * UINT64_C(0x9e3779b97f4a7c15) >> 32;
	struct fake_item **at = &table->buckets[hash % FAKE_N_BUCKETS];

	while (*at && (*at)->key != key)
		at = &(*at)->next;
	return at;
}

static struct fake_item *
table_add(struct fake_table *table, uint64_t key, uint64_t size_bytes)
{
	struct fake_item **at = table_slot(table, key);
	struct fake_item *item = calloc(1, sizeof(*item));

	if (!item)
		refuse("no memory for the fake itself", key);
	item->key = key;
	item->size_bytes = size_bytes;
	*at = item;
	table->n_items++;
	return item;
}

/* NULL when it is not there; the caller owns the item. */
static struct fake_item *
table_take(struct fake_table *table, uint64_t key)
{
	struct fake_item **at = table_slot(table, key);
	struct fake_item *item = *at;

	if (!item)
		return NULL;
	*at = item->next;
	table->n_items--;
	return item;
}

static void
items_free(struct fake_item *item)
{
	struct fake_item *next;

	for (; item; item = next) {
		next = item->next;
		free(item);
	}
}

static void
table_clear(struct fake_table *table)
{
	size_t i;

	for (i = 0; i < FAKE_N_BUCKETS; i++) {
		items_free(table->buckets[i]);
		table->buckets[i] = NULL;
	}
	table->n_items = 0;
}

static struct fake_backend *
fake_of(struct backend *backend)
{
	return (struct fake_backend *)backend;
}

/* Count the call; the status that it was told to fail with, or BACKEND_OK. */
static int
op_begin_locked(struct fake_backend *fake, enum fake_op op)
{
	const struct fake_failure *failure = &fake->failures[op];
	uint64_t n = ++fake->counts[op];

	return n >= failure->first && n <= failure->last ? failure->status : BACKEND_OK;
}

/* Sizes are kept as a driver takes them: in whole units, however they were asked for. */
static uint64_t
in_units(uint64_t size_bytes)
{
	return (size_bytes + FAKE_UNIT_BYTES - 1) / FAKE_UNIT_BYTES * FAKE_UNIT_BYTES;
}

static uint64_t
range_take_locked(struct fake_backend *fake, uint64_t size_bytes)
{
	struct fake_item **at = &fake->freed;
	struct fake_item *item;
	uint64_t addr;

	while (*at && (*at)->size_bytes != size_bytes)
		at = &(*at)->next;
	item = *at;
	if (item) {
		*at = item->next;
		addr = item->key;
		free(item);
		return addr;
	}

	/* Fresh ranges touch each other: a pool that merged across segments would be seen. */
	addr = fake->next_addr;
	fake->next_addr += size_bytes;
	return addr;
}

static int
fake_map(struct backend *backend, size_t asked_bytes, uint64_t *ret_addr)
{
	struct fake_backend *fake = fake_of(backend);
	uint64_t size_bytes = in_units(asked_bytes);
	uint64_t addr;
	int r;

	if (size_bytes == 0)
		refuse("map of 0 bytes", 0);
	pthread_mutex_lock(&fake->lock);
	r = op_begin_locked(fake, FAKE_OP_MAP);
	if (r == BACKEND_OK && (fake->held_bytes > fake->capacity_bytes ||
				size_bytes > fake->capacity_bytes - fake->held_bytes))
		r = BACKEND_E_NO_MEMORY;
	if (r == BACKEND_OK) {
		addr = range_take_locked(fake, size_bytes);
		table_add(&fake->mappings, addr, size_bytes);
		fake->held_bytes += size_bytes;
		if (fake->held_bytes > fake->peak_bytes)
			fake->peak_bytes = fake->held_bytes;
		*ret_addr = addr;
	}
	pthread_mutex_unlock(&fake->lock);
	return r;
}

static int
fake_unmap(struct backend *backend, uint64_t addr, size_t asked_bytes)
{
	struct fake_backend *fake = fake_of(backend);
	uint64_t size_bytes = in_units(asked_bytes);
	struct fake_item *item;
	int r;

	pthread_mutex_lock(&fake->lock);
	r = op_begin_locked(fake, FAKE_OP_UNMAP);
	item = *table_slot(&fake->mappings, addr);
	if (!item)
		refuse("unmap of what is not mapped", addr);
	if (item->size_bytes != size_bytes)
		refuse("unmap of a part of a mapping", addr);
	if (r == BACKEND_OK) {
		item = table_take(&fake->mappings, addr);
		item->next = fake->freed;
		fake->freed = item;
		fake->held_bytes -= size_bytes;
	}
	pthread_mutex_unlock(&fake->lock);
	return r;
}

static int
fake_fence_record(struct backend *backend, bool is_wide, struct fence **ret_fence)
{
	struct fake_backend *fake = fake_of(backend);
	int r;

	pthread_mutex_lock(&fake->lock);
	r = op_begin_locked(fake, FAKE_OP_FENCE_RECORD);
	if (r == BACKEND_OK && fake->is_busy)
		r = BACKEND_E_BUSY;
	if (r == BACKEND_OK) {
		fake->n_recorded++;
		fake->n_wide += is_wide;
		if (fake->completes_at_once)
			fake->n_complete = fake->n_recorded;
		table_add(&fake->fences, fake->n_recorded, 0);
		*ret_fence = (struct fence *)(uintptr_t)fake->n_recorded;
	}
	pthread_mutex_unlock(&fake->lock);
	return r;
}

static int
fake_fence_query(struct backend *backend, struct fence *fence)
{
	struct fake_backend *fake = fake_of(backend);
	struct fake_item *item;
	int r;

	pthread_mutex_lock(&fake->lock);
	r = op_begin_locked(fake, FAKE_OP_FENCE_QUERY);
	item = *table_slot(&fake->fences, (uintptr_t)fence);
	if (!item)
		refuse("query of a fence that is not alive", (uintptr_t)fence);
	if (r == BACKEND_OK && fake->is_busy)
		r = BACKEND_E_BUSY;
	if (r == BACKEND_OK && item->key > fake->n_complete)
		r = BACKEND_E_NOT_READY;
	/* Once complete, always complete: not even an ordered failure may take it back. */
	if (item->was_complete && r == BACKEND_E_NOT_READY)
		r = BACKEND_OK;
	if (r == BACKEND_OK)
		item->was_complete = true;
	pthread_mutex_unlock(&fake->lock);
	return r;
}

static void
fake_fence_free(struct backend *backend, struct fence *fence)
{
	struct fake_backend *fake = fake_of(backend);
	struct fake_item *item;

	pthread_mutex_lock(&fake->lock);
	op_begin_locked(fake, FAKE_OP_FENCE_FREE);
	item = table_take(&fake->fences, (uintptr_t)fence);
	pthread_mutex_unlock(&fake->lock);
	if (!item)
		refuse("a fence was freed that is not alive", (uintptr_t)fence);
	free(item);
}

static uint64_t
fake_now_ns(struct backend *backend)
{
	struct fake_backend *fake = fake_of(backend);
	uint64_t now_ns;

	pthread_mutex_lock(&fake->lock);
	op_begin_locked(fake, FAKE_OP_NOW);
	now_ns = fake->now_ns;
	pthread_mutex_unlock(&fake->lock);
	return now_ns;
}

static void
fake_pause(struct backend *backend, unsigned n_tries)
{
	struct fake_backend *fake = fake_of(backend);
	void (*on_pause)(struct fake_backend *, void *);
	void *arg;

	(void)n_tries;
	pthread_mutex_lock(&fake->lock);
	op_begin_locked(fake, FAKE_OP_PAUSE);
	fake->now_ns += fake->pause_ns;
	on_pause = fake->on_pause;
	arg = fake->on_pause_arg;
	pthread_mutex_unlock(&fake->lock);
	if (on_pause)
		on_pause(fake, arg);
}

static int
fake_edge_wait(struct backend *backend, const struct stream_handle *stream, struct fence *fence)
{
	struct fake_backend *fake = fake_of(backend);
	int r;

	(void)stream;
	pthread_mutex_lock(&fake->lock);
	r = op_begin_locked(fake, FAKE_OP_EDGE_WAIT);
	if (!*table_slot(&fake->fences, (uintptr_t)fence))
		refuse("a stream waits for a fence that is not alive", (uintptr_t)fence);
	if (r == BACKEND_OK)
		fake->edge_waited = (uintptr_t)fence;
	pthread_mutex_unlock(&fake->lock);
	return r;
}

static void
fake_look(struct backend *backend, void (*enter)(void *arg, struct order_stream stream), void *arg)
{
	struct fake_backend *fake = fake_of(backend);
	struct order_stream announced[FAKE_N_ANNOUNCED_MAX];
	unsigned n;

	pthread_mutex_lock(&fake->lock);
	op_begin_locked(fake, FAKE_OP_LOOK);
	n = fake->n_announced;
	memcpy(announced, fake->announced, sizeof(announced));
	pthread_mutex_unlock(&fake->lock);
	for (unsigned i = 0; i < n; i++)
		enter(arg, announced[i]);
}

/* Without the lock: the pool asks with one of its own held. */
static uint64_t
fake_n_submissions(struct backend *backend)
{
	return atomic_load(&fake_of(backend)->n_submissions);
}

static uint64_t
fake_n_begun(struct backend *backend)
{
	struct fake_backend *fake = fake_of(backend);

	return atomic_load(&fake->n_submissions) + fake->n_announced;
}

static const struct backend_ops fake_ops = {
	.map = fake_map,
	.unmap = fake_unmap,
	.fence_record = fake_fence_record,
	.fence_query = fake_fence_query,
	.fence_free = fake_fence_free,
	.edge_wait = fake_edge_wait,
	.look = fake_look,
	.n_submissions = fake_n_submissions,
	.n_begun = fake_n_begun,
	.now_ns = fake_now_ns,
	.coarse_ns = fake_now_ns,
	.pause = fake_pause,
};

void
fake_backend_init(struct fake_backend *fake, uint64_t capacity_bytes)
{
	*fake = (struct fake_backend){
		.backend = {.ops = &fake_ops},
		.capacity_bytes = capacity_bytes,
		.next_addr = UINT64_C(0x700000000000),
		.now_ns = 1000000000,
		.pause_ns = 1000,
	};
	pthread_mutex_init(&fake->lock, NULL);
}

void
fake_backend_fini(struct fake_backend *fake)
{
	table_clear(&fake->mappings);
	table_clear(&fake->fences);
	items_free(fake->freed);
	fake->freed = NULL;
	pthread_mutex_destroy(&fake->lock);
}
