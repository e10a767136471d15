/* SPDX-License-Identifier: MIT */
#include "shim/elf_walk.h"

#include <elf.h>
#include <errno.h>
#include <stddef.h>
#include <unistd.h>

enum {
	VERSION_HIDDEN = 0x8000, /* bit of a version index: not the default version of its name */
	HASH_END = 1,            /* bit of a hash value: the last one of its chain */
};

/* Weak, so that no reference to the loader's file is left: libc alone stays in DT_NEEDED. */
extern struct r_debug _r_debug __attribute__((weak));

ELF_WALK_EARLY bool
elf_names_are_equal(const char *a, const char *b)
{
	while (*a && *a == *b) {
		a++;
		b++;
	}
	return *a == *b;
}

ELF_WALK_EARLY bool
elf_name_starts_with(const char *name, const char *prefix)
{
	while (*prefix && *prefix == *name) {
		prefix++;
		name++;
	}
	return !*prefix;
}

ELF_WALK_EARLY const char *
elf_basename(const char *path)
{
	const char *last = path;

	for (; *path; path++)
		if (*path == '/')
			last = path + 1;
	return last;
}

ELF_WALK_EARLY uint32_t
elf_hash(const char *name)
{
	uint32_t hash = 5381;

	for (; *name; name++)
		hash = hash * 33 + (unsigned char)*name;
	return hash;
}

ELF_WALK_EARLY const void *
elf_dynamic_pointer(uintptr_t base, ElfW(Addr) address)
{
	return (const void *)(address < base ? base + address : address);
}

ELF_WALK_EARLY bool
elf_symbols_init(struct elf_symbols *symbols, uintptr_t base, const ElfW(Dyn) * dynamic)
{
	symbols->base = base;
	symbols->symbols = NULL;
	symbols->strings = NULL;
	symbols->gnu_hash = NULL;
	symbols->versions = NULL;
	if (!dynamic)
		return false;
	for (; dynamic->d_tag != DT_NULL; dynamic++) {
		const void *target = elf_dynamic_pointer(base, dynamic->d_un.d_ptr);

		if (dynamic->d_tag == DT_SYMTAB)
			symbols->symbols = target;
		else if (dynamic->d_tag == DT_STRTAB)
			symbols->strings = target;
		else if (dynamic->d_tag == DT_GNU_HASH)
			symbols->gnu_hash = target;
		else if (dynamic->d_tag == DT_VERSYM)
			symbols->versions = target;
	}
	return symbols->symbols && symbols->strings && symbols->gnu_hash;
}

ELF_WALK_EARLY static bool
is_default_function(const struct elf_symbols *symbols, uint32_t index)
{
	const ElfW(Sym) *symbol = &symbols->symbols[index];

	/* the type is in the same place in 32-bit and 64-bit symbols */
	if (ELF64_ST_TYPE(symbol->st_info) != STT_FUNC || symbol->st_shndx == SHN_UNDEF)
		return false;
	return !symbols->versions || !(symbols->versions[index] & VERSION_HIDDEN);
}

ELF_WALK_EARLY void *
elf_find_function(const struct elf_symbols *symbols, const char *name)
{
	const uint32_t *table = symbols->gnu_hash;
	uint32_t n_buckets = table[0], first_index = table[1], n_bloom_words = table[2];
	const ElfW(Addr) *bloom = (const ElfW(Addr) *)(table + 4);
	const uint32_t *buckets = (const uint32_t *)(bloom + n_bloom_words);
	const uint32_t *hashes = buckets + n_buckets;
	uint32_t hash, index;

	if (!n_buckets)
		return NULL;
	hash = elf_hash(name);
	index = buckets[hash % n_buckets];
	if (index < first_index)
		return NULL;
	for (;; index++) {
		uint32_t found = hashes[index - first_index];
		const ElfW(Sym) *symbol = &symbols->symbols[index];

		if ((found | HASH_END) == (hash | HASH_END) &&
		    is_default_function(symbols, index) &&
		    elf_names_are_equal(symbols->strings + symbol->st_name, name))
			return (void *)(symbols->base + symbol->st_value);
		if (found & HASH_END)
			return NULL;
	}
}

/*
 * libc's first constructor tells it the program's environment and name. A program may take the one
 * away later, or change the other; not both.
 */
ELF_WALK_EARLY bool
elf_is_starting_up(void)
{
	return !environ && !program_invocation_name[0];
}

ELF_WALK_EARLY const struct link_map *
elf_find_startup_object(const char *basename)
{
	const struct link_map *map;

	if (!&_r_debug)
		return NULL;
	for (map = _r_debug.r_map; map; map = map->l_next)
		if (elf_names_are_equal(elf_basename(map->l_name), basename))
			return map;
	return NULL;
}

/* The bounds of an object's segments. */
static void
object_from_info(const struct dl_phdr_info *info, struct elf_object *object)
{
	object->name = info->dlpi_name;
	object->n_unloads = info->dlpi_subs;
	object->start = UINTPTR_MAX;
	object->end = 0;
	for (int i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *segment = &info->dlpi_phdr[i];
		uintptr_t start = info->dlpi_addr + segment->p_vaddr;

		if (segment->p_type != PT_LOAD)
			continue;
		if (start < object->start)
			object->start = start;
		if (start + segment->p_memsz > object->end)
			object->end = start + segment->p_memsz;
	}
}

struct object_search {
	uintptr_t address;
	unsigned int n_seen;
	struct elf_object found;
};

static int
match_address(struct dl_phdr_info *info, size_t n_bytes, void *data)
{
	struct object_search *search = data;

	(void)n_bytes;
	object_from_info(info, &search->found);
	search->found.load_order = search->n_seen++;
	return search->address >= search->found.start && search->address < search->found.end;
}

bool
elf_object_at(const void *address, struct elf_object *ret_object)
{
	struct object_search search = {.address = (uintptr_t)address};

	if (!dl_iterate_phdr(match_address, &search))
		return false;
	*ret_object = search.found;
	return true;
}

struct name_search {
	const char *prefix;
	unsigned int n_seen;
	struct elf_object found;
};

static int
match_name(struct dl_phdr_info *info, size_t n_bytes, void *data)
{
	struct name_search *search = data;

	(void)n_bytes;
	search->n_seen++;
	if (!elf_name_starts_with(elf_basename(info->dlpi_name), search->prefix))
		return 0;
	object_from_info(info, &search->found);
	search->found.load_order = search->n_seen - 1;
	return 1;
}

bool
elf_object_named(const char *prefix, struct elf_object *ret_object)
{
	struct name_search search = {.prefix = prefix};

	if (!dl_iterate_phdr(match_name, &search))
		return false;
	*ret_object = search.found;
	return true;
}

struct function_search {
	const char *name;
	unsigned int first_order;
	unsigned int n_seen;
	void *found;
};

static int
match_function(struct dl_phdr_info *info, size_t n_bytes, void *data)
{
	struct function_search *search = data;
	const ElfW(Dyn) *dynamic = NULL;
	struct elf_symbols symbols;

	(void)n_bytes;
	if (search->n_seen++ < search->first_order)
		return 0;
	for (int i = 0; i < info->dlpi_phnum; i++)
		if (info->dlpi_phdr[i].p_type == PT_DYNAMIC)
			dynamic = (const void *)(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr);
	if (elf_symbols_init(&symbols, info->dlpi_addr, dynamic))
		search->found = elf_find_function(&symbols, search->name);
	return search->found != NULL;
}

void *
elf_find_first_function(const char *name)
{
	struct function_search search = {.name = name};

	dl_iterate_phdr(match_function, &search);
	return search.found;
}

void *
elf_find_function_after(unsigned int load_order, const char *name)
{
	struct function_search search = {.name = name, .first_order = load_order + 1};

	dl_iterate_phdr(match_function, &search);
	return search.found;
}
