// SPDX-License-Identifier: MIT
/*  stream.c - stream functions, host functions, and waits for values in memory

    Destroyed streams finish their queued work. Waits for a value run in a worker, as the value may come from
    any thread, device or process.
*/
#include "driver.h"

static int stream_create(CUstream *out, unsigned flags, int priority)
{
    if (!out || flags > 1)
        return ERROR_INVALID_VALUE;
    if (priority > PRIORITY_LEAST)
        priority = PRIORITY_LEAST;
    if (priority < PRIORITY_GREATEST)
        priority = PRIORITY_GREATEST;
    sim_stream *stream = stream_new(current(), flags, priority);
    if (!stream)
        return ERROR_OUT_OF_MEMORY;
    stream->handle = handle_new(OBJECT_STREAM, stream, stream->context);
    if (!stream->handle)
        return stream_free(stream), ERROR_OUT_OF_MEMORY;
    *out = stream->handle;
    return SUCCESS;
}

SIM_API CUresult cuStreamCreate(CUstream *out, unsigned int flags)
{
    BEGIN(cuStreamCreate);
    return leave(stream_create(out, flags, 0));
}

SIM_API CUresult cuStreamCreateWithPriority(CUstream *out, unsigned int flags, int priority)
{
    BEGIN(cuStreamCreateWithPriority);
    return leave(stream_create(out, flags, priority));
}

/* Returns at once; queued work still runs. */
SIM_API CUresult cuStreamDestroy_v2(CUstream handle)
{
    BEGIN(cuStreamDestroy_v2);
    sim_stream *stream = handle_get(OBJECT_STREAM, handle);
    REQUIRE(stream, ERROR_INVALID_HANDLE);
    stream_destroy(stream);
    return leave(SUCCESS);
}

SIM_API CUresult cuStreamQuery(CUstream handle)
{
    sim_stream *stream;
    BEGIN(cuStreamQuery);
    int code = stream_find(handle, &stream);
    if (!code)
        code = capture_forbids_wait(stream);
    return leave(code ? code : op_query(stream->tail));
}

SIM_API CUresult cuStreamSynchronize(CUstream handle)
{
    sim_stream *stream;
    BEGIN(cuStreamSynchronize);
    int code = stream_find(handle, &stream);
    if (!code)
        code = capture_forbids_wait(stream);
    return leave(code ? code : stream_finish(stream));
}

SIM_API CUresult cuStreamGetCtx(CUstream handle, CUcontext *out)
{
    BEGIN(cuStreamGetCtx);
    sim_stream *stream = stream_get(handle);
    REQUIRE(out, ERROR_INVALID_VALUE);
    REQUIRE(stream, ERROR_INVALID_HANDLE);
    *out = stream->context->handle;
    return leave(SUCCESS);
}

SIM_API CUresult cuStreamGetId(CUstream handle, unsigned long long *out)
{
    BEGIN(cuStreamGetId);
    sim_stream *stream = stream_get(handle);
    REQUIRE(out, ERROR_INVALID_VALUE);
    REQUIRE(stream, ERROR_INVALID_HANDLE);
    *out = stream->id;
    return leave(SUCCESS);
}

SIM_API CUresult cuStreamGetPriority(CUstream handle, int *out)
{
    BEGIN(cuStreamGetPriority);
    sim_stream *stream = stream_get(handle);
    REQUIRE(out, ERROR_INVALID_VALUE);
    REQUIRE(stream, ERROR_INVALID_HANDLE);
    *out = stream->priority;
    return leave(SUCCESS);
}

SIM_API CUresult cuStreamGetFlags(CUstream handle, unsigned int *out)
{
    BEGIN(cuStreamGetFlags);
    sim_stream *stream = stream_get(handle);
    REQUIRE(out, ERROR_INVALID_VALUE);
    REQUIRE(stream, ERROR_INVALID_HANDLE);
    *out = stream->flags;
    return leave(SUCCESS);
}

SIM_API CUresult cuLaunchHostFunc(CUstream handle, CUhostFn call, void *data)
{
    sim_stream *stream;
    BEGIN(cuLaunchHostFunc);
    REQUIRE(call, ERROR_INVALID_VALUE);
    int code = stream_find(handle, &stream);
    return leave(code ? code
                      : submit(stream, (sim_work){.kind = WORK_CALL, .call = call, .call_data = data}, NULL, NULL));
}

/* Submits a write or a wait of a stream, on memory that its device can reach. */
static int submit_word(CUstream handle, sim_work_kind kind, CUdeviceptr address, uint64_t value, unsigned size,
                       unsigned flags)
{
    sim_stream *stream;
    sim_range *range;
    sim_work work = {.kind = kind};
    int code = stream_find(handle, &stream);
    if (code)
        return code;
    work.word = (sim_word){(void *)(uintptr_t)address, value, size, flags, stream->context->device};
    if (address % size || flags > (kind == WORK_WAIT ? WAIT_NOR : 0))
        return ERROR_INVALID_VALUE;
    code = check_span(work.word.address, size, SIDE_ANY, work.word.device,
                      kind == WORK_WAIT ? ACCESS_READ : ACCESS_WRITE, &range);
    if (!code && !range)
        code = ERROR_INVALID_VALUE; /* ordinary host memory */
    return code ? code : submit(stream, work, NULL, NULL);
}

SIM_API CUresult cuStreamWriteValue32_v2(CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned int flags)
{
    BEGIN(cuStreamWriteValue32_v2);
    return leave(submit_word(stream, WORK_WRITE, address, value, 4, flags));
}

SIM_API CUresult cuStreamWriteValue64_v2(CUstream stream, CUdeviceptr address, cuuint64_t value, unsigned int flags)
{
    BEGIN(cuStreamWriteValue64_v2);
    return leave(submit_word(stream, WORK_WRITE, address, value, 8, flags));
}

SIM_API CUresult cuStreamWaitValue32_v2(CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned int flags)
{
    BEGIN(cuStreamWaitValue32_v2);
    return leave(submit_word(stream, WORK_WAIT, address, value, 4, flags));
}

SIM_API CUresult cuStreamWaitValue64_v2(CUstream stream, CUdeviceptr address, cuuint64_t value, unsigned int flags)
{
    BEGIN(cuStreamWaitValue64_v2);
    return leave(submit_word(stream, WORK_WAIT, address, value, 8, flags));
}
