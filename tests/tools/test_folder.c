/* SPDX-License-Identifier: MIT */
/*
 * What `poolshim list` removes from this user's own folder: blocks of ended processes beyond the
 * newest ones. Here in a folder of its own.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <glib.h>
#include <glib/gstdio.h>

#include "tools/folder.h"

enum {
	GONE_PID = 4194305, /* above the kernel's largest */
	N_ENDED = STATS_ABI_N_KEPT + 5,
};

static char *folder;

static void
setup(void)
{
	folder = g_dir_make_tmp("poolshim-test-XXXXXX", NULL);
	cr_assert_not_null(folder, "no folder to test in");
}

static void
teardown(void)
{
	g_autoptr(GDir) dir = g_dir_open(folder, 0, NULL);
	const char *name;

	while ((name = g_dir_read_name(dir))) {
		g_autofree char *path = g_build_filename(folder, name, NULL);

		g_unlink(path);
	}
	g_rmdir(folder);
	g_free(folder);
}

TestSuite(folder, .init = setup, .fini = teardown, .timeout = 30);

static char *
path_of(uint32_t pid)
{
	g_autofree char *name = g_strdup_printf(STATS_ABI_FILE, pid, 5ULL);

	return g_build_filename(folder, name, NULL);
}

static void
write_block(uint32_t pid, uint64_t ended_ns)
{
	struct stats_abi_header header = {
		.version = STATS_ABI_VERSION,
		.header_bytes = sizeof(header),
		.file_bytes = sizeof(header),
		.pid = pid,
		.start_ticks = 5,
		.is_ready = 1,
		.created_ns = pid,
		.sections_offset = sizeof(header),
		.section_bytes = sizeof(struct stats_abi_section),
		.fields_offset = sizeof(header),
		.field_bytes = sizeof(struct stats_abi_field),
	};
	g_autofree char *path = path_of(pid);

	memcpy(header.magic, STATS_ABI_MAGIC, sizeof(header.magic));
	header.ended_seen_ns = ended_ns;
	cr_assert(g_file_set_contents(path, (const char *)&header, sizeof(header), NULL),
		  "no file");
}

static bool
is_there(uint32_t pid)
{
	g_autofree char *path = path_of(pid);

	return g_file_test(path, G_FILE_TEST_EXISTS);
}

Test(folder, those_that_ended_first_are_removed)
{
	g_autoptr(GPtrArray) blocks = NULL;

	for (uint32_t i = 0; i < N_ENDED; i++)
		write_block(GONE_PID + i, 1000 - i); /* the order of pids is the other way round */
	blocks = folder_read(folder, "test");
	cr_assert_eq(blocks->len, N_ENDED, "%u of %d blocks were read", blocks->len, N_ENDED);
	folder_clean(blocks);
	cr_expect_eq(blocks->len, STATS_ABI_N_KEPT, "%u blocks are listed", blocks->len);
	for (uint32_t i = 0; i < N_ENDED; i++)
		cr_expect_eq(is_there(GONE_PID + i), i < STATS_ABI_N_KEPT, "block %u, by its end",
			     i);
}

Test(folder, one_that_has_just_ended_is_kept_and_marked)
{
	g_autoptr(GPtrArray) blocks = NULL;
	g_autofree char *path = path_of(GONE_PID);
	struct block *block;
	const char *why;

	write_block(GONE_PID, 0);
	for (uint32_t i = 1; i <= STATS_ABI_N_KEPT; i++)
		write_block(GONE_PID + i, 1000 + i);
	blocks = folder_read(folder, "test");
	folder_clean(blocks);
	cr_assert(is_there(GONE_PID), "nobody could have read it");
	cr_expect_not(is_there(GONE_PID + 1), "the oldest end is still there");
	block = block_read(path, &why);
	cr_assert_not_null(block, "the mark has damaged it: %s", why);
	cr_expect_gt(block->header.ended_seen_ns, 2000, "nobody wrote down that it was seen");
	block_free(block);
}

Test(folder, other_files_are_left_alone)
{
	g_autofree char *notes = g_build_filename(folder, "notes", NULL);
	g_autofree char *damaged = path_of(GONE_PID);
	g_autoptr(GPtrArray) blocks = NULL;

	g_file_set_contents(notes, "x", 1, NULL);
	g_file_set_contents(damaged, "x", 1, NULL);
	blocks = folder_read(folder, "test");
	folder_clean(blocks);
	cr_expect_eq(blocks->len, 0, "a file that is no block is listed");
	cr_expect(g_file_test(notes, G_FILE_TEST_EXISTS), "a foreign file was removed");
	cr_expect(is_there(GONE_PID), "a file that this version does not know was removed");
}
