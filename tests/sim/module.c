/* SPDX-License-Identifier: MIT */
#include "tests/sim/sim_internal.h"

#include <stdlib.h>
#include <string.h>

/*
 * Modules, libraries and their kernels. Any image is accepted and holds the kernels that sim.h
 * lists, one global "sim_global" and one managed variable "sim_managed", of 4096 bytes each.
 */

enum {
	GLOBAL_BYTES = 4096,
};

struct CUfunc_st {
	const char *name;
	enum kernel_kind kind;
	unsigned n_params;
	struct {
		size_t offset, size_bytes;
	} params[3];
};

static struct CUfunc_st functions[] = {
	{"sim_fill", KERNEL_FILL, 3, {{0, 8}, {8, 4}, {16, 8}}},
	{"sim_copy", KERNEL_COPY, 3, {{0, 8}, {8, 8}, {16, 8}}},
	{"sim_spin", KERNEL_SPIN, 2, {{0, 8}, {8, 8}}},
};

struct CUmod_st {
	struct CUctx_st *ctx;
	uint64_t global;
};

struct CUlib_st {
	CUdeviceptr managed;
};

/* The memory of a global or managed variable, unless a reset took it along. */
static struct alloc *
variable_at(uint64_t addr)
{
	struct alloc *a = addr ? alloc_find(addr) : NULL;

	return a && a->base == addr && a->is_freeing && a->size_bytes == GLOBAL_BYTES ? a : NULL;
}

static struct CUfunc_st *
find_function(const char *name)
{
	for (size_t i = 0; i < sizeof(functions) / sizeof(functions[0]); i++) {
		if (strcmp(functions[i].name, name) == 0)
			return &functions[i];
	}
	return NULL;
}

static bool
is_function(const struct CUfunc_st *f)
{
	return f >= functions && f < functions + sizeof(functions) / sizeof(functions[0]);
}

static CUresult
load(enum entry_id e, CUmodule *ret_module, const void *image)
{
	CUresult r = sim_enter(e, NEED_CONTEXT);
	struct CUmod_st *module;

	if (r != CUDA_SUCCESS)
		return r;
	if (!ret_module || !image)
		return sim_leave(CUDA_ERROR_INVALID_VALUE);
	module = calloc(1, sizeof(*module));
	if (!module || handle_add(module, HANDLE_MODULE) != CUDA_SUCCESS) {
		free(module);
		return sim_leave(CUDA_ERROR_OUT_OF_MEMORY);
	}
	module->ctx = ctx_current_root();
	*ret_module = module;
	return sim_leave(CUDA_SUCCESS);
}

CUresult
cuModuleLoadData(CUmodule *module, const void *image)
{
	return load(E_cuModuleLoadData, module, image);
}

CUresult
cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned int n, CUjit_option *options,
		   void **values)
{
	(void)n, (void)options, (void)values;
	return load(E_cuModuleLoadDataEx, module, image);
}

CUresult
cuModuleUnload(CUmodule module)
{
	CUresult r = sim_enter(E_cuModuleUnload, NEED_CONTEXT);
	struct alloc *a;

	if (r != CUDA_SUCCESS)
		return r;
	if (!handle_is(module, HANDLE_MODULE))
		return sim_leave(CUDA_ERROR_INVALID_HANDLE);
	a = variable_at(module->global);
	if (a)
		alloc_release(a);
	handle_remove(module);
	free(module);
	return sim_leave(CUDA_SUCCESS);
}

CUresult
cuModuleGetFunction(CUfunction *ret_function, CUmodule module, const char *name)
{
	CUresult r = sim_enter(E_cuModuleGetFunction, NEED_CONTEXT);
	CUfunction f;

	if (r != CUDA_SUCCESS)
		return r;
	if (!ret_function || !name)
		return sim_leave(CUDA_ERROR_INVALID_VALUE);
	if (!handle_is(module, HANDLE_MODULE))
		return sim_leave(CUDA_ERROR_INVALID_HANDLE);
	f = find_function(name);
	if (f)
		*ret_function = f;
	return sim_leave(f ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND);
}

/* The global's memory is device memory of the module, and no program can free it. */
CUresult
cuModuleGetGlobal_v2(CUdeviceptr *ret_ptr, size_t *ret_bytes, CUmodule module, const char *name)
{
	CUresult r = sim_enter(E_cuModuleGetGlobal_v2, NEED_CONTEXT);
	struct alloc *a;

	if (r != CUDA_SUCCESS)
		return r;
	if (!name)
		return sim_leave(CUDA_ERROR_INVALID_VALUE);
	if (!handle_is(module, HANDLE_MODULE))
		return sim_leave(CUDA_ERROR_INVALID_HANDLE);
	if (strcmp(name, "sim_global") != 0)
		return sim_leave(CUDA_ERROR_NOT_FOUND);
	if (!variable_at(module->global)) {
		struct alloc init = {.kind = ALLOC_DEVICE, .ctx = module->ctx, .is_freeing = true};

		r = alloc_device(&module->ctx->arena, GLOBAL_BYTES, &init, &a);
		if (r != CUDA_SUCCESS)
			return sim_leave(r);
		module->global = a->base;
	}
	if (ret_ptr)
		*ret_ptr = module->global;
	if (ret_bytes)
		*ret_bytes = GLOBAL_BYTES;
	return sim_leave(CUDA_SUCCESS);
}

CUresult
cuLibraryLoadData(CUlibrary *ret_library, const void *code, CUjit_option *jit_options,
		  void **jit_values, unsigned int n_jit, CUlibraryOption *options, void **values,
		  unsigned int n)
{
	CUresult r = sim_enter(E_cuLibraryLoadData, NEED_INIT);
	struct CUlib_st *library;

	(void)jit_options, (void)jit_values, (void)n_jit, (void)options, (void)values, (void)n;
	if (r != CUDA_SUCCESS)
		return r;
	if (!ret_library || !code)
		return sim_leave(CUDA_ERROR_INVALID_VALUE);
	library = calloc(1, sizeof(*library));
	if (!library || handle_add(library, HANDLE_LIBRARY) != CUDA_SUCCESS) {
		free(library);
		return sim_leave(CUDA_ERROR_OUT_OF_MEMORY);
	}
	*ret_library = library;
	return sim_leave(CUDA_SUCCESS);
}

CUresult
cuLibraryUnload(CUlibrary library)
{
	CUresult r = sim_enter(E_cuLibraryUnload, NEED_INIT);
	struct alloc *a;

	if (r != CUDA_SUCCESS)
		return r;
	if (!handle_is(library, HANDLE_LIBRARY))
		return sim_leave(CUDA_ERROR_INVALID_HANDLE);
	a = variable_at(library->managed);
	if (a)
		alloc_release(a);
	handle_remove(library);
	free(library);
	return sim_leave(CUDA_SUCCESS);
}

/* A kernel of a library is the same object as the function of a module. */
CUresult
cuLibraryGetKernel(CUkernel *ret_kernel, CUlibrary library, const char *name)
{
	CUresult r = sim_enter(E_cuLibraryGetKernel, NEED_INIT);
	CUfunction f;

	if (r != CUDA_SUCCESS)
		return r;
	if (!ret_kernel || !name)
		return sim_leave(CUDA_ERROR_INVALID_VALUE);
	if (!handle_is(library, HANDLE_LIBRARY))
		return sim_leave(CUDA_ERROR_INVALID_HANDLE);
	f = find_function(name);
	if (f)
		*ret_kernel = (CUkernel)f;
	return sim_leave(f ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND);
}

CUresult
cuKernelGetFunction(CUfunction *ret_function, CUkernel kernel)
{
	CUresult r = sim_enter(E_cuKernelGetFunction, NEED_CONTEXT);

	if (r != CUDA_SUCCESS)
		return r;
	if (!ret_function || !is_function((CUfunction)kernel))
		return sim_leave(CUDA_ERROR_INVALID_HANDLE);
	*ret_function = (CUfunction)kernel;
	return sim_leave(CUDA_SUCCESS);
}

/* Belongs to the library: cuMemFree refuses it. */
CUresult
cuLibraryGetManaged(CUdeviceptr *ret_ptr, size_t *ret_bytes, CUlibrary library, const char *name)
{
	CUresult r = sim_enter(E_cuLibraryGetManaged, NEED_CONTEXT);

	if (r != CUDA_SUCCESS)
		return r;
	if (!name || !handle_is(library, HANDLE_LIBRARY))
		return sim_leave(CUDA_ERROR_INVALID_VALUE);
	if (strcmp(name, "sim_managed") != 0)
		return sim_leave(CUDA_ERROR_NOT_FOUND);
	if (!variable_at(library->managed)) {
		r = managed_alloc(ctx_current_root(), GLOBAL_BYTES, CU_MEM_ATTACH_GLOBAL,
				  &library->managed);
		if (r != CUDA_SUCCESS)
			return sim_leave(r);
		alloc_find(library->managed)->is_freeing = true;
	}
	if (ret_ptr)
		*ret_ptr = library->managed;
	if (ret_bytes)
		*ret_bytes = GLOBAL_BYTES;
	return sim_leave(CUDA_SUCCESS);
}

CUresult
cuFuncGetAttribute(int *value, CUfunction_attribute attr, CUfunction f)
{
	CUresult r = sim_enter(E_cuFuncGetAttribute, NEED_CONTEXT);

	if (r != CUDA_SUCCESS)
		return r;
	if (!value || (unsigned)attr >= CU_FUNC_ATTRIBUTE_MAX)
		return sim_leave(CUDA_ERROR_INVALID_VALUE);
	if (!is_function(f))
		return sim_leave(CUDA_ERROR_INVALID_HANDLE);
	*value = attr == CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK ? 1024 : 0;
	return sim_leave(CUDA_SUCCESS);
}

static CUresult
read_params(const struct CUfunc_st *f, void **params, void **extra, uint64_t *ret_values)
{
	const char *buffer = NULL;

	for (size_t i = 0; !params && extra && extra[i] != CU_LAUNCH_PARAM_END; i += 2) {
		if (extra[i] == CU_LAUNCH_PARAM_BUFFER_POINTER)
			buffer = extra[i + 1];
	}
	if (!params && !buffer)
		return CUDA_ERROR_INVALID_VALUE;
	for (unsigned i = 0; i < f->n_params; i++) {
		ret_values[i] = 0;
		memcpy(&ret_values[i], params ? params[i] : buffer + f->params[i].offset,
		       f->params[i].size_bytes);
	}
	return CUDA_SUCCESS;
}

static struct op *
kernel_op(const struct CUfunc_st *f, const uint64_t *v)
{
	struct op *op = op_new(CUSIM_OP_KERNEL);

	if (!op)
		return NULL;
	op->kernel = f->kind;
	op->device_only = true;
	switch (f->kind) {
	case KERNEL_FILL:
		op->set = (struct op_set){.dst = {.addr = v[0]},
					  .width_bytes = v[2],
					  .height = 1,
					  .value = (unsigned)v[1],
					  .value_bytes = 1};
		op_range(op, v[0], v[2], true);
		break;
	case KERNEL_COPY:
		op->copy = (struct op_copy){.dst = {.addr = v[0]},
					    .src = {.addr = v[1]},
					    .width = v[2],
					    .height = 1,
					    .depth = 1};
		op_range(op, v[0], v[2], true);
		op_range(op, v[1], v[2], false);
		break;
	case KERNEL_SPIN:
		op->spin = (struct op_spin){.flag_addr = v[0], .ns = v[1]};
		op_range(op, v[0], v[0] ? 4 : 0, false);
		break;
	}
	return op;
}

static CUresult
launch_kernel(enum entry_id e, CUfunction f, CUstream handle, void **params, void **extra,
	      bool is_programmatic)
{
	CUresult r = sim_enter(e, NEED_CONTEXT);
	struct CUstream_st *s;
	uint64_t values[3];
	struct op *op;

	if (r != CUDA_SUCCESS)
		return r;
	if (!is_function(f))
		return sim_leave(CUDA_ERROR_INVALID_HANDLE);
	r = stream_resolve(e, handle, &s);
	if (r == CUDA_SUCCESS)
		r = read_params(f, params, extra, values);
	if (r != CUDA_SUCCESS)
		return sim_leave(r);
	op = kernel_op(f, values);
	if (op)
		op->is_programmatic = is_programmatic;
	return sim_leave(op ? exec_submit(s, op) : CUDA_ERROR_OUT_OF_MEMORY);
}

static CUresult
launch(enum entry_id e, CUfunction f, CUstream handle, void **params, void **extra)
{
	return launch_kernel(e, f, handle, params, extra, false);
}

static bool
is_programmatic(const CUlaunchConfig *config)
{
	for (unsigned i = 0; config && i < config->numAttrs; i++) {
		if (config->attrs[i].id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION &&
		    config->attrs[i].value.programmaticStreamSerializationAllowed == 1)
			return true;
	}
	return false;
}

static CUresult
launch_config(enum entry_id e, const CUlaunchConfig *config, CUfunction f, void **params,
	      void **extra)
{
	return launch_kernel(e, f, config ? config->hStream : NULL, params, extra,
			     is_programmatic(config));
}

#define UNUSED __attribute__((unused))
SIM_PAIR(cuLaunchKernel, _ptsz,
	 (CUfunction f, unsigned int gx UNUSED, unsigned int gy UNUSED, unsigned int gz UNUSED,
	  unsigned int bx UNUSED, unsigned int by UNUSED, unsigned int bz UNUSED,
	  unsigned int shared_bytes UNUSED, CUstream s, void **params, void **extra),
	 launch, f, s, params, extra)
SIM_PAIR(cuLaunchKernelEx, _ptsz,
	 (const CUlaunchConfig *config, CUfunction f, void **params, void **extra), launch_config,
	 config, f, params, extra)
SIM_PAIR(cuLaunchCooperativeKernel, _ptsz,
	 (CUfunction f, unsigned int gx UNUSED, unsigned int gy UNUSED, unsigned int gz UNUSED,
	  unsigned int bx UNUSED, unsigned int by UNUSED, unsigned int bz UNUSED,
	  unsigned int shared_bytes UNUSED, CUstream s, void **params),
	 launch, f, s, params, NULL)

CUresult
cuFuncSetAttribute(CUfunction f, CUfunction_attribute attr, int value)
{
	CUresult r = sim_enter(E_cuFuncSetAttribute, NEED_CONTEXT);

	(void)attr, (void)value;
	if (r != CUDA_SUCCESS)
		return r;
	return sim_leave(is_function(f) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE);
}
