/* SPDX-License-Identifier: MIT */
#include "policy/ipc_handle.h"

#include <criterion/criterion.h>
#include <string.h>

#include "tests/support/rows.h"

enum { TAIL_AT = IPC_HANDLE_BYTES - 8 };

/* Like a driver's: no two bytes alike, and a tail of zeros. */
static void
make_handle(unsigned char handle[IPC_HANDLE_BYTES])
{
	memset(handle, 0, IPC_HANDLE_BYTES);
	for (unsigned char i = 0; i < TAIL_AT; i++)
		handle[i] = (unsigned char)(i + 1);
}

static const struct part_case {
	struct ipc_part part;
	bool fits;
} parts[] = {
	{{0, 1, 0}, true},
	{{0, 1000, 7}, true},
	{{512, 1000, 7}, true},
	{{(2 << 20) - 512, 512, 65535}, true},
	{{1 << 20, 1 << 20, 1}, true},
	{{65535 * 512, 1 << 20, 65535}, true},
	{{65536 * 512, 512, 0}, true},
	{{513, 512, 0}, false},
	{{512, 0, 0}, false},
	{{512, (1 << 20) + 1, 0}, false},
	{{64 << 10, (1 << 20) + 1, 0}, true},
	{{((size_t)1 << 34) - (64 << 10), (size_t)1 << 34, 0}, true},
	{{(size_t)1 << 34, 2 << 20, 0}, false},
	{{0, ((size_t)1 << 34) + 1, 0}, false},
};

TEST_ROWS(ipc_handle, a_part_comes_back_as_it_was_sealed, parts)
{
	const struct part_case *c = &parts[*row];
	unsigned char handle[IPC_HANDLE_BYTES], before[IPC_HANDLE_BYTES];
	struct ipc_part part = {0};

	make_handle(before);
	memcpy(handle, before, sizeof(handle));
	cr_assert_eq(ipc_handle_seal(handle, &c->part), c->fits, "row %zu", *row);
	if (!c->fits) {
		cr_expect_arr_eq(handle, before, sizeof(handle), "a refusal changed the handle");
		return;
	}
	cr_assert(ipc_handle_unseal(handle, &part), "row %zu is no seal", *row);
	cr_expect_arr_eq(handle, before, sizeof(handle), "the driver's handle is lost");
	cr_expect_eq(part.offset_bytes, c->part.offset_bytes);
	cr_expect_eq(part.size_bytes, c->part.size_bytes);
	cr_expect_eq(part.generation, c->part.generation);
}

/* Of the bytes that a driver looks at nobody knows which: so none may stay as it is. */
Test(ipc_handle, a_part_at_an_offset_is_no_handle_to_the_driver)
{
	unsigned char handle[IPC_HANDLE_BYTES], before[IPC_HANDLE_BYTES];

	make_handle(before);
	memcpy(handle, before, sizeof(handle));
	cr_assert(ipc_handle_seal(handle, &(struct ipc_part){512, 512, 1}));
	for (size_t i = 0; i < TAIL_AT; i++)
		cr_expect_neq(handle[i], before[i], "byte %zu stayed", i);
}

Test(ipc_handle, a_part_at_the_beginning_is_the_drivers_handle_but_for_its_tail)
{
	unsigned char handle[IPC_HANDLE_BYTES], before[IPC_HANDLE_BYTES];

	make_handle(before);
	memcpy(handle, before, sizeof(handle));
	cr_assert(ipc_handle_seal(handle, &(struct ipc_part){0, 512, 1}));
	cr_expect_arr_eq(handle, before, TAIL_AT, "who does not know the seal cannot open it");
}

Test(ipc_handle, a_driver_that_uses_the_tail_keeps_it)
{
	unsigned char handle[IPC_HANDLE_BYTES];

	make_handle(handle);
	handle[IPC_HANDLE_BYTES - 1] = 1;
	cr_expect_not(ipc_handle_seal(handle, &(struct ipc_part){512, 512, 1}));
}

Test(ipc_handle, a_drivers_handle_is_not_sealed)
{
	unsigned char handle[IPC_HANDLE_BYTES], before[IPC_HANDLE_BYTES];
	struct ipc_part part;

	make_handle(before);
	memcpy(handle, before, sizeof(handle));
	cr_expect_not(ipc_handle_unseal(handle, &part));
	cr_expect_arr_eq(handle, before, sizeof(handle), "a driver's handle was changed");
}

Test(ipc_handle, blocks_that_lay_at_one_place_have_handles_of_their_own)
{
	unsigned char first[IPC_HANDLE_BYTES], second[IPC_HANDLE_BYTES];

	make_handle(first);
	make_handle(second);
	cr_assert(ipc_handle_seal(first, &(struct ipc_part){512, 512, 1}));
	cr_assert(ipc_handle_seal(second, &(struct ipc_part){512, 512, 2}));
	cr_expect_arr_neq(first, second, sizeof(first), "the importer takes one for the other");
}
