/* SPDX-License-Identifier: MIT */
#include "tools/preload.h"

#include <string.h>

#include <glib.h>

#define LIBRARY_NAME "libpoolshim.so"

/* What ld.so(8) splits LD_PRELOAD at. */
#define PRELOAD_SEPARATORS " :"

char *
preload_find_library(void)
{
	g_autofree char *command = g_file_read_link("/proc/self/exe", NULL);

	if (command) {
		g_autofree char *folder = g_path_get_dirname(command);
		g_autofree char *top = g_path_get_dirname(folder);
		g_autofree char *built = g_build_filename(top, "shim", LIBRARY_NAME, NULL);

		if (g_file_test(built, G_FILE_TEST_IS_REGULAR))
			return g_steal_pointer(&built);
	}
	if (g_file_test(POOLSHIM_LIBDIR "/" LIBRARY_NAME, G_FILE_TEST_IS_REGULAR))
		return g_strdup(POOLSHIM_LIBDIR "/" LIBRARY_NAME);
	return g_strdup(LIBRARY_NAME);
}

/* Is the shim, from whatever folder, already there? Two copies in one process would both serve. */
static bool
has_library(const char *preload)
{
	g_auto(GStrv) entries = g_strsplit_set(preload, PRELOAD_SEPARATORS, -1);
	char **entry;

	for (entry = entries; *entry; entry++) {
		g_autofree char *name = g_path_get_basename(*entry);

		if (strcmp(name, LIBRARY_NAME) == 0)
			return true;
	}
	return false;
}

static void
set_in_front(char ***environment, const char *name, const char *value)
{
	const char *old = g_environ_getenv(*environment, name);
	g_autofree char *joined =
		old && *old ? g_strconcat(value, ":", old, NULL) : g_strdup(value);

	*environment = g_environ_setenv(*environment, name, joined, TRUE);
}

bool
preload_add(char ***environment, const char *library)
{
	const char *old = g_environ_getenv(*environment, "LD_PRELOAD");
	const char *entry = library;
	g_autofree char *joined = NULL;

	if (old && has_library(old))
		return true;
	if (strchr(library, ':'))
		return false;

	if (strchr(library, ' ')) {
		g_autofree char *folder = g_path_get_dirname(library);

		set_in_front(environment, "LD_LIBRARY_PATH", folder);
		entry = LIBRARY_NAME;
	}
	joined = old && *old ? g_strconcat(old, ":", entry, NULL) : g_strdup(entry);
	*environment = g_environ_setenv(*environment, "LD_PRELOAD", joined, TRUE);
	return true;
}
