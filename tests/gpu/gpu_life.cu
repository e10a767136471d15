/* SPDX-License-Identifier: MIT */
/*
 * What happens to a process that uses CUDA: forks, resets, contexts that come and go, threads that
 * end. Each scenario prints what it saw; the lines are the native ones.
 *
 * usage: gpu_life SCENARIO [PLUGIN]
 */
#include <cstring>
#include <cuda.h>
#include <dlfcn.h>
#include <spawn.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "gpu_common.cuh"

extern char **environ;

enum { N_BYTES = 1 << 20 };

static const char *plugin_path;

/* Take, write, read back, give back. Returns how many bytes were wrong. */
static size_t
use(size_t n_bytes, int value)
{
	std::vector<unsigned char> seen(n_bytes);
	unsigned char *block;
	size_t n_wrong = 0;

	MUST(cudaMalloc(&block, n_bytes));
	MUST(cudaMemset(block, value, n_bytes));
	MUST(cudaMemcpy(seen.data(), block, n_bytes, cudaMemcpyDeviceToHost));
	MUST(cudaFree(block));
	for (unsigned char byte : seen)
		n_wrong += byte != value;
	return n_wrong;
}

/* Wait for a child; how it ended, in words. */
static void
print_end(const char *who, pid_t pid)
{
	int status;

	if (waitpid(pid, &status, 0) != pid)
		printf("%s: lost\n", who);
	else if (WIFEXITED(status))
		printf("%s: exit %d\n", who, WEXITSTATUS(status));
	else
		printf("%s: signal %d\n", who, WTERMSIG(status));
}

static pid_t
fork_flushed()
{
	fflush(stdout);
	return fork();
}

static void
fork_before()
{
	const pid_t pid = fork_flushed();

	if (!pid)
		exit(use(N_BYTES, 3) ? 1 : 40);
	printf("parent: %zu wrong\n", use(N_BYTES, 4));
	print_end("child", pid);
	printf("parent again: %zu wrong\n", use(N_BYTES, 5));
}

/* In a child of a process that has started CUDA every call fails; the parent must not notice. */
static void
fork_after()
{
	void *held, *inherited;

	MUST(cudaMalloc(&held, 5000));
	MUST(cudaMalloc(&inherited, 6000));
	for (int leave = 0; leave < 2; leave++) {
		const pid_t pid = fork_flushed();

		if (!pid) {
			void *block;
			const int taken = cudaMalloc(&block, 1000), given = cudaFree(inherited);

			printf("child: malloc %d free %d\n", taken, given);
			fflush(stdout);
			if (leave)
				_exit(41);
			exit(42);
		}
		print_end("child", pid);
		printf("parent: %zu wrong\n", use(N_BYTES, 6));
	}
	const int first = cudaFree(inherited), second = cudaFree(held);
	printf("parent: free %d %d\n", first, second);
}

static void
new_programs()
{
	char name[] = "true", *argv[] = {name, NULL};
	pid_t pid;

	printf("before: %zu wrong\n", use(N_BYTES, 7));
	fflush(stdout);
	pid = vfork();
	if (!pid) {
		execve("/bin/true", argv, environ);
		_exit(127);
	}
	print_end("vfork and exec", pid);
	if (posix_spawn(&pid, "/bin/true", NULL, NULL, argv, environ))
		printf("no spawn\n");
	else
		print_end("posix_spawn", pid);
	printf("system: %d\n", system("true"));
	printf("after: %zu wrong\n", use(N_BYTES, 8));
}

static void
reset()
{
	for (int round = 0; round < 6; round++) {
		void *lost, *pinned;

		MUST(cudaMalloc(&lost, 3000 + round));
		MUST(cudaMalloc(&lost, 9 << 20));
		MUST(cudaMallocHost(&pinned, 5000));
		const size_t n_wrong = use(N_BYTES, round + 1);
		const int status = cudaDeviceReset();
		printf("round %d: %zu wrong, reset %d\n", round, n_wrong, status);
		if (round % 2)
			printf("free of what is gone: %d\n", cudaFree(lost));
		cudaGetLastError();
	}
	printf("after: %zu wrong\n", use(N_BYTES, 9));
}

static void
release_to_zero()
{
	CUdevice device;

	cuInit(0);
	cuDeviceGet(&device, 0);
	for (int round = 0; round < 4; round++) {
		CUcontext context;
		CUdeviceptr block = 0;
		unsigned seen = 0;
		int r[8];

		r[0] = cuDevicePrimaryCtxRetain(&context, device);
		r[1] = cuCtxSetCurrent(context);
		r[2] = cuMemAlloc(&block, 4000);
		r[3] = cuMemsetD32(block, 77u + round, 1000);
		r[4] = cuMemcpyDtoH(&seen, block + 3996, 4);
		if (round % 2)
			r[5] = cuMemFree(block); /* else the release takes it along */
		else
			r[5] = 0;
		r[6] = cuCtxSetCurrent(NULL);
		r[7] = cuDevicePrimaryCtxRelease(device);
		printf("round %d: %d %d %d %d %d %d %d %d, read %u\n", round, r[0], r[1], r[2],
		       r[3], r[4], r[5], r[6], r[7], seen);
	}
	printf("runtime: %zu wrong\n", use(N_BYTES, 10));
}

static CUresult
create_context(CUcontext *context, CUdevice device)
{
#if CUDA_VERSION >= 13000
	return cuCtxCreate(context, NULL, 0, device);
#else
	return cuCtxCreate(context, 0, device);
#endif
}

/* A context made here, filled there, pushed and popped elsewhere, destroyed by a fourth thread. */
static void
contexts()
{
	CUdevice device;

	cuInit(0);
	cuDeviceGet(&device, 0);
	for (int round = 0; round < 4; round++) {
		CUcontext context = NULL, popped = NULL;
		CUdeviceptr block = 0;
		unsigned seen = 0;
		int r[7];

		std::thread([&] {
			r[0] = create_context(&context, device);
			cuCtxPopCurrent(&popped);
		}).join();
		std::thread([&] {
			cuCtxSetCurrent(context);
			r[1] = cuMemAlloc(&block, 3 << 20);
			r[2] = cuMemsetD32(block, 88u + round, 1000);
		}).join();
		std::thread([&] {
			cuCtxPushCurrent(context);
			r[3] = cuMemcpyDtoH(&seen, block + 3996, 4);
			if (round % 2)
				cuMemFree(block);
			r[4] = cuCtxPopCurrent(&popped);
		}).join();
		std::thread([&] { r[5] = cuCtxDestroy(context); }).join();
		r[6] = cuMemAlloc(&block, 1000);
		printf("round %d: %d %d %d %d %d %d, read %u, without a context %d\n", round, r[0],
		       r[1], r[2], r[3], r[4], r[5], seen, r[6]);
	}
	printf("runtime: %zu wrong\n", use(N_BYTES, 11));
}

static void
green()
{
#if CUDA_VERSION >= 12040
	CUdevResource all, parts[1], left;
	CUdevResourceDesc description;
	CUcontext primary, context;
	CUdeviceptr block = 0;
	unsigned n_parts = 1, seen = 0;
	CUdevice device;
	CUgreenCtx made;
	CUstream stream;
	void *primary_block;
	int r[10];

	MUST(cudaMalloc(&primary_block, 5000));
	cuDeviceGet(&device, 0);
	cuCtxGetCurrent(&primary);
	r[0] = cuDeviceGetDevResource(device, &all, CU_DEV_RESOURCE_TYPE_SM);
	r[1] = cuDevSmResourceSplitByCount(parts, &n_parts, &all, &left, 0, 8);
	r[2] = cuDevResourceGenerateDesc(&description, parts, 1);
	r[3] = cuGreenCtxCreate(&made, description, device, CU_GREEN_CTX_DEFAULT_STREAM);
	r[4] = cuCtxFromGreenCtx(&context, made);
	r[5] = cuGreenCtxStreamCreate(&stream, made, CU_STREAM_NON_BLOCKING, 0);
	r[6] = cuCtxSetCurrent(context);
	r[7] = cuMemAlloc(&block, 4000);
	cuMemsetD32Async(block, 99, 1000, stream);
	cuMemcpyDtoHAsync(&seen, block + 3996, 4, stream);
	r[8] = cuStreamSynchronize(stream);
	r[9] = cuMemFree(block);
	printf("green: %d %d %d %d %d %d %d %d %d %d, read %u\n", r[0], r[1], r[2], r[3], r[4],
	       r[5], r[6], r[7], r[8], r[9], seen);
	cuMemAlloc(&block, 2 << 20); /* freed from the primary, once the green one is gone */
	r[0] = cuStreamDestroy(stream);
	r[1] = cuGreenCtxDestroy(made);
	r[2] = cuCtxSetCurrent(primary);
	r[3] = cuMemFree(block);
	r[4] = cudaFree(primary_block);
	printf("destroy: %d %d, current again %d, free %d %d\n", r[0], r[1], r[2], r[3], r[4]);
	printf("runtime: %zu wrong\n", use(N_BYTES, 12));
#else
	printf("no green contexts in these headers\n");
#endif
}

static void
threads_end()
{
	size_t n_wrong = 0;
	void *left[40];

	for (int round = 0; round < 40; round++) {
		size_t wrong[4] = {};
		std::vector<std::thread> threads;

		for (int i = 0; i < 4; i++)
			threads.emplace_back(
				[&wrong, i] { wrong[i] = use(50000 + 1000 * i, i + 1); });
		std::thread([&left, round] { MUST(cudaMalloc(&left[round], 7000)); }).join();
		for (int i = 0; i < 4; i++) {
			threads[i].join();
			n_wrong += wrong[i];
		}
	}
	for (void *block : left)
		MUST(cudaFree(block)); /* by another thread than took it, which is gone */
	printf("threads: %zu wrong\n", n_wrong);
}

/* A library with a runtime of its own, loaded, used and unloaded. */
static void
plugin()
{
	for (int round = 0; round < 3; round++) {
		void *handle = dlopen(plugin_path, RTLD_NOW | RTLD_LOCAL);
		int (*run)(int);

		if (!handle) {
			printf("no plug-in\n");
			return;
		}
		run = (int (*)(int))dlsym(handle, "plugin_run");
		const int n_wrong = run ? run(round) : -1;
		const int closed = dlclose(handle);
		printf("round %d: %d wrong, dlclose %d\n", round, n_wrong, closed);
	}
	printf("host: %zu wrong\n", use(N_BYTES, 13));
}

static const struct row {
	const char *name;
	void (*run)();
} rows[] = {
	{"fork_before", fork_before},
	{"fork_after", fork_after},
	{"new_programs", new_programs},
	{"reset", reset},
	{"release_to_zero", release_to_zero},
	{"contexts", contexts},
	{"green", green},
	{"threads_end", threads_end},
	{"plugin", plugin},
};

int
main(int argc, char **argv)
{
	plugin_path = argc > 2 ? argv[2] : "";
	for (const struct row &row : rows) {
		if (argc > 1 && !strcmp(argv[1], row.name)) {
			row.run();
			return 0;
		}
	}
	fprintf(stderr, "usage: gpu_life SCENARIO [PLUGIN]\n");
	return 2;
}
