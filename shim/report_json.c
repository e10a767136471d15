/* SPDX-License-Identifier: MIT */
/*
 * The dump for a machine, schema poolshim-stats-1: fields are only ever added. One that cannot be
 * filled is absent. host is the machine (its name) and, in the same object, the pinned memory that
 * the process holds there.
 */
#include <inttypes.h>

#include "shim/elf_walk.h"
#include "shim/init.h"
#include "shim/report.h"

static void
print_config(struct out *out)
{
	char value[PATH_MAX];

	out_print(out, "  \"config\": {\n");
	for (size_t id = 0; id < OPTION_N; id++) {
		options_print_value(init_options(), (enum option_id)id, value, sizeof(value));
		out_print(out, "    \"%s\": ", option_info((enum option_id)id)->name);
		out_json_string(out, value);
		out_print(out, "%s\n", id + 1 < OPTION_N ? "," : "");
	}
	out_print(out, "  },\n");
}

static void
print_coverage(const struct report *report, struct out *out)
{
	const struct coverage *coverage = &report->coverage;

	out_print(out, "  \"coverage\": {\n    \"routes\": {");
	for (enum coverage_route i = 0; i < COVERAGE_N_ROUTES; i++)
		out_print(out, "%s\"%s\": %" PRIu64, i ? ", " : "", coverage_route_name(i),
			  coverage->n_found[i]);
	out_print(out, "},\n    \"stream_order\": \"%s\",\n    \"why\": ",
		  report->is_order_on ? "on" : "off");
	out_json_string(out, report->why);
	out_print(out, ",\n    \"unknown\": [");
	for (size_t i = 0; i < coverage->n_unknown; i++) {
		out_print(out, "%s", i ? ", " : "");
		out_json_string(out, coverage->unknown[i]);
	}
	out_print(out, "],\n    \"missed\": [");
	for (unsigned i = 0; i < report->missed.n; i++) {
		const struct missed_object *object = &report->missed.objects[i];

		out_print(out, "%s\n      {\"object\": ", i ? "," : "");
		out_json_string(out, object->path);
		out_print(out, ", \"how\": \"%s\"}", missed_how_name(object->how));
	}
	out_print(out, "]\n  },\n");
}

static void
print_streams(const struct report *report, struct out *out)
{
	out_print(out, "  \"streams\": [");
	for (unsigned i = 0; i < report->n_streams; i++) {
		const struct submit_total *stream = &report->streams[i];

		out_print(out,
			  "%s\n    {\"id\": %" PRIu32
			  ", \"kind\": \"%s\", \"submissions\": %" PRIu64
			  ", \"synchronisations\": %" PRIu64 "}",
			  i ? "," : "", stream->id, submit_total_kind(stream),
			  stream->n_submissions, stream->n_synchronisations);
	}
	out_print(out, "%s],\n", report->n_streams ? "\n  " : "");
}

static void
print_sizes(const struct report_memory *m, struct out *out)
{
	bool is_first = true;

	out_print(out, "\"sizes\": [");
	for (size_t i = 0; i < STATS_N_SIZE_CLASSES; i++) {
		if (!m->sizes[i].count)
			continue;
		out_print(out,
			  "%s{\"floor_bytes\": %" PRIu64 ", \"count\": %" PRIu64
			  ", \"live\": %" PRIu64 "}",
			  is_first ? "" : ", ", UINT64_C(1) << i, m->sizes[i].count,
			  m->sizes[i].n_live);
		is_first = false;
	}
	out_print(out, "]");
}

static void
print_callers(const struct report_memory *m, const char *indent, struct out *out)
{
	out_print(out, "%s\"callers\": [", indent);
	for (unsigned i = 0; i < m->n_callers; i++) {
		const struct report_caller *caller = &m->callers[i];

		out_print(out, "%s\n%s  {\"object\": ", i ? "," : "", indent);
		out_json_string(out, elf_basename(caller->path));
		out_print(out, ", \"path\": ");
		out_json_string(out, caller->path);
		out_print(out,
			  ", \"used_bytes\": %" PRIu64 ", \"peak_bytes\": %" PRIu64
			  ", \"count\": %" PRIu64 ", \"external_bytes\": %" PRIu64
			  ", \"peak_external_bytes\": %" PRIu64 ", \"external_count\": %" PRIu64
			  "}",
			  caller->used_bytes, caller->peak_bytes, caller->count,
			  caller->external_bytes, caller->peak_external_bytes,
			  caller->external_count);
	}
	out_print(out, "%s%s],\n", m->n_callers ? "\n" : "", m->n_callers ? indent : "");
}

static double
ratio(uint64_t part, uint64_t whole)
{
	return whole ? (double)part / (double)whole : 0.0;
}

static void
print_memory(const struct report_memory *m, const char *indent, struct out *out)
{
	out_print(out, "%s\"free_bytes\": %" PRIu64 ",\n", indent, m->total_bytes - m->used_bytes);
#define GAUGE(name, peak, help) \
	out_print(out, "%s\"" #name "\": %" PRIu64 ",\n", indent, m->name); \
	out_print(out, "%s\"" #peak "\": %" PRIu64 ",\n", indent, m->peak);
#define COUNTER(name, help) out_print(out, "%s\"" #name "\": %" PRIu64 ",\n", indent, m->name);
#include "pool/stats.def"
#undef GAUGE
#undef COUNTER
	out_print(out,
		  "%s\"fragmentation\": {\"entropy_bits\": %.6f, \"entropy\": %.6f, \"level\": "
		  "\"%s\", "
		  "\"effective_holes\": %.3f, \"largest_free_bytes\": %" PRIu64
		  ", \"external_ratio\": %.6f, "
		  "\"internal_ratio\": %.6f},\n",
		  indent, m->frag.entropy_bits, m->frag.entropy, frag_level_name(m->frag.level),
		  m->frag.effective_holes, m->frag.largest_free_bytes, m->frag.external_ratio,
		  ratio(m->used_bytes - m->requested_bytes, m->used_bytes));
	print_callers(m, indent, out);
	out_print(out, "%s", indent);
	print_sizes(m, out);
	out_print(out, "\n");
}

/* The kinds that may lie there. Contexts are told only where one could be measured. */
static void
print_kinds(const struct report_external *e, enum external_place place, const char *name,
	    const uint64_t *bytes, struct out *out)
{
	bool is_first = true;

	out_print(out, "\"%s\": {", name);
	for (int kind = 0; kind < EXTERNAL_N_KINDS; kind++) {
		const struct external_kind_info *info = &external_kinds[kind];

		if (info->place != place && info->place != EXTERNAL_ON_EITHER &&
		    !(kind == EXTERNAL_registered && place == EXTERNAL_ON_DEVICE))
			continue;
		if (kind == EXTERNAL_context && e->peak_bytes[kind] == 0)
			continue;
		out_print(out, "%s\"%s\": %" PRIu64, is_first ? "" : ", ", info->name, bytes[kind]);
		is_first = false;
	}
	out_print(out, "},\n");
}

static void
print_external(const struct report_external *e, enum external_place place, const char *indent,
	       struct out *out)
{
	out_print(out, "%s\"external_bytes\": %" PRIu64 ",\n", indent, e->total_bytes);
	out_print(out, "%s\"peak_external_bytes\": %" PRIu64 ",\n", indent, e->peak_total_bytes);
	out_print(out, "%s", indent);
	print_kinds(e, place, "external", e->bytes, out);
	out_print(out, "%s", indent);
	print_kinds(e, place, "peak_external", e->peak_bytes, out);
	out_print(out, "%s\"external_unmeasured_count\": %" PRIu64 ",\n", indent, e->n_unmeasured);
}

static void
print_device(const struct report_device *d, struct out *out)
{
	out_print(out, "    {\n      \"index\": %d,\n", d->device->index);
	if (d->device->uuid[0])
		out_print(out, "      \"uuid\": \"%s\",\n", d->device->uuid);
	out_print(out, "      \"name\": ");
	out_json_string(out, d->device->name);
	if (init_why_account()) {
		out_print(out, ",\n      \"mode_why\": ");
		out_json_string(out, init_why_account());
	}
	out_print(out, ",\n      \"device_total_bytes\": %" PRIu64 ",\n", d->device->total_bytes);
	if (d->limit_bytes != LIMIT_NONE)
		out_print(out, "      \"limit_bytes\": %" PRIu64 ",\n", d->limit_bytes);
	out_print(out, "      \"backend\": \"cuda\",\n      \"mode\": \"%s\",\n",
		  init_options()->mode == OPTION_MODE_ACCOUNT ? "account" : "pool");
	print_external(&d->external, EXTERNAL_ON_DEVICE, "      ", out);
	print_memory(&d->memory, "      ", out);
	out_print(out, "    }");
}

void
report_print_json(const struct report *report, struct out *out)
{
	out_print(out, "{\n  \"schema\": \"poolshim-stats-1\",\n  \"pid\": %d,\n  \"exe\": ",
		  (int)report->pid);
	out_json_string(out, report->exe);
	if (report->rank) {
		out_print(out, ",\n  \"rank\": ");
		out_json_string(out, report->rank);
	}
	out_print(out, ",\n  \"time\": \"%s\",\n  \"reason\": \"%s\",\n  \"version\": \"%s\",\n",
		  report->time, report_reason_name(report->reason), POOLSHIM_VERSION);
	print_config(out);
	print_coverage(report, out);
	print_streams(report, out);
	out_print(out, "  \"devices\": [");
	for (unsigned i = 0; i < report->n_devices; i++) {
		out_print(out, "%s\n", i ? "," : "");
		print_device(&report->devices[i], out);
	}
	out_print(out, "%s],\n  \"host\": {\n    \"name\": ", report->n_devices ? "\n  " : "");
	out_json_string(out, report->host);
	out_print(out, ",\n");
	print_external(&report->host_external, EXTERNAL_ON_HOST, "    ", out);
	print_memory(&report->pinned, "    ", out);
	out_print(out, "  }\n}\n");
}
