/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * The options that a user sets by POOLSHIM_ variables, read into one struct.
 *
 * Everything is made from options.def: the fields, the parsers that are called, the names that are
 * known. Where values come from is the caller's business: a look-up function is passed in. Problems
 * are given back by value, so the caller says when and where they are told.
 *
 * No output, no getenv, no allocation, no locale. Locking: none; a struct options does not change
 * once parsed.
 */
#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

#include "policy/limits.h"

#define OPTION_PREFIX "POOLSHIM_"

enum option_id {
#define OPTION(ID, field, TYPE, default_text, accepted, help) OPTION_##ID,
#include "policy/options.def"
#undef OPTION
	OPTION_N,
};

enum option_mode {
	OPTION_MODE_POOL,
	OPTION_MODE_ACCOUNT,
	OPTION_MODE_OFF,
};

enum option_reuse {
	OPTION_REUSE_AUTO,
	OPTION_REUSE_RELAXED,
	OPTION_REUSE_FENCE,
	OPTION_REUSE_STRICT,
};

enum option_async {
	OPTION_ASYNC_POOL,
	OPTION_ASYNC_NATIVE,
};

struct option_amount {
	bool is_share;
	uint32_t share_ppb; /* of what, the option says */
	uint64_t bytes;
};

enum option_format {
	OPTION_FORMAT_TEXT,
	OPTION_FORMAT_JSON,
};

/* In rising order of talk: a message is printed when its level is at most the option's. */
enum option_log_level {
	OPTION_LOG_OFF,
	OPTION_LOG_ERROR,
	OPTION_LOG_WARN,
	OPTION_LOG_INFO,
	OPTION_LOG_DEBUG,
};

/* How each type of options.def is kept. */
#define OPTION_FIELD_MODE(field) enum option_mode field
#define OPTION_FIELD_FORMAT(field) enum option_format field
#define OPTION_FIELD_REUSE(field) enum option_reuse field
#define OPTION_FIELD_ASYNC(field) enum option_async field
#define OPTION_FIELD_AMOUNT(field) struct option_amount field
#define OPTION_FIELD_LOG_LEVEL(field) enum option_log_level field
#define OPTION_FIELD_LIMIT(field) struct limit_spec field
#define OPTION_FIELD_SIGNAL(field) int field /* a signal's number; 0: none */
#define OPTION_FIELD_PATH(field) char field[PATH_MAX]

struct options {
#define OPTION(ID, field, TYPE, default_text, accepted, help) OPTION_FIELD_##TYPE(field);
#include "policy/options.def"
#undef OPTION
	bool is_set[OPTION_N]; /* a value was given and accepted */
};

struct option_info {
	const char *name; /* with the prefix */
	const char *default_text;
	const char *accepted;
	const char *help;
};

enum option_problem_kind {
	OPTION_PROBLEM_VALUE,   /* the value was refused, the option keeps its default */
	OPTION_PROBLEM_UNKNOWN, /* no option has this name */
};

struct option_problem {
	enum option_problem_kind kind;
	char name[64];        /* the variable, cut */
	char value[64];       /* what it was set to, cut; no control characters */
	const char *accepted; /* for OPTION_PROBLEM_VALUE: what would have been accepted */
	const char *nearest;  /* for OPTION_PROBLEM_UNKNOWN: the known name most like it */
};

enum { OPTION_PROBLEM_TEXT_MAX = 512 }; /* holds any line of option_problem_print() */

typedef const char *option_lookup(void *arg, const char *name);

const struct option_info *option_info(enum option_id id);

/*
 * Fill *options with the defaults and with every value that lookup(arg, name) gives (NULL: not
 * set). Returns how many problems were written to problems[]: at most one for each option.
 */
int options_parse(struct options *options, option_lookup *lookup, void *arg,
		  struct option_problem *problems, size_t n_problems_max);

/*
 * Find those of variables[] (NAME=VALUE, as environ) that start with the prefix but name no option.
 * Returns how many were written to problems[].
 */
int options_find_unknown(char *const *variables, struct option_problem *problems,
			 size_t n_problems_max);

/* One line for a person, without a newline. Returns its length, as snprintf does. */
size_t option_problem_print(const struct option_problem *problem, char *buf, size_t buf_bytes);

/* The value in force, as text that would be accepted. Returns its length, as snprintf does. */
size_t options_print_value(const struct options *options, enum option_id id, char *buf,
			   size_t buf_bytes);
