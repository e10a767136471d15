/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * Managed memory that the program holds, not a vendor's library inside it (vendors.h): while there
 * is any, a kernel may write what the CPU reads, so every free waits for its context as the
 * driver's does.
 *
 * Locking: its own mutex; the question itself is one atomic load.
 */
#include <stdbool.h>

#include "shim/hooks.h"

void managed_add(CUdeviceptr addr);

/* Does nothing for an address that was not added. */
void managed_remove(CUdeviceptr addr);

/* A variable in a module: there is no call that tells of its end. */
void managed_add_variable(void);

bool managed_is_held(void);
