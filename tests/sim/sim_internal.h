/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * What the files of the software device share: the objects behind CUDA's handles, and the calls
 * between the files.
 *
 * Locking: one lock, sim.lock, over everything. sim_enter() takes it, sim_leave() gives it back;
 * every other function here needs it held. It is let go only inside sim_wait() and while a host
 * function runs. sim.cond is signalled whenever an operation completed or was submitted.
 *
 * Lifetime: contexts are never freed (a handle stays recognisable after its end); streams, events
 * and records are freed when nothing names them any more.
 */

#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "tests/sim/graph.h"
#include "tests/sim/order.h"
#include "tests/sim/phys.h"
#include "tests/sim/sim.h"
#include "tests/sim/unsupported.h"

enum entry_id {
#define ENTRY(symbol, query, since, stream0) E_##symbol,
#include "tests/sim/entries.def"
#undef ENTRY
	N_SUPPORTED,
	N_ENTRIES = N_SUPPORTED + N_UNSUPPORTED,
};

enum stream0 {
	STREAM0_NONE,   /* the function takes no stream, or has one form only */
	STREAM0_LEGACY, /* stream 0 is the context's legacy stream */
	STREAM0_THREAD, /* stream 0 is the calling thread's stream (_ptsz, _ptds) */
};

struct driver_entry {
	const char *symbol;
	const char *query; /* the name that cuGetProcAddress knows */
	unsigned since;    /* the CUDA version in which this form of the function appeared */
	enum stream0 stream0;
	void *fn; /* NULL: see entry_function() */
};

extern const struct driver_entry entries[N_ENTRIES];
extern const int sim_driver_version;

/* Both forms of a function that takes a stream: impl(entry, arguments ...). */
#define SIM_PAIR(symbol, suffix, params, impl, ...) \
	CUresult symbol params \
	{ \
		return impl(E_##symbol, __VA_ARGS__); \
	} \
	CUresult symbol##suffix params \
	{ \
		return impl(E_##symbol##suffix, __VA_ARGS__); \
	}

#define SIM_PAGE ((uint64_t)2 << 20) /* the driver's own granularity */
#define SIM_UNIT ((uint64_t)512)     /* alignment of small allocations */
#define SIM_STAGED \
	((uint64_t)64 << 10) /* pageable copies up to here are staged, not waited for \
			      */

enum {
	SIM_MAX_DEVICES = 16,
	SIM_CTX_DEPTH = 64,
	CHUNK_UNITS = 4096, /* SIM_PAGE / SIM_UNIT */
};

enum alloc_kind {
	ALLOC_DEVICE,
	ALLOC_ASYNC,
	ALLOC_MANAGED,
	ALLOC_HOST,
	ALLOC_REGISTERED,
	ALLOC_VMM,
	ALLOC_IPC,
	ALLOC_POOL_IMPORT,
};

struct alloc {
	uint64_t base;
	uint64_t size_bytes; /* as requested */
	uint64_t span_bytes; /* as taken */
	enum alloc_kind kind;
	bool is_freeing;  /* a free of it waits: a second one is a double free */
	bool is_graph;    /* belongs to a graph until that is destroyed */
	bool is_reserved; /* by a launch or upload of that graph, until a trim */
	bool has_sync_memops;
	unsigned flags;
	uint64_t id;
	struct CUctx_st *ctx;
	struct device *dev; /* NULL for host memory */
	struct phys *phys;  /* NULL when carved from a chunk, and for host and managed memory */
	struct chunk *chunk;
	struct CUmemPoolHandle_st *pool;
	unsigned access;             /* ALLOC_VMM: bit per device that may touch it */
	uint64_t phys_first;         /* ALLOC_VMM: first page of phys that is mapped */
	uint64_t map_base, n_mapped; /* ALLOC_IPC, ALLOC_POOL_IMPORT: the pages around it */
	unsigned n_opens;            /* ALLOC_IPC */
};

/* A 2 MiB driver block that small allocations are carved from. */
struct chunk {
	struct chunk *next;
	struct arena *arena;
	uint64_t base;
	struct phys *phys;
	unsigned n_free;
	uint64_t used[CHUNK_UNITS / 64];
};

struct arena {
	struct device *dev;
	struct chunk *chunks;
	uint64_t n_pages;
};

struct CUmemPoolHandle_st {
	struct CUmemPoolHandle_st *next;
	struct device *dev;
	struct arena arena;
	bool is_default;
	uint64_t used_bytes, used_high_bytes, reserved_high_bytes, max_bytes;
	uint64_t release_threshold_bytes;
	int reuse_event, reuse_opportunistic, reuse_internal;
	CUmemAccess_flags access[SIM_MAX_DEVICES];
};

struct CUctx_st {
	struct CUctx_st *next;
	struct CUctx_st *root;       /* itself, or the primary context of a green one */
	struct CUgreenCtx_st *green; /* NULL: not a green one */
	struct device *dev;
	uint64_t id;
	unsigned api_version, flags;
	unsigned n_usage; /* cuCtxAttach */
	unsigned n_ends;  /* a primary context may live again, its events do not */
	bool is_primary, is_alive;
	CUresult sticky;
	struct phys *own; /* what it takes for itself; NULL: nothing */
	struct arena arena;
	struct CUstream_st *legacy;
	struct CUstream_st *streams;
	unsigned n_foreign; /* queued operations of other contexts that this one also covers */
	unsigned peers;     /* bit per device whose memory this context may reach directly */
	struct context_order order;
};

struct CUgreenCtx_st {
	struct CUctx_st *ctx;
};

enum stream_kind {
	STREAM_LEGACY,
	STREAM_THREAD,
	STREAM_BLOCKING,
	STREAM_NON_BLOCKING,
};

struct CUstream_st {
	struct CUstream_st *next;
	struct CUctx_st *ctx;   /* the root */
	struct CUctx_st *owner; /* the context that made it: a green one or the root */
	enum stream_kind kind;
	int priority;
	uint64_t id;
	uint64_t thread; /* STREAM_THREAD */
	unsigned refs;   /* waiters */
	bool is_destroyed;
	struct op *head, *tail;
	struct capture *capture;
	struct CUgraphNode_st *capture_last; /* newest node of this stream in its capture */
	struct node_set capture_waits;       /* what its next node comes after, besides */
	bool capture_joined;                 /* nothing new since another stream waited for it */
	struct stream_order order;
};

/* One recording of an event: what an event names now, and what waits for it name for ever. */
struct record {
	unsigned refs;
	uint64_t id;
	bool is_complete;
	uint64_t complete_ns;
	struct op *op;          /* NULL for coverage of a context, and once complete */
	struct CUctx_st *cover; /* every operation of its streams up to seq, or NULL */
	struct CUctx_st *owner; /* with cover: the green context, or the root */
	uint64_t seq;
	struct capture *capture; /* recorded while capturing */
	struct CUgraphNode_st *node;
	struct node_set waits; /* of the stream, when it was recorded */
	struct CUstream_st *capture_stream;
	struct clock clock;
};

struct CUevent_st {
	struct CUctx_st *ctx;
	unsigned n_ends; /* of the context, when the event was made */
	unsigned flags;
	struct record *record; /* NULL: never recorded */
};

struct area { /* rows of bytes */
	uint64_t addr, pitch, slice;
};

struct op_copy {
	struct area dst, src;
	uint64_t width, height, depth;
};

struct op_set {
	struct area dst;
	uint64_t width_bytes, height;
	unsigned value, value_bytes;
};

struct op_spin {
	uint64_t flag_addr, ns, end_ns;
};

struct op_value {
	uint64_t addr, value;
	unsigned value_bytes, flags;
};

struct op_host {
	CUhostFn fn;
	CUstreamCallback callback; /* cuStreamAddCallback in place of fn */
	void *arg;
	CUstream stream; /* as the caller named it */
};

enum kernel_kind { KERNEL_FILL, KERNEL_COPY, KERNEL_SPIN };

enum op_state {
	OP_QUEUED,
	OP_STARTED,
	OP_DETACHED /* a host function that runs without the lock */
};

struct op {
	struct op *next;
	enum cusim_op_kind kind;
	enum op_state state;
	enum kernel_kind kernel; /* CUSIM_OP_KERNEL: fill uses set, copy uses copy */
	struct CUstream_st *stream;
	struct CUctx_st *foreign; /* another context that covers this operation too */
	uint64_t seq, thread;
	unsigned n_ranges;
	unsigned tracked;     /* bit per range that lay in a known allocation when submitted */
	bool is_programmatic; /* a kernel that may start before the kernel before it ends */
	bool device_only;     /* all its ranges must be memory that a device may reach */
	struct cusim_range ranges[CUSIM_MAX_RANGES];
	uint64_t ring_idx;
	void *staged;                /* source bytes taken at submission */
	struct record *made;         /* completed by this operation */
	struct record *waited;       /* EVENT_WAIT */
	CUevent event;               /* in a graph: recorded or waited for at each launch */
	struct CUgraphNode_st *node; /* that this launch of a graph makes it for */
	struct clock clock;          /* of a host function, or a graph's record: what it is after */
	unsigned slot;
	uint64_t tick;
	union {
		struct op_copy copy;
		struct op_set set;
		struct op_spin spin;
		struct op_value value;
		struct op_host host;
		uint64_t alloc_base;
	};
};

struct device {
	int ordinal;
	bool is_host; /* host memory by handle */
	uint64_t n_pages, n_used_pages;
	uint8_t *used; /* a byte a page */
	int memfd;
	struct CUctx_st *primary;
	unsigned n_primary;
	unsigned primary_flags;
	struct CUmemPoolHandle_st *default_pool, *current_pool;
	bool has_worker;
	uint64_t graph_bytes, graph_high_bytes; /* kept for memory nodes of graphs */
};

struct capture {
	struct capture *next;
	uint64_t id;
	struct CUctx_st *ctx;
	struct CUstream_st *origin;
	CUstreamCaptureMode mode;
	uint64_t thread;
	bool is_invalid;
	bool is_own_graph;
	struct CUgraph_st *graph;
	unsigned refs; /* records made inside it */
	bool is_over;
};

struct thread_state {
	uint64_t id;
	CUstreamCaptureMode mode;
	bool in_host_func;
	struct op *host_op; /* whose function runs */
	int depth;
	struct CUctx_st *stack[SIM_CTX_DEPTH];
};

struct sim {
	pthread_mutex_t lock;
	pthread_cond_t cond;
	bool is_init;
	_Atomic pid_t owner_pid; /* who called cuInit(); 0: nobody yet */
	int n_devices;
	struct device devices[SIM_MAX_DEVICES];
	int mode;
	int check;                /* the order of accesses: how strictly, as sim.h says */
	uint64_t n_context_pages; /* that each context takes for itself */
	uint64_t clock_ns, seq, next_id;
	uint64_t va_base, va_bytes;
	struct CUctx_st *contexts;
	struct capture *captures;
	struct CUmemPoolHandle_st *pools;
	uint64_t n_allocs;
	struct cusim_report report;
};

extern struct sim sim;
extern __thread struct thread_state sim_thread;

bool sim_is_child(void); /* of the process that called cuInit() */

/* entry.c: an exported function begins with sim_enter() and, after that, ends with sim_leave(). */
/* NEED_NO_ERROR: a context is not needed (a free: measured), but one that is broken answers. */
enum need { NEED_NOTHING, NEED_INIT, NEED_NO_ERROR, NEED_CONTEXT };
CUresult sim_enter(enum entry_id e, enum need need);
CUresult sim_leave(CUresult r);
const struct driver_entry *entry_find(const char *symbol);
void *entry_function(const struct driver_entry *entry);
bool entry_is_hidden(const struct driver_entry *entry);
uint64_t sim_thread_id(void);

/* inject.c */
void inject_init(void);
CUresult inject_take(enum entry_id e);
void inject_count(enum entry_id e);

void debugger_tell(const char *symbol);
void debugger_inject(void);

/* device.c */
CUresult device_find(CUdevice ordinal, struct device **ret_dev);

/* handle.c: which pointers are live handles. */
enum handle_kind {
	HANDLE_STREAM = 1,
	HANDLE_EVENT,
	HANDLE_POOL,
	HANDLE_MODULE,
	HANDLE_LIBRARY,
	HANDLE_GRAPH,
	HANDLE_EXEC,
	HANDLE_PHYS,
	HANDLE_GREEN,
	HANDLE_ARRAY,
	HANDLE_MIPMAP,
	HANDLE_FOREIGN,
};
CUresult handle_add(const void *handle, enum handle_kind kind);
bool handle_is(const void *handle, enum handle_kind kind);
void handle_remove(const void *handle);

/* context.c */
struct CUctx_st *ctx_current(void);
struct CUctx_st *ctx_current_root(void);
bool ctx_is_known(CUcontext ctx);
struct CUctx_st *ctx_new(struct device *dev, unsigned flags, unsigned api_version);
void ctx_close(struct CUctx_st *ctx);
CUresult ctx_retain_primary(struct device *dev, struct CUctx_st **ret_ctx);

/* alloc.c: the allocations, by address; carving. */
struct alloc *alloc_find(uint64_t addr);
struct alloc *alloc_find_requested(uint64_t addr);
CUresult alloc_insert(const struct alloc *init, struct alloc **ret_alloc);
void alloc_remove(struct alloc *a);
void alloc_for_each(bool (*visit)(struct alloc *a, void *arg), void *arg);
CUresult managed_alloc(struct CUctx_st *ctx, uint64_t size_bytes, unsigned flags,
		       CUdeviceptr *ret_ptr);
CUresult alloc_device(struct arena *arena, uint64_t size_bytes, struct alloc *init,
		      struct alloc **ret_alloc);
void alloc_release(struct alloc *a);
void alloc_close_context(struct CUctx_st *ctx);
bool alloc_covers(uint64_t addr, uint64_t size_bytes, bool device_only);

/* vmm.c */
bool vmm_is_reserved(uint64_t addr);

/* pool.c */
struct CUmemPoolHandle_st *pool_new(struct device *dev);
void pool_note_alloc(struct CUmemPoolHandle_st *pool, uint64_t size_bytes);
void pool_note_free(struct alloc *a);

/* host.c */
void host_release(struct alloc *a);
bool host_is_pinned(uint64_t addr);

/* ipc.c */
void ipc_release(struct alloc *a);

/* share.c */
void share_release(struct alloc *a);

/* stream.c */
CUresult stream_resolve(enum entry_id e, CUstream handle, struct CUstream_st **ret_stream);
struct CUstream_st *stream_new(struct CUctx_st *owner, enum stream_kind kind, int priority);
void stream_unref(struct CUstream_st *s);
void stream_free_if_idle(struct CUstream_st *s);

/* event.c */
struct record *record_new(void);
struct record *record_get(struct record *record);
void record_put(struct record *record);
bool record_is_complete(struct record *record);
void record_show(const struct record *record);
struct op *record_blocker(void *record);
void record_complete(struct record *record);

/* exec.c: queues, waiting, running. */
struct op *op_new(enum cusim_op_kind kind);
void op_free(struct op *op);
void op_range(struct op *op, uint64_t addr, uint64_t size_bytes, bool is_write);
CUresult exec_submit(struct CUstream_st *s, struct op *op);
void exec_enqueue(struct CUstream_st *s, struct op *op);
bool exec_wait(struct op *(*blocker)(void *arg), void *arg);
void exec_wait_stream(struct CUstream_st *s, uint64_t seq);
void exec_wait_context(struct CUctx_st *root, struct CUctx_st *owner, uint64_t seq);
void exec_wait_free(struct CUctx_st *ctx);
struct op *exec_context_blocker(struct CUctx_st *root, struct CUctx_st *owner, uint64_t seq);
void exec_drop(struct CUstream_st *s);
struct op *exec_op_blocker(const struct op *op);
struct op *exec_oldest_ready(const struct CUstream_st *s);
bool exec_run(struct op *op);
bool exec_skip_time(void);
void exec_poll(void);
void exec_complete(struct op *op);

/* perform.c: what an operation does to memory. */
void perform(struct op *op);
bool perform_spin_is_over(struct op *op);
bool perform_value_is_reached(const struct op *op);

/* worker.c */
void worker_wake(struct device *dev);
bool worker_run_callback(struct op *op);
void worker_after_fork(void);

/* capture.c */
CUresult capture_check_unsafe(void);
CUresult capture_check_legacy(struct CUstream_st *s);
void capture_invalidate(struct capture *capture);
bool capture_invalidate_context(struct CUctx_st *root);
CUresult capture_append(struct CUstream_st *s, struct op *op);
CUresult capture_wait(struct CUstream_st *s, struct record *record, struct op *op);
void capture_leave(struct CUstream_st *s);
void capture_put(struct capture *capture);

/* graph_memory.c */
void graph_reserve(const struct CUgraph_st *graph);

/* report.c */
uint64_t report_add(const struct op *op);
void report_complete(const struct op *op);
void report_mark(enum cusim_op_kind kind, struct CUctx_st *ctx, struct CUstream_st *s,
		 uint64_t record, uint64_t addr, uint64_t size_bytes);
const char *report_kind_name(int kind);
void report_describe(const struct op *op, struct cusim_op *ret_op);
void report_violation(const struct op *op, const struct cusim_range *range);
