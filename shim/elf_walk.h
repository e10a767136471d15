/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * Reading loaded ELF objects: the loader's list, and the symbols that an object exports.
 *
 * Calls no libc function, allocates nothing and is built without sanitizers, because the first
 * look-up of a process can come before libc's own string functions work. The exceptions, at the
 * end, enter libc for the loader's lock.
 *
 * Locking: none here. An object must stay loaded while it is read: elf_find_startup_object() is for
 * objects of the program's start, which never go; for others hold a dlopen reference.
 */
#include <link.h>
#include <stdbool.h>
#include <stdint.h>

/* Functions that may run before the sanitizers' own set-up. */
#define ELF_WALK_EARLY __attribute__((no_sanitize("address", "undefined", "thread")))

/* What an object exports; the pointers lead into its memory. */
struct elf_symbols {
	uintptr_t base; /* load bias: what is added to the addresses in the file */
	const ElfW(Sym) * symbols;
	const char *strings;
	const uint32_t *gnu_hash;
	const ElfW(Half) * versions; /* NULL: the object has no versions */
};

/* Where an object lies. */
struct elf_object {
	const char *name; /* as the loader has it: "" for the main program */
	uintptr_t start;  /* of all its segments */
	uintptr_t end;
	unsigned int load_order;      /* position in the loader's list */
	unsigned long long n_unloads; /* of the process, when the list was read */
};

bool elf_names_are_equal(const char *a, const char *b);
bool elf_name_starts_with(const char *name, const char *prefix);

/* What follows the last '/' of a path. */
const char *elf_basename(const char *path);

/* The GNU hash of a symbol's name. */
uint32_t elf_hash(const char *name);

/*
 * What an address in a dynamic section means: glibc relocates them in place, except where the
 * section is read-only; other loaders never do.
 */
const void *elf_dynamic_pointer(uintptr_t base, ElfW(Addr) address);

/* False: the object has no GNU hash table, and cannot be searched. */
bool elf_symbols_init(struct elf_symbols *symbols, uintptr_t base, const ElfW(Dyn) * dynamic);

/* The address of an exported function in its default version; NULL: not exported. */
void *elf_find_function(const struct elf_symbols *symbols, const char *name);

/*
 * Is the program still being relocated, or in its .preinit_array? Then the loader may be asked for
 * symbols, but a dlopen ends the process (relocation), or runs libc's constructor without arguments
 * and leaves the program without an environment (.preinit_array).
 */
bool elf_is_starting_up(void);

/* An object by the last part of its path; NULL: not loaded. */
const struct link_map *elf_find_startup_object(const char *basename);

/*
 * The object whose segments hold `address`. Takes the loader's lock: not for look-ups of foreign
 * names. Returns false when no object does.
 */
bool elf_object_at(const void *address, struct elf_object *ret_object);

/* The first object whose path's last part starts with `prefix`. Takes the same lock. */
bool elf_object_named(const char *prefix, struct elf_object *ret_object);

/*
 * The first function `name` in the order of loading, which begins with the program. Takes
 * the same lock. NULL: no object exports it.
 */
void *elf_find_first_function(const char *name);

/*
 * The first function `name` exported by an object loaded after position `load_order`. Takes the
 * same lock. NULL: there is none.
 */
void *elf_find_function_after(unsigned int load_order, const char *name);
