/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * Is a tool at work that checks the program's device memory allocation by allocation?
 *
 * A pool hides from such a tool where a block ends and when it was freed. Meant are
 * compute-sanitizer and other users of the Sanitizer API, and debuggers of device code; not
 * profilers, which only listen (CUPTI, Nsight).
 *
 * Locking: the loader's, as dl_iterate_phdr does.
 */

/*
 * The tool and how it was recognised, as a phrase; NULL: none. Call when cuInit has returned: what
 * the driver itself loads is loaded then. A debugger that attaches later is not seen.
 */
const char *checker_find(void);
