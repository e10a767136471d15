/* SPDX-License-Identifier: MIT */
/*
 * A program that knows nothing of CUDA and loads plug-ins that do: cell_host HOW PLUGIN...
 *
 *   local     RTLD_LOCAL; the cells in each plug-in, then memory of one that the next one frees
 *   deepbind  RTLD_DEEPBIND: the plug-in is bound past every preloaded library
 *   late      the first RTLD_LOCAL, the others RTLD_DEEPBIND
 *   dlmopen   a namespace of its own, where no preloaded library is
 */
#include "tests/preload/routes/cells/cell.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

enum {
	MAX_PLUGINS = 4,
};

struct plugin {
	const struct cell_ops *ops;
	char tag[16];
};

static struct plugin
load(const char *how, bool is_first, const char *path)
{
	const bool is_deepbind = !strcmp(how, "deepbind") || (!strcmp(how, "late") && !is_first);
	const struct cell_ops *(*ops)(void) = NULL;
	struct plugin plugin = {0};
	int (*version)(void) = NULL;
	void *handle;

	if (!strcmp(how, "dlmopen"))
		handle = dlmopen(LM_ID_NEWLM, path, RTLD_NOW | RTLD_LOCAL);
	else
		handle = dlopen(path, RTLD_NOW | RTLD_LOCAL | (is_deepbind ? RTLD_DEEPBIND : 0));
	if (handle) {
		ops = (const struct cell_ops *(*)(void))dlsym(handle, "cell_plugin_ops");
		version = (int (*)(void))dlsym(handle, "cell_plugin_version");
	}
	if (ops && version) {
		plugin.ops = ops();
		snprintf(plugin.tag, sizeof(plugin.tag), "%d", version());
	} else {
		printf("%s does not load: %s\n", path, dlerror());
	}
	return plugin;
}

/* What one runtime was refused is no error of the other. */
static void
compare_errors(const struct cell_ops *refused, const struct cell_ops *other)
{
	void *device = NULL;

	other->last_error(); /* whatever it was, it is forgotten */
	cell_print("device", "impossible alloc %d",
		   refused->device_alloc(&device, (size_t)1 << 45));
	cell_print("device", "last error of the other %d", other->last_error());
	cell_print("device", "last error %d", refused->last_error());
}

/* Two runtimes share the device's primary context: memory is not the runtime's that gave it. */
static void
exchange(const struct cell_ops *from, const struct cell_ops *to)
{
	void *device = NULL, *host = NULL, *async = NULL;

	cell_print("device", "for another: alloc %d", from->device_alloc(&device, 1000));
	cell_print("device", "of another: free %d", to->device_free(device));
	cell_print("pinned", "for another: alloc %d", from->host_alloc[0](&host, 1000));
	cell_print("pinned", "of another: free %d", to->host_free(host));
	cell_print("async", "for another: alloc %d", from->async_alloc[0](&async, 1000));
	cell_print("async", "of another: free %d", to->async_free[0](async));
	cell_print("async", "synchronize %d", to->synchronize());
}

int
main(int argc, char **argv)
{
	struct plugin plugins[MAX_PLUGINS];
	bool is_caught;
	int n = argc - 2;

	if (n < 1 || n > MAX_PLUGINS) {
		fprintf(stderr, "usage: cell_host local|late|deepbind|dlmopen PLUGIN...\n");
		return 2;
	}
	for (int i = 0; i < n; i++) {
		plugins[i] = load(argv[1], i == 0, argv[i + 2]);
		if (!plugins[i].ops)
			return 1;
	}
	is_caught = strcmp(argv[1], "deepbind") && strcmp(argv[1], "dlmopen");
	for (int i = 0; i < n; i++)
		cell_run_all(plugins[i].ops, plugins[i].tag, is_caught);
	for (int i = 0; i < n - 1; i++) {
		exchange(plugins[i].ops, plugins[i + 1].ops);
		compare_errors(plugins[i].ops, plugins[i + 1].ops);
		compare_errors(plugins[i + 1].ops, plugins[i].ops);
	}
	return 0;
}
