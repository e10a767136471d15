/* SPDX-License-Identifier: MIT */
#include "tests/sim/races.h"
#include "tests/sim/history.h"
#include "tests/sim/order.h"
#include "tests/sim/sim_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/*
 * The happens-before checker. Each access is compared with the history of its bytes when it is
 * submitted, whenever it runs: what is found depends on the program's calls, not on the schedule.
 */

enum {
	MAX_AGENTS = 64,
	AGENT_NAME_BYTES = 32,
};

struct agent {
	char name[AGENT_NAME_BYTES];
	unsigned slot;
	struct clock all;
};

static struct agent agents[MAX_AGENTS];
static unsigned n_agents;

/* The pages that a is part of: *ret_addr is where the first of them is mapped. */
static const struct phys *
pages_of(const struct alloc *a, uint64_t *ret_addr)
{
	if (a->chunk) {
		*ret_addr = a->chunk->base;
		return a->chunk->phys;
	}
	*ret_addr = a->kind == ALLOC_VMM           ? a->base - a->phys_first * SIM_PAGE
		    : a->kind == ALLOC_POOL_IMPORT ? a->map_base
						   : a->base;
	return a->phys;
}

static uint64_t
page_key(const struct phys *phys, uint64_t page)
{
	/* Above all addresses. Host memory by handle is of one device more. */
	uint64_t ordinal = phys->dev->is_host ? SIM_MAX_DEVICES : (uint64_t)phys->dev->ordinal;

	return (ordinal + 1) << 48 | page * SIM_PAGE;
}

/* Where the history of the byte at addr is kept; *ret_bytes: it goes on like that for so many. */
static uint64_t
key_of(const struct alloc *a, uint64_t addr, uint64_t *ret_bytes)
{
	uint64_t base, offset;
	const struct phys *phys = pages_of(a, &base);

	*ret_bytes = a->base + a->span_bytes - addr;
	if (!phys)
		return addr;
	offset = addr - base;
	for (unsigned i = 0; i < phys->n_extents; i++) {
		const struct extent *x = &phys->extents[i];

		if (offset < x->n * SIM_PAGE) {
			if (*ret_bytes > x->n * SIM_PAGE - offset)
				*ret_bytes = x->n * SIM_PAGE - offset;
			return page_key(phys, x->first) + offset;
		}
		offset -= x->n * SIM_PAGE;
	}
	return addr;
}

/* Bytes outside all allocations have no history: touching them is another kind of error. */
static void
touch_bytes(uint64_t addr, uint64_t size_bytes, const struct touch *t)
{
	uint64_t n, key;

	while (size_bytes > 0) {
		const struct alloc *a = alloc_find(addr);

		if (!a)
			return;
		key = key_of(a, addr, &n);
		if (n > size_bytes)
			n = size_bytes;
		history_touch(key, n, addr, t);
		addr += n;
		size_bytes -= n;
	}
}

struct shape {
	const struct area *area;
	uint64_t width, height, depth;
};

/* The rows that range i of a copy or set stands for; false: all of the range. */
static bool
has_rows(const struct op *op, unsigned i, struct shape *ret_shape)
{
	const struct op_copy *c = &op->copy;
	bool is_flat;

	if (op->kind == CUSIM_OP_SET) {
		*ret_shape = (struct shape){&op->set.dst, op->set.width_bytes, op->set.height, 1};
		return op->set.height > 1 && op->set.dst.pitch != op->set.width_bytes;
	}
	if (op->kind != CUSIM_OP_COPY)
		return false;
	*ret_shape = (struct shape){i == 0 ? &c->dst : &c->src, c->width, c->height, c->depth};
	is_flat = c->height == 1 || ret_shape->area->pitch == c->width;
	return !is_flat ||
	       (c->depth > 1 && ret_shape->area->slice != ret_shape->area->pitch * c->height);
}

static void
touch_range(const struct op *op, unsigned i, const struct touch *t)
{
	struct shape shape;

	if (!has_rows(op, i, &shape)) {
		touch_bytes(op->ranges[i].addr, op->ranges[i].size_bytes, t);
		return;
	}
	for (uint64_t z = 0; z < shape.depth; z++) {
		for (uint64_t y = 0; y < shape.height; y++)
			touch_bytes(shape.area->addr + z * shape.area->slice +
					    y * shape.area->pitch,
				    shape.width, t);
	}
}

static bool
is_atomic(const struct op *op)
{
	return op->kind == CUSIM_OP_WRITE_VALUE || op->kind == CUSIM_OP_WAIT_VALUE ||
	       (op->kind == CUSIM_OP_KERNEL && op->kernel == KERNEL_SPIN);
}

void
races_submit(struct op *op, const struct clock *earlier, unsigned slot, uint64_t tick)
{
	struct touch t = {.earlier = earlier, .is_atomic = is_atomic(op)};

	if (op->tracked == 0)
		return;
	t.access = access_new(slot, tick);
	report_describe(op, &t.access->op);
	for (unsigned i = 0; i < op->n_ranges; i++) {
		t.is_write = op->ranges[i].is_write;
		if (op->tracked >> i & 1)
			touch_range(op, i, &t);
	}
	access_unref(t.access);
}

/* A mapping that ends leaves its pages, and their history, to whoever holds their handle. */
void
races_forget(const struct alloc *a)
{
	uint64_t addr = a->base, n, key;

	if (!sim.check || a->kind == ALLOC_VMM || a->kind == ALLOC_POOL_IMPORT)
		return;
	for (; addr < a->base + a->span_bytes; addr += n) {
		key = key_of(a, addr, &n);
		history_forget(key, key + n);
	}
}

void
races_forget_pages(const struct phys *phys)
{
	for (unsigned i = 0; sim.check && i < phys->n_extents; i++)
		history_forget(page_key(phys, phys->extents[i].first),
			       page_key(phys, phys->extents[i].first + phys->extents[i].n));
}

void
cusim_check(int level)
{
	pthread_mutex_lock(&sim.lock);
	if (level) {
		history_races = 0;
		history_forget(0, UINT64_MAX);
	}
	sim.check = level;
	pthread_mutex_unlock(&sim.lock);
}

uint64_t
cusim_races(void)
{
	uint64_t n;

	pthread_mutex_lock(&sim.lock);
	n = history_races;
	pthread_mutex_unlock(&sim.lock);
	return n;
}

/* An access by somebody who is no stream. */
static struct access *
access_by(const char *actor, struct cusim_range range, unsigned slot, uint64_t tick)
{
	struct access *access = access_new(slot, tick);

	access->actor = actor;
	access->op.thread = sim_thread_id();
	access->op.seq_submit = ++sim.seq;
	access->op.n_ranges = 1;
	access->op.ranges[0] = range;
	return access;
}

/* Inside a host function: part of that operation, which what is in other streams may not be after.
 */
static void
touch_in_host_function(const struct op *op, struct cusim_range range)
{
	static struct clock earlier;
	struct touch t = {.is_write = range.is_write != 0, .is_late = true};

	clock_copy(&earlier, &op->clock);
	clock_join(&earlier, order_host());
	t.earlier = &earlier;
	t.access = access_new(op->slot, op->tick);
	report_describe(op, &t.access->op);
	t.access->op.n_ranges = 1;
	t.access->op.ranges[0] = range;
	touch_bytes(range.addr, range.size_bytes, &t);
	access_unref(t.access);
}

/* It is over at once: whatever is submitted from now on is after it. */
static void
touch_by_cpu(struct cusim_range range)
{
	struct touch t = {.earlier = order_host(), .is_write = range.is_write != 0};
	static unsigned slot;
	static bool has_slot;

	if (!has_slot)
		slot = order_slot_new();
	has_slot = true;
	t.access = access_by("the CPU", range, slot, order_tick(slot));
	touch_bytes(range.addr, range.size_bytes, &t);
	order_show_tick(slot, t.access->tick);
	access_unref(t.access);
}

void
cusim_cpu_access(uint64_t addr, size_t size_bytes, int is_write)
{
	struct cusim_range range = {addr, size_bytes, is_write};

	pthread_mutex_lock(&sim.lock);
	if (sim.check && sim_thread.host_op)
		touch_in_host_function(sim_thread.host_op, range);
	else if (sim.check)
		touch_by_cpu(range);
	pthread_mutex_unlock(&sim.lock);
}

static struct agent *
find_agent(const char *name)
{
	for (unsigned i = 0; i < n_agents; i++) {
		if (strncmp(agents[i].name, name, AGENT_NAME_BYTES - 1) == 0)
			return &agents[i];
	}
	if (n_agents == MAX_AGENTS) {
		fprintf(stderr, "cusim: more than %d agents\n", MAX_AGENTS);
		abort();
	}
	snprintf(agents[n_agents].name, AGENT_NAME_BYTES, "%s", name);
	agents[n_agents].slot = order_slot_new();
	return &agents[n_agents++];
}

static void
touch_by_agent(struct agent *agent, struct cusim_range range)
{
	struct touch t = {.earlier = &agent->all, .is_write = range.is_write != 0};

	clock_join(&agent->all, order_host());
	t.access = access_by(agent->name, range, agent->slot, order_tick(agent->slot));
	touch_bytes(range.addr, range.size_bytes, &t);
	clock_set(&agent->all, agent->slot, t.access->tick);
	access_unref(t.access);
}

void
cusim_agent_access(const char *name, uint64_t addr, size_t size_bytes, int is_write, int begin)
{
	pthread_mutex_lock(&sim.lock);
	if (sim.check) {
		struct agent *agent = find_agent(name);

		if (begin)
			touch_by_agent(agent, (struct cusim_range){addr, size_bytes, is_write});
		else
			order_show(&agent->all);
	}
	pthread_mutex_unlock(&sim.lock);
}
