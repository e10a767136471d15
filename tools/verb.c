/* SPDX-License-Identifier: MIT */
/*
 * What verbs share: their options, by GLib's parser.
 */
#include <stdio.h>

#include <glib.h>

#include "tools/verbs.h"

int
verb_usage(const char *verb, const char *problem)
{
	fprintf(stderr, "poolshim %s: %s; try poolshim %s --help\n", verb, problem, verb);
	return EXIT_STATUS_USAGE;
}

char **
verb_parse(char **argv, const GOptionEntry *entries, const char *verb, const char *words,
	   const char *summary)
{
	g_autoptr(GOptionContext) context = g_option_context_new(words);
	g_autofree char *name = g_strdup_printf("poolshim %s", verb);
	g_autoptr(GError) error = NULL;
	char **left = g_strdupv(argv);

	g_set_prgname(name); /* for --help */
	g_option_context_set_summary(context, summary);
	g_option_context_add_main_entries(context, entries, NULL);
	if (g_option_context_parse_strv(context, &left, &error))
		return left;
	verb_usage(verb, error->message);
	g_strfreev(left);
	return NULL;
}
