/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * A counter that one thread waits for and a signal handler may raise: what sem_t is, but that one's
 * functions moved between versions of glibc (moved.h).
 *
 * Locking: none.
 */
#include <stdatomic.h>

struct wake {
	_Atomic unsigned int n_posts; /* not yet taken */
};

/* Async-signal-safe; keeps errno. */
void wake_post(struct wake *wake);

/* Waits until there is a post, and takes all that there are. */
void wake_wait(struct wake *wake);
