/* SPDX-License-Identifier: MIT */
/*
 * Everything that submits is counted once, whoever wrote its body, and told by kind of stream; so
 * is everything that synchronises.
 *
 * usage: victim_announce DUMP.json    under the shim, on the software device
 */
#include "shim/driver_api.h"
#include "tests/preload/victim_dump.h"
#include "tests/preload/victim_sim.h"

typedef CUresult zero_call(void *, void *, void *, void *, void *, void *, void *, void *, void *,
			   void *);

static const struct row {
	const char *name;
	void *function;
	enum driver_place place;
} rows[] = {
#define DRIVER_API_VERSION(version)
#define DRIVER(symbol, ...)
#define SUBMIT(symbol, query, kind, flags, stream0, place, ...) \
	{#symbol, (void *)symbol, DRIVER_PLACE_##place},
#define SYNC(symbol, ...)
#include "shim/driver_api.def"
};

static struct poolshim_api api;

/* The sum over all streams of a kind, or (NULL) over all. */
static uint64_t
count(const char *kind, const char *what)
{
	char *text = victim_dump(&api), key[64], of_kind[64];
	uint64_t sum = 0;

	snprintf(key, sizeof(key), "\"%s\": ", what);
	snprintf(of_kind, sizeof(of_kind), "\"kind\": \"%s\"", kind ? kind : "");
	for (const char *at = text; (at = strstr(at, "{\"id\": ")); at++) {
		const char *end = strchr(at, '}'), *found = strstr(at, of_kind);

		if (kind && (!found || found > end))
			continue;
		found = strstr(at, key);
		if (found && found < end)
			sum += strtoull(found + strlen(key), NULL, 10);
	}
	free(text);
	return sum;
}

static void
each_row_counts_once(void)
{
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		const uint64_t n_before = count(NULL, "submissions");
		uint64_t n_more;

		if (rows[i].place == DRIVER_PLACE_ARRAY)
			continue; /* an array of nothing submits to nothing */
		((zero_call *)rows[i].function)(NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
						NULL, NULL);
		n_more = count(NULL, "submissions") - n_before;
		EXPECT(n_more == 1, "%s is counted %llu times", rows[i].name,
		       (unsigned long long)n_more);
	}
}

static void
expect_more(const char *kind, const char *what, uint64_t n_before, uint64_t n_more)
{
	const uint64_t n = count(kind, what) - n_before;

	EXPECT(n == n_more, "%s in streams of kind %s: %llu more, not %llu", what, kind,
	       (unsigned long long)n, (unsigned long long)n_more);
}

static void
streams_are_told_by_kind(void)
{
	static const char *const kinds[] = {"legacy", "per_thread", "created"};
	struct victim_kernels kernels = victim_kernels_load();
	uint64_t n_before[3];
	CUstream stream;
	CUdeviceptr block;

	MUST(cuMemAlloc_v2(&block, 4096));
	MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	for (int i = 0; i < 3; i++)
		n_before[i] = count(kinds[i], "submissions");
	for (int i = 0; i < 2; i++)
		victim_fill(&kernels, NULL, block, 1, 4096);
	for (int i = 0; i < 3; i++)
		victim_fill(&kernels, VICTIM_PER_THREAD, block, 1, 4096);
	for (int i = 0; i < 5; i++)
		victim_fill(&kernels, stream, block, 1, 4096);
	expect_more("legacy", "submissions", n_before[0], 2);
	expect_more("per_thread", "submissions", n_before[1], 3);
	expect_more("created", "submissions", n_before[2], 5);
	MUST(cuStreamDestroy_v2(stream));
	MUST(cuMemFree_v2(block));
}

static void
synchronisations_are_told_by_kind(void)
{
	const uint64_t n_context = count("context", "synchronisations");
	const uint64_t n_event = count("event", "synchronisations");
	const uint64_t n_legacy = count("legacy", "synchronisations");
	CUevent event;

	MUST(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
	MUST(cuEventRecord(event, NULL));
	MUST(cuEventSynchronize(event));
	MUST(cuCtxSynchronize());
	MUST(cuCtxSynchronize());
	MUST(cuStreamSynchronize(CU_STREAM_LEGACY));
	EXPECT(cuEventSynchronize(NULL) != CUDA_SUCCESS, "no event was synchronised with");
	expect_more("context", "synchronisations", n_context, 2);
	expect_more("event", "synchronisations", n_event, 1);
	expect_more("legacy", "synchronisations", n_legacy, 1);
	MUST(cuEventDestroy_v2(event));
}

int
main(int argc, char **argv)
{
	CUgraph graph;

	if (argc != 2)
		return 2;
	victim_dump_path = argv[1];
	victim_start();
	if (!poolshim_find(&api)) {
		victim_fail(__FILE__, __LINE__, "the shim is not loaded");
		return victim_end("victim_announce");
	}
	streams_are_told_by_kind();
	synchronisations_are_told_by_kind();
	each_row_counts_once();
	cuStreamEndCapture_ptsz(CU_STREAM_PER_THREAD, &graph);
	return victim_end("victim_announce");
}
