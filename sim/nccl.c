// SPDX-License-Identifier: MIT
/*  nccl.c - the simulator's libnccl: collective operations between simulated devices

    Ranks are threads of one process or processes of one host; each has its own communicator. They meet in a file of
    shared memory that the unique id names. The file loses its name when all ranks have arrived. An operation is passed
    to the driver with cuLaunchHostFunc, so it obeys streams, events and captured graphs. It exchanges chunks through
    the shared memory, in step with the other ranks.

    As with NVIDIA's library, a missing rank makes the others wait until they call ncclCommAbort. A thread that drives
    several ranks has to submit the work of all before it waits for any of them; this needs streams with workers
    (IGNIS_SIM_STREAMS=thread). Sums are made in the order of the ranks, in f32 for 16-bit elements.

    Communicators end as in NVIDIA's 2.28. While a graph lives that has captured an operation, ncclCommFinalize does not
    complete and ncclCommAbort does not return. ncclCommDestroy waits for the ranks of other processes to finalize,
    destroy, abort or die.

    IGNIS_SIM_NCCL_FAIL=3 makes the third operation of this process fail after it was accepted: it does not end before
    ncclCommAbort, and ncclCommGetAsyncError returns a system error. IGNIS_SIM_NCCL_FAIL=3,ends: it ends nevertheless,
    with no effect.
*/
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define SIM_API __attribute__((visibility("default")))

enum {
    SUCCESS,
    UNHANDLED_CUDA_ERROR,
    SYSTEM_ERROR,
    INTERNAL_ERROR,
    INVALID_ARGUMENT,
    INVALID_USAGE,
    REMOTE_ERROR,
    IN_PROGRESS
};
enum { INT8, UINT8, INT32, UINT32, INT64, UINT64, FLOAT16, FLOAT32, FLOAT64, BFLOAT16, DTYPES };
enum { SUM, PROD, MAX, MIN, AVG, OPS };
enum { RANKS = 16, PIECE = 1 << 18, BOX = 1 << 16, VERSION = 22809 };

typedef struct unique_id {
    char text[128];
} unique_id;

typedef struct config { /* the beginning of ncclConfig_t */
    size_t size;
    unsigned magic, version;
    int blocking;
} config;

/* Of libcuda.so.1, which this library is linked to. */
extern int cuLaunchHostFunc(void *stream, void (*call)(void *), void *data);
extern int cuStreamIsCapturing(void *stream, int *status);
extern int cuCtxGetCurrent(void **context);
extern int ignis_sim_at_graph_end(void *stream, void (*call)(void *), void *data);

/* >>shared: the memory that all ranks map */

typedef struct box { /* from one rank to another */
    _Atomic uint32_t written, read;
    uint32_t bytes;
    char data[BOX];
} box;

typedef struct shared {
    _Atomic int size, joined;
    _Atomic int taken[RANKS];
    _Atomic long process[RANKS]; /* 0: has not arrived, or has left */
    _Atomic uint64_t phase[RANKS];
    char pieces[RANKS][PIECE];
    box boxes[RANKS][RANKS]; /* [from][to] */
} shared;

typedef struct comm {
    shared *shared;
    int rank, size;
    atomic_int aborted, references; /* of the handle, and of jobs */
    atomic_int failed;              /* the result of ncclCommGetAsyncError */
    atomic_int graphs, finalized;   /* operations captured by graphs, which may run any number of times */
    uint64_t phase;
    char path[128];
    struct comm *next;
} comm;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static comm *comms; /* all of them, so that a leak checker finds them */
static _Thread_local char last_error[256];

static int fail(int code, const char *text)
{
    snprintf(last_error, sizeof last_error, "%s", text);
    return code;
}

static void pause_briefly(int *tries)
{
    struct timespec time = {0, 50000};
    if (++*tries < 100)
        sched_yield();
    else
        nanosleep(&time, NULL);
}

/* Waits until all ranks have arrived. 0 if this rank's communicator was aborted. */
static int meet(comm *c)
{
    int tries = 0;
    c->phase++;
    atomic_store(&c->shared->phase[c->rank], c->phase);
    for (int i = 0; i < c->size; i++) {
        while (atomic_load(&c->shared->phase[i]) < c->phase) {
            if (atomic_load(&c->aborted))
                return 0;
            pause_briefly(&tries);
        }
    }
    return !atomic_load(&c->aborted);
}

/* >>numbers */

static const int dtype_size[DTYPES] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};

static float float_of_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static uint32_t bits_of_float(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static float bf16_load(uint16_t bits) { return float_of_bits((uint32_t)bits << 16); }

static uint16_t bf16_store(float value)
{
    uint32_t bits = bits_of_float(value);
    if (value != value)
        return 0x7FFF;
    return (uint16_t)((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

static float f16_load(uint16_t bits)
{
    _Float16 value;
    memcpy(&value, &bits, sizeof value);
    return (float)value;
}

static uint16_t f16_store(float value)
{
    _Float16 narrow = (_Float16)value;
    uint16_t bits;
    memcpy(&bits, &narrow, sizeof bits);
    return bits;
}

/* The sum (or another reduction) over the ranks of element i of their rows, which begin at from[rank]. */
#define REDUCE(type, wide, LOAD, STORE)                                                                \
    for (i = 0; i < count; i++) {                                                                      \
        wide value = (wide)LOAD(((const type *)from[0])[i]);                                           \
        for (r = 1; r < ranks; r++) {                                                                  \
            wide other = (wide)LOAD(((const type *)from[r])[i]);                                       \
            if (op == SUM || op == AVG)                                                                \
                value = (wide)(value + other);                                                         \
            else if (op == PROD)                                                                       \
                value = (wide)(value * other);                                                         \
            else                                                                                       \
                value = op == MAX ? (value > other ? value : other) : (value < other ? value : other); \
        }                                                                                              \
        if (op == AVG)                                                                                 \
            value = (wide)(value / (wide)ranks);                                                       \
        ((type *)to)[i] = STORE(value);                                                                \
    }                                                                                                  \
    break
#define AS_IT_IS(x) (x)

static void reduce(void *to, void *const *from, int ranks, size_t count, int dtype, int op)
{
    size_t i;
    int r;
    switch (dtype) {
    case INT8: REDUCE(int8_t, int8_t, AS_IT_IS, AS_IT_IS);
    case UINT8: REDUCE(uint8_t, uint8_t, AS_IT_IS, AS_IT_IS);
    case INT32: REDUCE(int32_t, int32_t, AS_IT_IS, AS_IT_IS);
    case UINT32: REDUCE(uint32_t, uint32_t, AS_IT_IS, AS_IT_IS);
    case INT64: REDUCE(int64_t, int64_t, AS_IT_IS, AS_IT_IS);
    case UINT64: REDUCE(uint64_t, uint64_t, AS_IT_IS, AS_IT_IS);
    case FLOAT16: REDUCE(uint16_t, float, f16_load, f16_store);
    case FLOAT32: REDUCE(float, float, AS_IT_IS, AS_IT_IS);
    case FLOAT64: REDUCE(double, double, AS_IT_IS, AS_IT_IS);
    default: REDUCE(uint16_t, float, bf16_load, bf16_store);
    }
}

/* >>jobs: work of a stream */

enum { ALL_REDUCE, REDUCE_TO, BROADCAST, ALL_GATHER, REDUCE_SCATTER, MESSAGES };

typedef struct message {
    int sends, peer;
    char *data;
    size_t bytes;
} message;

typedef struct job {
    comm *comm;
    void *stream;
    int kind, dtype, op, root, captured, message_count;
    const char *in;
    char *out;
    size_t count; /* elements that a rank contributes or receives */
    message messages[4 * RANKS];
    struct job *next;
} job;

static int run_collective(const job *j)
{
    comm *c = j->comm;
    size_t size = (size_t)dtype_size[j->dtype], ranks = (size_t)c->size, me = (size_t)c->rank, done, part,
           most = PIECE / size / (j->kind == REDUCE_SCATTER ? ranks : 1);
    int is_root = c->rank == j->root;
    void *from[RANKS];
    for (done = 0; done < j->count; done += part) {
        part = j->count - done < most ? j->count - done : most;
        if (j->kind == REDUCE_SCATTER)
            for (size_t r = 0; r < ranks; r++)
                memcpy(c->shared->pieces[me] + r * part * size, j->in + (r * j->count + done) * size, part * size);
        else if (j->kind != BROADCAST || is_root)
            memcpy(c->shared->pieces[me], j->in + done * size, part * size);
        if (!meet(c))
            return 0;
        for (size_t r = 0; r < ranks; r++)
            from[r] = c->shared->pieces[r] + (j->kind == REDUCE_SCATTER ? me * part * size : 0);
        if (j->kind == ALL_GATHER)
            for (size_t r = 0; r < ranks; r++)
                memcpy(j->out + (r * j->count + done) * size, from[r], part * size);
        else if (j->kind == BROADCAST)
            memcpy(j->out + done * size, from[j->root], part * size);
        else if (j->kind != REDUCE_TO || is_root)
            reduce(j->out + done * size, from, c->size, part, j->dtype, j->op);
        if (!meet(c))
            return 0;
    }
    return 1;
}

/* Moves one chunk of a message, if there is one. */
static int message_move(comm *c, message *m)
{
    box *b = m->sends ? &c->shared->boxes[c->rank][m->peer] : &c->shared->boxes[m->peer][c->rank];
    uint32_t written = atomic_load(&b->written), read = atomic_load(&b->read);
    if (m->sends ? written != read : written == read)
        return 0;
    if (m->sends) {
        b->bytes = m->bytes < BOX ? (uint32_t)m->bytes : BOX;
        memcpy(b->data, m->data, b->bytes);
    } else if (b->bytes > m->bytes) {
        atomic_store(&c->aborted, 1); /* more was sent than is expected */
        return 0;
    } else {
        memcpy(m->data, b->data, b->bytes);
    }
    m->data += b->bytes;
    m->bytes -= b->bytes;
    atomic_store(m->sends ? &b->written : &b->read, (m->sends ? written : read) + 1);
    return 1;
}

/* Runs all messages of a group at once, as each may wait for another. Messages of one pair keep their order. */
static void run_messages(const job *j)
{
    message left[4 * RANKS];
    int open = 1, tries = 0;
    memcpy(left, j->messages, sizeof left);
    while (open && !atomic_load(&j->comm->aborted)) {
        int moved = 0;
        char busy[2][RANKS] = {{0}};
        open = 0;
        for (int i = 0; i < j->message_count; i++) {
            if (!left[i].bytes || busy[left[i].sends][left[i].peer])
                continue;
            busy[left[i].sends][left[i].peer] = 1;
            moved |= message_move(j->comm, &left[i]);
            open = 1;
        }
        if (!moved)
            pause_briefly(&tries);
    }
}

static void drop(comm *c)
{
    if (atomic_fetch_sub(&c->references, 1) != 1)
        return;
    pthread_mutex_lock(&lock);
    for (comm **link = &comms; *link; link = &(*link)->next) {
        if (*link == c) {
            *link = c->next;
            break;
        }
    }
    pthread_mutex_unlock(&lock);
    munmap(c->shared, sizeof *c->shared);
    free(c);
}

static void job_end(job *j)
{
    drop(j->comm);
    free(j);
}

/* Ends a captured job: no graph has it any more. The driver's lock is held. */
static void captured_job_end(void *data)
{
    job *j = data;
    atomic_fetch_sub(&j->comm->graphs, 1);
    job_end(j);
}

/* Tells whether IGNIS_SIM_NCCL_FAIL selects this operation. */
static int is_to_fail(int *ends)
{
    static atomic_int runs;
    const char *text = getenv("IGNIS_SIM_NCCL_FAIL");
    *ends = text && strstr(text, ",ends") != NULL;
    return text && atomic_fetch_add(&runs, 1) + 1 == atoi(text);
}

static void run_job(void *data)
{
    job *j = data;
    int ends, tries = 0;
    if (is_to_fail(&ends)) {
        atomic_store(&j->comm->failed, SYSTEM_ERROR);
        while (!ends && !atomic_load(&j->comm->aborted))
            pause_briefly(&tries);
    } else if (j->kind == MESSAGES)
        run_messages(j);
    else if (!atomic_load(&j->comm->aborted))
        run_collective(j);
    if (!j->captured)
        job_end(j);
}

/* Submits a job. It belongs to the stream from here on, or to the graph that the stream captures. */
static int submit(job *j)
{
    static const char refused[] = "the driver refused the work";
    int capturing = 0;
    cuStreamIsCapturing(j->stream, &capturing);
    if (capturing) {
        j->captured = 1;
        atomic_fetch_add(&j->comm->graphs, 1);
        if (ignis_sim_at_graph_end(j->stream, captured_job_end, j)) {
            captured_job_end(j);
            return fail(UNHANDLED_CUDA_ERROR, refused);
        }
    }
    if (!cuLaunchHostFunc(j->stream, run_job, j))
        return SUCCESS;
    if (!capturing)
        job_end(j);
    return fail(UNHANDLED_CUDA_ERROR, refused);
}

static job *job_make(comm *c, int kind, void *stream)
{
    job *j = calloc(1, sizeof *j);
    if (!j)
        return NULL;
    atomic_fetch_add(&c->references, 1);
    j->comm = c;
    j->kind = kind;
    j->stream = stream;
    return j;
}

/* >>groups */

static _Thread_local int group_depth, group_error;
static _Thread_local job *group_jobs;

SIM_API int ncclGroupStart(void)
{
    group_depth++;
    return SUCCESS;
}

SIM_API int ncclGroupEnd(void)
{
    int result = SUCCESS;
    if (group_depth == 0)
        return fail(INVALID_USAGE, "ncclGroupEnd: not in a group call");
    if (--group_depth)
        return SUCCESS;
    while (group_jobs) {
        job *j = group_jobs;
        group_jobs = j->next;
        if (group_error)
            job_end(j);
        else
            result = submit(j) ? UNHANDLED_CUDA_ERROR : result;
    }
    result = group_error ? group_error : result;
    group_error = SUCCESS;
    return result;
}

static int later(job *j)
{
    job **link = &group_jobs;
    if (!group_depth)
        return submit(j);
    while (*link)
        link = &(*link)->next;
    *link = j;
    return SUCCESS;
}

static int refuse(int code, const char *text)
{
    if (group_depth)
        group_error = code;
    return fail(code, text);
}

/* >>operations */

/* Checks a collective operation of all ranks, and queues it. */
static int collective(comm *c, const job *wanted, void *stream)
{
    job *j;
    if (!c || wanted->dtype < 0 || wanted->dtype >= DTYPES || wanted->op < 0 || wanted->op >= OPS)
        return refuse(INVALID_ARGUMENT,
                      !c ? "the communicator is null" : "an element type or operation is out of its range");
    if (wanted->root < 0 || wanted->root >= c->size)
        return refuse(INVALID_ARGUMENT, "the root is no rank");
    if (wanted->count && ((!wanted->in && (wanted->kind != BROADCAST || c->rank == wanted->root)) ||
                          (!wanted->out && (wanted->kind != REDUCE_TO || c->rank == wanted->root))))
        return refuse(INVALID_ARGUMENT, "a buffer is null");
    if (!(j = job_make(c, wanted->kind, stream)))
        return refuse(SYSTEM_ERROR, "out of memory");
    j->in = wanted->in;
    j->out = wanted->out;
    j->count = wanted->count;
    j->dtype = wanted->dtype;
    j->op = wanted->op;
    j->root = wanted->root;
    return later(j);
}

SIM_API int ncclAllReduce(const void *in, void *out, size_t count, int dtype, int op, comm *c, void *stream)
{
    const job j = {.kind = ALL_REDUCE, .in = in, .out = out, .count = count, .dtype = dtype, .op = op};
    return collective(c, &j, stream);
}

SIM_API int ncclReduce(const void *in, void *out, size_t count, int dtype, int op, int root, comm *c, void *stream)
{
    const job j = {.kind = REDUCE_TO, .in = in, .out = out, .count = count, .dtype = dtype, .op = op, .root = root};
    return collective(c, &j, stream);
}

SIM_API int ncclBroadcast(const void *in, void *out, size_t count, int dtype, int root, comm *c, void *stream)
{
    const job j = {.kind = BROADCAST, .in = in, .out = out, .count = count, .dtype = dtype, .op = SUM, .root = root};
    return collective(c, &j, stream);
}

SIM_API int ncclAllGather(const void *in, void *out, size_t count, int dtype, comm *c, void *stream)
{
    const job j = {.kind = ALL_GATHER, .in = in, .out = out, .count = count, .dtype = dtype, .op = SUM};
    return collective(c, &j, stream);
}

SIM_API int ncclReduceScatter(const void *in, void *out, size_t count, int dtype, int op, comm *c, void *stream)
{
    const job j = {.kind = REDUCE_SCATTER, .in = in, .out = out, .count = count, .dtype = dtype, .op = op};
    return collective(c, &j, stream);
}

static int send_or_receive(comm *c, int sends, char *data, size_t count, int dtype, int peer, void *stream)
{
    job *j = group_jobs;
    message *m;
    if (!c || dtype < 0 || dtype >= DTYPES || peer < 0 || peer >= c->size || (count && !data))
        return refuse(INVALID_ARGUMENT,
                      !c ? "the communicator is null" : "a message's buffer, element type or peer is wrong");
    while (j && !(j->comm == c && j->stream == stream && j->kind == MESSAGES && j->message_count < 4 * RANKS))
        j = j->next;
    if (!j) {
        if (!(j = job_make(c, MESSAGES, stream)))
            return refuse(SYSTEM_ERROR, "out of memory");
        m = &j->messages[j->message_count++];
        m->sends = sends, m->peer = peer, m->data = data, m->bytes = count * (size_t)dtype_size[dtype];
        return later(j);
    }
    m = &j->messages[j->message_count++];
    m->sends = sends, m->peer = peer, m->data = data, m->bytes = count * (size_t)dtype_size[dtype];
    return SUCCESS;
}

SIM_API int ncclSend(const void *data, size_t count, int dtype, int peer, comm *c, void *stream)
{
    return send_or_receive(c, 1, (char *)(uintptr_t)data, count, dtype, peer, stream);
}

SIM_API int ncclRecv(void *data, size_t count, int dtype, int peer, comm *c, void *stream)
{
    return send_or_receive(c, 0, data, count, dtype, peer, stream);
}

/* >>communicators */

SIM_API int ncclGetVersion(int *version)
{
    *version = VERSION;
    return SUCCESS;
}

SIM_API int ncclGetUniqueId(unique_id *id)
{
    static atomic_uint serial;
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    memset(id, 0, sizeof *id);
    snprintf(id->text, sizeof id->text, "/ignis-sim-nccl-%ld-%lld-%u", (long)getpid(),
             (long long)now.tv_sec * 1000000000 + now.tv_nsec, atomic_fetch_add(&serial, 1));
    return SUCCESS;
}

static int is_complete(comm *c) { return atomic_load(&c->shared->joined) == c->size; }

static int comm_open(comm *c, const unique_id *id)
{
    int file, expected = 0;
    memcpy(c->path, id->text, sizeof c->path - 1);
    file = shm_open(c->path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (file < 0 || ftruncate(file, sizeof *c->shared) != 0) {
        if (file >= 0)
            close(file);
        return fail(SYSTEM_ERROR, "shared memory could not be made");
    }
    c->shared = mmap(NULL, sizeof *c->shared, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (c->shared == MAP_FAILED)
        return fail(SYSTEM_ERROR, "shared memory could not be mapped");
    if ((!atomic_compare_exchange_strong(&c->shared->size, &expected, c->size) && expected != c->size) ||
        atomic_exchange(&c->shared->taken[c->rank], 1)) {
        munmap(c->shared, sizeof *c->shared);
        return fail(INVALID_USAGE, expected && expected != c->size ? "ranks disagree about their number"
                                                                   : "two ranks have the same number");
    }
    atomic_store(&c->shared->process[c->rank], (long)getpid());
    if (atomic_fetch_add(&c->shared->joined, 1) + 1 == c->size)
        shm_unlink(c->path); /* all ranks have arrived */
    return SUCCESS;
}

SIM_API int ncclCommInitRankConfig(comm **out, int size, unique_id id, int rank, config *wanted)
{
    void *context = NULL;
    int code, tries = 0;
    comm *c;
    if (!out || size < 1 || size > RANKS || rank < 0 || rank >= size || strncmp(id.text, "/ignis-sim-nccl-", 16) != 0)
        return fail(INVALID_ARGUMENT, "number of ranks, rank or unique id is wrong");
    if (wanted && (wanted->magic != 0xCAFEBEEFu || wanted->size < sizeof *wanted))
        return fail(INVALID_ARGUMENT, "the configuration was not initialized");
    if (cuCtxGetCurrent(&context) || !context)
        return fail(UNHANDLED_CUDA_ERROR, "there is no current context");
    c = calloc(1, sizeof *c);
    if (!c)
        return fail(SYSTEM_ERROR, "out of memory");
    c->rank = rank;
    c->size = size;
    atomic_store(&c->references, 1);
    if ((code = comm_open(c, &id))) {
        free(c);
        return code;
    }
    pthread_mutex_lock(&lock);
    c->next = comms;
    comms = c;
    pthread_mutex_unlock(&lock);
    *out = c;
    if (wanted && wanted->blocking == 0)
        return is_complete(c) ? SUCCESS : IN_PROGRESS;
    while (!is_complete(c))
        pause_briefly(&tries);
    return SUCCESS;
}

SIM_API int ncclCommInitRank(comm **out, int size, unique_id id, int rank)
{
    return ncclCommInitRankConfig(out, size, id, rank, NULL);
}

SIM_API int ncclCommGetAsyncError(comm *c, int *error)
{
    if (!c || !error)
        return fail(INVALID_ARGUMENT, "the communicator is null");
    *error = !is_complete(c) || (atomic_load(&c->finalized) && atomic_load(&c->graphs)) ? IN_PROGRESS
             : atomic_load(&c->aborted)                                                 ? REMOTE_ERROR
                                                                                        : atomic_load(&c->failed);
    return SUCCESS;
}

/* Waits until no graph can run operations of the communicator. */
static void wait_for_graphs(comm *c)
{
    int tries = 0;
    while (atomic_load(&c->graphs))
        pause_briefly(&tries);
}

/* Tells the other ranks that this one leaves. */
static void leave(comm *c) { atomic_store(&c->shared->process[c->rank], 0); }

static void end(comm *c)
{
    leave(c);
    if (!is_complete(c))
        shm_unlink(c->path);
    drop(c);
}

SIM_API int ncclCommFinalize(comm *c)
{
    if (!c || atomic_exchange(&c->finalized, 1))
        return fail(INVALID_ARGUMENT, c ? "it has been finalized before" : "the communicator is null");
    leave(c);
    return atomic_load(&c->graphs) ? IN_PROGRESS : SUCCESS;
}

SIM_API int ncclCommDestroy(comm *c)
{
    int tries = 0;
    if (!c)
        return SUCCESS;
    wait_for_graphs(c);
    leave(c);
    for (int i = 0; i < c->size; i++) {
        long process;
        while ((process = atomic_load(&c->shared->process[i])) != 0 && process != (long)getpid() &&
               kill((pid_t)process, 0) == 0)
            pause_briefly(&tries);
    }
    end(c);
    return SUCCESS;
}

SIM_API int ncclCommAbort(comm *c)
{
    if (!c)
        return SUCCESS;
    atomic_store(&c->aborted, 1);
    wait_for_graphs(c);
    end(c);
    return SUCCESS;
}

SIM_API const char *ncclGetErrorString(int code)
{
    static const char *const texts[] = {"no error",
                                        "unhandled cuda error",
                                        "unhandled system error",
                                        "internal error",
                                        "invalid argument",
                                        "invalid usage",
                                        "remote process exited or there was a network error",
                                        "NCCL operation in progress"};
    return code >= 0 && code <= IN_PROGRESS ? texts[code] : "unknown result code";
}

SIM_API const char *ncclGetLastError(comm *c)
{
    (void)c;
    return last_error;
}
