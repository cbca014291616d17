// SPDX-License-Identifier: MIT
/*  external.c - memory and timelines that another API has exported, and OpenGL

    A file simulates the exporter. A test makes it with the functions at the end of this file, or with
    memfd_create.
*/
#include "driver.h"

/* Values of CUexternalMemoryHandleType, CUexternalSemaphoreHandleType and CUgraphicsRegisterFlags. */
enum { EXTERNAL_FD = 1, EXTERNAL_DEDICATED = 1, SEMAPHORE_TIMELINE_FD = 9, REGISTER_WRITE_DISCARD = 2 };

static const char timeline_magic[16] = "ignis-timeline-1";

/* Finds where memory begins in a file of memfd_create, and its size. Mesa's Vulkan for CPUs has a header
   before it, which has the length of the whole file and the begin of the memory, and whose own length follows
   at the end. */
static off_t external_size(int file, off_t whole, off_t *offset)
{
    enum { MESA_HEADER = 40 };
    char path[64], target[128];
    uint64_t header[2];
    snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    ssize_t length = readlink(path, target, sizeof target - 1);
    target[length > 0 ? length : 0] = 0;
    *offset = 0;
    if (strncmp(target, "/memfd:llvmpipe memory", 22) || pread(file, header, sizeof header, 0) != sizeof header ||
        header[0] != (uint64_t)whole || header[1] % page || header[1] + MESA_HEADER > header[0])
        return whole;
    *offset = (off_t)header[1];
    return whole - *offset - MESA_HEADER;
}

/* On success it takes over the descriptor, as a driver does. Only the size of the file is accepted. */
SIM_API CUresult cuImportExternalMemory(CUexternalMemory *out, const CUDA_EXTERNAL_MEMORY_HANDLE_DESC *desc)
{
    BEGIN(cuImportExternalMemory);
    struct stat facts;
    REQUIRE(out && desc && !(desc->flags & ~(unsigned)EXTERNAL_DEDICATED), ERROR_INVALID_VALUE);
    REQUIRE((int)desc->type == EXTERNAL_FD, ERROR_NOT_SUPPORTED);
    REQUIRE(!fstat(desc->handle.fd, &facts) && S_ISREG(facts.st_mode), ERROR_INVALID_HANDLE);
    off_t offset, size = external_size(desc->handle.fd, facts.st_size, &offset);
    if ((off_t)desc->size != size)
        say("memory of %lld bytes is imported as one of %llu", (long long)size, desc->size);
    REQUIRE(desc->size && (off_t)desc->size == size, ERROR_INVALID_VALUE);
    sim_external *external = calloc(1, sizeof *external);
    if (external)
        external->handle = handle_new(OBJECT_EXTERNAL, external, current());
    if (!external || !external->handle) {
        free(external);
        return leave(ERROR_OUT_OF_MEMORY);
    }
    external->file = desc->handle.fd;
    external->size = (size_t)desc->size;
    external->offset = offset;
    *out = external->handle;
    return leave(SUCCESS);
}

/* Maps a file, followed by a gap, at an address that was never used. */
static sim_range *file_map(int file, off_t offset, size_t size, sim_range_kind kind)
{
    size_t usable = round_up(size, page);
    uintptr_t start = reserve(0, usable, page);
    sim_range *range = start ? range_new(start, size, kind, current()) : NULL;
    if (range && mmap((void *)start, usable, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED | MAP_NORESERVE, file,
                      offset) != MAP_FAILED)
        return range;
    if (range)
        range_delete(range);
    if (start)
        munmap((void *)start, usable + page);
    return NULL;
}

/* Unmaps a file. The addresses remain reserved, so that a late access is seen; they are remembered as those
   of a freed block. */
static void file_unmap(sim_range *range)
{
    size_t usable = round_up(range->size, page);
    unsigned at = sim.freed_count++ % REMEMBERED_BLOCKS;
    mmap((void *)range->start, usable, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0);
    sim.freed[at].start = range->start;
    sim.freed[at].size = range->size;
    range_delete(range);
}

SIM_API CUresult cuExternalMemoryGetMappedBuffer(CUdeviceptr *out, CUexternalMemory handle,
                                                 const CUDA_EXTERNAL_MEMORY_BUFFER_DESC *desc)
{
    BEGIN(cuExternalMemoryGetMappedBuffer);
    sim_external *external = handle_get(OBJECT_EXTERNAL, handle);
    REQUIRE(external, ERROR_INVALID_HANDLE);
    REQUIRE(out && desc && !desc->flags && desc->size && !desc->offset && desc->size <= external->size,
            ERROR_INVALID_VALUE);
    sim_range *range = file_map(external->file, external->offset, (size_t)desc->size, RANGE_EXTERNAL);
    REQUIRE(range, ERROR_OUT_OF_MEMORY);
    range->external = external;
    external->mappings++;
    *out = range->start;
    return leave(SUCCESS);
}

void external_unmap(sim_range *range)
{
    range->external->mappings--;
    file_unmap(range);
}

static void external_delete(sim_external *external)
{
    close(external->file);
    handle_drop(external->handle);
    free(external);
}

/* A driver leaves the mapping for ever. */
SIM_API CUresult cuDestroyExternalMemory(CUexternalMemory handle)
{
    BEGIN(cuDestroyExternalMemory);
    sim_external *external = handle_get(OBJECT_EXTERNAL, handle);
    REQUIRE(external, ERROR_INVALID_HANDLE);
    if (external->mappings)
        say("external memory is destroyed while it is mapped: cuMemFree comes first");
    REQUIRE(!external->mappings, ERROR_ILLEGAL_STATE);
    external_delete(external);
    return leave(SUCCESS);
}

/* Drops external objects, after their mappings. */
void context_drop_externals(sim_context *context)
{
    for (uint32_t i = 1; i < sim.slot_count; i++)
        if (sim.slots[i].context == context && sim.slots[i].kind == OBJECT_EXTERNAL)
            external_delete(sim.slots[i].object);
}

SIM_API CUresult cuImportExternalSemaphore(CUexternalSemaphore *out, const CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC *desc)
{
    BEGIN(cuImportExternalSemaphore);
    struct stat facts;
    REQUIRE(out && desc && !desc->flags, ERROR_INVALID_VALUE);
    REQUIRE((int)desc->type == SEMAPHORE_TIMELINE_FD, ERROR_NOT_SUPPORTED);
    REQUIRE(!fstat(desc->handle.fd, &facts) && S_ISREG(facts.st_mode) && facts.st_size == (off_t)page,
            ERROR_INVALID_HANDLE);
    sim_timeline *timeline = calloc(1, sizeof *timeline);
    void *shown = timeline ? mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_SHARED, desc->handle.fd, 0) : MAP_FAILED;
    int code = shown == MAP_FAILED ? ERROR_OUT_OF_MEMORY : SUCCESS;
    if (!code && memcmp(((sim_timeline_page *)shown)->magic, timeline_magic, sizeof timeline_magic))
        code = ERROR_INVALID_HANDLE;
    if (!code)
        timeline->handle = handle_new(OBJECT_TIMELINE, timeline, current());
    if (code || !timeline->handle) {
        if (shown != MAP_FAILED)
            munmap(shown, page);
        free(timeline);
        return leave(code ? code : ERROR_OUT_OF_MEMORY);
    }
    timeline->references = 1;
    timeline->file = desc->handle.fd;
    timeline->page = shown;
    timeline->context = current();
    *out = timeline->handle;
    return leave(SUCCESS);
}

static int timeline_queue(const CUexternalSemaphore *handles, const uint64_t *values, unsigned count,
                          CUstream stream_handle, sim_work_kind kind)
{
    sim_stream *stream;
    int code = stream_find(stream_handle, &stream);
    if (!code && stream->capture)
        return ERROR_NOT_SUPPORTED; /* a driver makes it a node, with the same value at each launch */
    for (unsigned i = 0; i < count && !code; i++) {
        sim_timeline *timeline = handle_get(OBJECT_TIMELINE, handles[i]);
        if (!timeline || timeline->context != stream->context)
            return ERROR_INVALID_HANDLE;
        timeline->references++;
        timeline->pending++;
        code = submit(stream, (sim_work){.kind = kind, .timeline = timeline, .value = values[i]}, NULL, NULL);
        timeline->pending -= code != SUCCESS;
    }
    return code;
}

enum { MAX_TIMELINES = 16 }; /* of one call */

SIM_API CUresult cuSignalExternalSemaphoresAsync(const CUexternalSemaphore *handles,
                                                 const CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS *params,
                                                 unsigned int count, CUstream stream)
{
    uint64_t values[MAX_TIMELINES];
    BEGIN(cuSignalExternalSemaphoresAsync);
    REQUIRE(handles && params && count <= MAX_TIMELINES, ERROR_INVALID_VALUE);
    for (unsigned i = 0; i < count; i++)
        values[i] = params[i].params.fence.value;
    return leave(timeline_queue(handles, values, count, stream, WORK_RAISE));
}

SIM_API CUresult cuWaitExternalSemaphoresAsync(const CUexternalSemaphore *handles,
                                               const CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS *params, unsigned int count,
                                               CUstream stream)
{
    uint64_t values[MAX_TIMELINES];
    BEGIN(cuWaitExternalSemaphoresAsync);
    REQUIRE(handles && params && count <= MAX_TIMELINES, ERROR_INVALID_VALUE);
    for (unsigned i = 0; i < count; i++)
        values[i] = params[i].params.fence.value;
    return leave(timeline_queue(handles, values, count, stream, WORK_REACH));
}

void timeline_delete(sim_timeline *timeline)
{
    handle_drop(timeline->handle);
    timeline_release(timeline);
}

/* A driver's behaviour is undefined while work is pending. */
SIM_API CUresult cuDestroyExternalSemaphore(CUexternalSemaphore handle)
{
    BEGIN(cuDestroyExternalSemaphore);
    sim_timeline *timeline = handle_get(OBJECT_TIMELINE, handle);
    REQUIRE(timeline, ERROR_INVALID_HANDLE);
    if (timeline->pending)
        say("a timeline is destroyed while %d wait(s) or signal(s) of it are queued", timeline->pending);
    REQUIRE(!timeline->pending, ERROR_ILLEGAL_STATE);
    timeline_delete(timeline);
    return leave(SUCCESS);
}

static sim_gl_buffer *gl_find(unsigned name)
{
    sim_gl_buffer *buffer = sim.gl_buffers;
    while (buffer && buffer->name != name)
        buffer = buffer->next;
    return buffer;
}

SIM_API CUresult cuGraphicsGLRegisterBuffer(CUgraphicsResource *out, unsigned int name, unsigned int flags)
{
    BEGIN(cuGraphicsGLRegisterBuffer);
    REQUIRE(out && flags <= REGISTER_WRITE_DISCARD, ERROR_INVALID_VALUE);
    REQUIRE(thread.gl, ERROR_INVALID_GRAPHICS_CONTEXT);
    sim_gl_buffer *buffer = gl_find(name);
    REQUIRE(buffer && !buffer->resource, buffer ? ERROR_UNKNOWN : ERROR_INVALID_VALUE);
    sim_resource *resource = calloc(1, sizeof *resource);
    if (resource)
        resource->handle = handle_new(OBJECT_RESOURCE, resource, current());
    if (!resource || !resource->handle) {
        free(resource);
        return leave(ERROR_OUT_OF_MEMORY);
    }
    resource->buffer = buffer;
    resource->context = current();
    buffer->resource = resource;
    *out = resource->handle;
    return leave(SUCCESS);
}

static void resource_unmap(sim_resource *resource)
{
    file_unmap(resource->range);
    resource->range = NULL;
}

void resource_delete(sim_resource *resource)
{
    if (resource->range)
        resource_unmap(resource);
    if (resource->buffer)
        resource->buffer->resource = NULL;
    handle_drop(resource->handle);
    free(resource);
}

SIM_API CUresult cuGraphicsUnregisterResource(CUgraphicsResource handle)
{
    BEGIN(cuGraphicsUnregisterResource);
    sim_resource *resource = handle_get(OBJECT_RESOURCE, handle);
    REQUIRE(resource, ERROR_INVALID_HANDLE);
    if (resource->range)
        say("an OpenGL buffer is unregistered while it is mapped");
    REQUIRE(!resource->range, ERROR_ILLEGAL_STATE);
    resource_delete(resource);
    return leave(SUCCESS);
}

/* Each mapping has an address of its own, as a driver may have it. */
SIM_API CUresult cuGraphicsMapResources(unsigned int count, CUgraphicsResource *handles, CUstream stream_handle)
{
    sim_stream *stream;
    BEGIN(cuGraphicsMapResources);
    REQUIRE(count == 1 && handles, ERROR_INVALID_VALUE);
    sim_resource *resource = handle_get(OBJECT_RESOURCE, handles[0]);
    REQUIRE(resource && resource->buffer, ERROR_INVALID_HANDLE);
    REQUIRE(thread.gl, ERROR_INVALID_GRAPHICS_CONTEXT);
    REQUIRE(!resource->range, ERROR_ALREADY_MAPPED);
    int code = stream_find(stream_handle, &stream);
    REQUIRE(!code, code);
    resource->range = file_map(resource->buffer->file, 0, resource->buffer->size, RANGE_GL);
    REQUIRE(resource->range, ERROR_MAP_FAILED);
    return leave(SUCCESS);
}

/* Work that other streams have queued on the memory finds it freed: the program has to order that before this
   stream. */
SIM_API CUresult cuGraphicsUnmapResources(unsigned int count, CUgraphicsResource *handles, CUstream stream_handle)
{
    sim_stream *stream;
    BEGIN(cuGraphicsUnmapResources);
    REQUIRE(count == 1 && handles, ERROR_INVALID_VALUE);
    sim_resource *resource = handle_get(OBJECT_RESOURCE, handles[0]);
    REQUIRE(resource, ERROR_INVALID_HANDLE);
    REQUIRE(thread.gl, ERROR_INVALID_GRAPHICS_CONTEXT);
    REQUIRE(resource->range, ERROR_NOT_MAPPED);
    int code = stream_find(stream_handle, &stream);
    code = code ? code : stream_finish(stream);
    REQUIRE(!code, code);
    REQUIRE(resource->range, ERROR_NOT_MAPPED); /* another thread may have unmapped it */
    resource_unmap(resource);
    return leave(SUCCESS);
}

SIM_API CUresult cuGraphicsResourceGetMappedPointer_v2(CUdeviceptr *out, size_t *size, CUgraphicsResource handle)
{
    BEGIN(cuGraphicsResourceGetMappedPointer_v2);
    sim_resource *resource = handle_get(OBJECT_RESOURCE, handle);
    REQUIRE(resource, ERROR_INVALID_HANDLE);
    REQUIRE(resource->range, ERROR_NOT_MAPPED);
    REQUIRE(out && size, ERROR_INVALID_VALUE);
    *out = resource->range->start;
    *size = resource->range->size;
    return leave(SUCCESS);
}

/* Makes a timeline semaphore with a value, exported: a file of one page that begins with a sim_timeline_page.
   -1 on failure. Memory needs no function: it is any file of memfd_create. */
SIM_API int ignis_sim_timeline(uint64_t value)
{
    sim_timeline_page shown = {.value = value};
    int file = memfd_create("ignis-sim-timeline", MFD_CLOEXEC);
    memcpy(shown.magic, timeline_magic, sizeof timeline_magic);
    if (file < 0 || (!ftruncate(file, (off_t)page) && pwrite(file, &shown, sizeof shown, 0) == sizeof shown))
        return file;
    close(file);
    return -1;
}

/* Sets whether the calling thread has an OpenGL context. */
SIM_API void ignis_sim_gl_current(int current_here) { thread.gl = current_here; }

/* Makes a buffer of that OpenGL, filled with zeros. 0 on failure. */
SIM_API unsigned ignis_sim_gl_buffer(size_t size)
{
    sim_gl_buffer *buffer = calloc(1, sizeof *buffer);
    int file = memfd_create("ignis-sim-gl", MFD_CLOEXEC);
    void *data = file < 0 || ftruncate(file, (off_t)size)
                     ? MAP_FAILED
                     : mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (!buffer || data == MAP_FAILED) {
        if (file >= 0)
            close(file);
        free(buffer);
        return 0;
    }
    pthread_mutex_lock(&sim.lock);
    *buffer = (sim_gl_buffer){.name = ++sim.gl_names, .file = file, .size = size, .data = data, .next = sim.gl_buffers};
    sim.gl_buffers = buffer;
    pthread_mutex_unlock(&sim.lock);
    return buffer->name;
}

/* Returns the content of a buffer as OpenGL sees it. NULL while it is mapped: a use then is an error. */
SIM_API void *ignis_sim_gl_data(unsigned name)
{
    pthread_mutex_lock(&sim.lock);
    sim_gl_buffer *buffer = gl_find(name);
    int mapped = buffer && buffer->resource && buffer->resource->range;
    if (mapped)
        say("OpenGL uses buffer %u while it is mapped", name);
    void *data = buffer && !mapped ? buffer->data : NULL;
    pthread_mutex_unlock(&sim.lock);
    return data;
}

SIM_API void ignis_sim_gl_delete(unsigned name)
{
    pthread_mutex_lock(&sim.lock);
    sim_gl_buffer **link = &sim.gl_buffers, *buffer = gl_find(name);
    if (buffer) {
        while (*link != buffer)
            link = &(*link)->next;
        *link = buffer->next;
        if (buffer->resource) {
            say("OpenGL buffer %u is deleted while it is registered", name);
            buffer->resource->buffer = NULL;
        }
        munmap(buffer->data, buffer->size);
        close(buffer->file);
        free(buffer);
    }
    pthread_mutex_unlock(&sim.lock);
}
