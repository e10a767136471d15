/* SPDX-License-Identifier: MIT */
/*
 * What the dump says of a driver that is reached past the shim: route_missed SECOND, another
 * libcuda than the one that is found by name.
 */
#include "route.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "shim/elf_walk.h"

typedef int dump_fn(const char *path);

/* The line of the text form that begins with "missed"; "" if there is none. */
static const char *
missed_line(dump_fn *dump)
{
	static char text[1 << 15];
	char path[64], *line;
	int ends[2], r;
	ssize_t n;

	if (pipe(ends))
		return "no pipe";
	snprintf(path, sizeof(path), "/proc/self/fd/%d", ends[1]);
	r = dump(path);
	close(ends[1]);
	n = read(ends[0], text, sizeof(text) - 1);
	close(ends[0]);
	if (r || n <= 0)
		return "no dump";
	text[n] = '\0';
	line = strstr(text, "missed: ");
	if (!line)
		return "";
	*strchrnul(line, '\n') = '\0';
	return line;
}

static void
check_line(dump_fn *dump, const char *want, const char *when)
{
	const char *line;

	if (!dump)
		return;
	line = missed_line(dump);
	route_check(!strcmp(line, want), "%s: '%s'", when, line);
}

/* As a program does that reads the loader's tables itself. */
static int
call_unseen(const struct link_map *libcuda)
{
	struct elf_symbols symbols;
	int (*get_version)(int *) = NULL;
	int version = 0;

	if (elf_symbols_init(&symbols, libcuda->l_addr, libcuda->l_ld))
		get_version = (int (*)(int *))elf_find_function(&symbols, "cuDriverGetVersion");
	return get_version && !get_version(&version) ? version : 0;
}

/* The child's whole life: it reaches the driver in no way that is watched. */
static int
be_unseen(void)
{
	void *libcuda = dlopen("libcuda.so.1", RTLD_NOW);

	return libcuda && call_unseen(libcuda) > 0 ? 0 : 1;
}

/* A child that leaves its dump at exit; is `want` in it? Without the shim or in mode off there is
 * none. */
static void
check_unseen(const char *program, const char *want)
{
	char path[] = "/tmp/route_missed-XXXXXX", text[1 << 15] = "";
	int fd = mkstemp(path), status = -1;
	ssize_t n;
	pid_t pid;

	pid = fork();
	if (pid == 0) {
		setenv("POOLSHIM_DUMP", path, 1);
		setenv("POOLSHIM_FORMAT", "json", 1);
		execl(program, program, "unseen", NULL);
		_exit(127);
	}
	waitpid(pid, &status, 0);
	route_check(status == 0, "libcuda can be called without a look-up");
	close(fd);
	fd = open(path, O_RDONLY); /* the dump replaces the file */
	n = read(fd, text, sizeof(text) - 1);
	close(fd);
	unlink(path);
	text[n > 0 ? n : 0] = '\0';
	route_check(!strstr(text, want) == !route_is_hooking(), "the dump of %zd bytes %s it", n,
		    route_is_hooking() ? "tells" : "cannot tell");
}

int
main(int argc, char **argv)
{
	dump_fn *dump;
	int (*init)(unsigned int) = NULL;
	void *libcuda;

	if (argc != 2)
		return 2;
	if (!strcmp(argv[1], "unseen"))
		return be_unseen();
	check_unseen(argv[0], "libcuda.so.1\", \"how\": \"no look-up\"");

	dump = route_is_hooking() ? (dump_fn *)dlsym(RTLD_DEFAULT, "poolshim_dump") : NULL;
	libcuda = dlopen("libcuda.so.1", RTLD_NOW);
	if (libcuda)
		init = (int (*)(unsigned int))dlsym(libcuda, "cuInit");
	route_check(init && !init(0), "a look-up finds cuInit");
	check_line(dump, "", "after a look-up");
	route_check(dlopen(argv[1], RTLD_NOW), "%s loads too", argv[1]);
	check_line(dump, "missed: libcuda.so.1 (second libcuda)", "with a second libcuda");
	return route_end();
}
