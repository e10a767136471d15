/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * Small files of /proc: which process is which. No locking, no allocation.
 */
#include <stddef.h>
#include <stdint.h>

/* What a file says, as text, cut to the room. Returns 0 or a negative errno. */
int proc_read_text(const char *path, char *ret_text, size_t n_bytes);

/*
 * Pid and start time (field 22) in /proc/WHO/stat, WHO being a number or "self". Returns 0, -ENOENT
 * (there is no such process) or another negative errno: it cannot be told.
 */
int proc_read_stat(const char *who, uint32_t *ret_pid, uint64_t *ret_start_ticks);
