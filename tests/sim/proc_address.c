/* SPDX-License-Identifier: MIT */
#include "tests/sim/sim_internal.h"

#include <stdlib.h>
#include <string.h>

/*
 * cuGetProcAddress: of the exported forms of a name, the newest that the version asked for knows;
 * with per-thread flags the _ptsz or _ptds body where there is one. A version above the driver's
 * gets the newest. Works before cuInit().
 */

enum {
	PER_THREAD = CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM,
};

static const struct driver_entry *
best_of(const char *query, unsigned version, enum stream0 stream0, bool *ret_is_known)
{
	const struct driver_entry *best = NULL;

	for (size_t i = 0; i < N_ENTRIES; i++) {
		const struct driver_entry *entry = &entries[i];

		if (strcmp(entry->query, query) != 0 || entry_is_hidden(entry))
			continue;
		*ret_is_known = true;
		if (entry->since > version ||
		    (entry->stream0 != STREAM0_NONE && entry->stream0 != stream0))
			continue;
		if (!best || entry->since > best->since)
			best = entry;
	}
	return best;
}

static CUresult
look_up(const char *query, void **ret_fn, int version, cuuint64_t flags,
	CUdriverProcAddressQueryResult *ret_status)
{
	const struct driver_entry *best;
	bool is_known = false;

	if (!query || !ret_fn || flags > PER_THREAD || query[0] == '\0')
		return CUDA_ERROR_INVALID_VALUE;
	best = best_of(query, (unsigned)version,
		       flags == PER_THREAD ? STREAM0_THREAD : STREAM0_LEGACY, &is_known);
	if (ret_status)
		*ret_status = best       ? CU_GET_PROC_ADDRESS_SUCCESS
			      : is_known ? CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT
					 : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
	*ret_fn = best ? entry_function(best) : NULL;
	return best ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

CUresult
cuGetProcAddress(const char *symbol, void **pfn, int version, cuuint64_t flags)
{
	CUresult r = sim_enter(E_cuGetProcAddress, NEED_NOTHING);

	return r != CUDA_SUCCESS ? r : sim_leave(look_up(symbol, pfn, version, flags, NULL));
}

CUresult
cuGetProcAddress_v2(const char *symbol, void **pfn, int version, cuuint64_t flags,
		    CUdriverProcAddressQueryResult *status)
{
	CUresult r = sim_enter(E_cuGetProcAddress_v2, NEED_NOTHING);

	return r != CUDA_SUCCESS ? r : sim_leave(look_up(symbol, pfn, version, flags, status));
}

/*
 * The tables are the driver's private business: there is none. With CUSIM_EXPORT_TABLES set there
 * is an empty one for every id.
 */
CUresult
cuGetExportTable(const void **table, const CUuuid *id)
{
	static const size_t empty[] = {sizeof(size_t)};
	CUresult r = sim_enter(E_cuGetExportTable, NEED_NOTHING);

	if (r != CUDA_SUCCESS)
		return r;
	sim.report.n_export_table_calls++;
	if (!table || !id)
		return sim_leave(CUDA_ERROR_INVALID_VALUE);
	if (!getenv("CUSIM_EXPORT_TABLES"))
		return sim_leave(CUDA_ERROR_NOT_FOUND);
	*table = empty;
	return sim_leave(CUDA_SUCCESS);
}
