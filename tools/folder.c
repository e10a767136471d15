/* SPDX-License-Identifier: MIT */
#include "tools/folder.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

char *
folder_default(void)
{
	return g_strdup_printf(STATS_ABI_FOLDER, (unsigned)geteuid());
}

/* Is this the name of a block, and of which process? */
static bool
parse_name(const char *name, uint32_t *ret_pid)
{
	g_autofree char *again = NULL;
	unsigned long long ticks;
	unsigned pid;

	if (sscanf(name, STATS_ABI_FILE, &pid, &ticks) != 2)
		return false;
	again = g_strdup_printf(STATS_ABI_FILE, pid, ticks);
	*ret_pid = pid;
	return strcmp(again, name) == 0;
}

static int
by_state_and_age(const void *a, const void *b)
{
	const struct block *left = *(struct block *const *)a, *right = *(struct block *const *)b;

	if ((left->state == BLOCK_ENDED) != (right->state == BLOCK_ENDED))
		return left->state == BLOCK_ENDED ? 1 : -1;
	if (left->header.created_ns != right->header.created_ns)
		return left->header.created_ns < right->header.created_ns ? 1 : -1;
	return strcmp(left->path, right->path);
}

static GDir *
open_folder(const char *path, const char *verb, bool *ret_is_missing)
{
	g_autoptr(GError) error = NULL;
	GDir *folder = g_dir_open(path, 0, &error);

	*ret_is_missing = g_error_matches(error, G_FILE_ERROR, G_FILE_ERROR_NOENT);
	if (!folder && !*ret_is_missing)
		fprintf(stderr, "poolshim %s: %s\n", verb, error->message);
	return folder;
}

GPtrArray *
folder_read(const char *path, const char *verb)
{
	bool is_missing;
	g_autoptr(GDir) folder = open_folder(path, verb, &is_missing);
	GPtrArray *blocks;
	const char *name, *why;
	uint32_t pid;

	if (!folder && !is_missing)
		return NULL;
	blocks = g_ptr_array_new_with_free_func((GDestroyNotify)block_free);
	while (folder && (name = g_dir_read_name(folder))) {
		g_autofree char *file = g_build_filename(path, name, NULL);
		struct block *block = parse_name(name, &pid) ? block_read(file, &why) : NULL;

		if (block)
			g_ptr_array_add(blocks, block);
	}
	g_ptr_array_sort(blocks, by_state_and_age);
	return blocks;
}

/* The first who sees that a process has ended writes it down: those that ended first go first. */
static void
note_end(struct block *block)
{
	const uint64_t now_ns = (uint64_t)g_get_real_time() * 1000;
	const int fd = open(block->path, O_WRONLY | O_NOFOLLOW | O_CLOEXEC);

	if (fd < 0)
		return;
	if (pwrite(fd, &now_ns, sizeof(now_ns), offsetof(struct stats_abi_header, ended_seen_ns)) ==
	    sizeof(now_ns))
		block->header.ended_seen_ns = now_ns;
	close(fd);
}

static int
by_end(const void *a, const void *b)
{
	const uint64_t left = (*(struct block *const *)a)->header.ended_seen_ns;
	const uint64_t right = (*(struct block *const *)b)->header.ended_seen_ns;

	return left < right ? 1 : left > right ? -1 : 0;
}

void
folder_clean(GPtrArray *blocks)
{
	g_autoptr(GPtrArray) ended = g_ptr_array_new();

	for (guint i = 0; i < blocks->len; i++) {
		struct block *block = blocks->pdata[i];

		if (block->state != BLOCK_ENDED)
			continue;
		if (!block->header.ended_seen_ns)
			note_end(block);
		g_ptr_array_add(ended, block);
	}
	g_ptr_array_sort(ended, by_end);
	for (guint i = STATS_ABI_N_KEPT; i < ended->len; i++) {
		struct block *block = ended->pdata[i];

		unlink(block->path);
		g_ptr_array_remove(blocks, block);
	}
}

static void
say_none(const char *verb, uint32_t pid, const char *path, const char *why)
{
	if (why)
		fprintf(stderr, "poolshim %s: no statistics of process %u: %s: %s\n", verb, pid,
			path, why);
	else
		fprintf(stderr, "poolshim %s: no statistics of process %u in %s\n", verb, pid,
			path);
}

struct block *
folder_find(const char *path, uint32_t pid, const char *verb)
{
	bool is_missing;
	g_autoptr(GDir) folder = open_folder(path, verb, &is_missing);
	struct block *best = NULL;
	g_autofree char *refused = NULL;
	const char *name, *why = NULL, *refusal = NULL;
	uint32_t found_pid;

	if (!folder && !is_missing)
		return NULL;
	while (folder && (name = g_dir_read_name(folder))) {
		g_autofree char *file = g_build_filename(path, name, NULL);
		struct block *block;

		if (!parse_name(name, &found_pid) || found_pid != pid)
			continue;
		block = block_read(file, &why);
		if (!block) {
			g_free(refused);
			refused = g_steal_pointer(&file);
			refusal = why;
		} else if (!best || by_state_and_age(&block, &best) < 0) {
			g_clear_pointer(&best, block_free);
			best = block;
		} else {
			block_free(block);
		}
	}
	if (!best)
		say_none(verb, pid, refused ? refused : path, refusal);
	return best;
}
