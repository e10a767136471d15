/* SPDX-License-Identifier: MIT */
/*
 * NVIDIA's static runtime. It asks the software driver for all that it needs and then refuses it
 * (error 103, a check that is left alone), so only its look-ups count here.
 */
#ifdef ROUTE_HAS_STATIC_RUNTIME
#include <cuda_runtime_api.h>
#endif

#include <stdint.h>

#include "route.h"

int
main(void)
{
#ifdef ROUTE_HAS_STATIC_RUNTIME
	uint64_t (*count)(const char *) = NULL;
	/* held here, so that the counts stay when the runtime gives up and closes it */
	void *libcuda = dlopen("libcuda.so.1", RTLD_NOW);
	void *ptr = NULL;
	int r = cudaMalloc(&ptr, 1000);

	printf("# cudaMalloc: %d\n", r);
	if (libcuda)
		count = (uint64_t(*)(const char *))dlsym(libcuda, "cusim_call_count");
	if (!count) { /* a real driver: it serves the call */
		route_check(r == 0, "cudaMalloc gives memory");
		return route_end();
	}
	route_check(count("cuGetProcAddress_v2") > 400, "it asked %llu times",
		    (unsigned long long)count("cuGetProcAddress_v2"));
	route_check(r != 35, "it found all that it needs (35: the driver is too old)");
	return route_end();
#else
	return route_skip("no libcudart_static.a: no toolkit, or a sanitizer build, which cannot "
			  "look into it");
#endif
}
