/* SPDX-License-Identifier: MIT */
#include "policy/ipc_handle.h"

#include <string.h>

enum {
	TAIL_AT = IPC_HANDLE_BYTES - 8,
	UNIT_BYTES = 512,
	MARK = 0x5ea,
	OFFSET_BITS = 16,
	SIZE_BITS = 20,
	GENERATION_BITS = 16,
};

/* Its own inverse. No byte stays as it is: 7 i is never 0xc3 below 64. */
static void
scramble(unsigned char handle[IPC_HANDLE_BYTES])
{
	for (unsigned i = 0; i < TAIL_AT; i++)
		handle[i] ^= (unsigned char)(0xc3 ^ (i * 7));
}

static uint64_t
low_bits(uint64_t value, unsigned n_bits)
{
	return value & ((UINT64_C(1) << n_bits) - 1);
}

bool
ipc_handle_seal(unsigned char handle[IPC_HANDLE_BYTES], const struct ipc_part *part)
{
	uint64_t tail;

	memcpy(&tail, handle + TAIL_AT, sizeof(tail));
	if (tail != 0 || part->offset_bytes % UNIT_BYTES || part->size_bytes == 0 ||
	    part->offset_bytes / UNIT_BYTES >> OFFSET_BITS || (part->size_bytes - 1) >> SIZE_BITS)
		return false;
	tail = MARK;
	tail = tail << OFFSET_BITS | part->offset_bytes / UNIT_BYTES;
	tail = tail << SIZE_BITS | (part->size_bytes - 1);
	tail = tail << GENERATION_BITS | low_bits(part->generation, GENERATION_BITS);
	memcpy(handle + TAIL_AT, &tail, sizeof(tail));
	if (part->offset_bytes != 0)
		scramble(handle);
	return true;
}

bool
ipc_handle_unseal(unsigned char handle[IPC_HANDLE_BYTES], struct ipc_part *ret_part)
{
	uint64_t tail;

	memcpy(&tail, handle + TAIL_AT, sizeof(tail));
	if (tail >> (OFFSET_BITS + SIZE_BITS + GENERATION_BITS) != MARK)
		return false;
	ret_part->generation = low_bits(tail, GENERATION_BITS);
	tail >>= GENERATION_BITS;
	ret_part->size_bytes = low_bits(tail, SIZE_BITS) + 1;
	tail >>= SIZE_BITS;
	ret_part->offset_bytes = low_bits(tail, OFFSET_BITS) * UNIT_BYTES;
	memset(handle + TAIL_AT, 0, sizeof(tail));
	if (ret_part->offset_bytes != 0)
		scramble(handle);
	return true;
}
