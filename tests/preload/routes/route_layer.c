/* SPDX-License-Identifier: MIT */
/*
 * Another interposer, preloaded before or after the shim. It forwards two names to whatever comes
 * next: one of CUDA's, and a weak one as OpenMP's runtimes define it (a look-up that is evaluated
 * from the wrong place finds the function itself and recurses).
 */
#include <dlfcn.h>
#include <stddef.h>

int cuInit(unsigned int flags);
void *ompt_start_tool(unsigned int omp_version, const char *runtime_version);
int route_layer_n_inits(void);

static int n_inits;
static int n_nested;

int
cuInit(unsigned int flags)
{
	int (*next)(unsigned int) = (int (*)(unsigned int))dlsym(RTLD_NEXT, "cuInit");

	n_inits++;
	if (!next || n_inits > 8)
		return -1;
	return next(flags);
}

/* What every call so far amounts to. */
int
route_layer_n_inits(void)
{
	return n_inits;
}

__attribute__((weak)) void *
ompt_start_tool(unsigned int omp_version, const char *runtime_version)
{
	void *(*next)(unsigned int, const char *);

	if (++n_nested > 8)
		return &n_nested;
	next = (void *(*)(unsigned int, const char *))dlsym(RTLD_NEXT, "ompt_start_tool");
	return next ? next(omp_version, runtime_version) : NULL;
}
