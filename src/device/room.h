/*  device - contexts, streams, events, capture, memory of a device, recording of what runs. Knows no shape. */
#pragma once

#include "../base/room.h"

/*  A stream of the caller, or one of ignis_stream_create. */
typedef struct ignis__user_stream {
    void *stream;
    bool created;
    uint64_t serial;   /* distinguishes a stream from a later one at the same address */
    int holds;         /* its place in the list, and threads that are about to wait for it */
    ignis__mutex lock; /* held while a thread waits for it */
    bool forgotten;    /* by its owner, who may have destroyed the stream */
    struct ignis__user_stream *next;
} ignis__user_stream;

typedef struct ignis__pooled_event {
    void *event;
    struct ignis__pooled_event *next;
} ignis__pooled_event;

typedef struct ignis__device {
    uint64_t opened;
    uint64_t captures;     /* that threads have open: until they end, nothing may wait for the context */
    ignis__rwlock waiting; /* read by threads that wait for the context, written by one that begins to capture */
    ignis__mutex lock;
    ignis__mutex planning; /* matrix products */
    int handle;            /* CUdevice */
    void *context;
    void *stream; /* Ignis' own stream */
    ignis_device_info info;
    int clusters; /* whether blocks can come in clusters */
    ignis__user_stream *user_streams;
    ignis__pooled_event *events;
    uint64_t no_dependents; /* 1: built-in kernels come from older PTX, without dependent launch */
} ignis__device;

/*  if (IGNIS__CUDA_FAILED(call, device, cuMemFree_v2, (address))) return ...; reports the failure. */
#define IGNIS__CUDA_FAILED(call, device, name, args) \
    (ignis__cuda_check(call, device, #name, IGNIS__CUDA(name, args)) != IGNIS_OK)

/*  A context made current for one call. */
typedef struct ignis__binding {
    bool pushed;
} ignis__binding;

/*  An object that a graph needs as long as it lives, and the function that drops it. */
typedef struct ignis__captured_item {
    void *item;
    void (*drop)(const char *call, void *item);
    bool written; /* a storage, by the graph */
    bool exposed; /* a storage, to a kernel of the caller in the graph */
    struct ignis__captured_item *next;
} ignis__captured_item;

/*  The number of launches of a graph. Outlives the graph, as arrays do whose memory belongs to it. */
typedef struct ignis__replays {
    uint64_t users; /* the capture or graph, and storages */
    uint64_t count;
} ignis__replays;

/*  A thread has one between ignis_graph_begin and ignis_graph_end; afterwards the graph has it. Other sections use:
        ignis__memory_take        memory is from a cache of the capture, and stays with the graph
        ignis__capture_hold       keeps objects of before that the work uses: storages, kernels of the caller
        ignis__capture_pause      begins work that is done once, before any launch, and not by the graph
        ignis__capture_refuses    fails a call that would have to wait or to read host memory, or that happens once */
typedef struct ignis__capture {
    ignis__device *device;
    ignis__replays *replays;     /* of the graph that it becomes */
    uint64_t serial;             /* tells it from other captures */
    void *stream;                /* made for it alone: other threads go on working on theirs */
    struct ignis__capture *next; /* next in the list of open captures */
    ignis__captured_item *held;
    struct ignis__array
        *launches; /* counted by the graph itself, for random numbers; held; NULL without random numbers */
} ignis__capture;

/*  Open captures. ignis_shutdown ends those whose threads have exited. */
struct ignis__captures_type {
    ignis__mutex lock;
    ignis__capture *first;
};

typedef enum ignis__trace_kind {
    IGNIS__TRACED_CALL, /* on the host */
    IGNIS__TRACED_KERNEL,
    IGNIS__TRACED_COPY,
    IGNIS__TRACED_GRAPH,
    IGNIS__TRACED_COLLECTIVE,
    IGNIS__TRACED_MEMORY /* a device's memory in use from then on */
} ignis__trace_kind;

typedef struct ignis__trace_item {
    ignis__trace_kind kind;
    int device, thread, line, rate;
    bool exact_bytes;
    uint64_t operation;
    const char *call, *file; /* file may be null */
    char name[72];
    void *stream, *first, *last; /* events; NULL for items of the host */
    int64_t begin_ns, end_ns;    /* on the host */
    double bytes, flops;         /* 0: not known */
    int64_t at_ns; /* start by the host's clock, read when the work is done; and the duration, -1 if unknown */
    double ms;
} ignis__trace_item;

struct ignis__profile_type {
    uint64_t on; /* read without the lock, as one branch of a launch */
    ignis__trace_item *items;
    size_t count, capacity, lost;
    int threads;
    int64_t begin_ns;
    struct {
        void *event; /* recorded when the host's clock was at ns */
        int64_t ns;
    } base[IGNIS_MAX_DEVICES];
    struct ignis__named_function *named[64]; /* names of functions, always kept */
    ignis_profile_row *rows;                 /* of the last one that has ended */
    int row_count;
};

/*  Names of kernels, by their functions. */
typedef struct ignis__named_function {
    void *function;
    char name[72];
    struct ignis__named_function *next;
} ignis__named_function;

/*  Driver allocations ("segments") are cut into blocks. A free block belongs to the stream it was freed on: work
    queued on that stream is ordered before its next use there, so the block can be reused at once. Another stream
    takes it only after waiting for an event of that stream. Blocks are kept in bins by size. Bins are sorted, so the
    first block that fits is the best fit. Small requests have segments of their own, so that they do not keep large
    segments from being freed. */
#define IGNIS__BLOCK_UNIT 512
#define IGNIS__SMALL_LIMIT ((int64_t)1 << 20)
#define IGNIS__SMALL_SEGMENT ((int64_t)2 << 20)
#define IGNIS__MEDIUM_LIMIT ((int64_t)10 << 20)
#define IGNIS__MEDIUM_SEGMENT ((int64_t)20 << 20)
#define IGNIS__BINS 512
#define IGNIS__NO_HOST_MEMORY (-1) /* beside the driver's error numbers */

/*  The purpose of an allocation. */
typedef struct ignis__origin {
    const char *call, *inside, *file; /* the last two may be null */
    int line;
    char tag[32];
} ignis__origin;

/*  A row of the memory statistics. */
typedef struct ignis__memory_row {
    ignis_memory_row row; /* its peak is that of the peak with the number... */
    uint64_t peaks;       /* ...and the live bytes at the peak, if live changed after it */
    struct ignis__memory_row *next;
} ignis__memory_row;

typedef struct ignis__block {
    ignis__address address;
    int64_t size;
    ignis__origin origin;             /* of its last use; call is null when it is over */
    ignis__memory_row *counted;       /* null: nobody counts */
    struct ignis__stream_cache *part; /* stream and size class it belongs to */
    bool used;
    struct ignis__block *below, *above;    /* neighbours in the segment */
    struct ignis__block *smaller, *larger; /* neighbours in the bin */
    struct ignis__block *next_segment;     /* of a segment's first block, which lives as long as the segment */
} ignis__block;

typedef struct ignis__stream_cache {
    void *stream;  /* or the capture whose memory this is */
    bool captured; /* its blocks are used by a graph: no other stream takes them, and their segments stay */
    bool is_small;
    struct ignis__stream_cache *next;
    ignis__block *zeroed; /* blocks of ignis__memory_take_zeroed, linked by `larger`: in no bin, as if used */
    uint64_t filled[IGNIS__BINS / 64]; /* a bit for each bin that is not empty */
    ignis__block *bins[IGNIS__BINS];
} ignis__stream_cache;

/*  Pinned host memory of the caller, or a chunk for copies. */
typedef struct ignis__pinned {
    void *memory;
    int64_t size;
    struct ignis__pinned *next;
} ignis__pinned;

/*  Memory that arrays use and that is not of the cache. */
typedef struct ignis__counted_memory {
    ignis__device *device; /* NULL: not counted */
    ignis__block block;    /* in cache->outside, by next_segment */
} ignis__counted_memory;

typedef struct ignis__cache {
    ignis__pinned *user, *spare;   /* by ignis_host_alloc; pieces that nobody uses now */
    ignis__mutex lock;             /* which nobody holds during a call that may wait for the device: */
    ignis__mutex asking, trimming; /* taken before `lock`: to ask the driver for memory, to free it */
    ignis__stream_cache *parts;
    ignis__block *segments;     /* their first blocks */
    ignis__block *outside;      /* of ignis__memory_count_in */
    ignis__block *spare_blocks; /* block structs for reuse, linked by `above` */
    ignis_memory_info info;
    ignis__memory_row *counted; /* with ignis_desc.trace_memory */
    uint64_t peaks;             /* of live_bytes so far */
} ignis__cache;

/*  Returns a chunk of pinned memory with at least `size` bytes for temporary use: the smallest spare one that fits,
    or a new one. ignis__pinned_chunk_recycle takes it back, or ignis__pinned_chunk_keep if nothing uses it any more. */
#define IGNIS__PIECE ((int64_t)1 << 20) /* to copy through */

typedef bool ignis__capture_hook(const char *call, ignis__device *device, const ignis__capture *capture);

/* --- defined in the parts ----------------------------------------------------------------------------------------- */

/* device.c */
IGNIS__PRIVATE int ignis__capability(const ignis_device_info *info);
extern ignis__device ignis__devices[IGNIS_MAX_DEVICES];
IGNIS__PRIVATE int ignis__device_ordinal(const ignis__device *device);
extern uint64_t ignis__devices_fault;
extern bool ignis__allow_tf32;
extern int ignis__matmul_backend, ignis__attention_backend;
extern int ignis__device_total;
extern uint64_t ignis__stream_serials;
extern uint64_t ignis__stream_forgets;
IGNIS__PRIVATE bool ignis__cuda_is_fatal(int error);
IGNIS__PRIVATE bool ignis__devices_lost(void);
IGNIS__PRIVATE const char *ignis__cuda_name(int error);
IGNIS__COLD IGNIS__PRIVATE ignis_status ignis__cuda_fail(const char *call, ignis__device *device, const char *function,
                                                         int error);
IGNIS__ONE_COPY IGNIS__PRIVATE ignis_status ignis__cuda_check(const char *call, ignis__device *device,
                                                              const char *function, int error);
IGNIS__ONE_COPY IGNIS__PRIVATE ignis__device *ignis__device_get(const char *call, int ordinal);
IGNIS__PRIVATE bool ignis__device_enter(const char *call, ignis__device *device, ignis__binding *binding);
IGNIS__PRIVATE bool ignis__device_enter_to_give(const char *call, ignis__device *device, ignis__binding *binding);
IGNIS__PRIVATE void ignis__device_leave(const ignis__binding *binding);
IGNIS__PRIVATE ignis__thread *ignis__thread_state(void);
IGNIS__PRIVATE int ignis__desc_device(int device);
IGNIS__PRIVATE int ignis__device_in_desc(const ignis__device *device);
IGNIS__COLD IGNIS__PRIVATE ignis_status ignis__devices_setup(const char *call, int first);
IGNIS__COLD IGNIS__PRIVATE void ignis__device_close(const char *call, ignis__device *device);
IGNIS__COLD IGNIS__PRIVATE bool ignis__device_read_facts(const char *call, ignis__device *device);
IGNIS__PRIVATE ignis__device *ignis__device_current_enter(const char *call, ignis__binding *binding);

/* capture.c */
IGNIS__PRIVATE void ignis__replays_drop(ignis__replays *replays);
extern struct ignis__captures_type ignis__captures;
IGNIS__PRIVATE ignis__capture *ignis__capturing(void);
IGNIS__ONE_COPY IGNIS__PRIVATE ignis__capture *ignis__capture_on(const ignis__device *device);
IGNIS__ONE_COPY IGNIS__PRIVATE void *ignis__stream_current(const ignis__device *device);
IGNIS__ONE_COPY IGNIS__PRIVATE bool ignis__capture_refuses(const char *call);
IGNIS__PRIVATE ignis__captured_item *ignis__capture_find(const ignis__capture *capture, const void *item);
IGNIS__PRIVATE bool ignis__capture_hold(const char *call, ignis__capture *capture, void *item, uint64_t *users,
                                        void (*drop)(const char *call, void *item));
IGNIS__MAYBE_UNUSED IGNIS__PRIVATE ignis__capture *ignis__capture_pause(void);
IGNIS__MAYBE_UNUSED IGNIS__PRIVATE bool ignis__capture_resume(const char *call, ignis__capture *capture);
IGNIS__MAYBE_UNUSED IGNIS__PRIVATE void ignis__capture_destroy(const char *call, ignis__capture *capture);
IGNIS__COLD IGNIS__MAYBE_UNUSED IGNIS__PRIVATE bool ignis__capture_begin(const char *call, ignis__device *device);
extern uint64_t ignis__graph_settle, ignis__capture_join;
IGNIS__PRIVATE bool ignis__capture_hook_call(const char *call, const uint64_t *hook, ignis__device *device,
                                             const ignis__capture *capture);
IGNIS__COLD IGNIS__MAYBE_UNUSED IGNIS__PRIVATE void *ignis__capture_end(const char *call, ignis__capture *capture);

/* stream.c */
IGNIS__COLD IGNIS__PRIVATE uint64_t ignis__stream_adopt(const char *call, ignis__device *device, void *stream);
IGNIS__ONE_COPY IGNIS__PRIVATE void ignis__event_recycle(ignis__device *device, ignis__pooled_event *spare);
IGNIS__PRIVATE ignis__pooled_event *ignis__event_record(const char *call, ignis__device *device, void *stream);
IGNIS__PRIVATE bool ignis__stream_order(const char *call, ignis__device *earlier_device, void *earlier,
                                        ignis__device *later_device, void *later);
IGNIS__PRIVATE void ignis__user_stream_drop(ignis__device *device, ignis__user_stream *user_stream);
IGNIS__MAYBE_UNUSED IGNIS__PRIVATE bool ignis__capture_draw(const char *call, ignis__device *device, void *from,
                                                            uint64_t serial);
IGNIS__COLD IGNIS__PRIVATE int ignis__device_finish(ignis__device *device);
IGNIS__PRIVATE bool ignis__device_wait(const char *call, ignis__device *device);
IGNIS__COLD IGNIS__PRIVATE void ignis__streams_leaked(const char *call);
IGNIS__PRIVATE ignis__device *ignis__stream_enter(const char *call, void **stream, ignis__binding *binding);
IGNIS__PRIVATE bool ignis__stream_captured(const char *call, ignis__device *device, void *stream, bool *captured);
IGNIS__COLD IGNIS__PRIVATE bool ignis__fail_captured(const char *call, const char *what);
IGNIS__PRIVATE bool ignis__stream_await(const char *call, ignis__device *device, void *stream, void *event,
                                        bool captured);

/* event.c */
IGNIS__COLD IGNIS__PRIVATE void ignis__events_close(const char *call);

/* callback.c */
IGNIS__COLD IGNIS__PRIVATE void ignis__callbacks_close(void);

/* trace.c */
extern struct ignis__profile_type ignis__profile;
extern ignis__mutex ignis__profile_lock;
IGNIS__PRIVATE bool ignis__profiling(void);
IGNIS__COLD IGNIS__PRIVATE void ignis__function_name(void *function, const char *name);
IGNIS__PRIVATE void ignis__cost(double bytes, double flops, int rate);
IGNIS__COLD IGNIS__PRIVATE void ignis__trace_events_free(ignis__trace_item *traced);
IGNIS__COLD IGNIS__PRIVATE void ignis__profile_base(ignis__device *device);
IGNIS__COLD IGNIS__PRIVATE bool ignis__trace_open(ignis__trace_item *traced, ignis__trace_kind kind, const char *call,
                                                  ignis__device *device, void *stream, void *function,
                                                  const char *name);
IGNIS__COLD IGNIS__PRIVATE bool ignis__trace_close(ignis__trace_item *traced, bool ok);
IGNIS__PRIVATE bool ignis__trace_copy(ignis__trace_item *traced, const char *call, ignis__device *device, void *stream,
                                      const char *name, int64_t size);
IGNIS__COLD IGNIS__PRIVATE void ignis__trace_memory(int device, int64_t live, int64_t reserved);
IGNIS__COLD IGNIS__PRIVATE void ignis__trace_call(const char *call, const ignis__device *device, int64_t begin_ns);

/* memory_block.c */
IGNIS__PRIVATE void ignis__origin_current(ignis__origin *origin, const char *call);
extern ignis__cache ignis__caches[IGNIS_MAX_DEVICES];
extern bool ignis__memory_bypass, ignis__memory_traced;
extern uint64_t ignis__pinned_bytes;
IGNIS__PRIVATE void ignis__bin_insert(ignis__block *block);
IGNIS__PRIVATE void ignis__bin_remove(ignis__block *block);
IGNIS__PRIVATE ignis__block *ignis__bin_best(const ignis__stream_cache *part, int64_t size);
IGNIS__PRIVATE ignis__stream_cache *ignis__stream_cache_of(ignis__cache *cache, void *stream, bool captured,
                                                           bool is_small);
IGNIS__PRIVATE ignis__block *ignis__block_take(ignis__cache *cache, ignis__stream_cache *part, ignis__address address,
                                               int64_t size);
IGNIS__PRIVATE void ignis__block_recycle(ignis__cache *cache, ignis__block *block);
IGNIS__PRIVATE void ignis__block_join(ignis__cache *cache, ignis__block *block);
IGNIS__PRIVATE void ignis__block_unuse(ignis__cache *cache, ignis__block *block);
IGNIS__PRIVATE void ignis__block_use(ignis__cache *cache, ignis__block *block, int64_t size);
IGNIS__COLD IGNIS__PRIVATE ignis__memory_row *ignis__memory_row_find(ignis__memory_row **list,
                                                                     const ignis__origin *origin);
IGNIS__PRIVATE int64_t ignis__memory_rows_peak(const ignis__cache *cache, const ignis__memory_row *counted);
IGNIS__PRIVATE void ignis__memory_rows_free(ignis__memory_row **list);
IGNIS__PRIVATE void ignis__memory_count(ignis__cache *cache, int64_t live, int64_t reserved);
IGNIS__MAYBE_UNUSED IGNIS__PRIVATE void ignis__memory_count_in(ignis__device *device, ignis__counted_memory *memory,
                                                               const ignis__origin *origin, int64_t bytes);
IGNIS__MAYBE_UNUSED IGNIS__PRIVATE void ignis__memory_count_out(ignis__counted_memory *memory);
IGNIS__PRIVATE void ignis__block_begin(ignis__cache *cache, ignis__block *block, const ignis__origin *origin);
IGNIS__PRIVATE void ignis__block_end(ignis__cache *cache, ignis__block *block);

/* memory_cache.c */
IGNIS__COLD IGNIS__PRIVATE int64_t ignis__cache_trim(const char *call, ignis__device *device, ignis__cache *cache);
IGNIS__COLD IGNIS__PRIVATE ignis__label ignis__size_write(int64_t bytes);
IGNIS__COLD IGNIS__PRIVATE int64_t ignis__cache_largest_free(const ignis__cache *cache);
IGNIS__PRIVATE ignis__block *ignis__memory_take_for(const char *call, const ignis__origin *origin,
                                                    ignis__device *device, void *stream, int64_t size);
IGNIS__PRIVATE ignis__block *ignis__memory_take(const char *call, ignis__device *device, void *stream, int64_t size);
IGNIS__PRIVATE void ignis__memory_recycle(const char *call, ignis__device *device, ignis__block *block);
IGNIS__MAYBE_UNUSED IGNIS__PRIVATE ignis__block *ignis__memory_take_zeroed(const char *call, ignis__device *device,
                                                                           void *stream);
IGNIS__MAYBE_UNUSED IGNIS__PRIVATE void ignis__memory_recycle_zeroed(const char *call, ignis__device *device,
                                                                     ignis__block *block);
IGNIS__COLD IGNIS__PRIVATE void ignis__memory_forget_stream(ignis__device *device, void *stream);
IGNIS__COLD IGNIS__PRIVATE void ignis__memory_setup(int64_t limit, bool bypass, bool traced);
IGNIS__COLD IGNIS__PRIVATE void ignis__memory_close(const char *call, ignis__device *device);
IGNIS__PRIVATE bool ignis__address_query(const char *call, ignis__device *device, const void *ptr, int *type,
                                         int *ordinal);
IGNIS__PRIVATE bool ignis__address_range(const char *call, ignis__device *device, const void *ptr,
                                         ignis__address *start, size_t *size);

/* memory_pinned.c */
IGNIS__PRIVATE void *ignis__pinned_take(const char *call, ignis__device *device, int64_t size);
IGNIS__PRIVATE ignis_status ignis__pinned_recycle(const char *call, ignis__device *device, void *memory, int64_t size);
IGNIS__PRIVATE ignis__pinned *ignis__pinned_chunk_take(const char *call, ignis__device *device, int64_t size);
IGNIS__PRIVATE void ignis__pinned_chunk_keep(ignis__device *device, ignis__pinned *piece);
IGNIS__MAYBE_UNUSED IGNIS__PRIVATE ignis_status ignis__pinned_chunk_recycle(const char *call, ignis__device *device,
                                                                            ignis__pinned *piece);
IGNIS__COLD IGNIS__PRIVATE bool ignis__pinned_chunks_trim(const char *call, ignis__device *device, ignis__cache *cache);
IGNIS__COLD IGNIS__PRIVATE void ignis__pinned_leaked(const char *call);

/* memory_query.c */
IGNIS__COLD IGNIS__PRIVATE ignis_memory_row *ignis__rows_make(const char *call, ignis__cache *cache, int *count);
