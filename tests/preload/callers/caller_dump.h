/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * What a dump says of the objects that asked for memory: the dump is written, read and searched for
 * each question.
 */
#include "tests/preload/victim.h"

struct caller_row {
	unsigned long long used_bytes, peak_bytes, count;
	unsigned long long external_bytes, peak_external_bytes, external_count;
};

static struct poolshim_api api;
static char dump_path[4096];
static char dump_text[1 << 20];

static inline void
caller_read_dump(void)
{
	FILE *file;
	size_t n;

	EXPECT(api.dump(dump_path) == 0, "no dump to %s", dump_path);
	file = fopen(dump_path, "r");
	MUST(!file);
	n = fread(dump_text, 1, sizeof(dump_text) - 1, file);
	dump_text[n] = '\0';
	fclose(file);
}

/* The rows of device 0, or of pinned memory, begin here. */
static inline const char *
caller_rows(bool is_host)
{
	const char *at = strstr(dump_text, is_host ? "\"host\":" : "\"devices\":");

	at = at ? strstr(at, "\"callers\": [") : NULL;
	MUST(!at);
	return at + strlen("\"callers\": [");
}

/* One row after the other; false: there are no more. */
static inline bool
caller_next(const char **at, char object[256], struct caller_row *ret_row)
{
	const char *row = *at + strspn(*at, " \n,");
	const char *numbers;

	if (*row != '{' || sscanf(row, "{\"object\": \"%255[^\"]\"", object) != 1)
		return false;
	numbers = strstr(row, "\"used_bytes\": ");
	MUST(!numbers || sscanf(numbers,
				"\"used_bytes\": %llu, \"peak_bytes\": %llu, \"count\": %llu, "
				"\"external_bytes\": %llu, \"peak_external_bytes\": %llu, "
				"\"external_count\": %llu}",
				&ret_row->used_bytes, &ret_row->peak_bytes, &ret_row->count,
				&ret_row->external_bytes, &ret_row->peak_external_bytes,
				&ret_row->external_count) != 6);
	*at = strchr(numbers, '}') + 1;
	return true;
}

/* What the object has on device 0, or of pinned memory; all 0: it never asked. */
static inline struct caller_row
caller_of(const char *name, bool is_host)
{
	struct caller_row row, found = {0};
	char object[256];
	const char *at;

	caller_read_dump();
	at = caller_rows(is_host);
	while (caller_next(&at, object, &row))
		if (strcmp(object, name) == 0)
			found = row;
	return found;
}

/* Every byte in use belongs to one object. */
static inline void
callers_add_up(const char *when)
{
	unsigned long long used_bytes = 0, host_used_bytes = 0, external_bytes = 0;
	unsigned long long external_total_bytes = 0;
	struct caller_row row;
	char object[256];
	const char *at;

	caller_read_dump();
	at = caller_rows(false);
	while (caller_next(&at, object, &row)) {
		used_bytes += row.used_bytes;
		external_bytes += row.external_bytes;
	}
	at = caller_rows(true);
	while (caller_next(&at, object, &row))
		host_used_bytes += row.used_bytes;
	at = strstr(strstr(dump_text, "\"devices\":"), "\n      \"external_bytes\": ");
	MUST(!at || sscanf(at, " \"external_bytes\": %llu", &external_total_bytes) != 1);
	EXPECT(external_bytes == external_total_bytes,
	       "%s: the objects hold %llu bytes outside the pool, all is %llu", when,
	       external_bytes, external_total_bytes);
	EXPECT(used_bytes == api.used_bytes(0), "%s: the objects hold %llu bytes, the pool %zu",
	       when, used_bytes, api.used_bytes(0));
	EXPECT(host_used_bytes == api.host_used_bytes(),
	       "%s: the objects hold %llu pinned bytes, the pool %zu", when, host_used_bytes,
	       api.host_used_bytes());
}
