/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * The verbs of the poolshim command: one file each, one row each in the table of main.c.
 *
 * A verb gets its own words: argv[0] is the verb, argv[argc] is NULL. It prints its result on
 * stdout and one line about what went wrong on stderr, and returns the status to exit with.
 * One thread; no locking.
 */

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

int run_main(int argc, char **argv);
