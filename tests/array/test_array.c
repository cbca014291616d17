// SPDX-License-Identifier: MIT
/*  test_array.c - creation, attributes, transfers, views, pins, references and freeing of arrays */
#include "array.h"

#include <time.h>

static const struct {
    ignis_dtype dtype;
    const char *name;
    int size;
} dtypes[] = {
#define DTYPE_ROW(NAME, name, size) {IGNIS_##NAME, #name, size},
    IGNIS_DTYPES(DTYPE_ROW)};
enum { DTYPES = COUNT_OF(dtypes) };

/* creation ------------------------------------------------------------------------------------------------------ */

TEST(create_defaults)
{
    ignis_array array;
    ignis_array_info info;
    SETUP(NULL);
    array = make(IGNIS_SHAPE(2, 3), IGNIS_DTYPE_DEFAULT);
    REQUIRE(array.id != 0);
    info = info_of(array);
    CHECK_SHAPE(array, IGNIS_SHAPE(2, 3));
    CHECK_INT(info.dtype, IGNIS_F32);
    CHECK_INT(info.device, 0);
    CHECK_INT(info.owner, IGNIS_OWNER_IGNIS);
    CHECK_INT(info.ref_count, 0);
    CHECK(info.stream == NULL);
    CHECK(info.ptr == NULL);
    CHECK(info.pinned_host_ptr == NULL);
    CHECK(info.owns_memory);
    CHECK(!info.on_device);
    CHECK_INT(info.parent, 0);
    CHECK_TEXT(info.tag, "");
    CHECK(info.id > 0);
    CHECK(ignis_array_is_live(array));
    CHECK_INT(ignis_array_numel(array), 6);
    CHECK_INT(ignis_array_size_bytes(array), 24);
    drop(array);
    CHECK(!ignis_array_is_live(array));
}

TEST(create_every_dtype_and_owner)
{
    int i, owner;
    SETUP(NULL);
    for (i = 0; i < DTYPES; i++)
        for (owner = IGNIS_OWNER_IGNIS; owner < IGNIS_OWNER_COUNT; owner++) {
            ignis_array_desc desc = desc_of(IGNIS_SHAPE(3, 5), dtypes[i].dtype);
            ignis_array array;
            desc.owner = (ignis_owner)owner;
            desc.tag = dtypes[i].name;
            array = ignis_array_create(&desc);
            CHECK_INT(ignis_array_size_bytes(array), 15 * dtypes[i].size);
            CHECK_INT(info_of(array).dtype, dtypes[i].dtype);
            CHECK_INT(info_of(array).owner, owner);
            CHECK_TEXT(info_of(array).tag, dtypes[i].name);
            CHECK_OK(ignis_array_free_as(array, (ignis_owner)owner));
        }
}

TEST(create_keeps_31_bytes_of_the_tag)
{
    ignis_array_desc desc = desc_of(IGNIS_SHAPE(1), IGNIS_U8);
    ignis_array array;
    char tag[] = "0123456789012345678901234567890123456789";
    SETUP(NULL);
    desc.tag = tag;
    array = ignis_array_create(&desc);
    memset(tag, 'x', sizeof tag - 1);
    CHECK_TEXT(info_of(array).tag, "0123456789012345678901234567890");
    drop(array);
}

TEST(create_refuses_bad_descs)
{
    static const struct {
        const char *what;
        ignis_shape shape;
        int dtype, device, owner;
        ignis_status status;
        ignis_diagnostic diagnostic;
    } table[] = {
        {"no dims", {0, {0}}, 0, 0, 0, IGNIS_ERROR_SHAPE, IGNIS_DIAG_SHAPE_RANK},
        {"9 dims", {9, {1, 1, 1, 1, 1, 1, 1, 1}}, 0, 0, 0, IGNIS_ERROR_SHAPE, IGNIS_DIAG_SHAPE_RANK},
        {"-1 dims", {-1, {1}}, 0, 0, 0, IGNIS_ERROR_SHAPE, IGNIS_DIAG_SHAPE_RANK},
        {"negative dim", {2, {3, -1}}, 0, 0, 0, IGNIS_ERROR_SHAPE, IGNIS_DIAG_SHAPE_DIM},
        {"most negative dim", {1, {INT64_MIN}}, 0, 0, 0, IGNIS_ERROR_SHAPE, IGNIS_DIAG_SHAPE_DIM},
        {"numel 2^63",
         {2, {INT64_C(1) << 32, INT64_C(1) << 31}},
         IGNIS_U8,
         0,
         0,
         IGNIS_ERROR_SHAPE,
         IGNIS_DIAG_SHAPE_OVERFLOW},
        {"numel 2^64",
         {2, {INT64_C(1) << 32, INT64_C(1) << 32}},
         IGNIS_U8,
         0,
         0,
         IGNIS_ERROR_SHAPE,
         IGNIS_DIAG_SHAPE_OVERFLOW},
        {"numel 2^496",
         {8,
          {INT64_C(1) << 62, INT64_C(1) << 62, INT64_C(1) << 62, INT64_C(1) << 62, INT64_C(1) << 62, INT64_C(1) << 62,
           INT64_C(1) << 62, INT64_C(1) << 62}},
         IGNIS_U8,
         0,
         0,
         IGNIS_ERROR_SHAPE,
         IGNIS_DIAG_SHAPE_OVERFLOW},
        {"2^61 f32: 2^63 bytes",
         {1, {INT64_C(1) << 61}},
         IGNIS_F32,
         0,
         0,
         IGNIS_ERROR_SHAPE,
         IGNIS_DIAG_SHAPE_OVERFLOW},
        {"2^60 f64: 2^63 bytes",
         {1, {INT64_C(1) << 60}},
         IGNIS_F64,
         0,
         0,
         IGNIS_ERROR_SHAPE,
         IGNIS_DIAG_SHAPE_OVERFLOW},
        {"no dtype", {1, {4}}, IGNIS_DTYPE_COUNT, 0, 0, IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_ENUM},
        {"dtype -1", {1, {4}}, -1, 0, 0, IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_ENUM},
        {"owner 4", {1, {4}}, 0, 0, 4, IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_ENUM},
        {"device 64", {1, {4}}, 0, 64, 0, IGNIS_ERROR_DEVICE, IGNIS_DIAG_DEVICE_RANGE},
        {"device -2", {1, {4}}, 0, -2, 0, IGNIS_ERROR_DEVICE, IGNIS_DIAG_DEVICE_RANGE},
    };
    size_t i;
    int failures;
    SETUP(NULL);
    for (i = 0; i < COUNT_OF(table); i++) {
        ignis_array_desc desc = desc_of(table[i].shape, (ignis_dtype)table[i].dtype);
        failures = test__state.failures;
        desc.device = table[i].device;
        desc.owner = (ignis_owner)table[i].owner;
        CHECK_REFUSED(0, ignis_array_create(&desc).id, table[i].status, table[i].diagnostic);
        if (test__state.failures != failures)
            printf("    in the case: %s\n", table[i].what);
    }
    CHECK_FAILS(ignis_array_create(NULL), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NULL_ARGUMENT);
}

TEST(create_message_shows_the_shape)
{
    ignis_array_desc desc = desc_of(IGNIS_SHAPE(3, -7), IGNIS_F32);
    SETUP(NULL);
    CHECK_FAILS(ignis_array_create(&desc), IGNIS_ERROR_SHAPE, IGNIS_DIAG_SHAPE_DIM);
    CHECK_MESSAGE_HAS("[3, -7]");
}

TEST(ids_count_up_and_are_never_used_twice)
{
    uint64_t last = 0;
    int i;
    SETUP(NULL);
    for (i = 0; i < 100; i++) {
        ignis_array array = make(IGNIS_SHAPE(1), IGNIS_U8);
        CHECK(info_of(array).id > last);
        last = info_of(array).id;
        drop(array);
    }
}

TEST(created_at_is_the_wall_clock)
{
    ignis_array first, second;
    int64_t before, after;
    SETUP(NULL);
    before = (int64_t)time(NULL);
    first = make(IGNIS_SHAPE(1), IGNIS_U8);
    second = make(IGNIS_SHAPE(1), IGNIS_U8);
    after = (int64_t)time(NULL);
    CHECK(info_of(first).created_at_ns / 1000000000 >= before - 1);
    CHECK(info_of(second).created_at_ns / 1000000000 <= after + 1);
    CHECK(info_of(first).created_at_ns <= info_of(second).created_at_ns);
    drop(first);
    drop(second);
}

/* memory -------------------------------------------------------------------------------------------------------- */

TEST(memory_is_taken_at_the_first_use)
{
    ignis_array array;
    SETUP(NULL);
    array = make(IGNIS_SHAPE(1000), IGNIS_F32);
    CHECK_INT(memory().live_blocks, 0);
    CHECK_OK(ignis_array_to_device(array));
    CHECK_OK(ignis_array_to_device(array));
    CHECK_INT(memory().live_blocks, 1);
    CHECK(memory().live_bytes >= 4000);
    CHECK(info_of(array).on_device);
    CHECK(info_of(array).ptr != NULL);
    CHECK(info_of(array).stream != NULL);
    CHECK(ignis_array_device_ptr(array) == info_of(array).ptr);
    drop(array);
    CHECK_INT(memory().live_blocks, 0);
    CHECK_INT(memory().live_bytes, 0);
}

TEST(wrapped_memory_is_used_and_never_freed)
{
    ignis_array base, wrapped, view;
    ignis_array_desc desc = desc_of(IGNIS_SHAPE(2, 4), IGNIS_I32);
    SETUP(NULL);
    base = make_counting(IGNIS_SHAPE(8), 100);
    desc.ptr = ignis_array_device_ptr(base);
    wrapped = ignis_array_create(&desc);
    CHECK(!info_of(wrapped).owns_memory);
    CHECK(info_of(wrapped).on_device);
    CHECK(info_of(wrapped).ptr == desc.ptr);
    CHECK_INT(info_of(wrapped).parent, 0);
    CHECK_COUNTING(wrapped, 8, 100); /* what the caller wrote counts as written */
    view = ignis_array_slice(wrapped, 0, 1, 1);
    CHECK_COUNTING(view, 4, 104);
    drop(wrapped);
    CHECK_COUNTING(view, 4, 104);
    drop(view);
    CHECK_INT(memory().live_blocks, 1);
    CHECK_COUNTING(base, 8, 100);
    drop(base);
}

TEST(only_device_memory_is_wrapped)
{
    ignis_array_desc desc = desc_of(IGNIS_SHAPE(4), IGNIS_F32);
    static float on_the_host[4];
    ignis_array base;
    SETUP(NULL);
    desc.ptr = on_the_host;
    CHECK_REFUSED(0, ignis_array_create(&desc).id, IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    CHECK_MESSAGE_HAS("not device memory");
    if (ignis_device_count() > 1) {
        base = make(IGNIS_SHAPE(4), IGNIS_F32);
        desc.ptr = ignis_array_device_ptr(base);
        desc.device = 1;
        CHECK_REFUSED(0, ignis_array_create(&desc).id, IGNIS_ERROR_DEVICE, IGNIS_DIAG_DEVICE_DIFFERS);
        drop(base);
    }
}

TEST(wrapped_memory_is_as_large_as_the_array)
{
    ignis_array_desc desc = desc_of(IGNIS_SHAPE(0), IGNIS_U8);
    ignis_array base, part;
    ignis__address start;
    size_t size;
    char *ptr;
    SETUP(NULL);
    base = make_counting(IGNIS_SHAPE(1024), 0);
    ptr = (char *)ignis_array_device_ptr(base);
    REQUIRE(ignis__cuda.cuMemGetAddressRange_v2(&start, &size, (ignis__address)(uintptr_t)ptr) == 0);
    desc.ptr = ptr + 100; /* a part of an allocation */
    desc.shape = IGNIS_SHAPE((int64_t)(start + size - (uint64_t)(uintptr_t)desc.ptr));
    part = ignis_array_create(&desc); /* to its very end */
    CHECK(part.id != 0);
    drop(part);
    desc.shape.dim[0]++;
    CHECK_REFUSED(0, ignis_array_create(&desc).id, IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    CHECK_MESSAGE_HAS("left of the");
    drop(base);
}

TEST(an_array_keeps_the_stream_of_its_desc)
{
    ignis_array_desc desc = desc_of(IGNIS_SHAPE(4), IGNIS_F32);
    ignis_array array;
    SETUP(NULL);
    desc.stream = ignis_stream_current();
    array = ignis_array_create(&desc);
    CHECK(info_of(array).stream == desc.stream);
    CHECK_OK(ignis_array_to_device(array));
    CHECK(info_of(array).stream == desc.stream);
    drop(array);
}

TEST(large_shapes_need_no_memory)
{
    const int64_t dim = INT64_C(1) << 40;
    ignis_array array, tail;
    SETUP(NULL);
    array = make(IGNIS_SHAPE(dim), IGNIS_F64);
    CHECK_INT(ignis_array_numel(array), dim);
    CHECK_INT(ignis_array_size_bytes(array), 8 * dim);
    tail = ignis_array_slice(array, 0, dim - 5, 5);
    CHECK_INT(ignis_array_numel(tail), 5);
    CHECK(!info_of(array).on_device);
    CHECK_REFUSED(NULL, ignis_array_device_ptr(array), IGNIS_ERROR_MEMORY, IGNIS_DIAG_DEVICE_MEMORY);
    drop(array);
    drop(tail);
    array = make(IGNIS_SHAPE(INT64_MAX), IGNIS_U8);
    CHECK_INT(ignis_array_size_bytes(array), INT64_MAX);
    drop(array);
}

TEST(more_than_4_gib_are_filled_and_sliced)
{
    const int64_t n = (INT64_C(1) << 32) + 3;
    const unsigned char written[3] = {1, 2, 3};
    unsigned char read[5] = {0};
    ignis_array array, end, tail;
    SETUP(NULL);
    if (test_is_simulator())
        SKIP("4 GiB are too much for the simulator");
    array = make(IGNIS_SHAPE(n), IGNIS_U8);
    CHECK_OK(ignis_array_fill(array, 7));
    end = ignis_array_slice(array, 0, n - 3, 3);
    tail = ignis_array_slice(array, 0, n - 5, 5);
    CHECK_OK(ignis_array_to_host_raw(end, read, 3));
    CHECK(read[0] == 7 && read[1] == 7 && read[2] == 7);
    CHECK_OK(ignis_array_from_host_raw(end, written, 3));
    CHECK_OK(ignis_array_to_host_raw(tail, read, 5));
    CHECK(memcmp(read, "\7\7\1\2\3", 5) == 0);
    drop(array);
    drop(end);
    drop(tail);
}

/* transfers ----------------------------------------------------------------------------------------------------- */

TEST(raw_transfers_of_every_dtype)
{
    unsigned char in[8 * 33], out[8 * 33];
    int i, k;
    SETUP(NULL);
    for (i = 0; i < 8 * 33; i++)
        in[i] = (unsigned char)(i * 7 + 1);
    for (k = 0; k < DTYPES; k++) {
        ignis_array array = make(IGNIS_SHAPE(11, 3), dtypes[k].dtype);
        memset(out, 0, sizeof out);
        CHECK_OK(ignis_array_from_host_raw(array, in, 33 * dtypes[k].size));
        CHECK_OK(ignis_array_to_host_raw(array, out, 33 * dtypes[k].size));
        CHECK(memcmp(in, out, (size_t)(33 * dtypes[k].size)) == 0);
        drop(array);
    }
}

TEST(transfers_refuse_bad_arguments)
{
    float data[6] = {1, 2, 3, 4, 5, 6};
    ignis_array array;
    SETUP(NULL);
    array = make(IGNIS_SHAPE(2, 3), IGNIS_F32);
    CHECK_STATUS(ignis_array_from_host(array, NULL, IGNIS_F32, 6), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NULL_ARGUMENT);
    CHECK_STATUS(ignis_array_from_host(array, data, IGNIS_F32, 5), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_COUNT_MISMATCH);
    CHECK_MESSAGE_HAS("5");
    CHECK_MESSAGE_HAS("6");
    CHECK_STATUS(ignis_array_from_host(array, data, IGNIS_F32, 7), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_COUNT_MISMATCH);
    CHECK_STATUS(ignis_array_from_host(array, data, IGNIS_DTYPE_COUNT, 6), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_ENUM);
    CHECK_STATUS(ignis_array_from_host_raw(array, NULL, 24), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NULL_ARGUMENT);
    CHECK_STATUS(ignis_array_from_host_raw(array, data, 23), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_COUNT_MISMATCH);
    CHECK_STATUS(ignis_array_from_host_raw(array, data, -24), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_COUNT_MISMATCH);
    CHECK_OK(ignis_array_from_host(array, data, IGNIS_F32, 6));
    CHECK_STATUS(ignis_array_to_host(array, NULL, IGNIS_F32, 6), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NULL_ARGUMENT);
    CHECK_STATUS(ignis_array_to_host(array, data, IGNIS_F32, 5), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_COUNT_MISMATCH);
    CHECK_STATUS(ignis_array_to_host(array, data, (ignis_dtype)-1, 6), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_ENUM);
    CHECK_STATUS(ignis_array_to_host_raw(array, NULL, 24), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NULL_ARGUMENT);
    CHECK_STATUS(ignis_array_to_host_raw(array, data, 25), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_COUNT_MISMATCH);
    CHECK_STATUS(ignis_array_query(array, NULL), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NULL_ARGUMENT);
    drop(array);
}

TEST(reading_what_was_never_written_fails)
{
    float data[4] = {0};
    ignis_array array, other, view, copy;
    SETUP(NULL);
    array = make(IGNIS_SHAPE(4), IGNIS_F32);
    other = make(IGNIS_SHAPE(4), IGNIS_F32);
    CHECK_OK(ignis_array_zero(other));
    view = ignis_array_reshape(array, IGNIS_SHAPE(2, 2));
    CHECK_STATUS(ignis_array_to_host(array, data, IGNIS_F32, 4), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_ARRAY_UNWRITTEN);
    copy = make(IGNIS_SHAPE(4), IGNIS_F32);
    CHECK_OK(ignis_array_mark_written(copy)); /* which has no memory to hold it */
    CHECK_STATUS(ignis_array_to_host(copy, data, IGNIS_F32, 4), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_ARRAY_UNWRITTEN);
    drop(copy);
    CHECK_STATUS(ignis_array_to_host(view, data, IGNIS_F64, 4), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_ARRAY_UNWRITTEN);
    CHECK_STATUS(ignis_array_to_host_raw(array, data, 16), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_ARRAY_UNWRITTEN);
    CHECK_REFUSED(0, ignis_array_clone(array).id, IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_ARRAY_UNWRITTEN);
    CHECK_REFUSED(0, ignis_array_cast(array, IGNIS_F64).id, IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_ARRAY_UNWRITTEN);
    CHECK_STATUS(ignis_array_write_rows(other, array, 0), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_ARRAY_UNWRITTEN);
    CHECK_STATUS(ignis_array_copy(other, array), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_ARRAY_UNWRITTEN);
    CHECK_STATUS(ignis_array_add(other, other, array), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_ARRAY_UNWRITTEN);
    CHECK_STATUS(ignis_array_mul(other, array, other), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_ARRAY_UNWRITTEN);
    CHECK_STATUS(ignis_array_scale(other, array, 2), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_ARRAY_UNWRITTEN);
    CHECK_OK(ignis_array_to_device(array)); /* memory alone holds nothing yet */
    CHECK_STATUS(ignis_array_to_host(array, data, IGNIS_F32, 4), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_ARRAY_UNWRITTEN);
    CHECK_REFUSED(0, ignis_array_clone(view).id, IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_ARRAY_UNWRITTEN);
    CHECK_STATUS(ignis_array_write_rows(other, array, 0), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_ARRAY_UNWRITTEN);
    CHECK_STATUS(ignis_array_add(other, array, other), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_ARRAY_UNWRITTEN);
    CHECK_OK(ignis_array_copy(array, other));
    CHECK_OK(ignis_array_to_host(view, data, IGNIS_F32, 4));
    drop(array);
    drop(other);
    drop(view);
}

/*  What the caller's code may have written can be read: Ignis does not know better. */
TEST(what_others_may_have_written_is_read)
{
    static const char source[] = "extern \"C\" __global__ void put(float *out) { out[threadIdx.x] = 3; }";
    ignis_kernel kernel;
    ignis_launch launch = test_launch(1, 4);
    ignis_arg arg;
    float data[4] = {0};
    int way;
    SETUP(NULL);
    kernel = test_compile(source, "put", NULL);
    for (way = 0; way < 5; way++) {
        ignis_array array = make(IGNIS_SHAPE(4), IGNIS_F32), row;
        arg = ignis_arg_array(array);
        switch (way) {
        case 0: CHECK_OK(ignis_kernel_launch(kernel, &launch, &arg, 1)); break;
        case 1: CHECK(ignis_array_device_ptr(array) != NULL); break;
        case 2:
            CHECK_OK(ignis_array_to_device(array));
            CHECK(info_of(array).ptr != NULL);
            break;
        case 3:
            CHECK_OK(ignis_array_to_device(array));
            CHECK_OK(ignis_array_mark_written(array));
            break;
        default: /* a part of it is enough */
            row = test_array(1, 1);
            CHECK_OK(ignis_array_write_rows(array, row, 3));
            drop(row);
        }
        CHECK_OK(ignis_array_to_host(array, data, IGNIS_F32, 4));
        CHECK(way > 0 || data[3] == 3);
        drop(array);
    }
    CHECK_OK(ignis_kernel_free(kernel));
}

TEST(versions_count_what_is_written)
{
    float data[4] = {1, 2, 3, 4};
    ignis_array array, view, slice, other, row, copy;
    uint64_t before = 0;
    SETUP(NULL);
    array = make(IGNIS_SHAPE(4), IGNIS_F32);
    view = ignis_array_reshape(array, IGNIS_SHAPE(2, 2));
    slice = ignis_array_slice(view, 0, 1, 1);
    other = test_array(4, 1);
    row = test_array(1, 1);
    CHECK_INT(version_of(array), 0);
#define CHECK_WRITES(call, count)                       \
    do {                                                \
        CHECK_OK(call);                                 \
        CHECK_INT(version_of(array) - before, (count)); \
        before = version_of(array);                     \
    } while (0)
    CHECK_WRITES(ignis_array_to_device(array), 0);
    CHECK_WRITES(ignis_array_from_host(array, data, IGNIS_F32, 4), 1);
    CHECK_WRITES(ignis_array_from_host(array, data, IGNIS_I32, 4), 1);
    CHECK_WRITES(ignis_array_from_host_raw(array, data, 16), 1);
    CHECK_WRITES(ignis_array_zero(slice), 1); /* through a view of a view */
    CHECK_WRITES(ignis_array_fill(view, 2), 1);
    CHECK_WRITES(ignis_array_copy(array, other), 1);
    CHECK_WRITES(ignis_array_write_rows(array, row, 2), 1);
    CHECK_WRITES(ignis_array_add(array, array, other), 1);
    CHECK_WRITES(ignis_array_mul(array, other, other), 1);
    CHECK_WRITES(ignis_array_scale(array, array, 2), 1);
    CHECK_WRITES(ignis_array_mark_written(slice), 1);
    CHECK_WRITES(ignis_array_to_host(array, data, IGNIS_F32, 4), 0);
    CHECK_WRITES(ignis_array_add(other, array, array), 0);
    CHECK_WRITES(ignis_array_copy(other, view), 0);
    CHECK_WRITES(ignis_array_device_ptr(array) == NULL, 0);
#undef CHECK_WRITES
    CHECK_INT(version_of(slice), version_of(array));
    copy = ignis_array_clone(array); /* which has memory of its own */
    CHECK_INT(version_of(copy), 1);
    CHECK_STATUS(ignis_array_from_host(array, data, IGNIS_F32, 3), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_COUNT_MISMATCH);
    CHECK_INT(version_of(array), before); /* nothing was written */
    drop(copy);
    copy = make(IGNIS_SHAPE(2, 2), IGNIS_F32);
    drop(slice);
    slice = ignis_array_slice(copy, 0, 1, 0); /* of no elements: what goes there is no write */
    CHECK_OK(ignis_array_zero(slice));
    CHECK_OK(ignis_array_fill(slice, 1));
    CHECK_OK(ignis_array_copy(slice, slice));
    CHECK_OK(ignis_array_add(slice, slice, slice));
    CHECK_OK(ignis_array_from_host(slice, NULL, IGNIS_F32, 0));
    CHECK_OK(ignis_array_mark_written(slice));
    CHECK_OK(ignis_array_write_rows(copy, slice, 0));
    CHECK_STATUS(ignis_array_to_host(copy, data, IGNIS_F32, 4), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_ARRAY_UNWRITTEN);
    CHECK_INT(version_of(copy), 0);
    drop(array);
    drop(view);
    drop(slice);
    drop(other);
    drop(row);
    drop(copy);
}

TEST(host_data_may_be_reused_at_once)
{
    static const int64_t sizes[] = {4, 1000, 300000};
    static int32_t data[300000], back[300000];
    static double wide[300000];
    int64_t i, wrong;
    int k;
    SETUP(NULL);
    for (k = 0; k < 3; k++) {
        ignis_array raw = make(IGNIS_SHAPE(sizes[k]), IGNIS_I32), converted = make(IGNIS_SHAPE(sizes[k]), IGNIS_I32);
        for (i = 0; i < sizes[k]; i++)
            data[i] = (int32_t)i, wide[i] = (double)i;
        CHECK_OK(ignis_array_from_host_raw(raw, data, sizes[k] * 4));
        CHECK_OK(ignis_array_from_host(converted, wide, IGNIS_F64, sizes[k]));
        memset(data, 0x55, sizeof data);
        memset(wide, 0x55, sizeof wide);
        CHECK_OK(ignis_array_to_host(raw, back, IGNIS_I32, sizes[k]));
        for (wrong = i = 0; i < sizes[k]; i++)
            wrong += back[i] != (int32_t)i;
        CHECK_INT(wrong, 0);
        CHECK_OK(ignis_array_to_host(converted, back, IGNIS_I32, sizes[k]));
        for (wrong = i = 0; i < sizes[k]; i++)
            wrong += back[i] != (int32_t)i;
        CHECK_INT(wrong, 0);
        drop(raw);
        drop(converted);
    }
}

TEST(zero_sets_every_byte)
{
    static const unsigned char zeros[8 * 13];
    unsigned char bytes[8 * 13];
    int k;
    SETUP(NULL);
    for (k = 0; k < DTYPES; k++) {
        ignis_array array = make(IGNIS_SHAPE(13), dtypes[k].dtype), middle;
        memset(bytes, 0xFF, sizeof bytes);
        CHECK_OK(ignis_array_from_host_raw(array, bytes, 13 * dtypes[k].size));
        middle = ignis_array_slice(array, 0, 1, 11);
        CHECK_OK(ignis_array_zero(middle));
        CHECK_OK(ignis_array_to_host_raw(array, bytes, 13 * dtypes[k].size));
        CHECK(bytes[0] == 0xFF && bytes[13 * dtypes[k].size - 1] == 0xFF);
        CHECK(memcmp(bytes + dtypes[k].size, zeros, (size_t)(11 * dtypes[k].size)) == 0);
        drop(array);
        drop(middle);
        array = make(IGNIS_SHAPE(13), dtypes[k].dtype); /* its first use */
        CHECK_OK(ignis_array_zero(array));
        CHECK_OK(ignis_array_to_host_raw(array, bytes, 13 * dtypes[k].size));
        CHECK(memcmp(bytes, zeros, (size_t)(13 * dtypes[k].size)) == 0);
        drop(array);
    }
}

TEST(clone_shares_nothing)
{
    ignis_array_desc desc = desc_of(IGNIS_SHAPE(2, 3), IGNIS_F32);
    ignis_array array, copy;
    float data[6] = {1, 2, 3, 4, 5, 6}, back[6];
    SETUP(NULL);
    desc.owner = IGNIS_OWNER_WNAIS;
    desc.tag = "original";
    array = ignis_array_create(&desc);
    CHECK_OK(ignis_array_from_host(array, data, IGNIS_F32, 6));
    copy = ignis_array_clone(array);
    CHECK_SHAPE(copy, IGNIS_SHAPE(2, 3));
    CHECK_INT(info_of(copy).owner, IGNIS_OWNER_WNAIS);
    CHECK_INT(info_of(copy).dtype, IGNIS_F32);
    CHECK_INT(info_of(copy).parent, 0);
    CHECK_INT(info_of(copy).ref_count, 0);
    CHECK(info_of(copy).owns_memory);
    CHECK_TEXT(info_of(copy).tag, "original");
    CHECK(info_of(copy).id > info_of(array).id);
    CHECK(info_of(copy).ptr != info_of(array).ptr);
    CHECK_OK(ignis_array_zero(array));
    CHECK_OK(ignis_array_free_as(array, IGNIS_OWNER_WNAIS));
    CHECK_OK(ignis_array_to_host(copy, back, IGNIS_F32, 6));
    CHECK(memcmp(data, back, sizeof data) == 0);
    CHECK_OK(ignis_array_free_as(copy, IGNIS_OWNER_WNAIS));
}

TEST(clone_of_a_slice_has_the_slice_only)
{
    ignis_array array, slice, copy;
    SETUP(NULL);
    array = make_counting(IGNIS_SHAPE(10), 0);
    slice = ignis_array_slice(array, 0, 3, 4);
    copy = ignis_array_clone(slice);
    CHECK_OK(ignis_array_zero(array));
    CHECK_COUNTING(copy, 4, 3);
    drop(array);
    drop(slice);
    drop(copy);
}

/* views --------------------------------------------------------------------------------------------------------- */

TEST(slices_along_the_first_dimension)
{
    ignis_array array, slice, deeper, whole, empty;
    SETUP(NULL);
    array = make_counting(IGNIS_SHAPE(6, 4), 0);
    slice = ignis_array_slice(array, 0, 2, 3);
    CHECK_SHAPE(slice, IGNIS_SHAPE(3, 4));
    CHECK_COUNTING(slice, 12, 8);
    CHECK(!info_of(slice).owns_memory);
    CHECK_INT(info_of(slice).parent, info_of(array).id);
    CHECK((char *)info_of(slice).ptr == (char *)info_of(array).ptr + 32);
    deeper = ignis_array_slice(slice, 0, 1, 1);
    CHECK_COUNTING(deeper, 4, 12);
    CHECK_INT(info_of(deeper).parent, info_of(slice).id);
    whole = ignis_array_slice(array, 0, 0, 6);
    CHECK_COUNTING(whole, 24, 0);
    empty = ignis_array_slice(array, 0, 6, 0);
    CHECK_COUNTING(empty, 0, 0);
    CHECK(ignis_array_device_ptr(empty) == NULL);
    CHECK_OK(ignis_array_zero(deeper));
    drop(array);
    drop(slice);
    drop(deeper);
    drop(whole);
    drop(empty);
}

TEST(slices_along_a_later_dimension)
{
    ignis_array array, slice;
    SETUP(NULL);
    array = make_counting(IGNIS_SHAPE(1, 1, 5, 2), 0);
    slice = ignis_array_slice(array, 2, 1, 3);
    CHECK_SHAPE(slice, IGNIS_SHAPE(1, 1, 3, 2));
    CHECK_COUNTING(slice, 6, 2);
    drop(slice);
    slice = ignis_array_slice(array, 1, 0, 1);
    CHECK_COUNTING(slice, 10, 0);
    drop(slice);
    CHECK_REFUSED(0, ignis_array_slice(array, 3, 0, 1).id, IGNIS_ERROR_SHAPE, IGNIS_DIAG_SLICE_STRIDED);
    CHECK_MESSAGE_HAS("[1, 1, 5, 2]");
    CHECK_MESSAGE_HAS("strided");
    drop(array);
    array = make(IGNIS_SHAPE(2, 1), IGNIS_I32); /* two rows of one element: strided all the same */
    CHECK_REFUSED(0, ignis_array_slice(array, 1, 0, 1).id, IGNIS_ERROR_SHAPE, IGNIS_DIAG_SLICE_STRIDED);
    drop(array);
}

TEST(slices_outside_are_refused)
{
    static const struct {
        int dim;
        int64_t start, len;
    } table[] = {
        {-1, 0, 1}, {2, 0, 1},  {0, -1, 2},        {0, 0, 7},         {0, 6, 1},
        {0, 7, 0},  {0, 2, -1}, {0, INT64_MAX, 1}, {0, 1, INT64_MAX}, {0, INT64_MIN, INT64_MIN},
    };
    ignis_array array;
    size_t i;
    SETUP(NULL);
    array = make(IGNIS_SHAPE(6, 4), IGNIS_F32);
    for (i = 0; i < COUNT_OF(table); i++)
        CHECK_REFUSED(0, ignis_array_slice(array, table[i].dim, table[i].start, table[i].len).id, IGNIS_ERROR_SHAPE,
                      IGNIS_DIAG_SLICE_RANGE);
    drop(array);
}

TEST(views_made_before_allocation_share_the_memory)
{
    static const int32_t ones[2] = {1, 2};
    int32_t back[6];
    ignis_array array, first, second, square;
    SETUP(NULL);
    array = make(IGNIS_SHAPE(6), IGNIS_I32);
    first = ignis_array_slice(array, 0, 1, 2);
    second = ignis_array_slice(array, 0, 2, 2);
    square = ignis_array_reshape(array, IGNIS_SHAPE(3, 2));
    CHECK(!info_of(first).on_device);
    CHECK(info_of(first).ptr == NULL);
    CHECK_OK(ignis_array_zero(array));
    CHECK_OK(ignis_array_from_host(first, ones, IGNIS_I32, 2));
    CHECK_OK(ignis_array_from_host(second, ones, IGNIS_I32, 2));
    CHECK_OK(ignis_array_to_host(square, back, IGNIS_I32, 6));
    CHECK(back[0] == 0 && back[1] == 1 && back[2] == 1 && back[3] == 2 && back[4] == 0 && back[5] == 0);
    CHECK((char *)info_of(first).ptr == (char *)info_of(array).ptr + 4);
    drop(array);
    drop(first);
    drop(second);
    drop(square);
}

TEST(a_view_may_be_the_first_to_allocate)
{
    static const int32_t one = 41;
    ignis_array array, view;
    SETUP(NULL);
    array = make(IGNIS_SHAPE(6), IGNIS_I32);
    view = ignis_array_slice(array, 0, 5, 1);
    drop(array);
    CHECK_OK(ignis_array_from_host(view, &one, IGNIS_I32, 1));
    CHECK_COUNTING(view, 1, 41);
    drop(view);
}

TEST(views_keep_the_memory_alive)
{
    ignis_array array, slice, shaped;
    uint64_t parent;
    SETUP(NULL);
    array = make_counting(IGNIS_SHAPE(10), 0);
    parent = info_of(array).id;
    slice = ignis_array_slice(array, 0, 4, 6);
    shaped = ignis_array_reshape(slice, IGNIS_SHAPE(2, 3));
    drop(array);
    CHECK(!ignis_array_is_live(array));
    CHECK(ignis_array_is_live(slice));
    CHECK_INT(info_of(slice).parent, parent);
    CHECK_COUNTING(slice, 6, 4);
    drop(slice);
    CHECK_COUNTING(shaped, 6, 4);
    CHECK_INT(memory().live_blocks, 1);
    drop(shaped);
    CHECK_INT(memory().live_blocks, 0);
}

TEST(views_take_owner_and_tag)
{
    ignis_array_desc desc = desc_of(IGNIS_SHAPE(4, 2), IGNIS_BF16);
    ignis_array array, slice, shaped;
    SETUP(NULL);
    desc.owner = IGNIS_OWNER_NVCCL;
    desc.tag = "ring";
    array = ignis_array_create(&desc);
    slice = ignis_array_slice(array, 0, 1, 2);
    shaped = ignis_array_reshape(array, IGNIS_SHAPE(8));
    CHECK_INT(info_of(slice).owner, IGNIS_OWNER_NVCCL);
    CHECK_TEXT(info_of(slice).tag, "ring");
    CHECK_INT(info_of(shaped).owner, IGNIS_OWNER_NVCCL);
    CHECK_TEXT(info_of(shaped).tag, "ring");
    CHECK_STATUS(ignis_array_free(slice), IGNIS_ERROR_CONTRACT, IGNIS_DIAG_FREE_BY_OTHER);
    CHECK_OK(ignis_array_free_as(slice, IGNIS_OWNER_NVCCL));
    CHECK_OK(ignis_array_free_as(shaped, IGNIS_OWNER_NVCCL));
    CHECK_OK(ignis_array_free_as(array, IGNIS_OWNER_NVCCL));
}

TEST(reshape_keeps_the_elements)
{
    ignis_array array, view;
    SETUP(NULL);
    array = make_counting(IGNIS_SHAPE(4, 6), 0);
    view = ignis_array_reshape(array, IGNIS_SHAPE(2, -1, 3));
    CHECK_SHAPE(view, IGNIS_SHAPE(2, 4, 3));
    CHECK_COUNTING(view, 24, 0);
    CHECK_INT(info_of(view).parent, info_of(array).id);
    drop(view);
    view = ignis_array_reshape(array, IGNIS_SHAPE(-1));
    CHECK_SHAPE(view, IGNIS_SHAPE(24));
    drop(view);
    CHECK_FAILS(ignis_array_reshape(array, IGNIS_SHAPE(5, 5)), IGNIS_ERROR_SHAPE, IGNIS_DIAG_SHAPE_DIFFERS);
    CHECK_MESSAGE_HAS("[4, 6]");
    CHECK_MESSAGE_HAS("[5, 5]");
    CHECK_FAILS(ignis_array_reshape(array, IGNIS_SHAPE(5, -1)), IGNIS_ERROR_SHAPE, IGNIS_DIAG_SHAPE_DIFFERS);
    CHECK_FAILS(ignis_array_reshape(array, IGNIS_SHAPE(0, -1)), IGNIS_ERROR_SHAPE, IGNIS_DIAG_SHAPE_DIFFERS);
    CHECK_FAILS(ignis_array_reshape(array, IGNIS_SHAPE(-1, -1)), IGNIS_ERROR_SHAPE, IGNIS_DIAG_SHAPE_DIM);
    CHECK_FAILS(ignis_array_reshape(array, IGNIS_SHAPE(-2, 12)), IGNIS_ERROR_SHAPE, IGNIS_DIAG_SHAPE_DIM);
    drop(array);
}

TEST(write_rows_copies_whole_rows)
{
    ignis_array cache, row, rows, slice;
    int32_t back[12];
    SETUP(NULL);
    cache = make(IGNIS_SHAPE(4, 3), IGNIS_I32);
    CHECK_OK(ignis_array_zero(cache));
    row = make_counting(IGNIS_SHAPE(1, 3), 10);
    rows = make_counting(IGNIS_SHAPE(2, 3), 20);
    CHECK_OK(ignis_array_write_rows(cache, row, 1));
    CHECK_OK(ignis_array_write_rows(cache, rows, 2));
    CHECK_OK(ignis_array_to_host(cache, back, IGNIS_I32, 12));
    CHECK(back[2] == 0 && back[3] == 10 && back[5] == 12 && back[6] == 20 && back[11] == 25);
    slice = ignis_array_slice(cache, 0, 1, 2); /* a view as destination */
    CHECK_OK(ignis_array_write_rows(slice, row, 1));
    CHECK_OK(ignis_array_to_host(cache, back, IGNIS_I32, 12));
    CHECK(back[5] == 12 && back[6] == 10 && back[8] == 12 && back[9] == 23);
    drop(cache);
    drop(row);
    drop(rows);
    drop(slice);
}

TEST(write_rows_refuses_what_does_not_fit)
{
    ignis_array cache, rows, part, wrong;
    SETUP(NULL);
    cache = make(IGNIS_SHAPE(4, 3), IGNIS_I32);
    rows = make_counting(IGNIS_SHAPE(2, 3), 0);
    part = make_counting(IGNIS_SHAPE(2), 0);
    wrong = make(IGNIS_SHAPE(1, 3), IGNIS_F32);
    CHECK_OK(ignis_array_zero(wrong));
    CHECK_STATUS(ignis_array_write_rows(cache, rows, 3), IGNIS_ERROR_SHAPE, IGNIS_DIAG_ROWS_OVERFLOW);
    CHECK_MESSAGE_HAS("3");
    CHECK_MESSAGE_HAS("4");
    CHECK_STATUS(ignis_array_write_rows(cache, rows, -1), IGNIS_ERROR_SHAPE, IGNIS_DIAG_ROWS_OVERFLOW);
    CHECK_STATUS(ignis_array_write_rows(cache, rows, INT64_MAX), IGNIS_ERROR_SHAPE, IGNIS_DIAG_ROWS_OVERFLOW);
    CHECK_STATUS(ignis_array_write_rows(cache, rows, INT64_MAX / 12 + 1), IGNIS_ERROR_SHAPE, IGNIS_DIAG_ROWS_OVERFLOW);
    CHECK_STATUS(ignis_array_write_rows(cache, part, 0), IGNIS_ERROR_SHAPE, IGNIS_DIAG_SHAPE_DIFFERS);
    CHECK_STATUS(ignis_array_write_rows(cache, wrong, 0), IGNIS_ERROR_DTYPE, IGNIS_DIAG_DTYPE_DIFFERS);
    CHECK_MESSAGE_HAS("i32");
    CHECK_MESSAGE_HAS("f32");
    CHECK_OK(ignis_array_write_rows(cache, rows, 2));
    drop(cache);
    drop(rows);
    drop(part);
    drop(wrong);
}

/*  A copy over a part of itself depends on who is faster; one over itself is nothing. */
TEST(copies_that_overlap_in_part_are_refused)
{
    ignis_array array, low, high, halves, same, wide;
    ignis_array_desc desc;
    SETUP(NULL);
    array = make_counting(IGNIS_SHAPE(4, 3), 0);
    low = ignis_array_slice(array, 0, 0, 3);
    high = ignis_array_slice(array, 0, 1, 3);
    same = ignis_array_reshape(low, IGNIS_SHAPE(9));
    CHECK_STATUS(ignis_array_copy(high, low), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_OVERLAP);
    CHECK_MESSAGE_HAS("overlaps the destination in part");
    CHECK_STATUS(ignis_array_copy(low, high), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_OVERLAP);
    CHECK_STATUS(ignis_array_write_rows(array, low, 1), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_OVERLAP);
    CHECK_STATUS(ignis_array_write_rows(low, high, 0), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_OVERLAP);
    CHECK_STATUS(ignis_array_add(high, low, high), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_OVERLAP);
    CHECK_STATUS(ignis_array_mul(high, high, low), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_OVERLAP);
    CHECK_STATUS(ignis_array_scale(low, high, 2), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_OVERLAP);
    CHECK_COUNTING(array, 12, 0);
    CHECK_OK(ignis_array_copy(same, low));
    CHECK_OK(ignis_array_write_rows(array, high, 1));
    CHECK_COUNTING(array, 12, 0);
    halves = ignis_array_slice(array, 0, 0, 2); /* neighbours are apart */
    drop(high);
    high = ignis_array_slice(array, 0, 2, 2);
    CHECK_OK(ignis_array_copy(high, halves));
    CHECK_COUNTING(high, 6, 0);
    desc = desc_of(IGNIS_SHAPE(6),
                   IGNIS_I64); /* the same place, in wider elements: through another array over the memory */
    desc.ptr = ignis_array_device_ptr(array);
    wide = ignis_array_create(&desc);
    CHECK_STATUS(ignis_array_copy(wide, halves), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_OVERLAP);
    drop(wide);
    drop(array);
    drop(low);
    drop(high);
    drop(halves);
    drop(same);
}

/*  By whole numbers exactly, although a double has 53 bits; beyond 64 bits the largest or smallest one. */
TEST(scale_of_large_integers)
{
    static const struct {
        int64_t from;
        double factor;
        int64_t expected;
    } cases[] = {{9007199254740993, 1, 9007199254740993},
                 {9007199254740993, -3, -27021597764222979},
                 {INT64_MAX, 1, INT64_MAX},
                 {INT64_MIN, 1, INT64_MIN},
                 {INT64_MIN, -1, INT64_MAX},
                 {INT64_MAX, 2, INT64_MAX},
                 {INT64_MAX, -2, INT64_MIN},
                 {INT64_MAX, 0, 0},
                 {9007199254740992, 0.5, 4503599627370496},
                 {-7, 1e30, INT64_MIN}};
    ignis_array array;
    int64_t got;
    int i;
    SETUP(NULL);
    array = make(IGNIS_SHAPE(1), IGNIS_I64);
    for (i = 0; i < (int)COUNT_OF(cases); i++) {
        CHECK_OK(ignis_array_from_host(array, &cases[i].from, IGNIS_I64, 1));
        CHECK_OK(ignis_array_scale(array, array, cases[i].factor));
        CHECK_OK(ignis_array_to_host(array, &got, IGNIS_I64, 1));
        CHECK_INT(got, cases[i].expected);
    }
    drop(array);
}

/* nothing at all: arrays of no elements ------------------------------------------------------------------------- */

TEST(arrays_of_no_elements_work_everywhere)
{
    static const ignis_shape shapes[] = {{1, {0}}, {2, {0, 5}}, {3, {2, 0, 3}}};
    char text[128];
    float nothing = 42;
    size_t i;
    SETUP(NULL);
    for (i = 0; i < COUNT_OF(shapes); i++) {
        ignis_array a = make(shapes[i], IGNIS_F32), b, c, d;
        CHECK_INT(ignis_array_numel(a), 0);
        CHECK_INT(ignis_array_size_bytes(a), 0);
        CHECK_OK(ignis_array_to_device(a));
        CHECK(ignis_array_device_ptr(a) == NULL);
        CHECK_OK(ignis_array_zero(a));
        CHECK_OK(ignis_array_from_host(a, &nothing, IGNIS_F64, 0));
        CHECK_OK(ignis_array_from_host_raw(a, &nothing, 0));
        CHECK_OK(ignis_array_to_host(a, &nothing, IGNIS_F16, 0));
        CHECK_OK(ignis_array_to_host_raw(a, &nothing, 0));
        CHECK(nothing == 42);
        CHECK_OK(ignis_array_fill(a, 1));
        b = ignis_array_clone(a);
        c = ignis_array_cast(a, IGNIS_F16);
        CHECK_SHAPE(b, shapes[i]);
        CHECK_SHAPE(c, shapes[i]);
        CHECK_OK(ignis_array_copy(a, c));
        CHECK_OK(ignis_array_add(a, a, b));
        CHECK_OK(ignis_array_mul(a, a, b));
        CHECK_OK(ignis_array_scale(a, b, 2));
        CHECK_OK(ignis_array_write_rows(a, b, 0));
        d = ignis_array_reshape(a, IGNIS_SHAPE(7, 0));
        CHECK_INT(ignis_array_numel(d), 0);
        drop(d);
        d = ignis_array_slice(a, 0, 0, 0);
        CHECK_INT(ignis_array_numel(d), 0);
        CHECK(ignis_array_pin(a) == NULL);
        CHECK_INT(ignis_status_last(), IGNIS_OK);
        CHECK_INT(ignis_array_increment_ref(a), 1);
        CHECK_INT(ignis_array_decrement_ref(a), 0);
        CHECK_OK(ignis_contract_acquire(a, IGNIS_OWNER_NVCCL));
        CHECK_OK(ignis_contract_release(a, IGNIS_OWNER_NVCCL));
        CHECK(ignis_array_to_string(a, text, sizeof text) > 0);
        drop(a);
        drop(b);
        drop(c);
        drop(d);
    }
    {
        ignis_array rows = make_counting(IGNIS_SHAPE(3, 2), 0), none = make(IGNIS_SHAPE(0, 2), IGNIS_I32);
        CHECK_OK(ignis_array_zero(none));
        CHECK_OK(ignis_array_write_rows(rows, none, 3));
        CHECK_COUNTING(rows, 6, 0);
        drop(rows);
        drop(none);
    }
}

/* names and sizes ------------------------------------------------------------------------------------------------- */

TEST(names_and_sizes_need_no_setup)
{
    static const char *const names[] = {"f32", "f16", "bf16", "f32", "f64", "i32", "i64", "u8", "f8_e4m3", "f8_e5m2"};
    static const int sizes[] = {4, 2, 2, 4, 8, 4, 8, 1, 1, 1};
    static const char *const owners[] = {"ignis", "ignis", "nvccl", "wnais"};
    int i;
    for (i = 0; i < IGNIS_DTYPE_COUNT; i++) {
        CHECK_TEXT(ignis_dtype_name((ignis_dtype)i), names[i]);
        CHECK_INT(ignis_dtype_size((ignis_dtype)i), sizes[i]);
    }
    for (i = 0; i < IGNIS_OWNER_COUNT; i++)
        CHECK_TEXT(ignis_owner_name((ignis_owner)i), owners[i]);
    CHECK_TEXT(ignis_dtype_name(IGNIS_DTYPE_COUNT), "unknown dtype");
    CHECK_TEXT(ignis_dtype_name((ignis_dtype)-1), "unknown dtype");
    CHECK_INT(ignis_dtype_size(IGNIS_DTYPE_COUNT), 0);
    CHECK_INT(ignis_dtype_size((ignis_dtype)-1), 0);
    CHECK_TEXT(ignis_owner_name(IGNIS_OWNER_COUNT), "unknown owner");
    CHECK_TEXT(ignis_owner_name((ignis_owner)-1), "unknown owner");
    CHECK_OK(ignis_status_last());
}

/* pins, references, owners -------------------------------------------------------------------------------------- */

TEST(pinned_memory_comes_and_goes)
{
    ignis_array array;
    void *pinned;
    int64_t before;
    SETUP(NULL);
    array = make(IGNIS_SHAPE(100), IGNIS_F64);
    CHECK_OK(ignis_array_zero(array));
    before = memory().pinned_bytes;
    pinned = ignis_array_pin(array);
    REQUIRE(pinned != NULL);
    memset(pinned, 0x11, 800);
    CHECK(info_of(array).pinned_host_ptr == pinned);
    CHECK(memory().pinned_bytes >= before + 800);
    CHECK_REFUSED(NULL, ignis_array_pin(array), IGNIS_ERROR_CONTRACT, IGNIS_DIAG_PIN_TWICE);
    CHECK_OK(ignis_array_from_host_raw(array, pinned, 800)); /* staging through it */
    memset(pinned, 0, 800);
    CHECK_OK(ignis_array_to_host_raw(array, pinned, 800));
    CHECK_INT(((unsigned char *)pinned)[799], 0x11);
    CHECK_OK(ignis_array_unpin(array));
    CHECK(info_of(array).pinned_host_ptr == NULL);
    CHECK_STATUS(ignis_array_unpin(array), IGNIS_ERROR_CONTRACT, IGNIS_DIAG_PIN_MISSING);
    CHECK(ignis_array_pin(array) != NULL);
    CHECK_OK(ignis_contract_acquire(array, IGNIS_OWNER_NVCCL)); /* which may be reading it */
    CHECK_STATUS(ignis_array_unpin(array), IGNIS_ERROR_CONTRACT, IGNIS_DIAG_FREE_BY_OTHER);
    CHECK_MESSAGE_HAS("owned by nvccl");
    CHECK(info_of(array).pinned_host_ptr != NULL);
    CHECK_OK(ignis_contract_release(array, IGNIS_OWNER_NVCCL));
    CHECK_OK(ignis_array_unpin(array));
    CHECK(ignis_array_pin(array) != NULL);
    drop(array); /* pinned memory goes with the array */
    CHECK_INT(memory().pinned_bytes, before);
}

TEST(references_hold_an_array)
{
    ignis_array array;
    char part[32];
    SETUP(NULL);
    array = make(IGNIS_SHAPE(4), IGNIS_F32);
    CHECK_INT(ignis_array_increment_ref(array), 1);
    CHECK_INT(info_of(array).ref_count, 1);
    CHECK_STATUS(ignis_array_free(array), IGNIS_ERROR_CONTRACT, IGNIS_DIAG_FREE_REFERENCED);
    snprintf(part, sizeof part, "#%llu", (unsigned long long)info_of(array).id);
    CHECK_MESSAGE_HAS(part);
    CHECK(ignis_array_is_live(array));
    CHECK_OK(ignis_array_transfer_ownership(array, IGNIS_OWNER_NVCCL)); /* one reference is fine */
    CHECK_INT(ignis_array_increment_ref(array), 2);
    CHECK_STATUS(ignis_array_transfer_ownership(array, IGNIS_OWNER_IGNIS), IGNIS_ERROR_CONTRACT,
                 IGNIS_DIAG_TRANSFER_REFERENCED);
    CHECK_INT(info_of(array).owner, IGNIS_OWNER_NVCCL);
    CHECK_INT(ignis_array_decrement_ref(array), 1);
    CHECK_OK(ignis_array_transfer_ownership(array, IGNIS_OWNER_IGNIS));
    CHECK_INT(ignis_array_decrement_ref(array), 0);
    CHECK_REFUSED(-1, ignis_array_decrement_ref(array), IGNIS_ERROR_CONTRACT, IGNIS_DIAG_REF_COUNT_ZERO);
    drop(array);
}

TEST(references_of_a_view_are_its_own)
{
    ignis_array array, view;
    SETUP(NULL);
    array = make(IGNIS_SHAPE(4), IGNIS_F32);
    view = ignis_array_slice(array, 0, 0, 2);
    CHECK_INT(ignis_array_increment_ref(view), 1);
    CHECK_INT(info_of(array).ref_count, 0);
    drop(array);
    CHECK_STATUS(ignis_array_free(view), IGNIS_ERROR_CONTRACT, IGNIS_DIAG_FREE_REFERENCED);
    CHECK_INT(ignis_array_decrement_ref(view), 0);
    drop(view);
}

TEST(the_owner_of_a_view_is_its_own)
{
    ignis_array array, view;
    SETUP(NULL);
    array = make(IGNIS_SHAPE(4), IGNIS_F32);
    view = ignis_array_slice(array, 0, 0, 2);
    CHECK_OK(ignis_array_transfer_ownership(view, IGNIS_OWNER_NVCCL));
    CHECK_INT(info_of(array).owner, IGNIS_OWNER_IGNIS);
    drop(array);
    CHECK_OK(ignis_array_free_as(view, IGNIS_OWNER_NVCCL));
}

TEST(ownership_moves)
{
    int owner;
    ignis_array array;
    SETUP(NULL);
    array = make(IGNIS_SHAPE(4), IGNIS_F32);
    for (owner = IGNIS_OWNER_COUNT - 1; owner >= IGNIS_OWNER_IGNIS; owner--) {
        CHECK_OK(ignis_array_transfer_ownership(array, (ignis_owner)owner));
        CHECK_INT(info_of(array).owner, owner);
        CHECK_OK(ignis_array_transfer_ownership(array, (ignis_owner)owner)); /* to itself, too */
    }
    CHECK_STATUS(ignis_array_transfer_ownership(array, IGNIS_OWNER_COUNT), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_ENUM);
    CHECK_STATUS(ignis_array_free_as(array, (ignis_owner)-1), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_ENUM);
    CHECK_STATUS(ignis_array_free_as(array, IGNIS_OWNER_WNAIS), IGNIS_ERROR_CONTRACT, IGNIS_DIAG_FREE_BY_OTHER);
    CHECK_OK(ignis_array_transfer_ownership(array, IGNIS_OWNER_WNAIS));
    CHECK_STATUS(ignis_array_free(array), IGNIS_ERROR_CONTRACT, IGNIS_DIAG_FREE_BY_OTHER);
    CHECK_MESSAGE_HAS("wnais");
    CHECK_OK(ignis_array_free_as(array, IGNIS_OWNER_WNAIS));
}

/* text ---------------------------------------------------------------------------------------------------------- */

TEST(text_form)
{
    ignis_array_desc desc = desc_of(IGNIS_SHAPE(2, 3), IGNIS_BF16);
    ignis_array array;
    char expected[128], text[128], cut[11];
    int length;
    SETUP(NULL);
    desc.tag = "weights";
    array = ignis_array_create(&desc);
    CHECK_INT(ignis_array_increment_ref(array), 1);
    length =
        snprintf(expected, sizeof expected, "array #%llu [2, 3] bf16 on device 0, owner ignis, ref_count 1, 'weights'",
                 (unsigned long long)info_of(array).id);
    CHECK_INT(ignis_array_to_string(array, text, sizeof text), length);
    CHECK_TEXT(text, expected);
    memset(cut, 'x', sizeof cut);
    CHECK_INT(ignis_array_to_string(array, cut, 10), length);
    CHECK(memcmp(cut, expected, 9) == 0);
    CHECK_INT(cut[9], 0);
    CHECK_INT(cut[10], 'x');
    CHECK_INT(ignis_array_to_string(array, cut, 1), length);
    CHECK_INT(cut[0], 0);
    CHECK_INT(ignis_array_to_string(array, NULL, 0), length);
    CHECK_FAILS(ignis_array_to_string(array, NULL, 5), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NULL_ARGUMENT);
    CHECK_INT(ignis_array_decrement_ref(array), 0);
    snprintf(expected, sizeof expected, "array #%llu 'weights', freed", (unsigned long long)info_of(array).id);
    drop(array);
    CHECK(ignis_array_to_string(array, text, sizeof text) > 0);
    CHECK_TEXT(text, expected);
    array.id = 0x1234567810000001u;
    CHECK(ignis_array_to_string(array, text, sizeof text) > 0);
    CHECK_TEXT(text, "array handle 0x1234567810000001 (freed)");
}

TEST(text_form_of_untagged_arrays)
{
    static const char *owners[] = {"", "owner ignis", "owner nvccl", "owner wnais"};
    char text[256], part[32];
    int k, owner, length;
    SETUP(NULL);
    for (k = 0; k < DTYPES; k++)
        for (owner = IGNIS_OWNER_IGNIS; owner < IGNIS_OWNER_COUNT; owner++) {
            ignis_array_desc desc = desc_of(IGNIS_SHAPE(1, 2, 3, 4, 5, 6, 7, INT64_C(12345678901)), dtypes[k].dtype);
            ignis_array array;
            desc.owner = (ignis_owner)owner;
            array = ignis_array_create(&desc);
            length = ignis_array_to_string(array, text, sizeof text);
            CHECK_INT(length, strlen(text));
            snprintf(part, sizeof part, "] %s on device 0, ", dtypes[k].name);
            CHECK_HAS(text, "[1, 2, 3, 4, 5, 6, 7, 12345678901]");
            CHECK_HAS(text, part);
            CHECK_HAS(text, owners[owner]);
            CHECK(strchr(text, '\'') == NULL);
            CHECK_OK(ignis_array_free_as(array, (ignis_owner)owner));
        }
}

/* stale handles ------------------------------------------------------------------------------------------------- */

static void check_all_calls_refuse(ignis_array a, ignis_array live, ignis_diagnostic diagnostic)
{
    const ignis_status freed = IGNIS_ERROR_FREED;
    ignis_array_info info;
    float data[4] = {0};
    CHECK(!ignis_array_is_live(a));
    CHECK_STATUS(ignis_array_free(a), freed, diagnostic);
    CHECK_STATUS(ignis_array_free_as(a, IGNIS_OWNER_NVCCL), freed, diagnostic);
    CHECK_STATUS(ignis_array_query(a, &info), freed, diagnostic);
    CHECK_REFUSED(-1, ignis_array_numel(a), freed, diagnostic);
    CHECK_REFUSED(-1, ignis_array_size_bytes(a), freed, diagnostic);
    CHECK_STATUS(ignis_array_to_device(a), freed, diagnostic);
    CHECK_REFUSED(NULL, ignis_array_device_ptr(a), freed, diagnostic);
    CHECK_STATUS(ignis_array_zero(a), freed, diagnostic);
    CHECK_STATUS(ignis_array_from_host(a, data, IGNIS_F32, 4), freed, diagnostic);
    CHECK_STATUS(ignis_array_from_host_raw(a, data, 16), freed, diagnostic);
    CHECK_STATUS(ignis_array_to_host(a, data, IGNIS_F32, 4), freed, diagnostic);
    CHECK_STATUS(ignis_array_to_host_raw(a, data, 16), freed, diagnostic);
    CHECK_REFUSED(0, ignis_array_clone(a).id, freed, diagnostic);
    CHECK_REFUSED(0, ignis_array_slice(a, 0, 0, 1).id, freed, diagnostic);
    CHECK_REFUSED(0, ignis_array_reshape(a, IGNIS_SHAPE(2, 2)).id, freed, diagnostic);
    CHECK_REFUSED(0, ignis_array_cast(a, IGNIS_F64).id, freed, diagnostic);
    CHECK_STATUS(ignis_array_write_rows(a, live, 0), freed, diagnostic);
    CHECK_STATUS(ignis_array_write_rows(live, a, 0), freed, diagnostic);
    CHECK_REFUSED(NULL, ignis_array_pin(a), freed, diagnostic);
    CHECK_STATUS(ignis_array_unpin(a), freed, diagnostic);
    CHECK_REFUSED(-1, ignis_array_increment_ref(a), freed, diagnostic);
    CHECK_REFUSED(-1, ignis_array_decrement_ref(a), freed, diagnostic);
    CHECK_STATUS(ignis_array_transfer_ownership(a, IGNIS_OWNER_NVCCL), freed, diagnostic);
    CHECK_STATUS(ignis_array_fill(a, 0), freed, diagnostic);
    CHECK_STATUS(ignis_array_copy(a, live), freed, diagnostic);
    CHECK_STATUS(ignis_array_copy(live, a), freed, diagnostic);
    CHECK_STATUS(ignis_array_add(a, live, live), freed, diagnostic);
    CHECK_STATUS(ignis_array_add(live, a, live), freed, diagnostic);
    CHECK_STATUS(ignis_array_mul(live, live, a), freed, diagnostic);
    CHECK_STATUS(ignis_array_scale(a, live, 1), freed, diagnostic);
    CHECK_STATUS(ignis_array_scale(live, a, 1), freed, diagnostic);
    CHECK_STATUS(ignis_contract_acquire(a, IGNIS_OWNER_NVCCL), freed, diagnostic);
    CHECK_STATUS(ignis_contract_release(a, IGNIS_OWNER_NVCCL), freed, diagnostic);
    CHECK_STATUS(ignis_contract_assert_owner(a, IGNIS_OWNER_IGNIS), freed, diagnostic);
    CHECK_STATUS(ignis_contract_track(a), freed, diagnostic);
}

TEST(stale_handles_are_refused_everywhere)
{
    ignis_array stale, again, made_up, live;
    SETUP(NULL);
    live = make(IGNIS_SHAPE(4), IGNIS_F32);
    CHECK_OK(ignis_array_zero(live));
    stale = make(IGNIS_SHAPE(4), IGNIS_F32);
    CHECK_OK(ignis_array_zero(stale));
    drop(stale);
    check_all_calls_refuse(stale, live, IGNIS_DIAG_ARRAY_FREED);
    again = make(IGNIS_SHAPE(4), IGNIS_F32); /* may use the same slot */
    CHECK(again.id != stale.id);
    check_all_calls_refuse(stale, live, IGNIS_DIAG_ARRAY_FREED);
    made_up.id = UINT64_C(0x7FFFFFFF7FFFFFF0);
    CHECK(!ignis_array_is_live(made_up));
    CHECK_INT(ignis_array_query(made_up, NULL) != IGNIS_OK, 1);
    ignis_status_clear();
    drop(again);
    drop(live);
}

/*  Two messages about one array can be matched, also when its slot has another one by now. */
TEST(a_stale_handle_is_named_as_it_was)
{
    ignis_array_desc desc = desc_of(IGNIS_SHAPE(4), IGNIS_F32);
    ignis_array array, next;
    char name[64];
    SETUP(NULL);
    desc.tag = "weights";
    array = ignis_array_create(&desc);
    snprintf(name, sizeof name, "array #%llu 'weights', freed", (unsigned long long)info_of(array).id);
    drop(array);
    CHECK_STATUS(ignis_array_zero(array), IGNIS_ERROR_FREED, IGNIS_DIAG_ARRAY_FREED);
    CHECK_MESSAGE_HAS(name);
    desc.tag = "another";
    next = ignis_array_create(&desc);
    CHECK((next.id & IGNIS__SLOT_MASK) == (array.id & IGNIS__SLOT_MASK)); /* the slot */
    CHECK_STATUS(ignis_array_free(array), IGNIS_ERROR_FREED, IGNIS_DIAG_ARRAY_FREED);
    CHECK_MESSAGE_HAS(name);
    drop(next);
    CHECK_STATUS(ignis_array_free(array), IGNIS_ERROR_FREED, IGNIS_DIAG_ARRAY_FREED);
    CHECK_MESSAGE_HAS("array handle 0x"); /* forgotten: the slot's last one is another */
    CHECK_STATUS(ignis_array_free(next), IGNIS_ERROR_FREED, IGNIS_DIAG_ARRAY_FREED);
    CHECK_MESSAGE_HAS("'another', freed");
}

TEST(handles_stay_stale_after_shutdown)
{
    ignis_array array, other;
    SETUP(NULL);
    array = make(IGNIS_SHAPE(4), IGNIS_F32);
    test_leaks_expected = true;
    CHECK_OK(ignis_shutdown());
    CHECK(!ignis_array_is_live(array));
    CHECK_STATUS(ignis_array_zero(array), IGNIS_ERROR_NOT_SETUP, IGNIS_DIAG_NOT_SETUP);
    SETUP(NULL);
    other = make(IGNIS_SHAPE(4), IGNIS_F32);
    CHECK(!ignis_array_is_live(array));
    CHECK_STATUS(ignis_array_zero(array), IGNIS_ERROR_FREED, IGNIS_DIAG_ARRAY_FREED);
    drop(other);
}

TEST(no_handle_leaves_the_first_failure_alone)
{
    ignis_array none = IGNIS_NO_ARRAY, chain;
    ignis_array_desc desc = desc_of(IGNIS_SHAPE(-1), IGNIS_F32);
    SETUP(NULL);
    CHECK(!ignis_array_is_live(none));
    CHECK_STATUS(ignis_array_zero(none), IGNIS_ERROR_FREED, IGNIS_DIAG_ARRAY_FREED); /* on its own it is a failure */
    CHECK_REFUSED(0, ignis_array_clone(none).id, IGNIS_ERROR_FREED, IGNIS_DIAG_ARRAY_FREED);
    chain = ignis_array_create(&desc);
    chain = ignis_array_slice(chain, 0, 0, 1);
    chain = ignis_array_reshape(chain, IGNIS_SHAPE(1, 1));
    chain = ignis_array_cast(chain, IGNIS_F16);
    CHECK_INT(chain.id, 0);
    CHECK(ignis_array_zero(chain) != IGNIS_OK);
    CHECK_INT(ignis_status_last(), IGNIS_ERROR_SHAPE);
    CHECK_HAS(ignis_status_message(), "ignis_array_create: ");
    ignis_status_clear();
}

/* two devices --------------------------------------------------------------------------------------------------- */

TEST(arrays_on_two_devices)
{
    ignis_array_desc desc = desc_of(IGNIS_SHAPE(300), IGNIS_I32);
    ignis_array near, far, back;
    SETUP(NULL);
    NEEDS_DEVICES(2);
    near = make_counting(IGNIS_SHAPE(300), 5);
    desc.device = 1;
    far = ignis_array_create(&desc);
    CHECK_INT(info_of(far).device, 1);
    CHECK_OK(ignis_array_copy(far, near));
    CHECK_COUNTING(far, 300, 5);
    CHECK_STATUS(ignis_array_add(far, far, near), IGNIS_ERROR_DEVICE, IGNIS_DIAG_DEVICE_DIFFERS);
    CHECK_STATUS(ignis_array_mul(near, far, near), IGNIS_ERROR_DEVICE, IGNIS_DIAG_DEVICE_DIFFERS);
    CHECK_STATUS(ignis_array_scale(near, far, 2), IGNIS_ERROR_DEVICE, IGNIS_DIAG_DEVICE_DIFFERS);
    CHECK_STATUS(ignis_array_write_rows(near, far, 0), IGNIS_ERROR_DEVICE, IGNIS_DIAG_DEVICE_DIFFERS);
    CHECK_OK(ignis_array_add(far, far, far)); /* works on its device while device 0 is current */
    CHECK_INT(ignis_device_current(), 0);
    CHECK_OK(ignis_device_use(1));
    back = make(IGNIS_SHAPE(300), IGNIS_I32); /* on the current device */
    CHECK_INT(info_of(back).device, 1);
    drop(back);
    desc.device = IGNIS_DEVICE_0;
    back = ignis_array_create(&desc);
    CHECK_INT(info_of(back).device, 0);
    CHECK_OK(ignis_array_copy(back, far));
    CHECK_COUNTING(near, 300, 5);
    {
        int32_t values[300];
        CHECK_OK(ignis_array_to_host(back, values, IGNIS_I32, 300));
        CHECK_INT(values[0], 10);
        CHECK_INT(values[299], 608);
    }
    drop(near);
    drop(far);
    drop(back);
}

int main(int argc, char **argv) { return test_run(argc, argv); }
