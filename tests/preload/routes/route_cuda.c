/* SPDX-License-Identifier: MIT */
/*
 * Stand-ins for libcuda that no driver is: one whose names have a version, and one so old that a
 * required function is missing (ROUTE_TINY). Every function succeeds and does nothing, but for
 * cuGetProcAddress_v2, which knows three names: cuInit, cuMemAlloc with a body of its own that no
 * exported name leads to, and cuMemFreeAsync with one body for both meanings of stream 0.
 */
#include <string.h>

int cuDriverGetVersion(int *version);

int
cuDriverGetVersion(int *version)
{
	*version = 13000;
	return 0;
}

#define STAND_IN(symbol) \
	int symbol(void); \
\
	int symbol(void) \
	{ \
		return 0; \
	}

#ifdef ROUTE_TINY
STAND_IN(cuInit)
STAND_IN(cuMemAlloc_v2)
STAND_IN(cuCtxGetCurrent)
#else
/* Two rows may share one function: the second name of each pair is an alias. */
int cuStreamDestroy_v2(void) __attribute__((alias("cuStreamDestroy")));
int cuMemFreeAsync_ptsz(void) __attribute__((alias("cuMemFreeAsync")));

int cuInit(void);
int cuMemFreeAsync(void);
int cuGetProcAddress_v2(const char *name, void **pfn, int version, unsigned long long flags,
			int *status);

static int
alloc_from_nowhere(void)
{
	return 0;
}

int
cuGetProcAddress_v2(const char *name, void **pfn, int version, unsigned long long flags,
		    int *status)
{
	(void)version, (void)flags, (void)status;
	*pfn = NULL;
	if (!strcmp(name, "cuInit"))
		*pfn = (void *)cuInit;
	else if (!strcmp(name, "cuMemAlloc"))
		*pfn = (void *)alloc_from_nowhere;
	else if (!strcmp(name, "cuMemFreeAsync"))
		*pfn = (void *)cuMemFreeAsync;
	return *pfn ? 0 : 500;
}

#define cuDriverGetVersion cu_stand_in_0 /* defined above */
#define cuStreamDestroy_v2 cu_stand_in_1
#define cuMemFreeAsync_ptsz cu_stand_in_2
#define cuGetProcAddress_v2 cu_stand_in_3
#define DRIVER_API_VERSION(version)
#define DRIVER(symbol, ...) STAND_IN(symbol)
#define SUBMIT(symbol, ...) STAND_IN(symbol)
#define SYNC(symbol, ...) STAND_IN(symbol)
#include "shim/driver_api.def"
#endif
