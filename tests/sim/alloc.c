/* SPDX-License-Identifier: MIT */
#include "tests/sim/races.h"
#include "tests/sim/sim_internal.h"

#include <search.h>
#include <stdlib.h>
#include <sys/mman.h>

/*
 * Every allocation of every kind, by address. Requests below one page are carved, 512-aligned,
 * from chunks of one page; an empty chunk goes back at once, so the memory info moves by whole
 * pages. Larger requests take pages of their own.
 */

static void *root;

/* Ranges that overlap are equal: a key of one byte finds the allocation around it. */
static int
compare(const void *a, const void *b)
{
	const struct alloc *x = a, *y = b;

	if (x->base + x->span_bytes <= y->base)
		return -1;
	return x->base >= y->base + y->span_bytes;
}

struct alloc *
alloc_find(uint64_t addr)
{
	struct alloc key = {.base = addr, .span_bytes = 1};
	struct alloc **found = addr == UINT64_MAX ? NULL : tfind(&key, &root, compare);

	return found ? *found : NULL;
}

/* What lies behind the requested bytes is nobody's to whoever asks about an address (measured). */
struct alloc *
alloc_find_requested(uint64_t addr)
{
	struct alloc *a = alloc_find(addr);

	return a && addr - a->base < a->size_bytes ? a : NULL;
}

CUresult
alloc_insert(const struct alloc *init, struct alloc **ret_alloc)
{
	struct alloc *a = malloc(sizeof(*a)), **found;

	if (!a)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*a = *init;
	a->id = ++sim.next_id;
	found = tsearch(a, &root, compare);
	if (!found || *found != a) {
		free(a);
		return found ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_OUT_OF_MEMORY;
	}
	sim.n_allocs++;
	*ret_alloc = a;
	return CUDA_SUCCESS;
}

void
alloc_remove(struct alloc *a)
{
	tdelete(a, &root, compare);
	sim.n_allocs--;
	free(a);
}

struct visit {
	bool (*fn)(struct alloc *a, void *arg);
	void *arg;
	struct alloc *found;
};

static void
visit_node(const void *node, VISIT order, void *closure)
{
	struct visit *visit = closure;
	struct alloc *a = *(struct alloc *const *)node;

	if ((order == postorder || order == leaf) && !visit->found && visit->fn(a, visit->arg))
		visit->found = a;
}

/* Calls visit until it says true; visit must not add or remove. */
static struct alloc *
first_where(bool (*fn)(struct alloc *a, void *arg), void *arg)
{
	struct visit visit = {fn, arg, NULL};

	twalk_r(root, visit_node, &visit);
	return visit.found;
}

void
alloc_for_each(bool (*fn)(struct alloc *a, void *arg), void *arg)
{
	first_where(fn, arg);
}

static bool
belongs_to(struct alloc *a, void *ctx)
{
	/* Mappings of cuMemCreate handles belong to the process, and pool memory to the device. */
	return a->ctx == ctx && a->kind != ALLOC_VMM && a->kind != ALLOC_ASYNC;
}

void
alloc_close_context(struct CUctx_st *ctx)
{
	struct alloc *a;

	while ((a = first_where(belongs_to, ctx)))
		alloc_release(a);
}

static bool
bit(const struct chunk *c, unsigned i)
{
	return c->used[i / 64] >> (i % 64) & 1;
}

static void
mark(struct chunk *c, unsigned first, unsigned n, bool is_used)
{
	for (unsigned i = first; i < first + n; i++) {
		if (is_used)
			c->used[i / 64] |= (uint64_t)1 << (i % 64);
		else
			c->used[i / 64] &= ~((uint64_t)1 << (i % 64));
	}
	c->n_free += is_used ? -n : n;
}

/* First fit inside a chunk. */
static bool
carve(struct chunk *c, unsigned n, unsigned *ret_first)
{
	unsigned run = 0;

	if (c->n_free < n)
		return false;
	for (unsigned i = 0; i < CHUNK_UNITS; i++) {
		if (i % 64 == 0 && c->used[i / 64] == UINT64_MAX) {
			run = 0;
			i += 63;
			continue;
		}
		run = bit(c, i) ? 0 : run + 1;
		if (run == n) {
			*ret_first = i + 1 - n;
			mark(c, *ret_first, n, true);
			return true;
		}
	}
	return false;
}

static CUresult
map_pages(struct arena *arena, uint64_t n_pages, struct phys **ret_phys, uint64_t *ret_addr)
{
	struct phys *phys;
	uint64_t addr;
	CUresult r;

	r = phys_new(arena->dev, n_pages, &phys);
	if (r != CUDA_SUCCESS)
		return r;
	r = va_take(n_pages, SIM_PAGE, &addr);
	if (r != CUDA_SUCCESS)
		goto undo_phys;
	r = phys_map(phys, addr, 0, n_pages, PROT_READ | PROT_WRITE);
	if (r != CUDA_SUCCESS)
		goto undo_va;
	arena->n_pages += n_pages;
	*ret_phys = phys;
	*ret_addr = addr;
	return CUDA_SUCCESS;

undo_va:
	va_give(addr, n_pages);
undo_phys:
	phys_unref(phys);
	return r;
}

static void
unmap_pages(struct arena *arena, struct phys *phys, uint64_t addr)
{
	arena->n_pages -= phys->n_pages;
	phys_unmap(addr, phys->n_pages);
	va_give(addr, phys->n_pages);
	phys_unref(phys);
}

static CUresult
chunk_new(struct arena *arena, struct chunk **ret_chunk)
{
	struct chunk *c = calloc(1, sizeof(*c));
	CUresult r;

	if (!c)
		return CUDA_ERROR_OUT_OF_MEMORY;
	r = map_pages(arena, 1, &c->phys, &c->base);
	if (r != CUDA_SUCCESS) {
		free(c);
		return r;
	}
	c->arena = arena;
	c->n_free = CHUNK_UNITS;
	c->next = arena->chunks;
	arena->chunks = c;
	*ret_chunk = c;
	return CUDA_SUCCESS;
}

static void
chunk_free(struct chunk *c)
{
	struct chunk **link = &c->arena->chunks;

	while (*link != c)
		link = &(*link)->next;
	*link = c->next;
	unmap_pages(c->arena, c->phys, c->base);
	free(c);
}

static CUresult
take_small(struct arena *arena, struct alloc *init)
{
	unsigned n = (unsigned)((init->size_bytes + SIM_UNIT - 1) / SIM_UNIT), first = 0;
	struct chunk *c;
	CUresult r;

	for (c = arena->chunks; c; c = c->next) {
		if (carve(c, n, &first))
			break;
	}
	if (!c) {
		r = chunk_new(arena, &c);
		if (r != CUDA_SUCCESS)
			return r;
		carve(c, n, &first);
	}
	init->chunk = c;
	init->base = c->base + first * SIM_UNIT;
	init->span_bytes = n * SIM_UNIT;
	return CUDA_SUCCESS;
}

static void
give_back(struct arena *arena, const struct alloc *a)
{
	if (!a->chunk) {
		unmap_pages(arena, a->phys, a->base);
		return;
	}
	mark(a->chunk, (unsigned)((a->base - a->chunk->base) / SIM_UNIT),
	     (unsigned)(a->span_bytes / SIM_UNIT), false);
	if (a->chunk->n_free == CHUNK_UNITS)
		chunk_free(a->chunk);
}

/* Memory of the arena's device; init says kind, context and pool. */
CUresult
alloc_device(struct arena *arena, uint64_t size_bytes, struct alloc *init, struct alloc **ret_alloc)
{
	CUresult r;

	init->dev = arena->dev;
	init->size_bytes = size_bytes;
	if (size_bytes > arena->dev->n_pages * SIM_PAGE)
		return CUDA_ERROR_OUT_OF_MEMORY;
	if (size_bytes < SIM_PAGE) {
		r = take_small(arena, init);
	} else {
		init->span_bytes = (size_bytes + SIM_PAGE - 1) & ~(SIM_PAGE - 1);
		r = map_pages(arena, init->span_bytes / SIM_PAGE, &init->phys, &init->base);
	}
	if (r != CUDA_SUCCESS)
		return r;
	r = alloc_insert(init, ret_alloc);
	if (r != CUDA_SUCCESS)
		give_back(arena, init);
	return r;
}

/* Take an allocation of any kind out of existence. The caller has waited as its kind demands. */
void
alloc_release(struct alloc *a)
{
	races_forget(a);
	switch (a->kind) {
	case ALLOC_DEVICE:
		give_back(a->chunk ? a->chunk->arena : &a->ctx->arena, a);
		break;
	case ALLOC_ASYNC:
		pool_note_free(a);
		give_back(&a->pool->arena, a);
		break;
	case ALLOC_MANAGED:
		phys_unmap(a->base, a->span_bytes / SIM_PAGE);
		va_give(a->base, a->span_bytes / SIM_PAGE);
		break;
	case ALLOC_HOST:
	case ALLOC_REGISTERED:
		host_release(a);
		break;
	case ALLOC_IPC:
		ipc_release(a);
		break;
	case ALLOC_VMM:
		phys_unref(a->phys);
		break;
	case ALLOC_POOL_IMPORT:
		share_release(a);
		break;
	}
	alloc_remove(a);
}

/* Neighbours count as one: hardware checks pages, not the ends of allocations. */
bool
alloc_covers(uint64_t addr, uint64_t size_bytes, bool device_only)
{
	uint64_t end = addr + size_bytes;

	if (!device_only && !va_is_device(addr))
		return true;
	while (addr < end) {
		const struct alloc *a = alloc_find(addr);

		if (!a || (a->kind == ALLOC_VMM && a->access == 0))
			return false;
		addr = a->base + a->span_bytes;
	}
	return true;
}
