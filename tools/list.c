/* SPDX-License-Identifier: MIT */
/*
 * poolshim list: the processes under the shim, running ones and those that were killed, from their
 * control blocks.
 */
#include <inttypes.h>
#include <stdio.h>

#include <glib.h>
#include <json-glib/json-glib.h>

#include "tools/folder.h"
#include "tools/json.h"
#include "tools/text.h"
#include "tools/verbs.h"

/* One line of the list. */
struct entry {
	char *program, *exe, *devices; /* ordinals, "0,1" */
	uint64_t used_bytes, total_bytes, pinned_bytes;
};

static void
entry_fini(struct entry *entry)
{
	g_free(entry->program);
	g_free(entry->exe);
	g_free(entry->devices);
}

static void
entry_init(struct entry *entry, const struct block *block)
{
	const struct stats_abi_section *devices = block_section(block, "devices");
	const struct stats_abi_section *process = block_section(block, "process");
	const struct stats_abi_section *host = block_section(block, "host");
	GString *ordinals = g_string_new(NULL);

	*entry = (struct entry){0};
	for (uint32_t i = 0; devices && i < devices->n_items; i++) {
		if (!block_u64(block, devices, i, "is_known"))
			continue;
		g_string_append_printf(ordinals, "%s%" PRIu64, ordinals->len ? "," : "",
				       block_u64(block, devices, i, "index"));
		entry->used_bytes += block_u64(block, devices, i, "used_bytes");
		entry->total_bytes += block_u64(block, devices, i, "total_bytes");
	}
	entry->devices = g_string_free(ordinals, FALSE);
	entry->pinned_bytes = block_u64(block, host, 0, "total_bytes");
	entry->exe = block_text(block, process, 0, "exe");
	entry->program = g_path_get_basename(entry->exe);
}

static void
print_line(const struct block *block)
{
	g_autofree char *used = NULL, *total = NULL, *pinned = NULL, *age = NULL, *program = NULL;
	struct entry entry;

	entry_init(&entry, block);
	used = text_size(entry.used_bytes);
	total = text_size(entry.total_bytes);
	pinned = text_size(entry.pinned_bytes);
	age = text_duration(block_age_s(block));
	program = text_plain(entry.program);
	printf("%8u  %-9s  %-8s  %10s  %10s  %10s  %12s  %s\n", block->header.pid,
	       block_state_name(block->state), *entry.devices ? entry.devices : "-", used, total,
	       pinned, age, program);
	entry_fini(&entry);
}

static void
print_table(const GPtrArray *blocks)
{
	if (!blocks->len) {
		puts("no process under the shim");
		return;
	}
	printf("%8s  %-9s  %-8s  %10s  %10s  %10s  %12s  %s\n", "PID", "STATE", "DEVICES", "USED",
	       "TOTAL", "PINNED", "AGE", "PROGRAM");
	for (guint i = 0; i < blocks->len; i++)
		print_line(blocks->pdata[i]);
}

static void
add_devices(JsonBuilder *json, const struct block *block)
{
	const struct stats_abi_section *devices = block_section(block, "devices");

	json_builder_set_member_name(json, "devices");
	json_builder_begin_array(json);
	for (uint32_t i = 0; devices && i < devices->n_items; i++) {
		if (!block_u64(block, devices, i, "is_known"))
			continue;
		json_builder_begin_object(json);
		json_add_u64(json, "index", block_u64(block, devices, i, "index"));
		json_add_u64(json, "used_bytes", block_u64(block, devices, i, "used_bytes"));
		json_add_u64(json, "total_bytes", block_u64(block, devices, i, "total_bytes"));
		json_builder_end_object(json);
	}
	json_builder_end_array(json);
}

static void
add_process(JsonBuilder *json, const struct block *block)
{
	struct entry entry;

	entry_init(&entry, block);
	json_builder_begin_object(json);
	json_add_u64(json, "pid", block->header.pid);
	json_add_text(json, "program", entry.program);
	json_add_text(json, "exe", entry.exe);
	json_add_text(json, "state", block_state_name(block->state));
	json_add_u64(json, "age_s", block_age_s(block));
	add_devices(json, block);
	json_add_u64(json, "used_bytes", entry.used_bytes);
	json_add_u64(json, "total_bytes", entry.total_bytes);
	json_add_u64(json, "pinned_bytes", entry.pinned_bytes);
	json_builder_end_object(json);
	entry_fini(&entry);
}

static void
print_json(const GPtrArray *blocks)
{
	g_autoptr(JsonBuilder) json = json_builder_new();

	json_builder_begin_object(json);
	json_builder_set_member_name(json, "processes");
	json_builder_begin_array(json);
	for (guint i = 0; i < blocks->len; i++)
		add_process(json, blocks->pdata[i]);
	json_builder_end_array(json);
	json_builder_end_object(json);
	json_print(json);
}

static int
list(const char *path, bool is_own, bool is_json)
{
	g_autoptr(GPtrArray) blocks = folder_read(path, "list");

	if (!blocks)
		return EXIT_STATUS_NO;
	if (is_own)
		folder_clean(blocks);
	if (is_json)
		print_json(blocks);
	else
		print_table(blocks);
	return EXIT_STATUS_FINE;
}

int
list_main(int argc, char **argv)
{
	gboolean is_json = FALSE;
	g_autofree char *folder = NULL, *own = folder_default();
	const GOptionEntry entries[] = {
		{"json", 0, 0, G_OPTION_ARG_NONE, &is_json, "as JSON", NULL},
		{"folder", 0, 0, G_OPTION_ARG_FILENAME, &folder,
		 "where the control blocks are (default: this user's; nothing is removed "
		 "elsewhere)",
		 "DIR"},
		{0},
	};
	g_auto(GStrv) words = verb_parse(argv, entries, "list", NULL,
					 "Lists the processes under the shim, and those that were "
					 "killed.");

	(void)argc;
	if (!words)
		return EXIT_STATUS_USAGE;
	if (words[0] && words[1])
		return verb_usage("list", "too many words");
	return list(folder ? folder : own, !folder, is_json);
}
