/* SPDX-License-Identifier: MIT */
/*
 * What tools use of the driver: the variables that a debugger writes into, the library that the
 * driver loads for a profiler (CUDA_INJECTION64_PATH), and callbacks at each driver call, as CUPTI
 * has them.
 */
#include "tests/sim/sim_internal.h"

#include <dlfcn.h>
#include <stdatomic.h>
#include <stdlib.h>

/* Exported under the driver's names; only ever written by others. */
extern uint32_t cudbgApiClientPid, cudbgIpcFlag;
uint32_t cudbgApiClientPid, cudbgIpcFlag;

static void (*_Atomic callback)(void *arg, const char *function);
static void *callback_arg;
static __thread bool in_callback;

void
cusim_subscribe(void (*function)(void *arg, const char *function), void *arg)
{
	callback_arg = arg;
	callback = function;
}

/* No lock is held. What a callback calls itself is not told of, as with CUPTI. */
void
debugger_tell(const char *symbol)
{
	void (*function)(void *, const char *) = callback;

	if (!function || in_callback)
		return;
	in_callback = true;
	function(callback_arg, symbol);
	in_callback = false;
}

/* Once, when the device is there and cuInit has not returned yet. A library that cannot be loaded
 * is passed over. */
void
debugger_inject(void)
{
	const char *path = getenv("CUDA_INJECTION64_PATH");
	void *handle = path && path[0] ? dlopen(path, RTLD_NOW) : NULL;
	int (*initialize)(void) =
		handle ? (int (*)(void))dlsym(handle, "InitializeInjection") : NULL;

	if (initialize)
		initialize();
}
