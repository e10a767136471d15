/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * Pages of devices, and the window of addresses that device memory lives in (phys.c).
 *
 * Locking: sim.lock, as everywhere in the device.
 */
#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>

struct device;

struct extent {
	uint64_t first, n; /* pages of the device */
};

/* Pages of one device, in as few runs as there were. */
struct phys {
	struct device *dev;
	struct phys *alias_of; /* the pages are that one's: an import of it; or NULL */
	unsigned refs;
	unsigned n_handles; /* references that the program holds, of refs */
	unsigned n_extents;
	uint64_t n_pages;
	struct extent extents[];
};

CUresult phys_init(void);
CUresult phys_init_device(struct device *dev);
struct device *phys_host(void); /* NULL: there is no memory for it */
CUresult phys_alias(struct phys *of, struct phys **ret_phys);
CUresult phys_new(struct device *dev, uint64_t n_pages, struct phys **ret_phys);
void phys_ref(struct phys *phys);
void phys_unref(struct phys *phys);
CUresult phys_map(struct phys *phys, uint64_t addr, uint64_t offset_pages, uint64_t n_pages,
		  int prot);
void phys_unmap(uint64_t addr, uint64_t n_pages);
CUresult va_take(uint64_t n_pages, uint64_t align_bytes, uint64_t *ret_addr);
void va_give(uint64_t addr, uint64_t n_pages);
bool va_is_device(uint64_t addr);
