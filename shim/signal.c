/* SPDX-License-Identifier: MIT */
#include "shim/signal.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/prctl.h>

#include "shim/dump.h"
#include "shim/init.h"
#include "shim/log.h"
#include "shim/moved.h"
#include "shim/wake.h"

static struct wake requests;
static atomic_int installed; /* the signal's number; 0: none */

static void
on_signal(int number)
{
	(void)number;
	wake_post(&requests); /* harmless in a forked child, where nobody waits */
}

void
signal_install(int number)
{
	struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART | SA_ONSTACK};
	struct sigaction before;

	if (sigaction(number, NULL, &before) != 0 || (before.sa_flags & SA_SIGINFO) ||
	    (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN))
		return;
	sigemptyset(&action.sa_mask);
	if (sigaction(number, &action, NULL) == 0)
		atomic_store(&installed, number);
}

static void *
help(void *arg)
{
	(void)arg;
	prctl(PR_SET_NAME, "poolshim");
	for (;;) {
		wake_wait(&requests); /* signals that came together ask for one dump */
		if (init_is_own_process())
			dump_write(REPORT_SIGNAL);
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
