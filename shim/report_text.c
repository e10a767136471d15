/* SPDX-License-Identifier: MIT */
/*
 * The dump for a person: sizes in the largest unit that leaves three digits, columns aligned, most
 * important first.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "shim/coverage.h"
#include "shim/elf_walk.h"
#include "shim/init.h"
#include "shim/report.h"

enum {
	DEVICES_IN_FULL = 3, /* more get one line each, */
	DEVICES_MAX = 6,     /* up to here: 25 lines in all */
};

struct size_text {
	char text[24];
};

static struct size_text
size_of(uint64_t bytes)
{
	static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
	struct size_text size;
	double value = (double)bytes;
	size_t unit = 0;

	while (value >= 1023.5 && unit < sizeof(units) / sizeof(units[0]) - 1) {
		value /= 1024;
		unit++;
	}
	snprintf(size.text, sizeof(size.text), "%.*f %s", unit == 0 || value >= 99.95 ? 0 : 1,
		 value, units[unit]);
	return size;
}

static const char *
program_of(const struct report *report)
{
	const char *slash = strrchr(report->exe, '/');

	return slash ? slash + 1 : report->exe;
}

static double
percent(uint64_t part, uint64_t whole)
{
	return whole ? 100.0 * (double)part / (double)whole : 0.0;
}

static void
print_memory(const struct report_memory *m, bool has_heads, struct out *out)
{
	if (has_heads)
		out_print(out, "  %-8s %12s %12s %12s %12s %9s\n", "", "requested", "used", "free",
			  "total", "segments");
	out_print(out, "  %-8s %12s %12s %12s %12s %9" PRIu64 "\n", "now",
		  size_of(m->requested_bytes).text, size_of(m->used_bytes).text,
		  size_of(m->total_bytes - m->used_bytes).text, size_of(m->total_bytes).text,
		  m->n_segments);
	out_print(out, "  %-8s %12s %12s %12s %12s %9" PRIu64 "\n", "peak",
		  size_of(m->peak_requested_bytes).text, size_of(m->peak_used_bytes).text, "",
		  size_of(m->peak_total_bytes).text, m->peak_n_segments);
	out_print(out,
		  "  requests %" PRIu64 ", freed %" PRIu64
		  ", from the pool %.1f %%, driver calls %" PRIu64 ", out of memory %" PRIu64
		  " (avoided %" PRIu64 ")\n",
		  m->alloc_count, m->free_count,
		  percent(m->hit_count, m->hit_count + m->miss_count),
		  m->driver_alloc_count + m->driver_free_count, m->oom_count, m->oom_avoided_count);
	out_print(out,
		  "  early %" PRIu64 ", edges %" PRIu64 ", fences %" PRIu64 ", waits %" PRIu64
		  " (%.1f ms), pending %s, given back %s\n",
		  m->early_count, m->edge_count, m->fence_count, m->wait_count,
		  (double)m->wait_ns / 1e6, size_of(m->pending_bytes).text,
		  size_of(m->trim_bytes).text);
}

/* The objects with the highest peaks, of the pool and outside it together, in one line of 100
 * columns. */
static void
print_callers(const struct report_memory *m, struct out *out)
{
	enum { N_SHOWN = 3, NAME_COLUMNS = 17 };

	out_print(out, "  asked by");
	for (unsigned i = 0; i < m->n_callers && i < N_SHOWN; i++) {
		const struct report_caller *caller = &m->callers[i];

		out_print(out, "%s %.*s %s", i ? "," : "", NAME_COLUMNS, elf_basename(caller->path),
			  size_of(caller->peak_bytes + caller->peak_external_bytes).text);
	}
	out_print(out, "%s\n", m->n_callers > N_SHOWN ? ", ..." : "");
}

/* The kind with the highest peak of those that lie there and were not told yet; -1: none. */
static int
largest_kind(const struct report_external *e, enum external_place place, const bool *is_told)
{
	int largest = -1;

	for (int kind = 0; kind < EXTERNAL_N_KINDS; kind++) {
		if (is_told[kind] || e->peak_bytes[kind] == 0 ||
		    (external_kinds[kind].place != place &&
		     external_kinds[kind].place != EXTERNAL_ON_EITHER))
			continue;
		if (largest < 0 || e->peak_bytes[kind] > e->peak_bytes[largest])
			largest = kind;
	}
	return largest;
}

/* One line, if there was anything: the sums, and the kinds that were largest, by their peaks. */
static void
print_external(const struct report_external *e, enum external_place place, struct out *out)
{
	enum { N_TOLD = 2 };
	bool is_told[EXTERNAL_N_KINDS] = {false};
	int kind = largest_kind(e, place, is_told);

	if (e->peak_total_bytes == 0 && e->peak_n_unmeasured == 0)
		return;
	out_print(out, "%soutside the pool: now %s, peak %s",
		  place == EXTERNAL_ON_HOST ? "host " : "  ", size_of(e->total_bytes).text,
		  size_of(e->peak_total_bytes).text);
	for (int i = 0; i < N_TOLD && kind >= 0; i++) {
		out_print(out, "%s%s %s", i ? ", " : " (", external_kinds[kind].name,
			  size_of(e->peak_bytes[kind]).text);
		is_told[kind] = true;
		kind = largest_kind(e, place, is_told);
	}
	out_print(out, "%s%s\n", kind >= 0 ? ", ..." : "", e->peak_total_bytes ? ")" : "");
}

static void
print_device(const struct report_device *d, bool is_only, bool has_heads, struct out *out)
{
	const struct report_memory *m = &d->memory;

	out_print(out, "GPU %d  %s, %s, limit %s\n", d->device->index, d->device->name,
		  size_of(d->device->total_bytes).text,
		  d->limit_bytes == LIMIT_NONE ? "none" : size_of(d->limit_bytes).text);
	print_memory(m, has_heads, out);
	out_print(out, "  fragmentation %s: entropy %.2f, %.1f effective holes, largest free %s\n",
		  frag_level_name(m->frag.level), m->frag.entropy, m->frag.effective_holes,
		  size_of(m->frag.largest_free_bytes).text);
	if (is_only && m->n_callers > 0) /* for two devices there is no line left */
		print_callers(m, out);
	print_external(&d->external, EXTERNAL_ON_DEVICE, out);
}

static void
print_device_briefly(const struct report_device *d, struct out *out)
{
	out_print(out, "GPU %d  used %s (peak %s), total %s, limit %s, fragmentation %s\n",
		  d->device->index, size_of(d->memory.used_bytes).text,
		  size_of(d->memory.peak_used_bytes).text, size_of(d->memory.total_bytes).text,
		  d->limit_bytes == LIMIT_NONE ? "none" : size_of(d->limit_bytes).text,
		  frag_level_name(d->memory.frag.level));
	print_external(&d->external, EXTERNAL_ON_DEVICE, out);
}

static bool
is_in_use(const struct report_memory *m)
{
	return m->alloc_count > 0 || m->oom_count > 0;
}

static bool
is_device_in_use(const struct report_device *d)
{
	return is_in_use(&d->memory) || d->external.peak_total_bytes > 0 ||
	       d->external.peak_n_unmeasured > 0;
}

static unsigned
count_devices_in_use(const struct report *report)
{
	unsigned n = 0;

	for (unsigned i = 0; i < report->n_devices; i++)
		n += is_device_in_use(&report->devices[i]);
	return n;
}

static void
print_devices(const struct report *report, unsigned n_used, struct out *out)
{
	unsigned n_printed = 0;

	for (unsigned i = 0; i < report->n_devices; i++) {
		if (!is_device_in_use(&report->devices[i]))
			continue;
		if (n_used < DEVICES_IN_FULL)
			print_device(&report->devices[i], n_used == 1, n_printed == 0, out);
		else if (n_printed < DEVICES_MAX)
			print_device_briefly(&report->devices[i], out);
		n_printed++;
	}
	if (n_used >= DEVICES_IN_FULL && n_printed > DEVICES_MAX)
		out_print(out, "and %u more GPUs: see the json form\n", n_printed - DEVICES_MAX);
}

static void
print_streams(const struct report *report, struct out *out)
{
	uint64_t n_submissions = 0, n_synchronisations = 0;

	for (unsigned i = 0; i < report->n_streams; i++) {
		n_submissions += report->streams[i].n_submissions;
		n_synchronisations += report->streams[i].n_synchronisations;
	}
	out_print(out, "submissions %" PRIu64 ", synchronisations %" PRIu64 "\n", n_submissions,
		  n_synchronisations);
}

static void
print_coverage(const struct report *report, struct out *out)
{
	const struct coverage *coverage = &report->coverage;

	out_print(out, "routes");
	for (enum coverage_route i = 0; i < COVERAGE_N_ROUTES; i++)
		if (coverage->n_found[i])
			out_print(out, " %s %" PRIu64, coverage_route_name(i),
				  coverage->n_found[i]);
	if (init_why_account()) /* the tool; how it was recognised is in the other form */
		out_print(out, "; mode account under %.*s\n",
			  (int)strcspn(init_why_account(), "(") - 1, init_why_account());
	else
		out_print(out, "; order: %s; mode %s\n",
			  report->is_order_on ? "early" : "completed blocks only",
			  init_options()->mode == OPTION_MODE_ACCOUNT ? "account" : "pool");
	if (coverage->is_in_doubt && (coverage->n_unknown || !report->missed.n))
		out_print(out, "%s%s\n", report->why,
			  coverage->n_unknown > 1 ? ", and others" : "");
}

/* One line: the first few, by the last part of their paths. */
static void
print_missed(const struct missed *missed, struct out *out)
{
	enum { NAMED_MAX = 3, NAME_WIDTH = 24 };

	for (unsigned i = 0; i < missed->n && i < NAMED_MAX; i++) {
		const char *slash = strrchr(missed->objects[i].path, '/');

		out_print(out, "%s%.*s (%s)", i ? ", " : "missed: ", NAME_WIDTH,
			  slash ? slash + 1 : missed->objects[i].path,
			  missed_how_name(missed->objects[i].how));
	}
	if (missed->n)
		out_print(out, "%s\n", missed->n > NAMED_MAX ? ", ..." : "");
}

void
report_print_text(const struct report *report, struct out *out)
{
	const unsigned n_used = count_devices_in_use(report);

	out_print(out, "poolshim %s  %.64s, pid %d, %s %s%s%s\n", POOLSHIM_VERSION,
		  program_of(report), (int)report->pid, report_reason_name(report->reason),
		  report->time, report->rank ? ", rank " : "", report->rank ? report->rank : "");
	print_devices(report, n_used, out);
	if (is_in_use(&report->pinned)) {
		out_print(out, "pinned host memory\n");
		/* Two devices in full, with all that may be said of each, leave no line for more.
		 */
		print_memory(&report->pinned, n_used != 2, out);
	}
	print_external(&report->host_external, EXTERNAL_ON_HOST, out);
	if (n_used != 2 || !report->missed.n) /* the same holds here */
		print_streams(report, out);
	print_coverage(report, out);
	print_missed(&report->missed, out);
}
