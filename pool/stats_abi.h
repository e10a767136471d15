/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * The control block: a file that each served process keeps mapped, with its live figures, and that
 * a process which was killed leaves behind.
 *
 * /dev/shm/poolshim-UID/PID-STARTTIME, STARTTIME being field 22 of /proc/PID/stat. The file begins
 * with a header, which leads to a table of sections (arrays of items) and a table of fields (what
 * an item of a section holds, by name). A reader looks for the fields that it knows by their names,
 * so it reads the files of older and of newer writers. Only what is in this header is fixed: the
 * meaning of the members below never changes; more may be added behind them (header_bytes,
 * section_bytes and field_bytes tell).
 *
 * All figures are in the machine's byte order. A writer changes them at any time: each is right,
 * and two need not be of one moment. Text ends with a NUL.
 */
#include <stdatomic.h>
#include <stdint.h>

#define STATS_ABI_MAGIC "poolshim" /* without its NUL */

/* printf forms of the folder (uid) and of a file in it (pid, start time). */
#define STATS_ABI_FOLDER "/dev/shm/poolshim-%u"
#define STATS_ABI_FILE "%u-%llu"

enum {
	STATS_ABI_VERSION = 1,
	STATS_ABI_FILE_BYTES_MAX = 16 << 20, /* a larger file is no control block */

	/*
	 * Blocks of ended processes that are kept for each user: whoever finds more removes those
	 * that were first seen ended longest ago.
	 */
	STATS_ABI_N_KEPT = 16,
};

struct stats_abi_header {
	char magic[8];
	uint32_t version; /* STATS_ABI_VERSION; another one has another header */
	uint32_t header_bytes;
	uint64_t file_bytes;
	uint32_t pid; /* as the process itself sees it */
	uint32_t uid;
	uint64_t start_ticks;
	uint64_t pid_namespace; /* inode of /proc/PID/ns/pid; 0: not known */
	uint64_t created_ns;    /* CLOCK_REALTIME */
	/* When somebody first saw that the process had ended; 0: nobody has. Written by readers. */
	_Atomic uint64_t ended_seen_ns;
	_Atomic uint32_t is_ready; /* 0: the rest is still being written */
	uint32_t n_sections;
	uint64_t sections_offset;
	uint32_t section_bytes; /* of one entry of the table */
	uint32_t n_fields;      /* of all sections */
	uint64_t fields_offset;
	uint32_t field_bytes;
	uint32_t reserved;
	char boot_id[40]; /* empty: not known */
};

/*
 * "process" (one item), "host" (one item: pinned memory), "devices" (an item for each ordinal;
 * is_known is 0 in those that were not used).
 */
struct stats_abi_section {
	char name[24];
	uint64_t offset; /* of the first item, in the file */
	uint32_t item_bytes;
	uint32_t n_items;
	uint32_t first_field; /* in the table of fields */
	uint32_t n_fields;
};

enum stats_abi_type {
	STATS_ABI_U64 = 1,  /* n of them, stride_bytes apart */
	STATS_ABI_TEXT = 2, /* n bytes at most, with the NUL */
};

/* A name "a.b" is the member b of a group a. */
struct stats_abi_field {
	char name[40];
	uint32_t offset; /* in the item */
	uint32_t type;
	uint32_t n;
	uint32_t stride_bytes;
};

_Static_assert(sizeof(struct stats_abi_header) == 144, "the header is fixed");
_Static_assert(sizeof(struct stats_abi_section) == 48, "sections are fixed");
_Static_assert(sizeof(struct stats_abi_field) == 56, "fields are fixed");
