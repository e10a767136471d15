/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * What the references of loaded objects are bound to: a walk over the objects of this namespace,
 * and over the relocations of one that name a symbol.
 *
 * Locking: the loader's list is locked during a walk; its callback may not load or unload. For
 * dumps, not for look-ups.
 */
#include <link.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A loaded object; valid during the callback. */
struct elf_image {
	const char *name; /* as the loader has it: "" for the main program */
	uintptr_t base;   /* load bias */
	uintptr_t start;  /* of all its segments */
	uintptr_t end;
	const ElfW(Phdr) * segments;
	unsigned int n_segments;
	const ElfW(Dyn) * dynamic;
};

/* Until the callback returns false. */
void elf_for_each_image(bool (*fn)(const struct elf_image *image, void *arg), void *arg);

/*
 * The object that each other namespace began with, and those behind it by l_next. glibc tells since
 * 2.35; before, there are none.
 */
void elf_for_each_namespace(void (*fn)(const struct link_map *first, void *arg), void *arg);

struct elf_references {
	const struct elf_image *image;
	const ElfW(Sym) * symbols;
	const char *strings;
	struct {
		const ElfW(Rela) * rows;
		size_t n;
	} tables[2]; /* of data, of calls */
	size_t table, row;
};

/* False: the object has none that can be read. */
bool elf_references_init(struct elf_references *references, const struct elf_image *image);

/*
 * The next reference to a named function: where it leads now. A call that was never made may still
 * lead into the object itself. False: there are no more.
 */
bool elf_references_next(struct elf_references *references, const char **ret_name,
			 uintptr_t *ret_target);
