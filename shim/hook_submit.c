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
 * Has the driver this function, *ret_call? One that was found needs no hooks_ready(): that has run,
 * or is running and finds the same. relaxed: the function is code, and was there before its
 * address.
 */
#define FIND(symbol, ret_call) \
	((ret_call) = __atomic_load_n(&real.symbol, __ATOMIC_RELAXED), \
	 __builtin_expect((ret_call) != NULL, 1) || \
		 (hooks_ready(), \
		  ((ret_call) = __atomic_load_n(&real.symbol, __ATOMIC_RELAXED)) != NULL))

#define BEGIN_STREAM(stream, stream0) submit_begin(submit_word((stream), HOOK_STREAM0_##stream0))
#define BEGIN_PARAM BEGIN_STREAM
#define BEGIN_POINTER BEGIN_STREAM
#define BEGIN_MEMBER BEGIN_STREAM
#define BEGIN_DEFAULT BEGIN_STREAM
#define BEGIN_CONTEXT(stream, stream0) submit_begin(SUBMIT_CONTEXT)
#define BEGIN_ARRAY(streams, stream0) \
	do { \
		submit_begin(SUBMIT_MANY); \
		FOR_EACH(submit_also, HOOK_STREAM0_##stream0, UNPACK streams); \
	} while (0)

#define END_STREAM(stream, stream0) submit_end()
#define END_PARAM END_STREAM
#define END_POINTER END_STREAM
#define END_MEMBER END_STREAM
#define END_DEFAULT END_STREAM
#define END_CONTEXT END_STREAM
#define END_ARRAY(streams, stream0) \
	do { \
		FOR_EACH(submit_count, HOOK_STREAM0_##stream0, UNPACK streams); \
		submit_end_many(); \
	} while (0)

#define UNPACK(...) __VA_ARGS__
#define FOR_EACH(...) FOR_EACH_OF(__VA_ARGS__)
#define FOR_EACH_OF(function, zero, array, n, member) \
	for (unsigned i_ = 0; array && i_ < n; i_++) \
	function(submit_word(array[i_].member, zero))

/* Work that can wait for others; all of these have one stream, or a context. */
#define BLOCKER_WORD_STREAM(stream, stream0) submit_word((stream), HOOK_STREAM0_##stream0)
#define BLOCKER_WORD_PARAM BLOCKER_WORD_STREAM
#define BLOCKER_WORD_POINTER BLOCKER_WORD_STREAM
#define BLOCKER_WORD_MEMBER BLOCKER_WORD_STREAM
#define BLOCKER_WORD_DEFAULT BLOCKER_WORD_STREAM
#define BLOCKER_WORD_CONTEXT(stream, stream0) SUBMIT_CONTEXT
#define BLOCKER_WORD_ARRAY(streams, stream0) SUBMIT_MANY

#define SUBMIT(symbol, query, kind, flags, stream0, place, stream, parameters, arguments) \
	__attribute__((weak)) CUresult symbol parameters \
	{ \
		__typeof__(&symbol) call; \
		CUresult r; \
\
		if (!FIND(symbol, call)) \
			return CUDA_ERROR_NOT_FOUND; \
		if ((flags)&DRIVER_CAN_WAIT) { \
			struct heap *blocked = \
				submit_begin_blocker(BLOCKER_WORD_##place(stream, stream0), NULL); \
\
			r = call arguments; \
			submit_end_blocker(blocked); \
			return r; \
		} \
		BEGIN_##place(stream, stream0); \
		r = call arguments; \
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
		__typeof__(&symbol) call; \
		CUresult r; \
\
		if (!FIND(symbol, call)) \
			return CUDA_ERROR_NOT_FOUND; \
		r = call arguments; \
		if (r == CUDA_SUCCESS) \
			submit_count_synchronisation(DONE_##place(stream, stream0)); \
		return r; \
	}

#define DRIVER(symbol, query, kind, flags, stream0, place)
#define DRIVER_API_VERSION(version)
#include "shim/driver_api.def"
