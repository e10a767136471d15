/* SPDX-License-Identifier: MIT */
#include "shim/seen.h"

#include "shim/async.h"
#include "shim/context.h"
#include "shim/imports.h"
#include "shim/init.h"

/* The lowest page is nobody's, and the alignment is what the driver looks at first. */
CUdeviceptr
seen_nobodys_addr(CUdeviceptr addr)
{
	enum { FIRST = 0x1000 };

	return FIRST + addr % FIRST;
}

static void
set_range(struct seen *seen, enum seen_kind kind, CUdeviceptr addr, size_t size_bytes,
	  uint64_t serial)
{
	seen->kind = kind;
	seen->addr = addr;
	seen->size_bytes = size_bytes;
	seen->serial = serial;
}

static void
set_nothing(struct seen *seen)
{
	seen->kind = SEEN_NOTHING;
	seen->driver_addr = seen_nobodys_addr(seen->asked_addr);
}

void
seen_at(CUdeviceptr addr, struct seen *ret_seen)
{
	struct block_info *info = &ret_seen->info;
	struct import_info import;

	ret_seen->kind = SEEN_AS_IS;
	ret_seen->asked_addr = ret_seen->driver_addr = addr;
	if (!init_is_active())
		return;
	if (pool_find(&context_pool, addr, info) == HEAP_OK) {
		if (info->is_account)
			return;
		if (info->is_live && addr - info->addr < info->requested_bytes)
			set_range(ret_seen, SEEN_BLOCK, info->addr, info->requested_bytes,
				  info->serial);
		else
			set_nothing(ret_seen);
	} else if (imports_find(addr, &import)) {
		if (import.addr)
			set_range(ret_seen, SEEN_IMPORT, import.addr, import.size_bytes,
				  import.serial);
		else
			set_nothing(ret_seen);
	}
}

bool
seen_shares(const struct seen *seen)
{
	return seen->kind == SEEN_BLOCK && !seen->info.is_whole;
}

void
seen_give_to_device(const struct seen *seen)
{
	if (seen->kind != SEEN_BLOCK)
		return;
	heap_set_sync_memops(&context_pool, seen->addr, true);
	heap_mark_exported(&context_pool, seen->addr);
}

/*
 * Unique in the process, as the driver's: those are small numbers, one for each of its allocations,
 * and stay in the lower half; the upper half tells the blocks of one allocation apart, also those
 * that lay at one place one after the other. An id that is no small number is left alone.
 */
static void
correct_id(const struct seen *seen, unsigned long long *id)
{
	enum { HALF_BITS = 32 };

	if (*id >> HALF_BITS == 0)
		*id |= (unsigned long long)seen->serial << HALF_BITS;
}

/* The host pointer of memory that the driver does not know is the address itself (measured). */
static void
correct_unknown(const struct seen *seen, CUpointer_attribute attribute, CUdeviceptr *data)
{
	if (attribute == CU_POINTER_ATTRIBUTE_HOST_POINTER && *data == seen->driver_addr)
		*data = seen->asked_addr;
}

void
seen_correct(const struct seen *seen, CUpointer_attribute attribute, void *data)
{
	if (seen->kind == SEEN_NOTHING)
		correct_unknown(seen, attribute, data);
	if (seen->kind != SEEN_BLOCK && seen->kind != SEEN_IMPORT)
		return;
	switch (attribute) {
	case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
		*(CUdeviceptr *)data = seen->addr;
		break;
	case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
		*(size_t *)data = seen->size_bytes;
		break;
	case CU_POINTER_ATTRIBUTE_BUFFER_ID:
		correct_id(seen, data);
		break;
	case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
		if (seen_shares(seen))
			*(unsigned *)data = seen->info.has_sync_memops;
		break;
	case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
		if (seen->kind == SEEN_BLOCK && seen->info.is_async)
			*(CUmemoryPool *)data = async_pool_of(seen->info.owner);
		break;
	default:
		break;
	}
}
