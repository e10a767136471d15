/* SPDX-License-Identifier: MIT */
#include "policy/signal_name.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <signal.h>
#include <string.h>

#include "tests/support/rows.h"

/* The ends of the real-time range are not constants: want counts from one of them. */
static const struct good_case {
	const char *text;
	enum { PLAIN, FROM_MIN, FROM_MAX } base;
	int want;
	const char *printed;
} good_names[] = {
	{"USR1", PLAIN, SIGUSR1, "USR1"},    {"SIGUSR1", PLAIN, SIGUSR1, "USR1"},
	{"sigusr2", PLAIN, SIGUSR2, "USR2"}, {"Usr2", PLAIN, SIGUSR2, "USR2"},
	{"hup", PLAIN, SIGHUP, "HUP"},       {"TERM", PLAIN, SIGTERM, "TERM"},
	{"winch", PLAIN, SIGWINCH, "WINCH"}, {"10", PLAIN, 10, NULL},
	{"RTMIN", FROM_MIN, 0, "RTMIN+0"},   {"SIGRTMIN+3", FROM_MIN, 3, "RTMIN+3"},
	{"rtmin+3", FROM_MIN, 3, "RTMIN+3"}, {"RTMAX", FROM_MAX, 0, NULL},
	{"RTMAX-2", FROM_MAX, -2, NULL},
};

static int
wanted_signal(const struct good_case *c)
{
	return c->want + (c->base == FROM_MIN ? SIGRTMIN : c->base == FROM_MAX ? SIGRTMAX : 0);
}

TEST_ROWS(signal_name, a_usable_signal_is_known_and_its_printed_name_reads_back, good_names)
{
	const struct good_case *c = &good_names[*row];
	char name[SIGNAL_NAME_MAX];
	int signal = 0, again = 0;

	cr_expect_eq(signal_name_parse(c->text, &signal), 0, "'%s' was refused", c->text);
	cr_expect_eq(signal, wanted_signal(c), "'%s' was read as %d", c->text, signal);

	signal_name_print(signal, name, sizeof(name));
	if (c->printed)
		cr_expect_str_eq(name, c->printed, "'%s' was printed as '%s'", c->text, name);
	cr_expect_eq(signal_name_parse(name, &again), 0, "'%s' was refused", name);
	cr_expect_eq(again, signal, "'%s' was read as %d", name, again);
}

static const char *const bad_names[] = {
	"",       "SIG",     "KILL",     "SIGKILL",  "stop",   "SEGV",  "BUS",       "ILL",
	"FPE",    "ABRT",    "TRAP",     "SYS",      "9",      "11",    "0",         "-1",
	"32",     "33",      "65",       "99999999", "USR3",   "USR1 ", "SIGSIGHUP", "RTMIN-1",
	"RTMIN+", "RTMAX+1", "RTMIN+99", "RTMAX-99", "RTMINX", "10x",   "none",
};

TEST_ROWS(signal_name, what_cannot_ask_for_a_dump_is_refused, bad_names)
{
	int signal = 77;

	cr_expect_eq(signal_name_parse(bad_names[*row], &signal), -EINVAL, "'%s' was accepted",
		     bad_names[*row]);
	cr_expect_eq(signal, 77, "'%s': the result was touched", bad_names[*row]);
}
