/* SPDX-License-Identifier: MIT */
#include "shim/agents.h"

#include <dirent.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* The kernel's, as getdents64(2) tells it; opendir() would allocate. */
struct entry {
	uint64_t inode;
	int64_t offset;
	uint16_t n_bytes;
	uint8_t type;
	char name[];
};

static bool
is_agent(const char *path)
{
	static const char *const prefixes[] = {
		"/dev/infiniband/uverbs", "/dev/gdrdrv",
		"/dev/nvidia-fs", /* one for each device it serves */
	};

	for (size_t i = 0; i < sizeof(prefixes) / sizeof(prefixes[0]); i++)
		if (strncmp(path, prefixes[i], strlen(prefixes[i])) == 0)
			return true;
	return false;
}

static bool
leads_to_agent(int folder, const char *name)
{
	char path[64];
	const ssize_t n = readlinkat(folder, name, path, sizeof(path) - 1);

	if (n <= 0)
		return false;
	path[n] = '\0';
	return is_agent(path);
}

static bool
has_agent(int folder, const char *entries, size_t n_bytes)
{
	const struct entry *entry;

	for (size_t at = 0; at < n_bytes; at += entry->n_bytes) {
		entry = (const struct entry *)(entries + at);
		if (entry->type == DT_LNK && leads_to_agent(folder, entry->name))
			return true;
	}
	return false;
}

bool
agents_are_open(const char *folder)
{
	_Alignas(struct entry) char entries[2048];
	const int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	bool is_found = false;
	long n;

	if (fd < 0)
		return false;
	while (!is_found && (n = syscall(SYS_getdents64, fd, entries, sizeof(entries))) > 0)
		is_found = has_agent(fd, entries, (size_t)n);
	close(fd);
	return is_found;
}
