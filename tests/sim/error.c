/* SPDX-License-Identifier: MIT */
#include "tests/sim/sim_internal.h"

/* Names of status codes. The string is the name too: programs print it, and none compares it. */

static const char *
name_of(CUresult code)
{
	switch ((int)code) {
#define ERROR(name) \
	case name: \
		return #name;
#include "tests/sim/errors.def"
#undef ERROR
	default:
		return NULL;
	}
}

static CUresult
get_name(enum entry_id e, CUresult code, const char **ret_name)
{
	CUresult r = sim_enter(e, NEED_NOTHING);

	if (r != CUDA_SUCCESS)
		return r;
	if (!ret_name)
		return sim_leave(CUDA_ERROR_INVALID_VALUE);
	*ret_name = name_of(code);
	return sim_leave(*ret_name ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
}

CUresult
cuGetErrorName(CUresult error, const char **ret_name)
{
	return get_name(E_cuGetErrorName, error, ret_name);
}

CUresult
cuGetErrorString(CUresult error, const char **ret_text)
{
	return get_name(E_cuGetErrorString, error, ret_text);
}
