/*  interop/opengl.c - registered OpenGL buffers, mapped as arrays

    Calls come from the thread whose OpenGL context is current.
    May use: external_memory.c, >>array. Invariant: a buffer is unmapped only if no view and no graph uses its
    memory.
    Locks: a buffer's slot, an array's slot, a storage, a device, in this order. */

#include "room.h"

typedef struct ignis__gl_buffer {
    ignis__slot slot; /* its lock guards the rest, and is held while the buffer is mapped and unmapped */
    ignis__device *device;
    unsigned name;
    void *resource;
    ignis__storage *storage; /* of the array, while mapped; the buffer is one of its users */
    ignis_array array;       /* over it, which the caller may free */
} ignis__gl_buffer;

static ignis__pool ignis__gl_buffers =
    IGNIS__POOL(ignis__gl_buffer, IGNIS__KIND_GL_BUFFER, "OpenGL buffer", IGNIS_DIAG_GL_BUFFER_FREED);

IGNIS__COLD IGNIS_API ignis_gl_buffer ignis_gl_register(unsigned name, ignis_gl_access access)
{
    static const char call[] = "ignis_gl_register";
    static const unsigned flags[IGNIS_GL_ACCESS_COUNT] = {IGNIS__CU_GRAPHICS_NONE, IGNIS__CU_GRAPHICS_READ_ONLY,
                                                          IGNIS__CU_GRAPHICS_WRITE_DISCARD};
    ignis_gl_buffer result = IGNIS__ZERO;
    ignis__gl_buffer *buffer;
    ignis__device *device;
    ignis__binding binding;
    int error = -1;
    if (!ignis__enter(call))
        return result;
    if ((int)access < 0 || access >= IGNIS_GL_ACCESS_COUNT) {
        ignis__fail(IGNIS_DIAG_BAD_ENUM, call, "access is %d; expected IGNIS_GL_READ_WRITE to IGNIS_GL_WRITE, 0 to 2",
                    (int)access);
        return result;
    }
    if (!IGNIS__GRAPHICS_CAN(call, cuGraphicsGLRegisterBuffer) ||
        !IGNIS__GRAPHICS_CAN(call, cuGraphicsUnregisterResource) ||
        !IGNIS__GRAPHICS_CAN(call, cuGraphicsMapResources) || !IGNIS__GRAPHICS_CAN(call, cuGraphicsUnmapResources) ||
        !IGNIS__GRAPHICS_CAN(call, cuGraphicsResourceGetMappedPointer_v2) ||
        (buffer = (ignis__gl_buffer *)ignis__pool_take_zeroed(call, &ignis__gl_buffers)) == NULL)
        return result;
    device = ignis__device_current_enter(call, &binding);
    if (device) {
        error = IGNIS__CUDA(cuGraphicsGLRegisterBuffer, (&buffer->resource, name, flags[access]));
        if (ignis__cuda_is_fatal(error) || error == IGNIS__CU_OUT_OF_MEMORY)
            ignis__cuda_fail(call, device, "cuGraphicsGLRegisterBuffer", error);
        else if (error != 0)
            ignis__fail_because(IGNIS_DIAG_CUDA_CALL, call, error, ignis__cuda_name(error), NULL,
                                "cuGraphicsGLRegisterBuffer failed with %s (%d): this thread has no OpenGL context of "
                                "device %d, or that has no "
                                "buffer %u with storage",
                                ignis__cuda_name(error), error, ignis__device_ordinal(device), name);
        ignis__device_leave(&binding);
    }
    if (error == 0) {
        buffer->device = device;
        buffer->name = name;
        result.id = ignis__pool_publish(&ignis__gl_buffers, buffer);
    } else {
        ignis__pool_recycle(&ignis__gl_buffers, buffer);
    }
    return result;
}

static void ignis__gl_buffer_drop(ignis__gl_buffer *buffer)
{
    if (ignis__pool_drop(buffer))
        ignis__pool_recycle(&ignis__gl_buffers, buffer);
}

/*  Holds and locks the buffer of a handle, and enters its device. NULL, and reported, on failure. ends: the call
    frees something, and continues after a fault. */
static ignis__gl_buffer *ignis__gl_enter(const char *call, ignis_gl_buffer handle, ignis__binding *binding, bool ends)
{
    ignis__gl_buffer *buffer = (ignis__gl_buffer *)ignis__handle_hold(call, &ignis__gl_buffers, handle.id);
    if (!buffer)
        return NULL;
    binding->pushed = false;
    if (!ignis__capture_refuses(call) &&
        ((ends && ignis__devices_lost()) || ignis__device_enter(call, buffer->device, binding))) {
        ignis__mutex_lock(&buffer->slot.lock);
        if (ignis__pool_live(buffer))
            return buffer;
        ignis__mutex_unlock(&buffer->slot.lock);
        ignis__fail_stale(call, &ignis__gl_buffers, handle.id); /* by another thread, meanwhile */
        ignis__device_leave(binding);
    }
    ignis__gl_buffer_drop(buffer);
    return NULL;
}

static ignis_status ignis__gl_leave(ignis__gl_buffer *buffer, const ignis__binding *binding, bool ok)
{
    ignis__mutex_unlock(&buffer->slot.lock);
    ignis__device_leave(binding);
    ignis__gl_buffer_drop(buffer);
    return ok ? IGNIS_OK : ignis__failed();
}

/*  Makes the array over a buffer that is mapped on a stream. */
static ignis_array ignis__gl_array(const char *call, ignis__gl_buffer *buffer, ignis_dtype dtype,
                                   const ignis_shape *shape, void *stream)
{
    ignis_array none = IGNIS__ZERO, result;
    ignis_array_desc desc = IGNIS__ZERO;
    ignis__address address = 0;
    ignis__array *array;
    size_t size = 0;
    int64_t numel = 0, element = ignis__dtypes[dtype].size;
    if (IGNIS__CUDA_FAILED(call, buffer->device, cuGraphicsResourceGetMappedPointer_v2,
                           (&address, &size, buffer->resource)))
        return none;
    desc.shape = shape->ndim ? *shape : IGNIS_SHAPE((int64_t)size / element);
    if (!ignis__shape_check(call, &desc.shape, dtype, &numel))
        return none;
    if ((uint64_t)(numel * element) > size) {
        ignis__fail(IGNIS_DIAG_BAD_NUMBER, call, "the array has %lld bytes, OpenGL's buffer %u has %llu",
                    (long long)(numel * element), buffer->name, (unsigned long long)size);
        return none;
    }
    desc.dtype = dtype;
    desc.device = ignis__device_in_desc(buffer->device);
    desc.stream = stream;
    desc.ptr = (void *)(uintptr_t)address;
    desc.tag = "gl";
    result = ignis__array_create_over(call, &desc, true);
    array = result.id ? (ignis__array *)ignis__pool_hold(&ignis__arrays, result.id) : NULL;
    if (array) {
        buffer->storage = array->storage;
        buffer->array = result;
        ignis__atomic_add(&array->storage->users, 1);
        ignis__array_drop(call, array);
    }
    return result;
}

IGNIS_API ignis_array ignis_gl_map(ignis_gl_buffer handle, ignis_dtype dtype, ignis_shape shape)
{
    static const char call[] = "ignis_gl_map";
    ignis_array result = IGNIS__ZERO;
    ignis__binding binding;
    ignis__gl_buffer *buffer = ignis__gl_enter(call, handle, &binding, false);
    void *stream;
    if (!buffer)
        return result;
    dtype = dtype ? dtype : IGNIS_F32;
    stream = ignis__stream_current(buffer->device);
    if (buffer->storage)
        ignis__fail(IGNIS_DIAG_GL_BUFFER_STATE, call, "OpenGL's buffer %u is mapped already", buffer->name);
    else if (ignis__dtype_valid(call, dtype) &&
             !IGNIS__CUDA_FAILED(call, buffer->device, cuGraphicsMapResources, (1, &buffer->resource, stream))) {
        result = ignis__gl_array(call, buffer, dtype, &shape, stream);
        if (!result.id)
            (void)IGNIS__CUDA(cuGraphicsUnmapResources, (1, &buffer->resource, stream));
    }
    (void)ignis__gl_leave(buffer, &binding, true);
    return result;
}

/*  Returns the memory of a locked buffer, whose arrays are gone, to OpenGL, after the work of all streams on it. */
static bool ignis__gl_return(const char *call, ignis__gl_buffer *buffer)
{
    ignis__storage *storage = buffer->storage;
    void *stream;
    bool lost = ignis__devices_lost(), ordered = true, ok;
    int i;
    ignis__mutex_lock(&storage->lock);
    stream = storage->stream;
    for (i = 0; i < storage->used_on_count && !lost; i++)
        ordered = ignis__stream_order(call, storage->used_on[i].device, storage->used_on[i].stream, storage->device,
                                      stream) &&
                  ordered;
    ok = lost || (ordered &&
                  !IGNIS__CUDA_FAILED(call, buffer->device, cuGraphicsUnmapResources, (1, &buffer->resource, stream)));
    ignis__mutex_unlock(&storage->lock);
    if (!ok)
        return false;
    buffer->storage = NULL;
    buffer->array.id = 0;
    ignis__storage_drop(call, storage);
    return true;
}

IGNIS_API ignis_status ignis_gl_unmap(ignis_gl_buffer handle)
{
    static const char call[] = "ignis_gl_unmap";
    ignis__binding binding;
    ignis__gl_buffer *buffer = ignis__gl_enter(call, handle, &binding, true);
    bool live, ok = false;
    uint64_t users;
    if (!buffer)
        return ignis__failed();
    if (!buffer->storage) {
        ignis__fail(IGNIS_DIAG_GL_BUFFER_STATE, call, "OpenGL's buffer %u is not mapped", buffer->name);
        return ignis__gl_leave(buffer, &binding, false);
    }
    live = ignis_array_is_live(buffer->array);
    users = ignis__atomic_load(&buffer->storage->users) - 1 - (uint64_t)live; /* beside the buffer and the array */
    if (users > 0)
        ignis__fail(IGNIS_DIAG_GL_BUFFER_USED, call,
                    "OpenGL's buffer %u is used by %llu view%s or graph%s of the array that was mapped", buffer->name,
                    (unsigned long long)users, users == 1 ? "" : "s", users == 1 ? "" : "s");
    else
        ok = !live || ignis__array_free_as(call, buffer->array, IGNIS_OWNER_IGNIS) == IGNIS_OK;
    ok = ok && ignis__gl_return(call, buffer);
    return ignis__gl_leave(buffer, &binding, ok);
}

IGNIS__COLD IGNIS_API ignis_status ignis_gl_unregister(ignis_gl_buffer handle)
{
    static const char call[] = "ignis_gl_unregister";
    ignis__binding binding;
    ignis__gl_buffer *buffer;
    bool ok = false;
    if (!handle.id)
        return IGNIS_OK;
    buffer = ignis__gl_enter(call, handle, &binding, true);
    if (!buffer)
        return ignis__failed();
    if (buffer->storage) {
        ignis__fail(IGNIS_DIAG_GL_BUFFER_STATE, call, "OpenGL's buffer %u is mapped; call ignis_gl_unmap before",
                    buffer->name);
    } else if (ignis__devices_lost() ||
               !IGNIS__CUDA_FAILED(call, buffer->device, cuGraphicsUnregisterResource, (buffer->resource))) {
        ignis__pool_kill(buffer);
        ignis__pool_drop(buffer); /* the handle's own hold */
        ok = true;
    }
    return ignis__gl_leave(buffer, &binding, ok);
}

/*  Frees the remaining buffers; their arrays are freed. Without an OpenGL context in this thread the driver may
    refuse, and frees the rest with the device. */
IGNIS__COLD IGNIS__PRIVATE void ignis__gl_buffers_close(const char *call)
{
    ignis__gl_buffer *buffer;
    ignis__binding binding;
    uint64_t index = 0;
    while ((buffer = (ignis__gl_buffer *)ignis__pool_next(&ignis__gl_buffers, &index)) != NULL) {
        bool entered = ignis__device_enter_to_give(call, buffer->device, &binding);
        ignis__leak_report(call, IGNIS_DIAG_HANDLE_LEAKED, "OpenGL buffer %u%s", buffer->name,
                           buffer->storage ? ", which is mapped" : "");
        if (buffer->storage && !ignis__gl_return(call, buffer)) {
            ignis__storage_drop(call, buffer->storage);
            buffer->storage = NULL;
        }
        if (entered) {
            (void)IGNIS__CUDA(cuGraphicsUnregisterResource, (buffer->resource));
            ignis__device_leave(&binding);
        }
        ignis__handle_kill(buffer);
        ignis__gl_buffer_drop(buffer);
    }
}
