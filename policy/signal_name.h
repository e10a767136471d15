/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * Signals by name: USR1, SIGUSR1, sigusr1, RTMIN+3, RTMAX-1, 10; only those that can ask for a
 * dump.
 *
 * Refused: signals that cannot be caught (KILL, STOP) and those that a fault of the running thread
 * raises (SEGV, ABRT and the like), after which nothing may go on. Own table, because the C
 * library's own names need a newer one than the shim asks for. No state; any thread may call it.
 */
#include <stddef.h>

enum { SIGNAL_NAME_MAX = 16 }; /* holds any name that signal_name_print() writes, and the NUL */

/* Returns 0 or -EINVAL (no such signal, or not one that can be used). */
int signal_name_parse(const char *text, int *ret_signal);

/* The shortest name, without SIG. Returns its length, as snprintf does. */
size_t signal_name_print(int signal, char *buf, size_t buf_bytes);
