/* SPDX-License-Identifier: MIT */
/* Whether the pointers that a look-up gave lead to the shim's wrappers. */
#include "tests/preload/routes/cells/cell.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

static const struct row {
	const char *symbol, *kind;
	size_t offset;
} rows[] = {
#define CELL_DRIVER(symbol, query, version, kind) \
	{#symbol, #kind, offsetof(struct cell_driver, symbol)},
#include "tests/preload/routes/cells/cell_driver.def"
#undef CELL_DRIVER
};

enum {
	N_ROWS = sizeof(rows) / sizeof(rows[0]),
};

static const char *const hooked[] = {
#define HOOK(symbol, query, stream0, need) #symbol,
#include "shim/hooks.def"
#undef HOOK
#define DRIVER_API_VERSION(version)
#define DRIVER(symbol, ...)
#define SUBMIT(symbol, ...) #symbol,
#define SYNC(symbol, ...) #symbol,
#include "shim/driver_api.def"
};

static bool
is_hooked(const char *symbol)
{
	for (size_t i = 0; i < sizeof(hooked) / sizeof(hooked[0]); i++)
		if (!strcmp(hooked[i], symbol))
			return true;
	return false;
}

/* The wrapper that this route owes for a row; "" for one that is not hooked. */
static void
wanted_wrapper(const struct row *row, bool wants_per_thread, char *name, size_t n_bytes)
{
	static const char *const suffixes[] = {"_ptsz", "_ptds"};

	for (int i = 0; wants_per_thread && i < 2; i++) {
		snprintf(name, n_bytes, "%s%s", row->symbol, suffixes[i]);
		if (is_hooked(name))
			return;
	}
	snprintf(name, n_bytes, "%s", is_hooked(row->symbol) ? row->symbol : "");
}

void
cell_prove_pointers(const struct cell_driver *driver, bool wants_per_thread)
{
	if (!dlsym(RTLD_DEFAULT, "poolshim_used_bytes"))
		return;
	for (size_t i = 0; i < N_ROWS; i++) {
		const char *object = "nothing", *symbol = "nothing";
		char wanted[128];
		Dl_info info;
		void *found;

		memcpy(&found, (const char *)driver + rows[i].offset, sizeof(found));
		wanted_wrapper(&rows[i], wants_per_thread, wanted, sizeof(wanted));
		if (!found || !wanted[0])
			continue;
		if (dladdr(found, &info)) {
			object = info.dli_fname;
			symbol = info.dli_sname ? info.dli_sname : "no name";
		}
		printf("proof %s %s %s is %s in %s\n", rows[i].kind,
		       strstr(object, "libpoolshim") && !strcmp(symbol, wanted) ? "yes" : "no",
		       rows[i].symbol, symbol, object);
	}
}
