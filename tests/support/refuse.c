/* SPDX-License-Identifier: MIT */
#include "tests/support/refuse.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>

enum {
	/* The low half of the first argument; both machines of this library store it first. */
	ARGUMENT = offsetof(struct seccomp_data, args[0]),
};

static bool
install(struct sock_filter *filter, size_t n)
{
	const struct sock_fprog program = {.len = (unsigned short)n, .filter = filter};

	return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
	       prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

bool
refuse_syscall(long number, int error)
{
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)number, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (unsigned)error),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};

	return install(filter, sizeof(filter) / sizeof(filter[0]));
}

bool
refuse_syscall_with(long number, unsigned argument, int error)
{
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)number, 0, 3),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, ARGUMENT),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, argument, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (unsigned)error),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};

	return install(filter, sizeof(filter) / sizeof(filter[0]));
}
