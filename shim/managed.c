/* SPDX-License-Identifier: MIT */
#include "shim/managed.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "pool/thread.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static atomic_size_t
	n_held; /* allocations, and 1 for ever once there was a variable or an address was lost */
static CUdeviceptr *addrs; /* under lock */
static size_t n_addrs, n_room;
static bool is_held_for_ever;

static void
hold_for_ever_locked(void)
{
	if (!is_held_for_ever)
		atomic_fetch_add(&n_held, 1);
	is_held_for_ever = true;
}

void
managed_add(CUdeviceptr addr)
{
	if (thread_holds()) {
		atomic_fetch_add(&n_held, 1); /* for ever */
		return;
	}
	thread_lock(&lock);
	if (n_addrs == n_room) {
		CUdeviceptr *larger = realloc(addrs, (n_room + 64) * sizeof(*larger));

		if (larger) {
			addrs = larger;
			n_room += 64;
		}
	}
	if (n_addrs < n_room) {
		addrs[n_addrs++] = addr;
		atomic_fetch_add(&n_held, 1);
	} else {
		hold_for_ever_locked();
	}
	thread_unlock(&lock);
}

void
managed_remove(CUdeviceptr addr)
{
	if (!managed_is_held() || thread_holds())
		return;
	thread_lock(&lock);
	for (size_t i = 0; i < n_addrs; i++) {
		if (addrs[i] == addr) {
			addrs[i] = addrs[--n_addrs];
			atomic_fetch_sub(&n_held, 1);
			break;
		}
	}
	thread_unlock(&lock);
}

void
managed_add_variable(void)
{
	if (thread_holds()) {
		atomic_fetch_add(&n_held, 1);
		return;
	}
	thread_lock(&lock);
	hold_for_ever_locked();
	thread_unlock(&lock);
}

bool
managed_is_held(void)
{
	return atomic_load(&n_held) > 0;
}
