/* SPDX-License-Identifier: MIT */
/*
 * Rules of order, one schedule each: the table is cases.def, the rows are in the files beside this
 * one. Nothing runs on the software device but what a row steps or waits for, and its
 * happens-before checker takes no free for a wait.
 *
 * usage: victim_order_cases [NAME]
 * Rows of another POOLSHIM_REUSE than the environment's are left out.
 */
#include "tests/order/cases/cases.h"

#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

struct case_scene scene;

static CUcontext primary;
static bool has_failed;
static uint64_t passed_ns;

/* The library's coarse clock: rows let time pass without waiting for it. */
int
clock_gettime(clockid_t clock, struct timespec *ret_now)
{
	const int r = (int)syscall(SYS_clock_gettime, clock, ret_now);

	if (r == 0 && clock == CLOCK_MONOTONIC_COARSE) {
		const uint64_t ns =
			(uint64_t)ret_now->tv_nsec + __atomic_load_n(&passed_ns, __ATOMIC_RELAXED);

		ret_now->tv_sec += (time_t)(ns / 1000000000);
		ret_now->tv_nsec = (long)(ns % 1000000000);
	}
	return r;
}

void
case_pass_ns(uint64_t ns)
{
	__atomic_fetch_add(&passed_ns, ns, __ATOMIC_RELAXED);
}

void
case_fail(const char *file, int line, const char *what)
{
	has_failed = true;
	fprintf(stderr, "%s:%d: not so: %s\n", file, line, what);
}

CUdeviceptr
case_alloc(void)
{
	CUdeviceptr block;

	MUST(cuMemAlloc_v2(&block, CASE_BYTES));
	return block;
}

CUdeviceptr
case_small(void)
{
	CUdeviceptr block;

	MUST(cuMemAlloc_v2(&block, 512));
	return block;
}

CUdeviceptr
case_block(void)
{
	CUdeviceptr block, neighbour;

	do {
		block = case_alloc();
		/* No number of both leaves a hole of the block's size at the end of a segment. */
		MUST(cuMemAlloc_v2(&neighbour, CASE_BYTES / 2 + 65536));
	} while (neighbour != block + CASE_BYTES);
	return block;
}

void
case_use(CUstream stream, CUdeviceptr block)
{
	victim_fill(&scene.kernels, stream, block, 0x11, 512);
}

void
case_use_dependent(CUstream stream, CUdeviceptr block)
{
	unsigned int value = 0x22;
	size_t n_bytes = 512;
	void *parameters[] = {&block, &value, &n_bytes};
	CUlaunchAttribute attribute = {
		.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
		.value.programmaticStreamSerializationAllowed = 1,
	};
	const CUlaunchConfig config = {
		.gridDimX = 1,
		.gridDimY = 1,
		.gridDimZ = 1,
		.blockDimX = 1,
		.blockDimY = 1,
		.blockDimZ = 1,
		.hStream = stream,
		.attrs = &attribute,
		.numAttrs = 1,
	};

	MUST(cuLaunchKernelEx(&config, scene.kernels.fill, parameters, NULL));
}

/* The device takes NULL for all streams. */
int
case_step(CUstream stream, int n)
{
	if (!stream)
		stream = CU_STREAM_LEGACY;
	else if (stream == VICTIM_PER_THREAD)
		stream = CU_STREAM_PER_THREAD;
	return cusim_step(stream, n);
}

uint64_t
case_n_completed(void)
{
	struct cusim_report report;

	cusim_get_report(&report);
	return report.n_completed;
}

enum { N_OPS = 256 };

static size_t
read_ops(struct cusim_op ops[static N_OPS])
{
	return cusim_ops(ops, N_OPS);
}

static bool
is_work(const struct cusim_op *op)
{
	return op->kind < CUSIM_OP_ALLOC;
}

struct cusim_op
case_op(CUdeviceptr block)
{
	struct cusim_op ops[N_OPS];

	for (size_t i = read_ops(ops); i-- > 0;)
		for (unsigned j = 0; is_work(&ops[i]) && j < ops[i].n_ranges; j++)
			if (ops[i].ranges[j].addr == block)
				return ops[i];
	case_fail(__FILE__, __LINE__, "some work touches the block");
	return (struct cusim_op){0};
}

bool
case_has_run(CUdeviceptr block)
{
	return case_op(block).seq_complete != 0;
}

void
case_mark(void)
{
	struct cusim_op newest;

	scene.mark = cusim_ops(&newest, 1) ? newest.seq_submit : 0;
}

static bool
is_wait_before(const struct cusim_op *wait, const struct cusim_op *op)
{
	return wait->kind == CUSIM_OP_EVENT_WAIT && wait->stream == op->stream &&
	       wait->seq_submit > scene.mark && wait->seq_submit < op->seq_submit;
}

unsigned
case_n_waits(const struct cusim_op *op)
{
	struct cusim_op ops[N_OPS];
	const size_t n = read_ops(ops);
	unsigned n_waits = 0;

	for (size_t i = 0; i < n; i++)
		n_waits += is_wait_before(&ops[i], op);
	return n_waits;
}

void
case_free(CUdeviceptr block)
{
	const uint64_t n_before = case_n_completed();

	MUST(cuMemFree_v2(block));
	CHECK(case_n_completed() == n_before);
}

void
case_settle(void)
{
	case_pass_ns(100000000);
	MUST(cuCtxSynchronize());
}

void
case_use_old(CUstream s, CUdeviceptr block)
{
	case_use(s, block);
	scene.old_seq = case_op(block).seq_submit;
}

CUdeviceptr
case_early(CUstream s)
{
	const CUdeviceptr block = case_block();

	scene.later = case_block();
	case_use_old(s, block);
	case_free(block);
	CHECK(case_alloc() == block);
	CHECK(!case_has_run(block));
	case_use(s, scene.later);
	case_mark();
	return block;
}

enum outcome
case_hand_out(CUdeviceptr block)
{
	const uint64_t n_before = case_n_completed();
	CUdeviceptr next;

	CHECK(!case_has_run(block));
	next = case_alloc();
	if (case_n_completed() != n_before)
		return WRONG;
	if (next == block) {
		case_use(scene.s, block); /* the new owner, after the old work */
		return EARLY;
	}
	cusim_run_all();
	case_settle();
	CHECK(case_has_run(block));
	return case_alloc() == block ? COMPLETE : WRONG;
}

enum outcome
case_soon(CUdeviceptr block)
{
	enum { N_REQUESTS = 16 };

	for (int i = 0; i < N_REQUESTS; i++)
		if (case_alloc() == block)
			return COMPLETE;
	return WRONG;
}

/* The fence that is waited for lies between the old work and what came after the free. */
static void
check_record(const struct cusim_op *mine)
{
	const struct cusim_op later = case_op(scene.later);
	struct cusim_op ops[N_OPS];
	const size_t n = read_ops(ops);
	uint64_t record = 0;
	bool is_found = false;

	for (size_t i = 0; i < n; i++)
		if (is_wait_before(&ops[i], mine))
			record = ops[i].record;
	for (size_t i = 0; i < n; i++) {
		if (ops[i].kind != CUSIM_OP_CTX_RECORD || ops[i].record != record)
			continue;
		is_found = true;
		CHECK(ops[i].seq_submit < later.seq_submit);
		CHECK(ops[i].seq_submit > scene.old_seq);
	}
	CHECK(is_found);
}

enum outcome
case_wait(CUstream s, CUstream y, CUdeviceptr touched)
{
	struct cusim_op mine = case_op(touched);
	const unsigned n_waits = case_n_waits(&mine);

	if (n_waits == 0) {
		case_step(y, 8);
		return case_has_run(touched) ? NO_WAIT : WRONG;
	}
	if (n_waits != 1)
		return WRONG;
	check_record(&mine);
	case_step(y, 8);
	CHECK(!case_has_run(touched));
	CHECK(case_step(s, 1) == 1);
	CHECK(!case_has_run(scene.later));
	case_step(y, 8);
	return case_has_run(touched) && !case_has_run(scene.later) ? WAITS : WRONG;
}

enum outcome
case_free_beside(CUdeviceptr touched)
{
	const CUdeviceptr unrelated = case_small();

	CHECK(!case_has_run(touched));
	MUST(cuMemFree_v2(unrelated));
	return case_has_run(touched) ? FREE_WAITS : FREE_GOES;
}

enum outcome
case_dependence(void)
{
	uint64_t n_races;

	cusim_run_all();
	n_races = cusim_races();
	cusim_check(CUSIM_CHECK_FREES_SHOW_NOTHING);
	return n_races == 0 ? ORDERED : n_races == 1 ? NOT_ORDERED : WRONG;
}

/* From here on no stream has unfinished work, and the order knows it. */
static void
begin(void)
{
	CUdeviceptr block;

	MUST(cuCtxCreate_v2(&scene.context, 0, 0));
	scene.kernels = victim_kernels_load();
	MUST(cuStreamCreate(&scene.s, CU_STREAM_NON_BLOCKING));
	MUST(cuStreamCreate(&scene.y, CU_STREAM_NON_BLOCKING));
	MUST(cuStreamCreate(&scene.z, CU_STREAM_NON_BLOCKING));
	MUST(cuStreamCreate(&scene.blocking, CU_STREAM_DEFAULT));
	MUST(cuMemAlloc_v2(&scene.small, 512));
	MUST(cuMemHostAlloc((void **)&scene.seen, 512, 0));
	*(uint32_t *)(uintptr_t)scene.small = 0; /* nothing is submitted: no stream is known yet */
	block = case_alloc();
	MUST(cuMemFree_v2(block));
	case_settle();
	cusim_check(CUSIM_CHECK_FREES_SHOW_NOTHING);
	scene.mark = 0;
}

static void
end(void)
{
	cusim_run_all();
	CHECK(cusim_races() == 0);
	CHECK(cusim_violations() == 0);
	if (scene.seen)
		MUST(cuMemFreeHost(scene.seen));
	MUST(cuCtxDestroy_v2(scene.context));
	MUST(cuCtxSetCurrent(primary));
	scene = (struct case_scene){0};
}

static const char *const outcome_names[] = {
	[EARLY] = "EARLY",
	[COMPLETE] = "COMPLETE",
	[WAITS] = "WAITS",
	[NO_WAIT] = "NO_WAIT",
	[FREE_WAITS] = "FREE_WAITS",
	[FREE_GOES] = "FREE_GOES",
	[NOT_ORDERED] = "NOT_ORDERED",
	[ORDERED] = "ORDERED",
	[WRONG] = "none of the outcomes",
};

static const struct row {
	const char *rule, *name, *reuse;
	enum outcome (*play)(void);
	enum outcome expected;
} rows[] = {
#define CASE(rule, name, reuse, expected) {#rule, #name, #reuse, case_##name, expected},
#include "tests/order/cases/cases.def"
#undef CASE
};

static bool
run(const struct row *row, unsigned number)
{
	enum outcome seen;

	has_failed = false;
	begin();
	seen = row->play();
	end();
	if (seen != row->expected)
		has_failed = true;
	printf("%s %u - rule %s: %s: %s", has_failed ? "not ok" : "ok", number, row->rule,
	       row->name, outcome_names[row->expected]);
	if (seen != row->expected)
		printf(", not %s", outcome_names[seen]);
	putchar('\n');
	fflush(stdout);
	return !has_failed;
}

int
main(int argc, char **argv)
{
	const char *reuse = getenv("POOLSHIM_REUSE");
	unsigned n_run = 0, n_failed = 0;
	struct poolshim_api api;

	if (!reuse)
		reuse = "auto";
	primary = victim_start();
	if (!poolshim_find(&api))
		return 77; /* a native free waits */
	cusim_set_mode(CUSIM_MANUAL);
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		if (strcmp(rows[i].reuse, reuse) != 0 ||
		    (argc > 1 && strcmp(rows[i].name, argv[1]) != 0))
			continue;
		n_run++;
		n_failed += !run(&rows[i], n_run);
	}
	printf("1..%u\n", n_run);
	EXPECT(n_run > 0, "no such row");
	EXPECT(n_failed == 0, "%u of %u rows failed", n_failed, n_run);
	return victim_end("victim_order_cases");
}
