/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * One control block (pool/stats_abi.h), read from its file and checked: what a process under the
 * shim has counted up to now, or up to its end.
 *
 * The file is copied whole, so what happens to it later does not matter, and every offset and count
 * in it is checked before it is used. Fields are found by name; those that the writer did not have
 * are not there. No locking: one thread.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "pool/stats_abi.h"

enum block_state {
	BLOCK_ALIVE,
	BLOCK_ENDED,     /* or it became another program by execve() */
	BLOCK_ELSEWHERE, /* its pid is another pid namespace's: it cannot be told */
};

struct block {
	char *path;
	uint8_t *bytes;
	size_t n_bytes;
	struct stats_abi_header header;
	enum block_state state;
};

/* Returns a block for block_free(), or NULL: ret_why says what is wrong with the file. */
struct block *block_read(const char *path, const char **ret_why);
void block_free(struct block *block);

const char *block_state_name(enum block_state state);

/* A section by its name; NULL: there is none. */
const struct stats_abi_section *block_section(const struct block *block, const char *name);

/* The fields of a section: i < section->n_fields. */
const struct stats_abi_field *block_field(const struct block *block,
					  const struct stats_abi_section *section, uint32_t i);

/* Field name of an item; NULL: there is none. */
const struct stats_abi_field *block_find(const struct block *block,
					 const struct stats_abi_section *section, const char *name);

/* Value i < field->n of a field of type STATS_ABI_U64. */
uint64_t block_value(const struct block *block, const struct stats_abi_section *section,
		     uint32_t item, const struct stats_abi_field *field, uint32_t i);

/* The first value of a field by its name; 0: there is none. */
uint64_t block_u64(const struct block *block, const struct stats_abi_section *section,
		   uint32_t item, const char *name);

/* A text by its name, as valid UTF-8, for g_free(); empty: there is none. */
char *block_text(const struct block *block, const struct stats_abi_section *section, uint32_t item,
		 const char *name);

/* Seconds since the block was made. */
uint64_t block_age_s(const struct block *block);
