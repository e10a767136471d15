/* SPDX-License-Identifier: MIT */
#include "shim/log.h"

#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

#include "shim/out.h"

enum {
	LINE_MAX_BYTES = 512,
	N_LINES_MAX = 64,
};

static atomic_int level_max = OPTION_LOG_WARN;
static atomic_uint n_lines;

void
log_set_level(enum option_log_level level)
{
	atomic_store(&level_max, (int)level);
}

void
log_line(enum option_log_level level, const char *format, ...)
{
	const int saved_errno = errno;
	char line[LINE_MAX_BYTES];
	unsigned n_before;
	va_list args;
	int n, m;

	if ((int)level > atomic_load(&level_max))
		return;
	n_before = atomic_fetch_add(&n_lines, 1);
	if (n_before >= N_LINES_MAX)
		return;
	n = snprintf(line, sizeof(line), "poolshim[%d]: ", (int)getpid());
	va_start(args, format);
	m = vsnprintf(line + n, sizeof(line) - (size_t)n - 1, format, args);
	va_end(args);
	n += m < 0 ? 0 : m;
	if (n > LINE_MAX_BYTES - 2)
		n = LINE_MAX_BYTES - 2;
	line[n++] = '\n';
	/* Nothing to do about a closed stderr. */
	if (out_write_quietly(STDERR_FILENO, line, (size_t)n) < 0)
		errno = saved_errno;
	if (n_before == N_LINES_MAX - 1) {
		static const char last[] = "poolshim: no more messages from here on\n";

		if (out_write_quietly(STDERR_FILENO, last, sizeof(last) - 1) < 0)
			errno = saved_errno;
	}
	errno = saved_errno;
}
