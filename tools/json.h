/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * Control blocks as JSON, in the words of the dumps (schema poolshim-stats-1): every field that the
 * block has, under its name; "a.b" is member b of an object a. One thread; no locking.
 */
#include <stdint.h>

#include <json-glib/json-glib.h>

#include "tools/block.h"

void json_add_u64(JsonBuilder *json, const char *name, uint64_t value);
void json_add_text(JsonBuilder *json, const char *name, const char *text);

/* All of a block, as an object. */
void json_add_block(JsonBuilder *json, const struct block *block);

/* The finished tree, on stdout. */
void json_print(JsonBuilder *json);
