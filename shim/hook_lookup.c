/* SPDX-License-Identifier: MIT */
/*
 * cuGetProcAddress, with four and with five arguments.
 *
 * The driver is asked with the arguments as they came; only the pointer that it returns is swapped,
 * so name, version and flags mean what they mean to this driver, and a request for cuGetProcAddress
 * itself gets the wrapper that takes as many arguments as the driver's answer does. A status, an
 * empty name or a NULL pointer are the driver's business.
 */
#include "shim/coverage.h"
#include "shim/hooks.h"
#include "shim/init.h"
#include "shim/lookup.h"

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
	if (hook && !lookup_is_driver(caller)) /* in this order: most requests are for others */
		*pfn = hook->wrapper;
	else if (!hook && hook_has_query(name))
		coverage_note_unknown(name);
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
