/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * A kernel that refuses a system call, by a seccomp filter: to the calling thread and to those that
 * it makes, from now on. Each returns false where filters are not allowed.
 */
#include <stdbool.h>

bool refuse_syscall(long number, int error);

/* Only where its first argument is this one. */
bool refuse_syscall_with(long number, unsigned argument, int error);
