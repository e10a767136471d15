/* SPDX-License-Identifier: MIT */
/*
 * The bodies of everything that submits or synchronises, made from driver_api.def: announced, or
 * counted, and forwarded.
 *
 * They are weak: where hooks.def has a row, the body written by hand takes the place of the one
 * made here. check_exports.py wants it to be there.
 */
#include "shim/hooks.h"
#include "shim/submit.h"

/*
 * Has the driver this function? One that was found needs no hooks_ready(): that has run, or is
 * running and finds the same. relaxed: the function is code, and was there before its address.
 */
#define DRIVERS(symbol) __atomic_load_n(&real.symbol, __ATOMIC_RELAXED)
#define IS_HERE(symbol) \
	(__builtin_expect(DRIVERS(symbol) != NULL, 1) || (hooks_ready(), DRIVERS(symbol) != NULL))

#define BEGIN_STREAM(stream, stream0) submit_begin(submit_word((stream), HOOK_STREAM0_##stream0))
#define BEGIN_PARAM BEGIN_STREAM
#define BEGIN_POINTER BEGIN_STREAM
#define BEGIN_MEMBER BEGIN_STREAM
#define BEGIN_DEFAULT BEGIN_STREAM
#define BEGIN_CONTEXT(stream, stream0) submit_begin(SUBMIT_CONTEXT)
#define BEGIN_ARRAY(streams, stream0) submit_begin(SUBMIT_MANY)

#define END_STREAM(stream, stream0) submit_end()
#define END_PARAM END_STREAM
#define END_POINTER END_STREAM
#define END_MEMBER END_STREAM
#define END_DEFAULT END_STREAM
#define END_CONTEXT END_STREAM
#define END_ARRAY(streams, stream0) \
	do { \
		COUNT_EACH(HOOK_STREAM0_##stream0, UNPACK streams); \
		submit_end_many(); \
	} while (0)

#define UNPACK(...) __VA_ARGS__
#define COUNT_EACH(...) COUNT_EACH_OF(__VA_ARGS__)
#define COUNT_EACH_OF(zero, array, n, member) \
	for (unsigned i_ = 0; array && i_ < n; i_++) \
	submit_count(submit_word(array[i_].member, zero))

#define SUBMIT(symbol, query, kind, flags, stream0, place, stream, parameters, arguments) \
	__attribute__((weak)) CUresult symbol parameters \
	{ \
		CUresult r; \
\
		if (!IS_HERE(symbol)) \
			return CUDA_ERROR_NOT_FOUND; \
		BEGIN_##place(stream, stream0); \
		r = DRIVERS(symbol) arguments; \
		END_##place(stream, stream0); \
		return r; \
	}

#define DONE_STREAM(stream, stream0) submit_word((stream), HOOK_STREAM0_##stream0)
#define DONE_PARAM DONE_STREAM
#define DONE_CONTEXT(stream, stream0) SUBMIT_CONTEXT
#define DONE_EVENT(stream, stream0) SUBMIT_EVENT

#define SYNC(symbol, query, kind, flags, stream0, place, stream, parameters, arguments) \
	__attribute__((weak)) CUresult symbol parameters \
	{ \
		CUresult r; \
\
		if (!IS_HERE(symbol)) \
			return CUDA_ERROR_NOT_FOUND; \
		r = DRIVERS(symbol) arguments; \
		if (r == CUDA_SUCCESS) \
			submit_count_synchronisation(DONE_##place(stream, stream0)); \
		return r; \
	}

#define DRIVER(symbol, query, kind, flags, stream0, place)
#define DRIVER_API_VERSION(version)
#include "shim/driver_api.def"
