/* SPDX-License-Identifier: MIT */
#include "shim/signal.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/prctl.h>

#include "pool/thread.h"
#include "shim/dump.h"
#include "shim/init.h"
#include "shim/log.h"
#include "shim/moved.h"
#include "shim/wake.h"

static struct wake requests;
static atomic_int installed;         /* the signal's number; 0: none */
static struct sigaction before_ours; /* the default, or ignore */

static pthread_mutex_t serve_lock = PTHREAD_MUTEX_INITIALIZER;
static unsigned n_served; /* under serve_lock: of init_page.process.n_signals */

/*
 * In a child that has memory of its own the handler is inherited, and what it served is not: the
 * signal does what it would have done natively. It is blocked until the handler returns.
 */
static void
act_natively(int number)
{
	if (before_ours.sa_handler == SIG_IGN)
		return;
	sigaction(number, &before_ours, NULL);
	raise(number);
}

static void
on_signal(int number)
{
	const int saved_errno = errno;

	if (atomic_load(&init_page.process.has_handler)) {
		atomic_fetch_add(&init_page.process.n_signals, 1);
		wake_post(&requests);
	} else {
		act_natively(number);
	}
	errno = saved_errno;
}

static bool
is_free(const struct sigaction *action)
{
	return !(action->sa_flags & SA_SIGINFO) &&
	       (action->sa_handler == SIG_DFL || action->sa_handler == SIG_IGN);
}

static bool
is_ours(const struct sigaction *action)
{
	return !(action->sa_flags & SA_SIGINFO) && action->sa_handler == on_signal;
}

void
signal_install(int number)
{
	struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART | SA_ONSTACK};
	struct sigaction before;

	if (sigaction(number, NULL, &before) != 0 || (!is_free(&before) && !is_ours(&before)))
		return;
	if (is_free(&before)) /* else inherited from the process that this is a child of */
		before_ours = before;
	atomic_store(&requests.n_posts, 0);
	n_served = 0;
	sigemptyset(&action.sa_mask);
	atomic_store(&init_page.process.has_handler, true);
	if (sigaction(number, &action, NULL) == 0)
		atomic_store(&installed, number);
}

void
signal_serve(const struct timespec *deadline)
{
	unsigned n_signals;

	if (!thread_lock_until(&serve_lock, deadline))
		return;
	n_signals = atomic_load(&init_page.process.n_signals);
	if (n_signals != n_served) {
		n_served = n_signals;
		dump_write(REPORT_SIGNAL, deadline);
	}
	thread_unlock(&serve_lock);
}

static void *
help(void *arg)
{
	(void)arg;
	prctl(PR_SET_NAME, "poolshim");
	for (;;) {
		wake_wait(&requests); /* signals that came together ask for one dump */
		if (init_is_own_process())
			signal_serve(NULL);
	}
	return NULL;
}

void
signal_start_helper(void)
{
	pthread_attr_t attr;
	pthread_t thread;
	sigset_t all, before;
	int r;

	if (!atomic_load(&installed))
		return;
	pthread_attr_init(&attr);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	sigfillset(&all);
	/* The new thread inherits the mask; on Linux sigprocmask() is the calling thread's. */
	sigprocmask(SIG_SETMASK, &all, &before);
	r = moved()->pthread_create(&thread, &attr, help, NULL);
	sigprocmask(SIG_SETMASK, &before, NULL);
	pthread_attr_destroy(&attr);
	if (r)
		log_line(OPTION_LOG_WARN, "no thread for dumps on a signal: %s", strerror(r));
}
