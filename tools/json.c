/* SPDX-License-Identifier: MIT */
#include "tools/json.h"

#include <stdio.h>
#include <string.h>

void
json_add_u64(JsonBuilder *json, const char *name, uint64_t value)
{
	json_builder_set_member_name(json, name);
	json_builder_add_int_value(json, value > G_MAXINT64 ? G_MAXINT64 : (gint64)value);
}

void
json_add_text(JsonBuilder *json, const char *name, const char *text)
{
	json_builder_set_member_name(json, name);
	json_builder_add_string_value(json, text);
}

/* An item of a section on its way into an object. */
struct item {
	JsonBuilder *json;
	const struct block *block;
	const struct stats_abi_section *section;
	uint32_t number;
	GPtrArray *groups; /* names of the objects that are open in it, outermost first */
};

static void
close_groups(struct item *item, guint n_left)
{
	for (; item->groups->len > n_left;
	     g_ptr_array_set_size(item->groups, item->groups->len - 1))
		json_builder_end_object(item->json);
}

/* Closes and opens groups as a dotted name wants them. Returns its last part. */
static char *
enter_groups(struct item *item, const char *name)
{
	g_auto(GStrv) parts = g_strsplit(name, ".", -1);
	const guint n_groups = g_strv_length(parts) - 1;
	guint n_same = 0;

	while (n_same < n_groups && n_same < item->groups->len &&
	       strcmp(item->groups->pdata[n_same], parts[n_same]) == 0)
		n_same++;
	close_groups(item, n_same);
	for (guint i = n_same; i < n_groups; i++) {
		json_builder_set_member_name(item->json, parts[i]);
		json_builder_begin_object(item->json);
		g_ptr_array_add(item->groups, g_strdup(parts[i]));
	}
	return g_strdup(parts[n_groups]);
}

/* The histogram of sizes is two fields of many values; the dump has it as one list. */
static void
add_sizes(struct item *item)
{
	const struct stats_abi_field *count = block_find(item->block, item->section, "sizes.count");
	const struct stats_abi_field *live = block_find(item->block, item->section, "sizes.live");

	if (!count || count->type != STATS_ABI_U64 || !live || live->type != STATS_ABI_U64)
		return;
	json_builder_set_member_name(item->json, "sizes");
	json_builder_begin_array(item->json);
	for (uint32_t i = 0; i < count->n && i < live->n && i < 64; i++) {
		const uint64_t n = block_value(item->block, item->section, item->number, count, i);

		if (!n)
			continue;
		json_builder_begin_object(item->json);
		json_add_u64(item->json, "floor_bytes", UINT64_C(1) << i);
		json_add_u64(item->json, "count", n);
		json_add_u64(item->json, "live",
			     block_value(item->block, item->section, item->number, live, i));
		json_builder_end_object(item->json);
	}
	json_builder_end_array(item->json);
}

static void
add_values(struct item *item, const struct stats_abi_field *field, const char *name)
{
	if (field->n == 1) {
		json_add_u64(item->json, name,
			     block_value(item->block, item->section, item->number, field, 0));
		return;
	}
	json_builder_set_member_name(item->json, name);
	json_builder_begin_array(item->json);
	for (uint32_t i = 0; i < field->n; i++) {
		const uint64_t value =
			block_value(item->block, item->section, item->number, field, i);

		json_builder_add_int_value(item->json,
					   value > G_MAXINT64 ? G_MAXINT64 : (gint64)value);
	}
	json_builder_end_array(item->json);
}

static bool
is_printed_elsewhere(const char *name)
{
	return g_str_has_prefix(name, "sizes.") || strcmp(name, "is_known") == 0 ||
	       strcmp(name, "config") == 0 || strcmp(name, "host_name") == 0;
}

/* 0 stands for no limit, and an empty text for none; what contexts take is told if it was measured.
 */
static bool
is_absent(struct item *item, const struct stats_abi_field *field)
{
	g_autofree char *text = NULL;

	if (g_str_has_suffix(field->name, "external.context"))
		return !block_u64(item->block, item->section, item->number,
				  "peak_external.context");
	if (field->type == STATS_ABI_U64)
		return strcmp(field->name, "limit_bytes") == 0 &&
		       !block_value(item->block, item->section, item->number, field, 0);
	text = block_text(item->block, item->section, item->number, field->name);
	return !*text;
}

static void
add_field(struct item *item, const struct stats_abi_field *field)
{
	g_autofree char *name = NULL, *label = NULL;

	if (!field->name[0] || is_printed_elsewhere(field->name) || is_absent(item, field))
		return;
	label = g_utf8_make_valid(field->name, -1);
	name = enter_groups(item, label);
	if (field->type == STATS_ABI_U64) {
		add_values(item, field, name);
	} else if (field->type == STATS_ABI_TEXT) {
		g_autofree char *text =
			block_text(item->block, item->section, item->number, field->name);

		json_add_text(item->json, name, text);
	}
}

/* What is not a field of its own, but is in the dump. */
static void
add_derived(struct item *item)
{
	const uint64_t total = block_u64(item->block, item->section, item->number, "total_bytes");
	const uint64_t used = block_u64(item->block, item->section, item->number, "used_bytes");

	if (block_find(item->block, item->section, "total_bytes"))
		json_add_u64(item->json, "free_bytes", total > used ? total - used : 0);
	add_sizes(item);
}

/* The members of one item, into an object that is open. */
static void
add_item(JsonBuilder *json, const struct block *block, const struct stats_abi_section *section,
	 uint32_t number)
{
	g_autoptr(GPtrArray) groups = g_ptr_array_new_with_free_func(g_free);
	struct item item = {json, block, section, number, groups};

	if (!section || number >= section->n_items)
		return;
	for (uint32_t i = 0; i < section->n_fields; i++)
		add_field(&item, block_field(block, section, i));
	close_groups(&item, 0);
	add_derived(&item);
}

static void
add_devices(JsonBuilder *json, const struct block *block)
{
	const struct stats_abi_section *devices = block_section(block, "devices");

	for (uint32_t i = 0; devices && i < devices->n_items; i++) {
		if (!block_u64(block, devices, i, "is_known"))
			continue;
		json_builder_begin_object(json);
		add_item(json, block, devices, i);
		json_builder_end_object(json);
	}
}

static void
add_config(JsonBuilder *json, const struct block *block, const struct stats_abi_section *process)
{
	g_autofree char *text = block_text(block, process, 0, "config");
	g_auto(GStrv) lines = g_strsplit(text, "\n", -1);

	json_builder_set_member_name(json, "config");
	json_builder_begin_object(json);
	for (char **line = lines; *line; line++) {
		char *value = strchr(*line, '=');

		if (!value)
			continue;
		*value = '\0';
		json_add_text(json, *line, value + 1);
	}
	json_builder_end_object(json);
}

static void
add_time(JsonBuilder *json, const char *name, uint64_t ns)
{
	g_autoptr(GDateTime) time = g_date_time_new_from_unix_utc((gint64)(ns / 1000000000));
	g_autofree char *text = time ? g_date_time_format(time, "%Y-%m-%dT%H:%M:%SZ") : NULL;

	if (text && ns)
		json_add_text(json, name, text);
}

void
json_add_block(JsonBuilder *json, const struct block *block)
{
	const struct stats_abi_section *process = block_section(block, "process");
	g_autofree char *host = block_text(block, process, 0, "host_name");

	json_builder_begin_object(json);
	json_add_text(json, "schema", "poolshim-stats-1");
	json_add_u64(json, "pid", block->header.pid);
	json_add_text(json, "state", block_state_name(block->state));
	add_time(json, "time", (uint64_t)g_get_real_time() * 1000);
	add_time(json, "start", block->header.created_ns);
	add_time(json, "ended_seen", block->header.ended_seen_ns);
	add_item(json, block, process, 0);
	add_config(json, block, process);
	json_builder_set_member_name(json, "devices");
	json_builder_begin_array(json);
	add_devices(json, block);
	json_builder_end_array(json);
	json_builder_set_member_name(json, "host");
	json_builder_begin_object(json);
	json_add_text(json, "name", host);
	add_item(json, block, block_section(block, "host"), 0);
	json_builder_end_object(json);
	json_builder_end_object(json);
}

void
json_print(JsonBuilder *json)
{
	g_autoptr(JsonNode) root = json_builder_get_root(json);
	g_autofree char *text = json_to_string(root, TRUE);

	puts(text);
}
