/* SPDX-License-Identifier: MIT */
#include <dlfcn.h>

#include "tests/sim/test_sim.h"

/* Look-ups, contexts, injection, and that what is exported is what is found. */

static void
before_init(void)
{
	CUdeviceptr p;
	int version = 0, n;

	status(cuMemAlloc_v2(&p, 16), CUDA_ERROR_NOT_INITIALIZED,
	       "an allocation before cuInit says so");
	status(cuDeviceGetCount(&n), CUDA_ERROR_NOT_INITIALIZED,
	       "a device count before cuInit says so");
	status(cuDriverGetVersion(&version), CUDA_SUCCESS, "the driver version needs no cuInit");
	ok(version == 13000, "the driver version is 13000");
	status(cuInit(1), CUDA_ERROR_INVALID_VALUE, "cuInit refuses flags");
	status(cuInit(0), CUDA_SUCCESS, "cuInit works");
	status(cuMemAlloc_v2(&p, 16), CUDA_ERROR_INVALID_CONTEXT, "an allocation needs a context");
	status(cuMemFree_v2(0), CUDA_SUCCESS, "a free needs none");
}

static void *
look_up(const char *name, int version, cuuint64_t flags, CUresult *ret_r,
	CUdriverProcAddressQueryResult *ret_status)
{
	void *fn = (void *)1;
	CUresult r = cuGetProcAddress_v2(name, &fn, version, flags, ret_status);

	if (ret_r)
		*ret_r = r;
	return fn;
}

static void
look_ups(void)
{
	CUdriverProcAddressQueryResult found;
	CUresult r;
	void *fn;

	ok(look_up("cuMemAlloc", 3020, 0, &r, &found) == (void *)cuMemAlloc_v2 &&
		   found == CU_GET_PROC_ADDRESS_SUCCESS,
	   "the address is that of the exported symbol");
	ok(look_up("cuEventRecord", 7000, 0, NULL, NULL) == (void *)cuEventRecord,
	   "flags 0 give the legacy body");
	ok(look_up("cuEventRecord", 7000, 1, NULL, NULL) == (void *)cuEventRecord,
	   "flags 1 give the legacy body");
	ok(look_up("cuEventRecord", 7000, 2, NULL, NULL) == (void *)cuEventRecord_ptsz,
	   "flags 2 give the thread's");
	ok(look_up("cuMemcpyHtoD", 7000, 2, NULL, NULL) == (void *)cuMemcpyHtoD_v2_ptds,
	   "so does a synchronous copy");
	ok(look_up("cuMemAlloc", 3020, 2, NULL, NULL) == (void *)cuMemAlloc_v2,
	   "flags 2 fall back without such a body");
	ok(look_up("cuCtxCreate", 3020, 0, NULL, NULL) == (void *)cuCtxCreate_v2,
	   "an old version gets an old body");
	ok(look_up("cuCtxCreate", 12000, 0, NULL, NULL) == (void *)cuCtxCreate_v3,
	   "a newer one a newer body");
	ok(look_up("cuCtxCreate", 99000, 0, NULL, NULL) == (void *)cuCtxCreate_v4,
	   "one above the driver's the newest");
	ok(look_up("cuGetProcAddress", 11030, 0, NULL, NULL) == (void *)cuGetProcAddress,
	   "the four-argument look-up");
	ok(look_up("cuGetProcAddress", 12000, 0, NULL, NULL) == (void *)cuGetProcAddress_v2,
	   "the five-argument one");
	fn = look_up("cuCtxRecordEvent", 12000, 0, &r, &found);
	ok(!fn && r == CUDA_ERROR_NOT_FOUND && found == CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT,
	   "too old a version finds nothing and says why");
	fn = look_up("cuNoSuchThing", 12000, 0, &r, &found);
	ok(!fn && r == CUDA_ERROR_NOT_FOUND && found == CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND,
	   "an unknown name too");
	fn = look_up("cuMemAlloc_v2", 12000, 0, &r, NULL);
	ok(!fn && r == CUDA_ERROR_NOT_FOUND, "names with a version are not known");
	status(cuGetProcAddress_v2("", NULL, 0, 0, NULL), CUDA_ERROR_INVALID_VALUE,
	       "an empty name is refused");
	status(cuGetProcAddress("cuInit", NULL, 2000, 0), CUDA_ERROR_INVALID_VALUE,
	       "no place for the answer too");
	setenv("CUSIM_HIDE", "cuCtxRecordEvent,cuEventQuery", 1);
	ok(!look_up("cuEventQuery", 13000, 0, NULL, &found) &&
		   found == CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND,
	   "a hidden name is not found");
	unsetenv("CUSIM_HIDE");
	status(cuGetExportTable((const void **)&fn, &(CUuuid){{0}}), CUDA_ERROR_NOT_FOUND,
	       "there is no export table");
}

/* Every row answers its own symbol when its version and stream flags are asked for. */
static void
every_entry_is_found(void)
{
	static const struct {
		const char *symbol, *query;
		int since, stream0;
	} rows[] = {
#define STREAM0_NONE 0
#define STREAM0_LEGACY 1
#define STREAM0_THREAD 2
#define ENTRY(symbol, query, since, stream0) {#symbol, query, since, stream0},
#include "tests/sim/entries.def"
#undef ENTRY
	};
	int n_wrong = 0;

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		void *fn = look_up(rows[i].query, rows[i].since, (cuuint64_t)rows[i].stream0, NULL,
				   NULL);

		if (!fn || fn != dlsym(RTLD_DEFAULT, rows[i].symbol)) {
			printf("# %s at %d gives %p\n", rows[i].symbol, rows[i].since, fn);
			n_wrong++;
		}
	}
	ok(n_wrong == 0, "every entry is found by its own name, version and flags");
	ok(look_up("cuArrayCreate", 3020, 0, NULL, NULL) == dlsym(RTLD_DEFAULT, "cuArrayCreate_v2"),
	   "what is not supported is found too");
	ok(!dlsym(RTLD_DEFAULT, "sim_enter") && !dlsym(RTLD_DEFAULT, "unsupported_call"),
	   "nothing else is exported");
}

static void
contexts(CUcontext primary)
{
	CUcontext ctx, current = NULL;
	CUdeviceptr p, q;
	size_t at_start = free_bytes();
	unsigned flags;
	int is_active;

	status(cuCtxCreate_v2(&ctx, 0, 0), CUDA_SUCCESS, "a context of the program's own");
	cuCtxGetCurrent(&current);
	ok(current == ctx, "is current");
	cuMemAlloc_v2(&p, MIB);
	status(cuCtxDestroy_v2(ctx), CUDA_SUCCESS, "and is destroyed");
	cuCtxGetCurrent(&current);
	ok(current == primary, "what was current before is again");
	ok(free_bytes() == at_start, "its memory is gone");
	status(cuMemFree_v2(p), CUDA_ERROR_INVALID_VALUE, "and its pointers");
	cuCtxSetCurrent(ctx);
	status(cuMemAlloc_v2(&p, 16), CUDA_ERROR_CONTEXT_IS_DESTROYED,
	       "a destroyed context says so");
	cuCtxSetCurrent(primary);
	status(cuCtxSetCurrent((CUcontext)&ctx), CUDA_ERROR_INVALID_CONTEXT,
	       "a bogus one is refused");
	cuMemAlloc_v2(&p, MIB);
	status(cuDevicePrimaryCtxReset_v2(0), CUDA_SUCCESS, "the primary context is reset");
	cuDevicePrimaryCtxGetState(0, &flags, &is_active);
	ok(!is_active, "and inactive then");
	status(cuMemAlloc_v2(&q, 16), CUDA_ERROR_CONTEXT_IS_DESTROYED, "calls say that it is gone");
	cuDevicePrimaryCtxRetain(&ctx, 0);
	ok(ctx == primary, "retained again it has the same handle");
	status(cuMemFree_v2(p), CUDA_ERROR_INVALID_VALUE, "old pointers are gone");
	status(cuMemAlloc_v2(&q, 16), CUDA_SUCCESS, "new ones work");
	cusim_set_sticky(primary, CUDA_ERROR_ILLEGAL_ADDRESS);
	status(cuMemFree_v2(q), CUDA_ERROR_ILLEGAL_ADDRESS, "a sticky error answers every call");
	status(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS, "also this one");
	cusim_set_sticky(primary, 0);
	cuMemFree_v2(q);
}

static void
injection(void)
{
	CUdeviceptr p = 0;

	cusim_reset_counts();
	ok(cusim_fail("cuNoSuchThing", 1, 2) == -1, "a failure can only be asked of what exists");
	cusim_fail("cuMemAlloc_v2", 2, CUDA_ERROR_OUT_OF_MEMORY);
	status(cuMemAlloc_v2(&p, 16), CUDA_SUCCESS, "the first call works");
	cuMemFree_v2(p);
	p = 1;
	status(cuMemAlloc_v2(&p, 16), CUDA_ERROR_OUT_OF_MEMORY, "the second fails");
	ok(p == 1, "and does nothing");
	status(cuMemAlloc_v2(&p, 16), CUDA_SUCCESS, "the third works");
	ok(cusim_call_count("cuMemAlloc_v2") == 3, "all three were counted");
	cusim_fail("cuEventQuery", 0, CUDA_ERROR_LAUNCH_FAILED);
	status(cuEventQuery(NULL), CUDA_ERROR_LAUNCH_FAILED, "every call fails");
	status(cuEventQuery(NULL), CUDA_ERROR_LAUNCH_FAILED, "and again");
	cusim_fail("cuEventQuery", 0, 0);
	status(cuEventQuery(NULL), CUDA_ERROR_INVALID_HANDLE, "until that is taken back");
	cuMemFree_v2(p);
}

static void
two_ages(void)
{
	const char *path = getenv("SIM_OLD_DRIVER");
	void *old = path ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
	CUresult (*get_version)(int *version) = NULL;
	int version = 0;

	if (!old) {
		ok(true, "the old driver is older # SKIP SIM_OLD_DRIVER is not set");
		return;
	}
	*(void **)&get_version = dlsym(old, "cuDriverGetVersion");
	if (get_version)
		get_version(&version);
	ok(version == 12020, "the old driver is older");
	ok(!dlsym(old, "cuCtxRecordEvent") && dlsym(old, "cuEventRecord"),
	   "and has no cuCtxRecordEvent");
}

int
main(void)
{
	CUcontext primary;

	before_init();
	primary = start(CUSIM_AUTO);
	look_ups();
	every_entry_is_found();
	contexts(primary);
	injection();
	two_ages();
	ok(cusim_violations() == 0, "no operation touched memory that was gone");
	return finish();
}
