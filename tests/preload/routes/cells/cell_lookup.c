/* SPDX-License-Identifier: MIT */
/*
 * A program that links nothing of CUDA: cell_lookup ROUTE [VERSION].
 *
 *   handle          dlsym on the handle of libcuda
 *   default         dlsym(RTLD_DEFAULT)
 *   next            dlsym(RTLD_NEXT) in another preloaded library (cell_next.c)
 *   dlvsym VERSION  dlvsym on the handle, VERSION being that of libcuda's names
 *   v1 FLAGS        cuGetProcAddress with four arguments
 *   v2 FLAGS        cuGetProcAddress with five
 */
#include "tests/preload/routes/cells/cell.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef void *next_fn(const char *symbol);

static void *libcuda;
static const char *libcuda_version;
static next_fn *next;
static __typeof__(&cuGetProcAddress) ask_v1;
static __typeof__(&cuGetProcAddress_v2) ask_v2;
static cuuint64_t flags;

static void *
find_by_handle(const char *symbol, const char *query, int version)
{
	(void)query, (void)version;
	return dlsym(libcuda, symbol);
}

static void *
find_by_default(const char *symbol, const char *query, int version)
{
	(void)query, (void)version;
	return dlsym(RTLD_DEFAULT, symbol);
}

static void *
find_by_next(const char *symbol, const char *query, int version)
{
	(void)query, (void)version;
	return next(symbol);
}

static void *
find_by_dlvsym(const char *symbol, const char *query, int version)
{
	(void)query, (void)version;
	return dlvsym(libcuda, symbol, libcuda_version);
}

/* CUDA 13.0 has no newer form of any name here than `version` has, so both requests must agree. */
static void *
find_by_proc_address(const char *symbol, const char *query, int version)
{
	const int versions[] = {cell_version_for(version, flags), CUDA_VERSION};
	void *found[2] = {NULL, NULL};

	if (!query[0])
		return NULL;
	for (int i = 0; i < 2; i++) {
		CUdriverProcAddressQueryResult result = (CUdriverProcAddressQueryResult)-1;
		CUresult r = ask_v2 ? ask_v2(query, &found[i], versions[i], flags, &result)
				    : ask_v1(query, &found[i], versions[i], flags);

		if (r || (ask_v2 && result))
			cell_print("device", "%s of %d: %d, result %d", symbol, versions[i], r,
				   result);
	}
	if (found[0] != found[1])
		cell_print("device", "%s of %d and %d are two", symbol, version, CUDA_VERSION);
	return found[0];
}

static cell_find_fn *
choose(int argc, char **argv)
{
	const char *route = argv[1], *argument = argc > 2 ? argv[2] : "0";
	int mode = !strcmp(route, "default") || !strcmp(route, "next") ? RTLD_GLOBAL : RTLD_LOCAL;

	libcuda = dlopen("libcuda.so.1", RTLD_NOW | mode);
	if (!libcuda)
		return NULL;
	flags = strtoull(argument, NULL, 0);
	libcuda_version = argument;
	if (!strcmp(route, "handle"))
		return find_by_handle;
	if (!strcmp(route, "default"))
		return find_by_default;
	if (!strcmp(route, "dlvsym"))
		return find_by_dlvsym;
	if (!strcmp(route, "next")) {
		next = (next_fn *)dlsym(RTLD_DEFAULT, "cell_next");
		return next ? find_by_next : NULL;
	}
	if (!strcmp(route, "v1"))
		ask_v1 = (__typeof__(ask_v1))dlsym(libcuda, "cuGetProcAddress");
	else if (!strcmp(route, "v2"))
		ask_v2 = (__typeof__(ask_v2))dlsym(libcuda, "cuGetProcAddress_v2");
	return ask_v1 || ask_v2 ? find_by_proc_address : NULL;
}

int
main(int argc, char **argv)
{
	static struct cell_driver driver;
	cell_find_fn *find = argc > 1 ? choose(argc, argv) : NULL;
	struct cell_ops ops;

	if (!find) {
		fprintf(stderr, "usage: cell_lookup ROUTE [VERSION|FLAGS], with a libcuda\n");
		return 2;
	}
	cell_fill_driver(&driver, find);
	cell_prove_pointers(&driver, flags == CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM);
	ops = cell_ops_of_driver(&driver);
	cell_run_all(&ops, "", true);
	return 0;
}
