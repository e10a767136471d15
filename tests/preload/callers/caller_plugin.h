/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * Memory past the pool that a plug-in of the callers test gets. The last kind is the driver's only.
 */
enum caller_outside {
	CALLER_MANAGED,
	CALLER_PITCHED,
	CALLER_ASYNC,
	CALLER_ARRAY,
	CALLER_REGISTERED,
	CALLER_PHYSICAL,
	CALLER_N_OUTSIDE,
};
