/* SPDX-License-Identifier: MIT */
/*
 * Every hooked function of the driver with nothing but zeros: NULL, size 0, stream 0, device 0;
 * before cuInit, without a context, with one, and once more while a thread's own stream captures.
 *
 * usage: victim_table_all    one line a call; its runner compares a native run with a shimmed one
 *
 * The rows are hooks.def and driver_api.def themselves, so a hook that is added is in the table.
 * All arguments of the hooked functions are integers or pointers, which x86-64 and aarch64 pass in
 * the same places whatever their type, so one type of call serves for all; the one struct that is
 * passed by value (cuEGLStreamProducerPresentFrame) is whatever lies on the stack. Runs on the
 * software device: a real driver may crash on some of these.
 */
#include "shim/driver_api.h"
#include "tests/preload/victim.h"

typedef CUresult zero_call(void *, void *, void *, void *, void *, void *, void *, void *, void *,
			   void *);

static const struct row {
	const char *name;
	void *function;
} rows[] = {
#define ROW(symbol) {#symbol, (void *)symbol},
#define HOOK(symbol, ...) ROW(symbol)
#include "shim/hooks.def"
#undef HOOK
#define DRIVER_API_VERSION(version)
#define DRIVER(symbol, ...)
#define SUBMIT(symbol, ...) ROW(symbol)
#define SYNC(symbol, ...) ROW(symbol)
#include "shim/driver_api.def"
};

/*
 * Rows that would end the state that the others are to be seen in: they come last, by themselves.
 */
static bool
is_ending(const char *name)
{
	return strstr(name, "PrimaryCtxReset") || strstr(name, "PrimaryCtxRelease");
}

static void
call(const char *state, const struct row *row)
{
	const CUresult r = ((zero_call *)row->function)(NULL, NULL, NULL, NULL, NULL, NULL, NULL,
							NULL, NULL, NULL);

	printf("%s: %s = %d\n", state, row->name, r);
}

static void
call_all(const char *state, bool are_ending)
{
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		if (is_ending(rows[i].name) == are_ending && strcmp(rows[i].name, "cuInit") != 0)
			call(state, &rows[i]);
}

int
main(void)
{
	CUcontext context;
	CUdeviceptr block;
	CUgraph graph;

	setvbuf(stdout, NULL, _IOLBF, 0);
	call_all("before cuInit", false);
	call_all("before cuInit", true);
	MUST(cuInit(0));
	call_all("no context", false);
	call_all("no context", true);

	MUST(cuCtxCreate_v2(&context, 0, 0));
	MUST(cuMemAlloc_v2(&block, 1000));
	call_all("context", false);
	/* One of the calls above has begun a capture in the thread's own stream, or not. */
	cuStreamEndCapture_ptsz(CU_STREAM_PER_THREAD, &graph);

	MUST(cuStreamBeginCapture_v2_ptsz(CU_STREAM_PER_THREAD, CU_STREAM_CAPTURE_MODE_RELAXED));
	call_all("capturing", false);
	cuStreamEndCapture_ptsz(CU_STREAM_PER_THREAD, &graph);

	call_all("context", true);
	printf("free of a block that lived through it = %d\n", cuMemFree_v2(block));
	printf("again = %d\n", cuMemFree_v2(block));
	printf("destroy = %d\n", cuCtxDestroy_v2(context));
	return victim_end("victim_table_all");
}
