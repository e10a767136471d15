/* SPDX-License-Identifier: MIT */
/*
 * The poolshim command: finds the verb and hands it its words.
 */
#include <stdio.h>
#include <string.h>

#include <glib.h>

#include "tools/verbs.h"

static const struct verb verbs[] = {
	{"run", run_main, "run a program under the shim"},
	{"list", list_main, "the processes under the shim, and those that were killed"},
	{"stats", stats_main, "the statistics of one of them"},
};

static void
print_help(FILE *out)
{
	size_t i;

	fputs("Usage:\n"
	      "  poolshim VERB [OPTION...] ...\n"
	      "  poolshim --help | --version\n"
	      "\n"
	      "Verbs (poolshim VERB --help says more):\n",
	      out);
	for (i = 0; i < G_N_ELEMENTS(verbs); i++)
		fprintf(out, "  %-10s %s\n", verbs[i].name, verbs[i].help);
}

static const struct verb *
find_verb(const char *name)
{
	size_t i;

	for (i = 0; i < G_N_ELEMENTS(verbs); i++)
		if (strcmp(verbs[i].name, name) == 0)
			return &verbs[i];
	return NULL;
}

/* Output that could not be written is a failure that nobody else would tell. */
static int
finish_output(int status)
{
	if (fflush(stdout) == 0 && !ferror(stdout))
		return status;
	perror("poolshim: cannot write to standard output");
	return EXIT_STATUS_NO;
}

int
main(int argc, char **argv)
{
	const struct verb *verb;

	if (argc < 2) {
		fputs("poolshim: no verb given; try poolshim --help\n", stderr);
		return EXIT_STATUS_USAGE;
	}
	if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
		print_help(stdout);
		return finish_output(EXIT_STATUS_FINE);
	}
	if (strcmp(argv[1], "--version") == 0) {
		puts("poolshim " POOLSHIM_VERSION);
		return finish_output(EXIT_STATUS_FINE);
	}

	verb = find_verb(argv[1]);
	if (!verb) {
		fprintf(stderr, "poolshim: unknown verb '%s'; try poolshim --help\n", argv[1]);
		return EXIT_STATUS_USAGE;
	}
	return finish_output(verb->main(argc - 1, argv + 1));
}
