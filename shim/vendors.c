/* SPDX-License-Identifier: MIT */
#include "shim/vendors.h"

#include <stddef.h>
#include <string.h>

#include "shim/callers.h"
#include "shim/elf_walk.h"
#include "shim/hook_runtime.h"

bool
vendors_has(const char *path)
{
	static const char *const names[] = {
#define VENDOR(name, what) name,
#include "shim/vendors.def"
#undef VENDOR
	};
	const char *base = elf_basename(path);
	const size_t len = strcspn(base, ".-");

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (strlen(names[i]) == len && strncmp(base, names[i], len) == 0)
			return true;
	return false;
}

bool
vendors_is_caller(const void *return_address)
{
	const char *path = callers_path(callers_tag(runtime_call_site(return_address)));

	return path && vendors_has(path);
}
