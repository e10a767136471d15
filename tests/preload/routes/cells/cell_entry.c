/* SPDX-License-Identifier: MIT */
/*
 * A program that links a runtime and takes the driver's functions from it: cell_entry FORM FLAGS.
 *
 *   entry       cudaGetDriverEntryPoint
 *   entry_ptsz  the same as nvcc --default-stream per-thread has it
 *   version     cudaGetDriverEntryPointByVersion
 */
#include "tests/preload/routes/cells/cell.h"

#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

cudaError_t cudaGetDriverEntryPoint_ptsz(const char *name, void **ret_function,
					 unsigned long long flags,
					 enum cudaDriverEntryPointQueryResult *ret_result);

static const char *form;
static unsigned long long flags;

static void *
find(const char *symbol, const char *query, int version)
{
	enum cudaDriverEntryPointQueryResult result = cudaDriverEntryPointSymbolNotFound;
	void *found = NULL;
	cudaError_t r;

	if (!query[0])
		return NULL;
	if (!strcmp(form, "entry"))
		r = cudaGetDriverEntryPoint(query, &found, flags, &result);
	else if (!strcmp(form, "entry_ptsz"))
		r = cudaGetDriverEntryPoint_ptsz(query, &found, flags, &result);
	else
		r = cudaGetDriverEntryPointByVersion(query, &found,
						     (unsigned int)cell_version_for(version, flags),
						     flags, &result);
	if (r || result)
		cell_print("device", "%s: %d, result %d", symbol, r, result);
	return found;
}

int
main(int argc, char **argv)
{
	static struct cell_driver driver;
	struct cell_ops ops;

	if (argc != 3) {
		fprintf(stderr, "usage: cell_entry entry|entry_ptsz|version FLAGS\n");
		return 2;
	}
	form = argv[1];
	flags = strtoull(argv[2], NULL, 0);
	cell_fill_driver(&driver, find);
	cell_prove_pointers(&driver,
			    flags == cudaEnablePerThreadDefaultStream ||
				    (!strcmp(form, "entry_ptsz") && flags == cudaEnableDefault));
	ops = cell_ops_of_driver(&driver);
	cell_run_all(&ops, "", true);
	return 0;
}
