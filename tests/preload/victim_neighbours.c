/* SPDX-License-Identifier: MIT */
/*
 * A program that allocates host and device memory from several threads, and then tells where malloc
 * comes from, what is loaded, and whether the shim served it: for preloads beside the shim, and
 * wrappers around the program. With arguments it starts that program in the middle of its work and
 * tells how it ended.
 */
#include "tests/preload/victim.h"

#include <link.h>
#include <pthread.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
	N_THREADS = 4,
	N_ROUNDS = 200,
	N_HELD = 8,
};

static CUcontext context;

static bool
is_filled(const unsigned char *bytes, size_t n_bytes, unsigned char value)
{
	for (size_t i = 0; i < n_bytes; i++)
		if (bytes[i] != value)
			return false;
	return true;
}

/* Host memory is freed by another thread's hand now and then, as allocators fear. */
static void *
work(void *arg)
{
	const unsigned char id = (unsigned char)(uintptr_t)arg;
	unsigned char *host[N_HELD] = {NULL}, back[64];
	CUdeviceptr device[N_HELD] = {0};

	MUST(cuCtxSetCurrent(context));
	for (int i = 0; i < N_ROUNDS; i++) {
		const int slot = i % N_HELD;
		const size_t n_bytes = 64 + (size_t)(i * 97 % 5000);

		if (host[slot]) {
			EXPECT(is_filled(host[slot], 64, id), "host memory changed in round %d", i);
			MUST(cuMemcpyDtoH_v2(back, device[slot], sizeof(back)));
			EXPECT(is_filled(back, sizeof(back), id), "device memory changed, %d", i);
			free(host[slot]);
			MUST(cuMemFree_v2(device[slot]));
		}
		host[slot] = malloc(n_bytes);
		memset(host[slot], id, n_bytes);
		MUST(cuMemAlloc_v2(&device[slot], n_bytes));
		MUST(cuMemcpyHtoD_v2(device[slot], host[slot], 64));
	}
	for (int i = 0; i < N_HELD; i++) {
		free(host[i]);
		MUST(cuMemFree_v2(device[i]));
	}
	return malloc(100); /* freed by the main thread */
}

static void
work_in_threads(void)
{
	pthread_t threads[N_THREADS];
	void *left;

	for (uintptr_t i = 0; i < N_THREADS; i++)
		MUST(pthread_create(&threads[i], NULL, work, (void *)(i + 1)));
	for (int i = 0; i < N_THREADS; i++) {
		pthread_join(threads[i], &left);
		free(left);
	}
}

static void
run_child(char **argv)
{
	extern char **environ;
	int status = 0;
	pid_t pid;

	fflush(stdout);
	if (posix_spawn(&pid, argv[0], NULL, NULL, argv, environ) != 0) {
		printf("child: not started\n");
		return;
	}
	waitpid(pid, &status, 0);
	printf("child: %s %d\n", WIFEXITED(status) ? "exit" : "signal",
	       WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status));
}

static int
print_object(struct dl_phdr_info *info, size_t n_bytes, void *data)
{
	const char *slash = strrchr(info->dlpi_name, '/');

	(void)n_bytes, (void)data;
	if (slash)
		printf("loaded: %s\n", slash + 1);
	return 0;
}

int
main(int argc, char **argv)
{
	struct poolshim_api api;
	Dl_info info = {0};
	const char *slash;

	context = victim_start();
	work_in_threads();
	if (argc > 1)
		run_child(argv + 1);
	work_in_threads();

	dladdr(dlsym(RTLD_DEFAULT, "malloc"), &info);
	slash = info.dli_fname ? strrchr(info.dli_fname, '/') : NULL;
	printf("malloc: %s\n", slash ? slash + 1 : "?");
	dl_iterate_phdr(print_object, NULL);
	if (poolshim_find(&api)) {
		poolshim_check_identity(&api, "at the end");
		printf("pool: %s\n", api.total_bytes(0) ? "served" : "idle");
	}
	return victim_end("neighbours");
}
