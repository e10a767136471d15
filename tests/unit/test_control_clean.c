/* SPDX-License-Identifier: MIT */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "shim/control.h"
#include "shim/proc.h"

enum {
	GONE_PID = 4194305, /* above the kernel's largest */
	N_ENDED = STATS_ABI_N_KEPT + 5,
	NAMESPACE = 4711,
};

static const char boot_id[] = "this boot";
static char folder[] = "/tmp/poolshim-test-XXXXXX";
static int folder_fd;

static void
setup(void)
{
	cr_assert_not_null(mkdtemp(folder), "no folder to test in");
	folder_fd = open(folder, O_RDONLY | O_DIRECTORY);
	cr_assert_geq(folder_fd, 0, "the folder cannot be opened");
}

static void
teardown(void)
{
	char command[sizeof(folder) + 16];

	close(folder_fd);
	snprintf(command, sizeof(command), "rm -rf %s", folder);
	cr_expect_eq(system(command), 0, "the folder was not removed");
}

TestSuite(control_clean, .init = setup, .fini = teardown, .timeout = 30);

static void
write_file(const char *name, const void *bytes, size_t n_bytes)
{
	const int fd = openat(folder_fd, name, O_WRONLY | O_CREAT | O_TRUNC, 0600);

	cr_assert_geq(fd, 0, "no file");
	cr_assert_eq(write(fd, bytes, n_bytes), (ssize_t)n_bytes, "a short write");
	close(fd);
}

static void
write_block(uint32_t pid, uint64_t ticks, uint64_t ended_ns, uint64_t pid_namespace,
	    const char *boot)
{
	struct stats_abi_header header = {.version = STATS_ABI_VERSION,
					  .pid = pid,
					  .start_ticks = ticks,
					  .pid_namespace = pid_namespace,
					  .is_ready = 1};
	char name[64];

	memcpy(header.magic, STATS_ABI_MAGIC, sizeof(header.magic));
	strcpy(header.boot_id, boot);
	atomic_store(&header.ended_seen_ns, ended_ns);
	snprintf(name, sizeof(name), STATS_ABI_FILE, pid, (unsigned long long)ticks);
	write_file(name, &header, sizeof(header));
}

static bool
is_there(uint32_t pid, uint64_t ticks)
{
	char name[64];

	snprintf(name, sizeof(name), STATS_ABI_FILE, pid, (unsigned long long)ticks);
	return faccessat(folder_fd, name, F_OK, 0) == 0;
}

static uint64_t
ended_ns(uint32_t pid, uint64_t ticks)
{
	struct stats_abi_header header;
	char name[64];
	int fd;

	snprintf(name, sizeof(name), STATS_ABI_FILE, pid, (unsigned long long)ticks);
	fd = openat(folder_fd, name, O_RDONLY);
	cr_assert_eq(read(fd, &header, sizeof(header)), (ssize_t)sizeof(header), "no header");
	close(fd);
	return atomic_load(&header.ended_seen_ns);
}

static void
clean(void)
{
	control_clean(folder_fd, NAMESPACE, boot_id);
}

Test(control_clean, those_that_ended_first_go_first)
{
	/* Their order of start is the other way round. */
	for (unsigned i = 0; i < N_ENDED; i++)
		write_block(GONE_PID + i, 1000 - i, 100 + i, NAMESPACE, boot_id);
	clean();
	for (unsigned i = 0; i < N_ENDED; i++)
		cr_expect_eq(is_there(GONE_PID + i, 1000 - i), i >= N_ENDED - STATS_ABI_N_KEPT,
			     "block %u of %d, by their end", i, N_ENDED);
}

Test(control_clean, one_that_has_just_ended_is_kept_before_all_that_were_seen)
{
	for (unsigned i = 0; i < STATS_ABI_N_KEPT; i++)
		write_block(GONE_PID + i, 5, 100 + i, NAMESPACE, boot_id);
	write_block(GONE_PID + 1000, 1, 0, NAMESPACE, boot_id); /* the oldest of all, ended now */
	clean();
	cr_expect(is_there(GONE_PID + 1000, 1), "nobody could have read it");
	cr_expect_gt(ended_ns(GONE_PID + 1000, 1), 100 + STATS_ABI_N_KEPT,
		     "nobody wrote down that it was seen");
	cr_expect_not(is_there(GONE_PID, 5), "the oldest end is still there");
}

Test(control_clean, running_processes_keep_theirs)
{
	uint64_t ticks;
	uint32_t pid;

	cr_assert_eq(proc_read_stat("self", &pid, &ticks), 0, "no /proc");
	cr_assert_eq(pid, (uint32_t)getpid(), "another process's /proc");
	write_block(pid, ticks, 0, NAMESPACE, boot_id);
	for (unsigned i = 0; i < N_ENDED; i++)
		write_block(GONE_PID + i, 5, 0, NAMESPACE, boot_id);
	clean();
	cr_expect(is_there(pid, ticks), "a running process lost its block");
	cr_expect_eq(ended_ns(pid, ticks), 0, "a running process was marked as ended");
}

Test(control_clean, a_pid_that_is_used_again_is_another_process)
{
	uint64_t ticks;
	uint32_t pid;

	cr_assert_eq(proc_read_stat("self", &pid, &ticks), 0, "no /proc");
	write_block(pid, ticks + 1, 0, NAMESPACE, boot_id);
	clean();
	cr_expect_neq(ended_ns(pid, ticks + 1), 0, "the pid alone was looked at");
}

Test(control_clean, another_pid_namespace_is_left_alone)
{
	for (unsigned i = 0; i < N_ENDED; i++)
		write_block(GONE_PID + i, 5, 0, NAMESPACE + 1, boot_id);
	clean();
	for (unsigned i = 0; i < N_ENDED; i++)
		cr_expect(is_there(GONE_PID + i, 5) && ended_ns(GONE_PID + i, 5) == 0,
			  "pid %u means nothing here", GONE_PID + i);
}

Test(control_clean, an_earlier_boot_has_ended_for_all_namespaces)
{
	write_block(GONE_PID, 5, 0, NAMESPACE + 1, "another boot");
	clean();
	cr_expect_neq(ended_ns(GONE_PID, 5), 0, "it counts as running");
}

Test(control_clean, what_is_no_block_counts_too_and_other_names_do_not)
{
	char name[64];

	write_file("notes", "x", 1);
	write_file("4194305-05", "x", 1);
	write_file("4194305-5x", "x", 1);
	cr_assert_eq(symlinkat("/etc/passwd", folder_fd, "4194306-5"), 0, "no link");
	cr_assert_eq(mkfifoat(folder_fd, "4194307-5", 0600), 0, "no FIFO");
	for (unsigned i = 0; i < N_ENDED; i++) {
		snprintf(name, sizeof(name), "%u-9", GONE_PID + 100 + i);
		write_file(name, "garbage", 7);
	}
	for (unsigned i = 0; i < STATS_ABI_N_KEPT; i++)
		write_block(GONE_PID + 500 + i, 5, 0, NAMESPACE, boot_id);
	clean();
	cr_expect_eq(faccessat(folder_fd, "notes", F_OK, 0), 0, "a foreign file was removed");
	cr_expect_eq(faccessat(folder_fd, "4194305-05", F_OK, 0), 0, "a foreign file was removed");
	cr_expect_eq(faccessat(folder_fd, "4194305-5x", F_OK, 0), 0, "a foreign file was removed");
	for (unsigned i = 0; i < STATS_ABI_N_KEPT; i++)
		cr_expect(is_there(GONE_PID + 500 + i, 5), "garbage was kept in place of a block");
}

Test(control_clean, start_times_are_read_behind_any_name)
{
	uint64_t ticks = 0;
	uint32_t pid;

	cr_expect_eq(proc_read_stat("4194305", &pid, &ticks), -ENOENT,
		     "a process that does not exist was found");
	cr_assert_eq(proc_read_stat("1", &pid, &ticks), 0, "no /proc/1/stat");
	cr_expect_eq(pid, 1, "another process's");
}
