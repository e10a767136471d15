/* SPDX-License-Identifier: MIT */
/*
 * The form of the dump for a person, with all that it may say of two devices: victim_text FOLDER.
 * It is taken by a thread that has outlived the main one, as an exit there would do.
 */
#include <pthread.h>
#include <sched.h>
#include <unistd.h>

#include "tests/preload/victim.h"

static struct poolshim_api api;
static const char *folder;
static char text[1 << 16];

static void
use_device(int device)
{
	CUdeviceptr block, managed;
	CUcontext context;

	MUST(cuDevicePrimaryCtxRetain(&context, device));
	MUST(cuCtxSetCurrent(context));
	MUST(cuMemAlloc_v2(&block, 4096));
	MUST(cuMemAllocManaged(&managed, 4096, CU_MEM_ATTACH_GLOBAL));
}

static void *
check_text(void *arg)
{
	unsigned n_lines = 0;
	char path[4096];
	FILE *file;

	(void)arg;
	while (readlink("/proc/self/exe", path, sizeof(path)) >= 0)
		sched_yield(); /* the main thread is still there */
	snprintf(path, sizeof(path), "%s/dump.txt", folder);
	MUST(api.dump(path));
	file = fopen(path, "r");
	MUST(!file);
	while (fgets(text, sizeof(text), file)) {
		if (n_lines++ == 0)
			EXPECT(strstr(text, " victim_text, "), "the program has no name: %s", text);
		EXPECT(strlen(text) <= 101, "a line is too wide: %s", text);
		fputs(text, stdout);
	}
	fclose(file);
	/* One line more says that coverage is in doubt. */
	EXPECT(n_lines <= 24, "the dump has %u lines", n_lines);
	EXPECT(n_lines >= 20, "the dump has %u lines only: this tests nothing", n_lines);
	exit(victim_end("victim_text"));
}

int
main(int argc, char **argv)
{
	static char host_bytes[1 << 16] __attribute__((aligned(4096)));
	pthread_t thread;
	void *pinned;

	if (argc != 2 || !poolshim_find(&api))
		return 2;
	folder = argv[1];
	MUST(cuInit(0));
	use_device(0);
	use_device(1);
	MUST(cuMemHostAlloc(&pinned, 4096, 0));
	MUST(cuMemHostRegister_v2(host_bytes, sizeof(host_bytes), 0));
	MUST(pthread_create(&thread, NULL, check_text, NULL));
	pthread_exit(NULL);
}
