/* SPDX-License-Identifier: MIT */
#include "tests/sim/races.h"
#include "tests/sim/sim_internal.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/*
 * Pages of a device are pages of a memfd of that size: a page may be mapped at two addresses, and
 * another process can map it too. Device addresses come from one window that is reserved at
 * cuInit(); an address in it that nothing is mapped at faults. Freed addresses are taken again as
 * late as possible, so that a stale pointer meets unmapped memory.
 */

static uint8_t *va_used; /* a byte a page of the window */
static uint64_t va_cursor;

CUresult
phys_init(void)
{
	uint64_t bytes = (uint64_t)64 << 30;
	void *p;

	for (int i = 0; i < sim.n_devices; i++)
		bytes += 4 * sim.devices[i].n_pages * SIM_PAGE;
	p = mmap(NULL, bytes + SIM_PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1,
		 0);
	if (p == MAP_FAILED)
		return CUDA_ERROR_OUT_OF_MEMORY;
	sim.va_base = ((uint64_t)p + SIM_PAGE - 1) & ~(SIM_PAGE - 1);
	sim.va_bytes = bytes;
	va_used = calloc(bytes / SIM_PAGE, 1);
	return va_used ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult
phys_init_device(struct device *dev)
{
	dev->used = calloc(dev->n_pages, 1);
	if (!dev->used)
		return CUDA_ERROR_OUT_OF_MEMORY;
	dev->memfd = memfd_create("cusim-device", MFD_CLOEXEC);
	if (dev->memfd < 0)
		return CUDA_ERROR_OPERATING_SYSTEM;
	if (ftruncate(dev->memfd, (off_t)(dev->n_pages * SIM_PAGE)) != 0)
		return CUDA_ERROR_OPERATING_SYSTEM;
	return CUDA_SUCCESS;
}

/* Host memory by handle is kept like a device's, as much of it as device 0 has. */
struct device *
phys_host(void)
{
	static struct device host = {.is_host = true, .memfd = -1};

	host.n_pages = sim.devices[0].n_pages;
	if (host.memfd < 0 && phys_init_device(&host) != CUDA_SUCCESS)
		return NULL;
	return &host;
}

/* The first run of n free pages, else 0 and *ret_first is the longest run there is. */
static uint64_t
find_run(const struct device *dev, uint64_t n, uint64_t *ret_first)
{
	uint64_t run = 0, best = 0, best_first = 0;

	for (uint64_t i = 0; i < dev->n_pages; i++) {
		run = dev->used[i] ? 0 : run + 1;
		if (run > best) {
			best = run;
			best_first = i + 1 - run;
			if (best == n)
				break;
		}
	}
	*ret_first = best_first;
	return best;
}

CUresult
phys_new(struct device *dev, uint64_t n_pages, struct phys **ret_phys)
{
	struct phys *phys;
	uint64_t left = n_pages, first, n;

	if (n_pages > dev->n_pages - dev->n_used_pages)
		return CUDA_ERROR_OUT_OF_MEMORY;
	phys = calloc(1, sizeof(*phys));
	while (phys && left > 0) {
		struct phys *grown = realloc(
			phys, sizeof(*phys) + (phys->n_extents + 1) * sizeof(phys->extents[0]));

		if (!grown)
			break;
		phys = grown;
		n = find_run(dev, left, &first);
		memset(dev->used + first, 1, n);
		phys->extents[phys->n_extents++] = (struct extent){first, n};
		left -= n;
	}
	if (!phys)
		return CUDA_ERROR_OUT_OF_MEMORY;
	phys->dev = dev;
	phys->refs = 1;
	phys->n_pages = n_pages - left;
	dev->n_used_pages += phys->n_pages;
	if (left > 0) {
		phys_unref(phys);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	*ret_phys = phys;
	return CUDA_SUCCESS;
}

/* The same pages under another handle. */
CUresult
phys_alias(struct phys *of, struct phys **ret_phys)
{
	const size_t n_bytes = sizeof(*of) + of->n_extents * sizeof(of->extents[0]);
	struct phys *phys = malloc(n_bytes);

	if (!phys)
		return CUDA_ERROR_OUT_OF_MEMORY;
	memcpy(phys, of, n_bytes);
	phys->refs = 1;
	phys->n_handles = 0;
	phys->alias_of = of;
	phys_ref(of);
	*ret_phys = phys;
	return CUDA_SUCCESS;
}

void
phys_ref(struct phys *phys)
{
	phys->refs++;
}

void
phys_unref(struct phys *phys)
{
	struct device *dev = phys->dev;

	if (--phys->refs > 0)
		return;
	if (phys->alias_of) {
		phys_unref(phys->alias_of);
		free(phys);
		return;
	}
	races_forget_pages(phys);
	for (unsigned i = 0; i < phys->n_extents; i++) {
		const struct extent *x = &phys->extents[i];

		memset(dev->used + x->first, 0, x->n);
		fallocate(dev->memfd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
			  (off_t)(x->first * SIM_PAGE), (off_t)(x->n * SIM_PAGE));
	}
	dev->n_used_pages -= phys->n_pages;
	free(phys);
}

/* Map n pages of phys, from its page number offset on, at addr (reserved, nothing mapped there). */
CUresult
phys_map(struct phys *phys, uint64_t addr, uint64_t offset_pages, uint64_t n_pages, int prot)
{
	uint64_t done = 0;

	for (unsigned i = 0; i < phys->n_extents && done < n_pages; i++) {
		struct extent x = phys->extents[i];
		void *at = (void *)(addr + done * SIM_PAGE);

		if (offset_pages >= x.n) {
			offset_pages -= x.n;
			continue;
		}
		x.first += offset_pages;
		x.n -= offset_pages;
		offset_pages = 0;
		if (x.n > n_pages - done)
			x.n = n_pages - done;
		if (mmap(at, x.n * SIM_PAGE, prot, MAP_SHARED | MAP_FIXED, phys->dev->memfd,
			 (off_t)(x.first * SIM_PAGE)) == MAP_FAILED) {
			phys_unmap(addr, done);
			return CUDA_ERROR_OUT_OF_MEMORY;
		}
		done += x.n;
	}
	return CUDA_SUCCESS;
}

void
phys_unmap(uint64_t addr, uint64_t n_pages)
{
	if (n_pages > 0)
		mmap((void *)addr, n_pages * SIM_PAGE, PROT_NONE,
		     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
}

static bool
take_between(uint64_t from, uint64_t to, uint64_t n_pages, uint64_t step, uint64_t *ret_first)
{
	uint64_t base_page = sim.va_base / SIM_PAGE;
	uint64_t at = from;

	while (n_pages <= to && at <= to - n_pages) {
		uint64_t n = 0;

		if ((base_page + at) % step != 0) {
			at += step - (base_page + at) % step;
			continue;
		}
		while (n < n_pages && !va_used[at + n])
			n++;
		if (n == n_pages) {
			*ret_first = at;
			return true;
		}
		at += n + 1;
	}
	return false;
}

CUresult
va_take(uint64_t n_pages, uint64_t align_bytes, uint64_t *ret_addr)
{
	uint64_t total = sim.va_bytes / SIM_PAGE, first;
	uint64_t step = align_bytes > SIM_PAGE ? align_bytes / SIM_PAGE : 1;

	if (!take_between(va_cursor, total, n_pages, step, &first) &&
	    !take_between(0, total, n_pages, step, &first))
		return CUDA_ERROR_OUT_OF_MEMORY;
	memset(va_used + first, 1, n_pages);
	va_cursor = first + n_pages;
	*ret_addr = sim.va_base + first * SIM_PAGE;
	return CUDA_SUCCESS;
}

void
va_give(uint64_t addr, uint64_t n_pages)
{
	memset(va_used + (addr - sim.va_base) / SIM_PAGE, 0, n_pages);
}

bool
va_is_device(uint64_t addr)
{
	return addr - sim.va_base < sim.va_bytes || vmm_is_reserved(addr);
}
