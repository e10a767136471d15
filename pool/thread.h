/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * A small number for the calling thread, never reused and never 0. No system call.
 */
#include <stdatomic.h>
#include <stdint.h>

uint32_t thread_self(void);
