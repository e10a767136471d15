/* SPDX-License-Identifier: MIT */
/*
 * While the process has a device file open through which others reach the GPU's memory, nothing is
 * handed out before its old work has ended, and the dump says why.
 *
 * usage: victim_agents DUMP
 *
 * The file is a plain one, in a /dev of this process's own.
 */
#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/preload/victim_scene.h"

static struct poolshim_api api;
static struct scene scene;
static struct victim_hold hold;

static bool
write_file(const char *path, const char *text)
{
	const int fd = open(path, O_WRONLY);
	const bool is_written = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);

	if (fd >= 0)
		close(fd);
	return is_written;
}

/* A user of its own may mount where root alone may, otherwise. */
static bool
enter_own_mounts(void)
{
	char map[32];

	snprintf(map, sizeof(map), "0 %u 1", (unsigned)getuid());
	if (unshare(CLONE_NEWNS) == 0)
		return true;
	return unshare(CLONE_NEWUSER | CLONE_NEWNS) == 0 && write_file("/proc/self/uid_map", map);
}

static bool
make_own_dev(void)
{
	return enter_own_mounts() && mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
	       mount("none", "/dev", "tmpfs", 0, NULL) == 0 && mkdir("/dev/shm", 0777) == 0;
}

static bool
becomes_early(bool is_wanted)
{
	return scene_becomes_early(&scene, &hold, &api, is_wanted);
}

static bool
dump_says(const char *path, const char *text)
{
	static char content[1 << 16];
	FILE *file;
	size_t n;

	MUST(api.dump(path));
	file = fopen(path, "r");
	if (!file)
		exit(2);
	n = fread(content, 1, sizeof(content) - 1, file);
	content[n] = '\0';
	fclose(file);
	return strstr(content, text) != NULL;
}

int
main(int argc, char **argv)
{
	int fd;

	if (argc != 2)
		return 2;
	if (!poolshim_find(&api) || !make_own_dev())
		return 77;
	victim_start();
	victim_hold_init(&hold);
	scene_init(&scene, 0);
	EXPECT(becomes_early(true), "nothing is early at all: this tests nothing");
	EXPECT(!dump_says(argv[1], "GDRCopy"), "the dump names a file that is not open");
	fd = open("/dev/gdrdrv", O_CREAT | O_RDWR | O_CLOEXEC, 0600);
	if (fd < 0)
		exit(2);
	EXPECT(becomes_early(false), "handed out while a network card may touch it");
	EXPECT(!scene_is_early(&scene, &hold, &api),
	       "handed out while a network card may touch it");
	EXPECT(dump_says(argv[1], "GDRCopy"), "the dump does not say why");
	close(fd);
	EXPECT(becomes_early(true), "nothing is early any more when the file is closed");
	return victim_end("victim_agents");
}
