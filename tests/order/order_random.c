/* SPDX-License-Identifier: MIT */
/*
 * A random program for the software device, made from a seed (order.h). It judges itself: every
 * status is the one that the driver must give, every byte read is the one written, the device saw
 * no operation on memory that is gone and, where it checks, no race; and it ends.
 *
 * usage: order_random --seed S [--ops N] [--threads T] [--manual] [--limit MIB] [--statuses FILE]
 *                     [--check | --no-barrier] [--watchdog SECONDS] [--trace]
 * --no-barrier: that frees wait orders nothing, and the program does not rely on it.
 * Exit code 0: all held; 1: not; 3: it hung.
 */
#include <getopt.h>
#include <time.h>
#include <unistd.h>

#include "tests/order/order.h"

struct program program = {
	.seed = 1,
	.n_steps = 20000,
	.n_actors = 4,
	.host_lock = PTHREAD_MUTEX_INITIALIZER,
};

static const struct step {
	const char *name;
	unsigned weight;
	bool (*take)(struct actor *a);
} steps[] = {
	{"alloc", 24, step_alloc},
	{"free", 20, step_free},
	{"fill", 12, step_fill},
	{"copy", 12, step_copy},
	{"peer", 3, step_peer},
	{"check", 8, step_check},
	{"host_write", 4, step_host_write},
	{"host_read", 4, step_host_read},
	{"pageable", 2, step_pageable},
	{"sync", 2, step_sync},
	{"query", 3, step_query},
	{"spin", 4, step_spin},
	{"window", 3, step_window},
	{"host_func", 2, step_host_func},
	{"lock", 1, step_lock},
	{"stream", 1, step_stream},
	{"capture", 1, step_capture},
	{"graph", 4, step_graph},
	{"refuse", 2, step_refuse},
	{"churn", 1, step_churn},
};

enum { N_SAME_ROUNDS = 8 };
enum { N_STEP_KINDS = sizeof(steps) / sizeof(steps[0]) };

static uint64_t counts[N_ACTORS_MAX][N_STEP_KINDS];
static struct actor actors[N_ACTORS_MAX];
static pthread_barrier_t barrier;
static atomic_bool is_over;
static const char *statuses_path;
static unsigned watchdog_s = 30;

static void
take_step(struct actor *a)
{
	unsigned total = 0, at;

	order_tick(a);
	for (int i = 0; i < N_STEP_KINDS; i++)
		total += steps[i].weight;
	for (int n_tries = 0; n_tries < 100; n_tries++) {
		int i = 0;

		for (at = random_below(a, total); at >= steps[i].weight; i++)
			at -= steps[i].weight;
		if (!steps[i].take(a))
			continue;
		a->counts[i]++;
		return;
	}
}

/* A block goes to the next actor, behind an event; it may be freed there at once. */
static void
send_mail(struct actor *a, uint64_t round)
{
	struct mail *mail = &a->mail[round % 2];
	struct block *block = pick_block(a, (int)random_below(a, N_CONTEXTS), true);
	int stream;

	if (program.n_actors == 1 || !block || one_in(a, 4))
		return;
	graph_forget_block(a, block);
	stream = pick_stream(a, block->context);
	model_need(a, stream, block, true);
	*mail = (struct mail){true, call_record(a, stream), *block};
	a->live_bytes -= block->n_bytes;
	*block = (struct block){0};
}

static void
take_mail(struct actor *a, uint64_t round)
{
	const int from = (a->number + program.n_actors - 1) % program.n_actors;
	struct mail *mail = &actors[from].mail[(round + 1) % 2];
	struct block *block = NULL;
	struct at at;
	int stream;

	if (!mail->is_full)
		return;
	mail->is_full = false;
	for (int i = 0; i < N_BLOCKS && !block; i++) {
		if (a->blocks[i].kind == NO_BLOCK)
			block = &a->blocks[i];
	}
	if (!block) {
		block = &a->blocks[0];
		memory_free(a, block, true);
	}
	*block = mail->block;
	a->live_bytes += block->n_bytes;
	memset(block->touches, 0, sizeof(block->touches));
	stream = pick_stream(a, block->context);
	at = call_at(a, stream);
	CALL_AT(a, at, cuStreamWaitEvent, at.handle, mail->event, 0);
	model_submit(a, stream);
	model_write(a, stream, block, true);
	CALL(a, cuEventDestroy_v2, mail->event);
}

static void
setup_actor(struct actor *a)
{
	static const struct {
		enum stream_kind kind;
		int context;
	} made[N_STREAMS] = {
		{LEGACY, 0},       {PER_THREAD, 0},   {BLOCKING, 0},     {NON_BLOCKING, 0},
		{NON_BLOCKING, 0}, {GREEN, 0},        {LEGACY, 1},       {PER_THREAD, 1},
		{BLOCKING, 1},     {NON_BLOCKING, 1}, {NON_BLOCKING, 1},
	};

	a->context = 1;
	call_current(a, 0);
	for (int i = 0; i < N_STREAMS; i++) {
		a->streams[i].kind = made[i].kind;
		a->streams[i].context = made[i].context;
		order_stream_make(a, i);
	}
	for (int c = 0; c < N_CONTEXTS; c++) {
		call_current(a, c);
		CALL(a, cuMemAlloc_v2, &a->results[c], (size_t)N_RESULTS * RESULT_BYTES);
		CALL(a, cuMemAlloc_v2, &a->flags[c], N_FLAGS * sizeof(uint32_t));
		CALL(a, cuMemsetD8_v2, a->flags[c], 0, N_FLAGS * sizeof(uint32_t));
		CALL(a, cuCtxSynchronize);
	}
	CALL(a, cuMemHostAlloc, (void **)&a->host_flags, N_FLAGS * sizeof(uint32_t),
	     CU_MEMHOSTALLOC_PORTABLE);
	memset(a->host_flags, 0, N_FLAGS * sizeof(uint32_t));
	a->pageable = malloc(1 << 16);
	if (!a->pageable)
		exit(2);
}

/* The last blocks are read back, too. */
static void
end_actor(struct actor *a)
{
	order_settle(a);
	for (int i = 0; i < N_BLOCKS; i++) {
		if (a->blocks[i].kind == NO_BLOCK)
			continue;
		if (a->n_results == N_RESULTS)
			work_flush(a);
		work_check(a, &a->blocks[i]);
	}
	work_flush(a);
	for (int i = 0; i < N_BLOCKS; i++) {
		if (a->blocks[i].kind != NO_BLOCK)
			memory_free(a, &a->blocks[i], true);
	}
	work_flush(a);
	for (int c = 0; c < N_CONTEXTS; c++) {
		CALL(a, cuMemFree_v2, a->results[c]);
		CALL(a, cuMemFree_v2, a->flags[c]);
	}
	CALL(a, cuMemFreeHost, a->host_flags);
	for (int i = 0; i < N_STREAMS; i++) {
		atomic_store(&program.handles[a->number * N_STREAMS + i], NULL);
		if (a->streams[i].handle)
			CALL(a, cuStreamDestroy_v2, a->streams[i].handle);
	}
	free(a->pageable);
}

static void *
run_actor(void *arg)
{
	struct actor *a = arg;
	uint64_t n_left = program.n_steps;

	if (cuCtxSetCurrent(program.contexts[1]) != CUDA_SUCCESS)
		exit(2);
	setup_actor(a);
	for (uint64_t round = 0; n_left > 0; round++) {
		pthread_barrier_wait(&barrier);
		a->may_capture = program.n_actors == 1 || round % 2 == 0;
		a->may_wait_for_contexts = program.n_actors == 1 || !a->may_capture;
		a->is_narrow = ((program.seed ^ round / N_SAME_ROUNDS) & 1) != 0;
		order_collective(a, round);
		take_mail(a, round);
		for (int i = 0; i < ROUND_STEPS && n_left > 0; i++, n_left--) {
			a->n_steps++;
			take_step(a);
		}
		order_settle(a);
		send_mail(a, round);
		if (n_left == 0) {
			/* What was sent last finds its owner. */
			pthread_barrier_wait(&barrier);
			take_mail(a, round + 1);
		}
	}
	end_actor(a);
	return NULL;
}

/* Green streams are ordinary ones where the driver has no green contexts. */
static void
setup_green(void)
{
	CUdevResource resource;
	CUdevResourceDesc description;

	program.green_context = program.contexts[0];
	if (!cuGreenCtxCreate)
		return;
	MUST(cuDeviceGetDevResource(0, &resource, CU_DEV_RESOURCE_TYPE_SM));
	MUST(cuDevResourceGenerateDesc(&description, &resource, 1));
	MUST(cuGreenCtxCreate(&program.green, description, 0, CU_GREEN_CTX_DEFAULT_STREAM));
	MUST(cuCtxFromGreenCtx(&program.green_context, program.green));
}

static void
setup_program(void)
{
	CUcontext popped;
	CUmodule module;

	program.contexts[0] = victim_start();
	setup_green();
	MUST(cuCtxCreate_v2(&program.contexts[1], 0, 0));
	MUST(cuCtxPopCurrent_v2(&popped));
	for (int c = 0; c < N_CONTEXTS; c++) {
		MUST(cuCtxSetCurrent(program.contexts[c]));
		MUST(cuMemAlloc_v2(&program.ones[c], sizeof(uint32_t)));
		MUST(cuMemsetD32_v2(program.ones[c], 1, 1));
		MUST(cuCtxSynchronize());
	}
	MUST(cuModuleLoadData(&module, "any image"));
	MUST(cuModuleGetFunction(&program.fill, module, "sim_fill"));
	MUST(cuModuleGetFunction(&program.copy, module, "sim_copy"));
	MUST(cuModuleGetFunction(&program.spin, module, "sim_spin"));
	MUST(cuMemHostAlloc((void **)&program.pair_flags,
			    (size_t)N_FLAGS * N_ACTORS_MAX * sizeof(uint32_t),
			    CU_MEMHOSTALLOC_PORTABLE));
	memset(program.pair_flags, 0, (size_t)N_FLAGS * N_ACTORS_MAX * sizeof(uint32_t));
}

static void
end_program(void)
{
	MUST(cuMemFreeHost(program.pair_flags));
	for (int c = 0; c < N_CONTEXTS; c++) {
		MUST(cuCtxSetCurrent(program.contexts[c]));
		MUST(cuMemFree_v2(program.ones[c]));
		MUST(cuCtxSynchronize());
	}
	if (program.green)
		MUST(cuGreenCtxDestroy(program.green));
	MUST(cuCtxDestroy_v2(program.contexts[1]));
}

/* The device's side in manual mode: a few operations, now of one stream, now of any. */
static void *
step_device(void *arg)
{
	struct actor chooser = {.random = program.seed * 2 + 1};
	const struct timespec pause = {.tv_nsec = 20000};

	(void)arg;
	while (!atomic_load(&is_over)) {
		void *handle = atomic_load(
			&program.handles[random_below(&chooser, N_ACTORS_MAX * N_STREAMS)]);

		if (cusim_step(handle, 1 + (int)random_below(&chooser, 4)) > 0)
			continue;
		/* Nothing there: let kernels that spin by time come to their end. */
		cusim_advance_ns(100);
		if (!handle)
			nanosleep(&pause, NULL);
	}
	return NULL;
}

static void
say_hung(void)
{
	fprintf(stderr, "HANG: nothing moved for %u s; seed %llu\n", watchdog_s,
		(unsigned long long)program.seed);
	for (int i = 0; i < program.n_actors; i++)
		fprintf(stderr, "thread %d: step %llu, call %zu, %s%s%s\n", i,
			(unsigned long long)actors[i].n_steps, actors[i].n_statuses,
			actors[i].call ? actors[i].call : "none",
			actors[i].window.is_open ? ", before a release" : "",
			actors[i].n_locked_steps ? ", holds the lock" : "");
	cusim_report();
	fflush(NULL);
	_exit(3);
}

/* Neither the program nor the device has done anything for so long. */
static void *
watch(void *arg)
{
	const struct timespec second = {.tv_sec = 1};
	uint64_t before = 0, now;
	struct cusim_report report;
	unsigned n_still = 0;

	(void)arg;
	while (!atomic_load(&is_over)) {
		nanosleep(&second, NULL);
		cusim_get_report(&report);
		now = report.n_completed;
		for (int i = 0; i < program.n_actors; i++)
			now += actors[i].n_statuses;
		n_still = now == before ? n_still + 1 : 0;
		before = now;
		if (n_still == watchdog_s)
			say_hung();
	}
	return NULL;
}

static void
write_statuses(void)
{
	FILE *f = statuses_path ? fopen(statuses_path, "w") : NULL;

	for (int i = 0; f && i < program.n_actors; i++) {
		for (size_t j = 0; j < actors[i].n_statuses; j++)
			fprintf(f, "%d %zu %u\n", i, j, actors[i].statuses[j]);
	}
	if (f && fclose(f) != 0)
		exit(2);
}

static void
say_counts(void)
{
	uint64_t checksum = 0, n_calls = 0;

	for (int i = 0; i < program.n_actors; i++) {
		checksum = checksum * 31 + actors[i].checksum;
		n_calls += actors[i].n_statuses;
	}
	printf("checksum %016llx\ncalls %llu\n", (unsigned long long)checksum,
	       (unsigned long long)n_calls);
	for (int k = 0; k < N_STEP_KINDS; k++) {
		uint64_t n = 0;

		for (int i = 0; i < program.n_actors; i++)
			n += counts[i][k];
		printf("steps %s %llu\n", steps[k].name, (unsigned long long)n);
	}
}

/* What the device itself has seen. */
static void
check_device(void)
{
	order_expect(cusim_violations() == 0,
		     "%llu operations touched memory that was not allocated",
		     (unsigned long long)cusim_violations());
	order_expect(cusim_races() == 0, "%llu races", (unsigned long long)cusim_races());
}

static void
read_arguments(int argc, char **argv)
{
	static const struct option options[] = {
		{"seed", required_argument, NULL, 's'},
		{"ops", required_argument, NULL, 'n'},
		{"threads", required_argument, NULL, 't'},
		{"manual", no_argument, NULL, 'm'},
		{"limit", required_argument, NULL, 'l'},
		{"trace", no_argument, NULL, 'v'},
		{"statuses", required_argument, NULL, 'o'},
		{"watchdog", required_argument, NULL, 'w'},
		{"check", no_argument, NULL, 'c'},
		{"no-barrier", no_argument, NULL, 'b'},
		{NULL, 0, NULL, 0},
	};
	int option;

	while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
		const uint64_t number = optarg ? strtoull(optarg, NULL, 0) : 0;

		if (option == 's')
			program.seed = number;
		else if (option == 'n')
			program.n_steps = number;
		else if (option == 't')
			program.n_actors = (int)number;
		else if (option == 'm')
			program.is_manual = true;
		else if (option == 'l')
			program.limit_bytes = (size_t)number << 20;
		else if (option == 'v')
			program.is_traced = true;
		else if (option == 'b')
			program.is_checked = program.is_barrier_ignored = true;
		else if (option == 'c')
			program.is_checked = true;
		else if (option == 'o')
			statuses_path = optarg;
		else if (option == 'w')
			watchdog_s = (unsigned)number;
		else
			exit(2);
	}
	if (program.n_actors < 1 || program.n_actors > N_ACTORS_MAX)
		exit(2);
}

int
main(int argc, char **argv)
{
	pthread_t watcher, stepper;

	read_arguments(argc, argv);
	program.n_steps =
		(program.n_steps + (unsigned)program.n_actors - 1) / (unsigned)program.n_actors;
	program.actors = actors;
	printf("seed %llu\n", (unsigned long long)program.seed);
	if (program.is_checked)
		cusim_check(program.is_barrier_ignored ? 2 : 1);
	setup_program();
	pthread_barrier_init(&barrier, NULL, (unsigned)program.n_actors);
	order_release_init();
	if (program.is_manual)
		cusim_set_mode(CUSIM_MANUAL);
	if (pthread_create(&watcher, NULL, watch, NULL) != 0 ||
	    (program.is_manual && pthread_create(&stepper, NULL, step_device, NULL) != 0))
		exit(2);
	for (int i = 0; i < program.n_actors; i++) {
		actors[i].number = i;
		actors[i].counts = counts[i];
		actors[i].random = (program.seed * 0x9e3779b97f4a7c15u + (unsigned)i + 1) *
					   0xbf58476d1ce4e5b9u |
				   1;
		if (pthread_create(&actors[i].thread, NULL, run_actor, &actors[i]) != 0)
			exit(2);
	}
	for (int i = 0; i < program.n_actors; i++)
		pthread_join(actors[i].thread, NULL);
	order_release_end();
	end_program();
	atomic_store(&is_over, true);
	if (program.is_manual)
		pthread_join(stepper, NULL);
	pthread_detach(watcher);
	write_statuses();
	say_counts();
	check_device();
	printf("failed %u\n", program.n_failed);
	return program.n_failed > 0;
}
