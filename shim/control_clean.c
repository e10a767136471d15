/* SPDX-License-Identifier: MIT */
/*
 * Control blocks of processes that are gone. `poolshim list` follows the same rule.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "shim/control.h"
#include "shim/moved.h"
#include "shim/proc.h"

enum {
	N_LOOKED_AT_MAX = 48, /* files in one go: a start must stay short */
	NAME_BYTES = 40,
};

/* The ended blocks to keep, in no order. */
struct kept {
	int folder_fd;
	unsigned n;
	struct {
		char name[NAME_BYTES];
		uint64_t ended_ns;
	} blocks[STATS_ABI_N_KEPT];
};

/* Takes the block in; if that is one too many, the one that ended first goes. */
static void
keep(struct kept *kept, const char *name, uint64_t ended_ns)
{
	unsigned oldest = 0;

	if (kept->n < STATS_ABI_N_KEPT) {
		oldest = kept->n++;
	} else {
		for (unsigned i = 1; i < kept->n; i++)
			if (kept->blocks[i].ended_ns < kept->blocks[oldest].ended_ns)
				oldest = i;
		if (kept->blocks[oldest].ended_ns >= ended_ns) {
			unlinkat(kept->folder_fd, name, 0);
			return;
		}
		unlinkat(kept->folder_fd, kept->blocks[oldest].name, 0);
	}
	snprintf(kept->blocks[oldest].name, NAME_BYTES, "%s", name);
	kept->blocks[oldest].ended_ns = ended_ns;
}

static bool
parse_name(const char *name, uint32_t *ret_pid, uint64_t *ret_ticks)
{
	char again[NAME_BYTES];
	unsigned long long ticks;
	unsigned pid;

	if (sscanf(name, STATS_ABI_FILE, &pid, &ticks) != 2)
		return false;
	snprintf(again, sizeof(again), STATS_ABI_FILE, pid, ticks);
	*ret_pid = pid;
	*ret_ticks = ticks;
	return strcmp(again, name) == 0;
}

static uint64_t
nanoseconds(const struct timespec *time)
{
	return (uint64_t)time->tv_sec * 1000000000u + (uint64_t)time->tv_nsec;
}

/* Since when the process is known to have ended; the first who sees it writes it down. */
static uint64_t
ended_since(int fd, uint64_t seen_ns)
{
	struct timespec now;

	if (seen_ns)
		return seen_ns;
	clock_gettime(CLOCK_REALTIME, &now);
	seen_ns = nanoseconds(&now);
	if (pwrite(fd, &seen_ns, sizeof(seen_ns),
		   offsetof(struct stats_abi_header, ended_seen_ns)) != sizeof(seen_ns))
		return 1; /* nothing is known of it: the first to go */
	return seen_ns;
}

/* False also when it cannot be told. */
static bool
is_gone(uint32_t pid, uint64_t start_ticks)
{
	char who[NAME_BYTES];
	uint64_t now_ticks;
	uint32_t now_pid;
	int r;

	snprintf(who, sizeof(who), "%u", pid);
	r = proc_read_stat(who, &now_pid, &now_ticks);
	return r == -ENOENT || (r == 0 && now_ticks != start_ticks);
}

static void
look_at(struct kept *kept, const char *name, uint64_t pid_namespace, const char *boot_id)
{
	struct stats_abi_header header = {0};
	struct stat status;
	uint64_t ticks;
	uint32_t pid;
	bool is_block;
	int fd;

	if (!parse_name(name, &pid, &ticks))
		return;
	fd = openat(kept->folder_fd, name, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	if (fd < 0)
		return;
	is_block = moved_fstat(fd, &status) == 0 && S_ISREG(status.st_mode) &&
		   pread(fd, &header, sizeof(header), 0) == (ssize_t)sizeof(header) &&
		   memcmp(header.magic, STATS_ABI_MAGIC, sizeof(header.magic)) == 0;
	if (!is_block && S_ISREG(status.st_mode) && is_gone(pid, ticks))
		keep(kept, name, nanoseconds(&status.st_mtim));
	/* Another namespace's pids mean nothing here, unless they are of an earlier boot. */
	if (is_block && (strcmp(header.boot_id, boot_id) != 0 ||
			 (header.pid_namespace == pid_namespace && is_gone(pid, ticks))))
		keep(kept, name,
		     ended_since(fd, atomic_load_explicit(&header.ended_seen_ns,
							  memory_order_relaxed)));
	close(fd);
}

void
control_clean(int folder_fd, uint64_t pid_namespace, const char *boot_id)
{
	struct kept kept = {.folder_fd = folder_fd};
	const int own_fd = openat(folder_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *folder = own_fd < 0 ? NULL : fdopendir(own_fd);
	const struct dirent *entry;

	if (!folder) {
		if (own_fd >= 0)
			close(own_fd);
		return;
	}
	for (int i = 0; i < N_LOOKED_AT_MAX && (entry = readdir(folder)); i++)
		look_at(&kept, entry->d_name, pid_namespace, boot_id);
	closedir(folder);
}
