/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * Copies of plug-ins, made and loaded under names of their own.
 */
#include <link.h>

#include "tests/preload/callers/caller_plugin.h"
#include "tests/preload/victim.h"

typedef int alloc_fn(uint64_t *ret_address, size_t n_bytes);
typedef int call_fn(alloc_fn *function, uint64_t *ret_address, size_t n_bytes);

/* Where the copies are made. */
static const char *folder;

struct plugin {
	void *handle;
	char name[64];
	uintptr_t base;
	alloc_fn *alloc;
	call_fn *call;
};

static inline void
copy_file(const char *from, const char *to)
{
	static char bytes[4 << 20];
	FILE *in = fopen(from, "rb"), *out = fopen(to, "wb");
	size_t n;

	MUST(!in || !out);
	while ((n = fread(bytes, 1, sizeof(bytes), in)) > 0)
		MUST(fwrite(bytes, 1, n, out) != n);
	fclose(in);
	MUST(fclose(out));
}

static inline void
make_copy(const char *from, const char *name)
{
	char path[4096];

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	copy_file(from, path);
}

static inline struct plugin
load_copy(const char *name)
{
	struct plugin plugin = {0};
	struct link_map *map;
	char path[4096];

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	snprintf(plugin.name, sizeof(plugin.name), "%s", name);
	plugin.handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (!plugin.handle)
		victim_fail(__FILE__, __LINE__, "%s", dlerror());
	MUST(!plugin.handle);
	map = plugin.handle;
	plugin.base = map->l_addr;
	plugin.alloc = (alloc_fn *)dlsym(plugin.handle, "plugin_alloc");
	plugin.call = (call_fn *)dlsym(plugin.handle, "plugin_call");
	MUST(!plugin.alloc || !plugin.call);
	return plugin;
}

static inline struct plugin
load(const char *from, const char *name)
{
	make_copy(from, name);
	return load_copy(name);
}
