/* SPDX-License-Identifier: MIT */
#include <fcntl.h>
#include <unistd.h>

#include "tests/sim/test_sim.h"

/*
 * Random programs, and a second opinion: for each operation the set of all that it is after, and
 * every pair of accesses compared. Both must say at the same operation for the first time that
 * something races. Most operations that would race are left out, so that programs are long.
 * CUSIM_SEED and CUSIM_PROGRAMS choose others.
 */

enum {
	MAX_OPS = 256,
	N_STEPS = 400,
	N_STREAMS = 5, /* legacy, blocking, the thread's, two non-blocking */
	N_EVENTS = 3,
	N_CELLS = 24,
	CELL_BYTES = 16,
};

struct set {
	uint64_t words[MAX_OPS / 64];
};

struct range {
	unsigned first, n; /* cells */
	bool is_write;
};

struct access {
	struct set earlier;
	struct range ranges[2];
};

static CUcontext ctx;
static CUstream streams[N_STREAMS];
static CUevent events[N_EVENTS];
static CUdeviceptr memory;
static uint64_t state;

/* The second opinion. */
static struct access accesses[MAX_OPS];
static unsigned n_accesses;
static struct set of_stream[N_STREAMS], of_event[N_EVENTS], of_host;
static struct set newest[N_STREAMS]; /* what the stream's newest operation is after */
static bool is_after_kernel[N_STREAMS];

static unsigned
draw(unsigned n)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return (unsigned)((state >> 32) % n);
}

static void
join(struct set *into, const struct set *from)
{
	for (size_t i = 0; i < MAX_OPS / 64; i++)
		into->words[i] |= from->words[i];
}

static void
join_streams(struct set *into, unsigned first, unsigned last)
{
	for (unsigned i = first; i <= last; i++)
		join(into, &of_stream[i]);
}

/* Streams 1 and 2 wait for the legacy stream, and it for them. */
static struct set
begin(unsigned s, bool is_early)
{
	struct set set = is_early && is_after_kernel[s] ? newest[s] : of_stream[s];

	join(&set, &of_host);
	if (s == 0)
		join_streams(&set, 1, 2);
	else if (s <= 2)
		join_streams(&set, 0, 0);
	return set;
}

static void
end(unsigned s, const struct set *earlier, bool is_kernel)
{
	join(&of_stream[s], earlier);
	newest[s] = *earlier;
	is_after_kernel[s] = is_kernel;
}

static bool
conflict(const struct range *x, const struct range *y)
{
	return (x->is_write || y->is_write) && x->first < y->first + y->n &&
	       y->first < x->first + x->n;
}

static bool
would_race(const struct access *now)
{
	for (unsigned i = 0; i < n_accesses; i++) {
		const struct range *r = accesses[i].ranges, *q = now->ranges;

		if (now->earlier.words[i / 64] >> (i % 64) & 1)
			continue;
		if (conflict(&r[0], &q[0]) || conflict(&r[0], &q[1]) || conflict(&r[1], &q[0]) ||
		    conflict(&r[1], &q[1]))
			return true;
	}
	return false;
}

static struct range
draw_range(bool is_write)
{
	unsigned n = 1 + draw(6);

	return (struct range){draw(N_CELLS - n), n, is_write};
}

static CUdeviceptr
address(const struct range *r)
{
	return memory + (CUdeviceptr)r->first * CELL_BYTES;
}

static void
launch(CUstream s, const struct access *now, bool is_early)
{
	static CUfunction f;
	CUdeviceptr dst = address(&now->ranges[0]), src = address(&now->ranges[1]);
	size_t n_bytes = (size_t)now->ranges[0].n * CELL_BYTES;
	void *params[] = {&dst, &src, &n_bytes};
	CUlaunchAttribute attr = {.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION};
	CUlaunchConfig config = {.gridDimX = 1,
				 .gridDimY = 1,
				 .gridDimZ = 1,
				 .blockDimX = 1,
				 .blockDimY = 1,
				 .blockDimZ = 1,
				 .hStream = s,
				 .attrs = &attr,
				 .numAttrs = 1};

	if (!f)
		f = kernel("sim_copy");
	attr.value.programmaticStreamSerializationAllowed = is_early;
	cuLaunchKernelEx(&config, f, params, NULL);
}

/* A kernel or a copy. True when it races. */
static bool
access_memory(unsigned s)
{
	const bool is_kernel = draw(2) == 0, is_early = is_kernel && draw(2) == 0;
	struct access now = {.earlier = begin(s, is_early)};
	bool is_race;

	now.ranges[0] = draw_range(true);
	now.ranges[1] = draw_range(false);
	now.ranges[1].n = now.ranges[0].n;
	if (now.ranges[1].first + now.ranges[1].n > N_CELLS || n_accesses == MAX_OPS)
		return false;
	is_race = would_race(&now);
	if (is_race && draw(200) != 0)
		return false;
	if (is_kernel)
		launch(streams[s], &now, is_early);
	else
		cuMemcpyDtoDAsync_v2(address(&now.ranges[0]), address(&now.ranges[1]),
				     (size_t)now.ranges[0].n * CELL_BYTES, streams[s]);
	accesses[n_accesses] = now;
	end(s, &now.earlier, is_kernel);
	of_stream[s].words[n_accesses / 64] |= (uint64_t)1 << (n_accesses % 64);
	n_accesses++;
	return is_race;
}

static bool
access_by_cpu(void)
{
	struct access now = {.earlier = of_host, .ranges = {draw_range(draw(2)), {0}}};
	bool is_race = would_race(&now);

	if (is_race && draw(200) != 0)
		return false;
	cusim_cpu_access(address(&now.ranges[0]), (size_t)now.ranges[0].n * CELL_BYTES,
			 now.ranges[0].is_write);
	return is_race;
}

static void
record(unsigned e, unsigned s)
{
	struct set earlier = begin(s, false);

	cuEventRecord(events[e], streams[s]);
	end(s, &earlier, false);
	of_event[e] = of_stream[s];
}

static void
record_context(unsigned e)
{
	cuCtxRecordEvent(ctx, events[e]);
	of_event[e] = (struct set){0};
	join_streams(&of_event[e], 0, N_STREAMS - 1);
}

static void
wait_event(unsigned s, unsigned e)
{
	struct set earlier = begin(s, false);

	cuStreamWaitEvent(streams[s], events[e], 0);
	join(&earlier, &of_event[e]);
	end(s, &earlier, false);
}

/* A stream, an event, or what a query happens to find. */
static void
show_host(unsigned s, unsigned e)
{
	switch (draw(4)) {
	case 0:
		cuStreamSynchronize(streams[s]);
		join_streams(&of_host, s, s);
		if (s == 0)
			join_streams(&of_host, 1, 2);
		break;
	case 1:
		cuEventSynchronize(events[e]);
		join(&of_host, &of_event[e]);
		break;
	case 2:
		if (cuEventQuery(events[e]) == CUDA_SUCCESS)
			join(&of_host, &of_event[e]);
		break;
	default:
		if (s > 0 && cuStreamQuery(streams[s]) == CUDA_SUCCESS)
			join_streams(&of_host, s, s);
	}
}

/* True when what was done races. */
static bool
step(void)
{
	unsigned s = draw(N_STREAMS), e = draw(N_EVENTS), what = draw(40);

	if (what < 20)
		return access_memory(s);
	if (what < 23)
		return access_by_cpu();
	if (what < 29)
		record(e, s);
	else if (what < 35)
		wait_event(s, e);
	else if (what < 36)
		record_context(e);
	else if (what < 38)
		cusim_step(streams[s], (int)draw(4));
	else if (draw(3) == 0)
		show_host(s, e);
	return false;
}

static void
set_up(uint64_t seed)
{
	state = seed * 0x9e3779b97f4a7c15 + 1;
	n_accesses = 0;
	memset(of_stream, 0, sizeof(of_stream));
	memset(of_event, 0, sizeof(of_event));
	memset(newest, 0, sizeof(newest));
	memset(&of_host, 0, sizeof(of_host));
	memset(is_after_kernel, 0, sizeof(is_after_kernel));
	streams[0] = CU_STREAM_LEGACY;
	streams[1] = new_stream(CU_STREAM_DEFAULT);
	streams[2] = CU_STREAM_PER_THREAD;
	streams[3] = new_stream(CU_STREAM_NON_BLOCKING);
	streams[4] = new_stream(CU_STREAM_NON_BLOCKING);
	for (size_t i = 0; i < N_EVENTS; i++) {
		events[i] = new_event();
		cuEventRecord(events[i], streams[0]); /* a wait for nothing would be no operation */
	}
	/* No kernel of the program before may be the one that a first kernel of this overlaps. */
	for (size_t i = 0; i < N_STREAMS; i++)
		cuEventRecord(events[0], streams[i]);
	cuCtxSynchronize();
	cusim_check(CUSIM_CHECK_ON);
}

static void
tear_down(void)
{
	cuCtxSynchronize();
	cuStreamDestroy_v2(streams[1]);
	cuStreamDestroy_v2(streams[3]);
	cuStreamDestroy_v2(streams[4]);
	for (size_t i = 0; i < N_EVENTS; i++)
		cuEventDestroy_v2(events[i]);
}

/* True when both say the same after each step. */
static bool
run(uint64_t seed, bool *ret_raced)
{
	bool is_race = false, is_found = false;
	unsigned i;

	set_up(seed);
	for (i = 0; i < N_STEPS && !is_race && !is_found; i++) {
		is_race = step();
		is_found = cusim_races() > 0;
	}
	tear_down();
	*ret_raced = is_race;
	if (is_race != is_found)
		printf("# seed %llu, step %u: the checker says %d, the other %d\n",
		       (unsigned long long)seed, i, is_found, is_race);
	return is_race == is_found;
}

int
main(void)
{
	const char *seed_env = getenv("CUSIM_SEED"), *n_env = getenv("CUSIM_PROGRAMS");
	uint64_t seed = seed_env ? strtoull(seed_env, NULL, 0) : (uint64_t)getpid();
	unsigned n = n_env ? (unsigned)atoi(n_env) : 2000, n_raced = 0, n_differ = 0;
	int fd = open("/dev/null", O_WRONLY | O_CLOEXEC);

	ctx = start(CUSIM_MANUAL);
	cuMemAlloc_v2(&memory, (size_t)N_CELLS * CELL_BYTES);
	printf("# seed %llu\n", (unsigned long long)seed);
	dup2(fd, STDERR_FILENO); /* the races are meant */
	for (unsigned i = 0; i < n; i++) {
		bool has_raced;

		n_differ += !run(seed + i, &has_raced);
		n_raced += has_raced;
	}
	printf("# %u of %u programs raced\n", n_raced, n);
	ok(n_differ == 0, "both opinions agree on all programs");
	ok(n_raced > n / 10 && n_raced < n, "some programs race and some do not");
	return finish();
}
