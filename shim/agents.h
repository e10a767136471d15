/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * Device files through which others than the GPU's streams reach its memory: network cards (RDMA),
 * GDRCopy, nvidia-fs. Who has one open may let them touch any memory of the pool, and they follow
 * no stream.
 *
 * Locking: none. No allocation.
 */
#include <stdbool.h>

/* Does a link in the folder (/proc/self/fd) lead to one of them? False where it cannot be read. */
bool agents_are_open(const char *folder);
