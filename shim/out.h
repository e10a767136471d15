/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * Text on its way to a file descriptor, through a buffer on the stack: no allocation, few writes
 * (one, if it fits).
 *
 * Locking: none; one thread uses it.
 */
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

enum { OUT_BYTES = 16384 };

struct out {
	int fd;
	bool has_failed; /* a write did; errno was kept in error */
	int error;
	size_t n_bytes;
	char bytes[OUT_BYTES];
};

/*
 * write() that raises no signal in the program: where nobody reads any more, or a file would pass
 * the limit of its size, it is only an error.
 */
ssize_t out_write_quietly(int fd, const void *bytes, size_t n_bytes);

void out_init(struct out *out, int fd);
void out_flush(struct out *out);

/* At most 1024 bytes a call; more is cut. */
void out_print(struct out *out, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* A JSON string with its quotes; bytes that are no UTF-8 become U+FFFD. NULL: null. */
void out_json_string(struct out *out, const char *text);
