/* SPDX-License-Identifier: MIT */
#include "tests/sim/sim_internal.h"

/* Everything that the CUDA 13.0 driver interface has. */
const int sim_driver_version = 13000;
