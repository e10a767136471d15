/* SPDX-License-Identifier: MIT */
#include "policy/ipc_handle.h"

#include <string.h>

enum {
	TAIL_AT = IPC_HANDLE_BYTES - 8,
	MARK_BITS = 12,
};

/* How a tail is cut. */
static const struct form {
	uint64_t mark;
	size_t unit_bytes; /* of the offset */
	unsigned offset_bits, size_bits, generation_bits;
} forms[] = {
	{0x5ea, 512, 16, 20, 16},
	{0x5eb, 64 << 10, 18, 34, 0},
};

enum { N_FORMS = sizeof(forms) / sizeof(forms[0]) };

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

static bool
fits(const struct form *form, const struct ipc_part *part)
{
	return part->offset_bytes % form->unit_bytes == 0 &&
	       part->offset_bytes / form->unit_bytes >> form->offset_bits == 0 &&
	       (part->size_bytes - 1) >> form->size_bits == 0;
}

static uint64_t
pack(const struct form *form, const struct ipc_part *part)
{
	uint64_t tail = form->mark;

	tail = tail << form->offset_bits | part->offset_bytes / form->unit_bytes;
	tail = tail << form->size_bits | (part->size_bytes - 1);
	return tail << form->generation_bits | low_bits(part->generation, form->generation_bits);
}

static void
unpack(const struct form *form, uint64_t tail, struct ipc_part *ret_part)
{
	ret_part->generation = low_bits(tail, form->generation_bits);
	tail >>= form->generation_bits;
	ret_part->size_bytes = low_bits(tail, form->size_bits) + 1;
	tail >>= form->size_bits;
	ret_part->offset_bytes = low_bits(tail, form->offset_bits) * form->unit_bytes;
}

bool
ipc_handle_seal(unsigned char handle[IPC_HANDLE_BYTES], const struct ipc_part *part)
{
	const struct form *form = forms;
	uint64_t tail;

	memcpy(&tail, handle + TAIL_AT, sizeof(tail));
	if (tail != 0 || part->size_bytes == 0)
		return false;
	while (form < forms + N_FORMS && !fits(form, part))
		form++;
	if (form == forms + N_FORMS)
		return false;
	tail = pack(form, part);
	memcpy(handle + TAIL_AT, &tail, sizeof(tail));
	if (part->offset_bytes != 0)
		scramble(handle);
	return true;
}

bool
ipc_handle_unseal(unsigned char handle[IPC_HANDLE_BYTES], struct ipc_part *ret_part)
{
	const struct form *form = forms;
	uint64_t tail;

	memcpy(&tail, handle + TAIL_AT, sizeof(tail));
	while (form < forms + N_FORMS && tail >> (64 - MARK_BITS) != form->mark)
		form++;
	if (form == forms + N_FORMS)
		return false;
	unpack(form, tail, ret_part);
	memset(handle + TAIL_AT, 0, sizeof(tail));
	if (ret_part->offset_bytes != 0)
		scramble(handle);
	return true;
}
