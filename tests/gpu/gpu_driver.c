/* SPDX-License-Identifier: MIT */
/*
 * A program that links libcuda and uses nothing else: allocations of random sizes, stamped by a
 * kernel, copied back and compared, on several streams. Prints one line that is the same for every
 * run.
 */
#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { N_ROUNDS = 400, N_LIVE = 24, N_STREAMS = 4, N_WORDS_MAX = 1 << 20, N_TEAM = 256 };

#define MUST(call) \
	do { \
		const CUresult must_status = (call); \
		if (must_status != CUDA_SUCCESS) { \
			fprintf(stderr, "%s:%d: %s = %d\n", __FILE__, __LINE__, #call, \
				must_status); \
			exit(1); \
		} \
	} while (0)

/* block[i] = value ^ i for i < n_words, one thread a word */
static const char stamp_ptx[] =
	".version 8.0\n"
	".target sm_75\n"
	".address_size 64\n"
	".visible .entry stamp(.param .u64 block, .param .u32 n_words, .param .u32 value)\n"
	"{\n"
	"	.reg .pred %p;\n"
	"	.reg .b32 %r<7>;\n"
	"	.reg .b64 %d<4>;\n"
	"	ld.param.u64 %d0, [block];\n"
	"	ld.param.u32 %r0, [n_words];\n"
	"	ld.param.u32 %r1, [value];\n"
	"	mov.u32 %r2, %ctaid.x;\n"
	"	mov.u32 %r3, %ntid.x;\n"
	"	mov.u32 %r4, %tid.x;\n"
	"	mad.lo.u32 %r5, %r2, %r3, %r4;\n"
	"	setp.ge.u32 %p, %r5, %r0;\n"
	"	@%p bra done;\n"
	"	xor.b32 %r6, %r1, %r5;\n"
	"	cvta.to.global.u64 %d1, %d0;\n"
	"	mul.wide.u32 %d2, %r5, 4;\n"
	"	add.s64 %d3, %d1, %d2;\n"
	"	st.global.u32 [%d3], %r6;\n"
	"done:\n"
	"	ret;\n"
	"}\n";

static struct block {
	CUdeviceptr address;
	unsigned int n_words, value;
	CUstream stream;
} blocks[N_LIVE];

static CUfunction stamp;
static unsigned int *seen;
static uint64_t random_state = 0x2545f4914f6cdd1dull, checksum;
static unsigned long n_wrong;

static uint64_t
next_random(void)
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	random_state ^= random_state << 17;
	return random_state;
}

static void
make(struct block *block, CUstream stream)
{
	void *parameters[] = {&block->address, &block->n_words, &block->value};

	block->n_words = 1 + (unsigned int)(next_random() % (64u << next_random() % 15));
	block->value = (unsigned int)next_random();
	block->stream = stream;
	MUST(cuMemAlloc_v2(&block->address, block->n_words * sizeof(*seen)));
	MUST(cuLaunchKernel(stamp, (block->n_words + N_TEAM - 1) / N_TEAM, 1, 1, N_TEAM, 1, 1, 0,
			    stream, parameters, NULL));
}

static void
drop(struct block *block)
{
	MUST(cuMemcpyDtoHAsync_v2(seen, block->address, block->n_words * sizeof(*seen),
				  block->stream));
	MUST(cuStreamSynchronize(block->stream));
	for (unsigned int i = 0; i < block->n_words; i++) {
		n_wrong += seen[i] != (block->value ^ i);
		checksum = checksum * 31 + seen[i];
	}
	MUST(cuMemFree_v2(block->address));
	block->address = 0;
}

int
main(void)
{
	CUstream streams[N_STREAMS] = {NULL, CU_STREAM_PER_THREAD};
	CUcontext context;
	CUdevice device;
	CUmodule module;

	MUST(cuInit(0));
	MUST(cuDeviceGet(&device, 0));
	MUST(cuDevicePrimaryCtxRetain(&context, device));
	MUST(cuCtxSetCurrent(context));
	MUST(cuModuleLoadData(&module, stamp_ptx));
	MUST(cuModuleGetFunction(&stamp, module, "stamp"));
	MUST(cuStreamCreate(&streams[2], CU_STREAM_DEFAULT));
	MUST(cuStreamCreate(&streams[3], CU_STREAM_NON_BLOCKING));
	MUST(cuMemHostAlloc((void **)&seen, N_WORDS_MAX * sizeof(*seen), 0));

	for (int i = 0; i < N_ROUNDS; i++) {
		struct block *block = &blocks[next_random() % N_LIVE];

		if (block->address)
			drop(block);
		make(block, streams[next_random() % N_STREAMS]);
	}
	for (int i = 0; i < N_LIVE; i++) {
		if (blocks[i].address)
			drop(&blocks[i]);
	}
	MUST(cuMemFreeHost(seen));
	MUST(cuDevicePrimaryCtxRelease_v2(device));
	printf("driver: %d blocks, %lu words wrong, checksum %016llx\n", N_ROUNDS, n_wrong,
	       (unsigned long long)checksum);
	return n_wrong ? 1 : 0;
}
