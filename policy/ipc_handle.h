/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * IPC handles of blocks that share a segment.
 *
 * A driver's handle names a whole allocation, and its last 8 bytes are zero and ignored on open
 * (measured). A sealed handle keeps in them which part of the allocation is meant, and, unless that
 * is its beginning, has all other bytes changed by a constant: who knows the seal undoes both, and
 * to the driver of anybody else it is no handle. So an importer gets the right bytes or the
 * driver's error. One that does not know the seal opens a part at the beginning at its right
 * address, and may think it as large as the allocation.
 *
 * The tail, from the highest bit: 12 bits of mark, 16 of the offset in units of 512 bytes, 20 of
 * the size less 1, 16 of the generation, which tells blocks apart that lay at the same place one
 * after the other: programs keep what they opened by the bytes of its handle. Or, for what is
 * larger: 12 bits of another mark, 18 of the offset in units of 64 KiB, 34 of the size less 1, and
 * no generation: what lies at the same place is the same memory of the same allocation.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { IPC_HANDLE_BYTES = 64 };

struct ipc_part {
	size_t offset_bytes, size_bytes; /* in the driver's allocation */
	uint64_t generation;             /* the lowest 16 bits travel, or none */
};

/* False, and nothing has changed: the part does not fit, or the driver uses the tail itself. */
bool ipc_handle_seal(unsigned char handle[IPC_HANDLE_BYTES], const struct ipc_part *part);

/* False, and nothing has changed: it is not sealed. */
bool ipc_handle_unseal(unsigned char handle[IPC_HANDLE_BYTES], struct ipc_part *ret_part);
