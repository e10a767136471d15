/* SPDX-License-Identifier: MIT */
/* Which open files mean that others than the GPU's streams may touch its memory. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "shim/agents.h"

static char folder[] = "/tmp/test_agents_XXXXXX";
static char paths[512][64];
static unsigned n_paths;

static void
setup(void)
{
	cr_assert_not_null(mkdtemp(folder));
}

static void
teardown(void)
{
	for (unsigned i = 0; i < n_paths; i++)
		unlink(paths[i]);
	rmdir(folder);
}

TestSuite(agents, .init = setup, .fini = teardown);

/* As /proc shows an open file. */
static void
open_file(const char *target)
{
	snprintf(paths[n_paths], sizeof(paths[0]), "%s/%u", folder, n_paths);
	cr_assert_eq(symlink(target, paths[n_paths]), 0);
	n_paths++;
}

static void
open_many(void)
{
	for (int i = 0; i < 200; i++) /* more than fit into one answer of the kernel's */
		open_file("/dev/null");
}

Test(agents, there_are_none_among_other_files)
{
	open_many();
	open_file("/dev/nvidia0");
	open_file("/dev/infiniband/rdma_cm");
	open_file("socket:[4711]");
	cr_expect_not(agents_are_open(folder));
}

Test(agents, an_rdma_device_is_one)
{
	open_many();
	open_file("/dev/infiniband/uverbs3");
	open_many();
	cr_expect(agents_are_open(folder));
}

Test(agents, gdrcopy_is_one)
{
	open_file("/dev/gdrdrv");
	cr_expect(agents_are_open(folder));
}

Test(agents, nvidia_fs_is_one)
{
	open_file("/dev/nvidia-fs12");
	cr_expect(agents_are_open(folder));
}

Test(agents, what_cannot_be_read_has_none)
{
	cr_expect_not(agents_are_open("/nowhere"));
}
