/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * libc functions that bind to a new version where this library is built, and to none where it may
 * run: found at run time (moved.def), or as the system call that they are.
 *
 * What is found is what a reference by name would bind to, another library's interposer included.
 *
 * Locking: none. Threads that meet in the first call store the same addresses.
 */
#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

struct moved_calls {
#define MOVED(name) __typeof__(&name) name;
#include "shim/moved.def"
#undef MOVED
};

/* Not for the look-up path, nor for a signal handler: takes the loader's lock the first time. */
const struct moved_calls *moved(void);

/* fstat() and its kin are new in glibc 2.33; on 64-bit machines the kernel's struct is libc's. */
static inline int
moved_fstat(int fd, struct stat *ret_stat)
{
	return (int)syscall(SYS_fstat, fd, ret_stat);
}

static inline int
moved_fstatat(int folder_fd, const char *path, struct stat *ret_stat, int flags)
{
	return (int)syscall(SYS_newfstatat, folder_fd, path, ret_stat, flags);
}

static inline int
moved_stat(const char *path, struct stat *ret_stat)
{
	return moved_fstatat(AT_FDCWD, path, ret_stat, 0);
}
