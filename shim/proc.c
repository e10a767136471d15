/* SPDX-License-Identifier: MIT */
#include "shim/proc.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
	PATH_BYTES = 64,
	STAT_BYTES = 1024,
};

int
proc_read_text(const char *path, char *ret_text, size_t n_bytes)
{
	const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
	ssize_t n = fd < 0 ? -1 : read(fd, ret_text, n_bytes - 1);
	const int error = errno;

	if (fd >= 0)
		close(fd);
	ret_text[n > 0 ? n : 0] = '\0';
	return n >= 0 ? 0 : -error;
}

int
proc_read_stat(const char *who, uint32_t *ret_pid, uint64_t *ret_start_ticks)
{
	enum { FIELDS_BEHIND_NAME = 20 }; /* the name may hold spaces and brackets */
	char path[PATH_BYTES], text[STAT_BYTES];
	const char *at;
	int r;

	snprintf(path, sizeof(path), "/proc/%s/stat", who);
	r = proc_read_text(path, text, sizeof(text));
	if (r < 0)
		return r == -ESRCH ? -ENOENT : r;
	at = strrchr(text, ')');
	for (int i = 0; at && i < FIELDS_BEHIND_NAME; i++)
		at = strchr(at + 1, ' ');
	if (!at)
		return -EPROTO;
	*ret_pid = (uint32_t)strtoul(text, NULL, 10);
	*ret_start_ticks = strtoull(at, NULL, 10);
	return 0;
}
