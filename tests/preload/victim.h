/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * What the victim programs share: checks that say what is wrong, and the shim's own functions where
 * it is loaded.
 *
 * A victim is an ordinary CUDA program. It runs alone (then it tests the device it runs on) and
 * with libpoolshim.so preloaded; only the shim's functions tell it which. Exit code 0: every check
 * held; 1: some did not, named on stderr.
 */
#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>
#include <dlfcn.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define VICTIM_UNUSED __attribute__((unused))

static int victim_n_failed;

/* Go on after a failed check, so that one run shows all of them. */
#define EXPECT(condition, ...) \
	do { \
		if (!(condition)) \
			victim_fail(__FILE__, __LINE__, __VA_ARGS__); \
	} while (0)

/* A call without which the rest makes no sense. */
#define MUST(call) \
	do { \
		int must_status = (int)(call); \
		if (must_status) { \
			victim_fail(__FILE__, __LINE__, "%s gave error %d", #call, must_status); \
			exit(1); \
		} \
	} while (0)

static inline void __attribute__((format(printf, 3, 4)))
victim_fail(const char *file, int line, const char *format, ...)
{
	va_list args;

	__atomic_fetch_add(&victim_n_failed, 1, __ATOMIC_RELAXED);
	flockfile(stderr);
	fprintf(stderr, "%s:%d: ", file, line);
	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fputc('\n', stderr);
	funlockfile(stderr);
}

/* The last statement of main(). */
static inline int VICTIM_UNUSED
victim_end(const char *name)
{
	if (victim_n_failed)
		fprintf(stderr, "%s: %d checks failed\n", name, victim_n_failed);
	else
		printf("%s: ok\n", name);
	return victim_n_failed ? 1 : 0;
}

/* shim/poolshim.h as a program finds it at run time; all NULL without the shim. */
struct poolshim_api {
	size_t (*used_bytes)(int device);
	size_t (*free_bytes)(int device);
	size_t (*total_bytes)(int device);
	size_t (*n_free_blocks)(int device);
	void (*free_all_blocks)(int device);
	int (*set_limit)(int device, size_t limit_bytes);
	size_t (*get_limit)(int device);
	size_t (*host_used_bytes)(void);
	size_t (*host_free_bytes)(void);
	size_t (*host_total_bytes)(void);
	size_t (*host_n_free_blocks)(void);
	void (*host_free_all_blocks)(void);
	int (*dump)(const char *path);
};

static inline bool VICTIM_UNUSED
poolshim_find(struct poolshim_api *ret_api)
{
	const struct {
		const char *name;
		void *slot;
	} wanted[] = {
		{"poolshim_used_bytes", &ret_api->used_bytes},
		{"poolshim_free_bytes", &ret_api->free_bytes},
		{"poolshim_total_bytes", &ret_api->total_bytes},
		{"poolshim_n_free_blocks", &ret_api->n_free_blocks},
		{"poolshim_free_all_blocks", &ret_api->free_all_blocks},
		{"poolshim_set_limit", &ret_api->set_limit},
		{"poolshim_get_limit", &ret_api->get_limit},
		{"poolshim_host_used_bytes", &ret_api->host_used_bytes},
		{"poolshim_host_free_bytes", &ret_api->host_free_bytes},
		{"poolshim_host_total_bytes", &ret_api->host_total_bytes},
		{"poolshim_host_n_free_blocks", &ret_api->host_n_free_blocks},
		{"poolshim_host_free_all_blocks", &ret_api->host_free_all_blocks},
		{"poolshim_dump", &ret_api->dump},
	};
	size_t n_found = 0;

	for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++) {
		void *address = dlsym(RTLD_DEFAULT, wanted[i].name);

		memcpy(wanted[i].slot, &address, sizeof(address));
		n_found += address != NULL;
	}
	EXPECT(!n_found || n_found == sizeof(wanted) / sizeof(wanted[0]),
	       "only %zu of the shim's functions were found", n_found);
	return n_found == sizeof(wanted) / sizeof(wanted[0]);
}

/* What must hold at any moment that no other thread allocates. */
static inline void VICTIM_UNUSED
poolshim_check_identity(const struct poolshim_api *api, const char *when)
{
	EXPECT(api->used_bytes(0) + api->free_bytes(0) == api->total_bytes(0),
	       "%s: device used %zu + free %zu is not total %zu", when, api->used_bytes(0),
	       api->free_bytes(0), api->total_bytes(0));
	EXPECT(api->host_used_bytes() + api->host_free_bytes() == api->host_total_bytes(),
	       "%s: pinned used %zu + free %zu is not total %zu", when, api->host_used_bytes(),
	       api->host_free_bytes(), api->host_total_bytes());
}

/* The primary context of device 0, current in this thread. */
static inline CUcontext VICTIM_UNUSED
victim_start(void)
{
	CUcontext context;
	CUdevice device;

	MUST(cuInit(0));
	MUST(cuDeviceGet(&device, 0));
	MUST(cuDevicePrimaryCtxRetain(&context, device));
	MUST(cuCtxSetCurrent(context));
	return context;
}
