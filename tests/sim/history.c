/* SPDX-License-Identifier: MIT */
#include "tests/sim/history.h"
#include "tests/sim/order.h"
#include "tests/sim/sim_internal.h"
#include "tests/sim/spans.h"

#include <stdio.h>
#include <stdlib.h>

/*
 * A plain write that is after the whole history of its bytes replaces it; anything else is added,
 * and takes the place of its like that it is after. Entries that the host has been shown are
 * before all that comes, and are dropped. So a span has at most a few entries for each slot.
 */

enum {
	MAX_PRINTED = 10,
	MIN_SWEEP_SPANS = 1024,
};

uint64_t history_races;
static uint64_t sweep_at_spans = MIN_SWEEP_SPANS;

struct access *
access_ref(struct access *access)
{
	access->refs++;
	return access;
}

void
access_unref(struct access *access)
{
	if (--access->refs == 0)
		free(access);
}

struct access *
access_new(unsigned slot, uint64_t tick)
{
	struct access *access = calloc(1, sizeof(*access));

	if (!access) {
		fprintf(stderr, "cusim: no memory for the happens-before checker\n");
		abort();
	}
	access->refs = 1;
	access->slot = slot;
	access->tick = tick;
	return access;
}

static void
print_name(const struct access *access)
{
	const struct cusim_op *op = &access->op;

	if (access->actor)
		fprintf(stderr, "#%llu (%s)", (unsigned long long)op->seq_submit, access->actor);
	else
		fprintf(stderr, "#%llu (stream %llu)", (unsigned long long)op->seq_submit,
			(unsigned long long)op->stream);
}

static void
print_access(const struct access *access)
{
	const struct cusim_op *op = &access->op;

	fprintf(stderr, "cusim:   op ");
	print_name(access);
	if (!access->actor)
		fprintf(stderr, ": %s, context %llu", report_kind_name(op->kind),
			(unsigned long long)op->context);
	fprintf(stderr, ", thread %llu:", (unsigned long long)op->thread);
	for (unsigned i = 0; i < op->n_ranges; i++)
		fprintf(stderr, " %s 0x%llx+%llu", op->ranges[i].is_write ? "writes" : "reads",
			(unsigned long long)op->ranges[i].addr,
			(unsigned long long)op->ranges[i].size_bytes);
	fprintf(stderr, "\n");
}

/* A pair counts once, however many of its bytes meet. */
static void
report_race(struct access *before, struct access *now, uint64_t addr, uint64_t size_bytes)
{
	if (before->raced_with == now->op.seq_submit)
		return;
	before->raced_with = now->op.seq_submit;
	if (++history_races > MAX_PRINTED)
		return;
	fprintf(stderr, "cusim: race %llu: two accesses to 0x%llx, %llu bytes, are not ordered\n",
		(unsigned long long)history_races, (unsigned long long)addr,
		(unsigned long long)size_bytes);
	print_access(before);
	print_access(now);
	fprintf(stderr, "cusim:   no path from op ");
	print_name(before);
	fprintf(stderr, " to op ");
	print_name(now);
	fprintf(stderr, "\n");
}

static bool
is_race(const struct entry *e, const struct touch *t)
{
	const struct access *before = e->access;

	if (before == t->access || !(e->is_write || t->is_write) || (e->is_atomic && t->is_atomic))
		return false;
	if (t->is_late && before->op.seq_submit > t->access->op.seq_submit)
		return false;
	return clock_tick(t->earlier, before->slot) < before->tick;
}

static bool
is_shown(const struct entry *e)
{
	return clock_tick(order_host(), e->access->slot) >= e->access->tick;
}

static void
prune(struct span *span)
{
	for (unsigned i = span->n; i-- > 0;) {
		if (is_shown(&span->entries[i]))
			span_drop(span, i);
	}
}

/* addr: where, in the accesses' own terms, the span or what of it is touched begins. */
static void
compare(const struct span *span, const struct touch *t, uint64_t addr)
{
	for (unsigned i = 0; i < span->n; i++) {
		if (is_race(&span->entries[i], t))
			report_race(span->entries[i].access, t->access, addr,
				    span->end - span->start);
	}
}

static void
add(struct span *span, const struct touch *t)
{
	for (unsigned i = span->n; i-- > 0;) {
		const struct entry *e = &span->entries[i];
		bool is_alike = e->is_write == t->is_write && e->is_atomic == t->is_atomic;

		if (e->access == t->access && is_alike)
			return;
		if (is_shown(e) ||
		    (is_alike && clock_tick(t->earlier, e->access->slot) >= e->access->tick))
			span_drop(span, i);
	}
	span_add(span, (struct entry){access_ref(t->access), t->is_write, t->is_atomic});
}

/* A plain write: one span is all that is left of start to end. */
static void
replace(uint64_t start, uint64_t end, uint64_t addr, const struct touch *t)
{
	struct span_path path;
	struct span *span = span_seek(start, &path);

	while (span && span->start < end) {
		compare(span, t, addr + (span->start - start));
		span = span_remove(span, &path);
	}
	span = span_insert(start, end, &path);
	add(span, t);
}

static void
extend(uint64_t start, uint64_t end, uint64_t addr, const struct touch *t)
{
	struct span_path path;
	struct span *span = span_seek(start, &path);
	uint64_t at = start, gap_end;

	while (at < end) {
		if (!span || span->start > at) {
			gap_end = span && span->start < end ? span->start : end;
			add(span_insert(at, gap_end, &path), t);
			at = gap_end;
			continue;
		}
		compare(span, t, addr + (at - start));
		add(span, t);
		at = span->end;
		span = span_next(span, &path);
	}
}

/* Drop what says nothing any more, and join neighbours that say the same. */
static void
sweep(void)
{
	struct span_path path;
	struct span *span = span_seek(0, &path), *last = NULL;

	while (span) {
		prune(span);
		if (span->n == 0) {
			span = span_remove(span, &path);
		} else if (last && last->end == span->start && span_is_alike(last, span)) {
			last->end = span->end;
			span = span_remove(span, &path);
		} else {
			last = span;
			span = span_next(span, &path);
		}
	}
	sweep_at_spans = 2 * span_count() + MIN_SWEEP_SPANS;
}

void
history_touch(uint64_t key, uint64_t size_bytes, uint64_t addr, const struct touch *t)
{
	span_split(key);
	span_split(key + size_bytes);
	if (t->is_write && !t->is_atomic && !t->is_late)
		replace(key, key + size_bytes, addr, t);
	else
		extend(key, key + size_bytes, addr, t);
	if (span_count() > sweep_at_spans)
		sweep();
}

void
history_forget(uint64_t start, uint64_t end)
{
	struct span_path path;
	struct span *span;

	span_split(start);
	span_split(end);
	span = span_seek(start, &path);
	while (span && span->start < end)
		span = span_remove(span, &path);
}
