/* SPDX-License-Identifier: MIT */
#include "shim/signal.h"

#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>

#include "shim/dump.h"
#include "shim/init.h"
#include "shim/log.h"

static sem_t n_requests;
static atomic_int installed; /* the signal's number; 0: none */

static void
on_signal(int number)
{
	const int saved_errno = errno;

	(void)number;
	sem_post(&n_requests); /* async-signal-safe; harmless in a forked child, where nobody waits
				*/
	errno = saved_errno;
}

void
signal_install(int number)
{
	struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART | SA_ONSTACK};
	struct sigaction before;

	if (sigaction(number, NULL, &before) != 0 || (before.sa_flags & SA_SIGINFO) ||
	    (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN))
		return;
	sem_init(&n_requests, 0, 0);
	sigemptyset(&action.sa_mask);
	if (sigaction(number, &action, NULL) == 0)
		atomic_store(&installed, number);
}

static void *
help(void *arg)
{
	(void)arg;
	for (;;) {
		if (sem_wait(&n_requests) != 0)
			continue;
		/* Signals that came together ask for one dump. */
		while (sem_trywait(&n_requests) == 0)
			;
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
	/* The new thread inherits the mask. */
	pthread_sigmask(SIG_SETMASK, &all, &before);
	r = pthread_create(&thread, &attr, help, NULL);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	pthread_attr_destroy(&attr);
	if (r)
		log_line(OPTION_LOG_WARN, "no thread for dumps on a signal: %s", strerror(r));
	else
		pthread_setname_np(thread, "poolshim");
}
