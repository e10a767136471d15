/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * What a program may ask of the shim that it runs under. The functions are exported by
 * libpoolshim.so: find them with dlsym(RTLD_DEFAULT, "poolshim_used_bytes"), or from Python with
 * ctypes.CDLL(None).
 *
 * device: the ordinal as the process sees it. Bytes everywhere. Any thread, any time; before
 * cuInit, in mode off and for a device that was not used yet the sizes are 0. The words are CuPy's:
 * used_bytes (live blocks, rounded up) + free_bytes (held, not live: pending blocks included) =
 * total_bytes (what the driver gave).
 */
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

#define POOLSHIM_API __attribute__((visibility("default")))

POOLSHIM_API size_t poolshim_used_bytes(int device);
POOLSHIM_API size_t poolshim_free_bytes(int device);
POOLSHIM_API size_t poolshim_total_bytes(int device);

/* Free extents and freed blocks whose earlier work is not known complete. */
POOLSHIM_API size_t poolshim_n_free_blocks(int device);

/* Give everything idle back to the driver. Waits for pending blocks, for a moment: 10 ms for each
 * that others freed. */
POOLSHIM_API void poolshim_free_all_blocks(int device);

/* 0: no limit. Below what is held: nothing is taken away, growth is refused. 0 on success, -1 for
 * an unknown device. */
POOLSHIM_API int poolshim_set_limit(int device, size_t bytes);

/*
 * A share of the device's memory, above 0 and at most 1; 0: no limit. -1 also for any other number.
 */
POOLSHIM_API int poolshim_set_limit_fraction(int device, double fraction);

/* 0: no limit. */
POOLSHIM_API size_t poolshim_get_limit(int device);

/* The same for pinned host memory of all contexts. */
POOLSHIM_API size_t poolshim_host_used_bytes(void);
POOLSHIM_API size_t poolshim_host_free_bytes(void);
POOLSHIM_API size_t poolshim_host_total_bytes(void);
POOLSHIM_API size_t poolshim_host_n_free_blocks(void);
POOLSHIM_API void poolshim_host_free_all_blocks(void);
POOLSHIM_API int poolshim_host_set_limit(size_t bytes);
POOLSHIM_API size_t poolshim_host_get_limit(void);

/* Write a dump to path (with % letters as in POOLSHIM_DUMP); NULL: where that variable says. 0 or a
 * negative errno. */
POOLSHIM_API int poolshim_dump(const char *path);

#ifdef __cplusplus
}
#endif
