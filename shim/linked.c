/* SPDX-License-Identifier: MIT */
#include "shim/linked.h"

#include <link.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include "shim/coverage.h"
#include "shim/elf_walk.h"
#include "shim/hooks.h"
#include "shim/lookup.h"

/* What an object's dynamic section says; the pointers lead into its memory. */
struct dynamic {
	struct elf_symbols symbols;
	const ElfW(Rela) * tables[2]; /* of the data, and of the functions */
	size_t table_bytes[2];
	size_t n_relative; /* at the start of the first: they name nothing */
	bool needs_driver;
};

static const ElfW(Dyn) * dynamic_section(const struct dl_phdr_info *info)
{
	for (int i = 0; i < info->dlpi_phnum; i++)
		if (info->dlpi_phdr[i].p_type == PT_DYNAMIC)
			return (const void *)(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr);
	return NULL;
}

/* False: this object has no names, or none of libcuda's. */
static bool
read_dynamic(const struct dl_phdr_info *info, struct dynamic *dynamic)
{
	const ElfW(Dyn) *section = dynamic_section(info);

	*dynamic = (struct dynamic){0};
	if (!elf_symbols_init(&dynamic->symbols, info->dlpi_addr, section))
		return false;
	for (; section->d_tag != DT_NULL; section++) {
		const void *target = elf_dynamic_pointer(info->dlpi_addr, section->d_un.d_ptr);

		if (section->d_tag == DT_NEEDED)
			dynamic->needs_driver |= elf_name_starts_with(
				dynamic->symbols.strings + section->d_un.d_val, "libcuda.so");
		else if (section->d_tag == DT_RELA)
			dynamic->tables[0] = target;
		else if (section->d_tag == DT_RELASZ)
			dynamic->table_bytes[0] = section->d_un.d_val;
		else if (section->d_tag == DT_RELACOUNT)
			dynamic->n_relative = section->d_un.d_val;
		else if (section->d_tag == DT_JMPREL)
			dynamic->tables[1] = target;
		else if (section->d_tag == DT_PLTRELSZ)
			dynamic->table_bytes[1] = section->d_un.d_val;
	}
	return dynamic->needs_driver;
}

static void
look_at_symbol(const struct elf_symbols *symbols, size_t index)
{
	const ElfW(Sym) *symbol = &symbols->symbols[index];
	const char *name = symbols->strings + symbol->st_name;

	if (index && symbol->st_shndx == SHN_UNDEF && hooks_is_unknown(name))
		coverage_note_unknown(name);
}

/* The driver's own libraries may use what they like. */
static int
look_at_object(struct dl_phdr_info *info, size_t n_bytes, void *arg)
{
	static _Atomic unsigned long long n_loaded_seen;
	struct dynamic dynamic;

	(void)n_bytes;
	if (!*(bool *)arg) {
		/* relaxed: threads that meet here look twice at worst */
		if (atomic_exchange_explicit(&n_loaded_seen, info->dlpi_adds,
					     memory_order_relaxed) == info->dlpi_adds)
			return 1;
		*(bool *)arg = true;
	}
	if (!read_dynamic(info, &dynamic) || lookup_is_driver(dynamic.symbols.strings))
		return 0;
	for (int i = 0; i < 2; i++)
		for (size_t j = i == 0 ? dynamic.n_relative : 0;
		     j < dynamic.table_bytes[i] / sizeof(ElfW(Rela)); j++)
			look_at_symbol(&dynamic.symbols, ELF64_R_SYM(dynamic.tables[i][j].r_info));
	return 0;
}

void
linked_scan(void)
{
	bool is_begun = false;

	dl_iterate_phdr(look_at_object, &is_begun);
}
