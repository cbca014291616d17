// SPDX-License-Identifier: MIT
/*  queue.c - streams as queues of operations, and the threads that run them

    Eager streams run work when it is submitted, lazy ones when something waits for it, and threaded ones in a
    worker. Operations that wait for each other (spin) always run in workers.
*/
#include "driver.h"

void stream_free(sim_stream *stream)
{
    sim_stream **link = &stream->context->streams;
    while (*link != stream)
        link = &(*link)->next;
    *link = stream->next;
    free(stream);
}

/* Runs the first operation of the queue. The lock is released meanwhile; the stream may be gone afterwards. */
static void stream_step(sim_stream *stream)
{
    sim_op *op = stream->head;
    sim_context *context = stream->context;
    char text[768] = "";
    stream->busy = 1;
    if (!sim.error) { /* otherwise nothing runs any more */
        int code = work_check(&op->work, text, sizeof text);
        if (!code) {
            pthread_mutex_unlock(&sim.lock);
            code = work_run(&op->work, text, sizeof text);
            pthread_mutex_lock(&sim.lock);
        }
        if (code)
            context_fail(context, code, text);
    }
    stream->busy = 0;
    stream->head = op->next;
    if (!stream->head)
        stream->tail = NULL;
    op->time = now();
    op->done = 1;
    if (op->work.timeline)
        op->work.timeline->pending--;
    sim.spinning -= op->spins;
    op_release(op);
    if (stream->dead && !stream->head && !stream->worker)
        stream_free(stream);
    pthread_cond_broadcast(&sim.moved);
}

/* Tells whether a worker will run the head of the queue. */
static int is_driven(const sim_stream *stream)
{
    return stream->worker && stream->head && (sim.streams == STREAMS_THREAD || stream->head->number <= stream->driven);
}

/* Delays a worker, as a busy device would. The lock is released meanwhile. */
static void stream_pause(sim_stream *stream)
{
    if (sim.streams != STREAMS_THREAD || !sim.delay)
        return;
    stream->busy = 1;
    pthread_mutex_unlock(&sim.lock);
    usleep((useconds_t)sim.delay);
    pthread_mutex_lock(&sim.lock);
}

static void *stream_worker(void *argument)
{
    sim_stream *stream = argument;
    pthread_mutex_lock(&sim.lock);
    for (;;) {
        if (is_driven(stream) && !stream->busy && !op_blocker(stream->head)) {
            stream_pause(stream);
            stream_step(stream);
        } else if (stream->dead && !stream->head)
            break;
        else
            pthread_cond_wait(&sim.moved, &sim.lock);
    }
    stream_free(stream);
    pthread_mutex_unlock(&sim.lock);
    return NULL;
}

static int stream_start_worker(sim_stream *stream)
{
    pthread_t id;
    pthread_attr_t attributes;
    if (stream->worker)
        return SUCCESS;
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    stream->worker = !pthread_create(&id, &attributes, stream_worker, stream);
    pthread_attr_destroy(&attributes);
    return stream->worker ? SUCCESS : ERROR_OPERATING_SYSTEM;
}

/* Lets workers run the operation, and all that it needs. */
int op_drive(sim_op *op)
{
    sim_stream *stream = op->stream;
    if (op->done || (stream->worker && op->number <= stream->driven))
        return SUCCESS;
    int code = stream_start_worker(stream);
    sim_op *before = stream->head;
    stream->driven = op->number;
    for (; before && before->number <= op->number && !code; before = before->next)
        for (int i = 0; i < before->wait_count && !code; i++)
            if (!before->waits[i]->done)
                code = op_drive(before->waits[i]);
    pthread_cond_broadcast(&sim.moved);
    return code;
}

/* Drives all spinning operations. They wait for each other, so all have to run as soon as one is waited for. */
void drive_spinning(void)
{
    for (int i = 0; i < sim.device_count && sim.spinning; i++)
        for (sim_stream *stream = sim.contexts[i].streams; stream; stream = stream->next) {
            sim_op *last = NULL;
            for (sim_op *op = stream->head; op; op = op->next)
                last = op->spins ? op : last;
            if (last)
                op_drive(last);
        }
}

/* Returns when `op` is done. Runs what it needs and no worker runs, in order. */
void op_finish(sim_op *op)
{
    op->references++;
    drive_spinning();
    while (!op->done) {
        sim_stream *stream = op->stream;
        sim_op *blocker;
        while (!stream->busy && !is_driven(stream) && (blocker = op_blocker(stream->head)))
            stream = blocker->stream;
        if (stream->busy || is_driven(stream))
            pthread_cond_wait(&sim.moved, &sim.lock);
        else
            stream_step(stream);
    }
    op_release(op);
}

/* Tells, for eager streams, whether earlier work in this stream, or in any that it may have to wait for,
   belongs to a worker. */
static int is_behind_worker(const sim_op *op)
{
    if (is_driven(op->stream))
        return 1;
    for (int i = 0; i < op->wait_count; i++)
        if (!op->waits[i]->done && is_driven(op->waits[i]->stream))
            return 1;
    return 0;
}

int any_driven(void)
{
    for (int i = 0; i < sim.device_count; i++)
        for (sim_stream *stream = sim.contexts[i].streams; stream; stream = stream->next)
            if (is_driven(stream))
                return 1;
    return 0;
}

/* Tells whether work waits for others, or others may wait for it. */
static int work_spins(const sim_work *work)
{
    if (work->kind == WORK_GRAPH) {
        for (int i = 0; i < work->plan->count; i++)
            if (work_spins(&work->plan->nodes[i].work))
                return 1;
        return 0;
    }
    if (work->kind == WORK_KERNEL)
        return work->kernel->spins || work->launch.together;
    return work->kind == WORK_AWAIT || work->kind == WORK_WAIT || work->kind == WORK_WRITE ||
           work->kind == WORK_RAISE || work->kind == WORK_REACH;
}

/* Adds the waits of the legacy rule: work in the NULL stream comes after all earlier work of blocking
   streams, and theirs after its. */
static int op_wait_legacy(sim_op *op, sim_stream *stream)
{
    sim_context *context = stream->context;
    int code = SUCCESS;
    if (stream->flags & 1)
        return SUCCESS;
    if (stream != context->null_stream)
        return op_wait_for(op, context->null_stream->tail);
    for (sim_stream *other = context->streams; other && !code; other = other->next)
        if (other != stream && !(other->flags & 1))
            code = op_wait_for(op, other->tail);
    return code;
}

/* Queues work after the stream's earlier work, and after the operation `after` of another stream; or adds it
   to the graph that the stream is captured into. It takes over what the work holds, also on failure. `out`,
   if given, gets a reference; it is for streams that are not captured. */
int submit(sim_stream *stream, sim_work work, sim_op *after, sim_op **out)
{
    int code = capture_check(stream);
    if (!code && stream->capture)
        return capture_add(stream, &work);
    sim_op *op = code ? NULL : calloc(1, sizeof *op);
    if (!op) {
        work_release(&work);
        return code ? code : ERROR_OUT_OF_MEMORY;
    }
    op->references = 1;
    op->stream = stream;
    op->work = work;
    op->spins = work_spins(&work);
    op->number = ++sim.next_id;
    code = op_wait_legacy(op, stream);
    if (!code)
        code = op_wait_for(op, after);
    if (!code && (sim.streams == STREAMS_THREAD || (sim.streams == STREAMS_EAGER && op->spins)))
        code = stream_start_worker(stream);
    if (code) {
        op_release(op);
        return code;
    }
    if (stream->tail)
        stream->tail->next = op;
    else
        stream->head = op;
    stream->tail = op;
    op->references += out != NULL;
    if (out)
        *out = op;
    sim.spinning += op->spins;
    pthread_cond_broadcast(&sim.moved);
    if (sim.streams != STREAMS_EAGER)
        return SUCCESS;
    if (op->spins || is_behind_worker(op))
        return op_drive(op);
    op_finish(op);
    return SUCCESS;
}

int submit_and_wait(sim_stream *stream, sim_work work)
{
    sim_op *op;
    int code = submit(stream, work, NULL, &op);
    if (code)
        return code;
    op_finish(op);
    op_release(op);
    return sim.error;
}

int stream_finish(sim_stream *stream)
{
    sim_context *context = stream->context;
    if (stream == context->null_stream)
        return submit_and_wait(stream, (sim_work){.kind = WORK_NOTHING});
    if (stream->tail)
        op_finish(stream->tail);
    return sim.error;
}

/* Waits for everything that was submitted to a context before this call. */
int context_finish(sim_context *context)
{
    int count = 0, room = 0;
    for (sim_stream *stream = context->streams; stream; stream = stream->next)
        room++;
    sim_op **tails = malloc((size_t)(room + 1) * sizeof *tails);
    if (!tails)
        return ERROR_OUT_OF_MEMORY;
    for (sim_stream *stream = context->streams; stream; stream = stream->next)
        if (stream->tail)
            tails[count++] = stream->tail, stream->tail->references++;
    for (int i = 0; i < count; i++) {
        op_finish(tails[i]);
        op_release(tails[i]);
    }
    free(tails);
    return sim.error;
}

sim_stream *stream_new(sim_context *context, unsigned flags, int priority)
{
    sim_stream *stream = calloc(1, sizeof *stream);
    if (!stream)
        return NULL;
    stream->context = context;
    stream->flags = flags;
    stream->priority = priority;
    stream->id = ++sim.next_id;
    stream->next = context->streams;
    context->streams = stream;
    return stream;
}

void stream_destroy(sim_stream *stream)
{
    if (stream->handle)
        handle_drop(stream->handle);
    stream_leave_capture(stream);
    stream->dead = 1;
    if (stream->worker)
        pthread_cond_broadcast(&sim.moved);
    else if (!stream->head)
        stream_free(stream);
}

/* Ends the per-thread streams of a thread that exits. Their queued work still runs. */
static void thread_end(void *number)
{
    if (atomic_load(&sim.forked))
        return;
    pthread_mutex_lock(&sim.lock);
    for (int i = 0; i < sim.device_count; i++)
        for (sim_stream *stream = sim.contexts[i].streams, *next; stream; stream = next) {
            next = stream->next;
            if (stream->thread == (uintptr_t)number && !stream->dead)
                stream_destroy(stream);
        }
    pthread_mutex_unlock(&sim.lock);
}

static pthread_key_t thread_key;
static void thread_key_make(void) { pthread_key_create(&thread_key, thread_end); }

/* Returns the calling thread's own stream of a context, a blocking one as in the real driver. NULL without
   memory. */
static sim_stream *stream_of_thread(sim_context *context)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    sim_stream *stream = context->streams;
    if (!thread.number) {
        thread.number = ++sim.next_id;
        pthread_once(&once, thread_key_make);
        pthread_setspecific(thread_key, (void *)(uintptr_t)thread.number);
    }
    while (stream && (stream->thread != thread.number || stream->dead))
        stream = stream->next;
    if (!stream && (stream = stream_new(context, 0, 0)))
        stream->thread = thread.number;
    return stream;
}

/* Returns the stream of a handle: 0 and 1 are the legacy stream, 2 is a stream of each thread. */
sim_stream *stream_get(CUstream handle)
{
    if ((uintptr_t)handle <= 1)
        return current()->null_stream;
    if ((uintptr_t)handle == 2)
        return stream_of_thread(current());
    return handle_get(OBJECT_STREAM, handle);
}

/* Finds the stream of a handle, or returns the code to fail with. */
int stream_find(CUstream handle, sim_stream **out)
{
    *out = stream_get(handle);
    return *out ? sim.error : ERROR_INVALID_HANDLE;
}

/* Tells whether `op` is done. With lazy streams a loop of queries would never end, so after some queries one
   runs the work. */
int op_query(sim_op *op)
{
    if (!op || op->done)
        return SUCCESS;
    if (sim.streams != STREAMS_LAZY || ++op->polls <= LAZY_POLLS)
        return ERROR_NOT_READY;
    if (sim.spinning) { /* it may wait for work that this thread submits later */
        drive_spinning();
        int code = op_drive(op);
        return code ? code : op->done ? sim.error : ERROR_NOT_READY;
    }
    op_finish(op);
    return sim.error;
}
