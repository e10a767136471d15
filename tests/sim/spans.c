/* SPDX-License-Identifier: MIT */
#include "tests/sim/spans.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct span *first[SPAN_LEVELS];
static uint64_t n_spans;

static struct span **
link_of(struct span_path *path, unsigned level)
{
	return path->last[level] ? &path->last[level]->next[level] : &first[level];
}

uint64_t
span_count(void)
{
	return n_spans;
}

struct span *
span_seek(uint64_t addr, struct span_path *path)
{
	struct span *at = NULL, *next;

	for (unsigned level = SPAN_LEVELS; level-- > 0;) {
		while ((next = at ? at->next[level] : first[level]) && next->end <= addr)
			at = next;
		path->last[level] = at;
	}
	return *link_of(path, 0);
}

struct span *
span_next(struct span *span, struct span_path *path)
{
	for (unsigned level = 0; level < span->n_levels; level++)
		path->last[level] = span;
	return span->next[0];
}

/* Half of the spans have one level, a quarter two, and so on: any fixed sequence does. */
static unsigned
draw_levels(void)
{
	static uint64_t state = 0x9e3779b97f4a7c15;
	unsigned n;

	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	n = 1 + (unsigned)__builtin_ctzll(state | (uint64_t)1 << (SPAN_LEVELS - 1));
	return n;
}

static void
no_memory(void)
{
	fprintf(stderr, "cusim: no memory for the happens-before checker\n");
	abort();
}

struct span *
span_insert(uint64_t start, uint64_t end, struct span_path *path)
{
	unsigned n_levels = draw_levels();
	struct span *span = malloc(sizeof(*span) + n_levels * sizeof(span->next[0]));

	if (!span)
		no_memory();
	*span = (struct span){.start = start, .end = end, .n_levels = n_levels, .capacity = 1};
	span->entries = &span->one;
	for (unsigned level = 0; level < n_levels; level++) {
		span->next[level] = *link_of(path, level);
		*link_of(path, level) = span;
		path->last[level] = span;
	}
	n_spans++;
	return span;
}

struct span *
span_remove(struct span *span, struct span_path *path)
{
	struct span *next = span->next[0];

	for (unsigned level = 0; level < span->n_levels; level++)
		*link_of(path, level) = span->next[level];
	span_clear(span);
	if (span->entries != &span->one)
		free(span->entries);
	free(span);
	n_spans--;
	return next;
}

void
span_split(uint64_t addr)
{
	struct span_path path;
	struct span *left = span_seek(addr, &path), *right;
	uint64_t end;

	if (!left || left->start >= addr)
		return;
	end = left->end;
	left->end = addr;
	span_next(left, &path);
	right = span_insert(addr, end, &path);
	for (unsigned i = 0; i < left->n; i++) {
		access_ref(left->entries[i].access);
		span_add(right, left->entries[i]);
	}
}

bool
span_is_alike(const struct span *a, const struct span *b)
{
	if (a->n != b->n)
		return false;
	for (unsigned i = 0; i < a->n; i++) {
		if (a->entries[i].access != b->entries[i].access ||
		    a->entries[i].is_write != b->entries[i].is_write ||
		    a->entries[i].is_atomic != b->entries[i].is_atomic)
			return false;
	}
	return true;
}

/* Takes the reference over. */
void
span_add(struct span *span, struct entry entry)
{
	struct entry *grown;

	if (span->n == span->capacity) {
		grown = malloc(2 * span->capacity * sizeof(*grown));
		if (!grown)
			no_memory();
		memcpy(grown, span->entries, span->n * sizeof(*grown));
		if (span->entries != &span->one)
			free(span->entries);
		span->entries = grown;
		span->capacity *= 2;
	}
	span->entries[span->n++] = entry;
}

void
span_drop(struct span *span, unsigned i)
{
	access_unref(span->entries[i].access);
	span->entries[i] = span->entries[--span->n];
}

void
span_clear(struct span *span)
{
	while (span->n > 0)
		span_drop(span, span->n - 1);
}
