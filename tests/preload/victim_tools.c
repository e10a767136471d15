/* SPDX-License-Identifier: MIT */
/*
 * Tools in the process: victim_tools FOLDER MODE [WHY], where MODE is the one that must be in force
 * and WHY a word of the reason that must be told. DEBUGGER=1 in the environment: a debugger of
 * device code is there. It and the rest of what makes the case is in the environment.
 */
#include <fcntl.h>
#include <unistd.h>

#include "tests/preload/victim.h"
#include "tests/sim/sim.h"

static struct poolshim_api api;
static char dump_text[1 << 20], told[1 << 16];

static void
read_file(const char *path, char *text, size_t text_bytes)
{
	FILE *file = fopen(path, "r");

	MUST(!file);
	text[fread(text, 1, text_bytes - 1, file)] = '\0';
	fclose(file);
}

/* cuInit, and what was written on stderr meanwhile. */
static void
start_and_listen(const char *folder)
{
	const int before = dup(STDERR_FILENO);
	char path[4096];
	int file;

	snprintf(path, sizeof(path), "%s/stderr", folder);
	file = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
	MUST(file < 0 || before < 0);
	dup2(file, STDERR_FILENO);
	close(file);
	victim_start();
	dup2(before, STDERR_FILENO);
	close(before);
	read_file(path, told, sizeof(told));
}

static unsigned
count_lines(const char *text, const char *word)
{
	unsigned n = 0;

	for (const char *at = strstr(text, word); at; at = strstr(at + 1, word))
		n++;
	return n;
}

static void
expect_dump(const char *folder, const char *mode, const char *why)
{
	char path[4096], wanted[64];
	const char *reason;

	snprintf(path, sizeof(path), "%s/dump.json", folder);
	snprintf(wanted, sizeof(wanted), "\"mode\": \"%s\"", mode);
	EXPECT(api.dump(path) == 0, "no dump");
	read_file(path, dump_text, sizeof(dump_text));
	EXPECT(strstr(dump_text, wanted), "the dump does not say that the mode is %s", mode);
	reason = strstr(dump_text, "\"mode_why\": ");
	EXPECT(!why == !reason, "the dump %s a reason for the mode", reason ? "gives" : "lacks");
	if (why && reason) {
		reason = strndup(reason, strcspn(reason, "\n"));
		EXPECT(strstr(reason, why), "%s does not name %s", reason, why);
	}
}

/* The form for a person: in 25 lines of 100 columns. */
static void
expect_text(const char *folder, const char *mode, const char *why)
{
	char path[4096], wanted[64];

	snprintf(path, sizeof(path), "%s/dump.txt", folder);
	snprintf(wanted, sizeof(wanted), "; mode %s%s", mode, why ? " under " : "\n");
	EXPECT(api.dump(path) == 0, "no dump");
	read_file(path, dump_text, sizeof(dump_text));
	EXPECT(strstr(dump_text, wanted), "the text does not say '%s': %s", wanted, dump_text);
	EXPECT(count_lines(dump_text, "\n") <= 25, "too many lines: %s", dump_text);
	/* an index: with a pointer gcc warns of NULL in UBSan builds */
	for (size_t at = 0; dump_text[at]; at += strcspn(&dump_text[at], "\n") + 1)
		EXPECT(strcspn(&dump_text[at], "\n") <= 100, "a wide line: %s", &dump_text[at]);
}

/* In mode account the tool sees each block by itself. */
static void
expect_driver_calls(bool is_pool)
{
	CUdeviceptr a, b;

	MUST(cuMemAlloc_v2(&a, 1000));
	cusim_reset_counts();
	MUST(cuMemAlloc_v2(&b, 1000));
	EXPECT(cusim_call_count("cuMemAlloc_v2") == !is_pool, "a request made %d driver calls",
	       (int)cusim_call_count("cuMemAlloc_v2"));
	MUST(cuMemFree_v2(b));
	EXPECT(cusim_call_count("cuMemFree_v2") == !is_pool, "a free made %d driver calls",
	       (int)cusim_call_count("cuMemFree_v2"));
	MUST(cuMemFree_v2(a));
}

int
main(int argc, char **argv)
{
	const char *why = argc > 3 ? argv[3] : NULL;
	unsigned *debugger_pid = dlsym(RTLD_DEFAULT, "cudbgApiClientPid");

	if (argc < 3)
		return 2;
	if (!poolshim_find(&api))
		return 2;
	MUST(!debugger_pid);
	if (getenv("DEBUGGER"))
		*debugger_pid = 4711; /* the debugger wrote it from outside */
	start_and_listen(argv[1]);
	EXPECT(count_lines(told, "POOLSHIM_MODE is account") == (why ? 1 : 0), "told on stderr: %s",
	       told);
	EXPECT(!why || strstr(told, why), "what was told does not name %s: %s", why, told);
	EXPECT(count_lines(told, "\n") == (why ? 1 : 0), "more was told than that: %s", told);
	expect_driver_calls(strcmp(argv[2], "pool") == 0);
	expect_dump(argv[1], argv[2], why);
	expect_text(argv[1], argv[2], why);
	return victim_end("victim_tools");
}
