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
print_memory(const struct report_memory *m, struct out *out)
{
	out_print(out, "  %-8s %12s %12s %12s %12s %9s\n", "", "requested", "used", "free", "total",
		  "segments");
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
		  "  fences %" PRIu64 ", waits %" PRIu64 " (%.1f ms), pending %s, given back %s\n",
		  m->fence_count, m->wait_count, (double)m->wait_ns / 1e6,
		  size_of(m->pending_bytes).text, size_of(m->trim_bytes).text);
}

/* The objects that had most, in one line of 100 columns. */
static void
print_callers(const struct report_memory *m, struct out *out)
{
	enum { N_SHOWN = 3, NAME_COLUMNS = 18 };

	out_print(out, "  asked by (peak)");
	for (unsigned i = 0; i < m->n_callers && i < N_SHOWN; i++)
		out_print(out, "%s %.*s %s", i ? "," : "", NAME_COLUMNS,
			  elf_basename(m->callers[i].path), size_of(m->callers[i].peak_bytes).text);
	if (m->n_callers > N_SHOWN)
		out_print(out, " and %u more", m->n_callers - N_SHOWN);
	out_print(out, "\n");
}

static void
print_device(const struct report_device *d, struct out *out)
{
	const struct report_memory *m = &d->memory;

	out_print(out, "GPU %d  %s, %s, limit %s\n", d->device->index, d->device->name,
		  size_of(d->device->total_bytes).text,
		  d->limit_bytes == LIMIT_NONE ? "none" : size_of(d->limit_bytes).text);
	print_memory(m, out);
	out_print(out, "  fragmentation %s: entropy %.2f, %.1f effective holes, largest free %s\n",
		  frag_level_name(m->frag.level), m->frag.entropy, m->frag.effective_holes,
		  size_of(m->frag.largest_free_bytes).text);
	if (m->n_callers > 0)
		print_callers(m, out);
}

static void
print_device_briefly(const struct report_device *d, struct out *out)
{
	out_print(out, "GPU %d  used %s (peak %s), total %s, limit %s, fragmentation %s\n",
		  d->device->index, size_of(d->memory.used_bytes).text,
		  size_of(d->memory.peak_used_bytes).text, size_of(d->memory.total_bytes).text,
		  d->limit_bytes == LIMIT_NONE ? "none" : size_of(d->limit_bytes).text,
		  frag_level_name(d->memory.frag.level));
}

static bool
is_in_use(const struct report_memory *m)
{
	return m->alloc_count > 0 || m->oom_count > 0;
}

static void
print_devices(const struct report *report, struct out *out)
{
	unsigned n_used = 0, n_printed = 0;

	for (unsigned i = 0; i < report->n_devices; i++)
		n_used += is_in_use(&report->devices[i].memory);
	for (unsigned i = 0; i < report->n_devices; i++) {
		if (!is_in_use(&report->devices[i].memory))
			continue;
		if (n_used < DEVICES_IN_FULL)
			print_device(&report->devices[i], out);
		else if (n_printed++ < DEVICES_MAX)
			print_device_briefly(&report->devices[i], out);
	}
	if (n_printed > DEVICES_MAX)
		out_print(out, "and %u more GPUs: see the json form\n", n_printed - DEVICES_MAX);
}

static void
print_coverage(struct out *out)
{
	struct coverage coverage;

	coverage_get(&coverage);
	out_print(out, "routes");
	for (enum coverage_route i = 0; i < COVERAGE_N_ROUTES; i++)
		if (coverage.n_found[i])
			out_print(out, " %s %" PRIu64, coverage_route_name(i), coverage.n_found[i]);
	out_print(out, "; order: completed blocks only; mode %s\n",
		  init_options()->mode == OPTION_MODE_ACCOUNT ? "account" : "pool");
	if (init_why_account())
		out_print(out, "mode account: under %s\n", init_why_account());
}

void
report_print_text(const struct report *report, struct out *out)
{
	out_print(out, "poolshim %s  %.64s, pid %d, %s %s%s%s\n", POOLSHIM_VERSION,
		  program_of(report), (int)report->pid, report_reason_name(report->reason),
		  report->time, report->rank ? ", rank " : "", report->rank ? report->rank : "");
	print_devices(report, out);
	if (is_in_use(&report->pinned)) {
		out_print(out, "pinned host memory\n");
		print_memory(&report->pinned, out);
	}
	print_coverage(out);
}
