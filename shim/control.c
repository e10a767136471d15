/* SPDX-License-Identifier: MIT */
#include "shim/control.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "shim/log.h"
#include "shim/moved.h"
#include "shim/proc.h"
#include "shim/report.h"

enum {
	N_TRIES = 4, /* the folder may go, or a file of our name come, between two steps */
	PATH_BYTES = 64,
	BOOT_ID_BYTES = 64,
};

static struct control_block private_block;
struct control_block *control = &private_block;
static uint32_t n_mapped_devices; /* of the mapped block */

/* The file of the block that is mapped; written before hooks are active. */
static struct {
	bool is_mapped;
	char folder[PATH_BYTES], name[PATH_BYTES];
	dev_t device;
	ino_t inode;
} file;

static size_t
block_bytes(void)
{
	const size_t page_bytes = (size_t)sysconf(_SC_PAGESIZE);
	const size_t n_bytes = offsetof(struct control_block, devices) +
			       n_mapped_devices * sizeof(struct control_device);

	return (n_bytes + page_bytes - 1) / page_bytes * page_bytes;
}

struct control_device *
control_device(int index)
{
	/* A device that has come since has its figures, but not for others to read. */
	return (uint32_t)index < n_mapped_devices ? &control->devices[index]
						  : &private_block.devices[index];
}

static void
read_boot_id(char *ret_id, size_t n_bytes)
{
	char text[BOOT_ID_BYTES];

	proc_read_text("/proc/sys/kernel/random/boot_id", text, sizeof(text));
	text[strcspn(text, "\n")] = '\0';
	snprintf(ret_id, n_bytes, "%.*s", (int)n_bytes - 1, text);
}

/*
 * The folder, made if it is missing. It must be this user's own and nobody else's to write, or
 * somebody could put another file in our file's place. Returns a descriptor or a negative errno.
 */
static int
open_folder(void)
{
	const bool is_new = mkdir(file.folder, 0700) == 0;
	struct stat status;
	int fd;

	if (!is_new && errno != EEXIST)
		return -errno;
	fd = open(file.folder, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	if (is_new)
		fchmod(fd, 0700); /* whatever the program's umask took away */
	if (moved_fstat(fd, &status) != 0 || status.st_uid != geteuid() || (status.st_mode & 022)) {
		close(fd);
		return -EPERM;
	}
	return fd;
}

/*
 * A file of our name is there: left by this process before it became another program (execve
 * changes neither pid nor start time), or another pid namespace's. Returns 0 when it is out of the
 * way.
 */
static int
remove_predecessor(int folder_fd, uint64_t pid_namespace)
{
	struct stats_abi_header header = {0};
	const int fd = openat(folder_fd, file.name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	const bool is_block = fd >= 0 && pread(fd, &header, sizeof(header), 0) == sizeof(header) &&
			      memcmp(header.magic, STATS_ABI_MAGIC, sizeof(header.magic)) == 0;

	if (fd >= 0)
		close(fd);
	if (is_block && header.pid_namespace != pid_namespace)
		return -EEXIST;
	return unlinkat(folder_fd, file.name, 0) == 0 || errno == ENOENT ? 0 : -errno;
}

/* Where it would be beyond the limit of a file's size the kernel sends SIGXFSZ, which ends the
 * program. */
static bool
may_have_size(size_t n_bytes)
{
	struct rlimit limit;

	return getrlimit(RLIMIT_FSIZE, &limit) == 0 &&
	       (limit.rlim_cur == RLIM_INFINITY || limit.rlim_cur >= n_bytes);
}

/* All of its pages at once: a page that is missing later, on a full file system, is a SIGBUS. */
static int
take_room(int fd, size_t n_bytes)
{
	int r;

	if (!may_have_size(n_bytes))
		return -EFBIG;
	do
		r = posix_fallocate(fd, 0, (off_t)n_bytes);
	while (r == EINTR);
	return -r;
}

/* Maps a new file; 0 or a negative errno. */
static int
map_file(int fd, struct control_block **ret_block)
{
	struct stat status;
	void *at;
	int r;

	if (fchmod(fd, 0600) != 0 || moved_fstat(fd, &status) != 0)
		return -errno;
	r = take_room(fd, block_bytes());
	if (r < 0)
		return r;
	at = mmap(NULL, block_bytes(), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
	if (at == MAP_FAILED)
		return -errno;
	file.device = status.st_dev;
	file.inode = status.st_ino;
	*ret_block = at;
	return 0;
}

static int
make_file(int folder_fd, uint64_t pid_namespace, struct control_block **ret_block)
{
	const int flags = O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
	int fd = openat(folder_fd, file.name, flags, 0600), r;

	if (fd < 0 && errno == EEXIST) {
		r = remove_predecessor(folder_fd, pid_namespace);
		if (r < 0)
			return r;
		fd = openat(folder_fd, file.name, flags, 0600);
	}
	if (fd < 0)
		return -errno;
	r = map_file(fd, ret_block);
	if (r < 0)
		unlinkat(folder_fd, file.name, 0);
	close(fd);
	return r;
}

static uint64_t
own_pid_namespace(void)
{
	struct stat status;

	return moved_stat("/proc/self/ns/pid", &status) == 0 ? status.st_ino : 0;
}

static void
fill_header(struct stats_abi_header *header, uint64_t start_ticks, uint64_t pid_namespace)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	memcpy(header->magic, STATS_ABI_MAGIC, sizeof(header->magic));
	header->version = STATS_ABI_VERSION;
	header->file_bytes = block_bytes();
	header->pid = (uint32_t)getpid();
	header->uid = geteuid();
	header->start_ticks = start_ticks;
	header->pid_namespace = pid_namespace;
	header->created_ns = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
	read_boot_id(header->boot_id, sizeof(header->boot_id));
}

/* 0 or a negative errno, with nothing left behind. */
static int
make_block(struct control_block **ret_block)
{
	const uint64_t pid_namespace = own_pid_namespace();
	struct stats_abi_header header = {0};
	uint64_t start_ticks;
	uint32_t pid;
	int folder_fd, r = proc_read_stat("self", &pid, &start_ticks);

	if (r < 0 || pid != (uint32_t)getpid()) /* a /proc of another pid namespace */
		return r < 0 ? r : -ESRCH;
	r = -ENOENT;
	fill_header(&header, start_ticks, pid_namespace);
	snprintf(file.folder, sizeof(file.folder), STATS_ABI_FOLDER, geteuid());
	snprintf(file.name, sizeof(file.name), STATS_ABI_FILE, (unsigned)getpid(),
		 (unsigned long long)start_ticks);
	/* Whoever leaves the folder last removes it. */
	for (int i = 0; i < N_TRIES && r == -ENOENT; i++) {
		folder_fd = open_folder();
		if (folder_fd < 0) {
			r = folder_fd;
			continue;
		}
		control_clean(folder_fd, pid_namespace, header.boot_id);
		r = make_file(folder_fd, pid_namespace, ret_block);
		close(folder_fd);
	}
	if (r == 0)
		(*ret_block)->header = header;
	return r;
}

static void
fill_config(struct control_process *process, const struct options *options)
{
	size_t n = 0;

	for (size_t id = 0; id < OPTION_N; id++) {
		char value[PATH_MAX];
		int m;

		options_print_value(options, (enum option_id)id, value, sizeof(value));
		m = snprintf(process->config + n, sizeof(process->config) - n, "%s=%s\n",
			     option_info((enum option_id)id)->name, value);
		if (m < 0 || (size_t)m >= sizeof(process->config) - n)
			break;
		n += (size_t)m;
	}
	process->config[n] = '\0'; /* whole lines only */
}

static void
fill_process(struct control_process *process, const struct options *options)
{
	const char *rank = report_rank();
	ssize_t n = readlink("/proc/self/exe", process->exe, sizeof(process->exe) - 1);

	process->exe[n > 0 ? n : 0] = '\0';
	snprintf(process->version, sizeof(process->version), "%s", POOLSHIM_VERSION);
	snprintf(process->mode, sizeof(process->mode), "%s",
		 options->mode == OPTION_MODE_ACCOUNT ? "account" : "pool");
	snprintf(process->rank, sizeof(process->rank), "%s", rank ? rank : "");
	if (gethostname(process->host_name, sizeof(process->host_name) - 1) != 0)
		process->host_name[0] = '\0';
	fill_config(process, options);
}

void
control_open(const struct options *options, int n_devices)
{
	struct control_block *block;
	int r;

	n_mapped_devices = n_devices < 0                   ? 0
			   : n_devices > CONTROL_N_DEVICES ? CONTROL_N_DEVICES
							   : (uint32_t)n_devices;
	r = make_block(&block);
	if (r < 0) {
		n_mapped_devices = 0;
		log_line(OPTION_LOG_INFO, "no control block in %s: %s", file.folder, strerror(-r));
		return;
	}
	control_describe(block, n_mapped_devices);
	fill_process(&block->process, options);
	coverage_publish(block->process.routes);
	/* release: a reader that sees it sees the tables */
	atomic_store_explicit(&block->header.is_ready, 1, memory_order_release);
	control = block;
	file.is_mapped = true;
}

void
control_close(void)
{
	struct stat status;
	int folder_fd;

	if (!file.is_mapped)
		return;
	folder_fd = open(file.folder, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (folder_fd < 0)
		return;
	if (moved_fstatat(folder_fd, file.name, &status, AT_SYMLINK_NOFOLLOW) == 0 &&
	    status.st_dev == file.device && status.st_ino == file.inode)
		unlinkat(folder_fd, file.name, 0);
	close(folder_fd);
	rmdir(file.folder); /* only if nobody else has a block there */
}

void
control_leave(void)
{
	if (!file.is_mapped)
		return;
	file.is_mapped = false;
	/* At the same place, so that every pointer into it stays good. */
	mmap(control, block_bytes(), PROT_READ | PROT_WRITE,
	     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
}
