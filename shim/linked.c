/* SPDX-License-Identifier: MIT */
#include "shim/linked.h"

#include <link.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include "shim/coverage.h"
#include "shim/elf_bound.h"
#include "shim/elf_walk.h"
#include "shim/hooks.h"
#include "shim/lookup.h"
#include "shim/missed.h"

static bool
needs_driver(const struct elf_image *image, const char *strings)
{
	for (const ElfW(Dyn) *entry = image->dynamic; entry->d_tag != DT_NULL; entry++)
		if (entry->d_tag == DT_NEEDED &&
		    elf_name_starts_with(strings + entry->d_un.d_val, "libcuda.so"))
			return true;
	return false;
}

/* The driver's own libraries may use what they like. */
static bool
look_at_image(const struct elf_image *image, void *arg)
{
	struct elf_references references;
	const char *name;
	uintptr_t target;

	(void)arg;
	if (!elf_references_init(&references, image) || !needs_driver(image, references.strings) ||
	    lookup_is_driver((void *)image->start))
		return true;
	while (elf_references_next(&references, &name, &target))
		if (hooks_is_unknown(name))
			coverage_note_linked(name);
	return true;
}

/* The first object tells how many were ever loaded. */
static int
read_n_loaded(struct dl_phdr_info *info, size_t n_bytes, void *arg)
{
	(void)n_bytes;
	*(unsigned long long *)arg = info->dlpi_adds;
	return 1;
}

/* Was an object loaded since the number was read? */
static bool
is_new(_Atomic unsigned long long *n_loaded_seen)
{
	unsigned long long n_loaded = 0;

	dl_iterate_phdr(read_n_loaded, &n_loaded);
	/* relaxed: threads that meet here look twice at worst */
	return atomic_exchange_explicit(n_loaded_seen, n_loaded, memory_order_relaxed) != n_loaded;
}

void
linked_scan(void)
{
	static _Atomic unsigned long long n_loaded_seen;

	if (!is_new(&n_loaded_seen))
		return;
	elf_for_each_image(look_at_image, NULL);
	coverage_tell_doubt();
}

void
linked_look(void)
{
	static _Atomic unsigned long long n_loaded_seen;
	struct missed missed;

	linked_scan();
	if (!is_new(&n_loaded_seen))
		return;
	missed_find(&missed, true);
	if (missed.n)
		coverage_note_missed();
}
