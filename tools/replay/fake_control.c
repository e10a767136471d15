/* SPDX-License-Identifier: MIT */
/* What a test does to the fake backend, and asks of it. */
#include <assert.h>

#include "tools/replay/fake_backend.h"

void
fake_backend_set_capacity(struct fake_backend *fake, uint64_t capacity_bytes)
{
	pthread_mutex_lock(&fake->lock);
	fake->capacity_bytes = capacity_bytes;
	pthread_mutex_unlock(&fake->lock);
}

void
fake_backend_set_next_addr(struct fake_backend *fake, uint64_t addr)
{
	pthread_mutex_lock(&fake->lock);
	fake->next_addr = addr;
	pthread_mutex_unlock(&fake->lock);
}

void
fake_backend_complete_upto(struct fake_backend *fake, uint64_t n)
{
	pthread_mutex_lock(&fake->lock);
	if (n > fake->n_complete)
		fake->n_complete = n;
	pthread_mutex_unlock(&fake->lock);
}

void
fake_backend_complete_all(struct fake_backend *fake)
{
	pthread_mutex_lock(&fake->lock);
	if (fake->n_recorded > fake->n_complete)
		fake->n_complete = fake->n_recorded;
	pthread_mutex_unlock(&fake->lock);
}

void
fake_backend_set_completes_at_once(struct fake_backend *fake, bool completes_at_once)
{
	pthread_mutex_lock(&fake->lock);
	fake->completes_at_once = completes_at_once;
	pthread_mutex_unlock(&fake->lock);
}

void
fake_backend_set_busy(struct fake_backend *fake, bool is_busy)
{
	pthread_mutex_lock(&fake->lock);
	fake->is_busy = is_busy;
	pthread_mutex_unlock(&fake->lock);
}

void
fake_backend_fail(struct fake_backend *fake, enum fake_op op, uint64_t nth, uint64_t n_times,
		  int status)
{
	pthread_mutex_lock(&fake->lock);
	fake->failures[op] = (struct fake_failure){
		.first = fake->counts[op] + nth,
		.last = n_times ? fake->counts[op] + nth + (n_times - 1) : 0,
		.status = status,
	};
	pthread_mutex_unlock(&fake->lock);
}

void
fake_backend_advance(struct fake_backend *fake, uint64_t ns)
{
	pthread_mutex_lock(&fake->lock);
	fake->now_ns += ns;
	pthread_mutex_unlock(&fake->lock);
}

void
fake_backend_set_pause(struct fake_backend *fake, uint64_t pause_ns,
		       void (*on_pause)(struct fake_backend *fake, void *arg), void *arg)
{
	pthread_mutex_lock(&fake->lock);
	fake->pause_ns = pause_ns;
	fake->on_pause = on_pause;
	fake->on_pause_arg = arg;
	pthread_mutex_unlock(&fake->lock);
}

static uint64_t
field_read(struct fake_backend *fake, const uint64_t *value)
{
	uint64_t copy;

	pthread_mutex_lock(&fake->lock);
	copy = *value;
	pthread_mutex_unlock(&fake->lock);
	return copy;
}

uint64_t
fake_backend_count(struct fake_backend *fake, enum fake_op op)
{
	return field_read(fake, &fake->counts[op]);
}

uint64_t
fake_backend_n_recorded(struct fake_backend *fake)
{
	return field_read(fake, &fake->n_recorded);
}

uint64_t
fake_backend_n_wide(struct fake_backend *fake)
{
	return field_read(fake, &fake->n_wide);
}

uint64_t
fake_backend_n_complete(struct fake_backend *fake)
{
	return field_read(fake, &fake->n_complete);
}

static size_t
n_items_read(struct fake_backend *fake, const struct fake_table *table)
{
	size_t n;

	pthread_mutex_lock(&fake->lock);
	n = table->n_items;
	pthread_mutex_unlock(&fake->lock);
	return n;
}

size_t
fake_backend_n_mappings(struct fake_backend *fake)
{
	return n_items_read(fake, &fake->mappings);
}

size_t
fake_backend_n_fences(struct fake_backend *fake)
{
	return n_items_read(fake, &fake->fences);
}

uint64_t
fake_backend_held_bytes(struct fake_backend *fake)
{
	return field_read(fake, &fake->held_bytes);
}

uint64_t
fake_backend_peak_bytes(struct fake_backend *fake)
{
	return field_read(fake, &fake->peak_bytes);
}

void
fake_backend_submit(struct fake_backend *fake)
{
	atomic_fetch_add(&fake->n_submissions, 1);
}

void
fake_backend_announce(struct fake_backend *fake, struct order_stream stream)
{
	pthread_mutex_lock(&fake->lock);
	assert(fake->n_announced < FAKE_N_ANNOUNCED_MAX);
	fake->announced[fake->n_announced++] = stream;
	pthread_mutex_unlock(&fake->lock);
}

void
fake_backend_announce_none(struct fake_backend *fake)
{
	pthread_mutex_lock(&fake->lock);
	fake->n_announced = 0;
	pthread_mutex_unlock(&fake->lock);
}

uint64_t
fake_backend_edge_waited(struct fake_backend *fake)
{
	uint64_t n;

	pthread_mutex_lock(&fake->lock);
	n = fake->edge_waited;
	pthread_mutex_unlock(&fake->lock);
	return n;
}
