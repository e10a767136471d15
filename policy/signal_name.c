/* SPDX-License-Identifier: MIT */
#include "policy/signal_name.h"

#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "policy/size.h"

static const struct name {
	const char *name;
	int signal;
} names[] = {
	{"HUP", SIGHUP},       {"INT", SIGINT},       {"QUIT", SIGQUIT}, {"USR1", SIGUSR1},
	{"USR2", SIGUSR2},     {"PIPE", SIGPIPE},     {"ALRM", SIGALRM}, {"TERM", SIGTERM},
	{"CHLD", SIGCHLD},     {"CONT", SIGCONT},     {"TSTP", SIGTSTP}, {"TTIN", SIGTTIN},
	{"TTOU", SIGTTOU},     {"URG", SIGURG},       {"XCPU", SIGXCPU}, {"XFSZ", SIGXFSZ},
	{"PROF", SIGPROF},     {"VTALRM", SIGVTALRM}, {"IO", SIGIO},     {"WINCH", SIGWINCH},
#ifdef SIGPWR
	{"PWR", SIGPWR},
#endif
#ifdef SIGSTKFLT
	{"STKFLT", SIGSTKFLT},
#endif
};

enum { N_NAMES = sizeof(names) / sizeof(names[0]) };

static bool
is_real_time(int signal)
{
	return signal >= SIGRTMIN && signal <= SIGRTMAX;
}

/* Digits only, small enough for any signal's number; -1 otherwise. */
static int
number_parse(const char *text)
{
	int number = 0;

	if (!*text)
		return -1;
	for (; *text; text++) {
		if (*text < '0' || *text > '9' || number > 1000)
			return -1;
		number = number * 10 + (*text - '0');
	}
	return number;
}

/* RTMIN, RTMIN+n, RTMAX, RTMAX-n: the ends are the C library's, known only at run time. */
static int
real_time_parse(const char *text)
{
	enum { BASE_LEN = 5 };
	size_t len = strlen(text);
	bool from_min = len >= BASE_LEN && size_text_is(text, BASE_LEN, "rtmin");
	int offset = 0;

	if (!from_min && !(len >= BASE_LEN && size_text_is(text, BASE_LEN, "rtmax")))
		return -1;
	if (len > BASE_LEN) {
		if (text[BASE_LEN] != (from_min ? '+' : '-'))
			return -1;
		offset = number_parse(text + BASE_LEN + 1);
		if (offset < 0)
			return -1;
	}
	return from_min ? SIGRTMIN + offset : SIGRTMAX - offset;
}

static int
name_find(const char *text)
{
	size_t i;

	for (i = 0; i < N_NAMES; i++)
		if (size_text_is(text, strlen(text), names[i].name))
			return names[i].signal;
	return -1;
}

static bool
is_usable(int signal)
{
	size_t i;

	for (i = 0; i < N_NAMES; i++)
		if (names[i].signal == signal)
			return true;
	return is_real_time(signal);
}

int
signal_name_parse(const char *text, int *ret_signal)
{
	int signal = number_parse(text);

	if (signal < 0) {
		if (strlen(text) > 3 && size_text_is(text, 3, "sig"))
			text += 3;
		signal = name_find(text);
	}
	if (signal < 0)
		signal = real_time_parse(text);
	if (!is_usable(signal))
		return -EINVAL;

	*ret_signal = signal;
	return 0;
}

size_t
signal_name_print(int signal, char *buf, size_t buf_bytes)
{
	size_t i;

	for (i = 0; i < N_NAMES; i++)
		if (names[i].signal == signal)
			return (size_t)snprintf(buf, buf_bytes, "%s", names[i].name);
	if (is_real_time(signal))
		return (size_t)snprintf(buf, buf_bytes, "RTMIN+%d", signal - SIGRTMIN);
	return (size_t)snprintf(buf, buf_bytes, "%d", signal);
}
