/* SPDX-License-Identifier: MIT */
/*
 * fork(): a child made before cuInit is a program of its own; a child made after it gets the
 * driver's errors, leaves no dump and harms nothing in the parent.
 *
 * Prints the child's statuses, to be compared between a native and a shimmed run. With
 * POOLSHIM_DUMP=DIR/PREFIX-%p.json the child's dump must not appear. Runs on the software device.
 */
#include <sys/wait.h>
#include <unistd.h>

#include "tests/preload/victim.h"

enum { N_BLOCKS = 16 };

static struct poolshim_api api;
static bool is_shimmed;

/* Where a process would leave its dump; empty when that cannot be told. */
static void
dump_path(pid_t pid, char *ret_path, size_t n_bytes)
{
	const char *form = getenv("POOLSHIM_DUMP"), *mark = form ? strstr(form, "%p") : NULL;

	ret_path[0] = '\0';
	if (mark && form[0] == '/')
		snprintf(ret_path, n_bytes, "%.*s%d%s", (int)(mark - form), form, (int)pid,
			 mark + 2);
}

static int
wait_for(pid_t pid)
{
	int status = -1;

	EXPECT(pid > 0 && waitpid(pid, &status, 0) == pid, "no child to wait for");
	return status;
}

static void
use_device(const char *who)
{
	CUdeviceptr blocks[N_BLOCKS];

	for (int i = 0; i < N_BLOCKS; i++) {
		MUST(cuMemAlloc_v2(&blocks[i], 1000u << i));
		MUST(cuMemsetD8_v2(blocks[i], 0x31, 1000u << i));
	}
	for (int i = 0; i < N_BLOCKS; i++)
		MUST(cuMemFree_v2(blocks[i]));
	if (!is_shimmed)
		return;
	EXPECT(api.total_bytes(0) > 0, "%s: the pool did not serve", who);
	EXPECT(api.used_bytes(0) == 0, "%s: used %zu after the last free", who, api.used_bytes(0));
	poolshim_check_identity(&api, who);
}

static void
fork_before_init(void)
{
	pid_t pid = fork();

	if (pid == 0) {
		victim_start();
		use_device("child of a parent without CUDA");
		_exit(victim_n_failed ? 1 : 0);
	}
	EXPECT(wait_for(pid) == 0, "a child made before cuInit could not use the device");
}

/* What a child may try; natively each call fails. The lines go out before exit(), which must leave
 * no dump. */
static void
inherit(CUdeviceptr block, void *pinned)
{
	size_t free_bytes, total_bytes;
	CUdeviceptr fresh = 0;
	void *fresh_pinned = NULL;

	printf("child: cuInit = %d\n", cuInit(0));
	printf("child: cuMemAlloc = %d\n", cuMemAlloc_v2(&fresh, 1000));
	printf("child: cuMemHostAlloc = %d\n", cuMemHostAlloc(&fresh_pinned, 1000, 0));
	printf("child: cuMemFree = %d\n", cuMemFree_v2(block));
	printf("child: cuMemFreeHost = %d\n", cuMemFreeHost(pinned));
	printf("child: cuMemGetInfo = %d\n", cuMemGetInfo_v2(&free_bytes, &total_bytes));
	printf("child: cuCtxSynchronize = %d\n", cuCtxSynchronize());
	fflush(stdout);
	exit(fresh || fresh_pinned ? 1 : 0);
}

static void
fork_after_init(void)
{
	CUdeviceptr block;
	char path[4096];
	void *pinned;
	pid_t pid;

	MUST(cuMemAlloc_v2(&block, 5000));
	MUST(cuMemHostAlloc(&pinned, 5000, 0));
	MUST(cuMemsetD8_v2(block, 0x42, 5000));
	memset(pinned, 0x43, 5000);
	fflush(stdout);
	pid = fork();
	if (pid == 0)
		inherit(block, pinned);
	EXPECT(wait_for(pid) == 0, "the child got memory from a driver that it cannot use");
	dump_path(pid, path, sizeof(path));
	EXPECT(!path[0] || access(path, F_OK) != 0, "the child left a dump in %s", path);

	MUST(cuMemcpyDtoH_v2(pinned, block, 5000));
	EXPECT(((unsigned char *)pinned)[4999] == 0x42, "the child changed the parent's memory");
	MUST(cuMemFree_v2(block));
	MUST(cuMemFreeHost(pinned));
	use_device("parent");
}

int
main(void)
{
	is_shimmed = poolshim_find(&api);
	fork_before_init();
	victim_start();
	fork_after_init();
	fork_after_init(); /* now with a pool that is warm */
	return victim_end("victim_fork");
}
