/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * The shim's own messages: single lines on stderr, capped in number, written whole, without
 * allocation.
 *
 * Locking: none. Safe in any thread, not in a signal handler.
 */
#include "policy/options.h"

void log_set_level(enum option_log_level level);

/* Prefix, pid and newline are added; a line longer than 512 bytes is cut. */
void log_line(enum option_log_level level, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
