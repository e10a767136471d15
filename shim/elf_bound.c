/* SPDX-License-Identifier: MIT */
#include "shim/elf_bound.h"

#include <elf.h>

#include "shim/elf_walk.h"

/* Relocations that hold the address of a named symbol. */
#if defined(__x86_64__)
enum {
	RELOCATION_DATA = R_X86_64_GLOB_DAT,
	RELOCATION_CALL = R_X86_64_JUMP_SLOT,
	RELOCATION_POINTER = R_X86_64_64,
};
#elif defined(__aarch64__)
enum {
	RELOCATION_DATA = R_AARCH64_GLOB_DAT,
	RELOCATION_CALL = R_AARCH64_JUMP_SLOT,
	RELOCATION_POINTER = R_AARCH64_ABS64,
};
#else
enum {
	RELOCATION_DATA = -1, /* not read: nothing is ever found to be bound past */
	RELOCATION_CALL = -1,
	RELOCATION_POINTER = -1,
};
#endif

extern struct r_debug _r_debug __attribute__((weak));

/* How glibc links the namespaces from r_version 2 on; its header has it since 2.35. */
struct namespace_debug {
	struct r_debug base;
	struct namespace_debug *next;
};

struct image_walk {
	bool (*fn)(const struct elf_image *image, void *arg);
	void *arg;
};

static int
walk_image(struct dl_phdr_info *info, size_t n_bytes, void *data)
{
	const struct image_walk *walk = data;
	struct elf_image image = {
		.name = info->dlpi_name,
		.base = info->dlpi_addr,
		.start = UINTPTR_MAX,
		.segments = info->dlpi_phdr,
		.n_segments = info->dlpi_phnum,
	};

	(void)n_bytes;
	for (unsigned int i = 0; i < image.n_segments; i++) {
		const ElfW(Phdr) *segment = &image.segments[i];
		const uintptr_t start = image.base + segment->p_vaddr;

		if (segment->p_type == PT_DYNAMIC)
			image.dynamic = (const void *)start;
		if (segment->p_type != PT_LOAD)
			continue;
		if (start < image.start)
			image.start = start;
		if (start + segment->p_memsz > image.end)
			image.end = start + segment->p_memsz;
	}
	return !walk->fn(&image, walk->arg);
}

void
elf_for_each_image(bool (*fn)(const struct elf_image *image, void *arg), void *arg)
{
	struct image_walk walk = {.fn = fn, .arg = arg};

	dl_iterate_phdr(walk_image, &walk);
}

struct namespace_walk {
	void (*fn)(const struct link_map *first, void *arg);
	void *arg;
};

/* Called for the first object only: the list of every namespace is locked meanwhile. */
static int
walk_namespaces(struct dl_phdr_info *info, size_t n_bytes, void *data)
{
	const struct namespace_walk *walk = data;
	const struct r_debug *debug = &_r_debug;
	const struct namespace_debug *here;

	(void)info, (void)n_bytes;
	if (!debug || debug->r_version < 2)
		return 1;
	__asm__("" : "+r"(debug)); /* larger than the type that the header gives it */
	here = (const struct namespace_debug *)debug;
	for (here = here->next; here; here = here->next)
		if (here->base.r_map)
			walk->fn(here->base.r_map, walk->arg);
	return 1;
}

void
elf_for_each_namespace(void (*fn)(const struct link_map *first, void *arg), void *arg)
{
	struct namespace_walk walk = {.fn = fn, .arg = arg};

	dl_iterate_phdr(walk_namespaces, &walk);
}

static size_t
n_rows(size_t n_bytes)
{
	return n_bytes / sizeof(ElfW(Rela));
}

bool
elf_references_init(struct elf_references *references, const struct elf_image *image)
{
	bool calls_have_addends = false;
	size_t n_relative = 0; /* come first, and name nothing */

	*references = (struct elf_references){.image = image};
	for (const ElfW(Dyn) *entry = image->dynamic; entry && entry->d_tag != DT_NULL; entry++) {
		const void *target = elf_dynamic_pointer(image->base, entry->d_un.d_ptr);

		if (entry->d_tag == DT_SYMTAB)
			references->symbols = target;
		else if (entry->d_tag == DT_STRTAB)
			references->strings = target;
		else if (entry->d_tag == DT_RELA)
			references->tables[0].rows = target;
		else if (entry->d_tag == DT_RELASZ)
			references->tables[0].n = n_rows(entry->d_un.d_val);
		else if (entry->d_tag == DT_RELACOUNT)
			n_relative = entry->d_un.d_val;
		else if (entry->d_tag == DT_JMPREL)
			references->tables[1].rows = target;
		else if (entry->d_tag == DT_PLTRELSZ)
			references->tables[1].n = n_rows(entry->d_un.d_val);
		else if (entry->d_tag == DT_PLTREL)
			calls_have_addends = entry->d_un.d_val == DT_RELA;
	}
	for (size_t i = 0; i < 2; i++)
		if (!references->tables[i].rows || (i == 1 && !calls_have_addends))
			references->tables[i].n = 0;
	if (n_relative <= references->tables[0].n)
		references->row = n_relative;
	return references->symbols && references->strings;
}

/* Without sanitizers: a reference may lie in what they keep for themselves. */
ELF_WALK_EARLY static bool
read_row(const struct elf_references *references, const ElfW(Rela) * row, const char **ret_name,
	 uintptr_t *ret_target)
{
	const int type = (int)ELF64_R_TYPE(row->r_info);
	const size_t symbol = ELF64_R_SYM(row->r_info);
	uintptr_t value;

	if (!symbol ||
	    (type != RELOCATION_DATA && type != RELOCATION_CALL && type != RELOCATION_POINTER))
		return false;
	value = *(const uintptr_t *)(references->image->base + row->r_offset);
	*ret_name = references->strings + references->symbols[symbol].st_name;
	*ret_target = type == RELOCATION_POINTER ? value - (uintptr_t)row->r_addend : value;
	return true;
}

bool
elf_references_next(struct elf_references *references, const char **ret_name, uintptr_t *ret_target)
{
	while (references->table < 2) {
		if (references->row == references->tables[references->table].n) {
			references->table++;
			references->row = 0;
			continue;
		}
		if (read_row(references,
			     &references->tables[references->table].rows[references->row++],
			     ret_name, ret_target))
			return true;
	}
	return false;
}
