/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * A kernel without membarrier(2), for the calling process from now on: by a seccomp filter.
 */
#include <stdbool.h>

/* command: only this one fails; -1: all do. Returns false where filters are not allowed. */
bool no_membarrier(int command);
