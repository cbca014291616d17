// SPDX-License-Identifier: MIT
/*  copy.c - copies and fills

    Both ends of a copy are checked against live memory when it is submitted and when it runs. Pinned memory
    is read and written when the copy runs; pageable memory during the call.
*/
#include "driver.h"

static int submit_fill(CUdeviceptr dst, unsigned value, unsigned size, size_t count, CUstream handle)
{
    sim_stream *stream;
    sim_range *range;
    int code = stream_find(handle, &stream);
    if (code || !count)
        return code;
    if (dst % size || count > SIZE_MAX / size)
        return ERROR_INVALID_VALUE;
    int device = stream->context->device;
    code = check_span((void *)(uintptr_t)dst, count * size, SIDE_DEVICE, device, ACCESS_WRITE, &range);
    if (code)
        return code;
    sim_work work = {.kind = WORK_FILL};
    work.fill =
        (sim_fill){.dst = (void *)(uintptr_t)dst, .count = count, .value = value, .size = size, .device = device};
    return submit(stream, work, NULL, NULL);
}

SIM_API CUresult cuMemsetD8Async(CUdeviceptr dst, unsigned char value, size_t count, CUstream stream)
{
    BEGIN(cuMemsetD8Async);
    return leave(submit_fill(dst, value, 1, count, stream));
}

SIM_API CUresult cuMemsetD16Async(CUdeviceptr dst, unsigned short value, size_t count, CUstream stream)
{
    BEGIN(cuMemsetD16Async);
    return leave(submit_fill(dst, value, 2, count, stream));
}

SIM_API CUresult cuMemsetD32Async(CUdeviceptr dst, unsigned int value, size_t count, CUstream stream)
{
    BEGIN(cuMemsetD32Async);
    return leave(submit_fill(dst, value, 4, count, stream));
}

/* Copies the source bytes now, as the real driver does for pageable memory. */
static int stage(sim_work *work)
{
    sim_copy *copy = &work->copy;
    char *bytes = work->storage = malloc(copy->width * copy->height);
    if (!bytes)
        return ERROR_OUT_OF_MEMORY;
    for (size_t i = 0; i < copy->height; i++)
        memcpy(bytes + i * copy->width, (const char *)copy->src + i * copy->src_pitch, copy->width);
    copy->src = bytes;
    copy->src_pitch = copy->width;
    return SUCCESS;
}

/* Submits a copy. Pinned memory is read and written when the copy runs. A pageable source is read during the
   call, and a copy to a pageable destination is finished when the call returns. */
static int submit_copy(sim_copy copy, CUstream handle, int synchronous)
{
    sim_stream *stream;
    sim_range *to = NULL, *from = NULL;
    int code = stream_find(handle, &stream);
    if (code || !copy.width || !copy.height)
        return code;
    if (copy.device != EVERY_DEVICE)
        copy.device = stream->context->device;
    code = check_span(copy.dst, extent(copy.dst_pitch, copy.width, copy.height), copy.dst_side, copy.device,
                      ACCESS_WRITE, &to);
    if (!code)
        code = check_span(copy.src, extent(copy.src_pitch, copy.width, copy.height), copy.src_side, copy.device,
                          ACCESS_READ, &from);
    if (code)
        return code;
    sim_work work = {.kind = WORK_COPY, .copy = copy};
    if (stream->capture)
        return submit(stream, work, NULL, NULL); /* a graph reads and writes when it runs */
    if (synchronous || !to)
        return submit_and_wait(stream, work);
    if (!from && (sim.streams != STREAMS_EAGER || any_driven()))
        code = stage(&work);
    return code ? code : submit(stream, work, NULL, NULL);
}

static sim_copy plain_copy(CUdeviceptr dst, sim_side dst_side, CUdeviceptr src, sim_side src_side, size_t bytes)
{
    return (sim_copy){.dst = (void *)(uintptr_t)dst,
                      .src = (const void *)(uintptr_t)src,
                      .width = bytes,
                      .height = 1,
                      .dst_side = dst_side,
                      .src_side = src_side};
}

SIM_API CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr dst, const void *src, size_t bytes, CUstream stream)
{
    BEGIN(cuMemcpyHtoDAsync_v2);
    return leave(submit_copy(plain_copy(dst, SIDE_DEVICE, (uintptr_t)src, SIDE_HOST, bytes), stream, 0));
}

SIM_API CUresult cuMemcpyDtoHAsync_v2(void *dst, CUdeviceptr src, size_t bytes, CUstream stream)
{
    BEGIN(cuMemcpyDtoHAsync_v2);
    return leave(submit_copy(plain_copy((uintptr_t)dst, SIDE_HOST, src, SIDE_DEVICE, bytes), stream, 0));
}

SIM_API CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr dst, CUdeviceptr src, size_t bytes, CUstream stream)
{
    BEGIN(cuMemcpyDtoDAsync_v2);
    return leave(submit_copy(plain_copy(dst, SIDE_DEVICE, src, SIDE_DEVICE, bytes), stream, 0));
}

SIM_API CUresult cuMemcpyAsync(CUdeviceptr dst, CUdeviceptr src, size_t bytes, CUstream stream)
{
    BEGIN(cuMemcpyAsync);
    return leave(submit_copy(plain_copy(dst, SIDE_ANY, src, SIDE_ANY, bytes), stream, 0));
}

/* Tells whether an address is in a block of that context. */
static int owned_by(CUdeviceptr address, CUcontext handle)
{
    sim_range *range = range_at((uintptr_t)address);
    return range && range->context == handle_get(OBJECT_CONTEXT, handle);
}

SIM_API CUresult cuMemcpyPeerAsync(CUdeviceptr dst, CUcontext dst_context, CUdeviceptr src, CUcontext src_context,
                                   size_t bytes, CUstream stream)
{
    BEGIN(cuMemcpyPeerAsync);
    REQUIRE(handle_get(OBJECT_CONTEXT, dst_context) && handle_get(OBJECT_CONTEXT, src_context), ERROR_INVALID_CONTEXT);
    REQUIRE(!bytes || (owned_by(dst, dst_context) && owned_by(src, src_context)), ERROR_INVALID_VALUE);
    sim_copy copy = plain_copy(dst, SIDE_DEVICE, src, SIDE_DEVICE, bytes);
    copy.device = EVERY_DEVICE;
    return leave(submit_copy(copy, stream, 0));
}

SIM_API CUresult cuMemcpyHtoD_v2(CUdeviceptr dst, const void *src, size_t bytes)
{
    BEGIN(cuMemcpyHtoD_v2);
    return leave(submit_copy(plain_copy(dst, SIDE_DEVICE, (uintptr_t)src, SIDE_HOST, bytes), NULL, 1));
}

SIM_API CUresult cuMemcpyDtoH_v2(void *dst, CUdeviceptr src, size_t bytes)
{
    BEGIN(cuMemcpyDtoH_v2);
    return leave(submit_copy(plain_copy((uintptr_t)dst, SIDE_HOST, src, SIDE_DEVICE, bytes), NULL, 1));
}

/* Asynchronous to the host, also without a stream. */
SIM_API CUresult cuMemcpyDtoD_v2(CUdeviceptr dst, CUdeviceptr src, size_t bytes)
{
    BEGIN(cuMemcpyDtoD_v2);
    return leave(submit_copy(plain_copy(dst, SIDE_DEVICE, src, SIDE_DEVICE, bytes), NULL, 0));
}

/* Returns pointer and side of one end of a 2-D copy; 0 for arrays, which the simulator does not have. */
static int end_of_2d(unsigned type, const void *host, CUdeviceptr device, uintptr_t *address, sim_side *side)
{
    static const sim_side sides[] = {SIDE_ANY, SIDE_HOST, SIDE_DEVICE, SIDE_ANY, SIDE_ANY};
    if (type < 1 || type > 4 || type == 3)
        return 0;
    *address = type == 1 ? (uintptr_t)host : (uintptr_t)device;
    *side = sides[type];
    return 1;
}

SIM_API CUresult cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D *copy, CUstream stream)
{
    BEGIN(cuMemcpy2DAsync_v2);
    uintptr_t dst, src;
    sim_side dst_side, src_side;
    REQUIRE(copy && end_of_2d((unsigned)copy->dstMemoryType, copy->dstHost, copy->dstDevice, &dst, &dst_side) &&
                end_of_2d((unsigned)copy->srcMemoryType, copy->srcHost, copy->srcDevice, &src, &src_side),
            ERROR_INVALID_VALUE);
    size_t dst_pitch = copy->dstPitch ? copy->dstPitch : copy->WidthInBytes + copy->dstXInBytes;
    size_t src_pitch = copy->srcPitch ? copy->srcPitch : copy->WidthInBytes + copy->srcXInBytes;
    REQUIRE(dst_pitch >= copy->WidthInBytes + copy->dstXInBytes && src_pitch >= copy->WidthInBytes + copy->srcXInBytes,
            ERROR_INVALID_VALUE);
    sim_copy rows = {.dst = (void *)(dst + copy->dstY * dst_pitch + copy->dstXInBytes),
                     .dst_pitch = dst_pitch,
                     .dst_side = dst_side,
                     .src = (void *)(src + copy->srcY * src_pitch + copy->srcXInBytes),
                     .src_pitch = src_pitch,
                     .src_side = src_side,
                     .width = copy->WidthInBytes,
                     .height = copy->Height};
    return leave(submit_copy(rows, stream, 0));
}
