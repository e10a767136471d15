/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * Figures that only a dump tells, read from one: the program asks for it and looks into the JSON.
 *
 * victim_dump_path: a path of its own, ending in .json; set it first.
 */
#include "tests/preload/victim.h"

static const char *victim_dump_path VICTIM_UNUSED;

/* A new dump, as text to be freed. */
static inline char *
victim_dump(const struct poolshim_api *api)
{
	enum { MOST_BYTES = 1 << 20 };
	char *text = calloc(1, MOST_BYTES);
	FILE *file;

	if (!text)
		exit(2);
	MUST(api->dump(victim_dump_path));
	file = fopen(victim_dump_path, "r");
	if (!file || fread(text, 1, MOST_BYTES - 1, file) == 0)
		victim_fail(__FILE__, __LINE__, "no dump at %s", victim_dump_path);
	if (file)
		fclose(file);
	return text;
}

/* The part of a dump that tells of a device, or (-1) of the host. */
static inline const char *
victim_dump_place(const char *text, int device)
{
	char start[32];

	if (device < 0)
		snprintf(start, sizeof(start), "\"host\": {");
	else
		snprintf(start, sizeof(start), "\"index\": %d,", device);
	return strstr(text, start);
}

/* The number that follows a name in an object of that part; UINT64_MAX: there is none. */
static inline uint64_t VICTIM_UNUSED
victim_dump_number(const struct poolshim_api *api, int device, const char *object, const char *name)
{
	char *text = victim_dump(api), key[64];
	const char *at = victim_dump_place(text, device), *end;
	uint64_t number = UINT64_MAX;

	if (at && object) {
		snprintf(key, sizeof(key), "\"%s\": {", object);
		at = strstr(at, key);
	}
	end = at ? strchr(at, '}') : NULL;
	snprintf(key, sizeof(key), "\"%s\": ", name);
	at = at ? strstr(at, key) : NULL;
	if (at && (!object || at < end))
		number = strtoull(at + strlen(key), NULL, 10);
	free(text);
	return number;
}

/* What a kind of memory past the pool has at a place; UINT64_MAX: the kind is not told there. */
static inline void VICTIM_UNUSED
victim_dump_expect(const struct poolshim_api *api, int device, const char *kind, uint64_t bytes,
		   const char *when)
{
	const uint64_t found = victim_dump_number(api, device, "external", kind);

	EXPECT(found == bytes, "%s: %s has %lld bytes at place %d, not %llu", when, kind,
	       (long long)found, device, (unsigned long long)bytes);
}
