/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * Accesses to memory, compared with those before them (races.c). Two that share bytes, one of them
 * a write, and that no clock orders are a race.
 *
 * History is kept by the page of the device, not by address, so that memory which is mapped twice
 * or moved is followed; host and managed memory goes by address.
 *
 * Locking: sim.lock, as everywhere in the device.
 */

#include <stdint.h>

struct alloc;
struct clock;
struct op;
struct phys;

void races_submit(struct op *op, const struct clock *earlier, unsigned slot, uint64_t tick);

/* The memory is nobody's any more: what its next owner does is after all that was. */
void races_forget(const struct alloc *a);
void races_forget_pages(const struct phys *phys);
