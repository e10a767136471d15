/* SPDX-License-Identifier: MIT */
#include "shim/missed.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "shim/elf_bound.h"
#include "shim/elf_walk.h"
#include "shim/hooks.h"
#include "shim/lookup.h"
#include "shim/runtime_find.h"

/*
 * How an object's references tell: the loader has written where each leads. One that this library
 * exports leads here, or to another interposer before it; if it leads to the real thing the object
 * was bound past this library. A reference that is bound at its first call leads into the object
 * itself until then.
 */
enum {
	MAX_PLACES = 8, /* objects of one kind that are remembered */
};

struct places {
	unsigned int n;
	struct {
		uintptr_t start, end;
	} at[MAX_PLACES];
};

struct search {
	struct missed *missed;
	struct places libcudas, libcs;
	bool has_dlsym;     /* this library exports it, so that it can be bound past */
	bool is_bound_here; /* some object calls a hooked driver function by its link */
	uintptr_t own_start, own_end;
};

const char *
missed_how_name(enum missed_how how)
{
	static const char *const names[] = {
		[MISSED_DEEPBIND] = "deepbind",
		[MISSED_NAMESPACE] = "dlmopen",
		[MISSED_DRIVER] = "second libcuda",
		[MISSED_NO_LOOKUP] = "no look-up",
	};

	return names[how];
}

static void
add_place(struct places *places, const struct elf_image *image)
{
	if (places->n == MAX_PLACES)
		return;
	places->at[places->n].start = image->start;
	places->at[places->n].end = image->end;
	places->n++;
}

static bool
is_in(const struct places *places, uintptr_t address)
{
	for (unsigned int i = 0; i < places->n; i++)
		if (address >= places->at[i].start && address < places->at[i].end)
			return true;
	return false;
}

static void
add_missed(struct missed *missed, enum missed_how how, const char *path, uintptr_t start,
	   uintptr_t end)
{
	struct missed_object *object = &missed->objects[missed->n];

	if (missed->n == MISSED_MAX)
		return;
	missed->n++;
	object->how = how;
	snprintf(object->path, sizeof(object->path), "%s", path[0] ? path : "the program");
	object->start = start;
	object->end = end;
}

static bool
is_missed(const struct missed *missed, uintptr_t address)
{
	for (unsigned int i = 0; i < missed->n; i++)
		if (address >= missed->objects[i].start && address < missed->objects[i].end)
			return true;
	return false;
}

static bool
is_libcuda(const char *path)
{
	return elf_name_starts_with(elf_basename(path), "libcuda.so");
}

/* First: where everything lies. */
static bool
note_places(const struct elf_image *image, void *arg)
{
	const char *name = elf_basename(image->name);
	struct search *search = arg;
	struct elf_symbols symbols;

	if (is_libcuda(name)) {
		add_place(&search->libcudas, image);
	} else if (elf_name_starts_with(name, "libc.so") ||
		   elf_name_starts_with(name, "libdl.so")) {
		add_place(&search->libcs, image);
	} else if ((uintptr_t)note_places >= image->start && (uintptr_t)note_places < image->end) {
		search->own_start = image->start;
		search->own_end = image->end;
		search->has_dlsym = elf_symbols_init(&symbols, image->base, image->dynamic) &&
				    elf_find_function(&symbols, "dlsym");
	}
	return true;
}

/* Does its text name the driver? A library that never heard of CUDA may be bound as it likes. */
static bool
names_driver(const struct elf_image *image)
{
	static const char wanted[] = "libcuda.so";

	for (unsigned int i = 0; i < image->n_segments; i++) {
		const ElfW(Phdr) *segment = &image->segments[i];

		if (segment->p_type == PT_LOAD && (segment->p_flags & (PF_R | PF_W)) == PF_R &&
		    memmem((const void *)(image->base + segment->p_vaddr), segment->p_filesz,
			   wanted, sizeof(wanted) - 1))
			return true;
	}
	return false;
}

enum bound {
	BOUND_ELSEWHERE,
	BOUND_HERE,
	BOUND_PAST,
};

static enum bound
driver_reference(const struct search *search, const char *name, uintptr_t target)
{
	if (!hooks_is_driver_name(name) || !hook_by_symbol(name))
		return BOUND_ELSEWHERE;
	if (target >= search->own_start && target < search->own_end)
		return BOUND_HERE;
	return is_in(&search->libcudas, target) ? BOUND_PAST : BOUND_ELSEWHERE;
}

static bool
is_lookup_past(const struct search *search, const char *name, uintptr_t target)
{
	return search->has_dlsym &&
	       (elf_names_are_equal(name, "dlsym") || elf_names_are_equal(name, "dlvsym")) &&
	       is_in(&search->libcs, target);
}

/* Second: objects that look up or call the driver past this library. */
static bool
note_bound_past(const struct elf_image *image, void *arg)
{
	struct search *search = arg;
	struct elf_references references;
	bool is_past = false, is_lookup = false;
	uintptr_t target;
	const char *name;

	if (lookup_is_driver_path(image->name) || !elf_references_init(&references, image))
		return true;
	while (elf_references_next(&references, &name, &target)) {
		enum bound bound = driver_reference(search, name, target);

		search->is_bound_here |= bound == BOUND_HERE && image->start != search->own_start;
		is_past |= bound == BOUND_PAST;
		is_lookup |= is_lookup_past(search, name, target);
	}
	if (is_past || (is_lookup && names_driver(image)))
		add_missed(search->missed, MISSED_DEEPBIND, image->name, image->start, image->end);
	return true;
}

/* Third: objects that call a runtime which is one of those. */
static bool
note_users(const struct elf_image *image, void *arg)
{
	struct missed *missed = ((struct search *)arg)->missed;
	struct elf_references references;
	uintptr_t target;
	const char *name;

	if (is_missed(missed, image->start) || !elf_references_init(&references, image))
		return true;
	while (elf_references_next(&references, &name, &target)) {
		if (name[0] == 'c' && runtime_wrapper_by_symbol(name) &&
		    is_missed(missed, target)) {
			add_missed(missed, MISSED_DEEPBIND, image->name, image->start, image->end);
			break;
		}
	}
	return true;
}

static bool
note_second_driver(const struct elf_image *image, void *arg)
{
	const uintptr_t known = (uintptr_t)real.cuInit;

	if (is_libcuda(image->name) && !(known >= image->start && known < image->end))
		add_missed(arg, MISSED_DRIVER, image->name, image->start, image->end);
	return true;
}

static bool
note_driver(const struct elf_image *image, void *arg)
{
	if (is_libcuda(image->name))
		add_missed(arg, MISSED_NO_LOOKUP, image->name, image->start, image->end);
	return true;
}

/* The object that a namespace began with, if libcuda is there. */
static void
note_namespace(const struct link_map *first, void *arg)
{
	for (const struct link_map *map = first; map; map = map->l_next) {
		if (is_libcuda(map->l_name)) {
			add_missed(arg, MISSED_NAMESPACE, first->l_name, 0, 0);
			return;
		}
	}
}

/*
 * One line of /proc/self/maps: "start-end perms offset device inode path". The only list that has
 * every namespace, in every glibc.
 */
static void
note_mapping(struct search *search, const char *line)
{
	unsigned long start, end;
	int path_at = 0;
	char perms[5];

	if (sscanf(line, "%lx-%lx %4s %*x %*s %*u %n", &start, &end, perms, &path_at) != 3 ||
	    !path_at || perms[2] != 'x' || !is_libcuda(line + path_at) ||
	    is_in(&search->libcudas, start))
		return;
	for (unsigned int i = 0; i < search->missed->n; i++)
		if (!strcmp(search->missed->objects[i].path, line + path_at))
			return;
	add_missed(search->missed, MISSED_NAMESPACE, line + path_at, 0, 0);
}

static void
note_mappings(struct search *search)
{
	char text[2 * MISSED_NAME_BYTES + 4096];
	size_t n_kept = 0;
	ssize_t n_read;
	const int fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);

	while (fd >= 0 && (n_read = read(fd, text + n_kept, sizeof(text) - 1 - n_kept)) > 0) {
		char *line = text, *line_end;

		text[n_kept + (size_t)n_read] = '\0';
		for (; (line_end = strchr(line, '\n')); line = line_end + 1) {
			*line_end = '\0';
			note_mapping(search, line);
		}
		n_kept = strlen(line);
		memmove(text, line, n_kept + 1);
	}
	if (fd >= 0)
		close(fd);
}

void
missed_find(struct missed *ret_missed, bool has_route)
{
	struct search search = {.missed = ret_missed};

	ret_missed->n = 0;
	elf_for_each_image(note_places, &search);
	elf_for_each_namespace(note_namespace, ret_missed);
	note_mappings(&search);
	if (!search.libcudas.n)
		return;
	elf_for_each_image(note_bound_past, &search);
	if (ret_missed->n)
		elf_for_each_image(note_users, &search);
	if (hooks_are_complete())
		elf_for_each_image(note_second_driver, ret_missed);
	if (!ret_missed->n && !has_route && !search.is_bound_here)
		elf_for_each_image(note_driver, ret_missed);
}
