/* SPDX-License-Identifier: MIT */
#pragma once

/* Whose code calls: a vendor's library (vendors.def), or the program and everything else. */
#include <stdbool.h>

/* Is the code at the return address of a driver hook a vendor's? Locking: see callers.h. */
bool vendors_is_caller(const void *return_address);

/* Is an object with this path one of theirs? */
bool vendors_has(const char *path);
