/* SPDX-License-Identifier: MIT */
#include "shim/out.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

enum { PRINT_MAX_BYTES = 1024 };

ssize_t
out_write_quietly(int fd, const void *bytes, size_t n_bytes)
{
	const struct timespec at_once = {0};
	sigset_t raised, before, pending;
	ssize_t n;
	int error;

	sigemptyset(&raised);
	sigaddset(&raised, SIGPIPE);
	sigaddset(&raised, SIGXFSZ);
	sigemptyset(&pending);
	sigpending(&pending);
	/* On Linux sigprocmask() is the calling thread's. */
	sigprocmask(SIG_BLOCK, &raised, &before);
	n = write(fd, bytes, n_bytes);
	error = errno;
	/* Take back what this write has sent to this thread; what was pending before is not ours.
	 */
	if (sigismember(&pending, SIGPIPE))
		sigdelset(&raised, SIGPIPE);
	if (sigismember(&pending, SIGXFSZ))
		sigdelset(&raised, SIGXFSZ);
	if (n < 0 && (error == EPIPE || error == EFBIG))
		sigtimedwait(&raised, NULL, &at_once);
	sigprocmask(SIG_SETMASK, &before, NULL);
	errno = error;
	return n;
}

void
out_init(struct out *out, int fd)
{
	out->fd = fd;
	out->has_failed = false;
	out->error = 0;
	out->n_bytes = 0;
}

void
out_flush(struct out *out)
{
	size_t n_done = 0;

	while (n_done < out->n_bytes && !out->has_failed) {
		ssize_t n = out_write_quietly(out->fd, out->bytes + n_done, out->n_bytes - n_done);

		if (n >= 0) {
			n_done += (size_t)n;
		} else if (errno != EINTR) {
			out->has_failed = true;
			out->error = errno;
		}
	}
	out->n_bytes = 0;
}

void
out_print(struct out *out, const char *format, ...)
{
	va_list args;
	int n;

	if (OUT_BYTES - out->n_bytes < PRINT_MAX_BYTES)
		out_flush(out);
	va_start(args, format);
	n = vsnprintf(out->bytes + out->n_bytes, PRINT_MAX_BYTES, format, args);
	va_end(args);
	if (n > 0)
		out->n_bytes += n < PRINT_MAX_BYTES ? (size_t)n : PRINT_MAX_BYTES - 1;
}

/* Length of the valid UTF-8 sequence at text; 0: none. */
static size_t
utf8_length(const unsigned char *text)
{
	const unsigned char c = text[0];
	const size_t n = c < 0x80                ? 1
			 : c >= 0xc2 && c < 0xe0 ? 2
			 : c >= 0xe0 && c < 0xf0 ? 3
			 : c >= 0xf0 && c < 0xf5 ? 4
						 : 0;

	for (size_t i = 1; i < n; i++)
		if ((text[i] & 0xc0) != 0x80)
			return 0;
	if ((c == 0xe0 && text[1] < 0xa0) || (c == 0xed && text[1] > 0x9f) ||
	    (c == 0xf0 && text[1] < 0x90) || (c == 0xf4 && text[1] > 0x8f))
		return 0;
	return n;
}

void
out_json_string(struct out *out, const char *text)
{
	const unsigned char *at = (const unsigned char *)text;

	if (!text) {
		out_print(out, "null");
		return;
	}
	out_print(out, "\"");
	while (*at) {
		const size_t n = utf8_length(at);

		if (n == 0)
			out_print(out, "\\ufffd");
		else if (*at == '"' || *at == '\\')
			out_print(out, "\\%c", *at);
		else if (*at < 0x20 || *at == 0x7f)
			out_print(out, "\\u%04x", *at);
		else
			out_print(out, "%.*s", (int)n, (const char *)at);
		at += n ? n : 1;
	}
	out_print(out, "\"");
}
