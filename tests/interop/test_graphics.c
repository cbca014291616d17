// SPDX-License-Identifier: MIT
/*  test_graphics.c - memory, fences and buffers of graphics APIs

    The simulator plays the other API: memory is a file of memfd_create, a timeline semaphore one of ignis_sim_timeline,
    and it has buffers of an OpenGL. gpu_vulkan.c and gpu_opengl.c do the same with a real one. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "fault.h"

#include "array.h"

#include "ignis_collective.h"

#ifndef _WIN32
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>

static struct {
    long (*live)(const char *kind);
    int (*fail)(const char *spec);
    int (*timeline)(uint64_t value);
    void (*gl_current)(int here);
    unsigned (*gl_buffer)(size_t size);
    void *(*gl_data)(unsigned name);
    void (*gl_delete)(unsigned name);
} sim;

static void sim_find(void *library, const char *name, void *function)
{
    void *found = dlsym(library, name);
    CHECK(found != NULL);
    memcpy(function, &found, sizeof found);
}

/*  Sets up; where the driver is a real one the test ends. */
#define GRAPHICS_SETUP()                                                                       \
    do {                                                                                       \
        SETUP(NULL);                                                                           \
        if (!test_is_simulator())                                                              \
            SKIP("only the simulator plays the other API; make check-graphics has real ones"); \
        graphics_begin();                                                                      \
    } while (0)

static void graphics_begin(void)
{
    ignis_library_info info;
    void *library;
    if (sim.live)
        return;
    CHECK_OK(ignis_library_query(IGNIS_LIBRARY_CUDA, &info));
    library = dlopen(info.path, RTLD_NOW | RTLD_LOCAL);
    CHECK(library != NULL);
    sim_find(library, "ignis_sim_live", &sim.live);
    sim_find(library, "ignis_sim_fail", &sim.fail);
    sim_find(library, "ignis_sim_timeline", &sim.timeline);
    sim_find(library, "ignis_sim_gl_current", &sim.gl_current);
    sim_find(library, "ignis_sim_gl_buffer", &sim.gl_buffer);
    sim_find(library, "ignis_sim_gl_data", &sim.gl_data);
    sim_find(library, "ignis_sim_gl_delete", &sim.gl_delete);
}

/*  Memory of the other API, which has it mapped at `bytes`, and exports `fd`. */
typedef struct exported {
    unsigned char *bytes;
    size_t size;
    int fd;
} exported;

static exported export_memory(size_t size)
{
    exported memory;
    memory.size = size;
    memory.fd = (int)syscall(SYS_memfd_create, "test", 1u);
    CHECK(memory.fd >= 0 && ftruncate(memory.fd, (off_t)size) == 0);
    memory.bytes = (unsigned char *)mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, memory.fd, 0);
    CHECK(memory.bytes != MAP_FAILED);
    return memory;
}

static bool is_open(int fd) { return fcntl(fd, F_GETFD) >= 0; }

static int open_files(void)
{
    DIR *folder = opendir("/proc/self/fd");
    int count = 0;
    while (folder && readdir(folder))
        count++;
    if (folder)
        closedir(folder);
    return count;
}

static ignis_external_desc external(const exported *memory, ignis_dtype dtype, ignis_shape shape)
{
    ignis_external_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.type = IGNIS_EXTERNAL_FD;
    desc.fd = memory->fd;
    desc.size = (int64_t)memory->size;
    desc.dtype = dtype;
    desc.shape = shape;
    return desc;
}

/*  A timeline of the other API, which sees its value here; layout: sim/driver/driver.h. */
typedef struct timeline {
    uint64_t *value;
    void *page;
    int fd;
} timeline;

static timeline export_timeline(uint64_t value)
{
    timeline line;
    line.fd = sim.timeline(value);
    line.page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, line.fd, 0);
    CHECK(line.page != MAP_FAILED);
    line.value = (uint64_t *)line.page + 2;
    return line;
}

static uint64_t now_at(const timeline *line) { return ignis__atomic_load(line->value); }

static ignis_fence import_fence(int fd)
{
    ignis_external_fence_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.type = IGNIS_FENCE_TIMELINE_FD;
    desc.fd = fd;
    return ignis_external_fence(&desc);
}

static void end_memory(const exported *memory) { munmap(memory->bytes, memory->size); }
static void end_timeline(const timeline *line) { munmap(line->page, 4096); }

static void check_nothing_imported(void)
{
    CHECK_INT(sim.live("external"), 0);
    CHECK_INT(sim.live("timeline"), 0);
    CHECK_INT(sim.live("resource"), 0);
}

/* --- memory ------------------------------------------------------------------------------------------------------- */

TEST(bytes_go_both_ways_at_every_offset)
{
    static const size_t sizes[] = {4, 4096, 4100, 65536 + 12};
    ignis_array warm;
    int i, files;
    GRAPHICS_SETUP();
    warm = make_counting(IGNIS_SHAPE(4), 1);
    CHECK_OK(ignis_array_add(warm, warm, warm)); /* opens what stays open */
    files = open_files();
    for (i = 0; i < COUNT_OF(sizes); i++) {
        size_t elements = sizes[i] / 4, first;
        for (first = 0; first < elements; first = first * 3 + 1) {
            exported memory = export_memory(sizes[i]);
            ignis_external_desc desc = external(&memory, IGNIS_I32, IGNIS_SHAPE((int64_t)(elements - first)));
            int32_t *theirs = (int32_t *)(void *)memory.bytes, *ours = (int32_t *)malloc(sizes[i]);
            ignis_array array, one = make_counting(IGNIS_SHAPE((int64_t)(elements - first)), 7);
            size_t k, wrong = 0;
            desc.offset = (int64_t)first * 4;
            desc.dedicated = i == 1;
            for (k = 0; k < elements; k++)
                theirs[k] = (int32_t)(1000 + k);
            array = ignis_external_array(&desc);
            CHECK_OK(ignis_array_to_host(array, ours, IGNIS_I32, (int64_t)(elements - first)));
            for (k = first; k < elements; k++)
                wrong += ours[k - first] != (int32_t)(1000 + k);
            CHECK_OK(ignis_array_add(array, array, one));
            CHECK_OK(ignis_synchronize());
            for (k = 0; k < elements; k++)
                wrong += theirs[k] != (int32_t)(1000 + k + (k < first ? 0 : 7 + k - first));
            CHECK_INT(wrong, 0);
            drop(array), drop(one);
            free(ours);
            end_memory(&memory);
        }
    }
    CHECK_INT(open_files(), files);
    check_nothing_imported();
    drop(warm);
}

TEST(such_an_array_is_none_of_the_cache)
{
    exported memory;
    ignis_external_desc desc;
    ignis_array array;
    ignis_array_info info;
    GRAPHICS_SETUP();
    memory = export_memory(4096);
    desc = external(&memory, IGNIS_DTYPE_DEFAULT, IGNIS_SHAPE(2, 3, 5));
    desc.tag = "particles";
    array = ignis_external_array(&desc);
    info = info_of(array);
    CHECK_INT(info.dtype, IGNIS_F32);
    CHECK_TEXT(info.tag, "particles");
    CHECK(!info.owns_memory && info.on_device);
    CHECK_INT(info.owner, IGNIS_OWNER_IGNIS);
    CHECK_SHAPE(array, IGNIS_SHAPE(2, 3, 5));
    CHECK_INT(memory_of(0).live_bytes, 0);
    CHECK_INT(memory_of(0).reserved_bytes, 0);
    CHECK_FAILS(ignis_vmm_of_array(array, NULL), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NOT_SHAREABLE);
    CHECK_MESSAGE_HAS("graphics API");
    drop(array);
    CHECK_INT(sim.live("external"), 0);
    CHECK_FAILS(ignis_array_free(array), IGNIS_ERROR_FREED, IGNIS_DIAG_ARRAY_FREED);
    end_memory(&memory);
}

TEST(an_empty_array_is_given_back_too)
{
    exported memory;
    ignis_external_desc desc;
    GRAPHICS_SETUP();
    memory = export_memory(64);
    desc = external(&memory, IGNIS_F32, IGNIS_SHAPE(0, 3));
    desc.offset = 64;
    drop(ignis_external_array(&desc));
    CHECK(!is_open(memory.fd));
    check_nothing_imported();
    end_memory(&memory);
}

TEST(a_descriptor_is_the_drivers_after_success_alone)
{
    exported memory;
    ignis_external_desc desc;
    ignis_array array;
    int wrong, files;
    GRAPHICS_SETUP();
    memory = export_memory(4096);
    files = open_files();
#define REFUSED(change, status, diagnostic, part)                                                        \
    do {                                                                                                 \
        desc = external(&memory, IGNIS_F32, IGNIS_SHAPE(1024));                                          \
        (void)(change);                                                                                  \
        CHECK_REFUSED(0, ignis_external_array(&desc).id, IGNIS_ERROR_##status, IGNIS_DIAG_##diagnostic); \
        CHECK_MESSAGE_HAS(part);                                                                         \
        CHECK(is_open(memory.fd));                                                                       \
        CHECK_INT(open_files(), files);                                                                  \
        check_nothing_imported();                                                                        \
    } while (0)
    REFUSED(desc.type = (ignis_external_type)0, ARGUMENT, BAD_ENUM, "desc.type is 0");
    REFUSED(desc.type = IGNIS_EXTERNAL_COUNT, ARGUMENT, BAD_ENUM, "IGNIS_EXTERNAL_D3D12_RESOURCE is 4");
    REFUSED(desc.type = IGNIS_EXTERNAL_WIN32, UNSUPPORTED, UNSUPPORTED, "IGNIS_EXTERNAL_WIN32, which only Windows has");
    REFUSED(desc.type = IGNIS_EXTERNAL_D3D12_HEAP, UNSUPPORTED, UNSUPPORTED, "only Windows");
    REFUSED(desc.type = IGNIS_EXTERNAL_D3D12_RESOURCE, UNSUPPORTED, UNSUPPORTED, "only Windows");
    REFUSED(desc.fd = -1, ARGUMENT, EXTERNAL_HANDLE, "desc.fd is -1");
    REFUSED(desc.fd = 1000000, ARGUMENT, EXTERNAL_HANDLE, "desc.fd 1000000 is not an open descriptor");
    REFUSED(desc.size = 0, ARGUMENT, BAD_NUMBER, "desc.size is 0");
    REFUSED(desc.size = -4096, ARGUMENT, BAD_NUMBER, "desc.size is -4096");
    REFUSED(desc.size = 4092, ARGUMENT, BAD_NUMBER, "4096 bytes, but from desc.offset 0 on there are 4092");
    REFUSED(desc.size = 8192, CUDA, CUDA_CALL, "desc.size is not that of the memory object");
    REFUSED(desc.offset = -4, ARGUMENT, BAD_NUMBER, "desc.offset is -4");
    REFUSED(desc.offset = 2, ARGUMENT, BAD_NUMBER, "not a multiple of the 4 bytes");
    REFUSED(desc.offset = 4, ARGUMENT, BAD_NUMBER, "from desc.offset 4 on there are 4092 of desc.size 4096");
    REFUSED(desc.offset = 8192, ARGUMENT, BAD_NUMBER, "there are 0 of");
    REFUSED(desc.offset = INT64_MAX - 3, ARGUMENT, BAD_NUMBER, "there are 0 of");
    REFUSED(desc.shape = IGNIS_SHAPE(INT64_C(1) << 40, INT64_C(1) << 40), SHAPE, SHAPE_OVERFLOW, "");
    REFUSED(desc.shape.ndim = 0, SHAPE, SHAPE_RANK, "");
    REFUSED(desc.shape.dim[0] = -1, SHAPE, SHAPE_DIM, "");
    REFUSED(desc.dtype = IGNIS_DTYPE_COUNT, ARGUMENT, BAD_ENUM, "");
    REFUSED(desc.device = 63, DEVICE, DEVICE_RANGE, "");
    REFUSED(sim.fail("cuImportExternalMemory:1"), CUDA, CUDA_CALL, "cuImportExternalMemory");
    REFUSED(sim.fail("cuExternalMemoryGetMappedBuffer:1"), CUDA, CUDA_CALL, "cuExternalMemoryGetMappedBuffer");
#undef REFUSED
    sim.fail(NULL);
    CHECK_REFUSED(0, ignis_external_array(NULL).id, IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NULL_ARGUMENT);
    wrong = open("/dev/null", O_RDWR);
    desc = external(&memory, IGNIS_F32, IGNIS_SHAPE(1024));
    desc.fd = wrong;
    CHECK_REFUSED(0, ignis_external_array(&desc).id, IGNIS_ERROR_CUDA, IGNIS_DIAG_CUDA_CALL);
    CHECK_MESSAGE_HAS("CUDA_ERROR_INVALID_HANDLE");
    CHECK(is_open(wrong));
    close(wrong);
    desc.fd = memory.fd;
    array = ignis_external_array(&desc);
    CHECK(!is_open(memory.fd));
    CHECK_REFUSED(0, ignis_external_array(&desc).id, IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_EXTERNAL_HANDLE); /* it is gone */
    drop(array);
    CHECK_INT(open_files(), files - 1);
    end_memory(&memory);
}

TEST(views_and_graphs_keep_the_memory)
{
    exported memory;
    ignis_external_desc desc;
    ignis_array array, view;
    ignis_graph graph;
    float *theirs;
    GRAPHICS_SETUP();
    memory = export_memory(4096);
    theirs = (float *)(void *)memory.bytes;
    desc = external(&memory, IGNIS_F32, IGNIS_SHAPE(32, 32));
    array = ignis_external_array(&desc);
    CHECK_OK(ignis_array_fill(array, 1.0));
    view = ignis_array_slice(array, 0, 16, 16);
    CHECK_OK(ignis_graph_begin());
    CHECK_OK(ignis_array_scale(view, view, 2.0));
    graph = ignis_graph_end();
    drop(array), drop(view);
    CHECK_INT(sim.live("external"), 2);
    CHECK_OK(ignis_graph_launch(graph));
    CHECK_OK(ignis_graph_launch(graph));
    CHECK_OK(ignis_synchronize());
    CHECK(theirs[0] == 1.0F && theirs[511] == 1.0F && theirs[512] == 4.0F && theirs[1023] == 4.0F);
    CHECK_OK(ignis_graph_free(graph));
    check_nothing_imported();
    end_memory(&memory);
}

TEST(what_is_captured_is_refused)
{
    exported memory;
    timeline line;
    ignis_external_desc desc;
    ignis_fence fence;
    ignis_array array;
    int fd;
    GRAPHICS_SETUP();
    memory = export_memory(4096);
    line = export_timeline(0);
    desc = external(&memory, IGNIS_F32, IGNIS_SHAPE(4));
    fd = fcntl(line.fd, F_DUPFD_CLOEXEC, 0);
    fence = import_fence(line.fd);
    array = make(IGNIS_SHAPE(4), IGNIS_F32);
    CHECK_OK(ignis_array_fill(array, 1.0));
    CHECK_OK(ignis_graph_begin());
    CHECK_REFUSED(0, ignis_external_array(&desc).id, IGNIS_ERROR_UNSUPPORTED, IGNIS_DIAG_CAPTURE_REFUSED);
    import_fence(fd);
    CHECK_INT(ignis_status_last(), IGNIS_ERROR_UNSUPPORTED);
    ignis_status_clear();
    CHECK_STATUS(ignis_fence_wait(fence, 1), IGNIS_ERROR_UNSUPPORTED, IGNIS_DIAG_CAPTURE_REFUSED);
    CHECK_MESSAGE_HAS("before ignis_graph_launch");
    CHECK_STATUS(ignis_fence_signal(fence, 1), IGNIS_ERROR_UNSUPPORTED, IGNIS_DIAG_CAPTURE_REFUSED);
    CHECK_MESSAGE_HAS("after ignis_graph_launch");
    CHECK_OK(ignis_array_zero(array)); /* the capture goes on */
    CHECK_OK(ignis_graph_free(ignis_graph_end()));
    CHECK(is_open(memory.fd) && is_open(fd));
    CHECK_OK(ignis_fence_signal(fence, 1));
    CHECK_OK(ignis_fence_free(fence));
    CHECK_INT(now_at(&line), 1);
    drop(array);
    close(memory.fd), close(fd);
    end_memory(&memory), end_timeline(&line);
}

/* --- fences ------------------------------------------------------------------------------------------------------- */

TEST(a_fence_is_signaled_in_the_order_of_the_stream)
{
    exported memory;
    timeline line;
    ignis_external_desc desc;
    ignis_array array;
    ignis_fence fence;
    uint64_t value;
    GRAPHICS_SETUP();
    memory = export_memory(4096);
    line = export_timeline(5);
    desc = external(&memory, IGNIS_U8, IGNIS_SHAPE(4096));
    array = ignis_external_array(&desc);
    fence = import_fence(line.fd);
    CHECK(!is_open(line.fd));
    CHECK_OK(ignis_fence_wait(fence, 0)); /* below the current value: not waited for */
    CHECK_OK(ignis_fence_wait(fence, 3));
    CHECK_OK(ignis_fence_wait(fence, 5));
    for (value = 6; value < 20; value += 3) {
        CHECK_OK(ignis_array_fill(array, (double)value));
        CHECK_OK(ignis_fence_signal(fence, value));
        CHECK_OK(ignis_fence_wait(fence, value));
        CHECK_OK(ignis_synchronize());
        CHECK_INT(now_at(&line), value);
        CHECK_INT(memory.bytes[0], value);
        CHECK_INT(memory.bytes[4095], value);
    }
    CHECK_OK(ignis_fence_signal(fence, UINT64_MAX));
    CHECK_STATUS(ignis_fence_signal(fence, UINT64_MAX), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_FENCE_VALUE);
    CHECK_OK(ignis_fence_wait(fence, UINT64_MAX));
    CHECK_OK(ignis_fence_free(fence));
    CHECK(now_at(&line) == UINT64_MAX);
    drop(array);
    end_memory(&memory), end_timeline(&line);
    check_nothing_imported();
}

TEST(mistakes_with_fences_are_refused)
{
    exported memory;
    timeline line;
    ignis_external_fence_desc desc;
    ignis_fence fence;
    ignis_array array;
    int files;
    GRAPHICS_SETUP();
    memory = export_memory(4096);
    line = export_timeline(0);
    files = open_files();
#define REFUSED(change, status, diagnostic, part)                                                        \
    do {                                                                                                 \
        memset(&desc, 0, sizeof desc);                                                                   \
        desc.type = IGNIS_FENCE_TIMELINE_FD;                                                             \
        desc.fd = line.fd;                                                                               \
        (void)(change);                                                                                  \
        CHECK_REFUSED(0, ignis_external_fence(&desc).id, IGNIS_ERROR_##status, IGNIS_DIAG_##diagnostic); \
        CHECK_MESSAGE_HAS(part);                                                                         \
        CHECK(is_open(line.fd) && is_open(memory.fd));                                                   \
        CHECK_INT(open_files(), files);                                                                  \
        check_nothing_imported();                                                                        \
    } while (0)
    REFUSED(desc.type = (ignis_fence_type)0, ARGUMENT, BAD_ENUM, "desc.type is 0");
    REFUSED(desc.type = IGNIS_FENCE_TYPE_COUNT, ARGUMENT, BAD_ENUM, "IGNIS_FENCE_D3D12 is 3");
    REFUSED(desc.type = IGNIS_FENCE_TIMELINE_WIN32, UNSUPPORTED, UNSUPPORTED, "only Windows");
    REFUSED(desc.type = IGNIS_FENCE_D3D12, UNSUPPORTED, UNSUPPORTED, "IGNIS_FENCE_D3D12, which only Windows has");
    REFUSED(desc.fd = -7, ARGUMENT, EXTERNAL_HANDLE, "desc.fd is -7");
    REFUSED(desc.fd = 1000000, ARGUMENT, EXTERNAL_HANDLE, "not an open descriptor");
    REFUSED(desc.fd = memory.fd, CUDA, CUDA_CALL, "CUDA_ERROR_INVALID_HANDLE"); /* memory is no timeline */
    REFUSED(desc.device = 63, DEVICE, DEVICE_RANGE, "");
    REFUSED(sim.fail("cuImportExternalSemaphore:1"), CUDA, CUDA_CALL, "cuImportExternalSemaphore");
#undef REFUSED
    sim.fail(NULL);
    CHECK_REFUSED(0, ignis_external_fence(NULL).id, IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NULL_ARGUMENT);
    fence = import_fence(line.fd);
    CHECK_STATUS(ignis_fence_signal(fence, 0), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_FENCE_VALUE);
    CHECK_MESSAGE_HAS("0 is not above 0, which the fence has at first");
    CHECK_OK(ignis_fence_signal(fence, 9));
    CHECK_STATUS(ignis_fence_signal(fence, 9), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_FENCE_VALUE);
    CHECK_STATUS(ignis_fence_signal(fence, 8), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_FENCE_VALUE);
    CHECK_MESSAGE_HAS("the value 8 is not above 9");
    sim.fail("cuSignalExternalSemaphoresAsync:1");
    CHECK_STATUS(ignis_fence_signal(fence, 10), IGNIS_ERROR_CUDA, IGNIS_DIAG_CUDA_CALL);
    sim.fail("cuWaitExternalSemaphoresAsync:1");
    CHECK_STATUS(ignis_fence_wait(fence, 9), IGNIS_ERROR_CUDA, IGNIS_DIAG_CUDA_CALL);
    sim.fail("cuEventRecord:1");
    CHECK_STATUS(ignis_fence_signal(fence, 10), IGNIS_ERROR_MEMORY,
                 IGNIS_DIAG_DEVICE_MEMORY); /* which is queued, and so is waited for */
    sim.fail(NULL);
    CHECK_STATUS(ignis_fence_signal(fence, 10), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_FENCE_VALUE);
    CHECK_OK(ignis_fence_signal(fence, 11));
    array = make(IGNIS_SHAPE(1), IGNIS_F32);
    CHECK_STATUS(ignis_fence_wait((ignis_fence){array.id}, 1), IGNIS_ERROR_FREED, IGNIS_DIAG_WRONG_KIND);
    CHECK_FAILS(ignis_array_numel((ignis_array){fence.id}), IGNIS_ERROR_FREED, IGNIS_DIAG_WRONG_KIND);
    drop(array);
    CHECK_OK(ignis_fence_free(fence));
    CHECK_INT(now_at(&line), 11);
    CHECK_STATUS(ignis_fence_free(fence), IGNIS_ERROR_FREED, IGNIS_DIAG_FENCE_FREED);
    CHECK_STATUS(ignis_fence_wait(fence, 1), IGNIS_ERROR_FREED, IGNIS_DIAG_FENCE_FREED);
    CHECK_STATUS(ignis_fence_signal(fence, 12), IGNIS_ERROR_FREED, IGNIS_DIAG_FENCE_FREED);
    CHECK_STATUS(ignis_fence_free((ignis_fence){1}), IGNIS_ERROR_FREED, IGNIS_DIAG_FENCE_FREED);
    check_nothing_imported();
    CHECK_INT(open_files(), files - 1);
    close(memory.fd);
    end_memory(&memory), end_timeline(&line);
}

/*  The other API: waits for odd values, changes the bytes, and signals the even one above. */
typedef struct renderer {
    exported memory;
    timeline line;
    uint64_t last;
    int delay_ms;
    bool wrong;
} renderer;

static void *render(void *argument)
{
    renderer *self = (renderer *)argument;
    uint64_t value;
    size_t i;
    for (value = 1; value < self->last; value += 2) {
        double limit = test_seconds() + 30;
        while (now_at(&self->line) < value && test_seconds() < limit)
            test_sleep_ms(0);
        if (self->delay_ms)
            test_sleep_ms(self->delay_ms);
        for (i = 0; i < self->memory.size; i++) {
            self->wrong |= self->memory.bytes[i] != (unsigned char)(3 * value);
            self->memory.bytes[i] = (unsigned char)(3 * value + 1);
        }
        ignis__atomic_store(self->line.value, value + 1);
    }
    return NULL;
}

TEST(both_sides_take_turns)
{
    renderer other;
    pthread_t thread;
    ignis_external_desc desc;
    ignis_array array, copy;
    ignis_fence fence;
    uint64_t value;
    unsigned char seen[512];
    GRAPHICS_SETUP();
    memset(&other, 0, sizeof other);
    other.memory = export_memory(512);
    other.line = export_timeline(0);
    other.last = 41;
    desc = external(&other.memory, IGNIS_U8, IGNIS_SHAPE(512));
    array = ignis_external_array(&desc);
    copy = make(IGNIS_SHAPE(512), IGNIS_U8);
    fence = import_fence(other.line.fd);
    CHECK_INT(pthread_create(&thread, NULL, render, &other), 0);
    for (value = 1; value < other.last; value += 2) {
        CHECK_OK(ignis_fence_wait(fence, value - 1));
        CHECK_OK(ignis_array_fill(array, (double)(unsigned char)(3 * value)));
        CHECK_OK(ignis_fence_signal(fence, value));
        CHECK_OK(ignis_fence_wait(fence, value + 1));
        CHECK_OK(ignis_array_copy(copy, array));
        CHECK_OK(ignis_array_to_host(copy, seen, IGNIS_U8, 512));
        CHECK_INT(seen[0], (unsigned char)(3 * value + 1));
        CHECK_INT(seen[511], (unsigned char)(3 * value + 1));
    }
    pthread_join(thread, NULL);
    CHECK(!other.wrong);
    CHECK_OK(ignis_fence_free(fence));
    drop(array), drop(copy);
    check_nothing_imported();
    end_memory(&other.memory), end_timeline(&other.line);
}

/*  What is freed while work is queued is given back when that is done, whatever stream it is on; so is a fence. */
TEST(frees_wait_for_queued_work)
{
    renderer other;
    pthread_t thread;
    ignis_external_desc desc;
    ignis_array array, view;
    ignis_fence fence;
    void *stream;
    int round;
    GRAPHICS_SETUP();
    for (round = 0; round < 2; round++) {
        memset(&other, 0, sizeof other);
        other.memory = export_memory(512);
        other.line = export_timeline(0);
        other.last = 3;
        other.delay_ms = 50;
        desc = external(&other.memory, IGNIS_U8, IGNIS_SHAPE(512));
        stream = ignis_stream_create(NULL);
        array = ignis_external_array(&desc);
        view = ignis_array_slice(array, 0, 256, 256);
        fence = import_fence(other.line.fd);
        CHECK_OK(ignis_array_fill(array, 3.0));
        CHECK_OK(ignis_fence_signal(fence, 1));
        CHECK_OK(ignis_stream_use(stream));
        CHECK_OK(ignis_fence_wait(fence, 2));
        CHECK_OK(ignis_array_fill(view, 77.0));
        CHECK_INT(pthread_create(&thread, NULL, render, &other), 0);
        if (round) {
            CHECK_OK(ignis_fence_free(fence));
            CHECK_INT(now_at(&other.line), 2);
        }
        drop(array), drop(view); /* waits for the other stream */
        CHECK_INT(sim.live("external"), 0);
        CHECK_INT(now_at(&other.line), 2);
        CHECK_INT(other.memory.bytes[255], 4);
        CHECK_INT(other.memory.bytes[256], 77);
        CHECK_INT(other.memory.bytes[511], 77);
        if (!round)
            CHECK_OK(ignis_fence_free(fence));
        pthread_join(thread, NULL);
        CHECK(!other.wrong);
        CHECK_OK(ignis_stream_use(NULL));
        CHECK_OK(ignis_stream_free(stream));
        check_nothing_imported();
        end_memory(&other.memory), end_timeline(&other.line);
    }
}

TEST(a_fence_follows_many_streams)
{
    enum { STREAMS = 7 };
    void *streams[STREAMS];
    timeline line;
    ignis_fence fence;
    uint64_t value = 0;
    int i, round;
    GRAPHICS_SETUP();
    line = export_timeline(0);
    fence = import_fence(line.fd);
    for (i = 0; i < STREAMS; i++)
        streams[i] = ignis_stream_create(NULL);
    for (round = 0; round < 3; round++)
        for (i = 0; i < STREAMS; i++) {
            CHECK_OK(ignis_stream_use(streams[i]));
            CHECK_OK(ignis_fence_wait(fence, value));
            CHECK_OK(ignis_fence_signal(fence, ++value));
        }
    CHECK_OK(ignis_stream_use(NULL));
    for (i = 0; i < STREAMS; i += 2)
        CHECK_OK(ignis_stream_free(streams[i])); /* before the fence */
    CHECK_OK(ignis_fence_free(fence));
    CHECK_INT(now_at(&line), value);
    for (i = 1; i < STREAMS; i += 2)
        CHECK_OK(ignis_stream_free(streams[i]));
    end_timeline(&line);
    check_nothing_imported();
}

TEST(fences_and_memory_are_of_a_device)
{
    exported memory;
    timeline line;
    ignis_external_desc desc;
    ignis_external_fence_desc fence_desc;
    ignis_array array;
    ignis_fence fence;
    GRAPHICS_SETUP();
    NEEDS_DEVICES(2);
    memory = export_memory(64);
    line = export_timeline(0);
    desc = external(&memory, IGNIS_U8, IGNIS_SHAPE(64));
    desc.device = 1;
    array = ignis_external_array(&desc);
    CHECK_INT(info_of(array).device, 1);
    memset(&fence_desc, 0, sizeof fence_desc);
    fence_desc.type = IGNIS_FENCE_TIMELINE_FD;
    fence_desc.fd = line.fd;
    fence_desc.device = 1;
    fence = ignis_external_fence(&fence_desc);
    CHECK_OK(ignis_array_fill(array, 9.0)); /* on the stream of device 1, whatever device is current */
    CHECK_OK(ignis_fence_signal(fence, 1));
    CHECK_OK(ignis_fence_free(fence));
    CHECK_INT(now_at(&line), 1);
    CHECK_INT(memory.bytes[63], 9);
    drop(array);
    end_memory(&memory), end_timeline(&line);
    check_nothing_imported();
}

/*  Threads import, use and free things of their own, and one fence together, which one of them frees. */
typedef struct worker {
    pthread_t id;
    uint64_t *shared;
    int failures;
} worker;

static void *work(void *argument)
{
    worker *self = (worker *)argument;
    int i;
    for (i = 0; i < 20; i++) {
        exported memory = export_memory(256);
        timeline line = export_timeline(0);
        ignis_external_desc desc = external(&memory, IGNIS_U8, IGNIS_SHAPE(256));
        ignis_fence fence = import_fence(line.fd), shared;
        ignis_array array = ignis_external_array(&desc);
        shared.id = ignis__atomic_load(self->shared);
        self->failures += ignis_array_fill(array, (double)i) != IGNIS_OK;
        self->failures += ignis_fence_signal(fence, 1) != IGNIS_OK;
        self->failures += ignis_fence_wait(shared, 0) != IGNIS_OK && ignis_status_last() != IGNIS_ERROR_FREED;
        ignis_status_clear();
        self->failures += ignis_fence_free(fence) != IGNIS_OK;
        self->failures += ignis_array_free(array) != IGNIS_OK;
        self->failures += memory.bytes[255] != i || now_at(&line) != 1;
        if (i == 10) {
            shared.id = test_swap(self->shared, shared.id);
            ignis_fence_free(shared); /* the first of them does */
            ignis_status_clear();
        }
        end_memory(&memory), end_timeline(&line);
    }
    return NULL;
}

TEST(threads_share_a_fence)
{
    worker workers[4];
    timeline line;
    uint64_t shared;
    int i;
    GRAPHICS_SETUP();
    line = export_timeline(0);
    shared = import_fence(line.fd).id;
    for (i = 0; i < COUNT_OF(workers); i++) {
        workers[i].shared = &shared;
        workers[i].failures = 0;
        CHECK_INT(pthread_create(&workers[i].id, NULL, work, &workers[i]), 0);
    }
    for (i = 0; i < COUNT_OF(workers); i++) {
        pthread_join(workers[i].id, NULL);
        CHECK_INT(workers[i].failures, 0);
    }
    end_timeline(&line);
    check_nothing_imported();
}

TEST(what_is_left_is_reported_and_freed)
{
    exported memory;
    timeline line;
    ignis_external_desc desc;
    unsigned name;
    GRAPHICS_SETUP();
    memory = export_memory(64);
    line = export_timeline(0);
    desc = external(&memory, IGNIS_U8, IGNIS_SHAPE(64));
    CHECK_OK(ignis_array_fill(ignis_external_array(&desc), 5.0));
    CHECK_OK(ignis_fence_signal(import_fence(line.fd), 1));
    sim.gl_current(1);
    name = sim.gl_buffer(64);
    CHECK_OK(
        ignis_array_fill(ignis_gl_map(ignis_gl_register(name, IGNIS_GL_READ_WRITE), IGNIS_U8, (ignis_shape){0}), 6.0));
    test_leaks_expected = true;
    CHECK_OK(ignis_shutdown());
    CHECK_INT(test_log_count(IGNIS_DIAG_ARRAY_LEAKED), 2);
    CHECK_INT(test_log_count(IGNIS_DIAG_HANDLE_LEAKED), 2);
    CHECK_HAS(test_log_text(IGNIS_DIAG_HANDLE_LEAKED), "which is mapped");
    check_nothing_imported();
    CHECK_INT(now_at(&line), 1);
    CHECK_INT(memory.bytes[63], 5);
    CHECK_INT(((unsigned char *)sim.gl_data(name))[63], 6);
    sim.gl_delete(name);
    sim.gl_current(0);
    end_memory(&memory), end_timeline(&line);
}

/* --- OpenGL ------------------------------------------------------------------------------------------------------- */

TEST(an_opengl_buffer_is_mapped_and_unmapped)
{
    ignis_gl_buffer buffer;
    ignis_array array;
    unsigned name;
    void *first;
    float *theirs, ours[6];
    int i, round;
    GRAPHICS_SETUP();
    sim.gl_current(1);
    name = sim.gl_buffer(4 * 6 + 2);
    theirs = (float *)sim.gl_data(name);
    buffer = ignis_gl_register(name, IGNIS_GL_READ_WRITE);
    for (i = 0; i < 6; i++)
        theirs[i] = (float)i;
    first = NULL;
    for (round = 0; round < 3; round++) {
        array = ignis_gl_map(buffer, IGNIS_DTYPE_DEFAULT, (ignis_shape){0});
        CHECK_SHAPE(array, IGNIS_SHAPE(6));
        CHECK_TEXT(info_of(array).tag, "gl");
        CHECK(ignis_array_device_ptr(array) != first); /* as may be */
        first = ignis_array_device_ptr(array);
        CHECK(sim.gl_data(name) == NULL);
        CHECK_OK(ignis_array_to_host(array, ours, IGNIS_F32, 6));
        CHECK(ours[5] == (float)(5 << round));
        CHECK_OK(ignis_array_scale(array, array, 2.0));
        CHECK_OK(ignis_gl_unmap(buffer));
        CHECK(!ignis_array_is_live(array));
        CHECK(sim.gl_data(name) == theirs);
        CHECK(theirs[5] == (float)(10 << round) && theirs[0] == 0.0F);
    }
    array = ignis_gl_map(buffer, IGNIS_U8, IGNIS_SHAPE(2, 13));
    CHECK_OK(ignis_array_fill(array, 255.0));
    drop(array); /* is not unmapping */
    CHECK(sim.gl_data(name) == NULL);
    CHECK_OK(ignis_gl_unmap(buffer));
    CHECK_INT(((unsigned char *)theirs)[25], 255);
    CHECK_OK(ignis_gl_unregister(buffer));
    CHECK_STATUS(ignis_gl_unregister(buffer), IGNIS_ERROR_FREED, IGNIS_DIAG_GL_BUFFER_FREED);
    CHECK_REFUSED(0, ignis_gl_map(buffer, IGNIS_F32, IGNIS_SHAPE(1)).id, IGNIS_ERROR_FREED, IGNIS_DIAG_GL_BUFFER_FREED);
    CHECK_STATUS(ignis_gl_unmap(buffer), IGNIS_ERROR_FREED, IGNIS_DIAG_GL_BUFFER_FREED);
    check_nothing_imported();
    sim.gl_delete(name);
    sim.gl_current(0);
}

TEST(unmapping_comes_after_the_work_of_all_streams)
{
    ignis_gl_buffer buffer;
    ignis_array array;
    void *streams[6];
    unsigned name;
    int32_t *theirs;
    int i;
    GRAPHICS_SETUP();
    sim.gl_current(1);
    name = sim.gl_buffer(4);
    theirs = (int32_t *)sim.gl_data(name);
    buffer = ignis_gl_register(name, IGNIS_GL_READ_WRITE);
    for (i = 0; i < COUNT_OF(streams); i++)
        streams[i] = ignis_stream_create(NULL);
    CHECK_OK(ignis_stream_use(streams[0]));
    array = ignis_gl_map(buffer, IGNIS_I32, IGNIS_SHAPE(1));
    for (i = 0; i < COUNT_OF(streams); i++) {
        CHECK_OK(ignis_stream_use(streams[i]));
        if (i)
            CHECK_OK(ignis_stream_wait(streams[i], streams[i - 1]));
        CHECK_OK(ignis_array_fill(array, i));
    }
    CHECK_OK(ignis_stream_use(NULL));
    CHECK_OK(ignis_stream_free(streams[0])); /* the one that it was mapped on */
    CHECK_OK(ignis_gl_unmap(buffer));
    CHECK_INT(theirs[0], COUNT_OF(streams) - 1);
    CHECK_OK(ignis_gl_unregister(buffer));
    for (i = 1; i < COUNT_OF(streams); i++)
        CHECK_OK(ignis_stream_free(streams[i]));
    sim.gl_delete(name);
    sim.gl_current(0);
}

TEST(mistakes_with_opengl_buffers_are_refused)
{
    ignis_gl_buffer buffer;
    ignis_array array, view;
    ignis_graph graph;
    unsigned name;
    GRAPHICS_SETUP();
    name = sim.gl_buffer(64);
    CHECK_REFUSED(0, ignis_gl_register(name, IGNIS_GL_READ).id, IGNIS_ERROR_CUDA, IGNIS_DIAG_CUDA_CALL);
    CHECK_MESSAGE_HAS("this thread has no OpenGL context");
    sim.gl_current(1);
    CHECK_REFUSED(0, ignis_gl_register(name, IGNIS_GL_ACCESS_COUNT).id, IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_ENUM);
    CHECK_REFUSED(0, ignis_gl_register(name, (ignis_gl_access)-1).id, IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_ENUM);
    CHECK_REFUSED(0, ignis_gl_register(9999, IGNIS_GL_READ).id, IGNIS_ERROR_CUDA, IGNIS_DIAG_CUDA_CALL);
    CHECK_MESSAGE_HAS("no buffer 9999");
    buffer = ignis_gl_register(name, IGNIS_GL_WRITE);
    CHECK_STATUS(ignis_gl_unmap(buffer), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_GL_BUFFER_STATE);
    CHECK_REFUSED(0, ignis_gl_map(buffer, IGNIS_F32, IGNIS_SHAPE(17)).id, IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    CHECK_MESSAGE_HAS("the array has 68 bytes, OpenGL's buffer");
    CHECK_REFUSED(0, ignis_gl_map(buffer, IGNIS_F32, IGNIS_SHAPE(-1)).id, IGNIS_ERROR_SHAPE, IGNIS_DIAG_SHAPE_DIM);
    CHECK_REFUSED(0, ignis_gl_map(buffer, IGNIS_DTYPE_COUNT, IGNIS_SHAPE(1)).id, IGNIS_ERROR_ARGUMENT,
                  IGNIS_DIAG_BAD_ENUM);
    sim.fail("cuGraphicsMapResources:1");
    CHECK_REFUSED(0, ignis_gl_map(buffer, IGNIS_F32, IGNIS_SHAPE(1)).id, IGNIS_ERROR_CUDA, IGNIS_DIAG_CUDA_CALL);
    sim.fail("cuGraphicsResourceGetMappedPointer_v2:1");
    CHECK_REFUSED(0, ignis_gl_map(buffer, IGNIS_F32, IGNIS_SHAPE(1)).id, IGNIS_ERROR_CUDA, IGNIS_DIAG_CUDA_CALL);
    sim.fail(NULL);
    CHECK(sim.gl_data(name) != NULL); /* none of these has left it mapped */

    array = ignis_gl_map(buffer, IGNIS_F32, IGNIS_SHAPE(4, 4));
    CHECK_OK(ignis_array_zero(array));
    CHECK_REFUSED(0, ignis_gl_map(buffer, IGNIS_F32, IGNIS_SHAPE(1)).id, IGNIS_ERROR_ARGUMENT,
                  IGNIS_DIAG_GL_BUFFER_STATE);
    CHECK_STATUS(ignis_gl_unregister(buffer), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_GL_BUFFER_STATE);
    CHECK_FAILS(ignis_vmm_of_array(array, NULL), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NOT_SHAREABLE);
    view = ignis_array_slice(array, 0, 1, 1);
    CHECK_STATUS(ignis_gl_unmap(buffer), IGNIS_ERROR_CONTRACT, IGNIS_DIAG_GL_BUFFER_USED);
    CHECK_MESSAGE_HAS("used by 1 view");
    drop(view);
    CHECK_INT(ignis_array_increment_ref(array), 1);
    CHECK_STATUS(ignis_gl_unmap(buffer), IGNIS_ERROR_CONTRACT, IGNIS_DIAG_FREE_REFERENCED);
    CHECK_INT(ignis_array_decrement_ref(array), 0);
    CHECK_OK(ignis_contract_acquire(array, IGNIS_OWNER_WNAIS));
    CHECK_STATUS(ignis_gl_unmap(buffer), IGNIS_ERROR_CONTRACT, IGNIS_DIAG_FREE_BY_OTHER);
    CHECK_OK(ignis_contract_release(array, IGNIS_OWNER_WNAIS));
    CHECK_OK(ignis_array_fill(array, 1.0));
    CHECK_OK(ignis_graph_begin());
    CHECK_STATUS(ignis_gl_unmap(buffer), IGNIS_ERROR_UNSUPPORTED, IGNIS_DIAG_CAPTURE_REFUSED);
    CHECK_OK(ignis_array_fill(array, 2.0));
    graph = ignis_graph_end();
    CHECK_STATUS(ignis_gl_unmap(buffer), IGNIS_ERROR_CONTRACT, IGNIS_DIAG_GL_BUFFER_USED);
    CHECK_OK(ignis_graph_free(graph));
    sim.fail("cuGraphicsUnmapResources:1");
    CHECK_STATUS(ignis_gl_unmap(buffer), IGNIS_ERROR_CUDA, IGNIS_DIAG_CUDA_CALL);
    sim.fail(NULL);
    CHECK_OK(ignis_gl_unmap(buffer)); /* the second time */
    sim.fail("cuGraphicsUnregisterResource:1");
    CHECK_STATUS(ignis_gl_unregister(buffer), IGNIS_ERROR_CUDA, IGNIS_DIAG_CUDA_CALL);
    sim.fail(NULL);
    CHECK_OK(ignis_gl_unregister(buffer));
    check_nothing_imported();
    sim.gl_delete(name);
    sim.gl_current(0);
}

/*  Imports, uses and gives up one of everything, as far as calls do not fail. Returns whether descriptors are where
    they belong. */
static bool use_everything(const exported *memory, const timeline *line, unsigned name, bool fails)
{
    ignis_external_desc desc = external(memory, IGNIS_U8, IGNIS_SHAPE(64));
    ignis_array array, mapped;
    ignis_fence fence;
    ignis_gl_buffer buffer;
    bool ok;
    desc.fd = fcntl(memory->fd, F_DUPFD_CLOEXEC, 0);
    array = ignis_external_array(&desc);
    ok = is_open(desc.fd) == (array.id == 0);
    if (!array.id)
        close(desc.fd);
    desc.fd = fcntl(line->fd, F_DUPFD_CLOEXEC, 0);
    fence = import_fence(desc.fd);
    ok = ok && is_open(desc.fd) == (fence.id == 0);
    if (!fence.id)
        close(desc.fd);
    buffer = ignis_gl_register(name, IGNIS_GL_READ_WRITE);
    mapped = buffer.id ? ignis_gl_map(buffer, IGNIS_U8, IGNIS_SHAPE(8)) : IGNIS_NO_ARRAY;
    if (array.id)
        ignis_array_zero(array);
    if (mapped.id)
        ignis_array_zero(mapped);
    if (fence.id) {
        ignis_fence_wait(fence, 0);
        ignis_fence_signal(fence, now_at(line) + 1);
    }
    if (array.id) /* given up in any case; its status is that of what failed on the way */
        ok = (ignis_array_free(array) == IGNIS_OK || fails) && ok;
    if (fence.id)
        ok = (ignis_fence_free(fence) == IGNIS_OK || fails) && ok;
    if (mapped.id && ignis_gl_unmap(buffer) != IGNIS_OK)
        ok = ignis_gl_unmap(buffer) == IGNIS_OK &&
             ok; /* but for OpenGL, whose buffer is mapped still: the second time it works */
    if (buffer.id && ignis_gl_unregister(buffer) != IGNIS_OK)
        ok = ignis_gl_unregister(buffer) == IGNIS_OK && ok;
    ignis_status_clear();
    return ok;
}

/*  A call that gives up what Ignis has, or comes before it. */
static bool is_release(const char *function)
{
    static const char *const names[] = {"cuCtxGetCurrent", "cuMemFree_v2", "cuDestroyExternalMemory",
                                        "cuDestroyExternalSemaphore"};
    int i;
    for (i = 0; i < COUNT_OF(names); i++)
        if (strcmp(names[i], function) == 0)
            return true;
    return false;
}

TEST(whatever_fails_nothing_is_left)
{
    static const char *const prefixes[] = {"cu", NULL}; /* each call of the driver in turn, and each allocation */
    exported memory;
    timeline line;
    host_counter counter;
    ignis_desc setup;
    unsigned name;
    int i, at, files;
    long left = 0;
    bool hit, released;
    GRAPHICS_SETUP();
    CHECK_OK(ignis_shutdown());
    host_counter_init(&counter);
    memset(&setup, 0, sizeof setup);
    setup.allocator.alloc_fn = host_alloc;
    setup.allocator.free_fn = host_free;
    setup.allocator.user_data = &counter;
    SETUP(&setup);
    memory = export_memory(64);
    line = export_timeline(0);
    sim.gl_current(1);
    name = sim.gl_buffer(64);
    CHECK(use_everything(&memory, &line, name, false)); /* opens what stays open */
    files = open_files();
    for (i = 0; i < COUNT_OF(prefixes); i++) {
        for (at = 1, hit = true; hit && at < 200; at++) {
            long long blocks = counter.blocks;
            fault_plan(prefixes[i], at, 999, &counter, false);
            CHECK(use_everything(&memory, &line, name, true));
            released = fault.failed && is_release(fault.failed);
            hit = fault_over(&counter);
            if (released) /* what the driver does not take back is left until the shutdown */
                files = open_files(), left = sim.live("external") + sim.live("timeline");
            CHECK_INT(sim.live("external") + sim.live("timeline"), left);
            CHECK_INT(sim.live("resource"), 0);
            CHECK_INT(open_files(), files);
            CHECK(prefixes[i] != NULL || counter.blocks <= blocks + 2); /* events are kept */
        }
        CHECK(at > 3 && at < 200);
    }
    CHECK_OK(ignis_shutdown());
    CHECK_INT(counter.blocks, 0);
    check_nothing_imported();
    sim.gl_delete(name);
    sim.gl_current(0);
    close(memory.fd), close(line.fd);
    end_memory(&memory), end_timeline(&line);
}

/*  After a fault nothing is waited for, and no driver is called; handles can be freed. */
TEST(handles_are_freed_after_a_fault)
{
    exported memory;
    timeline line;
    ignis_external_desc desc;
    ignis_gl_buffer buffer;
    ignis_array array;
    ignis_fence fence;
    unsigned name;
    GRAPHICS_SETUP();
    memory = export_memory(64);
    line = export_timeline(0);
    desc = external(&memory, IGNIS_U8, IGNIS_SHAPE(64));
    array = ignis_external_array(&desc);
    fence = import_fence(line.fd);
    sim.gl_current(1);
    name = sim.gl_buffer(64);
    buffer = ignis_gl_register(name, IGNIS_GL_READ_WRITE);
    CHECK_OK(ignis_array_fill(ignis_gl_map(buffer, IGNIS_U8, (ignis_shape){0}), 1.0));
    CHECK_OK(ignis_fence_wait(fence, 0));
    CHECK_OK(ignis_synchronize());
    ignis__atomic_store(&ignis__devices_fault, 700); /* as a kernel that faults leaves it */
    CHECK_STATUS(ignis_fence_wait(fence, 0), IGNIS_ERROR_DEVICE, IGNIS_DIAG_DEVICE_LOST);
    CHECK_STATUS(ignis_fence_signal(fence, 1), IGNIS_ERROR_DEVICE, IGNIS_DIAG_DEVICE_LOST);
    CHECK_REFUSED(0, ignis_gl_map(buffer, IGNIS_U8, IGNIS_SHAPE(1)).id, IGNIS_ERROR_DEVICE, IGNIS_DIAG_DEVICE_LOST);
    CHECK_REFUSED(0, ignis_gl_register(name, IGNIS_GL_READ).id, IGNIS_ERROR_DEVICE, IGNIS_DIAG_DEVICE_LOST);
    CHECK_OK(ignis_array_free(array));
    CHECK_OK(ignis_fence_free(fence));
    CHECK_OK(ignis_gl_unmap(buffer));
    CHECK_OK(ignis_gl_unregister(buffer));
    CHECK_OK(ignis_shutdown()); /* what is left in the driver goes with the context */
    CHECK_INT(test_log_count(IGNIS_DIAG_HANDLE_LEAKED) + test_log_count(IGNIS_DIAG_ARRAY_LEAKED), 0);
    check_nothing_imported();
    sim.gl_delete(name);
    sim.gl_current(0);
    end_memory(&memory), end_timeline(&line);
}

/* --- what a driver lacks ------------------------------------------------------------------------------------------ */

TEST(a_driver_without_the_functions_is_no_crash)
{
    exported memory;
    timeline line;
    ignis_external_desc desc;
    ignis_external_fence_desc fence_desc;
    GRAPHICS_SETUP();
    memory = export_memory(64);
    line = export_timeline(0);
    desc = external(&memory, IGNIS_U8, IGNIS_SHAPE(64));
    memset(&fence_desc, 0, sizeof fence_desc);
    fence_desc.type = IGNIS_FENCE_TIMELINE_FD;
    fence_desc.fd = line.fd;
#define WITHOUT(name, call)                                                         \
    do {                                                                            \
        struct ignis__cuda_api before = ignis__cuda;                                \
        ignis__cuda.name = NULL;                                                    \
        CHECK_REFUSED(0, call.id, IGNIS_ERROR_UNSUPPORTED, IGNIS_DIAG_UNSUPPORTED); \
        CHECK_MESSAGE_HAS("has no function " #name);                                \
        ignis__cuda = before;                                                       \
    } while (0)
    WITHOUT(cuImportExternalMemory, ignis_external_array(&desc));
    WITHOUT(cuExternalMemoryGetMappedBuffer, ignis_external_array(&desc));
    WITHOUT(cuDestroyExternalMemory, ignis_external_array(&desc));
    WITHOUT(cuImportExternalSemaphore, ignis_external_fence(&fence_desc));
    WITHOUT(cuSignalExternalSemaphoresAsync, ignis_external_fence(&fence_desc));
    WITHOUT(cuWaitExternalSemaphoresAsync, ignis_external_fence(&fence_desc));
    WITHOUT(cuDestroyExternalSemaphore, ignis_external_fence(&fence_desc));
    WITHOUT(cuGraphicsGLRegisterBuffer, ignis_gl_register(1, IGNIS_GL_READ));
    WITHOUT(cuGraphicsMapResources, ignis_gl_register(1, IGNIS_GL_READ));
    WITHOUT(cuGraphicsUnmapResources, ignis_gl_register(1, IGNIS_GL_READ));
    WITHOUT(cuGraphicsResourceGetMappedPointer_v2, ignis_gl_register(1, IGNIS_GL_READ));
    WITHOUT(cuGraphicsUnregisterResource, ignis_gl_register(1, IGNIS_GL_READ));
#undef WITHOUT
    CHECK(is_open(memory.fd) && is_open(line.fd));
    close(memory.fd), close(line.fd);
    end_memory(&memory), end_timeline(&line);
}

TEST(a_dry_run_has_no_graphics)
{
    ignis_desc setup;
    ignis_external_desc desc;
    ignis_external_fence_desc fence;
    memset(&setup, 0, sizeof setup);
    setup.dry_run = true;
    SETUP(&setup);
    memset(&desc, 0, sizeof desc);
    desc.type = IGNIS_EXTERNAL_FD;
    desc.fd = 0;
    desc.size = 64;
    desc.shape = IGNIS_SHAPE(16);
    CHECK_REFUSED(0, ignis_external_array(&desc).id, IGNIS_ERROR_UNSUPPORTED, IGNIS_DIAG_UNSUPPORTED);
    CHECK_MESSAGE_HAS("dry run");
    memset(&fence, 0, sizeof fence);
    fence.type = IGNIS_FENCE_TIMELINE_FD;
    CHECK_REFUSED(0, ignis_external_fence(&fence).id, IGNIS_ERROR_UNSUPPORTED, IGNIS_DIAG_UNSUPPORTED);
    CHECK_REFUSED(0, ignis_gl_register(1, IGNIS_GL_READ).id, IGNIS_ERROR_UNSUPPORTED, IGNIS_DIAG_UNSUPPORTED);
    CHECK(is_open(0));
}

#else /* _WIN32 */

/*  Under Wine, sections of Windows take the place of the other API's memory and timeline. There is no Direct3D. */

#include <windows.h>

static HANDLE make_section(size_t size, void **bytes)
{
    HANDLE section = CreateFileMappingA(INVALID_HANDLE_VALUE, NULL, PAGE_READWRITE, 0, (DWORD)size, NULL);
    *bytes = section ? MapViewOfFile(section, FILE_MAP_ALL_ACCESS, 0, 0, size) : NULL;
    CHECK(*bytes != NULL);
    return section;
}

TEST(nt_handles_of_vulkan_stay_the_callers)
{
    ignis_external_desc desc;
    ignis_external_fence_desc fence_desc;
    ignis_array array;
    ignis_fence fence;
    void *bytes, *page;
    HANDLE memory, timeline;
    SETUP(NULL);
    if (!test_is_simulator())
        SKIP("sections play Vulkan's memory for the simulator alone");
    memory = make_section(8192, &bytes), timeline = make_section(4096, &page);
    memset(&desc, 0, sizeof desc);
    memset(&fence_desc, 0, sizeof fence_desc);
    memcpy(page, "ignis-timeline-1", 16); /* sim/driver/driver.h */
    memset(bytes, 3, 8192);
    desc.type = IGNIS_EXTERNAL_WIN32;
    desc.handle = memory;
    desc.size = 8192;
    desc.offset = 4096;
    desc.dtype = IGNIS_U8;
    desc.shape = IGNIS_SHAPE(4096);
    array = ignis_external_array(&desc);
    CHECK_OK(ignis_status_last());
    fence_desc.type = IGNIS_FENCE_TIMELINE_WIN32;
    fence_desc.handle = timeline;
    fence = ignis_external_fence(&fence_desc);
    CHECK_OK(ignis_status_last());
    CHECK_OK(ignis_array_add(array, array, array));
    CHECK_OK(ignis_fence_signal(fence, 7));
    CHECK_OK(ignis_fence_free(fence));
    CHECK_OK(ignis_array_free(array));
    CHECK(((uint64_t *)page)[2] == 7);
    CHECK(((char *)bytes)[4095] == 3 && ((char *)bytes)[4096] == 6 && ((char *)bytes)[8191] == 6);
    array = ignis_external_array(&desc); /* the handle can be used again */
    CHECK_OK(ignis_array_free(array));
    UnmapViewOfFile(bytes), UnmapViewOfFile(page);
    CHECK(CloseHandle(memory) && CloseHandle(timeline));
}

TEST(arguments_of_windows_types_are_checked)
{
    static const ignis_external_type types[] = {IGNIS_EXTERNAL_WIN32, IGNIS_EXTERNAL_D3D12_HEAP,
                                                IGNIS_EXTERNAL_D3D12_RESOURCE};
    static const ignis_fence_type fences[] = {IGNIS_FENCE_TIMELINE_WIN32, IGNIS_FENCE_D3D12};
    ignis_external_desc desc;
    ignis_external_fence_desc fence;
    int i, thing;
    SETUP(NULL);
    memset(&desc, 0, sizeof desc);
    for (i = 0; i < COUNT_OF(types); i++) {
        desc.type = types[i];
        desc.size = 64;
        desc.shape = IGNIS_SHAPE(16);
        desc.handle = NULL;
        CHECK_REFUSED(0, ignis_external_array(&desc).id, IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_EXTERNAL_HANDLE);
        CHECK_MESSAGE_HAS("desc.handle is null");
        desc.handle = &thing;
        desc.offset = 4;
        CHECK_REFUSED(0, ignis_external_array(&desc).id, IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
        desc.offset = 0;
        CHECK_REFUSED(0, ignis_external_array(&desc).id, IGNIS_ERROR_CUDA, IGNIS_DIAG_CUDA_CALL);
    }
    desc.type = IGNIS_EXTERNAL_FD;
    CHECK_REFUSED(0, ignis_external_array(&desc).id, IGNIS_ERROR_UNSUPPORTED, IGNIS_DIAG_UNSUPPORTED);
    CHECK_MESSAGE_HAS("Windows does not have");
    memset(&fence, 0, sizeof fence);
    for (i = 0; i < COUNT_OF(fences); i++) {
        fence.type = fences[i];
        fence.handle = NULL;
        CHECK_REFUSED(0, ignis_external_fence(&fence).id, IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_EXTERNAL_HANDLE);
        fence.handle = &thing;
        CHECK_REFUSED(0, ignis_external_fence(&fence).id, IGNIS_ERROR_CUDA, IGNIS_DIAG_CUDA_CALL);
    }
    fence.type = IGNIS_FENCE_TIMELINE_FD;
    CHECK_REFUSED(0, ignis_external_fence(&fence).id, IGNIS_ERROR_UNSUPPORTED, IGNIS_DIAG_UNSUPPORTED);
}

#endif

TEST(the_structs_are_laid_out_as_the_driver_has_them)
{
    CHECK_INT(sizeof(ignis__external_memory_desc), 104);
    CHECK_INT(offsetof(ignis__external_memory_desc, os), 8);
    CHECK_INT(offsetof(ignis__external_memory_desc, size), 24);
    CHECK_INT(offsetof(ignis__external_memory_desc, flags), 32);
    CHECK_INT(sizeof(ignis__external_part), 88);
    CHECK_INT(offsetof(ignis__external_part, size), 8);
    CHECK_INT(sizeof(ignis__semaphore_desc), 96);
    CHECK_INT(offsetof(ignis__semaphore_desc, os), 8);
    CHECK_INT(offsetof(ignis__semaphore_desc, flags), 24);
    CHECK_INT(sizeof(ignis__semaphore_value), 144);
    CHECK_INT(offsetof(ignis__semaphore_value, flags), 72);
}

TEST(a_device_is_found_by_what_others_call_it)
{
    ignis_device_info info;
    unsigned char uuid[16], luid[8];
    int i;
    setenv("IGNIS_SIM_LUID", "1", 1);
    SETUP(NULL);
    for (i = 0; i < ignis_device_count(); i++) {
        CHECK_OK(ignis_device_query(i, &info));
        CHECK_INT(ignis_device_find(info.uuid, NULL), i);
        if (info.node_mask) {
            CHECK_INT(ignis_device_find(NULL, info.luid), i);
            CHECK_INT(ignis_device_find(info.uuid, info.luid), i);
        }
    }
    memset(uuid, 0xAB, sizeof uuid);
    memset(luid, 0, sizeof luid);
    CHECK_REFUSED(-1, ignis_device_find(uuid, NULL), IGNIS_ERROR_DEVICE, IGNIS_DIAG_DEVICE_RANGE);
    CHECK_MESSAGE_HAS("UUID abababababababababababababababab");
    CHECK_REFUSED(-1, ignis_device_find(NULL, luid), IGNIS_ERROR_DEVICE, IGNIS_DIAG_DEVICE_RANGE);
    CHECK_MESSAGE_HAS("LUID 0000000000000000");
    CHECK_REFUSED(-1, ignis_device_find(NULL, NULL), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NULL_ARGUMENT);
    CHECK_OK(ignis_shutdown());
    setenv("IGNIS_SIM_LUID", "0", 1);
    SETUP(NULL);
    CHECK_OK(ignis_device_query(0, &info)); /* without LUIDs, as on Linux */
    if (test_is_simulator()) {
        CHECK_INT(info.node_mask, 0);
        CHECK_REFUSED(-1, ignis_device_find(NULL, luid), IGNIS_ERROR_DEVICE, IGNIS_DIAG_DEVICE_RANGE);
    }
}

int main(int argc, char **argv) { return test_run(argc, argv); }
