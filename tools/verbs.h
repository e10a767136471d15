/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * The verbs of the poolshim command: one file each, one row each in the table of main.c.
 *
 * A verb gets its own words: argv[0] is the verb, argv[argc] is NULL. It prints its result on
 * stdout and one line about what went wrong on stderr, and returns the status to exit with.
 * One thread; no locking.
 */

#include <glib.h>

enum exit_status {
	EXIT_STATUS_FINE = 0,
	EXIT_STATUS_NO = 1, /* what was asked for did not work */
	EXIT_STATUS_USAGE = 2,
	EXIT_STATUS_CANNOT_RUN = 126, /* as env(1) and the shells have it */
	EXIT_STATUS_NOT_FOUND = 127,
};

struct verb {
	const char *name;
	int (*main)(int argc, char **argv);
	const char *help;
};

int list_main(int argc, char **argv);
int run_main(int argc, char **argv);
int stats_main(int argc, char **argv);

/* Says what is wrong with a command line. Returns the status for it. */
int verb_usage(const char *verb, const char *problem);

/*
 * Parses a verb's options; --help is its own. words: what follows them, for --help. Returns the
 * words that are no options, the verb first, for g_strfreev(); NULL after it has said what is
 * wrong.
 */
char **verb_parse(char **argv, const GOptionEntry *entries, const char *verb, const char *words,
		  const char *summary);
