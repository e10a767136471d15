/* SPDX-License-Identifier: MIT */
#include "shim/report.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "shim/callers.h"
#include "shim/context.h"
#include "shim/linked.h"
#include "shim/log.h"
#include "shim/order.h"

const char *
report_reason_name(enum report_reason reason)
{
	static const char *const names[] = {"exit", "signal", "request"};

	return names[reason];
}

const char *
report_rank(void)
{
	static const char *const variables[] = {"RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK",
						"PMI_RANK", "SLURM_PROCID"};

	for (size_t i = 0; i < sizeof(variables) / sizeof(variables[0]); i++) {
		const char *rank = getenv(variables[i]);

		if (rank && rank[0])
			return rank;
	}
	return NULL;
}

static void
read_stats(const struct stats *stats, struct report_memory *ret_memory)
{
#define GAUGE(name, peak, help) \
	ret_memory->name = stats_read(&stats->name); \
	ret_memory->peak = stats_read(&stats->peak);
#define COUNTER(name, help) ret_memory->name = stats_read(&stats->name);
#include "pool/stats.def"
#undef GAUGE
#undef COUNTER
	for (size_t i = 0; i < STATS_N_SIZE_CLASSES; i++) {
		ret_memory->sizes[i].count = stats_read(&stats->sizes[i].count);
		ret_memory->sizes[i].n_live = stats_read(&stats->sizes[i].n_live);
	}
}

static bool
comes_before(const struct report_caller *a, const struct report_caller *b)
{
	return a->peak_bytes + a->peak_external_bytes > b->peak_bytes + b->peak_external_bytes;
}

static void
add_caller(struct report_memory *memory, struct report_caller caller)
{
	unsigned at = memory->n_callers++;

	for (; at > 0 && comes_before(&caller, &memory->callers[at - 1]); at--)
		memory->callers[at] = memory->callers[at - 1];
	memory->callers[at] = caller;
}

/* program: the path of the main program, which the loader does not tell. */
static void
read_callers(const struct stats *stats, const struct external *external, const char *program,
	     struct report_memory *ret_memory)
{
	ret_memory->n_callers = 0;
	for (unsigned tag = 0; tag < STATS_N_TAGS; tag++) {
		const struct stats_share *share = &stats->shares[tag];
		const struct stats_share *outside = &external->shares[tag];
		const char *path = callers_path(tag);
		struct report_caller caller = {
			.path = path && path[0] ? path : program,
			.used_bytes = stats_read(&share->used_bytes),
			.peak_bytes = stats_read(&share->peak_used_bytes),
			.count = stats_read(&share->count),
			.external_bytes = stats_read(&outside->used_bytes),
			.peak_external_bytes = stats_read(&outside->peak_used_bytes),
			.external_count = stats_read(&outside->count),
		};

		if (caller.count || caller.external_count || caller.peak_external_bytes)
			add_caller(ret_memory, caller);
	}
}

/* Sums over the heaps of one device, or over all pinned heaps (device NULL). */
struct frag_sum {
	const struct device *device;
	const struct timespec *deadline;
	bool is_partial;
	struct frag kept, recomputed;
	uint64_t largest_partial_bytes;
};

static void
add_frag(struct context *context, struct heap *heap, enum heap_kind kind, void *arg)
{
	struct frag_sum *sum = arg;
	struct heap_snapshot snapshot;

	if (kind != (sum->device ? HEAP_DEVICE : HEAP_HOST) ||
	    (sum->device && context->device != sum->device))
		return;
	if (!heap_snapshot_until(heap, sum->deadline, &snapshot)) {
		sum->is_partial = true;
		return;
	}
	frag_merge(&sum->kept, &snapshot.frag);
	frag_merge(&sum->recomputed, &snapshot.frag_recomputed);
	if (snapshot.largest_partial_bytes > sum->largest_partial_bytes)
		sum->largest_partial_bytes = snapshot.largest_partial_bytes;
}

static void
gather_memory(const struct device *device, const struct stats *stats,
	      const struct external *external, const char *program, const struct timespec *deadline,
	      struct report_memory *ret_memory)
{
	struct frag_sum sum = {.device = device, .deadline = deadline};

	read_stats(stats, ret_memory);
	read_callers(stats, external, program, ret_memory);
	context_for_each_heap_until(deadline, add_frag, &sum);
	frag_compute(&sum.kept, sum.largest_partial_bytes, &ret_memory->frag);
	if (sum.is_partial)
		log_line(OPTION_LOG_WARN, "the program ended inside an allocation: fragmentation "
					  "leaves a part out");
	if (memcmp(&sum.kept, &sum.recomputed, sizeof(sum.kept)) != 0)
		log_line(OPTION_LOG_ERROR, "fragmentation as kept differs from the recomputed one: "
					   "please report this");
}

/*
 * ISO 8601, UTC. Not by gmtime_r() and strftime(), which take libc's lock of the time zone: an
 * exit() in a signal handler may have interrupted localtime(), and would wait for itself.
 */
static void
print_time(time_t now, char *ret_text, size_t n_bytes)
{
	/* Days since 0000-03-01, in eras of 400 years; a year that begins in March has its leap day
	 * at its end. */
	const int64_t days = now / 86400 + 719468, era = days / 146097;
	const int64_t day_of_era = days % 146097;
	const int64_t year_of_era =
		(day_of_era - day_of_era / 1460 + day_of_era / 36524 - day_of_era / 146096) / 365;
	const int64_t day_of_year =
		day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
	const int64_t month = (5 * day_of_year + 2) / 153; /* 0: March */

	snprintf(ret_text, n_bytes, "%04d-%02d-%02dT%02d:%02d:%02dZ",
		 (int)(year_of_era + era * 400 + (month >= 10)),
		 (int)(month < 10 ? month + 3 : month - 9),
		 (int)(day_of_year - (153 * month + 2) / 5 + 1), (int)(now % 86400 / 3600),
		 (int)(now % 3600 / 60), (int)(now % 60));
}

static void
read_external(const struct external *external, struct report_external *ret_external)
{
	for (int kind = 0; kind < EXTERNAL_N_KINDS; kind++) {
		ret_external->bytes[kind] = stats_read(&external->bytes[kind]);
		ret_external->peak_bytes[kind] = stats_read(&external->peak_bytes[kind]);
	}
	ret_external->total_bytes = stats_read(&external->total_bytes);
	ret_external->peak_total_bytes = stats_read(&external->peak_total_bytes);
	ret_external->n_unmeasured = stats_read(&external->n_unmeasured);
	ret_external->peak_n_unmeasured = stats_read(&external->peak_n_unmeasured);
}

/* Was anything asked for past the pool? A context alone is not. */
static bool
was_external_used(const struct report_external *external)
{
	bool was_used = external->peak_n_unmeasured > 0;

	for (int kind = 0; kind < EXTERNAL_N_KINDS; kind++)
		was_used |= kind != EXTERNAL_context && external->peak_bytes[kind] > 0;
	return was_used;
}

static void
describe_process(struct report *report)
{
	/* Not self: that is the main thread, which may have ended. */
	ssize_t n = readlink("/proc/thread-self/exe", report->exe, sizeof(report->exe) - 1);

	report->exe[n > 0 ? n : 0] = '\0';
	report->pid = getpid();
	if (gethostname(report->host, sizeof(report->host) - 1) != 0)
		report->host[0] = '\0';
	report->host[sizeof(report->host) - 1] = '\0';
	print_time(time(NULL), report->time, sizeof(report->time));
	report->rank = report_rank();
}

/* Are blocks handed out early, and if not, why? */
static void
explain_order(struct report *report)
{
	const struct coverage *coverage = &report->coverage;
	const char *why = order_why_off();

	report->is_order_on = !why && !coverage->is_in_doubt;
	if (coverage->is_in_doubt)
		snprintf(report->why, sizeof(report->why), "coverage in doubt: %s is not known",
			 coverage->n_unknown ? coverage->unknown[0] : "a driver function");
	else
		snprintf(report->why, sizeof(report->why), "%s", why ? why : "");
}

void
report_gather(struct report *report, enum report_reason reason, const struct timespec *deadline)
{
	report->reason = reason;
	describe_process(report);
	linked_scan(); /* objects may have been loaded since */
	missed_find(&report->missed, coverage_has_route());
	if (report->missed.n)
		coverage_note_missed();
	coverage_get(&report->coverage);
	explain_order(report);
	report->n_streams = submit_totals(report->streams, REPORT_N_STREAMS);
	report->n_devices = 0;
	for (int index = 0; index < DEVICE_N_MAX; index++) {
		struct device *device = device_find(index);
		struct report_device *entry = &report->devices[report->n_devices];

		if (!device)
			continue;
		entry->device = device;
		entry->limit_bytes = limit_get(&device->account);
		gather_memory(device, device->stats, device->external, report->exe, deadline,
			      &entry->memory);
		read_external(device->external, &entry->external);
		report->was_used |= entry->memory.alloc_count > 0 || entry->memory.oom_count > 0 ||
				    was_external_used(&entry->external);
		report->n_devices++;
	}
	gather_memory(NULL, device_host_stats(), device_host_external(), report->exe, deadline,
		      &report->pinned);
	read_external(device_host_external(), &report->host_external);
	report->was_used |=
		report->pinned.alloc_count > 0 || was_external_used(&report->host_external);
}
