/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * The cells of the route matrix: each kind of memory, by whatever way a program found its
 * functions.
 *
 * A route fills a struct cell_ops, by linked calls or through pointers; cell_run_all() then takes
 * each kind of memory through its life and prints, on stdout:
 *
 *   cell KIND VALUES      statuses and values, the same natively and under the shim
 *   proof KIND ANSWER     yes or no: did the shim see these calls? "none": this device cannot tell
 *
 * A proof needs the calls to have met the hooks: counters of the pool that move, or memory that the
 * pool holds and gives back because the driver had none for this very call. Without the shim, or
 * with POOLSHIM_MODE=off, every proof says no.
 *
 * The files build on a bare machine too: see README.md. Statuses are int: the numbers of the driver
 * and of the runtime are the same.
 */
#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>

/* The driver's functions as a route found them; NULL: this route cannot have it. */
struct cell_driver {
#define CELL_DRIVER(symbol, query, version, kind) __typeof__(&symbol) symbol;
#include "tests/preload/routes/cells/cell_driver.def"
#undef CELL_DRIVER
};

enum cell_array {
	CELL_ARRAY_PLAIN,
	CELL_ARRAY_3D,
	CELL_ARRAY_MIPMAPPED,
	CELL_N_ARRAYS,
};

/* Elements of 16 bytes; height and depth may be 0. */
struct cell_extent {
	size_t width, height, depth;
};

struct cell_pointer_facts {
	unsigned int type; /* CUmemorytype */
	int device;
	bool is_managed;
};

struct cell_ops {
	int (*start)(void);
	int (*synchronize)(void);
	int (*device_alloc)(void **ret_ptr, size_t n_bytes);
	int (*device_free)(void *ptr);
	int (*host_alloc[2])(void **ret_ptr, size_t n_bytes); /* the two functions for it */
	int (*host_free)(void *ptr);
	/* legacy stream 0, per-thread stream 0; NULL: the route has one body only */
	int (*async_alloc[2])(void **ret_ptr, size_t n_bytes);
	int (*async_free[2])(void *ptr);
	/* by rows, and as a volume of one layer (NULL in the driver) */
	int (*pitch_alloc[2])(void **ret_ptr, size_t *ret_pitch, size_t width_bytes, size_t height);
	int (*managed_alloc)(void **ret_ptr, size_t n_bytes);
	int (*array_create)(enum cell_array form, struct cell_extent extent, void **ret_array);
	int (*array_destroy)(enum cell_array form, void *array);
	int (*fill)(void *ptr, int byte, size_t n_bytes);
	int (*read)(void *host, const void *ptr, size_t n_bytes);
	int (*memory_info)(size_t *ret_free_bytes, size_t *ret_total_bytes);
	int (*last_error)(void); /* of this runtime, in this thread; NULL in the driver */
	int (*pointer_facts)(const void *ptr, struct cell_pointer_facts *ret_facts);
	/* where mapped memory and address ranges come from, for a runtime too */
	const struct cell_driver *driver;
};

/* Ops over the pointers of *driver, which stays in use. */
struct cell_ops cell_ops_of_driver(const struct cell_driver *driver);

/*
 * What cell_runtime.c and cell_linked.c have: the library that they are linked with, its version.
 */
const struct cell_ops *cell_plugin_ops(void);
int cell_plugin_version(void);

/*
 * Every kind. is_caught: this route passes the shim; else no call is made whose outcome would show
 * that it does not.
 */
void cell_run_all(const struct cell_ops *ops, const char *tag, bool is_caught);

/* One more value in the line of a kind, for checks that a route adds. */
void cell_print(const char *kind, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Fill *driver by a look-up: find(name, version) gives a pointer or NULL. */
typedef void *cell_find_fn(const char *symbol, const char *query, int version);
void cell_fill_driver(struct cell_driver *driver, cell_find_fn *find);

/* The version to ask for: the bodies with per-thread streams are CUDA 7.0's or newer. */
static inline int
cell_version_for(int version, unsigned long long flags)
{
	const bool is_per_thread = flags == CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;

	return is_per_thread && version < 7000 ? 7000 : version;
}

/*
 * Does each pointer that the shim has a hook for lead to that very wrapper? A proof for each of
 * them. wants_per_thread: the route asked for the bodies whose stream 0 is the thread's.
 */
void cell_prove_pointers(const struct cell_driver *driver, bool wants_per_thread);
