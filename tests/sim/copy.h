/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * Submission of copies, shared by the files that take them apart (copy.c, copy_shape.c).
 * Locking: as sim_internal.h says; the calls are made between sim_enter() and sim_leave().
 */

#include "tests/sim/sim_internal.h"

enum copy_side {
	SIDE_DEVICE, /* must lie in memory that the device may reach */
	SIDE_HOST,   /* host memory, pinned or not */
	SIDE_ANY,    /* found out by address */
};

struct copy_request {
	struct op_copy shape;
	enum copy_side dst, src;
	bool is_async;
};

/* The whole of a copy call after its arguments are known. handle: as the program gave it. */
CUresult copy_submit(enum entry_id e, const struct copy_request *request, CUstream handle);
