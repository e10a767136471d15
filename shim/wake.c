/* SPDX-License-Identifier: MIT */
#include "shim/wake.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <unistd.h>

void
wake_post(struct wake *wake)
{
	const int saved_errno = errno;

	/* release: what was written before the post, for the acquire in wake_wait() */
	atomic_fetch_add_explicit(&wake->n_posts, 1, memory_order_release);
	syscall(SYS_futex, &wake->n_posts, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
	errno = saved_errno;
}

void
wake_wait(struct wake *wake)
{
	/* acquire: pairs with the release in wake_post() */
	while (!atomic_exchange_explicit(&wake->n_posts, 0, memory_order_acquire))
		syscall(SYS_futex, &wake->n_posts, FUTEX_WAIT_PRIVATE, 0, NULL, NULL, 0);
}
