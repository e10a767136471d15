/* SPDX-License-Identifier: MIT */
/*
 * poolshim stats: what a process under the shim has counted, while it runs or after it was killed,
 * in the form of its dumps.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <glib.h>

#include "tools/folder.h"
#include "tools/json.h"
#include "tools/text.h"
#include "tools/verbs.h"

/* The figures of one item, by name: 0 where the writer had none. */
struct memory {
	uint64_t limit_bytes;
#define GAUGE(name, peak, help) uint64_t name, peak;
#define COUNTER(name, help) uint64_t name;
#include "pool/stats.def"
#undef GAUGE
#undef COUNTER
};

static void
read_memory(const struct block *block, const struct stats_abi_section *section, uint32_t item,
	    struct memory *ret_memory)
{
	ret_memory->limit_bytes = block_u64(block, section, item, "limit_bytes");
#define GAUGE(name, peak, help) \
	ret_memory->name = block_u64(block, section, item, #name); \
	ret_memory->peak = block_u64(block, section, item, #peak);
#define COUNTER(name, help) ret_memory->name = block_u64(block, section, item, #name);
#include "pool/stats.def"
#undef GAUGE
#undef COUNTER
}

static bool
is_in_use(const struct memory *m)
{
	return m->alloc_count > 0 || m->oom_count > 0;
}

/* One row of sizes; the fourth may be left out. */
static void
print_sizes(const char *label, uint64_t requested, uint64_t used, const uint64_t *unused,
	    uint64_t total, uint64_t n_segments)
{
	g_autofree char *a = text_size(requested), *b = text_size(used), *d = text_size(total);
	g_autofree char *c = unused ? text_size(*unused) : g_strdup("");

	printf("  %-8s %12s %12s %12s %12s %9" PRIu64 "\n", label, a, b, c, d, n_segments);
}

static void
print_memory(const struct memory *m)
{
	const uint64_t free_bytes =
		m->total_bytes > m->used_bytes ? m->total_bytes - m->used_bytes : 0;
	const uint64_t n_asked = m->hit_count + m->miss_count;
	g_autofree char *pending = text_size(m->pending_bytes), *back = text_size(m->trim_bytes);

	printf("  %-8s %12s %12s %12s %12s %9s\n", "", "requested", "used", "free", "total",
	       "segments");
	print_sizes("now", m->requested_bytes, m->used_bytes, &free_bytes, m->total_bytes,
		    m->n_segments);
	print_sizes("peak", m->peak_requested_bytes, m->peak_used_bytes, NULL, m->peak_total_bytes,
		    m->peak_n_segments);
	printf("  requests %" PRIu64 ", freed %" PRIu64 ", from the pool %.1f %%, driver calls "
	       "%" PRIu64 ", out of memory %" PRIu64 " (avoided %" PRIu64 ")\n",
	       m->alloc_count, m->free_count,
	       n_asked ? 100.0 * (double)m->hit_count / (double)n_asked : 0.0,
	       m->driver_alloc_count + m->driver_free_count, m->oom_count, m->oom_avoided_count);
	printf("  fences %" PRIu64 ", waits %" PRIu64 " (%.1f ms), pending %s, given back %s\n",
	       m->fence_count, m->wait_count, (double)m->wait_ns / 1e6, pending, back);
}

/* One line, if there was anything past the pool, with the highest values of its kinds. */
static void
print_external(const struct block *block, const struct stats_abi_section *section, uint32_t item,
	       const char *indent)
{
	static const char group[] = "peak_external.";
	g_autofree char *now = text_size(block_u64(block, section, item, "external_bytes"));
	const uint64_t peak = block_u64(block, section, item, "peak_external_bytes");
	g_autofree char *most = text_size(peak);
	const char *between = " (";

	if (!peak)
		return;
	printf("%soutside the pool: now %s, peak %s", indent, now, most);
	for (uint32_t i = 0; i < section->n_fields; i++) {
		const struct stats_abi_field *field = block_field(block, section, i);
		g_autofree char *size = NULL;

		if (!g_str_has_prefix(field->name, group) ||
		    !block_u64(block, section, item, field->name))
			continue;
		size = text_size(block_u64(block, section, item, field->name));
		printf("%s%s %s", between, field->name + strlen(group), size);
		between = ", ";
	}
	puts(between[0] == ',' ? ")" : "");
}

static void
print_device(const struct block *block, const struct stats_abi_section *devices, uint32_t item)
{
	g_autofree char *name = block_text(block, devices, item, "name"), *plain = NULL;
	g_autofree char *total = NULL, *limit = NULL;
	struct memory memory;

	read_memory(block, devices, item, &memory);
	plain = text_plain(name);
	total = text_size(block_u64(block, devices, item, "device_total_bytes"));
	limit = memory.limit_bytes ? text_size(memory.limit_bytes) : g_strdup("none");
	printf("GPU %" PRIu64 "  %s, %s, limit %s\n", block_u64(block, devices, item, "index"),
	       plain, total, limit);
	print_memory(&memory);
	print_external(block, devices, item, "  ");
}

static void
print_head(const struct block *block)
{
	const struct stats_abi_section *process = block_section(block, "process");
	g_autofree char *exe = block_text(block, process, 0, "exe"), *plain = NULL;
	g_autofree char *version = block_text(block, process, 0, "version"), *number = NULL;
	g_autofree char *program = g_path_get_basename(exe), *mode = NULL;
	g_autofree char *age = text_duration(block_age_s(block));

	plain = text_plain(program);
	number = text_plain(version);
	mode = block_text(block, process, 0, "mode");
	printf("poolshim %s  %s, pid %u, %s, started %s ago, mode %s\n", number, plain,
	       block->header.pid, block_state_name(block->state), age, mode);
}

static void
print_text(const struct block *block)
{
	const struct stats_abi_section *devices = block_section(block, "devices");
	const struct stats_abi_section *host = block_section(block, "host");
	struct memory pinned;

	print_head(block);
	for (uint32_t i = 0; devices && i < devices->n_items; i++)
		if (block_u64(block, devices, i, "is_known"))
			print_device(block, devices, i);
	read_memory(block, host, 0, &pinned);
	if (is_in_use(&pinned)) {
		puts("pinned host memory");
		print_memory(&pinned);
	}
	if (host)
		print_external(block, host, 0, "host ");
}

static void
print_json(const struct block *block)
{
	g_autoptr(JsonBuilder) json = json_builder_new();

	json_add_block(json, block);
	json_print(json);
}

static bool
parse_pid(const char *text, uint32_t *ret_pid)
{
	guint64 pid;

	if (!g_ascii_string_to_unsigned(text, 10, 1, G_MAXINT32, &pid, NULL))
		return false;
	*ret_pid = (uint32_t)pid;
	return true;
}

static int
stats(const char *folder, uint32_t pid, bool is_json)
{
	struct block *block = folder_find(folder, pid, "stats");

	if (!block)
		return EXIT_STATUS_NO;
	if (is_json)
		print_json(block);
	else
		print_text(block);
	block_free(block);
	return EXIT_STATUS_FINE;
}

int
stats_main(int argc, char **argv)
{
	gboolean is_json = FALSE;
	g_autofree char *folder = NULL, *own = folder_default();
	const GOptionEntry entries[] = {
		{"json", 0, 0, G_OPTION_ARG_NONE, &is_json, "as JSON", NULL},
		{"folder", 0, 0, G_OPTION_ARG_FILENAME, &folder,
		 "where the control blocks are (default: this user's)", "DIR"},
		{0},
	};
	g_auto(GStrv) words = verb_parse(argv, entries, "stats", "PID",
					 "Prints the statistics of a process under the shim, also "
					 "after it was killed.");
	uint32_t pid;

	(void)argc;
	if (!words)
		return EXIT_STATUS_USAGE;
	if (!words[0] || !words[1] || words[2])
		return verb_usage("stats", "one process is wanted");
	if (!parse_pid(words[1], &pid))
		return verb_usage("stats", "a process is a number");
	return stats(folder ? folder : own, pid, is_json);
}
