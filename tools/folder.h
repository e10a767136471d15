/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * A folder of control blocks: all of them, or the one of a process; and the removal of what ended
 * processes left, by the rule in pool/stats_abi.h. No locking: one thread.
 */
#include <stdbool.h>

#include <glib.h>

#include "tools/block.h"

/* Where this user's processes have theirs; for g_free(). */
char *folder_default(void);

/*
 * The blocks (struct block) in a folder: those of running processes first, then the newest. Files
 * that are none are left out. Empty if there is no such folder; NULL after it has said on stderr
 * that it cannot be read.
 */
GPtrArray *folder_read(const char *path, const char *verb);

/* Remove the blocks of ended processes beyond the newest STATS_ABI_N_KEPT, from the folder and from
 * the array. */
void folder_clean(GPtrArray *blocks);

/*
 * The block of a process: the running one's, else the newest. NULL after it has said on stderr why
 * there is none.
 */
struct block *folder_find(const char *path, uint32_t pid, const char *verb);
