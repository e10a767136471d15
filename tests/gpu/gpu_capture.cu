/* SPDX-License-Identifier: MIT */
/*
 * What calls answer while a stream is captured: mode x call x thread that calls.
 *
 * For each cell: a kernel is captured, the call made, another kernel captured, the capture ended,
 * the graph launched. Prints one JSON object: for each cell the status of the call, whether the
 * capture was still active after it (cudaStreamCaptureStatus), the status of its end, and whether
 * the graph's output was right (-1: there was no graph). Addresses and sizes are not printed.
 */
#include <functional>
#include <thread>
#include <vector>

#include "gpu_common.cuh"

enum { BYTES = 1 << 20 };

struct table {
	cudaStream_t captured, other, blocking;
	cudaEvent_t event, recorded;
	unsigned *output, *device, *to_free, *async;
	unsigned *pinned, *pinned_to_free;
	unsigned pageable[16];
	cudaGraphExec_t exec;
};

struct call {
	const char *name;
	std::function<cudaError_t(struct table *)> make;
};

static __global__ void
add(unsigned *output, unsigned n)
{
	*output += n;
}

static cudaError_t
launch(cudaStream_t stream, unsigned *output)
{
	add<<<1, 1, 0, stream>>>(output, 1);
	return cudaGetLastError();
}

static cudaError_t
attributes_of(void *pointer)
{
	cudaPointerAttributes attributes;

	return cudaPointerGetAttributes(&attributes, pointer);
}

static cudaError_t
instantiate()
{
	cudaGraphExec_t exec;
	cudaGraph_t graph;
	cudaError_t r = cudaGraphCreate(&graph, 0);

	if (r)
		return r;
	r = cudaGraphInstantiate(&exec, graph, 0);
	if (!r)
		r = cudaGraphExecDestroy(exec);
	cudaGraphDestroy(graph);
	return r;
}

static cudaError_t
make_stream()
{
	cudaStream_t stream;
	const cudaError_t r = cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);

	return r ? r : cudaStreamDestroy(stream);
}

static cudaError_t
take(void **pointer, cudaError_t r)
{
	if (r)
		*pointer = NULL;
	return r;
}

static const std::vector<struct call> &
calls()
{
	static void *taken;
	static size_t n_free, n_total;
	using T = struct table *;
	static const std::vector<struct call> all = {
		{"malloc", [](T) { return take(&taken, cudaMalloc(&taken, BYTES)); }},
		{"malloc_large", [](T) { return take(&taken, cudaMalloc(&taken, 64 << 20)); }},
		{"free", [](T t) { return cudaFree(t->to_free); }},
		{"free_null", [](T) { return cudaFree(NULL); }},
		{"free_unknown", [](T) { return cudaFree((void *)0x1000); }},
		{"hostalloc", [](T) { return cudaHostAlloc(&taken, BYTES, 0); }},
		{"freehost", [](T t) { return cudaFreeHost(t->pinned_to_free); }},
		{"managed", [](T) { return cudaMallocManaged(&taken, BYTES); }},
		{"pitch", [](T) { return cudaMallocPitch(&taken, &n_free, 1000, 10); }},
		{"mallocasync_captured",
		 [](T t) { return cudaMallocAsync(&taken, BYTES, t->captured); }},
		{"mallocasync_other", [](T t) { return cudaMallocAsync(&taken, BYTES, t->other); }},
		{"freeasync_captured", [](T t) { return cudaFreeAsync(t->async, t->captured); }},
		{"freeasync_other", [](T t) { return cudaFreeAsync(t->async, t->other); }},
		{"freeasync_plain_captured",
		 [](T t) { return cudaFreeAsync(t->to_free, t->captured); }},
		{"memset", [](T t) { return cudaMemset(t->device, 0, 64); }},
		{"memset_captured",
		 [](T t) { return cudaMemsetAsync(t->device, 0, 64, t->captured); }},
		{"memcpy_to_device",
		 [](T t) { return cudaMemcpy(t->device, t->pageable, 64, cudaMemcpyHostToDevice); }},
		{"memcpy_to_host",
		 [](T t) { return cudaMemcpy(t->pageable, t->device, 64, cudaMemcpyDeviceToHost); }},
		{"memcpyasync_captured",
		 [](T t) {
			 return cudaMemcpyAsync(t->pinned, t->device, 64, cudaMemcpyDeviceToHost,
						t->captured);
		 }},
		{"memcpyasync_other",
		 [](T t) {
			 return cudaMemcpyAsync(t->pinned, t->device, 64, cudaMemcpyDeviceToHost,
						t->other);
		 }},
		{"event_record_captured", [](T t) { return cudaEventRecord(t->event, t->captured); }},
		{"event_record_other", [](T t) { return cudaEventRecord(t->event, t->other); }},
		{"event_record_legacy", [](T t) { return cudaEventRecord(t->event, 0); }},
		{"event_query", [](T t) { return cudaEventQuery(t->recorded); }},
		{"event_synchronize", [](T t) { return cudaEventSynchronize(t->recorded); }},
		{"wait_event_captured",
		 [](T t) { return cudaStreamWaitEvent(t->captured, t->recorded, 0); }},
		{"stream_synchronize_captured",
		 [](T t) { return cudaStreamSynchronize(t->captured); }},
		{"stream_synchronize_other", [](T t) { return cudaStreamSynchronize(t->other); }},
		{"stream_query_captured", [](T t) { return cudaStreamQuery(t->captured); }},
		{"stream_query_other", [](T t) { return cudaStreamQuery(t->other); }},
		{"device_synchronize", [](T) { return cudaDeviceSynchronize(); }},
		{"memgetinfo", [](T) { return cudaMemGetInfo(&n_free, &n_total); }},
		{"attributes_device", [](T t) { return attributes_of(t->device); }},
		{"attributes_pinned", [](T t) { return attributes_of(t->pinned); }},
		{"launch_other", [](T t) { return launch(t->other, t->device); }},
		{"launch_blocking", [](T t) { return launch(t->blocking, t->device); }},
		{"launch_legacy", [](T t) { return launch(cudaStreamLegacy, t->device); }},
		{"launch_per_thread", [](T t) { return launch(cudaStreamPerThread, t->device); }},
		{"host_register",
		 [](T t) {
			 const cudaError_t r = cudaHostRegister(t->pageable, 64, 0);
			 return r ? r : cudaHostUnregister(t->pageable);
		 }},
		{"stream_create", [](T) { return make_stream(); }},
		{"graph_instantiate", [](T) { return instantiate(); }},
		{"graph_upload", [](T t) { return cudaGraphUpload(t->exec, t->other); }},
		{"graph_launch_other", [](T t) { return cudaGraphLaunch(t->exec, t->other); }},
		{"graph_launch_captured", [](T t) { return cudaGraphLaunch(t->exec, t->captured); }},
	};
	return all;
}

static void
set_up(struct table *t)
{
	cudaGraph_t graph;

	*t = {};
	MUST(cudaStreamCreateWithFlags(&t->captured, cudaStreamNonBlocking));
	MUST(cudaStreamCreateWithFlags(&t->other, cudaStreamNonBlocking));
	MUST(cudaStreamCreate(&t->blocking));
	MUST(cudaEventCreate(&t->event));
	MUST(cudaEventCreate(&t->recorded));
	MUST(cudaMalloc(&t->output, 4));
	MUST(cudaMalloc(&t->device, BYTES));
	MUST(cudaMalloc(&t->to_free, BYTES));
	MUST(cudaMallocAsync(&t->async, BYTES, t->other));
	MUST(cudaHostAlloc(&t->pinned, 4096, 0));
	MUST(cudaHostAlloc(&t->pinned_to_free, 4096, 0));
	MUST(cudaMemset(t->output, 0, 4));
	MUST(cudaMemset(t->device, 0, BYTES));
	MUST(cudaGraphCreate(&graph, 0));
	MUST(cudaGraphInstantiate(&t->exec, graph, 0));
	MUST(cudaGraphDestroy(graph));
	MUST(cudaEventRecord(t->recorded, t->other));
	MUST(launch(t->other, t->device));
	MUST(cudaDeviceSynchronize());
}

/* What the call took is left to the process's end, and so is what a broken capture holds. */
static void
tear_down(struct table *t)
{
	cudaDeviceSynchronize();
	cudaStreamDestroy(t->captured);
	cudaStreamDestroy(t->other);
	cudaStreamDestroy(t->blocking);
	cudaEventDestroy(t->event);
	cudaEventDestroy(t->recorded);
	cudaGraphExecDestroy(t->exec);
	cudaGetLastError();
}

/* 1: the two kernels of the capture ran; 0: they did not, or not rightly; -1: no graph. */
static int
output_of(struct table *t, cudaGraph_t graph)
{
	cudaGraphExec_t exec;
	unsigned seen = 0;

	if (!graph || cudaGraphInstantiate(&exec, graph, 0))
		return -1;
	const cudaError_t r = cudaGraphLaunch(exec, t->other);
	if (r || cudaStreamSynchronize(t->other) ||
	    cudaMemcpy(&seen, t->output, 4, cudaMemcpyDeviceToHost))
		return 0;
	cudaGraphExecDestroy(exec);
	return seen == 11;
}

static void
cell(cudaStreamCaptureMode mode, const char *mode_name, const struct call &call, bool is_other,
     const char *separator)
{
	cudaStreamCaptureStatus after = cudaStreamCaptureStatusNone;
	cudaGraph_t graph = NULL;
	struct table t;
	cudaError_t status;

	set_up(&t);
	MUST(cudaStreamBeginCapture(t.captured, mode));
	add<<<1, 1, 0, t.captured>>>(t.output, 1);
	if (is_other)
		std::thread([&] { status = call.make(&t); }).join();
	else
		status = call.make(&t);
	cudaStreamIsCapturing(t.captured, &after);
	add<<<1, 1, 0, t.captured>>>(t.output, 10);
	const cudaError_t end = cudaStreamEndCapture(t.captured, &graph);
	cudaGetLastError();
	printf("\"%s %s %s\": [%d, %d, %d, %d]%s", mode_name, call.name,
	       is_other ? "other" : "capturing", status, after, end,
	       output_of(&t, end ? NULL : graph), separator);
	cudaGetLastError();
	tear_down(&t);
}

int
main()
{
	static const cudaStreamCaptureMode modes[] = {cudaStreamCaptureModeGlobal,
						      cudaStreamCaptureModeThreadLocal,
						      cudaStreamCaptureModeRelaxed};
	static const char *const names[] = {"global", "thread_local", "relaxed"};

	printf("{\"cells\": {");
	for (int mode = 0; mode < 3; mode++) {
		for (const struct call &call : calls()) {
			const bool is_last = mode == 2 && &call == &calls().back();

			cell(modes[mode], names[mode], call, false, ", ");
			cell(modes[mode], names[mode], call, true, is_last ? "" : ", ");
		}
	}
	printf("}}\n");
	return 0;
}
