/* SPDX-License-Identifier: MIT */
#include "tests/sim/sim_internal.h"

/* As R535 answers: no cuCtxRecordEvent. What is newer is not exported either, see old.map. */
const int sim_driver_version = 12020;
