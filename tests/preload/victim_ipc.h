/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * An importer in a process of its own, which does what it is told over a socket.
 *
 * import_*() are called by the exporter; importer_main() is the other process; start() starts
 * either.
 */
#include <pthread.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/preload/victim.h"

enum import_op {
	IMPORT_OPEN,
	IMPORT_CLOSE,
	IMPORT_COUNT_WRONG,
	IMPORT_RANGE,
	IMPORT_RESET,
	IMPORT_FAIL,
	IMPORT_STORM,
	IMPORT_GREEN,
};

struct import_request {
	enum import_op op;
	unsigned version; /* IMPORT_OPEN: of the function */
	CUipcMemHandle handle;
	CUdeviceptr addr;
	size_t n_bytes;
	unsigned int value; /* IMPORT_COUNT_WRONG: of each word; IMPORT_FAIL: the code */
	size_t n_threads;   /* IMPORT_STORM: as many requests make one */
	char name[40];      /* IMPORT_FAIL: of the function whose next call fails */
};

struct import_reply {
	CUresult status;
	CUdeviceptr addr, start;
	size_t n_bytes, range_bytes;
	unsigned long long id;
};

static const CUdeviceptr import_untouched = 0x7777;
static int import_socket = -1;

static struct import_reply
import_call(const struct import_request *request)
{
	struct import_reply reply;

	if (send(import_socket, request, sizeof(*request), MSG_NOSIGNAL) != sizeof(*request) ||
	    recv(import_socket, &reply, sizeof(reply), MSG_WAITALL) != sizeof(reply)) {
		victim_fail(__FILE__, __LINE__, "the importer is gone");
		exit(1);
	}
	return reply;
}

static struct import_reply
import_open(const CUipcMemHandle *handle, unsigned version)
{
	return import_call(
		&(struct import_request){.op = IMPORT_OPEN, .handle = *handle, .version = version});
}

static CUresult
import_close(CUdeviceptr addr)
{
	return import_call(&(struct import_request){.op = IMPORT_CLOSE, .addr = addr}).status;
}

/* Words of the importer's memory that are not value; SIZE_MAX: it could not be read. */
static size_t
import_count_wrong(CUdeviceptr addr, size_t n_bytes, unsigned int value)
{
	const struct import_reply reply = import_call(&(struct import_request){
		.op = IMPORT_COUNT_WRONG, .addr = addr, .n_bytes = n_bytes, .value = value});

	return reply.status == CUDA_SUCCESS ? reply.n_bytes : SIZE_MAX;
}

/* cuMemGetAddressRange, and the same and the id from cuPointerGetAttributes. */
static struct import_reply
import_range(CUdeviceptr addr)
{
	return import_call(&(struct import_request){.op = IMPORT_RANGE, .addr = addr});
}

static void
import_reset(void)
{
	MUST(import_call(&(struct import_request){.op = IMPORT_RESET}).status);
}

/* The importer goes on in a green context of its device, or comes back. */
static CUresult
import_green(bool is_green)
{
	return import_call(&(struct import_request){.op = IMPORT_GREEN, .value = is_green}).status;
}

/* Of the software device: the importer's next call of the function fails; "": none does any more.
 */
static void
import_fail(const char *name, CUresult code)
{
	struct import_request request = {.op = IMPORT_FAIL, .value = code};

	snprintf(request.name, sizeof(request.name), "%s", name);
	MUST(import_call(&request).status);
}

static CUresult
serve_open(const struct import_request *request, struct import_reply *reply)
{
	const unsigned flags = CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS;

	reply->addr = import_untouched;
	return request->version == 1 ? cuIpcOpenMemHandle(&reply->addr, request->handle, flags)
				     : cuIpcOpenMemHandle_v2(&reply->addr, request->handle, flags);
}

static CUresult
serve_count_wrong(const struct import_request *request, struct import_reply *reply)
{
	const size_t n_words = request->n_bytes / sizeof(unsigned int);
	unsigned int *words = malloc(request->n_bytes);
	CUresult r = cuMemcpyDtoH_v2(words, request->addr, n_words * sizeof(*words));

	reply->n_bytes = 0;
	for (size_t i = 0; i < n_words && r == CUDA_SUCCESS; i++)
		reply->n_bytes += words[i] != request->value;
	free(words);
	return r;
}

static CUresult
serve_range(const struct import_request *request, struct import_reply *reply)
{
	CUpointer_attribute names[] = {CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
				       CU_POINTER_ATTRIBUTE_RANGE_SIZE,
				       CU_POINTER_ATTRIBUTE_BUFFER_ID};
	void *values[] = {&reply->start, &reply->range_bytes, &reply->id};

	cuPointerGetAttributes(3, names, values, request->addr);
	return cuMemGetAddressRange_v2(&reply->addr, &reply->n_bytes, request->addr);
}

struct storm {
	CUcontext context;
	CUipcMemHandle handle;
	size_t n_bytes;
	unsigned int value;
	CUresult status;
	size_t n_wrong;
};

/* Opens, reads and closes one block again and again, beside others that do so with its neighbours.
 */
static void *
storm_thread(void *arg)
{
	enum { N_TIMES = 200 };
	struct storm *storm = arg;
	struct import_request request = {
		.handle = storm->handle, .n_bytes = storm->n_bytes, .value = storm->value};
	struct import_reply reply;

	storm->status = cuCtxSetCurrent(storm->context);
	for (int i = 0; i < N_TIMES && storm->status == CUDA_SUCCESS; i++) {
		request.version = 1 + i % 2;
		storm->status = serve_open(&request, &reply);
		if (storm->status != CUDA_SUCCESS)
			break;
		request.addr = reply.addr;
		storm->status = serve_count_wrong(&request, &reply);
		storm->n_wrong += reply.n_bytes;
		if (storm->status == CUDA_SUCCESS)
			storm->status = cuIpcCloseMemHandle(request.addr);
	}
	return NULL;
}

/* Adds a thread; the last one lets all of them run. */
static CUresult
serve_storm(const struct import_request *request, struct import_reply *reply)
{
	enum { N_THREADS_MAX = 16 };
	static struct storm storms[N_THREADS_MAX];
	static size_t n_storms;
	pthread_t threads[N_THREADS_MAX];
	CUresult r = CUDA_SUCCESS;

	storms[n_storms] = (struct storm){
		.handle = request->handle, .n_bytes = request->n_bytes, .value = request->value};
	MUST(cuCtxGetCurrent(&storms[n_storms].context));
	if (++n_storms < request->n_threads)
		return CUDA_SUCCESS;
	for (size_t i = 0; i < n_storms; i++)
		if (pthread_create(&threads[i], NULL, storm_thread, &storms[i]) != 0)
			exit(2);
	for (size_t i = 0; i < n_storms; i++) {
		pthread_join(threads[i], NULL);
		r = storms[i].status ? storms[i].status : r;
		reply->n_bytes += storms[i].n_wrong;
	}
	n_storms = 0;
	return r;
}

static CUresult
serve_green(bool is_green)
{
	static CUcontext before;
	static CUgreenCtx green;
	CUdevResourceDesc description;
	CUdevResource resource;
	CUcontext context;
	CUresult r;

	if (!is_green) {
		r = cuCtxSetCurrent(before);
		return r == CUDA_SUCCESS ? cuGreenCtxDestroy(green) : r;
	}
	MUST(cuCtxGetCurrent(&before));
	r = cuDeviceGetDevResource(0, &resource, CU_DEV_RESOURCE_TYPE_SM);
	if (r == CUDA_SUCCESS)
		r = cuDevResourceGenerateDesc(&description, &resource, 1);
	if (r == CUDA_SUCCESS)
		r = cuGreenCtxCreate(&green, description, 0, CU_GREEN_CTX_DEFAULT_STREAM);
	if (r != CUDA_SUCCESS)
		return CUDA_ERROR_NOT_SUPPORTED; /* by this device: nothing has changed */
	MUST(cuCtxFromGreenCtx(&context, green));
	return cuCtxSetCurrent(context);
}

static CUresult
serve_reset(void)
{
	CUcontext context;
	CUresult r = cuDevicePrimaryCtxReset_v2(0);

	if (r == CUDA_SUCCESS)
		r = cuDevicePrimaryCtxRetain(&context, 0);
	return r == CUDA_SUCCESS ? cuCtxSetCurrent(context) : r;
}

static CUresult
serve_fail(const struct import_request *request)
{
	void (*fail)(const char *, unsigned, int);
	void (*clear)(void);
	void *addresses[] = {dlsym(RTLD_DEFAULT, "cusim_fail"),
			     dlsym(RTLD_DEFAULT, "cusim_fail_clear")};

	memcpy(&fail, &addresses[0], sizeof(fail));
	memcpy(&clear, &addresses[1], sizeof(clear));
	if (!fail || !clear)
		return CUDA_ERROR_NOT_SUPPORTED;
	if (request->name[0])
		fail(request->name, 1, (int)request->value);
	else
		clear();
	return CUDA_SUCCESS;
}

/* The other process. */
static int
importer_main(int socket)
{
	struct import_request request;

	victim_start();
	while (recv(socket, &request, sizeof(request), MSG_WAITALL) == sizeof(request)) {
		struct import_reply reply = {0};

		switch (request.op) {
		case IMPORT_OPEN:
			reply.status = serve_open(&request, &reply);
			break;
		case IMPORT_CLOSE:
			reply.status = cuIpcCloseMemHandle(request.addr);
			break;
		case IMPORT_COUNT_WRONG:
			reply.status = serve_count_wrong(&request, &reply);
			break;
		case IMPORT_RANGE:
			reply.status = serve_range(&request, &reply);
			break;
		case IMPORT_RESET:
			reply.status = serve_reset();
			break;
		case IMPORT_FAIL:
			reply.status = serve_fail(&request);
			break;
		case IMPORT_GREEN:
			reply.status = serve_green(request.value);
			break;
		case IMPORT_STORM:
			reply.status = serve_storm(&request, &reply);
			break;
		}
		if (send(socket, &reply, sizeof(reply), MSG_NOSIGNAL) != sizeof(reply))
			return 1;
	}
	return victim_n_failed ? 1 : 0;
}

/* LD_PRELOAD without the shim, with whatever else is in it. */
static void
take_shim_away(void)
{
	char *before = getenv("LD_PRELOAD"), *rest = NULL;
	char after[4096] = "";

	for (char *part = before ? strtok_r(before, ": ", &rest) : NULL; part;
	     part = strtok_r(NULL, ": ", &rest)) {
		const size_t n = strlen(after);

		if (!strstr(part, "libpoolshim"))
			snprintf(after + n, sizeof(after) - n, "%s%s", n ? ":" : "", part);
	}
	setenv("LD_PRELOAD", after, 1);
}

/* Start this program again as one of the two. */
static pid_t
start(const char *program, const char *role, const char *how, const char *detail, int socket,
      int other)
{
	const pid_t pid = fork();
	char number[16];

	if (pid != 0)
		return pid;
	close(other);
	if (strcmp(how, "plain") == 0)
		take_shim_away();
	else if (strcmp(how, "shimmed") != 0)
		setenv("POOLSHIM_MODE", how, 1);
	snprintf(number, sizeof(number), "%d", socket);
	execl(program, program, role, number, detail, NULL);
	_exit(127);
}

static bool
ended_well(pid_t pid)
{
	int status;

	return pid > 0 && waitpid(pid, &status, 0) == pid && WIFEXITED(status) &&
	       WEXITSTATUS(status) == 0;
}
