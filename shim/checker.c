/* SPDX-License-Identifier: MIT */
#include "shim/checker.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "shim/elf_walk.h"
#include "shim/lookup.h"

/*
 * compute-sanitizer preloads its collection library, which brings the Sanitizer API's; programs may
 * use the latter themselves. The launcher libraries beside them (libTreeLauncher...,
 * libInterceptorInjectionTarget.so) come with Nsight's profilers too. Seen with the tools of CUDA
 * 13.0.
 */
static const char *
find_library(void)
{
	struct elf_object object;

	if (elf_object_named("libsanitizer-collection.so", &object))
		return "compute-sanitizer (libsanitizer-collection.so is loaded)";
	if (elf_object_named("libsanitizer-public.so", &object))
		return "a user of the Sanitizer API (libsanitizer-public.so is loaded)";
	return NULL;
}

/*
 * In case that its libraries get other names: what compute-sanitizer tells them, and a library that
 * brought them. Children that it does not follow (--target-processes application-only) inherit the
 * variable and have neither.
 */
static const char *
find_launcher(void)
{
	const char *port = getenv("NV_SANITIZER_INJECTION_PORT_BASE");
	struct elf_object object;

	return port && port[0] && elf_object_named("libTreeLauncher", &object)
		       ? "compute-sanitizer (NV_SANITIZER_INJECTION_PORT_BASE is set)"
		       : NULL;
}

/*
 * A debugger of device code (cuda-gdb) writes its process number into a variable of libcuda before
 * cuInit goes on; see CUDBG_APICLIENT_PID in the debugger's public header. It stays there, while
 * cudbgIpcFlag is 0 again when cuInit has returned; core dumps of the device set neither (seen with
 * driver 580).
 */
static bool
has_debugger(void)
{
	const struct libc_calls *libc = lookup_libc();
	void *driver = libc ? libc->dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD) : NULL;
	const volatile uint32_t *pid;
	bool is_there;

	if (!driver)
		return false;
	pid = libc->dlsym(driver, "cudbgApiClientPid");
	is_there = pid && *pid;
	libc->dlclose(driver);
	return is_there;
}

const char *
checker_find(void)
{
	const char *found = find_library();

	if (!found)
		found = find_launcher();
	if (!found && has_debugger())
		found = "a debugger of device code (cudbgApiClientPid is set)";
	return found;
}
