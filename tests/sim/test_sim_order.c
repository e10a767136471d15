/* SPDX-License-Identifier: MIT */
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#include "tests/sim/test_sim.h"

/* Streams, events, waits: what runs when, and what waits for what. Manual mode unless said. */

enum {
	MS_200 = 200 * 1000 * 1000,
};

static CUcontext ctx;

static uint64_t
n_free_waits(void)
{
	struct cusim_report report;

	cusim_get_report(&report);
	return report.n_free_waits;
}

static void
nothing_runs_by_itself(void)
{
	CUstream s = new_stream(CU_STREAM_NON_BLOCKING);
	CUdeviceptr p;

	cuMemAlloc_v2(&p, 4096);
	*(volatile char *)p = 0;
	fill(s, p, 1, 16);
	fill(s, p, 2, 16);
	status(cuStreamQuery(s), CUDA_ERROR_NOT_READY, "submitted work is not done");
	ok(cusim_step(s, 1) == 1 && *(volatile char *)p == 1, "a step runs one operation");
	ok(cusim_step(NULL, 9) == 1 && *(volatile char *)p == 2, "steps end with the work");
	status(cuStreamQuery(s), CUDA_SUCCESS, "then the stream is empty");
	cuMemFree_v2(p);
	cuStreamDestroy_v2(s);
}

static void
the_legacy_stream_orders_blocking_streams(void)
{
	CUstream blocking = new_stream(CU_STREAM_DEFAULT),
		 other = new_stream(CU_STREAM_NON_BLOCKING);

	spin(blocking, 0, MS_200);
	spin(NULL, 0, 1);
	spin(other, 0, 1);
	ok(cusim_step(CU_STREAM_LEGACY, 1) == 0, "the legacy stream waits for a blocking stream");
	cusim_advance_ns(2);
	ok(cusim_step(other, 1) == 0, "a spin begins when it is first run");
	cusim_advance_ns(2);
	ok(cusim_step(other, 1) == 1, "a non-blocking stream does not wait");
	spin(CU_STREAM_PER_THREAD, 0, 1);
	cusim_advance_ns(MS_200);
	cusim_step(NULL, 9);
	cusim_advance_ns(2);
	ok(cusim_step(CU_STREAM_PER_THREAD, 1) == 0,
	   "a thread's stream waits for the legacy stream");
	cuStreamSynchronize(CU_STREAM_PER_THREAD);
	status(cuStreamQuery(NULL), CUDA_SUCCESS, "which is done before it");
	cuStreamDestroy_v2(blocking);
	cuStreamDestroy_v2(other);
}

static void *
query_own_stream(void *arg)
{
	cuCtxSetCurrent(ctx);
	*(CUresult *)arg = cuStreamQuery_ptsz(NULL);
	return NULL;
}

static void
stream_0_of_the_second_form_is_the_threads(void)
{
	CUresult there = CUDA_ERROR_UNKNOWN;
	CUevent event = new_event();
	pthread_t thread;
	CUdeviceptr p;

	cuMemAlloc_v2(&p, 512);
	cuMemsetD8Async_ptsz(p, 3, 512, NULL);
	status(cuStreamQuery(CU_STREAM_PER_THREAD), CUDA_ERROR_NOT_READY,
	       "a _ptsz body's stream 0 is the thread's");
	pthread_create(&thread, NULL, query_own_stream, &there);
	pthread_join(thread, NULL);
	status(there, CUDA_SUCCESS, "another thread has another one");
	cuEventRecord_ptsz(event, NULL);
	cuEventSynchronize(event);
	ok(*(char *)p == 3, "events of it cover its work");
	cuEventDestroy_v2(event);
	cuMemFree_v2(p);
}

static void
a_wait_runs_only_what_it_needs(void)
{
	CUstream a = new_stream(CU_STREAM_NON_BLOCKING), b = new_stream(CU_STREAM_NON_BLOCKING);
	CUevent event = new_event();

	spin(b, 0, 1);
	spin(a, 0, 1);
	cuStreamSynchronize(a);
	status(cuStreamQuery(b), CUDA_ERROR_NOT_READY,
	       "a stream's synchronise leaves others alone");
	cuEventRecord(event, b);
	cuStreamWaitEvent(a, event, 0);
	spin(b, 0, 1);
	cuStreamSynchronize(a);
	status(cuEventQuery(event), CUDA_SUCCESS, "an event wait brings its event about");
	status(cuStreamQuery(b), CUDA_ERROR_NOT_READY, "and not what came after it");
	cuCtxSynchronize();
	status(cuStreamQuery(b), CUDA_SUCCESS,
	       "the context's synchronise covers non-blocking streams");
	cuEventDestroy_v2(event);
	cuStreamDestroy_v2(a);
	cuStreamDestroy_v2(b);
}

static void
context_events_cover_and_order_nothing(void)
{
	CUstream a = new_stream(CU_STREAM_NON_BLOCKING), b = new_stream(CU_STREAM_NON_BLOCKING);
	CUevent all = new_event(), null = new_event();

	spin(a, 0, 1);
	status(cuCtxRecordEvent(ctx, all), CUDA_SUCCESS, "an event of the whole context");
	cuEventRecord(null, NULL);
	spin(b, 0, 1);
	cuEventSynchronize(null);
	status(cuEventQuery(all), CUDA_ERROR_NOT_READY,
	       "covers a non-blocking stream, the NULL stream's does not");
	cuStreamSynchronize(b);
	status(cuEventQuery(all), CUDA_ERROR_NOT_READY, "work after it goes on at once");
	cuStreamSynchronize(a);
	status(cuEventQuery(all), CUDA_SUCCESS, "it is complete with the last stream");
	spin(a, 0, 1);
	cuCtxRecordEvent(ctx, all);
	spin(a, 0, 1);
	cusim_step(a, 1);
	cusim_advance_ns(1);
	cusim_step(a, 1);
	status(cuEventQuery(all), CUDA_SUCCESS, "work submitted after it is not covered");
	cuCtxSynchronize();
	cuStreamDestroy_v2(a);
	cuStreamDestroy_v2(b);
	cuEventDestroy_v2(all);
	cuEventDestroy_v2(null);
}

static void
frees_wait(void)
{
	CUstream s = new_stream(CU_STREAM_NON_BLOCKING);
	uint64_t before = n_free_waits(), clock_ns;
	CUdeviceptr p, q;
	CUcontext own;
	void *h;

	cuMemAlloc_v2(&p, 512);
	cuMemHostAlloc(&h, 512, 0);
	spin(s, 0, MS_200);
	clock_ns = cusim_clock_ns();
	cuMemAlloc_v2(&q, 512);
	ok(cusim_clock_ns() == clock_ns, "an allocation does not wait");
	cuMemFree_v2(p);
	ok(cusim_clock_ns() - clock_ns == MS_200,
	   "a free waits for unrelated work in a non-blocking stream");
	ok(n_free_waits() == before + 1, "and is counted");
	spin(s, 0, MS_200);
	cuMemFreeHost(h);
	ok(cusim_clock_ns() - clock_ns == 2 * MS_200, "a free of pinned memory too");
	cuCtxCreate_v2(&own, 0, 0);
	cuMemAlloc_v2(&p, 512);
	cuCtxSetCurrent(ctx);
	spin(s, 0, MS_200);
	cuMemFree_v2(p);
	ok(n_free_waits() == before + 2, "memory of another context does not wait for this one");
	cuMemFree_v2(q);
	ok(n_free_waits() == before + 3, "memory of this one does");
	cuCtxDestroy_v2(own);
	cuCtxSetCurrent(ctx);
	cuStreamDestroy_v2(s);
}

static void
copies(void)
{
	CUstream s = new_stream(CU_STREAM_NON_BLOCKING);
	char *pinned, pageable[64] = "pageable";
	CUDA_MEMCPY2D rows = {.srcMemoryType = CU_MEMORYTYPE_HOST,
			      .dstMemoryType = CU_MEMORYTYPE_DEVICE,
			      .srcHost = "abcdefgh",
			      .srcPitch = 4,
			      .dstPitch = 512,
			      .WidthInBytes = 3,
			      .Height = 2};
	CUdeviceptr p;

	cuMemHostAlloc((void **)&pinned, 64, 0);
	cuMemAlloc_v2(&p, 4096);
	cuMemcpyHtoDAsync_v2(p, pageable, 64, s);
	status(cuStreamQuery(s), CUDA_ERROR_NOT_READY,
	       "an asynchronous copy from pageable memory is pending");
	strcpy(pageable, "changed");
	strcpy(pinned, "old");
	cuMemcpyDtoHAsync_v2(pinned, p, 64, s);
	ok(strcmp(pinned, "old") == 0, "a copy to pinned memory is pending");
	cuStreamSynchronize(s);
	ok(strcmp(pinned, "pageable") == 0, "the source was taken when the copy was submitted");
	cuMemcpyDtoHAsync_v2(pageable, p, 64, s);
	ok(strcmp(pageable, "pageable") == 0, "a copy to pageable memory returns when it is done");
	rows.dstDevice = p;
	status(cuMemcpy2D_v2(&rows), CUDA_SUCCESS, "a copy of rows");
	cuCtxSynchronize();
	ok(memcmp((char *)p, "abc", 3) == 0 && memcmp((char *)p + 512, "efg", 3) == 0,
	   "keeps both pitches");
	status(cuMemcpyDtoH_v2(pageable, 4096, 1), CUDA_ERROR_INVALID_VALUE,
	       "a bogus device pointer is refused");
	status(cuMemsetD8_v2(p, 1, 5 * MIB), CUDA_ERROR_INVALID_VALUE,
	       "a set beyond the memory too");
	cuMemsetD32Async(p, 0x01020304, 2, s);
	cuStreamSynchronize(s);
	ok(((uint32_t *)p)[1] == 0x01020304, "a set of words");
	cuMemFreeHost(pinned);
	cuMemFree_v2(p);
	cuStreamDestroy_v2(s);
}

static atomic_int n_called;

static void CUDA_CB
call(void *arg)
{
	CUdeviceptr p;

	atomic_fetch_add(&n_called, cuMemAlloc_v2(&p, 16) == CUDA_ERROR_NOT_PERMITTED ? 1 : 100);
	(void)arg;
}

static void
host_functions_and_values(void)
{
	CUstream a = new_stream(CU_STREAM_NON_BLOCKING), b = new_stream(CU_STREAM_NON_BLOCKING);
	CUdeviceptr flag;

	n_called = 0;
	cuLaunchHostFunc(a, call, NULL);
	cuStreamSynchronize(a);
	ok(n_called == 1, "a host function runs, and may call nothing");
	cuMemAlloc_v2(&flag, 8);
	cuMemsetD8_v2(flag, 0, 8);
	cuCtxSynchronize();
	cuStreamWaitValue32(a, flag, 3, CU_STREAM_WAIT_VALUE_EQ);
	ok(cusim_step(NULL, 9) == 0, "a value wait holds its stream");
	cuStreamWriteValue32(b, flag, 3, 0);
	cuStreamSynchronize(a);
	ok(*(uint32_t *)flag == 3, "until another stream has written the value");
	*(uint32_t *)flag = 0;
	spin(a, flag, 0);
	cusim_advance_ns(MS_200);
	ok(cusim_run_all() == 0, "a spin on a flag does not end by itself");
	*(uint32_t *)flag = 1;
	ok(cusim_run_all() == 1, "but when the flag is set");
	cuMemFree_v2(flag);
	cuStreamDestroy_v2(a);
	cuStreamDestroy_v2(b);
}

static void
freed_memory_is_noticed(void)
{
	CUstream s = new_stream(CU_STREAM_NON_BLOCKING), other = new_stream(CU_STREAM_NON_BLOCKING);
	uint64_t before = cusim_violations();
	CUdeviceptr p;

	cuMemAllocAsync(&p, 4096, s);
	fill(other, p, 1, 16);
	cuMemFreeAsync(p, s);
	cuStreamSynchronize(s);
	fprintf(stderr, "# the next line is wanted\n");
	cuStreamSynchronize(other);
	ok(cusim_violations() == before + 1,
	   "a kernel that runs after its memory was freed is a violation");
	cuMemAlloc_v2(&p, 4096);
	cuMemFree_v2(p);
	fill(s, p, 1, 16);
	cuCtxSynchronize();
	ok(cusim_violations() == before + 2, "so is one on memory freed before");
	cuStreamDestroy_v2(s);
	cuStreamDestroy_v2(other);
}

static void
destroyed_streams_finish(void)
{
	CUstream s = new_stream(CU_STREAM_NON_BLOCKING);
	CUevent event = new_event();

	spin(s, 0, 5);
	cuEventRecord(event, s);
	status(cuStreamDestroy_v2(s), CUDA_SUCCESS, "a stream with work is destroyed at once");
	status(cuStreamQuery(s), CUDA_ERROR_INVALID_HANDLE, "its handle is no more");
	status(cuEventQuery(event), CUDA_ERROR_NOT_READY, "its work is not done by that");
	cuEventSynchronize(event);
	status(cuEventQuery(event), CUDA_SUCCESS, "but will be");
	cuEventDestroy_v2(event);
}

static void
two_devices(void)
{
	CUcontext second;
	CUdeviceptr here, there;
	CUstream s;
	CUevent all = new_event();
	uint64_t before = n_free_waits();

	cuMemAlloc_v2(&here, 4096);
	cuDevicePrimaryCtxRetain(&second, 1);
	cuCtxSetCurrent(second);
	cuMemAlloc_v2(&there, 4096);
	s = new_stream(CU_STREAM_NON_BLOCKING);
	cuMemcpyPeerAsync(there, second, here, ctx, 4096, s);
	cuCtxSetCurrent(ctx);
	cuCtxRecordEvent(ctx, all);
	status(cuEventQuery(all), CUDA_ERROR_NOT_READY,
	       "a peer copy is covered by the context that owns its memory");
	cuMemFree_v2(here);
	ok(n_free_waits() == before + 1, "and waited for by a free of it");
	cuMemAlloc_v2(&here, 4096);
	cuCtxSetCurrent(second);
	cuCtxEnablePeerAccess(ctx, 0);
	cuMemcpyPeerAsync(there, second, here, ctx, 4096, s);
	cuCtxSetCurrent(ctx);
	cuCtxRecordEvent(ctx, all);
	status(cuEventQuery(all), CUDA_SUCCESS, "with peer access it is not covered");
	cusim_run_all();
	cuMemFree_v2(here);
	cuDevicePrimaryCtxRelease_v2(1);
}

static void
green_contexts(void)
{
	CUdevResourceDesc desc;
	CUdevResource sms;
	CUgreenCtx green;
	CUcontext as_ctx;
	CUstream s, other = new_stream(CU_STREAM_NON_BLOCKING);
	CUevent event = new_event();

	cuDeviceGetDevResource(0, &sms, CU_DEV_RESOURCE_TYPE_SM);
	cuDevResourceGenerateDesc(&desc, &sms, 1);
	status(cuGreenCtxCreate(&green, desc, 0, CU_GREEN_CTX_DEFAULT_STREAM), CUDA_SUCCESS,
	       "a green context");
	cuCtxFromGreenCtx(&as_ctx, green);
	ok(as_ctx != ctx, "has a handle of its own");
	cuGreenCtxStreamCreate(&s, green, CU_STREAM_NON_BLOCKING, 0);
	spin(other, 0, 1);
	status(cuCtxRecordEvent(as_ctx, event), CUDA_SUCCESS, "its event");
	status(cuEventQuery(event), CUDA_SUCCESS, "covers its own streams only");
	spin(s, 0, 1);
	cuCtxRecordEvent(as_ctx, event);
	status(cuEventQuery(event), CUDA_ERROR_NOT_READY, "and all of them");
	cuCtxSynchronize();
	status(cuEventQuery(event), CUDA_SUCCESS, "the primary context covers them too");
	cuGreenCtxDestroy(green);
	cuStreamDestroy_v2(other);
	cuEventDestroy_v2(event);
}

static void *
work(void *arg)
{
	CUstream s;
	CUdeviceptr p;
	char back[256];
	long n_wrong = 0, id = (long)arg;

	cuCtxSetCurrent(ctx);
	s = new_stream(CU_STREAM_NON_BLOCKING);
	for (int i = 0; i < 200; i++) {
		cuMemAlloc_v2(&p, 256);
		fill(s, p, (unsigned)id, 256);
		cuMemcpyDtoHAsync_v2(back, p, 256, s);
		n_wrong += back[0] != (char)id || back[255] != (char)id;
		cuMemFree_v2(p);
	}
	cuStreamDestroy_v2(s);
	return (void *)n_wrong;
}

static void
automatic_mode(void)
{
	pthread_t threads[4];
	struct timespec begin, end;
	CUstream s = new_stream(CU_STREAM_NON_BLOCKING);
	long n_wrong = 0;
	void *result;

	cusim_set_mode(CUSIM_AUTO);
	clock_gettime(CLOCK_MONOTONIC, &begin);
	spin(s, 0, (uint64_t)60 * 1000 * 1000 * 1000);
	status(cuStreamSynchronize(s), CUDA_SUCCESS, "in automatic mode a minute of spinning ends");
	clock_gettime(CLOCK_MONOTONIC, &end);
	ok(end.tv_sec - begin.tv_sec < 30, "without taking a minute");
	n_called = 0;
	cuLaunchHostFunc(s, call, NULL);
	cuStreamSynchronize(s);
	ok(n_called == 1, "host functions run");
	for (long i = 0; i < 4; i++)
		pthread_create(&threads[i], NULL, work, (void *)(i + 1));
	for (int i = 0; i < 4; i++) {
		pthread_join(threads[i], &result);
		n_wrong += (long)result;
	}
	ok(n_wrong == 0, "four threads find their own bytes");
	cuStreamDestroy_v2(s);
}

static void
the_ring_keeps_what_happened(void)
{
	static struct cusim_op ops[64];
	CUstream s = new_stream(CU_STREAM_NON_BLOCKING);
	CUevent event = new_event();
	CUdeviceptr p;
	size_t n;

	cuMemAlloc_v2(&p, 512);
	fill(s, p, 1, 100);
	cuEventRecord(event, s);
	cuEventSynchronize(event);
	n = cusim_ops(ops, 3);
	ok(n == 3 && ops[0].kind == CUSIM_OP_KERNEL && ops[1].kind == CUSIM_OP_EVENT_RECORD &&
		   ops[2].kind == CUSIM_OP_SYNC_EVENT,
	   "operations and marks in the order of submission");
	ok(ops[0].n_ranges == 1 && ops[0].ranges[0].addr == p &&
		   ops[0].ranges[0].size_bytes == 100 && ops[0].ranges[0].is_write,
	   "with the ranges they touch");
	ok(ops[0].seq_submit < ops[0].seq_complete && ops[0].seq_complete < ops[1].seq_complete,
	   "and when they ended");
	ok(ops[1].record != 0 && ops[1].record == ops[2].record, "and the record that ties them");
	cuMemFree_v2(p);
	cuStreamDestroy_v2(s);
	cuEventDestroy_v2(event);
}

int
main(void)
{
	setenv("CUSIM_DEVICES", "2", 1);
	setenv("CUSIM_MODE", "manual", 1);
	ctx = start(CUSIM_MANUAL);
	nothing_runs_by_itself();
	the_legacy_stream_orders_blocking_streams();
	stream_0_of_the_second_form_is_the_threads();
	a_wait_runs_only_what_it_needs();
	context_events_cover_and_order_nothing();
	frees_wait();
	copies();
	host_functions_and_values();
	destroyed_streams_finish();
	two_devices();
	green_contexts();
	the_ring_keeps_what_happened();
	ok(cusim_violations() == 0, "no operation touched memory that was gone");
	freed_memory_is_noticed();
	automatic_mode();
	return finish();
}
