// SPDX-License-Identifier: MIT
/*  driver.h - the simulator's libcuda: the CUDA driver API on the CPU

    A program that loads this library in place of NVIDIA's sees a few "GPUs". Their memory is ordinary memory of the
    process, and executor.cpp runs their kernels on the CPU. The driver's rules are kept where a program can notice
    them: contexts and their reference counts, stale handles, copies checked against live allocations, streams, events.
    A fault ends all devices of the process, whichever device it was on: measured on four H200s with driver 580. Errors
    that a real GPU hides (a missing wait, one byte written beyond a block) are made visible.

    Settings, read by cuInit:

        IGNIS_SIM_DEVICES   number of devices (2)
        IGNIS_SIM_CC        compute capability, "90" or "9.0" (90)
        IGNIS_SIM_MEMORY    bytes of each device, with K, M or G (2G)
        IGNIS_SIM_STREAMS   eager   work runs when it is submitted (the default)
                            lazy    work runs only when something waits for it: finds missing waits, reproducibly
                            thread  every stream has a worker thread
        IGNIS_SIM_DELAY     microseconds that such a worker is late with each operation (0): finds what runs too early
        IGNIS_SIM_PEER      which devices reach each other's memory: all (the default), 0 for none, or pairs, "0-1,2-3"
        CUDA_VISIBLE_DEVICES  numbers or UUIDs ("GPU-...") of the devices that the program sees, in its order, as for
        real
        IGNIS_SIM_FAIL      kind:n[,kind:n...]: the n-th call (from 1) of a kind fails; n+ also fails all later ones.
                            A kind is a name of SIM_KINDS below, "any", or the exact name of a function.
        IGNIS_SIM_PATIENCE  milliseconds that a stream waits for the value of a timeline before it is an error (10000)
        IGNIS_SIM_LUID      1: devices have a LUID, which real ones have on Windows only
        IGNIS_SIM_LEAKS     1: report at exit what is still alive
        IGNIS_SIM_STALE     1: a stale stream or event ends the program when it is used, as with a real driver

    Each file has one subject. entry.c has what every function calls first and last. range.c has addresses. work.c,
    queue.c and capture.c decide what runs, when and in which order. The others have the functions of the API by
    subject. This header is what they share. Only functions marked SIM_API are exported.

    One lock guards everything, and is released while work runs. A stream is a queue of operations. An operation waits
    for earlier ones of other streams by pointers to them. The three stream modes differ only in which thread runs the
    queue.
*/
#ifndef SIM_DRIVER_H
#define SIM_DRIVER_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "../sim.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cuda_types.h"
#include "functions.h"

#define SIM_API __attribute__((visibility("default")))
#pragma GCC visibility push(hidden)

enum {
    MAX_DEVICES = 16,
    MAX_DEPTH = 64,          /* contexts pushed by one thread */
    MAX_RULES = 32,          /* of one IGNIS_SIM_FAIL */
    REMEMBERED_BLOCKS = 256, /* freed blocks that a message can still name */
    LAZY_POLLS = 8,          /* lazy streams: queries answered "not ready" before a query runs the work */
    CANARY = 0xC5,
    MAX_THREADS = 1024,
    SHARED_DEFAULT = 48 * 1024,
    SHARED_OPTIN = 227 * 1024,
    SHARED_RESERVED = 1024,
    SHARED_PER_SM = 228 * 1024,
    THREADS_PER_SM = 2048,
    BLOCKS_PER_SM = 32,
    SM_COUNT = 132
};

static const size_t page = 4096;
static const size_t granularity = (size_t)2 << 20; /* of physical and reserved memory */
static const size_t fill_limit = (size_t)8
                                 << 20; /* a larger block is filled only up to this, so that the rest remains virtual */

typedef enum { STREAMS_EAGER, STREAMS_LAZY, STREAMS_THREAD, STREAMS_COUNT } sim_streams;
static const char *const stream_modes[STREAMS_COUNT] = {"eager", "lazy", "thread"};

typedef struct sim_context sim_context;
typedef struct sim_stream sim_stream;
typedef struct sim_op sim_op;
typedef struct sim_capture sim_capture;
typedef struct sim_plan sim_plan;

typedef enum {
    OBJECT_FREE,
    OBJECT_CONTEXT,
    OBJECT_STREAM,
    OBJECT_EVENT,
    OBJECT_MODULE,
    OBJECT_FUNCTION,
    OBJECT_GRAPH,
    OBJECT_GRAPH_EXEC,
    OBJECT_PHYSICAL,
    OBJECT_EXTERNAL,
    OBJECT_TIMELINE,
    OBJECT_RESOURCE
} sim_object_kind;

/* A slot of the table of handles. A handle is the number of a slot and its generation, so a stale or invented
   one is always recognised. */
typedef struct sim_slot {
    sim_object_kind kind;
    uint32_t generation;
    uint32_t next_free;
    void *object;
    sim_context *context;
} sim_slot;

/* A range of address space that blocks are cut from. No addresses are used twice before all of it was used. */
typedef struct sim_arena {
    uintptr_t base;
    size_t size, cursor;
    int file;
    int reused; /* addresses were used again */
} sim_arena;

/* Memory of cuMemCreate: a memory file that lives as long as any process has it open or mapped. */
typedef struct sim_physical {
    int handles;  /* pending releases */
    int mappings; /* ranges that map it */
    void *handle; /* NULL: released, but mapped */
    int file;
    size_t size;
    int device;           /* here, or -1 if this process does not see the device */
    int types;            /* of handles that were requested */
    sim_context *charged; /* the context whose memory it counts as; NULL for an import */
    unsigned long long id;
} sim_physical;

/* Addresses of cuMemAddressReserve. */
typedef struct sim_reservation {
    uintptr_t start;
    size_t size;
    struct sim_reservation *next;
} sim_reservation;

/* The content of an IPC handle, and of the ticket in the file that the handle names. The ticket lives as long
   as the object. */
typedef struct sim_ticket {
    char magic[8];
    uint64_t process, id; /* random; the exporter's count */
    uint64_t offset, size;
    int32_t pid, file;
    uint32_t device, reserved; /* the device's number on the machine */
    uint64_t check;
} sim_ticket;

/* A block of another process. */
typedef struct sim_import {
    sim_ticket ticket;
    int opened; /* pending closes */
    size_t span;
} sim_import;

typedef enum {
    RANGE_DEVICE,
    RANGE_PINNED,
    RANGE_REGISTERED,
    RANGE_MAPPED,
    RANGE_IMPORTED,
    RANGE_EXTERNAL,
    RANGE_GL,
    RANGE_VARIABLE
} sim_range_kind;

/* One live allocation, registered host memory, physical memory mapped to reserved addresses, or a variable of
   a module whose address was requested. */
typedef struct sim_range {
    uintptr_t start;
    size_t size; /* bytes requested */
    size_t span; /* bytes of address space, including the gap after the block; 0 if not from an arena */
    sim_range_kind kind;
    sim_context *context;
    sim_arena *arena;
    unsigned long long id;
    sim_physical *physical;            /* mapped ranges: the memory, and the access of each device */
    unsigned char access[MAX_DEVICES]; /* ACCESS_... bits */
    unsigned flags;                    /* host memory: the requested flags */
    int exported;                      /* its ticket is in the gap after it */
    sim_import *import;
    struct sim_external *external; /* mapped external memory */
    const void *module;            /* of a variable */
} sim_range;

struct sim_context {
    int device; /* the number that the program sees */
    int number; /* the number on the machine: the same in every process */
    CUcontext handle;
    unsigned flags;
    int references;
    int active;      /* between the first retain and the last release or a reset */
    unsigned peers;  /* bit set of devices whose access was enabled */
    size_t used;     /* bytes of device memory */
    size_t created;  /* bytes of it by cuMemCreate, which no context owns */
    size_t resident; /* blocks that wait for others, and occupy their processor meanwhile */
    sim_arena arena;
    sim_stream *streams; /* all, including destroyed ones with work left */
    sim_stream *null_stream;
};

typedef struct sim_function {
    CUfunction handle;
    struct sim_module_object *module;
    const sim_kernel *kernel;
    size_t max_dynamic; /* limit of dynamic shared memory */
    struct sim_function *next;
} sim_function;

/* A module. It outlives its handle while a graph has kernels of it, so that launching such a graph is an
   error and not a crash. */
typedef struct sim_module_object {
    int references, unloaded;
    CUmodule handle;
    sim_context *context;
    sim_module *module;
    sim_function *functions;
} sim_module_object;

typedef enum {
    WORK_NOTHING,
    WORK_COPY,
    WORK_FILL,
    WORK_KERNEL,
    WORK_CALL,
    WORK_GRAPH,
    WORK_SIGNAL,
    WORK_AWAIT,
    WORK_WRITE,
    WORK_WAIT,
    WORK_RAISE,
    WORK_REACH
} sim_work_kind;

/* A page shared by processes: how often an event was recorded, and how many of the records are done. */
typedef struct sim_board {
    sim_ticket ticket;
    _Atomic uint32_t recorded, done; /* the second is a futex */
    _Atomic int32_t recorder;        /* process of the last record */
} sim_board;

/* The page of an interprocess event. It outlives the event while work refers to it. */
typedef struct sim_signal {
    int references, file;
    sim_board *board;
} sim_signal;

/* Memory of a graphics API: a file of the exporter. */
typedef struct sim_external {
    CUexternalMemory handle;
    int file, mappings;
    size_t size;
    off_t offset; /* in the file */
} sim_external;

/* The content of a timeline semaphore's file. Every process that has it open maps it, and raises the value
   with an atomic store. */
typedef struct sim_timeline_page {
    char magic[16];
    _Atomic uint64_t value;
} sim_timeline_page;

/* An imported timeline. Work refers to it. */
typedef struct sim_timeline {
    CUexternalSemaphore handle;
    int references, pending; /* operations that refer to it; those that are not done */
    int file;
    sim_timeline_page *page;
    sim_context *context;
} sim_timeline;

/* A buffer of the simulated OpenGL; and its registration. */
typedef struct sim_gl_buffer {
    unsigned name;
    int file;
    size_t size;
    void *data; /* as OpenGL sees it */
    struct sim_resource *resource;
    struct sim_gl_buffer *next;
} sim_gl_buffer;

typedef struct sim_resource {
    CUgraphicsResource handle;
    sim_gl_buffer *buffer; /* NULL if it was deleted */
    sim_range *range;      /* while mapped */
    sim_context *context;
} sim_resource;

typedef enum { SIDE_ANY, SIDE_HOST, SIDE_DEVICE } sim_side;

enum { EVERY_DEVICE = -1 }; /* a copy between devices, each of which checks its own end */
enum { ACCESS_READ = 1, ACCESS_WRITE = 2, ACCESS_BOTH = 3 };

/* `height` rows of `width` bytes. */
typedef struct sim_copy {
    void *dst;
    const void *src;
    size_t dst_pitch, src_pitch, width, height;
    sim_side dst_side, src_side;
    int device; /* the device that copies, or EVERY_DEVICE */
} sim_copy;

typedef struct sim_fill {
    void *dst;
    size_t count;
    unsigned value, size; /* `size` low bytes of `value`, `count` times */
    int device;
} sim_fill;

/* A value to write to memory, or to wait for in memory. */
typedef struct sim_word {
    void *address;
    uint64_t value;
    unsigned size, condition;
    int device;
} sim_word;

/* The work of an operation. `storage` is its own copy of arguments or source bytes. */
typedef struct sim_work {
    sim_work_kind kind;
    void *storage;
    sim_copy copy;
    sim_fill fill;
    const sim_kernel *kernel;
    sim_module_object *module; /* of the kernel */
    sim_launch launch;
    CUhostFn call;
    void *call_data;
    sim_plan *plan;
    sim_signal *signal; /* to set, or to wait for, with `sequence` */
    uint32_t sequence;
    sim_word word;
    sim_timeline *timeline; /* to set, or to wait for, with `value` */
    uint64_t value;
} sim_work;

/* Nodes of a graph, by number. */
typedef struct sim_nodes {
    int *numbers, count;
} sim_nodes;

/* A call for the time when nothing needs a graph's work any more. */
typedef struct sim_goodbye {
    void (*call)(void *);
    void *data;
    struct sim_goodbye *next;
} sim_goodbye;

/* The work of a graph in the order of its capture, which honours all dependencies. It never changes after the
   capture, so graphs, executable graphs and launches in flight share it. */
struct sim_plan {
    int references, count, room;
    struct sim_goodbye *goodbyes;
    struct {
        sim_work work;
        sim_nodes after;
    } * nodes;
};

/* Streams that are captured into one graph. It lives as long as a stream or an event points to it. */
struct sim_capture {
    int references;
    unsigned long long id;
    sim_stream *origin; /* the stream that began it and has to end it; NULL once ended */
    int mode, invalid;
    pthread_t thread;
    sim_plan *plan;
};

/* Work in a stream. It lives while it is queued and while an event or another operation points to it. */
struct sim_op {
    int references, done, polls;
    /* may wait for other devices or processes while it runs, or they for it: never run by a thread of the program */
    int spins;
    unsigned long long number; /* rises along the queue */
    int64_t time;              /* nanoseconds, when it was done */
    sim_stream *stream;        /* valid until done */
    sim_op *next;
    sim_op **waits; /* of other streams; they run first */
    int wait_count;
    sim_work work;
};

struct sim_stream {
    CUstream handle;
    sim_context *context;
    sim_stream *next;
    unsigned flags;
    int priority;
    unsigned long long id;
    unsigned long long thread; /* the thread whose per-thread stream this is; 0 if none */
    int busy;                  /* a thread is running the head */
    int dead;                  /* destroyed; freed when its queue is empty */
    int worker;                /* has a thread */
    unsigned long long driven; /* the worker has to run operations up to this number */
    sim_op *head, *tail;
    sim_capture *capture; /* being captured into */
    sim_nodes last;       /* the nodes before the next one */
};

typedef struct sim_event {
    CUevent handle;
    sim_context *context;
    unsigned flags;
    sim_op *op;           /* the last record, or NULL */
    sim_signal *signal;   /* interprocess events */
    uint32_t sequence;    /* of the last record of this process */
    sim_capture *capture; /* the last record was captured; `last` are the nodes before it */
    sim_nodes last;
} sim_event;

typedef struct sim_rule {
    int kind, function;
    long n, seen;
    int onwards;
} sim_rule;

struct sim_state {
    pthread_mutex_t lock;
    pthread_cond_t moved; /* signalled when an operation is submitted or done, or a stream is destroyed */
    atomic_int forked;    /* this process is the child of one that may have used the simulator */
    int ready;
    int error; /* of the fault that ended all work of the process, or 0 */
    int device_count, cc, streams, delay, patience;
    sim_gl_buffer *gl_buffers;
    unsigned gl_names;
    size_t memory;
    unsigned long long next_id;
    sim_context contexts[MAX_DEVICES];
    sim_arena host_arena; /* pinned memory */
    sim_range **ranges;   /* sorted by address */
    size_t range_count, range_room;
    sim_reservation *reservations;
    uint64_t process;            /* a random number that identifies this process in tickets */
    unsigned reach[MAX_DEVICES]; /* by numbers on the machine: bit set of reachable devices */
    long spinning;               /* operations that spin and are not done */
    long physicals;              /* with a handle or a mapping */
    long imports;                /* of them, from a file descriptor */
    struct {
        uintptr_t start;
        size_t size;
    } freed[REMEMBERED_BLOCKS];
    unsigned freed_count;
    sim_slot *slots;
    uint32_t slot_count, slot_room, slot_free;
    long calls[FUNCTION_COUNT];
    sim_rule rules[MAX_RULES];
    int rule_count;
    void (*poison)(const volatile void *, size_t), (*unpoison)(const volatile void *, size_t);
};
extern struct sim_state sim;

struct sim_thread {
    sim_context *stack[MAX_DEPTH];
    int depth;
    int in_callback;           /* inside a host function, where the driver must not be called */
    int capture_mode;          /* which captures this thread's unsafe calls invalidate */
    int gl;                    /* has an OpenGL context, see ignis_sim_gl_current */
    unsigned long long number; /* 0 if it has used no per-thread stream */
};
extern _Thread_local struct sim_thread thread;

/* Seals of a file that other processes may map. */
enum { FIXED_SIZE = F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL };
enum { WAIT_GREATER_OR_EQUAL, WAIT_EQUAL, WAIT_AND, WAIT_NOR };
enum { CAPTURE_GLOBAL, CAPTURE_THREAD_LOCAL, CAPTURE_RELAXED };
enum { PRIORITY_LEAST = 0, PRIORITY_GREATEST = -5 };

/* entry.c */
void say(const char *format, ...) __attribute__((format(printf, 1, 2)));
const char *code_name(int code);
const char *code_sentence(int code);
int64_t now(void);
size_t round_up(size_t value, size_t to);
int find_name(const char *name, size_t length, int *kind, int *function);
int set_rules(const char *spec);
int rule_matches(const sim_rule *rule, int function);
sim_context *current(void);
int begin(int function);
CUresult leave(int code);
void *handle_new(sim_object_kind kind, void *object, sim_context *context);
void *handle_get(sim_object_kind kind, const void *handle);
void handle_drop(const void *handle);
long count_objects(sim_object_kind kind);

/* The first lines of a function of the API: BEGIN takes the lock, leave releases it. */
#define BEGIN(name)                  \
    do {                             \
        int code_ = begin(F_##name); \
        if (code_)                   \
            return (CUresult)code_;  \
    } while (0)
#define REQUIRE(condition, code) \
    do {                         \
        if (!(condition))        \
            return leave(code);  \
    } while (0)

/* range.c */
size_t range_after(uintptr_t address);
sim_range *range_at(uintptr_t address);
sim_range *range_starting(CUdeviceptr address, sim_range_kind kind);
sim_arena *arena_at(uintptr_t address);
sim_reservation *reservation_at(uintptr_t address);
int is_device_memory(const sim_range *range);
int range_allows(const sim_range *range, int device, int access);
int check_span(const void *pointer, size_t bytes, sim_side side, int device, int access, sim_range **out);
int arena_open(sim_arena *arena, const char *name, size_t at_least);
sim_range *range_new(uintptr_t start, size_t size, sim_range_kind kind, sim_context *context);
void range_delete(sim_range *range);
sim_range *block_new(sim_arena *arena, size_t size, sim_range_kind kind, sim_context *context);
int block_delete(sim_range *range);
size_t charged(size_t size);
size_t memory_left(const sim_context *context);

/* work.c */
void module_release(sim_module_object *module);
void signal_release(sim_signal *signal);
void timeline_release(sim_timeline *timeline);
void work_release(sim_work *work);
void plan_release(sim_plan *plan);
void op_release(sim_op *op);
int op_wait_for(sim_op *op, sim_op *earlier);
sim_op *op_blocker(sim_op *op);
void context_fail(const sim_context *context, int code, const char *text);
size_t extent(size_t pitch, size_t width, size_t height);
int work_check(const sim_work *work, char *text, size_t text_size);
int signal_is_set(sim_signal *signal, uint32_t sequence);
void signal_wait(sim_signal *signal, uint32_t sequence);
int work_run(const sim_work *work, char *text, size_t text_size);

/* queue.c */
void stream_free(sim_stream *stream);
int op_drive(sim_op *op);
void drive_spinning(void);
void op_finish(sim_op *op);
int any_driven(void);
int submit(sim_stream *stream, sim_work work, sim_op *after, sim_op **out);
int submit_and_wait(sim_stream *stream, sim_work work);
int stream_finish(sim_stream *stream);
int context_finish(sim_context *context);
sim_stream *stream_new(sim_context *context, unsigned flags, int priority);
void stream_destroy(sim_stream *stream);
sim_stream *stream_get(CUstream handle);
int stream_find(CUstream handle, sim_stream **out);
int op_query(sim_op *op);

/* capture.c */
void capture_release(sim_capture *capture);
int capture_break(sim_capture *capture, int code);
void stream_leave_capture(sim_stream *stream);
int capture_forbids(void);
int capture_check_legacy(sim_stream *stream);
int capture_check(sim_stream *stream);
int capture_forbids_wait(sim_stream *stream);
int capture_forbids_event(sim_event *event);
int capture_add(sim_stream *stream, sim_work *work);
int capture_record(sim_stream *stream, sim_event *event);
int capture_join(sim_stream *stream, sim_event *event);
int plan_joined(const sim_plan *plan, const sim_nodes *last);
sim_capture *capture_new(sim_stream *stream, int mode);
void capture_end(sim_capture *capture);

/* init.c */
const char *knob(const char *name, const char *fallback);

/* device.c */
int is_device(CUdevice device);
int device_by_number(int number);
int devices_reach(int a, int b);
void uuid_of(int number, unsigned char *uuid);

/* vmm.c */
uintptr_t reserve(uintptr_t wish, size_t size, size_t alignment);

/* ipc.c */
sim_ticket ticket_new(int file, size_t offset, size_t size, int device);
int ticket_open(const void *handle, sim_ticket *ticket, const char *name, int *file);
int ticket_stands(const sim_ticket *ticket, int file, size_t offset);
void import_delete(sim_range *range);

/* external.c */
void external_unmap(sim_range *range);
void context_drop_externals(sim_context *context);
void timeline_delete(sim_timeline *timeline);
void resource_delete(sim_resource *resource);

/* event.c */
void event_forget(sim_event *event);
void event_delete(sim_event *event);

/* module.c */
void module_delete(sim_module_object *module);
void loading_waits(sim_context *context);
int blocks_at_once(const sim_function *function, size_t threads, size_t dynamic);

/* control.c */
long live_count(const char *kind);

#pragma GCC visibility pop

#endif
