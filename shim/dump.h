/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * Writing the statistics where POOLSHIM_DUMP says.
 *
 * A regular file is replaced whole (written beside it, then renamed), so a reader never sees half a
 * dump; a FIFO, a terminal or /dev/fd is written to. On stderr: one write, only if CUDA memory was
 * asked for and fd 2 is still what it was.
 *
 * Locking: one dump at a time. Calls no CUDA; not for signal handlers.
 */
#include "shim/report.h"

/* Remember what fd 2 is, before the program may have closed it and got something else there. */
void dump_note_stderr(void);

/*
 * Where the options say. With a deadline (CLOCK_REALTIME) it waits for locks no longer than that:
 * for the end of a process, which may come in a signal handler that has interrupted their holder.
 */
void dump_write(enum report_reason reason, const struct timespec *deadline);

/* To a path (with % as in POOLSHIM_DUMP), NULL: where the options say. Returns 0 or a negative
 * errno. */
int dump_write_to(const char *path);
