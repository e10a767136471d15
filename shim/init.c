/* SPDX-License-Identifier: MIT */
#include "shim/init.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "policy/signal_name.h"
#include "pool/thread.h"
#include "shim/checker.h"
#include "shim/context.h"
#include "shim/control.h"
#include "shim/coverage.h"
#include "shim/dump.h"
#include "shim/hooks.h"
#include "shim/linked.h"
#include "shim/log.h"
#include "shim/missed.h"
#include "shim/moved.h"
#include "shim/signal.h"
#include "shim/submit.h"

union init_page init_page __attribute__((aligned(INIT_PAGE_BYTES)));

static struct init_process *const process = &init_page.process;
static struct options options;
static const char *why_account; /* not the user's choice */

void
init_on_first_use(void)
{
	const char *name;
	int signal_number = SIGUSR1;

	if (atomic_load_explicit(&process->was_used, memory_order_relaxed) ||
	    atomic_exchange(&process->was_used, true))
		return;
	/* Nothing to do about a failure, see the header. */
	madvise(&init_page, sizeof(init_page), MADV_WIPEONFORK);
	dump_note_stderr();
	/* The other options wait for cuInit; a bad name is told then, and the default holds
	 * meanwhile. */
	name = getenv("POOLSHIM_SIGNAL");
	if (name && signal_name_parse(name, &signal_number) < 0)
		signal_number = SIGUSR1;
	if (signal_number)
		signal_install(signal_number);
}

static const char *
from_environment(void *arg, const char *name)
{
	(void)arg;
	return getenv(name);
}

static void
tell_problems(const struct option_problem *problems, int n_problems)
{
	char line[OPTION_PROBLEM_TEXT_MAX];

	for (int i = 0; i < n_problems; i++) {
		option_problem_print(&problems[i], line, sizeof(line));
		log_line(OPTION_LOG_WARN, "%s", line);
	}
}

/* The forked child: no lock may be touched, no call served, nothing dumped. CUDA does not work
 * there either. */
static void
on_fork_child(void)
{
	memset(process, 0, sizeof(*process));
	submit_on_fork_child();
	control_leave();
}

/* Whoever asks for the pool by name gets it. */
static void
step_down_for_checker(void)
{
	const char *checker = options.mode == OPTION_MODE_POOL ? checker_find() : NULL;

	if (!checker)
		return;
	if (options.is_set[OPTION_MODE]) {
		log_line(OPTION_LOG_INFO,
			 "under %s, which does not see what happens inside the pool's segments",
			 checker);
		return;
	}
	options.mode = OPTION_MODE_ACCOUNT;
	why_account = checker;
	log_line(OPTION_LOG_WARN,
		 "under %s: POOLSHIM_MODE is account, so that it sees each block; "
		 "set pool to have the pool",
		 checker);
}

static void
read_options(void)
{
	enum { N_PROBLEMS_MAX = 16 };
	struct option_problem problems[N_PROBLEMS_MAX], unknown[N_PROBLEMS_MAX];
	const int n_problems =
		options_parse(&options, from_environment, NULL, problems, N_PROBLEMS_MAX);
	const int n_unknown = options_find_unknown(environ, unknown, N_PROBLEMS_MAX);

	log_set_level(options.log);
	tell_problems(problems, n_problems);
	tell_problems(unknown, n_unknown);
}

static int
count_devices(void)
{
	int n_devices = 0;

	return real.cuDeviceGetCount(&n_devices) == CUDA_SUCCESS ? n_devices : 0;
}

static void
start(void)
{
	/* Not of this process alone: a child does not start on what its parent has left. */
	static atomic_bool was_started;

	if (atomic_exchange(&was_started, true))
		return;
	read_options();
	if (options.mode == OPTION_MODE_OFF || !hooks_are_complete())
		return;
	step_down_for_checker();
	control_open(&options, count_devices());
	thread_set_timedlock(moved()->pthread_mutex_timedlock);
	context_init();
	pthread_atfork(NULL, NULL, on_fork_child);
	linked_look();
	atomic_store(&process->owner_pid, getpid());
	/* Release: everything above was written before a hook sees that it is active. */
	atomic_store_explicit(&process->is_active, true, memory_order_release);
}

void
init_on_cu_init(void)
{
	init_on_first_use();
	if (thread_holds())
		return;
	thread_hold();
	moved()->pthread_once(&process->once, start);
	thread_release();
}

void
init_on_first_request(void)
{
	static atomic_bool was_served;

	if (atomic_load_explicit(&was_served, memory_order_relaxed) ||
	    atomic_exchange(&was_served, true))
		return;
	signal_start_helper();
}

bool
init_is_own_process(void)
{
	return atomic_load(&process->owner_pid) == getpid();
}

const struct options *
init_options(void)
{
	return &options;
}

const char *
init_why_account(void)
{
	return why_account;
}

/*
 * A process whose CUDA calls all went past this library never started it, and says so in its dump.
 * On stderr it says nothing: that is for processes whose allocations were seen.
 */
static void
dump_if_passed_by(void)
{
	const char *where = getenv("POOLSHIM_DUMP");
	struct missed missed;

	if (!where || coverage_has_route())
		return;
	missed_find(&missed, false);
	if (!missed.n)
		return;
	read_options();
	if (options.mode != OPTION_MODE_OFF && strcmp(options.dump, "stderr") != 0)
		dump_write(REPORT_EXIT, NULL);
}

/*
 * Runs after main has returned or exit() was called, after the program's own destructors. Calls no
 * CUDA. exit() may have been called in a signal handler that interrupted this library with a lock
 * held: no wait here is without a bound.
 */
__attribute__((destructor)) static void
dump_at_exit(void)
{
	enum { PATIENCE_NS = 500000000 };
	struct timespec deadline;

	if (!init_is_own_process()) {
		dump_if_passed_by();
		return;
	}
	clock_gettime(CLOCK_REALTIME, &deadline);
	deadline.tv_nsec += PATIENCE_NS;
	if (deadline.tv_nsec >= 1000000000) {
		deadline.tv_nsec -= 1000000000;
		deadline.tv_sec++;
	}
	signal_serve(&deadline);
	dump_write(REPORT_EXIT, &deadline);
	control_close();
}
