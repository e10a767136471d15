/* SPDX-License-Identifier: MIT */
/*
 * A new option is a row in options.def. A new TYPE needs OPTION_FIELD_<TYPE> in options.h and here
 * a pair parse_<TYPE>() and print_<TYPE>(); without them its row does not compile.
 */
#include "policy/options.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "policy/signal_name.h"
#include "policy/size.h"

static const struct option_info infos[OPTION_N] = {
#define OPTION(ID, field, TYPE, default_text, accepted, help) \
	[OPTION_##ID] = {OPTION_PREFIX #ID, default_text, accepted, help},
#include "policy/options.def"
#undef OPTION
};

const struct option_info *
option_info(enum option_id id)
{
	return &infos[id];
}

/* The words of an option, in the order of its enum. Returns the index, or -EINVAL. */
static int
word_parse(const char *text, const char *const *words, int n_words)
{
	int i;

	for (i = 0; i < n_words; i++)
		if (size_text_is(text, strlen(text), words[i]))
			return i;
	return -EINVAL;
}

#define WORD_OPTION(TYPE, ctype, n_words, ...) \
	static const char *const words_##TYPE[n_words] = {__VA_ARGS__}; \
\
	static int parse_##TYPE(const char *text, ctype *ret_value) \
	{ \
		int i = word_parse(text, words_##TYPE, n_words); \
\
		if (i >= 0) \
			*ret_value = (ctype)i; \
		return i < 0 ? i : 0; \
	} \
\
	static size_t print_##TYPE(const ctype *value, char *buf, size_t buf_bytes) \
	{ \
		return (size_t)snprintf(buf, buf_bytes, "%s", words_##TYPE[*value]); \
	}

WORD_OPTION(MODE, enum option_mode, OPTION_MODE_OFF + 1, "pool", "account", "off")
WORD_OPTION(FORMAT, enum option_format, OPTION_FORMAT_JSON + 1, "text", "json")
WORD_OPTION(REUSE, enum option_reuse, OPTION_REUSE_STRICT + 1, "auto", "relaxed", "fence", "strict")
WORD_OPTION(ASYNC, enum option_async, OPTION_ASYNC_NATIVE + 1, "pool", "native")
WORD_OPTION(LOG_LEVEL, enum option_log_level, OPTION_LOG_DEBUG + 1, "off", "error", "warn", "info",
	    "debug")

static int
parse_LIMIT(const char *text, struct limit_spec *ret_value)
{
	return limit_spec_parse(text, ret_value);
}

static size_t
print_LIMIT(const struct limit_spec *value, char *buf, size_t buf_bytes)
{
	return limit_spec_print(value, buf, buf_bytes);
}

static int
parse_AMOUNT(const char *text, struct option_amount *ret_value)
{
	struct option_amount amount = {.is_share = true};
	int r = size_parse_share(text, strlen(text), &amount.share_ppb);

	if (r == -EINVAL) {
		amount.is_share = false;
		r = size_parse(text, strlen(text), &amount.bytes);
	}
	if (r == 0)
		*ret_value = amount;
	return r;
}

static size_t
print_AMOUNT(const struct option_amount *value, char *buf, size_t buf_bytes)
{
	return value->is_share ? size_print_share(value->share_ppb, buf, buf_bytes)
			       : size_print(value->bytes, buf, buf_bytes);
}

static int
parse_SIGNAL(const char *text, int *ret_value)
{
	if (size_text_is(text, strlen(text), "none")) {
		*ret_value = 0;
		return 0;
	}
	return signal_name_parse(text, ret_value);
}

static size_t
print_SIGNAL(const int *value, char *buf, size_t buf_bytes)
{
	if (*value == 0)
		return (size_t)snprintf(buf, buf_bytes, "none");
	return signal_name_print(*value, buf, buf_bytes);
}

static int
parse_PATH(const char *text, char (*ret_value)[PATH_MAX])
{
	size_t len = strlen(text);

	if (len == 0)
		return -EINVAL;
	if (len >= PATH_MAX)
		return -ENAMETOOLONG;
	memcpy(*ret_value, text, len + 1);
	return 0;
}

static size_t
print_PATH(const char (*value)[PATH_MAX], char *buf, size_t buf_bytes)
{
	return (size_t)snprintf(buf, buf_bytes, "%s", *value);
}

static int
value_parse(struct options *options, enum option_id id, const char *text)
{
	switch (id) {
#define OPTION(ID, field, TYPE, default_text, accepted, help) \
	case OPTION_##ID: \
		return parse_##TYPE(text, &options->field);
#include "policy/options.def"
#undef OPTION
	case OPTION_N:
		break;
	}
	return -EINVAL;
}

size_t
options_print_value(const struct options *options, enum option_id id, char *buf, size_t buf_bytes)
{
	switch (id) {
#define OPTION(ID, field, TYPE, default_text, accepted, help) \
	case OPTION_##ID: \
		return print_##TYPE(&options->field, buf, buf_bytes);
#include "policy/options.def"
#undef OPTION
	case OPTION_N:
		break;
	}
	return (size_t)snprintf(buf, buf_bytes, "%s", "");
}

/*
 * Copy at most size_bytes - 1 bytes of text. What goes into a message stays on one line: control
 * characters become '?', and a cut shows as three dots.
 */
static void
copy_for_message(char *buf, size_t buf_bytes, const char *text, size_t len)
{
	bool is_cut = len >= buf_bytes;
	size_t n = is_cut ? buf_bytes - 4 : len;
	size_t i;

	/* Never cut inside a character of UTF-8: its later bytes are 10xxxxxx. */
	while (is_cut && n && ((unsigned char)text[n] & 0xc0) == 0x80)
		n--;
	for (i = 0; i < n; i++)
		buf[i] = (unsigned char)text[i] < 0x20 || text[i] == 0x7f ? '?' : text[i];
	memcpy(buf + n, is_cut ? "..." : "", is_cut ? 4 : 1);
}

static void
problem_fill(struct option_problem *problem, enum option_problem_kind kind, const char *name,
	     size_t name_len, const char *value)
{
	*problem = (struct option_problem){.kind = kind};
	copy_for_message(problem->name, sizeof(problem->name), name, name_len);
	copy_for_message(problem->value, sizeof(problem->value), value, strlen(value));
}

static bool
ends_in(const char *text, const char *suffix)
{
	size_t len = strlen(text), suffix_len = strlen(suffix);

	return len >= suffix_len && strcmp(text + len - suffix_len, suffix) == 0;
}

int
options_parse(struct options *options, option_lookup *lookup, void *arg,
	      struct option_problem *problems, size_t n_problems_max)
{
	size_t n_problems = 0;
	const char *text;
	int id, r;

	memset(options, 0, sizeof(*options));
	for (id = 0; id < OPTION_N; id++) {
		r = value_parse(options, id, infos[id].default_text);
		assert(r == 0); /* a default in options.def that its own type refuses */

		text = lookup(arg, infos[id].name);
		if (!text)
			continue;
		r = value_parse(options, id, text);
		if (r == 0) {
			options->is_set[id] = true;
		} else if (n_problems < n_problems_max) {
			problem_fill(&problems[n_problems], OPTION_PROBLEM_VALUE, infos[id].name,
				     strlen(infos[id].name), text);
			problems[n_problems++].accepted = infos[id].accepted;
		}
	}

	/* Resolved here, so that everyone sees the form in force. */
	if (!options->is_set[OPTION_FORMAT] && ends_in(options->dump, ".json"))
		options->format = OPTION_FORMAT_JSON;
	return (int)n_problems;
}

static char
to_upper(char c)
{
	return c >= 'a' && c <= 'z' ? (char)(c - 'a' + 'A') : c;
}

/*
 * Levenshtein's distance without regard to case; what lies beyond the row's length does not count.
 */
static size_t
edit_distance(const char *a, size_t a_len, const char *b, size_t b_len)
{
	enum { LEN_MAX = 64 };
	size_t row[LEN_MAX + 1];
	size_t i, j, diagonal, above, best;

	a_len = a_len < LEN_MAX ? a_len : LEN_MAX;
	b_len = b_len < LEN_MAX ? b_len : LEN_MAX;
	for (j = 0; j <= b_len; j++)
		row[j] = j;
	for (i = 1; i <= a_len; i++) {
		diagonal = row[0];
		row[0] = i;
		for (j = 1; j <= b_len; j++) {
			above = row[j];
			best = diagonal + (to_upper(a[i - 1]) != to_upper(b[j - 1]));
			best = above + 1 < best ? above + 1 : best;
			best = row[j - 1] + 1 < best ? row[j - 1] + 1 : best;
			diagonal = above;
			row[j] = best;
		}
	}
	return row[b_len];
}

static const char *
nearest_name(const char *name, size_t len)
{
	const char *nearest = infos[0].name;
	size_t distance, least = SIZE_MAX;
	int id;

	for (id = 0; id < OPTION_N; id++) {
		distance = edit_distance(name, len, infos[id].name, strlen(infos[id].name));
		if (distance < least) {
			least = distance;
			nearest = infos[id].name;
		}
	}
	return nearest;
}

static bool
is_known(const char *name, size_t len)
{
	int id;

	for (id = 0; id < OPTION_N; id++)
		if (strlen(infos[id].name) == len && memcmp(infos[id].name, name, len) == 0)
			return true;
	return false;
}

int
options_find_unknown(char *const *variables, struct option_problem *problems, size_t n_problems_max)
{
	size_t n_problems = 0;
	size_t len;

	for (; *variables && n_problems < n_problems_max; variables++) {
		len = strcspn(*variables, "=");
		if (strncmp(*variables, OPTION_PREFIX, strlen(OPTION_PREFIX)) != 0 ||
		    is_known(*variables, len))
			continue;
		problem_fill(&problems[n_problems], OPTION_PROBLEM_UNKNOWN, *variables, len,
			     (*variables)[len] ? *variables + len + 1 : "");
		problems[n_problems++].nearest = nearest_name(*variables, len);
	}
	return (int)n_problems;
}

size_t
option_problem_print(const struct option_problem *problem, char *buf, size_t buf_bytes)
{
	if (problem->kind == OPTION_PROBLEM_UNKNOWN)
		return (size_t)snprintf(buf, buf_bytes, "%s is not an option; did you mean %s?",
					problem->name, problem->nearest);
	return (size_t)snprintf(buf, buf_bytes,
				"%s: '%s' is not accepted (%s); the default is used", problem->name,
				problem->value, problem->accepted);
}
