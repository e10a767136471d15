/* SPDX-License-Identifier: MIT */
/*
 * cuGetProcAddress, with four and with five arguments, and cuGetExportTable.
 *
 * The driver is asked with the arguments as they came; only the pointer that it returns is swapped,
 * so name, version and flags mean what they mean to this driver, and a request for cuGetProcAddress
 * itself gets the wrapper that takes as many arguments as the driver's answer does. A status, an
 * empty name or a NULL pointer are the driver's business.
 *
 * What the driver hands out that no table knows is noted: what a program submits through it cannot
 * be seen.
 */
#include <stdio.h>
#include <string.h>

#include "shim/coverage.h"
#include "shim/hooks.h"
#include "shim/init.h"
#include "shim/lookup.h"
#include "shim/order.h"

static void
swap_answer(const char *name, void **pfn, cuuint64_t flags, const void *caller)
{
	const struct hook *hook;

	if (!hooks_are_handed_out())
		return;
	hook = hook_by_real(*pfn, name,
			    flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM
				    ? HOOK_STREAM0_PER_THREAD
				    : HOOK_STREAM0_LEGACY);
	if (hook && !hook->wrapper)
		return; /* most requests are for functions that need no hook */
	if (!hook && !hooks_is_driver_name(name))
		return;
	if (lookup_is_driver(caller))
		return;
	if (hook) {
		*pfn = hook->wrapper;
	} else {
		coverage_note_unknown(name);
		order_heed_doubt();
	}
}

static void
note_request(void)
{
	hooks_ready();
	coverage_count(COVERAGE_PROC_ADDRESS);
	init_on_first_use();
}

CUresult
cuGetProcAddress(const char *symbol, void **pfn, int version, cuuint64_t flags)
{
	CUresult r;

	note_request();
	r = real.cuGetProcAddress(symbol, pfn, version, flags);
	if (r == CUDA_SUCCESS && symbol && pfn && *pfn)
		swap_answer(symbol, pfn, flags, __builtin_return_address(0));
	return r;
}

CUresult
cuGetProcAddress_v2(const char *symbol, void **pfn, int version, cuuint64_t flags,
		    CUdriverProcAddressQueryResult *status)
{
	CUresult r;

	note_request();
	r = real.cuGetProcAddress_v2(symbol, pfn, version, flags, status);
	if (r == CUDA_SUCCESS && symbol && pfn && *pfn)
		swap_answer(symbol, pfn, flags, __builtin_return_address(0));
	return r;
}

static bool
is_recorded(const CUuuid *id)
{
	enum { N_BYTES = 4 }; /* of the id, as they were recorded */
	static const unsigned char recorded[][N_BYTES] = {
#define EXPORT_TABLE(...) {__VA_ARGS__},
#include "shim/export_tables.def"
#undef EXPORT_TABLE
	};

	for (size_t i = 0; i < sizeof(recorded) / sizeof(recorded[0]); i++)
		if (memcmp(id->bytes, recorded[i], N_BYTES) == 0)
			return true;
	return false;
}

static void
note_table(const CUuuid *id)
{
	char name[COVERAGE_NAME_BYTES] = "export table ";
	size_t n = strlen(name);

	for (size_t i = 0; i < sizeof(id->bytes); i++)
		n += (size_t)snprintf(name + n, sizeof(name) - n, "%02x",
				      (unsigned char)id->bytes[i]);
	coverage_note_unknown(name);
	order_heed_doubt();
}

CUresult
cuGetExportTable(const void **ppExportTable, const CUuuid *pExportTableId)
{
	CUresult r;

	hooks_ready();
	r = real.cuGetExportTable(ppExportTable, pExportTableId);
	if (r == CUDA_SUCCESS && pExportTableId && !is_recorded(pExportTableId) &&
	    !lookup_is_driver(__builtin_return_address(0)))
		note_table(pExportTableId);
	return r;
}
