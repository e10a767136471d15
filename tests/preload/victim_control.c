/* SPDX-License-Identifier: MIT */
/*
 * A program with a known amount of memory, for control.py, which looks at its control block.
 *
 * usage: victim_control WAY...
 *
 * Says "ready PID" on stdout when the memory is there, and once more after each way but those that
 * end it; waits for a line on stdin before each.
 */
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/preload/victim.h"

enum { EXIT_CODE = 7 };

/*
 * In libc's place: the shim calls it between the program's cuInit and the room for its block. With
 * VICTIM_FILE_BYTES files may grow no further than that from here on.
 */
int
fchmod(int fd, mode_t mode)
{
	const char *bytes = getenv("VICTIM_FILE_BYTES");
	const struct rlimit limit = {bytes ? strtoul(bytes, NULL, 10) : 0, RLIM_INFINITY};

	if (bytes)
		MUST(setrlimit(RLIMIT_FSIZE, &limit));
	return (int)syscall(SYS_fchmod, fd, mode);
}

static void
wait_for_line(void)
{
	char line[16];

	printf("ready %d\n", (int)getpid());
	fflush(stdout);
	if (!fgets(line, sizeof(line), stdin))
		exit(2);
}

static void
allocate(void)
{
	CUdeviceptr small, large, freed, managed;
	void *pinned;

	MUST(cuMemAlloc_v2(&small, 1000));
	MUST(cuMemAlloc_v2(&large, 3000000));
	MUST(cuMemAlloc_v2(&freed, 50000));
	MUST(cuMemFree_v2(freed));
	MUST(cuMemHostAlloc(&pinned, 5000, 0));
	MUST(cuMemAllocManaged(&managed, 70000, CU_MEM_ATTACH_GLOBAL));
}

/* What a child does that inherits all of it: allocates, if anyone lets it, and ends by exit(). */
static void
be_child(void)
{
	CUdeviceptr block;

	for (int i = 0; i < 100; i++)
		(void)cuMemAlloc_v2(&block, 4096);
	exit(0);
}

static void
have_child(bool is_bare)
{
	const pid_t pid = is_bare ? (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0) : fork();
	int status;

	if (pid == 0)
		be_child();
	EXPECT(waitpid(pid, &status, 0) == pid && status == 0, "the child ended with %#x", status);
}

static void
go(const char *way)
{
	if (strcmp(way, "exit") == 0)
		exit(EXIT_CODE);
	if (strcmp(way, "_exit") == 0)
		_exit(EXIT_CODE);
	if (strcmp(way, "quick_exit") == 0)
		quick_exit(EXIT_CODE);
	if (strcmp(way, "abort") == 0)
		abort();
	if (strcmp(way, "kill") == 0)
		kill(getpid(), SIGKILL);
	if (strcmp(way, "exec") == 0)
		execlp("cat", "cat", (char *)NULL);
	if (strcmp(way, "exec-again") == 0)
		execl("/proc/self/exe", "victim_control", "exit", (char *)NULL);
	if (strcmp(way, "fork") == 0)
		have_child(false);
	if (strcmp(way, "clone") == 0)
		have_child(true);
	if (strcmp(way, "allocate") == 0)
		allocate();
}

int
main(int argc, char **argv)
{
	setvbuf(stdin, NULL, _IONBF, 0); /* what follows a line may be another program's */
	victim_start();
	allocate();
	wait_for_line();
	for (int i = 1; i < argc; i++) {
		go(argv[i]);
		wait_for_line();
	}
	return victim_n_failed ? 1 : 0;
}
