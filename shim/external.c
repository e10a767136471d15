/* SPDX-License-Identifier: MIT */
#include "shim/external.h"

#include <pthread.h>
#include <stdlib.h>

#include "pool/stats.h"
#include "pool/thread.h"

/*
 * A record is in the table while its bytes are counted. It is out of it, and its bytes are not
 * counted, while every handle of it is being ended (claimed), and for good once its context is gone
 * or its key means another piece (gone); then the last of those who still hold it frees it.
 */
enum state { IN_TABLE, CLAIMED, GONE };

struct external_record {
	struct external_record *next; /* in its bucket, or in the list of an unmapping */
	struct external_item item;
	enum state state;
	unsigned n_handles;             /* that the program holds */
	unsigned n_claims;              /* of those, being ended just now */
	unsigned n_maps;                /* mappings of this memory, and those being made */
	struct external_record *memory; /* of a mapping: what is mapped */
};

enum { N_BUCKETS_AT_FIRST = 256 };

const struct external_kind_info external_kinds[EXTERNAL_N_KINDS] = {
#define DEVICE EXTERNAL_ON_DEVICE
#define HOST EXTERNAL_ON_HOST
#define EITHER EXTERNAL_ON_EITHER
#define EXTERNAL(name, place, help) {#name, place},
#include "shim/external.def"
#undef EXTERNAL
#undef DEVICE
#undef HOST
#undef EITHER
};

static pthread_mutex_t table_lock = PTHREAD_MUTEX_INITIALIZER;
/* All under table_lock. */
static struct external_record *first_buckets[N_BUCKETS_AT_FIRST];
static struct external_record **buckets = first_buckets;
static size_t n_buckets = N_BUCKETS_AT_FIRST; /* a power of two */
static size_t n_records;
/* How many are in the table: programs that get nothing past the pool need no lock for a free. */
static atomic_size_t n_known;

static struct external_record **
bucket_locked(enum external_space space, uint64_t key)
{
	const uint64_t hash = (key ^ (uint64_t)space << 56) * UINT64_C(0x9e3779b97f4a7c15);

	return &buckets[(hash >> 32) & (n_buckets - 1)];
}

static struct external_record *
find_locked(enum external_space space, uint64_t key)
{
	struct external_record *record = *bucket_locked(space, key);

	while (record && (record->item.key != key || record->item.space != space))
		record = record->next;
	return record;
}

/* Without memory for it the buckets stay few and their lists grow. */
static void
grow_locked(void)
{
	struct external_record **old = buckets, *record, *next;
	const size_t n_old = n_buckets;
	struct external_record **larger = calloc(4 * n_old, sizeof(struct external_record *));

	if (!larger)
		return;
	buckets = larger;
	n_buckets = 4 * n_old;
	for (size_t i = 0; i < n_old; i++) {
		for (record = old[i]; record; record = next) {
			struct external_record **bucket =
				bucket_locked(record->item.space, record->item.key);

			next = record->next;
			record->next = *bucket;
			*bucket = record;
		}
	}
	if (old != first_buckets)
		free(old);
}

static void
raise(const struct external_item *item)
{
	struct external *place = item->place;

	if (!place)
		return;
	if (item->is_unmeasured)
		STATS_RAISE(place, n_unmeasured, 1);
	stats_raise(&place->bytes[item->kind], &place->peak_bytes[item->kind], item->bytes);
	STATS_RAISE(place, total_bytes, item->bytes);
	STATS_RAISE(&place->shares[item->tag], used_bytes, item->bytes);
	if (item->via)
		stats_raise(&item->via->bytes[item->kind], &item->via->peak_bytes[item->kind],
			    item->bytes);
}

static void
lower(const struct external_item *item)
{
	struct external *place = item->place;

	if (!place)
		return;
	if (item->is_unmeasured)
		stats_lower(&place->n_unmeasured, 1);
	stats_lower(&place->bytes[item->kind], item->bytes);
	stats_lower(&place->total_bytes, item->bytes);
	stats_lower(&place->shares[item->tag].used_bytes, item->bytes);
	if (item->via)
		stats_lower(&item->via->bytes[item->kind], item->bytes);
}

static void
insert_locked(struct external_record *record)
{
	struct external_record **bucket;

	if (n_records >= 2 * n_buckets)
		grow_locked();
	bucket = bucket_locked(record->item.space, record->item.key);
	record->next = *bucket;
	*bucket = record;
	record->state = IN_TABLE;
	n_records++;
	/* relaxed: who frees a piece learnt of it after this, from whoever was given it */
	atomic_store_explicit(&n_known, n_records, memory_order_relaxed);
	raise(&record->item);
}

static void
remove_locked(struct external_record *record, enum state state)
{
	struct external_record **link = bucket_locked(record->item.space, record->item.key);

	while (*link != record)
		link = &(*link)->next;
	*link = record->next;
	record->next = NULL;
	record->state = state;
	n_records--;
	atomic_store_explicit(&n_known, n_records, memory_order_relaxed);
	lower(&record->item);
}

static void
free_if_unheld(struct external_record *record)
{
	if (record->state == GONE && record->n_claims == 0 && record->n_maps == 0)
		free(record);
}

static void unmap_locked(struct external_record *memory);

/* The piece is gone though nobody ended it here: its context ended, or its key means another. */
static void
forget_locked(struct external_record *record)
{
	struct external_record *memory = record->memory;

	remove_locked(record, GONE);
	free_if_unheld(record);
	if (memory)
		unmap_locked(memory);
}

/* One mapping less. */
static void
unmap_locked(struct external_record *memory)
{
	memory->n_maps--;
	if (memory->state == IN_TABLE && memory->n_maps == 0 &&
	    memory->n_handles == memory->n_claims)
		remove_locked(memory, memory->n_claims ? CLAIMED : GONE);
	free_if_unheld(memory);
}

static bool
is_over(const struct external_item *item)
{
	/* acquire: pairs with the raise of the generation. Whoever reads the old one here, under
	 * the lock, is in time for external_drop(), which takes the lock after the raise. */
	return item->life &&
	       atomic_load_explicit(item->life, memory_order_acquire) != item->generation;
}

static void
add_locked(struct external_record *record)
{
	struct external_record *old = find_locked(record->item.space, record->item.key);

	if (is_over(&record->item)) {
		free(record);
		return;
	}
	if (old && record->item.is_shared) {
		old->n_handles++;
		free(record);
		return;
	}
	if (old)
		forget_locked(old);
	insert_locked(record);
	if (record->item.place)
		stats_count(&record->item.place->shares[record->item.tag].count, 1);
}

static struct external_record *
new_record(const struct external_item *item)
{
	struct external_record *record = calloc(1, sizeof(*record));

	if (record) {
		record->item = *item;
		record->n_handles = 1;
	}
	return record;
}

void
external_add(const struct external_item *item)
{
	struct external_record *record = new_record(item);

	if (!record) {
		if (item->place)
			STATS_RAISE(item->place, n_unmeasured, 1);
		return;
	}
	thread_lock(&table_lock);
	add_locked(record);
	thread_unlock(&table_lock);
}

void
external_retain(enum external_space space, uint64_t key)
{
	struct external_record *record;

	thread_lock(&table_lock);
	record = find_locked(space, key);
	if (record)
		record->n_handles++;
	thread_unlock(&table_lock);
}

static bool
is_empty(void)
{
	return atomic_load_explicit(&n_known, memory_order_relaxed) == 0;
}

struct external_record *
external_claim(enum external_space space, uint64_t key)
{
	struct external_record *record;

	if (is_empty())
		return NULL;
	thread_lock(&table_lock);
	record = find_locked(space, key);
	if (record && record->n_claims == record->n_handles)
		record = NULL; /* only mappings hold it: the driver will refuse */
	if (record) {
		record->n_claims++;
		if (record->n_claims == record->n_handles && record->n_maps == 0)
			remove_locked(record, CLAIMED);
	}
	thread_unlock(&table_lock);
	return record;
}

static void
put_back_locked(struct external_record *record)
{
	if (find_locked(record->item.space, record->item.key) || is_over(&record->item))
		record->state = GONE;
	else
		insert_locked(record);
}

void
external_settle(struct external_record *record, bool is_freed)
{
	if (!record)
		return;
	thread_lock(&table_lock);
	record->n_claims--;
	if (is_freed)
		record->n_handles--;
	else if (record->state == CLAIMED)
		put_back_locked(record);
	if (record->state == CLAIMED && record->n_handles == 0)
		record->state = GONE;
	free_if_unheld(record);
	thread_unlock(&table_lock);
}

struct external_record *
external_map_begin(uint64_t handle)
{
	struct external_record *memory;

	if (is_empty())
		return NULL;
	thread_lock(&table_lock);
	memory = find_locked(EXTERNAL_BY_VMM, handle);
	if (memory)
		memory->n_maps++;
	thread_unlock(&table_lock);
	return memory;
}

/* Memory of other owners is told without its size; what is mapped of it shows the least that it
 * has.
 */
static void
grow_to_locked(struct external_record *memory, uint64_t bytes)
{
	if (memory->state != IN_TABLE || memory->item.bytes >= bytes)
		return;
	lower(&memory->item);
	memory->item.bytes = bytes;
	raise(&memory->item);
}

void
external_map_end(struct external_record *memory, uint64_t addr, uint64_t offset_bytes,
		 uint64_t size_bytes, bool is_mapped)
{
	/* A mapping has no bytes of its own: `bytes` is its size, and without a place not counted.
	 */
	const struct external_item item = {
		.space = EXTERNAL_BY_MAPPING, .key = addr, .bytes = size_bytes};
	struct external_record *mapping;

	if (!memory)
		return;
	mapping = is_mapped ? new_record(&item) : NULL;
	thread_lock(&table_lock);
	if (mapping) {
		mapping->memory = memory;
		grow_to_locked(memory, offset_bytes + size_bytes);
		add_locked(mapping);
	} else {
		unmap_locked(memory); /* then the last handle is all that holds it */
	}
	thread_unlock(&table_lock);
}

struct external_record *
external_unmap_begin(uint64_t addr, uint64_t size_bytes)
{
	struct external_record *taken = NULL, *mapping;
	uint64_t at = addr;

	if (is_empty())
		return NULL;
	thread_lock(&table_lock);
	while (at - addr < size_bytes && (mapping = find_locked(EXTERNAL_BY_MAPPING, at))) {
		at += mapping->item.bytes;
		remove_locked(mapping, CLAIMED);
		mapping->next = taken;
		taken = mapping;
	}
	thread_unlock(&table_lock);
	return taken;
}

void
external_unmap_end(struct external_record *mappings, bool is_unmapped)
{
	struct external_record *next;

	if (!mappings)
		return;
	thread_lock(&table_lock);
	for (; mappings; mappings = next) {
		struct external_record *memory = mappings->memory;

		next = mappings->next;
		if (!is_unmapped)
			put_back_locked(mappings);
		if (mappings->state == IN_TABLE)
			continue;
		free(mappings);
		unmap_locked(memory);
	}
	thread_unlock(&table_lock);
}

void
external_drop(const atomic_uint *life, unsigned generation)
{
	struct external_record *record, *next;

	if (is_empty())
		return;
	thread_lock(&table_lock);
	for (size_t i = 0; i < n_buckets; i++) {
		for (record = buckets[i]; record; record = next) {
			next = record->next;
			if (record->item.life == life && record->item.generation == generation)
				forget_locked(record);
		}
	}
	thread_unlock(&table_lock);
}

void
external_set(struct external *place, enum external_kind kind, uint64_t bytes)
{
	struct external_item item = {.kind = kind, .place = place};

	thread_lock(&table_lock);
	item.bytes = stats_read(&place->bytes[kind]);
	lower(&item);
	item.bytes = bytes;
	raise(&item);
	thread_unlock(&table_lock);
}
