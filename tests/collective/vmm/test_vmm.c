// SPDX-License-Identifier: MIT
/*  test_vmm.c - physical memory, ranges of addresses, mappings, access, export and import, and arrays over them */
#include "fault.h"

#include "array.h"

#include "ignis_collective.h"

#include "processes.h"

#define MIB ((int64_t)1 << 20)

/*  Handles of the system that this is, and of another. */
#ifdef _WIN32
#define HANDLE_HERE IGNIS_VMM_HANDLE_WIN32
#define HANDLE_ELSEWHERE IGNIS_VMM_HANDLE_POSIX_FD
#else
#define HANDLE_HERE IGNIS_VMM_HANDLE_POSIX_FD
#define HANDLE_ELSEWHERE IGNIS_VMM_HANDLE_WIN32
#endif

/*  A handle to a child (0: to the parent): with the message; or made there first, and its number goes with it. */
static bool send_handle(int child, int socket, int64_t size, const ignis_vmm_handle *handle)
{
#ifdef _WIN32
    struct {
        int64_t size;
        void *handle;
    } message;
    ULONG parent = 0;
    ignis_vmm_handle made;
    GetNamedPipeServerProcessId(process__pipe(socket), &parent);
    if (ignis_vmm_handle_duplicate(handle, child ? child : (int64_t)parent, &made) != IGNIS_OK)
        return false;
    message.size = size;
    message.handle = made.win32;
    return process_send(socket, &message, sizeof message, -1);
#else
    (void)child;
    return process_send(socket, &size, sizeof size, handle->fd);
#endif
}

static bool receive_handle(int socket, int64_t *size, ignis_vmm_handle *handle)
{
    memset(handle, 0, sizeof *handle);
    handle->type = HANDLE_HERE;
#ifdef _WIN32
    {
        struct {
            int64_t size;
            void *handle;
        } message = {0, NULL};
        bool ok = process_receive(socket, &message, sizeof message, NULL);
        *size = message.size;
        handle->win32 = message.handle;
        return ok;
    }
#else
    return process_receive(socket, size, sizeof *size, &handle->fd);
#endif
}

static int64_t granule;

/*  Sets up, and knows the granule; a device without virtual memory management ends the test. */
#define VMM_SETUP()                                            \
    do {                                                       \
        SETUP(NULL);                                           \
        granule = ignis_vmm_granularity(0, false);             \
        if (granule < 0) {                                     \
            ignis_status_clear();                              \
            SKIP("device 0 has no virtual memory management"); \
        }                                                      \
        fault_reset_counts();                                  \
    } while (0)

static ignis_vmm make_vmm(int64_t size)
{
    ignis_vmm_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.size = size;
    return ignis_vmm_create(&desc);
}

static ignis_vmm_array_desc array_desc(ignis_shape shape)
{
    ignis_vmm_array_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.shape = shape;
    return desc;
}

/*  Everything that was taken of the driver since VMM_SETUP was given back. */
#define CHECK_BALANCED() check_balanced(__LINE__)
static void check_balanced(int line)
{
    int made = fault_count("cuMemCreate") + fault_count("cuMemImportFromShareableHandle") +
               fault_count("cuMemRetainAllocationHandle");
    test__check_int(__FILE__, line, "handles released", fault_count("cuMemRelease"), made);
    test__check_int(__FILE__, line, "ranges freed", fault_count("cuMemAddressFree"),
                    fault_count("cuMemAddressReserve"));
    test__check_int(__FILE__, line, "unmapped", fault_count("cuMemUnmap"), fault_count("cuMemMap"));
    test__check_int(__FILE__, line, "vmm_bytes", ignis__caches[0].info.vmm_bytes, 0); /* also after a shutdown */
}

/* physical memory -----------------------------------------------------------------------------------------------------
   */

TEST(granularity)
{
    VMM_SETUP();
    CHECK(granule > 0 && (granule & (granule - 1)) == 0);
    CHECK(ignis_vmm_granularity(0, true) >= granule);
    CHECK_FAILS(ignis_vmm_granularity(1000, false), IGNIS_ERROR_DEVICE, IGNIS_DIAG_DEVICE_RANGE);
}

TEST(create_rounds_up_and_query_tells)
{
    ignis_vmm vmm;
    ignis_vmm_info info;
    VMM_SETUP();
    vmm = make_vmm(granule + 1);
    REQUIRE(vmm.id);
    CHECK_OK(ignis_vmm_query(vmm, &info));
    CHECK_INT(info.size, 2 * granule);
    CHECK_INT(info.granularity, granule);
    CHECK_INT(info.device, 0);
    CHECK_INT(info.handle_type, HANDLE_HERE);
    CHECK(!info.imported);
    CHECK_INT(info.mappings, 0);
    CHECK_INT(info.prop.type, IGNIS_VMM_ALLOCATION_PINNED);
    CHECK_INT(info.prop.location.type, IGNIS_VMM_LOCATION_DEVICE);
    CHECK_INT(info.prop.location.id, 0);
    CHECK_OK(ignis_vmm_free(vmm));
    CHECK_STATUS(ignis_vmm_free(vmm), IGNIS_ERROR_FREED, IGNIS_DIAG_VMM_FREED);
    CHECK_STATUS(ignis_vmm_query(vmm, &info), IGNIS_ERROR_FREED, IGNIS_DIAG_VMM_FREED);
    CHECK_BALANCED();
}

TEST(create_refuses_what_it_cannot_make)
{
    ignis_vmm_desc desc;
    VMM_SETUP();
    CHECK_FAILS(ignis_vmm_create(NULL), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NULL_ARGUMENT);
    memset(&desc, 0, sizeof desc);
    CHECK_FAILS(ignis_vmm_create(&desc), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    desc.size = INT64_MAX;
    CHECK_FAILS(ignis_vmm_create(&desc), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    desc.size = granule;
    desc.handle_type = HANDLE_ELSEWHERE;
    CHECK_FAILS(ignis_vmm_create(&desc), IGNIS_ERROR_UNSUPPORTED, IGNIS_DIAG_UNSUPPORTED);
    desc.handle_type = (ignis_vmm_handle_type)77;
    CHECK_FAILS(ignis_vmm_create(&desc), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_ENUM);
    desc.handle_type = IGNIS_VMM_HANDLE_NONE;
    desc.device = 1000;
    CHECK_FAILS(ignis_vmm_create(&desc), IGNIS_ERROR_DEVICE, IGNIS_DIAG_DEVICE_RANGE);
    desc.device = 0;
    desc.size = (int64_t)1 << 50;
    CHECK_FAILS(ignis_vmm_create(&desc), IGNIS_ERROR_MEMORY, IGNIS_DIAG_DEVICE_MEMORY);
    CHECK_MESSAGE_HAS("creating 1048576 GiB of physical memory on device 0");
    CHECK_MESSAGE_HAS("CUDA_ERROR_OUT_OF_MEMORY (2)");
    CHECK_BALANCED();
}

TEST(the_structs_and_errors_of_the_driver)
{
    ignis_vmm_prop prop = ignis_vmm_prop_of(3, true);
    ignis_vmm_access_desc access = ignis_vmm_access_of(2, true);
    SETUP(NULL);
    CHECK_INT(sizeof prop, 32);
    CHECK_INT(sizeof access, 12);
    CHECK_INT(prop.type, 1);
    CHECK_INT(prop.handle_types, HANDLE_HERE);
    CHECK_INT(prop.location.type, 1);
    CHECK_INT(prop.location.id, 3);
    CHECK(!prop.win32_security);
    CHECK_INT(ignis_vmm_prop_of(0, false).handle_types, 0);
    CHECK_INT(access.location.id, 2);
    CHECK_INT(access.access, 3);
    CHECK_INT(ignis_vmm_access_of(0, false).access, 1);
    CHECK_OK(ignis_vmm_check(0, "nothing"));
    CHECK_STATUS(ignis_vmm_check(1, "mapping the cache"), IGNIS_ERROR_CUDA, IGNIS_DIAG_CUDA_CALL);
    CHECK_MESSAGE_HAS("mapping the cache failed with CUDA_ERROR_INVALID_VALUE (1)");
    CHECK_STATUS(ignis_vmm_check(2, NULL), IGNIS_ERROR_MEMORY, IGNIS_DIAG_DEVICE_MEMORY);
    CHECK_MESSAGE_HAS("VMM operation");
}

/* ranges and mappings -------------------------------------------------------------------------------------------------
   */

TEST(map_use_unmap)
{
    ignis_vmm a, b;
    ignis_vmm_info info;
    ignis_vmm_range range;
    ignis_vmm_range_info range_info;
    ignis_vmm_access access;
    ignis_array_desc desc = desc_of(IGNIS_SHAPE(1024), IGNIS_I32);
    ignis_array array, whole;
    int32_t values[1024];
    int i;
    VMM_SETUP();
    a = make_vmm(granule);
    b = make_vmm(2 * granule);
    range = ignis_vmm_reserve(4 * granule - 5, 0);
    REQUIRE(a.id && b.id && range.id);
    CHECK_OK(ignis_vmm_map(range, 0, a));
    CHECK_OK(ignis_vmm_map(range, granule, b));
    CHECK_OK(ignis_vmm_query(a, &info));
    CHECK_INT(info.mappings, 1);
    CHECK_OK(ignis_vmm_range_query(range, &range_info));
    CHECK_INT(range_info.size, 4 * granule);
    CHECK_INT(range_info.mapped_bytes, 3 * granule);
    CHECK_INT(range_info.mappings, 2);
    CHECK(range_info.ptr != NULL);
    CHECK_OK(ignis_vmm_get_access(range, 0, 0, &access));
    CHECK_INT(access, IGNIS_VMM_ACCESS_NONE);
    CHECK_FAILS(ignis_vmm_array_map(range, 0, &desc), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_VMM_STATE);
    CHECK_MESSAGE_HAS("no access");
    CHECK_OK(ignis_vmm_set_access(range, 0, 3 * granule, 0, IGNIS_VMM_ACCESS_READ_WRITE));
    CHECK_OK(ignis_vmm_get_access(range, 2 * granule, 0, &access));
    CHECK_INT(access, IGNIS_VMM_ACCESS_READ_WRITE);

    desc.tag = "mapped";
    array = ignis_vmm_array_map(range, granule - 2048, &desc); /* lies in both */
    CHECK(array.id);
    for (i = 0; i < 1024; i++)
        values[i] = 5 + i;
    CHECK_OK(ignis_array_from_host(array, values, IGNIS_I32, 1024));
    CHECK_COUNTING(array, 1024, 5);
    CHECK_STATUS(ignis_vmm_unmap(range, 0), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_VMM_STATE);
    CHECK_MESSAGE_HAS("1 array uses the mapping at offset 0");
    desc.shape = IGNIS_SHAPE(512);
    whole = ignis_vmm_array_map(range, granule, &desc);
    CHECK_COUNTING(whole, 512, 5 + 512);
    CHECK_OK(ignis_vmm_range_query(range, &range_info));
    CHECK_INT(range_info.arrays, 2);
    drop(array);
    CHECK_OK(ignis_vmm_unmap(range, 0));
    CHECK_STATUS(ignis_vmm_unreserve(range), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_VMM_STATE);
    CHECK_OK(ignis_vmm_free(b)); /* its mapping keeps the memory */
    CHECK_COUNTING(whole, 512, 5 + 512);
    drop(whole);
    CHECK_OK(ignis_vmm_unmap(range, granule));
    CHECK_OK(ignis_vmm_free(a));
    CHECK_OK(ignis_vmm_unreserve(range));
    CHECK_STATUS(ignis_vmm_unreserve(range), IGNIS_ERROR_FREED, IGNIS_DIAG_VMM_FREED);
    CHECK_BALANCED();
}

TEST(mappings_do_not_overlap_nor_leave_the_range)
{
    ignis_vmm one, two;
    ignis_vmm_range range;
    ignis_vmm_access access;
    VMM_SETUP();
    one = make_vmm(granule);
    two = make_vmm(2 * granule);
    range = ignis_vmm_reserve(4 * granule, 0);
    CHECK_STATUS(ignis_vmm_map(range, granule / 2, one), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_VMM_SIZE);
    CHECK_STATUS(ignis_vmm_map(range, -granule, one), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_VMM_SIZE);
    CHECK_STATUS(ignis_vmm_map(range, 4 * granule, one), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_VMM_SIZE);
    CHECK_STATUS(ignis_vmm_map(range, 3 * granule, two), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_VMM_SIZE);
    CHECK_STATUS(ignis_vmm_map(range, INT64_MAX / granule * granule, two), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_VMM_SIZE);
    CHECK_OK(ignis_vmm_map(range, granule, two));
    CHECK_STATUS(ignis_vmm_map(range, 0, two), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_VMM_STATE);
    CHECK_STATUS(ignis_vmm_map(range, 2 * granule, one), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_VMM_STATE);
    CHECK_OK(ignis_vmm_map(range, 3 * granule, one));
    CHECK_OK(ignis_vmm_map(range, 0, one)); /* a second place */
    CHECK_STATUS(ignis_vmm_unmap(range, 2 * granule), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_VMM_STATE);
    CHECK_OK(ignis_vmm_unmap(range, granule));
    CHECK_STATUS(ignis_vmm_unmap(range, granule), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_VMM_STATE);
    CHECK_STATUS(ignis_vmm_set_access(range, 0, 2 * granule, 0, IGNIS_VMM_ACCESS_READ), IGNIS_ERROR_ARGUMENT,
                 IGNIS_DIAG_VMM_STATE);
    CHECK_STATUS(ignis_vmm_set_access(range, 0, granule, 0, (ignis_vmm_access)2), IGNIS_ERROR_ARGUMENT,
                 IGNIS_DIAG_BAD_ENUM);
    CHECK_STATUS(ignis_vmm_set_access(range, 0, granule, 99, IGNIS_VMM_ACCESS_READ), IGNIS_ERROR_DEVICE,
                 IGNIS_DIAG_DEVICE_RANGE);
    CHECK_STATUS(ignis_vmm_get_access(range, granule, 0, &access), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_VMM_STATE);
    CHECK_STATUS(ignis_vmm_get_access(range, 0, 0, NULL), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NULL_ARGUMENT);
    CHECK_FAILS(ignis_vmm_reserve(0, 0), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    CHECK_FAILS(ignis_vmm_reserve(granule, 3), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    CHECK_OK(ignis_vmm_unmap(range, 0));
    CHECK_OK(ignis_vmm_unmap(range, 3 * granule));
    CHECK_OK(ignis_vmm_free(one));
    CHECK_OK(ignis_vmm_free(two));
    CHECK_OK(ignis_vmm_unreserve(range));
    CHECK_BALANCED();
}

TEST(handles_of_another_kind)
{
    ignis_vmm vmm, none = {0};
    ignis_vmm_range range;
    ignis_vmm_info info;
    VMM_SETUP();
    range = ignis_vmm_reserve(granule, 0);
    vmm.id = range.id;
    CHECK_STATUS(ignis_vmm_query(vmm, &info), IGNIS_ERROR_FREED, IGNIS_DIAG_WRONG_KIND);
    CHECK_STATUS(ignis_vmm_map(range, 0, none), IGNIS_ERROR_FREED, IGNIS_DIAG_VMM_FREED);
    CHECK_OK(ignis_vmm_unreserve(range));
    CHECK_STATUS(ignis_vmm_map(range, 0, none), IGNIS_ERROR_FREED, IGNIS_DIAG_VMM_FREED);
}

TEST(shutdown_gives_everything_back_and_says_so)
{
    ignis_vmm vmm;
    ignis_vmm_range range;
    ignis_vmm_array_desc desc = array_desc(IGNIS_SHAPE(10));
    ignis_array_desc part = desc_of(IGNIS_SHAPE(8), IGNIS_F32);
    VMM_SETUP();
    test_leaks_expected = true;
    vmm = make_vmm(granule);
    range = ignis_vmm_reserve(granule, 0);
    CHECK_OK(ignis_vmm_map(range, 0, vmm));
    CHECK_OK(ignis_vmm_set_access(range, 0, granule, 0, IGNIS_VMM_ACCESS_READ_WRITE));
    CHECK(ignis_vmm_array(&desc).id);
    CHECK(ignis_vmm_array_map(range, 0, &part).id);
    CHECK_OK(ignis_shutdown());
    CHECK_INT(test_log_count(IGNIS_DIAG_ARRAY_LEAKED), 4);
    CHECK_BALANCED();
}

/* arrays --------------------------------------------------------------------------------------------------------------
   */

TEST(an_array_in_memory_of_its_own)
{
    ignis_vmm_array_desc desc = array_desc(IGNIS_SHAPE(16, 64));
    ignis_array array, view;
    ignis_array_info info;
    VMM_SETUP();
    desc.dtype = IGNIS_I32;
    desc.owner = IGNIS_OWNER_NVCCL;
    desc.tag = "shared";
    array = ignis_vmm_array(&desc);
    REQUIRE(array.id);
    info = info_of(array);
    CHECK(info.on_device && !info.owns_memory);
    CHECK_INT(info.owner, IGNIS_OWNER_NVCCL);
    CHECK_TEXT(info.tag, "shared");
    CHECK_INT((intptr_t)info.ptr % granule, 0);
    {
        int32_t values[16 * 64];
        int i;
        for (i = 0; i < 16 * 64; i++)
            values[i] = i;
        CHECK_OK(ignis_array_from_host(array, values, IGNIS_I32, 16 * 64));
    }
    view = ignis_array_slice(array, 0, 4, 2);
    CHECK_OK(ignis_array_free_as(array, IGNIS_OWNER_NVCCL));
    CHECK_INT(fault_count("cuMemRelease"), 0); /* the view keeps it */
    CHECK_COUNTING(view, 128, 256);
    CHECK_OK(ignis_array_free_as(view, IGNIS_OWNER_NVCCL));
    CHECK_BALANCED();
}

TEST(an_array_over_a_range_outlives_its_stream)
{
    ignis_array_desc desc = desc_of(IGNIS_SHAPE(8), IGNIS_F32);
    ignis_vmm vmm;
    ignis_vmm_range range;
    ignis_array array;
    void *stream = NULL;
    VMM_SETUP();
    vmm = make_vmm(granule);
    range = ignis_vmm_reserve(granule, 0);
    CHECK_OK(ignis_vmm_map(range, 0, vmm));
    CHECK_OK(ignis_vmm_set_access(range, 0, granule, 0, IGNIS_VMM_ACCESS_READ_WRITE));
    CHECK_INT(ignis__cuda.cuStreamCreate(&stream, IGNIS__CU_STREAM_NON_BLOCKING), 0);
    desc.stream = stream;
    array = ignis_vmm_array_map(range, 0, &desc);
    REQUIRE(array.id);
    CHECK_OK(ignis_stream_forget(stream));
    CHECK_INT(ignis__cuda.cuStreamDestroy_v2(stream), 0);
    CHECK(info_of(array).stream == ignis_stream_current());
    CHECK_OK(ignis_array_fill(array, 3));
    CHECK_OK(ignis_array_free(array));
    CHECK_OK(ignis_vmm_unmap(range, 0));
    CHECK_OK(ignis_vmm_unreserve(range));
    CHECK_OK(ignis_vmm_free(vmm));
    CHECK_BALANCED();
}

TEST(an_array_that_nobody_can_make)
{
    ignis_vmm_array_desc desc = array_desc(IGNIS_SHAPE(16, 64));
    VMM_SETUP();
    CHECK_REFUSED(0, ignis_vmm_array(NULL).id, IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NULL_ARGUMENT);
    desc.dtype = (ignis_dtype)99;
    CHECK_REFUSED(0, ignis_vmm_array(&desc).id, IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_ENUM);
    desc.dtype = IGNIS_F32;
    desc.owner = (ignis_owner)99;
    CHECK_REFUSED(0, ignis_vmm_array(&desc).id, IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_ENUM);
    desc.owner = IGNIS_OWNER_DEFAULT;
    desc.handle_type = HANDLE_ELSEWHERE;
    CHECK_REFUSED(0, ignis_vmm_array(&desc).id, IGNIS_ERROR_UNSUPPORTED, IGNIS_DIAG_UNSUPPORTED);
    desc.handle_type = IGNIS_VMM_HANDLE_DEFAULT;
    desc.access_count = 1;
    CHECK_REFUSED(0, ignis_vmm_array(&desc).id, IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NULL_ARGUMENT);
    {
        int nobody = 77;
        desc.access_devices = &nobody;
        CHECK_REFUSED(0, ignis_vmm_array(&desc).id, IGNIS_ERROR_DEVICE, IGNIS_DIAG_DEVICE_RANGE);
    }
    CHECK_BALANCED();
}

TEST(empty_arrays)
{
    ignis_vmm_array_desc desc = array_desc(IGNIS_SHAPE(0, 64));
    ignis_array array;
    VMM_SETUP();
    array = ignis_vmm_array(&desc);
    CHECK_INT(ignis_array_numel(array), 0);
    drop(array);
    CHECK_BALANCED();
}

TEST(another_device_is_let_in)
{
    static const int both[] = {0, 1};
    ignis_vmm_array_desc desc = array_desc(IGNIS_SHAPE(256));
    ignis_array_desc other = desc_of(IGNIS_SHAPE(256), IGNIS_I32);
    ignis_vmm vmm;
    ignis_vmm_range range;
    ignis_vmm_access access;
    ignis_array array, seen, copy;
    int reachable = 0;
    VMM_SETUP();
    NEEDS_DEVICES(2);
    if (ignis__cuda.cuDeviceCanAccessPeer(&reachable, 1, 0) != 0 || !reachable)
        SKIP("device 1 cannot reach device 0");
    desc.dtype = IGNIS_I32;
    desc.access_devices = both;
    desc.access_count = 2;
    array = ignis_vmm_array(&desc);
    REQUIRE(array.id);
    drop(array);

    vmm = make_vmm(granule);
    range = ignis_vmm_reserve(granule, 0);
    CHECK_OK(ignis_vmm_map(range, 0, vmm));
    CHECK_OK(ignis_vmm_set_access(range, 0, granule, 0, IGNIS_VMM_ACCESS_READ_WRITE));
    CHECK_OK(ignis_vmm_set_access(range, 0, granule, 1, IGNIS_VMM_ACCESS_READ));
    CHECK_OK(ignis_vmm_get_access(range, 0, 1, &access));
    CHECK_INT(access, IGNIS_VMM_ACCESS_READ);
    array = ignis_vmm_array_map(range, 0, &other);
    other.device = 1;
    seen = ignis_vmm_array_map(range, 0, &other); /* the same memory, as device 1 sees it */
    {
        int32_t values[256];
        int i;
        for (i = 0; i < 256; i++)
            values[i] = 70 + i;
        CHECK_OK(ignis_array_from_host(array, values, IGNIS_I32, 256));
        CHECK_OK(ignis_synchronize()); /* for Ignis these are two arrays */
    }
    copy = ignis_array_clone(seen);
    CHECK_COUNTING(copy, 256, 70);
    drop(copy);
    drop(seen);
    drop(array);
    CHECK_OK(ignis_vmm_set_access(range, 0, granule, 1, IGNIS_VMM_ACCESS_NONE));
    CHECK_OK(ignis_vmm_get_access(range, 0, 1, &access));
    CHECK_INT(access, IGNIS_VMM_ACCESS_NONE);
    CHECK_OK(ignis_vmm_unmap(range, 0));
    CHECK_OK(ignis_vmm_unreserve(range));
    CHECK_OK(ignis_vmm_free(vmm));
    CHECK_BALANCED();
}

TEST(the_memory_behind_an_array)
{
    ignis_vmm_array_desc desc = array_desc(IGNIS_SHAPE(100, 10));
    ignis_array array, view, plain, wrapped;
    ignis_array_desc wrap = desc_of(IGNIS_SHAPE(4), IGNIS_F32);
    ignis_vmm vmm;
    ignis_vmm_info info;
    int64_t offset = -1;
    VMM_SETUP();
    array = ignis_vmm_array(&desc);
    view = ignis_array_slice(array, 0, 3, 5);
    vmm = ignis_vmm_of_array(view, &offset);
    REQUIRE(vmm.id);
    CHECK_INT(offset, 3 * 10 * 4);
    CHECK_OK(ignis_vmm_query(vmm, &info));
    CHECK_INT(info.size, granule);
    drop(view);
    CHECK_OK(ignis_vmm_free(vmm));

    wrap.ptr = (char *)ignis_array_device_ptr(array) + 64; /* a pointer that Ignis does not know */
    wrapped = ignis_array_create(&wrap);
    vmm = ignis_vmm_of_array(wrapped, &offset);
    CHECK(vmm.id);
    CHECK_INT(offset, 64);
    CHECK_OK(ignis_vmm_free(vmm));
    drop(wrapped);
    drop(array);

    plain = test_array(4, 4);
    CHECK_REFUSED(0, ignis_vmm_of_array(plain, NULL).id, IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NOT_SHAREABLE);
    CHECK_MESSAGE_HAS("ignis_vmm_array");
    wrap.ptr = ignis_array_device_ptr(plain);
    wrapped = ignis_array_create(&wrap);
    CHECK_REFUSED(0, ignis_vmm_of_array(wrapped, NULL).id, IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NOT_SHAREABLE);
    drop(wrapped);
    drop(plain);
    CHECK_BALANCED();
}

TEST(memory_counts_where_it_was_made_and_until_it_goes)
{
    ignis_vmm_array_desc desc = array_desc(IGNIS_SHAPE(100));
    ignis_array_desc part = desc_of(IGNIS_SHAPE(8), IGNIS_F32), wrap = part;
    ignis_memory_info before, after;
    ignis_vmm vmm, same, behind;
    ignis_array array, mapped, wrapped;
    ignis_vmm_handle handle;
    ignis_vmm_range range;
    VMM_SETUP();
    CHECK_OK(ignis_memory_query(0, &before));
    CHECK_INT(before.vmm_bytes, 0);
    vmm = make_vmm(granule + 1);
    CHECK_INT(memory_of(0).vmm_bytes, 2 * granule);
    fault_arm("cuMemCreate", 1, 1);
    CHECK_REFUSED(0, ignis_vmm_array(&desc).id, IGNIS_ERROR_CUDA, IGNIS_DIAG_CUDA_CALL);
    fault_arm("cuMemMap", 1, 1);
    CHECK_REFUSED(0, ignis_vmm_array(&desc).id, IGNIS_ERROR_CUDA, IGNIS_DIAG_CUDA_CALL);
    fault_disarm();
    CHECK_INT(memory_of(0).vmm_bytes, 2 * granule);

    /* an import is another's, also when that one is this process */
    CHECK_OK(ignis_vmm_export(vmm, &handle));
    same = ignis_vmm_import(&handle, 2 * granule, 0);
    CHECK(same.id);
    CHECK_INT(memory_of(0).vmm_bytes, 2 * granule);
    CHECK_OK(ignis_vmm_free(same));
    CHECK_OK(ignis_vmm_handle_close(&handle));
    CHECK_INT(memory_of(0).vmm_bytes, 2 * granule);

    /* a mapping keeps what is freed, and so does the handle behind an array */
    range = ignis_vmm_reserve(4 * granule, 0);
    CHECK_INT(memory_of(0).vmm_bytes, 2 * granule);
    CHECK_OK(ignis_vmm_map(range, 0, vmm));
    CHECK_OK(ignis_vmm_set_access(range, 0, 2 * granule, 0, IGNIS_VMM_ACCESS_READ_WRITE));
    CHECK_OK(ignis_vmm_free(vmm));
    mapped = ignis_vmm_array_map(range, 0, &part);
    behind = ignis_vmm_of_array(mapped, NULL);
    CHECK_INT(memory_of(0).vmm_bytes, 2 * granule);
    drop(mapped);
    CHECK_OK(ignis_vmm_unmap(range, 0));
    CHECK_OK(ignis_vmm_unreserve(range));
    CHECK_INT(memory_of(0).vmm_bytes, 2 * granule);
    CHECK_OK(ignis_vmm_free(behind));
    CHECK_INT(memory_of(0).vmm_bytes, 0);

    array = ignis_vmm_array(&desc);
    CHECK_INT(memory_of(0).vmm_bytes, granule);
    behind = ignis_vmm_of_array(array, NULL);
    wrap.ptr = ignis_array_device_ptr(array);
    wrapped = ignis_array_create(&wrap);
    same = ignis_vmm_of_array(wrapped, NULL); /* of a pointer nobody knows who has made what it points to */
    CHECK(same.id);
    CHECK_INT(memory_of(0).vmm_bytes, granule);
    CHECK_OK(ignis_vmm_free(same));
    drop(wrapped);
    drop(array);
    CHECK_INT(memory_of(0).vmm_bytes, granule);
    CHECK_OK(ignis_vmm_free(behind));
    CHECK_OK(ignis_memory_query(0, &after));
    CHECK_INT(after.vmm_bytes, 0);
    CHECK_INT(after.live_bytes, before.live_bytes);
    if (ignis_device_count() > 1) {
        desc.device = 1;
        array = ignis_vmm_array(&desc);
        CHECK_INT(memory_of(0).vmm_bytes, 0);
        CHECK(memory_of(1).vmm_bytes > 0);
        drop(array);
        CHECK_INT(memory_of(1).vmm_bytes, 0);
    }
    CHECK_BALANCED();
}

TEST(cached_memory_is_given_back_before_memory_runs_out)
{
    ignis_vmm vmm;
    ignis_array array;
    VMM_SETUP();
    if (test_is_bypass())
        SKIP("nothing is cached");
    array = test_array(1024, 1024);
    drop(array);
    fault_arm("cuMemCreate", 1, 2);
    vmm = make_vmm(granule);
    fault_disarm();
    CHECK(vmm.id);
    CHECK_INT(memory().reserved_bytes, 0);
    CHECK_OK(ignis_vmm_free(vmm));
}

/* failures ------------------------------------------------------------------------------------------------------------
   */

/*  Makes everything that there is, with a failure at the k-th driver call; true when it came to its end. */
static bool use_everything(void)
{
    ignis_vmm_array_desc desc = array_desc(IGNIS_SHAPE(100));
    ignis_array_desc part = desc_of(IGNIS_SHAPE(8), IGNIS_F32);
    ignis_vmm vmm = {0}, again = {0}, behind = {0};
    ignis_vmm_range range = {0};
    ignis_vmm_handle handle = {0};
    ignis_array array = {0}, mapped = {0};
    bool ok = (array = ignis_vmm_array(&desc)).id && (behind = ignis_vmm_of_array(array, NULL)).id &&
              (vmm = make_vmm(granule)).id && (range = ignis_vmm_reserve(granule, 0)).id &&
              ignis_vmm_export(vmm, &handle) == IGNIS_OK && (again = ignis_vmm_import(&handle, granule, 0)).id &&
              ignis_vmm_map(range, 0, again) == IGNIS_OK &&
              ignis_vmm_set_access(range, 0, granule, 0, IGNIS_VMM_ACCESS_READ_WRITE) == IGNIS_OK &&
              (mapped = ignis_vmm_array_map(range, 0, &part)).id;
    fault_disarm();
    if (!ok)
        CHECK(ignis_status_last() != IGNIS_OK);
    ignis_status_clear();
    if (mapped.id)
        CHECK_OK(ignis_array_free(mapped));
    if (range.id) {
        ignis_vmm_range_info info;
        CHECK_OK(ignis_vmm_range_query(range, &info));
        if (info.mappings)
            CHECK_OK(ignis_vmm_unmap(range, 0));
        CHECK_OK(ignis_vmm_unreserve(range));
    }
    if (array.id)
        CHECK_OK(ignis_array_free(array));
    if (behind.id)
        CHECK_OK(ignis_vmm_free(behind));
    if (vmm.id)
        CHECK_OK(ignis_vmm_free(vmm));
    if (again.id)
        CHECK_OK(ignis_vmm_free(again));
    if (handle.type)
        CHECK_OK(ignis_vmm_handle_close(&handle));
    return ok;
}

TEST(every_step_unwinds)
{
    size_t memory[2] = {0, 0}, total;
    int k, fds, kept = 0;
    NEEDS_NO_MEMCHECK();
    VMM_SETUP();
    CHECK(use_everything());
    fds = process_descriptors();
    CHECK_INT(ignis__cuda.cuMemGetInfo_v2(&memory[0], &total), 0);
    for (k = 1; k < 200; k++) {
        fault_reset_counts();
        fault_arm("cu", k, 1);
        if (use_everything())
            break;
        if (fault_failed("cuMemUnmap") + fault_failed("cuMemAddressFree") + fault_failed("cuMemRelease") == 0)
            CHECK_BALANCED();
        else
            kept++; /* the driver was made to keep what it was given back */
        CHECK_INT(memory_of(0).vmm_bytes, 0);
    }
    CHECK(k > 20 && k < 200);
    CHECK(process_descriptors() <= fds + kept); /* the simulator has a descriptor for each allocation */
    if (test_is_simulator()) {
        CHECK_INT(ignis__cuda.cuMemGetInfo_v2(&memory[1], &total), 0);
        CHECK(memory[1] + (size_t)(kept * granule) >= memory[0]);
    }
}

TEST(failures_name_the_step)
{
    ignis_vmm_array_desc desc = array_desc(IGNIS_SHAPE(100));
    VMM_SETUP();
    fault_arm("cuMemMap", 1, 1);
    CHECK_REFUSED(0, ignis_vmm_array(&desc).id, IGNIS_ERROR_CUDA, IGNIS_DIAG_CUDA_CALL);
    CHECK_MESSAGE_HAS("cuMemMap, mapping ");
    CHECK_MESSAGE_HAS(" at 0x");
    CHECK_MESSAGE_HAS("CUDA_ERROR_INVALID_VALUE (1)");
    fault_arm("cuMemSetAccess", 1, 101);
    CHECK_REFUSED(0, ignis_vmm_array(&desc).id, IGNIS_ERROR_CUDA, IGNIS_DIAG_CUDA_CALL);
    CHECK_MESSAGE_HAS("cuMemSetAccess, giving 1 device access to ");
    fault_disarm();
    CHECK_BALANCED();
}

/* sharing -------------------------------------------------------------------------------------------------------------
   */

static void export_and_import(void)
{
    ignis_vmm vmm, same, closed;
    ignis_vmm_info info;
    ignis_vmm_handle handle, bad;
    ignis_vmm_desc none;
    vmm = make_vmm(2 * granule);
    CHECK_OK(ignis_vmm_export(vmm, &handle));
    CHECK_INT(handle.type, HANDLE_HERE);
#ifndef _WIN32
    CHECK(fcntl(handle.fd, F_GETFD) & FD_CLOEXEC);
#endif
    same = ignis_vmm_import(&handle, 2 * granule, 0);
    CHECK(same.id);
    CHECK_OK(ignis_vmm_query(same, &info));
    CHECK(info.imported);
    CHECK_INT(info.size, 2 * granule);

    CHECK_REFUSED(0, ignis_vmm_import(&handle, granule / 2, 0).id, IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_VMM_SIZE);
    CHECK_REFUSED(0, ignis_vmm_import(&handle, 0, 0).id, IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_VMM_SIZE);
    CHECK_REFUSED(0, ignis_vmm_import(&handle, -granule, 0).id, IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_VMM_SIZE);
    CHECK_REFUSED(0, ignis_vmm_import(&handle, 16 * granule, 0).id, IGNIS_ERROR_CUDA, IGNIS_DIAG_CUDA_CALL);
    CHECK_REFUSED(0, ignis_vmm_import(NULL, granule, 0).id, IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NULL_ARGUMENT);
    if (ignis_device_count() > 1) {
        int reachable = 0;
        ignis__cuda.cuDeviceCanAccessPeer(&reachable, 1, 0);
        if (reachable)
            CHECK_REFUSED(0, ignis_vmm_import(&handle, 2 * granule, 1).id, IGNIS_ERROR_DEVICE,
                          IGNIS_DIAG_DEVICE_DIFFERS);
    }
    bad = handle;
    bad.type = HANDLE_ELSEWHERE;
    CHECK_REFUSED(0, ignis_vmm_import(&bad, 2 * granule, 0).id, IGNIS_ERROR_UNSUPPORTED, IGNIS_DIAG_UNSUPPORTED);
    CHECK_OK(ignis_vmm_free(vmm));
    CHECK_OK(ignis_vmm_free(same));
    closed = ignis_vmm_import(&handle, 2 * granule, 0); /* the descriptor alone keeps the memory */
    CHECK(closed.id);
    CHECK_OK(ignis_vmm_free(closed));
    CHECK_OK(ignis_vmm_handle_close(&handle));
    CHECK_OK(ignis_vmm_handle_close(&handle));

    memset(&none, 0, sizeof none);
    none.size = granule;
    none.handle_type = IGNIS_VMM_HANDLE_NONE;
    vmm = ignis_vmm_create(&none);
    CHECK_OK(ignis_vmm_query(vmm, &info));
    CHECK_INT(info.handle_type, IGNIS_VMM_HANDLE_NONE);
    CHECK_STATUS(ignis_vmm_export(vmm, &handle), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NOT_SHAREABLE);
    CHECK_OK(ignis_vmm_free(vmm));
}

TEST(export_and_import_in_one_process)
{
    VMM_SETUP();
    process_leaves_no_descriptor(export_and_import);
    CHECK_BALANCED();
}

TEST(handles_are_duplicated_on_windows_only)
{
    ignis_vmm vmm;
    ignis_vmm_handle handle, other;
    VMM_SETUP();
    vmm = make_vmm(granule);
    CHECK_OK(ignis_vmm_export(vmm, &handle));
#ifdef _WIN32
    CHECK_STATUS(ignis_vmm_handle_duplicate(&handle, 1, &other), IGNIS_ERROR_PEER,
                 IGNIS_DIAG_CHANNEL_LOST); /* no process has this number */
#else
    CHECK_STATUS(ignis_vmm_handle_duplicate(&handle, 1, &other), IGNIS_ERROR_UNSUPPORTED, IGNIS_DIAG_UNSUPPORTED);
#endif
    CHECK_STATUS(ignis_vmm_handle_duplicate(NULL, 1, &other), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NULL_ARGUMENT);
    CHECK_OK(ignis_vmm_handle_close(&handle));
    CHECK_OK(ignis_vmm_free(vmm));
}

TEST(a_forked_child_is_refused)
{
    ignis_vmm_array_desc desc = array_desc(IGNIS_SHAPE(8));
    ignis_status_info info;
    ignis_array array;
    pid_t child;
    int status = 0;
    NEEDS_POSIX("fork");
    VMM_SETUP();
    array = ignis_vmm_array(&desc);
    fflush(stdout);
    child = fork();
    if (child == 0) {
        bool refused = !make_vmm(granule).id && ignis_status_query(&info) == IGNIS_ERROR_NOT_SETUP &&
                       info.diagnostic == IGNIS_DIAG_FORKED;
        _exit(refused && !ignis_vmm_of_array(array, NULL).id ? 0 : 1);
    }
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    drop(array);
    CHECK_BALANCED();
}

TEST(memory_goes_without_a_word_after_a_fault)
{
    ignis_vmm_array_desc desc = array_desc(IGNIS_SHAPE(8));
    ignis_array array;
    VMM_SETUP();
    array = ignis_vmm_array(&desc);
    ignis__atomic_store(&ignis__devices_fault, 700);
    drop(array);
    ignis__atomic_store(&ignis__devices_fault, 0);
    CHECK_INT(test_log_count(IGNIS_DIAG_CUDA_CALL), 0);
    CHECK_BALANCED();
}

TEST(descriptors_that_are_no_memory)
{
    ignis_vmm_handle handle;
    ignis_array array;
    int pipes[2], fds;
    NEEDS_POSIX("descriptors of memory");
    VMM_SETUP();
    fds = process_descriptors();
    memset(&handle, 0, sizeof handle);
    CHECK_REFUSED(0, ignis_vmm_import(&handle, granule, 0).id, IGNIS_ERROR_UNSUPPORTED, IGNIS_DIAG_UNSUPPORTED);
    handle.type = HANDLE_HERE;
    handle.fd = -1;
    CHECK_REFUSED(0, ignis_vmm_import(&handle, granule, 0).id, IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    REQUIRE(pipe(pipes) == 0);
    handle.fd = pipes[0];
    CHECK(!ignis_vmm_import(&handle, granule, 0).id && ignis_status_last() != IGNIS_OK);
    ignis_status_clear();
    close(pipes[0]);
    close(pipes[1]);
    CHECK(!ignis_vmm_import(&handle, granule, 0).id && ignis_status_last() != IGNIS_OK); /* closed */
    ignis_status_clear();
    handle.fd = open("/dev/zero", O_RDWR | O_CLOEXEC);
    CHECK(!ignis_vmm_import(&handle, granule, 0).id && ignis_status_last() != IGNIS_OK);
    ignis_status_clear();
    close(handle.fd);
    handle.fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    CHECK(!ignis_vmm_import(&handle, granule, 0).id && ignis_status_last() != IGNIS_OK);
    ignis_status_clear();
    close(handle.fd);
    array = test_array(4, 4); /* the context has survived it */
    CHECK_OK(ignis_array_zero(array));
    CHECK_OK(ignis_synchronize());
    drop(array);
    CHECK_INT(process_descriptors(), fds);
    CHECK_BALANCED();
}

/* threads -------------------------------------------------------------------------------------------------------------
   */

/*  What all threads use, replace and free under each other's hands. */
enum { MIX_THREADS = 4, MIX_ITEMS = 3 };

typedef struct mixer {
    uint64_t (*items)[MIX_ITEMS]; /* memory, ranges, arrays: handles, swapped atomically */
    unsigned random;
    int rounds;
} mixer;

static void *mix_calls(void *context)
{
    mixer *m = (mixer *)context;
    ignis_vmm_array_desc desc = array_desc(IGNIS_SHAPE(64));
    ignis_array_desc part = desc_of(IGNIS_SHAPE(64), IGNIS_F32);
    int round;
    for (round = 0; round < m->rounds; round++) {
        unsigned at = test_draw(&m->random, MIX_ITEMS);
        int64_t offset = granule * (int64_t)test_draw(&m->random, 3);
        ignis_vmm_handle handle;
        ignis_vmm_access access;
        ignis_vmm_info info;
        ignis_vmm_range_info range_info;
        ignis_vmm_range range;
        ignis_array array;
        ignis_vmm vmm, other;
        vmm.id = ignis__atomic_load(&m->items[0][at]);
        range.id = ignis__atomic_load(&m->items[1][test_draw(&m->random, MIX_ITEMS)]);
        array.id = ignis__atomic_load(&m->items[2][at]);
        switch (test_draw(&m->random, 9)) {
        case 0:
            vmm.id = test_swap(&m->items[0][at], make_vmm(granule).id);
            (void)ignis_vmm_free(vmm);
            break;
        case 1:
            array.id = test_swap(&m->items[2][at], ignis_vmm_array(&desc).id);
            (void)ignis_array_free(array);
            break;
        case 2:
            (void)ignis_vmm_map(range, offset, vmm);
            (void)ignis_vmm_set_access(range, offset, granule, 0, IGNIS_VMM_ACCESS_READ_WRITE);
            break;
        case 3:
            (void)ignis_vmm_unmap(range, offset);
            (void)ignis_vmm_unreserve(range); /* while nothing is mapped in it */
            if (ignis_vmm_range_query(range, &range_info) == IGNIS_ERROR_FREED)
                for (at = 0; at < MIX_ITEMS; at++)
                    if (ignis__atomic_load(&m->items[1][at]) == range.id)
                        (void)test_swap(&m->items[1][at], 0);
            break;
        case 4:
            range.id = test_swap(&m->items[1][at], ignis_vmm_reserve(4 * granule, 0).id);
            for (offset = 0; offset < 4 * granule; offset += granule)
                while (ignis_vmm_range_query(range, &range_info) == IGNIS_OK &&
                       ignis_vmm_unmap(range, offset) != IGNIS_OK && range_info.arrays > 0)
                    ignis__sleep_us(50); /* another thread's array goes */
            (void)ignis_vmm_unreserve(range);
            break;
        case 5:
            array = ignis_vmm_array_map(range, offset, &part);
            if (array.id) {
                CHECK_OK(ignis_array_fill(array, 2.0));
                CHECK_OK(ignis_array_free(array));
            }
            break;
        case 6:
            if (ignis_vmm_export(vmm, &handle) != IGNIS_OK)
                break;
            other = ignis_vmm_import(&handle, granule, 0);
            (void)ignis_vmm_handle_close(&handle);
            CHECK(other.id);
            CHECK_OK(ignis_vmm_free(other));
            break;
        case 7:
            other = ignis_vmm_of_array(array, &offset);
            if (other.id)
                CHECK_OK(ignis_vmm_free(other));
            break;
        default: (void)ignis_vmm_query(vmm, &info); (void)ignis_vmm_get_access(range, offset, 0, &access);
        }
        ignis_status_clear();
    }
    return NULL;
}

TEST(threads_mix_every_call)
{
    uint64_t items[3][MIX_ITEMS];
    pthread_t threads[MIX_THREADS];
    mixer mixers[MIX_THREADS];
    int i;
    VMM_SETUP();
    test_leaks_expected = true; /* ranges that another thread mapped into while they were given back */
    for (i = 0; i < MIX_ITEMS; i++) {
        ignis_vmm_array_desc desc = array_desc(IGNIS_SHAPE(64));
        items[0][i] = make_vmm(granule).id;
        items[1][i] = ignis_vmm_reserve(4 * granule, 0).id;
        items[2][i] = ignis_vmm_array(&desc).id;
    }
    for (i = 0; i < MIX_THREADS; i++) {
        mixers[i].items = items;
        mixers[i].random = (unsigned)i;
        mixers[i].rounds = test_env("IGNIS_SOAK") ? 20000 : 200;
        CHECK_INT(pthread_create(&threads[i], NULL, mix_calls, &mixers[i]), 0);
    }
    for (i = 0; i < MIX_THREADS; i++)
        pthread_join(threads[i], NULL);
    CHECK_OK(ignis_shutdown());
    CHECK_BALANCED();
}

/*  Imports what it is sent, checks it, writes it, and waits to be let go. */
static int importer(void)
{
    ignis_desc desc = test_desc(NULL);
    ignis_vmm_handle handle;
    ignis_array_desc whole = desc_of(IGNIS_SHAPE(4096), IGNIS_I32);
    ignis_vmm vmm;
    ignis_vmm_range range;
    ignis_array array;
    int64_t size;
    if (ignis_setup(&desc) != IGNIS_OK || !receive_handle(PROCESS_SOCKET, &size, &handle))
        return 2;
    vmm = ignis_vmm_import(&handle, size, 0);
    ignis_vmm_handle_close(&handle);
    range = ignis_vmm_reserve(size, 0);
    if (!vmm.id || ignis_vmm_map(range, 0, vmm) != IGNIS_OK ||
        ignis_vmm_set_access(range, 0, size, 0, IGNIS_VMM_ACCESS_READ_WRITE) != IGNIS_OK)
        return 3;
    array = ignis_vmm_array_map(range, 0, &whole);
    CHECK_COUNTING(array, 4096, 1000);
    if (!process_meet(PROCESS_SOCKET)) /* the exporter has freed its own now, or it is dead */
        return 4;
    CHECK_COUNTING(array, 4096, 1000);
    CHECK_OK(ignis_array_fill(array, 7.0));
    CHECK_OK(ignis_synchronize());
    if (!process_meet(PROCESS_SOCKET))
        return 5;
    CHECK_OK(ignis_array_free(array));
    CHECK_OK(ignis_vmm_unmap(range, 0));
    CHECK_OK(ignis_vmm_unreserve(range));
    CHECK_OK(ignis_vmm_free(vmm));
    CHECK_OK(ignis_shutdown());
    return test__state.failures ? 1 : 0;
}

TEST(memory_is_shared_with_another_process)
{
    process child = process_start("importer");
    ignis_vmm_array_desc desc = array_desc(IGNIS_SHAPE(4096));
    ignis_vmm_handle handle;
    ignis_array array;
    ignis_vmm vmm;
    int32_t values[4096];
    int i;
    VMM_SETUP();
    desc.dtype = IGNIS_I32;
    array = ignis_vmm_array(&desc);
    for (i = 0; i < 4096; i++)
        values[i] = 1000 + i;
    CHECK_OK(ignis_array_from_host(array, values, IGNIS_I32, 4096));
    CHECK_OK(ignis_synchronize());
    vmm = ignis_vmm_of_array(array, NULL);
    CHECK_OK(ignis_vmm_export(vmm, &handle));
    CHECK(send_handle((int)child.pid, child.socket, granule, &handle));
    CHECK_OK(ignis_vmm_handle_close(&handle));
    CHECK(process_meet(child.socket));
    CHECK(process_meet(child.socket));
    CHECK_OK(ignis_array_to_host(array, values, IGNIS_I32, 4096));
    for (i = 0; i < 4096 && values[i] == 7; i++)
        ;
    CHECK_INT(i, 4096);
    drop(array);
    CHECK_OK(ignis_vmm_free(vmm));
    CHECK_INT(process_end(&child), 0);
    CHECK_BALANCED();
}

/*  Makes memory, sends it, and is killed. */
static int exporter(void)
{
    ignis_desc desc = test_desc(NULL);
    ignis_vmm_array_desc shared = array_desc(IGNIS_SHAPE(4096));
    ignis_vmm_handle handle;
    ignis_array array;
    int64_t size;
    int32_t values[4096];
    int i;
    if (ignis_setup(&desc) != IGNIS_OK)
        return 2;
    size = ignis_vmm_granularity(0, false);
    shared.dtype = IGNIS_I32;
    array = ignis_vmm_array(&shared);
    for (i = 0; i < 4096; i++)
        values[i] = 1000 + i;
    if (ignis_array_from_host(array, values, IGNIS_I32, 4096) != IGNIS_OK || ignis_synchronize() != IGNIS_OK ||
        ignis_vmm_export(ignis_vmm_of_array(array, NULL), &handle) != IGNIS_OK ||
        !send_handle(0, PROCESS_SOCKET, size, &handle))
        return 3;
    for (;;)
        pause();
}

TEST(the_importer_survives_the_exporter)
{
    process child = process_start("exporter");
    ignis_vmm_handle handle;
    ignis_array_desc whole = desc_of(IGNIS_SHAPE(4096), IGNIS_I32);
    ignis_vmm vmm;
    ignis_vmm_range range;
    ignis_array array;
    int64_t size = 0;
    VMM_SETUP();
    CHECK(receive_handle(child.socket, &size, &handle));
    vmm = ignis_vmm_import(&handle, size, 0);
    CHECK_OK(ignis_vmm_handle_close(&handle));
    REQUIRE(vmm.id);
    process_kill(&child);
    range = ignis_vmm_reserve(size, 0);
    CHECK_OK(ignis_vmm_map(range, 0, vmm));
    CHECK_OK(ignis_vmm_set_access(range, 0, size, 0, IGNIS_VMM_ACCESS_READ_WRITE));
    array = ignis_vmm_array_map(range, 0, &whole);
    CHECK_COUNTING(array, 4096, 1000);
    drop(array);
    CHECK_OK(ignis_vmm_unmap(range, 0));
    CHECK_OK(ignis_vmm_unreserve(range));
    CHECK_OK(ignis_vmm_free(vmm));
    CHECK_BALANCED();
}

TEST(cycles_leave_nothing)
{
    ignis_vmm_array_desc desc = array_desc(IGNIS_SHAPE(64));
    int i, fds;
    VMM_SETUP();
    fds = process_descriptors();
    for (i = 0; i < (test_env("IGNIS_SOAK") ? 10000 : 1000); i++) {
        ignis_array array = ignis_vmm_array(&desc);
        ignis_vmm vmm = ignis_vmm_of_array(array, NULL), again;
        ignis_vmm_handle handle;
        CHECK_OK(ignis_vmm_export(vmm, &handle));
        again = ignis_vmm_import(&handle, granule, 0);
        CHECK_OK(ignis_vmm_handle_close(&handle));
        CHECK_OK(ignis_vmm_free(again));
        CHECK_OK(ignis_vmm_free(vmm));
        CHECK_OK(ignis_array_free(array));
        if (test__state.failures)
            break;
    }
    CHECK_INT(process_descriptors(), fds);
    CHECK_BALANCED();
}

int main(int argc, char **argv)
{
    const char *role = process_role(argc, argv);
    if (role) {
        return strcmp(role, "importer") == 0 ? importer() : exporter();
    }
    return test_run(argc, argv);
}
