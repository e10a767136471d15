/* SPDX-License-Identifier: MIT */
#include "shim/report.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "shim/context.h"
#include "shim/log.h"

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

/* Sums over the heaps of one device, or over all pinned heaps (device NULL). */
struct frag_sum {
	const struct device *device;
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
	heap_snapshot(heap, &snapshot);
	frag_merge(&sum->kept, &snapshot.frag);
	frag_merge(&sum->recomputed, &snapshot.frag_recomputed);
	if (snapshot.largest_partial_bytes > sum->largest_partial_bytes)
		sum->largest_partial_bytes = snapshot.largest_partial_bytes;
}

static void
gather_memory(const struct device *device, const struct stats *stats,
	      struct report_memory *ret_memory)
{
	struct frag_sum sum = {.device = device};

	read_stats(stats, ret_memory);
	context_for_each_heap(add_frag, &sum);
	frag_compute(&sum.kept, sum.largest_partial_bytes, &ret_memory->frag);
	if (memcmp(&sum.kept, &sum.recomputed, sizeof(sum.kept)) != 0)
		log_line(OPTION_LOG_ERROR, "fragmentation as kept differs from the recomputed one: "
					   "please report this");
}

static void
describe_process(struct report *report)
{
	const time_t now = time(NULL);
	struct tm utc;
	ssize_t n = readlink("/proc/self/exe", report->exe, sizeof(report->exe) - 1);

	report->exe[n > 0 ? n : 0] = '\0';
	report->pid = getpid();
	if (gethostname(report->host, sizeof(report->host) - 1) != 0)
		report->host[0] = '\0';
	report->host[sizeof(report->host) - 1] = '\0';
	report->time[0] = '\0';
	if (gmtime_r(&now, &utc))
		strftime(report->time, sizeof(report->time), "%Y-%m-%dT%H:%M:%SZ", &utc);
	report->rank = report_rank();
}

void
report_gather(struct report *report, enum report_reason reason)
{
	report->reason = reason;
	describe_process(report);
	report->n_devices = 0;
	for (int index = 0; index < DEVICE_N_MAX; index++) {
		struct device *device = device_find(index);
		struct report_device *entry = &report->devices[report->n_devices];

		if (!device)
			continue;
		entry->device = device;
		entry->limit_bytes = limit_get(&device->account);
		gather_memory(device, &device->stats, &entry->memory);
		report->was_used |= entry->memory.alloc_count > 0 || entry->memory.oom_count > 0;
		report->n_devices++;
	}
	gather_memory(NULL, &device_host_stats, &report->pinned);
	report->was_used |= report->pinned.alloc_count > 0;
}
