/* SPDX-License-Identifier: MIT */
/*
 * Children, by every call that makes one, before and after CUDA starts, from a process of one
 * thread and of many: their statuses are the native ones, nothing hangs, the parent goes on.
 *
 * Prints what the children see, to be compared between a native and a shimmed run. With
 * POOLSHIM_DUMP=DIR/PREFIX-%p.json it is looked for who left a dump: a child that started CUDA
 * itself and ended in order, and nobody else.
 */
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/preload/victim.h"

enum { N_THREADS = 4, N_CHILDREN = 24, N_WAITS_MAX = 20000, EXIT_CODE = 7 };

extern char **environ;

typedef pid_t make_child_fn(void);

static bool is_shimmed;
static CUcontext context;
static CUdeviceptr held;
static atomic_bool is_over;

static pid_t
by_fork(void)
{
	return fork();
}

/* No fork handlers run. */
static pid_t
by_clone(void)
{
	return (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
}

static const struct maker {
	const char *name;
	make_child_fn *make;
} makers[] = {{"fork", by_fork}, {"clone", by_clone}};

/* The child's status, or -1 when it had to be killed. */
static int
wait_with_limit(pid_t pid)
{
	const struct timespec pause = {.tv_nsec = 1000000};
	int status;

	EXPECT(pid > 0, "no child was made");
	for (int i = 0; i < N_WAITS_MAX && pid > 0; i++) {
		if (waitpid(pid, &status, WNOHANG) == pid)
			return status;
		nanosleep(&pause, NULL);
	}
	if (pid > 0) {
		kill(pid, SIGKILL);
		waitpid(pid, &status, 0);
	}
	return -1;
}

static bool
has_dump(pid_t pid)
{
	const char *form = getenv("POOLSHIM_DUMP"), *mark = form ? strstr(form, "%p") : NULL;
	char path[4096];

	if (!mark || form[0] != '/')
		return false;
	snprintf(path, sizeof(path), "%.*s%d%s", (int)(mark - form), form, (int)pid, mark + 2);
	return access(path, F_OK) == 0;
}

static void
expect_end(pid_t pid, const char *who, bool is_dumped)
{
	const int status = wait_with_limit(pid);

	EXPECT(status != -1, "%s: the child hung", who);
	EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == EXIT_CODE, "%s: ended with %#x", who,
	       status);
	EXPECT(!is_shimmed || has_dump(pid) == is_dumped, "%s: a dump is %s", who,
	       is_dumped ? "missing" : "there");
}

/* A child of a process without CUDA is a program of its own. */
static void
start_in_child(const struct maker *maker)
{
	const pid_t pid = maker->make();
	CUdeviceptr block;

	if (pid == 0) {
		victim_start();
		MUST(cuMemAlloc_v2(&block, 5000));
		MUST(cuMemFree_v2(block));
		exit(victim_n_failed ? 1 : EXIT_CODE);
	}
	expect_end(pid, maker->name, true);
}

/* Written at once: a child made by clone() must not write its parent's buffer too. */
static void __attribute__((format(printf, 2, 3))) say(bool is_told, const char *format, ...)
{
	char line[256];
	va_list args;
	int n;

	va_start(args, format);
	n = vsnprintf(line, sizeof(line), format, args);
	va_end(args);
	if (is_told && write(STDOUT_FILENO, line, (size_t)n) != n)
		_exit(2);
}

/* Everything that a child may try; natively each call fails. */
static void
inherit(const char *who, bool is_told)
{
	size_t free_bytes, total_bytes;
	CUcontext current, made;
	CUdeviceptr block;
	CUstream stream;
	void *pinned;

	say(is_told, "%s: cuInit = %d\n", who, cuInit(0));
	say(is_told, "%s: cuCtxGetCurrent = %d\n", who, cuCtxGetCurrent(&current));
	say(is_told, "%s: cuCtxCreate = %d\n", who, cuCtxCreate_v2(&made, 0, 0));
	say(is_told, "%s: cuMemAlloc = %d\n", who, cuMemAlloc_v2(&block, 1000));
	say(is_told, "%s: cuMemHostAlloc = %d\n", who, cuMemHostAlloc(&pinned, 1000, 0));
	say(is_told, "%s: cuMemAllocManaged = %d\n", who, cuMemAllocManaged(&block, 1000, 1));
	say(is_told, "%s: cuMemFree = %d\n", who, cuMemFree_v2(held));
	say(is_told, "%s: cuMemGetInfo = %d\n", who, cuMemGetInfo_v2(&free_bytes, &total_bytes));
	say(is_told, "%s: cuMemAllocAsync = %d\n", who, cuMemAllocAsync(&block, 1000, NULL));
	say(is_told, "%s: cuMemsetD8Async = %d\n", who, cuMemsetD8Async(held, 1, 1, NULL));
	say(is_told, "%s: cuStreamCreate = %d\n", who, cuStreamCreate(&stream, 0));
	say(is_told, "%s: cuCtxSynchronize = %d\n", who, cuCtxSynchronize());
	say(is_told, "%s: cuCtxDestroy = %d\n", who, cuCtxDestroy_v2(context));
	say(is_told, "%s: cuDevicePrimaryCtxReset = %d\n", who, cuDevicePrimaryCtxReset_v2(0));
}

static void
inherit_in_child(const struct maker *maker)
{
	const pid_t pid = maker->make();

	if (pid == 0) {
		inherit(maker->name, true);
		exit(EXIT_CODE);
	}
	expect_end(pid, maker->name, false);
}

static void *
allocate_until_over(void *arg)
{
	CUdeviceptr blocks[8] = {0};
	void *pinned;

	(void)arg;
	MUST(cuCtxSetCurrent(context));
	for (unsigned i = 0; !atomic_load(&is_over); i++) {
		CUdeviceptr *block = &blocks[i % 8];

		if (*block)
			MUST(cuMemFree_v2(*block));
		MUST(cuMemAlloc_v2(block, 512u << i % 13));
		MUST(cuMemHostAlloc(&pinned, 3000, 0));
		MUST(cuMemFreeHost(pinned));
	}
	for (int i = 0; i < 8; i++)
		if (blocks[i])
			MUST(cuMemFree_v2(blocks[i]));
	return NULL;
}

/* Whatever lock the other threads hold at this moment stays held in the child. */
static void
inherit_beside_threads(void)
{
	pthread_t threads[N_THREADS];

	for (int i = 0; i < N_THREADS; i++)
		pthread_create(&threads[i], NULL, allocate_until_over, NULL);
	for (int i = 0; i < N_CHILDREN; i++) {
		const pid_t pid = makers[i % 2].make();

		if (pid == 0) {
			inherit("beside threads", false);
			_exit(EXIT_CODE);
		}
		expect_end(pid, makers[i % 2].name, false);
	}
	/* exit() runs libc's own handlers too, whose locks only fork() takes care of. */
	for (int i = 0; i < N_CHILDREN / 2; i++) {
		const pid_t pid = fork();

		if (pid == 0)
			exit(EXIT_CODE);
		expect_end(pid, "exit beside threads", false);
	}
	atomic_store(&is_over, true);
	for (int i = 0; i < N_THREADS; i++)
		pthread_join(threads[i], NULL);
}

static void
become_another(const char *self)
{
	char *const argv[] = {(char *)self, (char *)"--child", NULL};
	pid_t pid = vfork();

	if (pid == 0) {
		execv("/proc/self/exe", argv);
		_exit(127);
	}
	expect_end(pid, "vfork and exec", true);
	EXPECT(posix_spawn(&pid, "/proc/self/exe", NULL, NULL, argv, environ) == 0, "no spawn");
	expect_end(pid, "posix_spawn", true);
}

/* A child that does not use CUDA has no handler for the dump's signal: natively it ends by it. */
static void
signal_a_child(const struct maker *maker)
{
	const pid_t pid = maker->make();
	int status;

	if (pid == 0) {
		raise(SIGUSR1);
		_exit(EXIT_CODE);
	}
	status = wait_with_limit(pid);
	say(true, "%s: after SIGUSR1 the child has ended with %#x\n", maker->name, status);
}

static void
check_parent(void)
{
	unsigned char byte = 0;
	struct poolshim_api api;
	CUdeviceptr block;

	MUST(cuMemcpyDtoH_v2(&byte, held + 4999, 1));
	EXPECT(byte == 0x42, "a child changed the parent's memory");
	MUST(cuMemAlloc_v2(&block, 5000));
	MUST(cuMemFree_v2(block));
	if (!poolshim_find(&api))
		return;
	EXPECT(api.used_bytes(0) == 5120, "used %zu, not what is held", api.used_bytes(0));
	poolshim_check_identity(&api, "after the children");
}

int
main(int argc, char **argv)
{
	CUdeviceptr block;

	is_shimmed = dlsym(RTLD_DEFAULT, "poolshim_used_bytes") != NULL;
	if (argc == 2 && strcmp(argv[1], "--child") == 0) {
		victim_start();
		MUST(cuMemAlloc_v2(&block, 5000));
		return EXIT_CODE;
	}
	for (int i = 0; i < 2; i++)
		start_in_child(&makers[i]);
	context = victim_start();
	MUST(cuMemAlloc_v2(&held, 5000));
	MUST(cuMemsetD8_v2(held, 0x42, 5000));
	for (int i = 0; i < 2; i++) {
		inherit_in_child(&makers[i]);
		signal_a_child(&makers[i]);
	}
	inherit_beside_threads();
	become_another(argv[0]);
	check_parent();
	return victim_end("victim_children");
}
