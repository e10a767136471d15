/* SPDX-License-Identifier: MIT */
/*
 * Millions of blocks, each stamped by a kernel with its number, held for some microseconds, verified
 * at the kernel's end, and freed while the kernel runs.
 *
 * usage: gpu_stamp OPERATIONS BUDGET_S
 *
 * A kernel serves four blocks and touches the first and last 64 bytes of each. At its end it writes
 * the device's time for each block. A block counts as handed out unfinished when it overlaps an
 * earlier block whose kernel ended, by its own clock, after the host's clock when cudaMalloc had
 * returned, with the clocks' difference bounded from above (gpu_clock.cuh): never counted too many.
 * Prints one JSON object. Exit code 1: a stamp was wrong.
 */
#include <algorithm>
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "gpu_clock.cuh"
#include "gpu_json.h"

enum { N_BLOCKS = 4, N_TEAM = 16, N_KERNELS_A_GRAPH = 8, N_KERNELS_MAX = 1 << 20 };

enum stream_kind { LEGACY, PER_THREAD, BLOCKING, NON_BLOCKING, N_STREAM_KINDS };

enum way { PLAIN, DEPENDENT, GRAPH };

/* Slow ones first: what they leave of their operations is done by the later ones. */
static const struct config {
	const char *name;
	unsigned n_threads;
	int kind; /* -1: each kernel on a stream chosen by lot */
	bool is_shared; /* one stream for all threads */
	enum way way;
} configs[] = {
	{"graph", 1, NON_BLOCKING, false, GRAPH},
	{"graph_threads", 4, NON_BLOCKING, false, GRAPH},
	{"threads_all_kinds", 4, -1, false, PLAIN},
	{"threads_own_streams", 4, NON_BLOCKING, false, PLAIN},
	{"threads_per_thread", 4, PER_THREAD, false, PLAIN},
	{"threads_one_stream", 4, NON_BLOCKING, true, PLAIN},
	{"dependent", 1, NON_BLOCKING, false, DEPENDENT},
	{"legacy", 1, LEGACY, false, PLAIN},
	{"per_thread", 1, PER_THREAD, false, PLAIN},
	{"blocking", 1, BLOCKING, false, PLAIN},
	{"non_blocking", 1, NON_BLOCKING, false, PLAIN},
};

struct work {
	unsigned *blocks[N_BLOCKS];
	size_t n_words[N_BLOCKS];
	unsigned stamp;
	unsigned delay_ns;
	volatile uint64_t *ended_ns; /* of each block */
	unsigned long long *n_wrong;
};

struct owner {
	uintptr_t end;
	size_t slot;
};

/* A hand-out and the kernel that had used some of its memory before. */
struct handout {
	size_t number, slot;
	uint64_t at_ns;
};

/* Who had which memory last. */
struct owners {
	std::mutex lock;
	std::map<uintptr_t, struct owner> by_address;
	std::vector<struct handout> handouts;
};

struct run {
	const struct config *config;
	uint64_t n_kernels, deadline_ns;
	std::atomic<uint64_t> next_kernel{0}, n_done{0};
	cudaStream_t shared;
	volatile uint64_t *ended_ns;
	unsigned long long *n_wrong;
	struct owners owners;
};

static __global__ void
stamp_blocks(struct work work)
{
	volatile unsigned *block = work.blocks[blockIdx.x];
	volatile unsigned *last = block + work.n_words[blockIdx.x] - N_TEAM;
	const unsigned stamp = work.stamp * N_BLOCKS + blockIdx.x;
	const uint64_t start_ns = device_now_ns();

#if __CUDA_ARCH__ >= 900
	asm volatile("griddepcontrol.launch_dependents;");
#endif
	block[threadIdx.x] = stamp;
	last[threadIdx.x] = stamp;
	while (device_now_ns() - start_ns < work.delay_ns)
		;
	if (block[threadIdx.x] != stamp || last[threadIdx.x] != stamp)
		atomicAdd(work.n_wrong, 1ull);
	__syncthreads();
	if (threadIdx.x == 0)
		work.ended_ns[blockIdx.x] = device_now_ns();
}

static void
note_handout(struct owners *owners, uintptr_t start, uintptr_t end, size_t slot)
{
	const uint64_t at_ns = host_now_ns();
	std::lock_guard<std::mutex> guard(owners->lock);
	auto &map = owners->by_address;
	auto at = map.upper_bound(start);

	if (at != map.begin() && std::prev(at)->second.end > start)
		--at;
	while (at != map.end() && at->first < end) {
		owners->handouts.push_back({slot, at->second.slot, at_ns});
		at = map.erase(at);
	}
	map[start] = {end, slot};
}

static void
take_blocks(struct run *run, struct work *work, uint64_t kernel, uint64_t *random)
{
	work->stamp = (unsigned)kernel + 1;
	work->delay_ns = 1000 + (unsigned)(random_next(random) % 10000);
	work->ended_ns = run->ended_ns + kernel * N_BLOCKS;
	work->n_wrong = run->n_wrong;
	for (int i = 0; i < N_BLOCKS; i++) {
		const size_t bytes = (512ull << random_next(random) % 14) -
				     (random_next(random) % 2 ? 0 : random_next(random) % 64 * 4);

		work->n_words[i] = std::max<size_t>(bytes, 512) / sizeof(unsigned);
		MUST(cudaMalloc(&work->blocks[i], work->n_words[i] * sizeof(unsigned)));
		note_handout(&run->owners, (uintptr_t)work->blocks[i],
			     (uintptr_t)(work->blocks[i] + work->n_words[i]),
			     kernel * N_BLOCKS + i);
	}
}

static void
give_blocks(struct run *run, const struct work *work)
{
	for (unsigned *block : work->blocks)
		MUST(cudaFree(block));
	run->n_done++;
}

static void
launch(const struct work &work, cudaStream_t stream, enum way way)
{
	cudaLaunchAttribute attribute = {};
	cudaLaunchConfig_t config = {};

	if (way != DEPENDENT) {
		stamp_blocks<<<N_BLOCKS, N_TEAM, 0, stream>>>(work);
		MUST(cudaGetLastError());
		return;
	}
	attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
	attribute.val.programmaticStreamSerializationAllowed = 1;
	config.gridDim = N_BLOCKS;
	config.blockDim = N_TEAM;
	config.stream = stream;
	config.attrs = &attribute;
	config.numAttrs = 1;
	MUST(cudaLaunchKernelEx(&config, stamp_blocks, work));
}

static bool
next_kernel(struct run *run, uint64_t *ret_kernel)
{
	if (host_now_ns() > run->deadline_ns)
		return false;
	*ret_kernel = run->next_kernel++;
	return *ret_kernel < run->n_kernels;
}

/* The blocks of a graph are taken before its capture, and freed while it runs. */
static void
one_graph(struct run *run, cudaStream_t stream, uint64_t *random)
{
	struct work works[N_KERNELS_A_GRAPH];
	cudaGraphExec_t exec;
	cudaGraph_t graph;
	uint64_t kernel;
	int n = 0;

	while (n < N_KERNELS_A_GRAPH && next_kernel(run, &kernel))
		take_blocks(run, &works[n++], kernel, random);
	if (!n)
		return;
	MUST(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
	for (int i = 0; i < n; i++)
		launch(works[i], stream, PLAIN);
	MUST(cudaStreamEndCapture(stream, &graph));
	MUST(cudaGraphInstantiate(&exec, graph, 0));
	MUST(cudaGraphLaunch(exec, stream));
	for (int i = 0; i < n; i++)
		give_blocks(run, &works[i]);
	MUST(cudaGraphExecDestroy(exec));
	MUST(cudaGraphDestroy(graph));
}

static void
one_kernel(struct run *run, uint64_t kernel, cudaStream_t stream, uint64_t *random)
{
	struct work work;

	take_blocks(run, &work, kernel, random);
	launch(work, stream, run->config->way);
	give_blocks(run, &work);
}

static void
thread_main(struct run *run, unsigned number)
{
	const struct config *config = run->config;
	cudaStream_t streams[N_STREAM_KINDS] = {cudaStreamLegacy, cudaStreamPerThread};
	uint64_t random = 0x9e3779b97f4a7c15ull * (number + 1), kernel;

	MUST(cudaStreamCreate(&streams[BLOCKING]));
	MUST(cudaStreamCreateWithFlags(&streams[NON_BLOCKING], cudaStreamNonBlocking));
	while (config->way == GRAPH && host_now_ns() < run->deadline_ns &&
	       run->next_kernel < run->n_kernels)
		one_graph(run, streams[config->kind], &random);
	while (config->way != GRAPH && next_kernel(run, &kernel)) {
		const int kind = config->kind >= 0 ? config->kind
						   : (int)(random_next(&random) % N_STREAM_KINDS);

		one_kernel(run, kernel, config->is_shared ? run->shared : streams[kind], &random);
	}
	MUST(cudaStreamSynchronize(streams[PER_THREAD]));
	MUST(cudaStreamDestroy(streams[BLOCKING]));
	MUST(cudaStreamDestroy(streams[NON_BLOCKING]));
}

/* An end that was never written (0) is no proof of anything, and counts as finished. */
static uint64_t
count_unfinished(struct run *run, int64_t most_ahead_ns)
{
	size_t last = SIZE_MAX;
	uint64_t n = 0;

	/* Of several threads, the entries of one hand-out are still next to each other. */
	for (const struct handout &handout : run->owners.handouts) {
		const int64_t ended_ns = (int64_t)run->ended_ns[handout.slot];

		if (handout.number != last && ended_ns > (int64_t)handout.at_ns + most_ahead_ns) {
			last = handout.number;
			n++;
		}
	}
	return n;
}

struct totals {
	uint64_t n_operations, n_unfinished, n_wrong;
};

static void
run_config(const struct config *config, uint64_t n_kernels, uint64_t deadline_ns,
	   struct clock_page *page, struct run *run, struct totals *totals)
{
	const uint64_t start_ns = host_now_ns();
	std::vector<std::thread> threads;
	unsigned long long n_wrong;

	run->config = config;
	run->n_kernels = std::min<uint64_t>(n_kernels, N_KERNELS_MAX);
	run->deadline_ns = deadline_ns;
	MUST(cudaMemset(run->n_wrong, 0, sizeof(*run->n_wrong)));
	const int64_t before_ns = clock_most_ahead_ns(page);
	for (unsigned i = 0; i < config->n_threads; i++)
		threads.emplace_back(thread_main, run, i);
	for (auto &thread : threads)
		thread.join();
	MUST(cudaDeviceSynchronize());
	const int64_t after_ns = clock_most_ahead_ns(page);
	const uint64_t n_unfinished = count_unfinished(run, std::max(before_ns, after_ns));
	const uint64_t n_operations = run->n_done * N_BLOCKS * 2;
	MUST(cudaMemcpy(&n_wrong, run->n_wrong, sizeof(n_wrong), cudaMemcpyDeviceToHost));
	printf("\"%s\": {\"operations\": %llu, \"handed_out_unfinished\": %llu, "
	       "\"wrong_stamps\": %llu, \"seconds\": %.3f, \"clock_drift_ns\": %lld}",
	       config->name, (unsigned long long)n_operations, (unsigned long long)n_unfinished,
	       n_wrong, (host_now_ns() - start_ns) / 1e9, (long long)(after_ns - before_ns));
	totals->n_operations += n_operations;
	totals->n_unfinished += n_unfinished;
	totals->n_wrong += n_wrong;
}

int
main(int argc, char **argv)
{
	const size_t n_configs = sizeof(configs) / sizeof(configs[0]);
	const uint64_t start_ns = host_now_ns();
	struct totals totals = {};
	struct clock_page *page;
	unsigned long long *n_wrong;
	cudaStream_t shared;
	uint64_t *ended_ns;

	if (argc != 3)
		return 2;
	const uint64_t n_wanted = strtoull(argv[1], NULL, 10);
	const double budget_ns = atof(argv[2]) * 1e9;
	MUST(cudaHostAlloc(&page, sizeof(*page), cudaHostAllocMapped));
	MUST(cudaHostAlloc(&ended_ns, sizeof(*ended_ns) * N_BLOCKS * N_KERNELS_MAX,
			   cudaHostAllocMapped));
	MUST(cudaMalloc(&n_wrong, sizeof(*n_wrong)));
	MUST(cudaStreamCreateWithFlags(&shared, cudaStreamNonBlocking));
	printf("{\"seed\": \"0x9e3779b97f4a7c15 x thread\", \"configs\": {");
	for (size_t i = 0; i < n_configs; i++) {
		const uint64_t n_left = n_wanted - std::min(n_wanted, totals.n_operations);
		std::unique_ptr<struct run> run(new struct run);

		std::fill(ended_ns, ended_ns + (size_t)N_BLOCKS * N_KERNELS_MAX, 0);
		run->ended_ns = ended_ns;
		run->n_wrong = n_wrong;
		run->shared = shared;
		printf("%s", i ? ", " : "");
		run_config(&configs[i], n_left / (n_configs - i) / (2 * N_BLOCKS) + 1,
			   start_ns + (uint64_t)(budget_ns * (i + 1) / n_configs), page, run.get(),
			   &totals);
	}
	printf("}, \"operations\": %llu, \"handed_out_unfinished\": %llu, \"wrong_stamps\": %llu, "
	       "\"seconds\": %.3f}\n",
	       (unsigned long long)totals.n_operations, (unsigned long long)totals.n_unfinished,
	       (unsigned long long)totals.n_wrong, (host_now_ns() - start_ns) / 1e9);
	return totals.n_wrong ? 1 : 0;
}
