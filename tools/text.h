/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * Figures as a person reads them. What is returned is for g_free().
 */
#include <stdint.h>

/* A size in the largest unit that leaves three digits: "1.5 GiB". */
char *text_size(uint64_t bytes);

/* A time in its two largest units: "3 h 12 min". */
char *text_duration(uint64_t seconds);

/* Valid UTF-8 without control characters, which a terminal would obey. */
char *text_plain(const char *text);
