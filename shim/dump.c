/* SPDX-License-Identifier: MIT */
#include "shim/dump.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "pool/thread.h"
#include "shim/init.h"
#include "shim/log.h"
#include "shim/moved.h"

static pthread_mutex_t dump_lock = PTHREAD_MUTEX_INITIALIZER;
static struct report report; /* under dump_lock: too large for a stranger's stack */
static struct out out;       /* under dump_lock */
static unsigned n_dumps;     /* under dump_lock */

static struct stat stderr_at_start;
static bool has_stderr;

void
dump_note_stderr(void)
{
	has_stderr = moved_fstat(STDERR_FILENO, &stderr_at_start) == 0;
}

static bool
stderr_is_the_same(void)
{
	struct stat now;

	return has_stderr && moved_fstat(STDERR_FILENO, &now) == 0 &&
	       now.st_dev == stderr_at_start.st_dev && now.st_ino == stderr_at_start.st_ino;
}

static const char *
program_name(void)
{
	const char *slash = strrchr(report.exe, '/');

	return slash ? slash + 1 : report.exe;
}

/* Write what a % letter stands for. Returns the length, as snprintf does, or -1 for a letter that
 * stands for nothing. */
static int
expand_letter(char letter, char *text, size_t text_bytes)
{
	switch (letter) {
	case 'p':
		return snprintf(text, text_bytes, "%d", (int)report.pid);
	case 'h':
		return snprintf(text, text_bytes, "%s", report.host);
	case 'r':
		return snprintf(text, text_bytes, "%s", report.rank ? report.rank : "0");
	case 'e':
		return snprintf(text, text_bytes, "%s", program_name());
	case 'n':
		return snprintf(text, text_bytes, "%u", n_dumps);
	case '%':
		return snprintf(text, text_bytes, "%%");
	default:
		return -1;
	}
}

/* 0 or -ENAMETOOLONG. An unknown letter stays as it is. */
static int
expand(const char *pattern, char *path, size_t path_bytes)
{
	size_t n = 0;

	while (*pattern) {
		int m = pattern[0] == '%' ? expand_letter(pattern[1], path + n, path_bytes - n)
					  : -1;

		if (m >= 0) {
			pattern += 2;
		} else {
			m = snprintf(path + n, path_bytes - n, "%c", *pattern);
			pattern++;
		}
		n += (size_t)m;
		if (n >= path_bytes)
			return -ENAMETOOLONG;
	}
	return 0;
}

static bool
wants_json(const char *path)
{
	const size_t n = path ? strlen(path) : 0;

	if (init_options()->is_set[OPTION_FORMAT])
		return init_options()->format == OPTION_FORMAT_JSON;
	return n >= 5 && strcmp(path + n - 5, ".json") == 0;
}

static int
print_to(int fd, bool is_json)
{
	out_init(&out, fd);
	if (is_json)
		report_print_json(&report, &out);
	else
		report_print_text(&report, &out);
	out_flush(&out);
	return out.has_failed ? -out.error : 0;
}

/*
 * Something that is there and no regular file: a FIFO without a reader is refused, not waited for.
 */
static int
write_in_place(const char *path, bool is_json)
{
	const int fd = open(path, O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	int r;

	if (fd < 0)
		return -errno;
	r = print_to(fd, is_json);
	close(fd);
	return r;
}

static int
replace_file(const char *path, bool is_json)
{
	char temporary[PATH_MAX];
	int fd, r;

	if (snprintf(temporary, sizeof(temporary), "%s.%d.tmp", path, (int)report.pid) >=
	    (int)sizeof(temporary))
		return -ENAMETOOLONG;
	unlink(temporary); /* left by a process of this number that died while it wrote */
	fd = open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOCTTY | O_CLOEXEC, 0666);
	if (fd < 0)
		return -errno;
	r = print_to(fd, is_json);
	if (close(fd) != 0 && r == 0)
		r = -errno;
	if (r == 0 && rename(temporary, path) != 0)
		r = -errno;
	if (r != 0)
		unlink(temporary);
	return r;
}

static int
write_path(const char *pattern)
{
	char path[PATH_MAX];
	struct stat there;
	int r = expand(pattern, path, sizeof(path));

	if (r < 0)
		return r;
	n_dumps++;
	if (moved_stat(path, &there) == 0 && !S_ISREG(there.st_mode))
		return write_in_place(path, wants_json(path));
	return replace_file(path, wants_json(path));
}

static int
write_stderr(void)
{
	if (!report.was_used || !stderr_is_the_same())
		return 0;
	n_dumps++;
	return print_to(STDERR_FILENO, wants_json(NULL));
}

static int
write_to(const char *where, enum report_reason reason, const struct timespec *deadline)
{
	int r = 0;

	if (strcmp(where, "none") == 0)
		return 0;
	if (!thread_lock_until(&dump_lock, deadline))
		return -EDEADLK;
	memset(&report, 0, sizeof(report));
	report_gather(&report, reason, deadline);
	if (strcmp(where, "stderr") == 0)
		r = write_stderr();
	else if (report.was_used || report.missed.n || reason == REPORT_REQUEST)
		r = write_path(where);
	thread_unlock(&dump_lock);
	if (r < 0)
		log_line(OPTION_LOG_WARN, "no dump to '%s': %s", where, strerror(-r));
	return r;
}

void
dump_write(enum report_reason reason, const struct timespec *deadline)
{
	write_to(init_options()->dump, reason, deadline);
}

int
dump_write_to(const char *path)
{
	return write_to(path ? path : init_options()->dump, REPORT_REQUEST, NULL);
}
