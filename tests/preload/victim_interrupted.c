/* SPDX-License-Identifier: MIT */
/*
 * A signal handler that calls exit() wherever it interrupts the shim: the program ends, whatever
 * its exit handlers ask of CUDA, as the runtime's own do.
 *
 * usage: victim_interrupted                   runs itself once for each operation and place
 *        victim_interrupted OPERATION lock N  ends where the shim takes its Nth lock, lock held
 *        victim_interrupted OPERATION call N  ends at the Nth driver call
 *
 * The places are found without luck: the shim's locks are taken by this program's
 * pthread_mutex_lock, and the driver calls are told by the software device.
 */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/preload/victim_sim.h"

enum { ENDED = 7, NOT_REACHED = 8, N_WAITS_MAX = 5000, N_HELD = 80, N_GIVEN = 20 };

enum place { NO_PLACE, AT_LOCK, AT_CALL };

static atomic_int armed; /* enum place */
static int n_left;       /* until the signal */

static CUdeviceptr held[N_HELD], large, managed;
static CUcontext own;
static CUstream stream;
static CUevent event;
static CUmodule module;
static void *pinned;

static void
reach(enum place place)
{
	if (armed != (int)place || --n_left > 0)
		return;
	armed = NO_PLACE;
	raise(SIGTERM);
}

static bool
is_shim(const void *address)
{
	Dl_info info;

	return dladdr(address, &info) && strstr(info.dli_fname, "libpoolshim");
}

int
pthread_mutex_lock(pthread_mutex_t *lock)
{
	static int (*next)(pthread_mutex_t *);
	int r;

	if (!next)
		next = (int (*)(pthread_mutex_t *))dlsym(RTLD_NEXT, "pthread_mutex_lock");
	r = next(lock);
	if (armed == AT_LOCK && is_shim(__builtin_return_address(0)))
		reach(AT_LOCK);
	return r;
}

static void
at_call(void *arg, const char *symbol)
{
	(void)arg;
	(void)symbol;
	reach(AT_CALL);
}

static void
on_signal(int number)
{
	(void)number;
	exit(ENDED);
}

/* What runtimes and libraries do when their program ends. What is answered is not looked at:
 * the interrupted call may have ended what is asked for here. */
static void
tear_down(void)
{
	unsigned char bytes[64];
	size_t free_bytes, total_bytes;
	CUmemorytype type;
	CUdeviceptr late;
	CUgraph graph;

	cuMemAlloc_v2(&late, 5000);
	cuMemFree_v2(late);
	cuMemGetInfo_v2(&free_bytes, &total_bytes);
	cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, held[0]);
	cuMemcpyDtoHAsync_v2(bytes, held[0], sizeof(bytes), stream);
	cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED);
	cuStreamEndCapture(stream, &graph);
	for (int i = 0; i < N_HELD; i++)
		cuMemFree_v2(held[i]);
	cuMemFree_v2(managed);
	cuMemFreeHost(pinned);
	cuMemHostAlloc(&pinned, 5000, 0);
	cuEventDestroy_v2(event);
	cuStreamDestroy_v2(stream);
	cuModuleUnload(module);
	cuCtxDestroy_v2(own);
	cuDevicePrimaryCtxReset_v2(0);
	cuDevicePrimaryCtxRelease_v2(0);
}

static void
start(void)
{
	CUcontext primary;

	MUST(cuInit(0));
	MUST(cuDevicePrimaryCtxRetain(&primary, 0));
	MUST(cuCtxSetCurrent(primary));
}

static void
set_up(void)
{
	CUcontext primary;

	start();
	MUST(cuCtxGetCurrent(&primary));
	MUST(cuCtxCreate_v2(&own, 0, 0));
	MUST(cuCtxSetCurrent(primary));
	MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	MUST(cuEventCreate(&event, 0));
	MUST(cuModuleLoadData(&module, "any image"));
	for (int i = 0; i < N_HELD; i++)
		MUST(cuMemAlloc_v2(&held[i], 3000));
	MUST(cuMemAllocManaged(&managed, 3000, CU_MEM_ATTACH_GLOBAL));
	MUST(cuMemHostAlloc(&pinned, 3000, 0));
}

static void
take(void)
{
	CUdeviceptr block;

	MUST(cuMemAlloc_v2(&block, 3000));
	MUST(cuMemAlloc_v2(&large, 64 << 20));
}

static void
set_up_to_give(void)
{
	set_up();
	MUST(cuMemFree_v2(managed)); /* while it is there each free waits */
	for (int i = N_GIVEN; i < N_HELD; i++)
		MUST(cuMemFree_v2(held[i]));
}

/* With those before so many that the pool records a fence, of work in two streams. */
static void
give(void)
{
	MUST(cuMemsetD8Async(held[0], 1, 1, NULL));
	MUST(cuMemsetD8Async(held[0], 1, 1, CU_STREAM_PER_THREAD));
	for (int i = 1; i < N_GIVEN; i++)
		MUST(cuMemFree_v2(held[i]));
}

static void
take_and_give_pinned(void)
{
	void *block;

	MUST(cuMemHostAlloc(&block, 3000000, 0));
	MUST(cuMemFreeHost(block));
}

static void
go_past_the_pool(void)
{
	const CUDA_ARRAY_DESCRIPTOR how = {64, 64, CU_AD_FORMAT_UNSIGNED_INT8, 1};
	CUdeviceptr block;
	CUarray array;

	MUST(cuMemAllocManaged(&block, 3000, CU_MEM_ATTACH_GLOBAL));
	MUST(cuMemFree_v2(block));
	MUST(cuArrayCreate_v2(&array, &how));
	MUST(cuArrayDestroy(array));
}

static void
copy(void)
{
	static unsigned char bytes[64];

	MUST(cuMemcpyDtoHAsync_v2(bytes, held[1], sizeof(bytes), stream));
	MUST(cuMemFree_v2(held[1]));
}

static void
capture(void)
{
	CUgraph graph;

	MUST(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
	MUST(cuStreamEndCapture(stream, &graph));
}

static void
make_and_end_a_context(void)
{
	CUdeviceptr block;
	CUcontext made;

	MUST(cuCtxCreate_v2(&made, 0, 0));
	MUST(cuMemAlloc_v2(&block, 3000));
	MUST(cuCtxDestroy_v2(made));
}

static void
reset(void)
{
	MUST(cuDevicePrimaryCtxReset_v2(0));
}

static const struct operation {
	const char *name;
	void (*set_up)(void); /* NULL: none */
	void (*run)(void);
} operations[] = {
	{"start", NULL, set_up},
	{"take", set_up, take},
	{"give", set_up_to_give, give},
	{"pinned", set_up, take_and_give_pinned},
	{"past-the-pool", set_up, go_past_the_pool},
	{"copy", set_up, copy},
	{"capture", set_up, capture},
	{"context", set_up, make_and_end_a_context},
	{"reset", set_up, reset},
};

enum { N_OPERATIONS = sizeof(operations) / sizeof(operations[0]) };

static int
run_to(const char *name, enum place place, int n)
{
	for (int i = 0; i < N_OPERATIONS; i++) {
		if (strcmp(operations[i].name, name) != 0)
			continue;
		if (operations[i].set_up)
			operations[i].set_up();
		signal(SIGTERM, on_signal);
		atexit(tear_down);
		cusim_subscribe(at_call, NULL);
		n_left = n;
		armed = place;
		operations[i].run();
		armed = NO_PLACE;
		_exit(NOT_REACHED);
	}
	return 2;
}

/* How it ended: an exit code, or -1 if it had to be killed or died. */
static int
wait_with_limit(pid_t pid)
{
	const struct timespec pause = {.tv_nsec = 1000000};
	int status;

	for (int i = 0; i < N_WAITS_MAX; i++) {
		if (waitpid(pid, &status, WNOHANG) == pid)
			return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
		nanosleep(&pause, NULL);
	}
	kill(pid, SIGKILL);
	waitpid(pid, &status, 0);
	return -1;
}

static int
run_child(const char *operation, const char *place, int n)
{
	char number[16];
	pid_t pid;

	snprintf(number, sizeof(number), "%d", n);
	pid = fork();
	if (pid == 0) {
		execl("/proc/self/exe", "victim_interrupted", operation, place, number,
		      (char *)NULL);
		_exit(127);
	}
	return wait_with_limit(pid);
}

/* At each place of the operation, one after the other. */
static void
check_places(const char *operation, const char *place, int n_least)
{
	int code = ENDED, n;

	for (n = 0; code == ENDED; n++)
		code = run_child(operation, place, n + 1);
	EXPECT(code == NOT_REACHED, "%s, %s %d: the program hung or died (%d)", operation, place, n,
	       code);
	EXPECT(code != NOT_REACHED || n > n_least, "%s, %s: only %d places were found", operation,
	       place, n - 1);
}

int
main(int argc, char **argv)
{
	const bool is_shimmed = dlsym(RTLD_DEFAULT, "poolshim_used_bytes") != NULL;

	if (argc == 4)
		return run_to(argv[1], strcmp(argv[2], "lock") == 0 ? AT_LOCK : AT_CALL,
			      atoi(argv[3]));
	for (int i = 0; i < N_OPERATIONS; i++) {
		check_places(operations[i].name, "lock", is_shimmed);
		check_places(operations[i].name, "call", 1);
	}
	return victim_end("victim_interrupted");
}
