/* SPDX-License-Identifier: MIT */
/*
 * What a control block says about itself: the tables of sections and fields, made from the structs
 * and from pool/stats.def and external.def.
 */
#include <stddef.h>
#include <string.h>

#include "shim/control.h"

struct row {
	enum control_section section;
	struct stats_abi_field field;
};

#define FIELD(in, item, label, member, kind, count, stride) \
	{ \
		in, \
		{ \
			.name = label, .offset = offsetof(struct item, member), .type = kind, \
			.n = (count), .stride_bytes = (stride) \
		} \
	}
#define U64(in, item, label, member) FIELD(in, item, label, member, STATS_ABI_U64, 1, 8)
#define TEXT(in, item, member) \
	FIELD(in, item, #member, member, STATS_ABI_TEXT, sizeof(((struct item *)0)->member), 1)

/* struct control_memory as `member` of an item, or as the item itself. */
#define SIZES(in, item, memory, label, part) \
	FIELD(in, item, label, memory stats.sizes[0].part, STATS_ABI_U64, STATS_N_SIZE_CLASSES, \
	      sizeof(((struct stats *)0)->sizes[0]))

/* The kinds of external.def that lie in a place. */
#define ON_HOST_DEVICE(...)
#define ON_HOST_HOST(...) __VA_ARGS__
#define ON_HOST_EITHER(...) __VA_ARGS__
#define ON_DEVICES_DEVICE(...) __VA_ARGS__
#define ON_DEVICES_HOST(...)
#define ON_DEVICES_EITHER(...) __VA_ARGS__
#define SUMS(in, item, memory) \
	U64(in, item, "external_bytes", memory external.total_bytes), \
		U64(in, item, "peak_external_bytes", memory external.peak_total_bytes), \
		U64(in, item, "external_unmeasured_count", memory external.n_unmeasured)

/* Rows of one section stand together, and those of one group. */
static const struct row rows[] = {
	TEXT(CONTROL_PROCESS, control_process, version),
	TEXT(CONTROL_PROCESS, control_process, mode),
	TEXT(CONTROL_PROCESS, control_process, host_name),
	TEXT(CONTROL_PROCESS, control_process, rank),
	TEXT(CONTROL_PROCESS, control_process, exe),
	TEXT(CONTROL_PROCESS, control_process, config),

	U64(CONTROL_HOST, control_memory, "limit_bytes", limit_bytes),
#define GAUGE(name, peak, help) \
	U64(CONTROL_HOST, control_memory, #name, stats.name), \
		U64(CONTROL_HOST, control_memory, #peak, stats.peak),
#define COUNTER(name, help) U64(CONTROL_HOST, control_memory, #name, stats.name),
#include "pool/stats.def"
#undef GAUGE
#undef COUNTER
	SIZES(CONTROL_HOST, control_memory, , "sizes.count", count),
	SIZES(CONTROL_HOST, control_memory, , "sizes.live", n_live),
	SUMS(CONTROL_HOST, control_memory, ),
#define EXTERNAL(name, place, help) \
	ON_HOST_##place(U64(CONTROL_HOST, control_memory, "external." #name, \
			    external.bytes[EXTERNAL_##name]), )
#include "shim/external.def"
#undef EXTERNAL
#define EXTERNAL(name, place, help) \
	ON_HOST_##place(U64(CONTROL_HOST, control_memory, "peak_external." #name, \
			    external.peak_bytes[EXTERNAL_##name]), )
#include "shim/external.def"
#undef EXTERNAL

	U64(CONTROL_DEVICES, control_device, "is_known", is_known),
	U64(CONTROL_DEVICES, control_device, "index", index),
	TEXT(CONTROL_DEVICES, control_device, uuid),
	TEXT(CONTROL_DEVICES, control_device, name),
	U64(CONTROL_DEVICES, control_device, "device_total_bytes", device_total_bytes),
	U64(CONTROL_DEVICES, control_device, "limit_bytes", memory.limit_bytes),
#define GAUGE(name, peak, help) \
	U64(CONTROL_DEVICES, control_device, #name, memory.stats.name), \
		U64(CONTROL_DEVICES, control_device, #peak, memory.stats.peak),
#define COUNTER(name, help) U64(CONTROL_DEVICES, control_device, #name, memory.stats.name),
#include "pool/stats.def"
#undef GAUGE
#undef COUNTER
	SIZES(CONTROL_DEVICES, control_device, memory., "sizes.count", count),
	SIZES(CONTROL_DEVICES, control_device, memory., "sizes.live", n_live),
	SUMS(CONTROL_DEVICES, control_device, memory.),
#define EXTERNAL(name, place, help) \
	ON_DEVICES_##place(U64(CONTROL_DEVICES, control_device, "external." #name, \
			       memory.external.bytes[EXTERNAL_##name]), )
#include "shim/external.def"
#undef EXTERNAL
	/* Registered with the device; it lies on the host. */
	U64(CONTROL_DEVICES, control_device, "external.registered",
	    memory.external.bytes[EXTERNAL_registered]),
#define EXTERNAL(name, place, help) \
	ON_DEVICES_##place(U64(CONTROL_DEVICES, control_device, "peak_external." #name, \
			       memory.external.peak_bytes[EXTERNAL_##name]), )
#include "shim/external.def"
#undef EXTERNAL
	U64(CONTROL_DEVICES, control_device, "peak_external.registered",
	    memory.external.peak_bytes[EXTERNAL_registered]),
};

enum { N_ROWS = sizeof(rows) / sizeof(rows[0]) };

_Static_assert(N_ROWS + COVERAGE_N_ROUTES <= CONTROL_N_FIELDS_MAX, "more fields than places");

static void
describe_section(struct control_block *block, enum control_section id, const char *name,
		 size_t offset, size_t item_bytes, uint32_t n_items)
{
	struct stats_abi_section *section = &block->sections[id];

	strncpy(section->name, name, sizeof(section->name) - 1);
	section->offset = offset;
	section->item_bytes = (uint32_t)item_bytes;
	section->n_items = n_items;
}

static struct stats_abi_field *
add_field(struct control_block *block, enum control_section id)
{
	struct stats_abi_section *section = &block->sections[id];
	const uint32_t place = block->header.n_fields++;

	if (section->n_fields++ == 0)
		section->first_field = place;
	return &block->fields[place];
}

/* The routes have their names at run time only. */
static void
describe_routes(struct control_block *block)
{
	for (enum coverage_route i = 0; i < COVERAGE_N_ROUTES; i++) {
		struct stats_abi_field *field = add_field(block, CONTROL_PROCESS);

		strcpy(field->name, "coverage.routes.");
		strncat(field->name, coverage_route_name(i),
			sizeof(field->name) - sizeof("coverage.routes."));
		field->offset = (uint32_t)(offsetof(struct control_process, routes) +
					   (size_t)i * sizeof(block->process.routes[0]));
		field->type = STATS_ABI_U64;
		field->n = 1;
		field->stride_bytes = sizeof(block->process.routes[0]);
	}
}

void
control_describe(struct control_block *block, uint32_t n_devices)
{
	struct stats_abi_header *header = &block->header;

	header->header_bytes = sizeof(*header);
	header->n_sections = CONTROL_N_SECTIONS;
	header->sections_offset = offsetof(struct control_block, sections);
	header->section_bytes = sizeof(block->sections[0]);
	header->n_fields = 0;
	header->fields_offset = offsetof(struct control_block, fields);
	header->field_bytes = sizeof(block->fields[0]);
	describe_section(block, CONTROL_PROCESS, "process", offsetof(struct control_block, process),
			 sizeof(block->process), 1);
	describe_section(block, CONTROL_HOST, "host", offsetof(struct control_block, host),
			 sizeof(block->host), 1);
	describe_section(block, CONTROL_DEVICES, "devices", offsetof(struct control_block, devices),
			 sizeof(block->devices[0]), n_devices);
	describe_routes(block);
	for (size_t i = 0; i < N_ROWS; i++)
		*add_field(block, rows[i].section) = rows[i].field;
}
