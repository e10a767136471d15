/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * Tests over a table of rows: one Criterion test for each row of a static array.
 *
 * Rows are reached by index: Criterion runs each test in a process that it starts anew, so a
 * pointer inside a parameter is dead there. All rows share one name in the output: every message
 * names its row.
 */
#include <criterion/criterion.h>
#include <criterion/parameterized.h>

#define N_ROWS(table) (sizeof(table) / sizeof((table)[0]))

/* The body follows; it gets size_t *row. */
#define TEST_ROWS(suite, name, table) \
	ParameterizedTestParameters(suite, name) \
	{ \
		static size_t rows[N_ROWS(table)]; \
\
		for (size_t i = 0; i < N_ROWS(table); i++) \
			rows[i] = i; \
		return cr_make_param_array(size_t, rows, N_ROWS(table)); \
	} \
	ParameterizedTest(size_t *row, suite, name)
