/* SPDX-License-Identifier: MIT */
/*
 * poolshim run: sets the options' variables and LD_PRELOAD, then becomes the program.
 *
 * The flags come from policy/options.def. Values go through as text: the shim checks them, in the
 * one place that also checks what was set by hand.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <glib.h>

#include "tools/preload.h"
#include "tools/verbs.h"

static const struct run_option {
	const char *variable, *preset, *accepted, *help;
} run_options[] = {
#define OPTION(id, field, type, preset, accepted, help) {"POOLSHIM_" #id, preset, accepted, help},
#include "policy/options.def"
#undef OPTION
};

#define N_OPTIONS G_N_ELEMENTS(run_options)

/* POOLSHIM_SOFT_LIMIT is --soft-limit. */
static char *
flag_name(const struct run_option *option)
{
	char *name = g_ascii_strdown(option->variable + strlen("POOLSHIM_"), -1);

	return g_strdelimit(name, "_", '-');
}

static void
print_help(void)
{
	size_t i;

	puts("Usage:\n"
	     "  poolshim run [OPTION...] [--] PROGRAM [ARGUMENT...]\n"
	     "\n"
	     "Runs a program under the shim.\n"
	     "\n"
	     "Options; each sets the variable of its name for the program, --limit "
	     "POOLSHIM_LIMIT:");
	for (i = 0; i < N_OPTIONS; i++) {
		g_autofree char *name = flag_name(&run_options[i]);

		printf("  --%s=VALUE\n      %s\n      %s; default: %s\n", name, run_options[i].help,
		       run_options[i].accepted, run_options[i].preset);
	}
	puts("  -h, --help\n"
	     "      show this help\n"
	     "\n"
	     "The status is the program's; 127 when it was not found, 126 when it cannot run.");
}

/* What the command line said: a NULL value is a flag that was not given. */
struct run_request {
	gboolean wants_help;
	char *values[N_OPTIONS];
	char **words; /* the verb, the program, its arguments */
};

static void
run_request_fini(struct run_request *request)
{
	size_t i;

	for (i = 0; i < N_OPTIONS; i++)
		g_free(request->values[i]);
	g_strfreev(request->words);
}

/* Takes the flags out of request->words. False after it has said what is wrong. */
static bool
parse_flags(struct run_request *request)
{
	g_autoptr(GOptionContext) context = g_option_context_new(NULL);
	g_autoptr(GPtrArray) names = g_ptr_array_new_with_free_func(g_free);
	g_autoptr(GError) error = NULL;
	GOptionEntry entries[N_OPTIONS + 2] = {0};
	size_t i;

	for (i = 0; i < N_OPTIONS; i++) {
		char *name = flag_name(&run_options[i]);

		g_ptr_array_add(names, name);
		entries[i].long_name = name;
		entries[i].arg = G_OPTION_ARG_FILENAME; /* kept as given, whatever the locale */
		entries[i].arg_data = &request->values[i];
	}
	entries[N_OPTIONS].long_name = "help";
	entries[N_OPTIONS].short_name = 'h';
	entries[N_OPTIONS].arg_data = &request->wants_help;

	g_option_context_set_help_enabled(context, FALSE);
	/* The program's own flags are its own: parsing ends at the first word that is no flag. */
	g_option_context_set_strict_posix(context, TRUE);
	g_option_context_add_main_entries(context, entries, NULL);
	if (!g_option_context_parse_strv(context, &request->words, &error)) {
		fprintf(stderr, "poolshim run: %s; try poolshim run --help\n", error->message);
		return false;
	}
	return true;
}

/* Returns only when the program cannot be run. */
static int
become(char **words, char **environment)
{
	int error;

	execvpe(words[0], words, environment);
	error = errno;
	fprintf(stderr, "poolshim run: cannot run '%s': %s\n", words[0], strerror(error));
	return error == ENOENT ? EXIT_STATUS_NOT_FOUND : EXIT_STATUS_CANNOT_RUN;
}

static int
run_program(char **words, char *const values[N_OPTIONS])
{
	g_auto(GStrv) environment = g_get_environ();
	g_autofree char *library = preload_find_library();
	size_t i;

	if (!preload_add(&environment, library)) {
		fprintf(stderr, "poolshim run: the loader cannot preload '%s': ':' in its path\n",
			library);
		return EXIT_STATUS_NO;
	}
	for (i = 0; i < N_OPTIONS; i++)
		if (values[i])
			environment = g_environ_setenv(environment, run_options[i].variable,
						       values[i], TRUE);
	return become(words, environment);
}

static int
run(struct run_request *request)
{
	char **program;

	if (!parse_flags(request))
		return EXIT_STATUS_USAGE;
	if (request->wants_help) {
		print_help();
		return EXIT_STATUS_FINE;
	}

	program = request->words + 1;
	if (*program && strcmp(*program, "--") == 0)
		program++;
	if (!*program) {
		fputs("poolshim run: no program given; try poolshim run --help\n", stderr);
		return EXIT_STATUS_USAGE;
	}
	return run_program(program, request->values);
}

int
run_main(int argc, char **argv)
{
	struct run_request request = {0};
	int status;

	(void)argc;
	request.words = g_strdupv(argv); /* the parser takes words out and frees them */
	status = run(&request);
	run_request_fini(&request);
	return status;
}
