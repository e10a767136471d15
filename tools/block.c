/* SPDX-License-Identifier: MIT */
#include "tools/block.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <glib.h>

/* The whole file; NULL: ret_why says why not. */
static uint8_t *
read_file(const char *path, struct stat *ret_status, const char **ret_why)
{
	/* A FIFO must not make this wait, nor a link lead elsewhere. */
	const int fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	uint8_t *bytes = NULL;
	size_t n = 0;
	ssize_t m = 1;

	*ret_why = NULL;
	if (fd < 0 || fstat(fd, ret_status) != 0) {
		*ret_why = g_strerror(errno);
	} else if (!S_ISREG(ret_status->st_mode)) {
		*ret_why = "it is no regular file";
	} else if (ret_status->st_size > STATS_ABI_FILE_BYTES_MAX) {
		*ret_why = "it is too large for a control block";
	} else {
		bytes = g_malloc0((size_t)ret_status->st_size + 1);
		while (n < (size_t)ret_status->st_size && m > 0) {
			m = read(fd, bytes + n, (size_t)ret_status->st_size - n);
			n += m > 0 ? (size_t)m : 0;
		}
		ret_status->st_size = (off_t)n; /* it may have become shorter */
	}
	if (fd >= 0)
		close(fd);
	return bytes;
}

/* Do n entries of entry_bytes lie in the file, from this offset on? */
static bool
is_inside(const struct block *block, uint64_t offset, uint64_t n, uint64_t entry_bytes)
{
	return offset <= block->n_bytes && entry_bytes > 0 && n <= UINT32_MAX &&
	       entry_bytes <= UINT32_MAX && n * entry_bytes <= block->n_bytes - offset;
}

static bool
has_end(const char *text, size_t n_bytes)
{
	return memchr(text, '\0', n_bytes) != NULL;
}

static bool
field_is_sound(const struct stats_abi_field *field, uint32_t item_bytes)
{
	const uint64_t value_bytes = field->type == STATS_ABI_U64 ? sizeof(uint64_t) : 1;

	if (!has_end(field->name, sizeof(field->name)) || field->n == 0)
		return false;
	return field->offset + (uint64_t)(field->n - 1) * field->stride_bytes + value_bytes <=
	       item_bytes;
}

static bool
section_is_sound(const struct block *block, const struct stats_abi_section *section)
{
	if (!has_end(section->name, sizeof(section->name)) ||
	    !is_inside(block, section->offset, section->n_items, section->item_bytes) ||
	    (uint64_t)section->first_field + section->n_fields > block->header.n_fields)
		return false;
	for (uint32_t i = 0; i < section->n_fields; i++)
		if (!field_is_sound(block_field(block, section, i), section->item_bytes))
			return false;
	return true;
}

/* Sections are copied by 8 bytes of alignment, as the writer has them. */
static const struct stats_abi_section *
section_at(const struct block *block, uint32_t i)
{
	return (const void *)(block->bytes + block->header.sections_offset +
			      (uint64_t)i * block->header.section_bytes);
}

static bool
is_aligned(uint64_t offset, uint64_t entry_bytes)
{
	return offset % sizeof(uint64_t) == 0 && entry_bytes % sizeof(uint64_t) == 0;
}

static bool
tables_are_sound(const struct block *block)
{
	const struct stats_abi_header *header = &block->header;

	if (header->section_bytes < sizeof(struct stats_abi_section) ||
	    header->field_bytes < sizeof(struct stats_abi_field) ||
	    !is_aligned(header->sections_offset, header->section_bytes) ||
	    !is_aligned(header->fields_offset, header->field_bytes) ||
	    !is_inside(block, header->sections_offset, header->n_sections, header->section_bytes) ||
	    !is_inside(block, header->fields_offset, header->n_fields, header->field_bytes))
		return false;
	for (uint32_t i = 0; i < header->n_sections; i++)
		if (!section_is_sound(block, section_at(block, i)))
			return false;
	return true;
}

/* NULL: nothing is wrong. */
static const char *
check(const struct block *block)
{
	const struct stats_abi_header *header = &block->header;

	if (block->n_bytes < sizeof(*header))
		return "it is too short for a control block";
	if (memcmp(header->magic, STATS_ABI_MAGIC, sizeof(header->magic)) != 0)
		return "it is no control block";
	if (!header->is_ready)
		return "its process has not finished it";
	if (header->version != STATS_ABI_VERSION)
		return "it is of another version of the format";
	if (header->header_bytes < sizeof(*header) || header->file_bytes > block->n_bytes ||
	    !has_end(header->boot_id, sizeof(header->boot_id)) || !tables_are_sound(block))
		return "it is damaged";
	return NULL;
}

/* False: there is no such process. */
static bool
read_start_ticks(uint32_t pid, uint64_t *ret_ticks)
{
	enum { FIELDS_BEHIND_NAME = 20 }; /* the name may hold spaces and brackets */
	g_autofree char *path = g_strdup_printf("/proc/%u/stat", pid), *text = NULL;
	const char *at;

	if (!g_file_get_contents(path, &text, NULL, NULL))
		return false;
	at = strrchr(text, ')');
	for (int i = 0; at && i < FIELDS_BEHIND_NAME; i++)
		at = strchr(at + 1, ' ');
	*ret_ticks = at ? g_ascii_strtoull(at, NULL, 10) : 0;
	return at != NULL;
}

/*
 * After execve() a process has its pid and its start time still, and has lost the mapping. True
 * also where its mappings cannot be read.
 */
static bool
maps_file(uint32_t pid, const struct stat *status)
{
	g_autofree char *path = g_strdup_printf("/proc/%u/maps", pid), *text = NULL;
	g_autofree char *entry =
		g_strdup_printf(" %02x:%02x %llu ", major(status->st_dev), minor(status->st_dev),
				(unsigned long long)status->st_ino);

	return !g_file_get_contents(path, &text, NULL, NULL) || !*text ||
	       strstr(text, entry) != NULL;
}

static bool
is_of_this_boot(const struct stats_abi_header *header)
{
	g_autofree char *text = NULL;

	if (!header->boot_id[0] ||
	    !g_file_get_contents("/proc/sys/kernel/random/boot_id", &text, NULL, NULL))
		return true;
	return strcmp(g_strchomp(text), header->boot_id) == 0;
}

static enum block_state
state_of(const struct stats_abi_header *header, const struct stat *status)
{
	struct stat own;
	uint64_t ticks;

	if (!is_of_this_boot(header))
		return BLOCK_ENDED;
	if (header->pid_namespace &&
	    (stat("/proc/self/ns/pid", &own) != 0 || own.st_ino != header->pid_namespace))
		return BLOCK_ELSEWHERE;
	return read_start_ticks(header->pid, &ticks) && ticks == header->start_ticks &&
			       maps_file(header->pid, status)
		       ? BLOCK_ALIVE
		       : BLOCK_ENDED;
}

struct block *
block_read(const char *path, const char **ret_why)
{
	struct block *block;
	struct stat status;
	uint8_t *bytes = read_file(path, &status, ret_why);

	if (!bytes)
		return NULL;
	block = g_new0(struct block, 1);
	block->path = g_strdup(path);
	block->bytes = bytes;
	block->n_bytes = (size_t)status.st_size;
	memcpy(&block->header, bytes, MIN(block->n_bytes, sizeof(block->header)));
	*ret_why = check(block);
	if (*ret_why) {
		block_free(block);
		return NULL;
	}
	block->state = state_of(&block->header, &status);
	return block;
}

void
block_free(struct block *block)
{
	g_free(block->path);
	g_free(block->bytes);
	g_free(block);
}

const char *
block_state_name(enum block_state state)
{
	static const char *const names[] = {"alive", "ended", "elsewhere"};

	return names[state];
}

const struct stats_abi_section *
block_section(const struct block *block, const char *name)
{
	for (uint32_t i = 0; i < block->header.n_sections; i++)
		if (strcmp(section_at(block, i)->name, name) == 0)
			return section_at(block, i);
	return NULL;
}

const struct stats_abi_field *
block_field(const struct block *block, const struct stats_abi_section *section, uint32_t i)
{
	return (const void *)(block->bytes + block->header.fields_offset +
			      ((uint64_t)section->first_field + i) * block->header.field_bytes);
}

const struct stats_abi_field *
block_find(const struct block *block, const struct stats_abi_section *section, const char *name)
{
	for (uint32_t i = 0; section && i < section->n_fields; i++)
		if (strcmp(block_field(block, section, i)->name, name) == 0)
			return block_field(block, section, i);
	return NULL;
}

static const uint8_t *
item_at(const struct block *block, const struct stats_abi_section *section, uint32_t item)
{
	return block->bytes + section->offset + (uint64_t)item * section->item_bytes;
}

uint64_t
block_value(const struct block *block, const struct stats_abi_section *section, uint32_t item,
	    const struct stats_abi_field *field, uint32_t i)
{
	uint64_t value;

	memcpy(&value,
	       item_at(block, section, item) + field->offset + (uint64_t)i * field->stride_bytes,
	       sizeof(value));
	return value;
}

uint64_t
block_u64(const struct block *block, const struct stats_abi_section *section, uint32_t item,
	  const char *name)
{
	const struct stats_abi_field *field = block_find(block, section, name);

	if (!field || field->type != STATS_ABI_U64 || item >= section->n_items)
		return 0;
	return block_value(block, section, item, field, 0);
}

char *
block_text(const struct block *block, const struct stats_abi_section *section, uint32_t item,
	   const char *name)
{
	const struct stats_abi_field *field = block_find(block, section, name);
	const char *text;

	if (!field || field->type != STATS_ABI_TEXT || item >= section->n_items)
		return g_strdup("");
	text = (const char *)item_at(block, section, item) + field->offset;
	return g_utf8_make_valid(text, (gssize)strnlen(text, field->n));
}

uint64_t
block_age_s(const struct block *block)
{
	const uint64_t now_ns = (uint64_t)g_get_real_time() * 1000;

	return now_ns > block->header.created_ns ? (now_ns - block->header.created_ns) / 1000000000
						 : 0;
}
