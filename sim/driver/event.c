// SPDX-License-Identifier: MIT
/*  event.c - events, also those of other processes

    An event points to the operation that recorded it last. The event of another process has a shared page
    instead, with the number of records and of those that are done.
*/
#include "driver.h"

enum { EVENT_DISABLE_TIMING = 2, EVENT_INTERPROCESS = 4 };

static int event_new(CUevent *out, unsigned flags, sim_signal *signal)
{
    sim_event *event = calloc(1, sizeof *event);
    if (!event)
        return ERROR_OUT_OF_MEMORY;
    event->context = current();
    event->flags = flags;
    event->handle = handle_new(OBJECT_EVENT, event, event->context);
    if (!event->handle)
        return free(event), ERROR_OUT_OF_MEMORY;
    event->signal = signal;
    *out = event->handle;
    return SUCCESS;
}

void event_forget(sim_event *event)
{
    op_release(event->op);
    capture_release(event->capture);
    free(event->last.numbers);
    event->op = NULL;
    event->capture = NULL;
    event->last = (sim_nodes){0};
}

void event_delete(sim_event *event)
{
    handle_drop(event->handle);
    event_forget(event);
    signal_release(event->signal);
    free(event);
}

/* Makes a signal. It takes over the file. */
static sim_signal *signal_new(int file)
{
    sim_signal *signal = calloc(1, sizeof *signal);
    void *board = signal ? mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0) : MAP_FAILED;
    if (board == MAP_FAILED)
        return free(signal), close(file), NULL;
    *signal = (sim_signal){.references = 1, .file = file, .board = board};
    return signal;
}

static sim_signal *signal_create(void)
{
    int file = memfd_create("ignis-sim-event", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (file < 0)
        return NULL;
    if (ftruncate(file, (off_t)page) || fcntl(file, F_ADD_SEALS, FIXED_SIZE))
        return close(file), NULL;
    sim_signal *signal = signal_new(file);
    if (signal)
        signal->board->ticket = ticket_new(file, 0, page, current()->number);
    return signal;
}

SIM_API CUresult cuEventCreate(CUevent *out, unsigned int flags)
{
    BEGIN(cuEventCreate);
    REQUIRE(out && flags < 8, ERROR_INVALID_VALUE);
    REQUIRE(!(flags & EVENT_INTERPROCESS) || flags & EVENT_DISABLE_TIMING, ERROR_INVALID_VALUE);
    sim_signal *signal = flags & EVENT_INTERPROCESS ? signal_create() : NULL;
    REQUIRE(signal || !(flags & EVENT_INTERPROCESS), ERROR_OUT_OF_MEMORY);
    int code = event_new(out, flags, signal);
    if (code)
        signal_release(signal);
    return leave(code);
}

SIM_API CUresult cuIpcGetEventHandle(CUipcEventHandle *out, CUevent handle)
{
    BEGIN(cuIpcGetEventHandle);
    sim_event *event = handle_get(OBJECT_EVENT, handle);
    REQUIRE(event, ERROR_INVALID_HANDLE);
    REQUIRE(out && event->signal && event->signal->board->ticket.process == sim.process, ERROR_INVALID_VALUE);
    memcpy(out, &event->signal->board->ticket, sizeof *out);
    return leave(SUCCESS);
}

SIM_API CUresult cuIpcOpenEventHandle(CUevent *out, CUipcEventHandle handle)
{
    BEGIN(cuIpcOpenEventHandle);
    sim_ticket ticket;
    int file = -1;
    int code = out ? ticket_open(&handle, &ticket, "ignis-sim-event", &file) : ERROR_INVALID_VALUE;
    REQUIRE(!code, code);
    sim_signal *signal = ticket_stands(&ticket, file, 0) ? signal_new(file) : (close(file), NULL);
    REQUIRE(signal, ERROR_MAP_FAILED);
    code = event_new(out, EVENT_INTERPROCESS | EVENT_DISABLE_TIMING, signal);
    if (code)
        signal_release(signal);
    return leave(code);
}

/* Tells whether another process recorded the event last. */
static int is_remote(const sim_event *event)
{
    return event->signal && (!event->op || atomic_load(&event->signal->board->recorded) != event->sequence);
}

SIM_API CUresult cuEventDestroy_v2(CUevent handle)
{
    BEGIN(cuEventDestroy_v2);
    sim_event *event = handle_get(OBJECT_EVENT, handle);
    REQUIRE(event, ERROR_INVALID_HANDLE);
    event_delete(event);
    return leave(SUCCESS);
}

static int event_record(CUevent handle, CUstream stream_handle)
{
    sim_stream *stream;
    sim_op *op;
    sim_event *event = handle_get(OBJECT_EVENT, handle);
    int code = stream_find(stream_handle, &stream);
    if (code)
        return code;
    if (!event || event->context != stream->context)
        return ERROR_INVALID_HANDLE;
    if (stream->capture)
        return capture_record(stream, event);
    sim_work work = {.kind = event->signal ? WORK_SIGNAL : WORK_NOTHING, .signal = event->signal};
    if (work.signal) {
        work.signal->references++;
        work.sequence = atomic_fetch_add(&work.signal->board->recorded, 1) + 1;
        atomic_store(&work.signal->board->recorder, (int32_t)getpid());
    }
    code = submit(stream, work, NULL, &op);
    if (code)
        return code;
    if (work.signal && sim.streams == STREAMS_LAZY)
        code = op_drive(op);                  /* the other process may wait for it, which is not seen here */
    event = handle_get(OBJECT_EVENT, handle); /* the lock may have been released */
    if (!event)
        return op_release(op), code;
    event_forget(event);
    event->op = op;
    event->sequence = work.sequence;
    return code;
}

SIM_API CUresult cuEventRecord(CUevent event, CUstream stream)
{
    BEGIN(cuEventRecord);
    return leave(event_record(event, stream));
}

SIM_API CUresult cuEventRecordWithFlags(CUevent event, CUstream stream, unsigned int flags)
{
    BEGIN(cuEventRecordWithFlags);
    REQUIRE(flags < 2, ERROR_INVALID_VALUE);
    return leave(event_record(event, stream));
}

SIM_API CUresult cuEventQuery(CUevent handle)
{
    BEGIN(cuEventQuery);
    sim_event *event = handle_get(OBJECT_EVENT, handle);
    REQUIRE(event, ERROR_INVALID_HANDLE);
    int code = capture_forbids_event(event);
    if (!code && is_remote(event))
        code = signal_is_set(event->signal, atomic_load(&event->signal->board->recorded)) ? SUCCESS : ERROR_NOT_READY;
    else if (!code)
        code = op_query(event->op);
    return leave(code);
}

SIM_API CUresult cuEventSynchronize(CUevent handle)
{
    BEGIN(cuEventSynchronize);
    sim_event *event = handle_get(OBJECT_EVENT, handle);
    REQUIRE(event, ERROR_INVALID_HANDLE);
    int code = capture_forbids_event(event);
    REQUIRE(!code, code);
    if (is_remote(event)) {
        sim_signal *signal = event->signal;
        uint32_t sequence = atomic_load(&signal->board->recorded);
        drive_spinning(); /* the other process may wait for these */
        signal->references++;
        pthread_mutex_unlock(&sim.lock);
        signal_wait(signal, sequence);
        pthread_mutex_lock(&sim.lock);
        signal_release(signal);
    } else if (event->op) {
        op_finish(event->op);
    }
    return leave(sim.error);
}

SIM_API CUresult cuStreamWaitEvent(CUstream stream_handle, CUevent handle, unsigned int flags)
{
    sim_stream *stream;
    BEGIN(cuStreamWaitEvent);
    sim_event *event = handle_get(OBJECT_EVENT, handle);
    int code = stream_find(stream_handle, &stream);
    REQUIRE(!code, code);
    REQUIRE(event, ERROR_INVALID_HANDLE);
    REQUIRE(flags < 2, ERROR_INVALID_VALUE);
    if (event->capture)
        return leave(capture_join(stream, event));
    if (stream->capture && (event->op || event->signal))
        return leave(capture_break(stream->capture, ERROR_STREAM_CAPTURE_ISOLATION));
    if (is_remote(event)) {
        sim_work await = {
            .kind = WORK_AWAIT, .signal = event->signal, .sequence = atomic_load(&event->signal->board->recorded)};
        if (signal_is_set(await.signal, await.sequence))
            return leave(SUCCESS);
        await.signal->references++;
        return leave(submit(stream, await, NULL, NULL));
    }
    if (!event->op || event->op->done)
        return leave(SUCCESS);
    return leave(submit(stream, (sim_work){.kind = WORK_NOTHING}, event->op, NULL));
}

static int elapsed(float *milliseconds, CUevent first, CUevent last)
{
    sim_event *from = handle_get(OBJECT_EVENT, first), *to = handle_get(OBJECT_EVENT, last);
    if (!milliseconds)
        return ERROR_INVALID_VALUE;
    if (!from || !to || (from->flags | to->flags) & EVENT_DISABLE_TIMING || !from->op || !to->op)
        return ERROR_INVALID_HANDLE;
    if (!from->op->done || !to->op->done)
        return ERROR_NOT_READY;
    *milliseconds = (float)((double)(to->op->time - from->op->time) * 1e-6);
    return SUCCESS;
}

SIM_API CUresult cuEventElapsedTime(float *milliseconds, CUevent first, CUevent last)
{
    BEGIN(cuEventElapsedTime);
    return leave(elapsed(milliseconds, first, last));
}

SIM_API CUresult cuEventElapsedTime_v2(float *milliseconds, CUevent first, CUevent last)
{
    BEGIN(cuEventElapsedTime_v2);
    return leave(elapsed(milliseconds, first, last));
}
