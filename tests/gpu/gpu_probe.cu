/* SPDX-License-Identifier: MIT */
/*
 * Questions to the driver that the order rules rest on. Prints one JSON object.
 *
 * Does an event of cuCtxRecordEvent cover the unfinished work of a stream that was destroyed before?
 * What do cuCtxRecordEvent, cuEventRecord on the one busy stream, and membarrier cost? Which calls
 * of the runtime change the current context (run with gpu_spy.so preloaded: how many of them went
 * through the driver's functions as the runtime looked them up)?
 */
#include <atomic>
#include <cuda.h>
#include <dlfcn.h>
#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "gpu_clock.cuh"
#include "gpu_json.h"

enum { N_COSTS = 2000 };

static void
destroyed()
{
	CUcontext context;
	cudaStream_t stream;
	CUevent event;

	MUST(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
	cuCtxGetCurrent(&context);
	cuEventCreate(&event, CU_EVENT_DISABLE_TIMING);
	const uint64_t start_ns = host_now_ns();
	hold<<<1, 1, 0, stream>>>(100000000);
	MUST(cudaGetLastError());
	MUST(cudaStreamDestroy(stream));
	const uint64_t destroyed_ns = host_now_ns();
	const CUresult recorded = cuCtxRecordEvent(context, event);
	const CUresult query = cuEventQuery(event);
	const CUresult end = cuEventSynchronize(event);
	const uint64_t end_ns = host_now_ns();
	MUST(cudaDeviceSynchronize());
	printf("\"destroyed_stream\": {\"kernel_ms\": 100, \"destroy_ms\": %.3f, \"record\": %d, "
	       "\"query\": %d, \"synchronize\": %d, \"event_after_ms\": %.3f, "
	       "\"device_after_ms\": %.3f, \"covers\": %s}, ",
	       (destroyed_ns - start_ns) / 1e6, recorded, query, end, (end_ns - start_ns) / 1e6,
	       (host_now_ns() - start_ns) / 1e6, end_ns - start_ns > 90000000 ? "true" : "false");
	cuEventDestroy(event);
}

/* By turns, while the one stream is busy. */
static void
record_costs()
{
	std::vector<uint64_t> context_ns, stream_ns;
	CUcontext context;
	cudaStream_t stream;
	CUevent event;

	MUST(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
	cuCtxGetCurrent(&context);
	cuEventCreate(&event, CU_EVENT_DISABLE_TIMING);
	hold<<<1, 1, 0, stream>>>(200000000);
	for (int i = 0; i < N_COSTS / 8; i++) { /* stays below the queue's length */
		uint64_t start_ns = host_now_ns();

		cuCtxRecordEvent(context, event);
		context_ns.push_back(host_now_ns() - start_ns);
		start_ns = host_now_ns();
		cuEventRecord(event, stream);
		stream_ns.push_back(host_now_ns() - start_ns);
	}
	const bool is_busy = cudaStreamQuery(stream) == cudaErrorNotReady;
	cudaGetLastError();
	MUST(cudaDeviceSynchronize());
	printf("\"record_one_busy_stream\": {\"stayed_busy\": %s, ", is_busy ? "true" : "false");
	print_percentiles("cuCtxRecordEvent", context_ns.data(), context_ns.size());
	printf(", ");
	print_percentiles("cuEventRecord", stream_ns.data(), stream_ns.size());
	printf("}, ");
	cuEventDestroy(event);
	MUST(cudaStreamDestroy(stream));
}

/* The other threads run all the time: the barrier interrupts those on other cores. */
static void
membarrier_cost(int n_threads)
{
	std::vector<uint64_t> times_ns;
	std::vector<std::thread> threads;
	std::atomic<bool> is_over{false};
	char name[16];

	for (int i = 1; i < n_threads; i++)
		threads.emplace_back([&] {
			while (!is_over.load(std::memory_order_relaxed))
				;
		});
	for (int i = 0; i < N_COSTS; i++) {
		const uint64_t start_ns = host_now_ns();

		syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0);
		times_ns.push_back(host_now_ns() - start_ns);
	}
	is_over = true;
	for (auto &thread : threads)
		thread.join();
	snprintf(name, sizeof(name), "%d", n_threads);
	print_percentiles(name, times_ns.data(), times_ns.size());
}

/* Changes of the current context that the spy saw, -1 without it. */
static long
n_spied()
{
	const auto count = (long (*)())dlsym(RTLD_DEFAULT, "spy_context_changes");

	return count ? count() : -1;
}

static void
context_step(const char *name, cudaError_t (*step)(), const char *separator)
{
	CUcontext before = NULL, after = NULL;
	const long spied = n_spied();

	cuCtxGetCurrent(&before);
	const cudaError_t r = step();
	const long n_calls = n_spied() - spied;
	cuCtxGetCurrent(&after);
	printf("\"%s\": {\"status\": %d, \"changed\": %s, \"had\": %s, \"has\": %s, "
	       "\"calls_seen\": %ld}%s",
	       name, r, before != after ? "true" : "false", before ? "true" : "false",
	       after ? "true" : "false", spied < 0 ? -1 : n_calls, separator);
}

static void
context_steps()
{
	cuInit(0);
	printf("\"context\": {");
	context_step("first_use", [] { return cudaFree(NULL); }, ", ");
	context_step("set_device", [] { return cudaSetDevice(0); }, ", ");
	context_step("none", [] { return (cudaError_t)cuCtxSetCurrent(NULL); }, ", ");
	context_step("use_without", [] { return cudaFree(NULL); }, ", ");
	context_step("none_again", [] { return (cudaError_t)cuCtxSetCurrent(NULL); }, ", ");
	context_step("set_device_without", [] { return cudaSetDevice(0); }, ", ");
	std::thread([] {
		context_step("thread_first_use", [] { return cudaFree(NULL); }, ", ");
	}).join();
	std::thread([] {
		context_step("thread_set_device", [] { return cudaSetDevice(0); }, ", ");
	}).join();
	context_step("reset", [] { return cudaDeviceReset(); }, ", ");
	context_step("use_after_reset", [] { return cudaFree(NULL); }, "");
	printf("}, ");
}

int
main()
{
	printf("{");
	context_steps();
	destroyed();
	record_costs();
	syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0);
	printf("\"membarrier\": {\"n_cpus\": %ld, ", sysconf(_SC_NPROCESSORS_ONLN));
	membarrier_cost(1);
	printf(", ");
	membarrier_cost(8);
	printf(", ");
	membarrier_cost(64);
	printf("}}\n");
	return 0;
}
