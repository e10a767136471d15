/* SPDX-License-Identifier: MIT */
/* shim/moved.h, and shim/wake.h that stands in for the semaphore. */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>

#include "shim/elf_walk.h"
#include "shim/moved.h"
#include "shim/wake.h"

TestSuite(moved, .timeout = 30);

Test(moved, every_row_is_what_a_reference_by_name_is)
{
#define MOVED(name) \
	cr_expect_eq((void *)moved()->name, (void *)name, "%s is another library's", #name);
#include "shim/moved.def"
#undef MOVED
}

Test(moved, a_name_that_no_object_has_is_not_found)
{
	cr_expect_null(elf_find_first_function("no_such_function_anywhere"), "it was found");
}

static bool
is_same(const struct stat *a, const struct stat *b)
{
	return a->st_dev == b->st_dev && a->st_ino == b->st_ino && a->st_mode == b->st_mode &&
	       a->st_uid == b->st_uid && a->st_size == b->st_size && a->st_nlink == b->st_nlink &&
	       a->st_mtim.tv_sec == b->st_mtim.tv_sec && a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}

Test(moved, the_system_calls_fill_the_struct_of_libc)
{
	const int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
	struct stat want, got;

	cr_assert_eq(fstat(fd, &want), 0, "no file to look at");
	memset(&got, 0xff, sizeof(got));
	cr_expect_eq(moved_fstat(fd, &got), 0, "fstat failed");
	cr_expect(is_same(&got, &want), "fstat tells something else");
	memset(&got, 0xff, sizeof(got));
	cr_expect_eq(moved_stat("/proc/self/exe", &got), 0, "stat failed");
	cr_expect(is_same(&got, &want), "stat tells something else");

	cr_assert_eq(lstat("/proc/self/exe", &want), 0, "no link to look at");
	cr_expect_eq(moved_fstatat(AT_FDCWD, "/proc/self/exe", &got, AT_SYMLINK_NOFOLLOW), 0,
		     "fstatat failed");
	cr_expect(S_ISLNK(got.st_mode) && got.st_ino == want.st_ino, "fstatat followed the link");
	close(fd);
}

Test(moved, a_file_that_is_not_there_leaves_an_error)
{
	struct stat status;

	errno = 0;
	cr_expect_eq(moved_stat("/no/such/file", &status), -1, "there is none");
	cr_expect_eq(errno, ENOENT, "errno is %d", errno);
	cr_expect_eq(moved_fstat(-1, &status), -1, "no file is open there");
	cr_expect_eq(errno, EBADF, "errno is %d", errno);
}

TestSuite(wake, .timeout = 30);

static struct wake requests, answers;

static void *
answer_twice(void *arg)
{
	for (int i = 0; i < 2; i++) {
		wake_wait(&requests);
		wake_post(&answers);
	}
	return arg;
}

Test(wake, a_post_ends_one_wait_and_posts_that_came_together_end_it_once)
{
	pthread_t thread;

	wake_post(&requests); /* before anybody waits: it must not be lost */
	wake_post(&requests);
	cr_assert_eq(pthread_create(&thread, NULL, answer_twice, NULL), 0, "no thread");
	wake_wait(&answers);
	cr_expect_eq(atomic_load(&answers.n_posts), 0, "two posts ended two waits");
	wake_post(&requests); /* to a thread that waits, or is about to */
	wake_wait(&answers);
	pthread_join(thread, NULL);
}

static void
post_on_signal(int number)
{
	(void)number;
	wake_post(&requests);
}

Test(wake, a_signal_handler_may_post_and_errno_stays)
{
	struct sigaction action = {.sa_handler = post_on_signal};

	sigaction(SIGUSR2, &action, NULL);
	errno = EDOM;
	raise(SIGUSR2);
	cr_expect_eq(errno, EDOM, "errno is %d now", errno);
	wake_wait(&requests); /* returns, or the time-out fails the test */
}
