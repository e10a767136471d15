/* SPDX-License-Identifier: MIT */
#include "policy/options.h"

#include <criterion/criterion.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "policy/size.h"
#include "tests/support/rows.h"

static struct options options;
static struct option_problem problems[OPTION_N + 4];

/* A look-up in an array of "NAME=VALUE", as environ is. */
static const char *
lookup_in(void *arg, const char *name)
{
	const char *const *variables = arg;
	size_t len = strlen(name);

	for (; *variables; variables++)
		if (strncmp(*variables, name, len) == 0 && (*variables)[len] == '=')
			return *variables + len + 1;
	return NULL;
}

static int
parse(const char *const *variables)
{
	return options_parse(&options, lookup_in, (void *)variables, problems, N_ROWS(problems));
}

/* The real environ is an array of char *, which no constant text can be without a cast. */
static int
find_unknown(const char *const *variables, size_t n_problems_max)
{
	return options_find_unknown((char *const *)variables, problems, n_problems_max);
}

static int
parse_one(const char *variable)
{
	const char *variables[] = {variable, NULL};

	return parse(variables);
}

Test(options, an_empty_environment_gives_the_defaults)
{
	int id;

	cr_expect_eq(parse((const char *[]){NULL}), 0, "a problem with nothing set");
	cr_expect_eq(options.mode, OPTION_MODE_POOL, "mode");
	cr_expect_eq(limit_spec_bytes(&options.limit, 0, 1), LIMIT_NONE, "limit");
	cr_expect_str_eq(options.dump, "stderr", "dump");
	cr_expect_eq(options.format, OPTION_FORMAT_TEXT, "format");
	cr_expect_eq(options.signal, SIGUSR1, "signal");
	cr_expect_eq(options.log, OPTION_LOG_WARN, "log");
	for (id = 0; id < OPTION_N; id++)
		cr_expect_not(options.is_set[id], "%s counts as set", option_info(id)->name);
}

Test(options, every_default_prints_as_the_table_writes_it)
{
	char text[PATH_MAX];
	int id;

	parse((const char *[]){NULL});
	for (id = 0; id < OPTION_N; id++) {
		options_print_value(&options, id, text, sizeof(text));
		cr_expect_str_eq(text, option_info(id)->default_text, "%s prints as '%s'",
				 option_info(id)->name, text);
	}
}

Test(options, every_option_can_be_set)
{
	const char *variables[] = {
		"PATH=/bin",
		"POOLSHIM_MODE=Account",
		"POOLSHIM_LIMIT=0=8g,1=50%",
		"POOLSHIM_REUSE=Fence",
		"POOLSHIM_RUN_AHEAD=1g",
		"POOLSHIM_ASYNC=native",
		"POOLSHIM_DUMP=/x-%p",
		"POOLSHIM_FORMAT=json",
		"POOLSHIM_SIGNAL=SIGUSR2",
		"POOLSHIM_LOG=debug",
		NULL,
	};
	int id;

	cr_expect_eq(parse(variables), 0, "a good value was refused: %s", problems[0].name);
	cr_expect_eq(options.mode, OPTION_MODE_ACCOUNT, "mode");
	cr_expect_eq(limit_spec_bytes(&options.limit, 1, 10), 5, "limit");
	cr_expect_eq(options.reuse, OPTION_REUSE_FENCE, "reuse");
	cr_expect_eq(options.async, OPTION_ASYNC_NATIVE, "async");
	cr_expect(!options.run_ahead.is_share && options.run_ahead.bytes == 1 << 30, "run ahead");
	cr_expect_str_eq(options.dump, "/x-%p", "dump");
	cr_expect_eq(options.format, OPTION_FORMAT_JSON, "format");
	cr_expect_eq(options.signal, SIGUSR2, "signal");
	cr_expect_eq(options.log, OPTION_LOG_DEBUG, "log");
	for (id = 0; id < OPTION_N; id++)
		cr_expect(options.is_set[id], "%s does not count as set", option_info(id)->name);
}

static const struct printed_case {
	const char *variable;
	enum option_id id;
	const char *want;
} printed_values[] = {
	{"POOLSHIM_MODE=OFF", OPTION_MODE, "off"},
	{"POOLSHIM_LIMIT=0=8g,1=50%", OPTION_LIMIT, "0=8GiB,1=50%"},
	{"POOLSHIM_DUMP=none", OPTION_DUMP, "none"},
	{"POOLSHIM_DUMP=out-%p.json", OPTION_FORMAT, "json"},
	{"POOLSHIM_DUMP=out-%p.txt", OPTION_FORMAT, "text"},
	{"POOLSHIM_SIGNAL=sigrtmin+4", OPTION_SIGNAL, "RTMIN+4"},
	{"POOLSHIM_SIGNAL=None", OPTION_SIGNAL, "none"},
	{"POOLSHIM_LOG=error", OPTION_LOG, "error"},
};

TEST_ROWS(options, the_value_in_force_is_printed, printed_values)
{
	const struct printed_case *c = &printed_values[*row];
	char text[PATH_MAX];
	size_t len;

	cr_expect_eq(parse_one(c->variable), 0, "%s was refused", c->variable);
	len = options_print_value(&options, c->id, text, sizeof(text));
	cr_expect_str_eq(text, c->want, "%s prints as '%s'", c->variable, text);
	cr_expect_eq(len, strlen(c->want), "%s: wrong length %zu", c->variable, len);
}

static const char *const refused_values[] = {
	"POOLSHIM_MODE=",      "POOLSHIM_MODE=pools",  "POOLSHIM_MODE=poo",
	"POOLSHIM_MODE=pool ", "POOLSHIM_LIMIT=",      "POOLSHIM_LIMIT=lots",
	"POOLSHIM_LIMIT=-1",   "POOLSHIM_LIMIT=120%",  "POOLSHIM_LIMIT=99999999E",
	"POOLSHIM_DUMP=",      "POOLSHIM_FORMAT=xml",  "POOLSHIM_SIGNAL=KILL",
	"POOLSHIM_SIGNAL=",    "POOLSHIM_SIGNAL=SEGV", "POOLSHIM_LOG=verbose",
	"POOLSHIM_LOG=4",
};

TEST_ROWS(options, a_bad_value_is_one_problem_and_the_default_holds, refused_values)
{
	const char *variable = refused_values[*row];
	const char *value = strchr(variable, '=') + 1;
	char text[PATH_MAX];
	int id;

	cr_assert_eq(parse_one(variable), 1, "%s is not one problem", variable);
	cr_expect_eq(problems[0].kind, OPTION_PROBLEM_VALUE, "%s: wrong kind", variable);
	cr_expect_eq(strncmp(variable, problems[0].name, strlen(problems[0].name)), 0,
		     "%s: told as %s", variable, problems[0].name);
	cr_expect_str_eq(problems[0].value, value, "%s: told with '%s'", variable,
			 problems[0].value);
	for (id = 0; id < OPTION_N; id++) {
		options_print_value(&options, id, text, sizeof(text));
		cr_expect_str_eq(text, option_info(id)->default_text, "%s: %s is '%s' now",
				 variable, option_info(id)->name, text);
		cr_expect_not(options.is_set[id], "%s: %s counts as set", variable,
			      option_info(id)->name);
		if (strcmp(option_info(id)->name, problems[0].name) == 0)
			cr_expect_str_eq(problems[0].accepted, option_info(id)->accepted,
					 "%s: says another option's values", variable);
	}
}

Test(options, bad_values_of_several_options_are_all_told)
{
	const char *variables[] = {"POOLSHIM_MODE=x", "POOLSHIM_LIMIT=x", "POOLSHIM_LOG=info",
				   "POOLSHIM_SIGNAL=x", NULL};

	cr_expect_eq(parse(variables), 3, "not all three were told");
	cr_expect_eq(options.log, OPTION_LOG_INFO, "a good value was lost among bad ones");
	cr_expect_eq(options_parse(&options, lookup_in, (void *)variables, problems, 2), 2,
		     "more was told than there was room for");
	cr_expect_eq(options_parse(&options, lookup_in, (void *)variables, NULL, 0), 0,
		     "more was told than there was room for");
}

Test(options, a_set_format_beats_the_suffix_of_the_path)
{
	const char *variables[] = {"POOLSHIM_DUMP=a.json", "POOLSHIM_FORMAT=text", NULL};

	cr_expect_eq(parse(variables), 0, "a good value was refused");
	cr_expect_eq(options.format, OPTION_FORMAT_TEXT, "the suffix won");
}

Test(options, a_bad_format_leaves_the_choice_to_the_suffix)
{
	const char *variables[] = {"POOLSHIM_DUMP=a.json", "POOLSHIM_FORMAT=xml", NULL};

	cr_expect_eq(parse(variables), 1, "xml is not one problem");
	cr_expect_eq(options.format, OPTION_FORMAT_JSON, "the suffix was not asked");
}

Test(options, the_longest_path_fits_and_a_longer_one_is_refused)
{
	static char variable[sizeof("POOLSHIM_DUMP=") + PATH_MAX];
	size_t prefix_len = strlen("POOLSHIM_DUMP=");

	memcpy(variable, "POOLSHIM_DUMP=", prefix_len);
	memset(variable + prefix_len, 'p', PATH_MAX - 1);
	cr_expect_eq(parse_one(variable), 0, "a path of PATH_MAX - 1 bytes was refused");
	cr_expect_eq(strlen(options.dump), PATH_MAX - 1, "the path was cut");

	variable[prefix_len + PATH_MAX - 1] = 'p';
	cr_expect_eq(parse_one(variable), 1, "a path of PATH_MAX bytes was accepted");
	cr_expect_str_eq(options.dump, "stderr", "the default does not hold");
}

Test(options, a_told_value_stays_one_short_line)
{
	char long_value[200] = "POOLSHIM_LIMIT=";
	char text[OPTION_PROBLEM_TEXT_MAX];

	memset(long_value + strlen(long_value), 'x', 150);
	cr_expect_eq(parse_one(long_value), 1);
	cr_expect_eq(strlen(problems[0].value), sizeof(problems[0].value) - 1, "not cut");
	cr_expect_str_eq(problems[0].value + sizeof(problems[0].value) - 4, "...",
			 "the cut does not show");

	cr_expect_eq(parse_one("POOLSHIM_MODE=a\nb\033[1mc\177"), 1);
	cr_expect_str_eq(problems[0].value, "a?b?[1mc?", "control characters got through");

	option_problem_print(&problems[0], text, sizeof(text));
	cr_expect_str_eq(text,
			 "POOLSHIM_MODE: 'a?b?[1mc?' is not accepted (pool, account or off); "
			 "the default is used",
			 "the line reads: %s", text);
}

Test(options, a_told_value_is_not_cut_inside_a_character)
{
	char variable[200] = "POOLSHIM_MODE=";
	size_t i;

	for (i = 0; i < 40; i++)
		strcat(variable, "\xc3\xa9");
	cr_expect_eq(parse_one(variable), 1);
	cr_expect_eq((unsigned char)problems[0].value[strlen(problems[0].value) - 4], 0xa9,
		     "half a character is left before the dots");
}

static const struct unknown_case {
	const char *variable;
	const char *nearest;
} unknown_names[] = {
	{"POOLSHIM_LIMT=8g", "POOLSHIM_LIMIT"},    {"POOLSHIM_LIMITS=8g", "POOLSHIM_LIMIT"},
	{"POOLSHIM_limit=8g", "POOLSHIM_LIMIT"},   {"POOLSHIM_DMUP=x", "POOLSHIM_DUMP"},
	{"POOLSHIM_MODES", "POOLSHIM_MODE"},       {"POOLSHIM_FROMAT=", "POOLSHIM_FORMAT"},
	{"POOLSHIM_SIGNALS=x", "POOLSHIM_SIGNAL"}, {"POOLSHIM_LOGS=x", "POOLSHIM_LOG"},
};

TEST_ROWS(options, an_unknown_name_is_told_with_the_nearest_known_one, unknown_names)
{
	const struct unknown_case *c = &unknown_names[*row];
	const char *variables[] = {"HOME=/", c->variable, "POOLSHIM_LIMIT=8g", "XPOOLSHIM_A=1",
				   NULL};
	char text[OPTION_PROBLEM_TEXT_MAX];

	cr_assert_eq(find_unknown(variables, N_ROWS(problems)), 1, "%s is not one problem",
		     c->variable);
	cr_expect_eq(problems[0].kind, OPTION_PROBLEM_UNKNOWN, "%s: wrong kind", c->variable);
	cr_expect_eq(strncmp(problems[0].name, c->variable, strcspn(c->variable, "=")), 0,
		     "%s: told as %s", c->variable, problems[0].name);
	cr_expect_str_eq(problems[0].nearest, c->nearest, "%s: %s was named", c->variable,
			 problems[0].nearest);
	option_problem_print(&problems[0], text, sizeof(text));
	cr_expect(strstr(text, c->nearest), "%s: the line reads: %s", c->variable, text);
}

Test(options, unknown_names_are_told_only_as_far_as_there_is_room)
{
	const char *variables[] = {"POOLSHIM_A=1", "POOLSHIM_B=1", "POOLSHIM_=1", NULL};

	cr_expect_eq(find_unknown(variables, 2), 2, "room for two");
	cr_expect_eq(find_unknown(variables, 9), 3, "three were there");
}

Test(options, a_name_of_any_length_is_told)
{
	static char variable[100000];
	const char *variables[] = {variable, NULL};

	memset(variable, 'A', sizeof(variable) - 1);
	memcpy(variable, OPTION_PREFIX, strlen(OPTION_PREFIX));
	cr_expect_eq(find_unknown(variables, 1), 1, "it was not told");
	cr_expect_eq(strlen(problems[0].name), sizeof(problems[0].name) - 1, "not cut");
}

Test(options, the_longest_problem_line_fits_its_announced_text)
{
	struct option_problem problem = {.kind = OPTION_PROBLEM_VALUE};
	int id;

	memset(problem.name, 'n', sizeof(problem.name) - 1);
	memset(problem.value, 'v', sizeof(problem.value) - 1);
	for (id = 0; id < OPTION_N; id++) {
		problem.accepted = option_info(id)->accepted;
		cr_expect_lt(option_problem_print(&problem, NULL, 0), OPTION_PROBLEM_TEXT_MAX,
			     "%s: the line may be cut", option_info(id)->name);
	}
}
