/* SPDX-License-Identifier: MIT */
#include "tests/sim/sim_internal.h"

#include <string.h>

/*
 * What operations do to memory. Before it does anything, an operation is checked against the
 * allocations as they are now: one that would touch memory which is gone is counted as a
 * violation and does nothing.
 */

static bool
is_gone(const struct op *op, unsigned i)
{
	const struct cusim_range *range = &op->ranges[i];

	if ((op->tracked >> i & 1) && !alloc_find(range->addr))
		return true;
	return !alloc_covers(range->addr, range->size_bytes, op->device_only);
}

static bool
check_ranges(const struct op *op)
{
	for (unsigned i = 0; i < op->n_ranges; i++) {
		if (is_gone(op, i)) {
			report_violation(op, &op->ranges[i]);
			return false;
		}
	}
	return true;
}

static void
do_copy(const struct op_copy *c)
{
	for (uint64_t z = 0; z < c->depth; z++) {
		for (uint64_t y = 0; y < c->height; y++) {
			memmove((void *)(c->dst.addr + z * c->dst.slice + y * c->dst.pitch),
				(const void *)(c->src.addr + z * c->src.slice + y * c->src.pitch),
				c->width);
		}
	}
}

static void
do_set(const struct op_set *set)
{
	for (uint64_t y = 0; y < set->height; y++) {
		uint8_t *row = (uint8_t *)(set->dst.addr + y * set->dst.pitch);

		if (set->value_bytes == 1) {
			memset(row, (int)set->value, set->width_bytes);
			continue;
		}
		for (uint64_t x = 0; x < set->width_bytes; x += set->value_bytes)
			memcpy(row + x, &set->value, set->value_bytes);
	}
}

static void
do_free(uint64_t base)
{
	struct alloc *a = alloc_find(base);

	if (a && a->base == base)
		alloc_release(a);
}

/* In a graph: an external event node records the event anew at each launch. */
static void
do_external_record(struct op *op)
{
	struct record *record;

	if (!op->event || !handle_is(op->event, HANDLE_EVENT))
		return;
	record = record_new();
	if (!record)
		return;
	record_complete(record);
	clock_copy(&record->clock, &op->clock);
	record_put(op->event->record);
	op->event->record = record;
}

void
perform(struct op *op)
{
	if (!check_ranges(op))
		return;
	switch (op->kind) {
	case CUSIM_OP_COPY:
		do_copy(&op->copy);
		break;
	case CUSIM_OP_SET:
		do_set(&op->set);
		break;
	case CUSIM_OP_KERNEL:
		/* A kernel that fills or copies carries what it does in place of a spin. */
		if (op->kernel == KERNEL_FILL)
			do_set(&op->set);
		else if (op->kernel == KERNEL_COPY)
			do_copy(&op->copy);
		break;
	case CUSIM_OP_WRITE_VALUE:
		if (op->value.value_bytes == 4)
			__atomic_store_n((uint32_t *)op->value.addr, (uint32_t)op->value.value,
					 __ATOMIC_RELEASE);
		else
			__atomic_store_n((uint64_t *)op->value.addr, op->value.value,
					 __ATOMIC_RELEASE);
		break;
	case CUSIM_OP_FREE_ASYNC:
		do_free(op->alloc_base);
		break;
	case CUSIM_OP_EVENT_RECORD:
		do_external_record(op);
		break;
	default:
		break;
	}
}

/* Memory that is gone ends the wait: perform() then reports it. */
static bool
read_value(const struct op *op, unsigned n_bytes, uint64_t addr, uint64_t *ret_value)
{
	for (unsigned i = 0; i < op->n_ranges; i++) {
		if (is_gone(op, i))
			return false;
	}
	*ret_value = n_bytes == 4 ? __atomic_load_n((const uint32_t *)addr, __ATOMIC_ACQUIRE)
				  : __atomic_load_n((const uint64_t *)addr, __ATOMIC_ACQUIRE);
	return true;
}

bool
perform_spin_is_over(struct op *op)
{
	struct op_spin *spin = &op->spin;
	uint64_t flag = 0;

	if (op->kernel != KERNEL_SPIN)
		return true;
	if (op->state == OP_QUEUED) {
		op->state = OP_STARTED;
		spin->end_ns =
			spin->flag_addr && spin->ns == 0 ? UINT64_MAX : sim.clock_ns + spin->ns;
	}
	if (sim.clock_ns >= spin->end_ns)
		return true;
	return spin->flag_addr && (!read_value(op, 4, spin->flag_addr, &flag) || flag != 0);
}

bool
perform_value_is_reached(const struct op *op)
{
	const struct op_value *v = &op->value;
	uint64_t now = 0;

	if (!read_value(op, v->value_bytes, v->addr, &now))
		return true;
	switch (v->flags & 3) {
	case CU_STREAM_WAIT_VALUE_GEQ:
		return v->value_bytes == 4 ? (int32_t)((uint32_t)now - (uint32_t)v->value) >= 0
					   : (int64_t)(now - v->value) >= 0;
	case CU_STREAM_WAIT_VALUE_EQ:
		return now == v->value;
	case CU_STREAM_WAIT_VALUE_AND:
		return (now & v->value) != 0;
	default:
		return v->value_bytes == 4 ? (uint32_t) ~(now | v->value) != 0
					   : ~(now | v->value) != 0;
	}
}
