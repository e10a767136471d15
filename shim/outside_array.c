/* SPDX-License-Identifier: MIT */
/*
 * How large an array is, by the driver's own word.
 *
 * Driver facts (measured): it tells the memory requirements of arrays with deferred mapping only,
 * and for those what the same array takes without it. So a twin of the same description is made
 * with deferred mapping, which takes no device memory and waits for nothing. Its destruction would
 * wait for all work of the context, so the twin is left to end with its context; one for each
 * description, since the answer for a description is kept, and N_KNOWN at most: others go
 * unmeasured.
 */
#include <pthread.h>
#include <string.h>

#include "pool/thread.h"
#include "shim/device.h"
#include "shim/outside.h"

enum {
	NO_MEMORY_FLAGS = CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING,
	N_KNOWN = 512,
};

/* What the size depends on. All of it is set, padding too: it is compared as bytes. */
struct question {
	CUDA_ARRAY3D_DESCRIPTOR how;
	unsigned n_levels; /* 0: no mipmap */
	int device;
};

static pthread_mutex_t known_lock = PTHREAD_MUTEX_INITIALIZER;
/* Under known_lock. Asked once, answered or not: 0 bytes say that the driver did not tell. */
static struct {
	struct question question;
	uint64_t bytes;
} known[N_KNOWN];
static size_t n_known;

static size_t
find_locked(const struct question *question)
{
	size_t i = 0;

	while (i < n_known && memcmp(&known[i].question, question, sizeof(*question)) != 0)
		i++;
	return i;
}

/* False: it has to be asked, and there is room for its answer. */
static bool
is_answered(const struct question *question, uint64_t *ret_bytes)
{
	bool is_answer;
	size_t i;

	thread_lock(&known_lock);
	i = find_locked(question);
	is_answer = i < n_known || i == N_KNOWN;
	*ret_bytes = i < n_known ? known[i].bytes : 0;
	thread_unlock(&known_lock);
	return is_answer;
}

static void
keep(const struct question *question, uint64_t bytes)
{
	size_t i;

	thread_lock(&known_lock);
	i = find_locked(question);
	if (i == n_known && n_known < N_KNOWN) {
		memcpy(&known[i].question, question, sizeof(*question));
		n_known++;
	}
	if (i < n_known)
		known[i].bytes = bytes;
	thread_unlock(&known_lock);
}

static CUresult
ask_array(const struct question *question, CUDA_ARRAY_MEMORY_REQUIREMENTS *ret_needs)
{
	CUarray twin;
	CUresult r;

	if (!real.cuArrayGetMemoryRequirements)
		return CUDA_ERROR_NOT_SUPPORTED;
	r = real.cuArray3DCreate_v2(&twin, &question->how);
	if (r != CUDA_SUCCESS)
		return r;
	return real.cuArrayGetMemoryRequirements(ret_needs, twin, question->device);
}

static CUresult
ask_mipmap(const struct question *question, CUDA_ARRAY_MEMORY_REQUIREMENTS *ret_needs)
{
	CUmipmappedArray twin;
	CUresult r;

	if (!real.cuMipmappedArrayGetMemoryRequirements)
		return CUDA_ERROR_NOT_SUPPORTED;
	r = real.cuMipmappedArrayCreate(&twin, &question->how, question->n_levels);
	if (r != CUDA_SUCCESS)
		return r;
	return real.cuMipmappedArrayGetMemoryRequirements(ret_needs, twin, question->device);
}

/* 0: the driver does not tell. */
static uint64_t
measure(const struct outside_scope *scope, const CUDA_ARRAY3D_DESCRIPTOR *how, unsigned n_levels)
{
	CUDA_ARRAY_MEMORY_REQUIREMENTS needs = {0};
	struct question question;
	uint64_t bytes;
	CUresult r;

	memset(&question, 0, sizeof(question));
	question.how.Width = how->Width;
	question.how.Height = how->Height;
	question.how.Depth = how->Depth;
	question.how.Format = how->Format;
	question.how.NumChannels = how->NumChannels;
	question.how.Flags = how->Flags | CUDA_ARRAY3D_DEFERRED_MAPPING;
	question.n_levels = n_levels;
	question.device = scope->device->index;
	if (is_answered(&question, &bytes))
		return bytes;
	r = n_levels ? ask_mipmap(&question, &needs) : ask_array(&question, &needs);
	bytes = r == CUDA_SUCCESS ? needs.size : 0;
	if (r != CUDA_ERROR_OUT_OF_MEMORY)
		keep(&question, bytes);
	return bytes;
}

static void
count(const struct outside_scope *scope, enum external_space space, uint64_t key,
      const CUDA_ARRAY3D_DESCRIPTOR *how, unsigned n_levels)
{
	struct external_item item = {
		.space = space,
		.key = key,
		.kind = EXTERNAL_arrays,
		.life = scope->life,
		.generation = scope->generation,
		.tag = scope->tag,
	};

	if (!scope->device || (how->Flags & NO_MEMORY_FLAGS))
		return;
	item.place = scope->device->external;
	item.bytes = measure(scope, how, n_levels);
	item.is_unmeasured = item.bytes == 0;
	external_add(&item);
}

void
outside_count_array(const struct outside_scope *scope, CUarray array,
		    const CUDA_ARRAY3D_DESCRIPTOR *how)
{
	count(scope, EXTERNAL_BY_ARRAY, (uintptr_t)array, how, 0);
}

void
outside_count_mipmap(const struct outside_scope *scope, CUmipmappedArray mipmap,
		     const CUDA_ARRAY3D_DESCRIPTOR *how, unsigned n_levels)
{
	count(scope, EXTERNAL_BY_MIPMAP, (uintptr_t)mipmap, how, n_levels);
}
