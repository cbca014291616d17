// SPDX-License-Identifier: MIT
/*  test_dlpack.c - arrays lent to other libraries, and borrowed from them */
#include "array.h"

TEST(the_structs_are_laid_out_as_dlpack_has_them)
{
    CHECK_INT(sizeof(ignis_dlpack_tensor), 48);
    CHECK_INT(offsetof(ignis_dlpack_tensor, device_type), 8);
    CHECK_INT(offsetof(ignis_dlpack_tensor, device_id), 12);
    CHECK_INT(offsetof(ignis_dlpack_tensor, ndim), 16);
    CHECK_INT(offsetof(ignis_dlpack_tensor, code), 20);
    CHECK_INT(offsetof(ignis_dlpack_tensor, bits), 21);
    CHECK_INT(offsetof(ignis_dlpack_tensor, lanes), 22);
    CHECK_INT(offsetof(ignis_dlpack_tensor, shape), 24);
    CHECK_INT(offsetof(ignis_dlpack_tensor, strides), 32);
    CHECK_INT(offsetof(ignis_dlpack_tensor, byte_offset), 40);
    CHECK_INT(sizeof(ignis_dlpack), 64);
    CHECK_INT(offsetof(ignis_dlpack, context), 48);
    CHECK_INT(offsetof(ignis_dlpack, deleter), 56);
    CHECK_INT(sizeof(ignis_dlpack_versioned), 80);
    CHECK_INT(offsetof(ignis_dlpack_versioned, context), 8);
    CHECK_INT(offsetof(ignis_dlpack_versioned, deleter), 16);
    CHECK_INT(offsetof(ignis_dlpack_versioned, flags), 24);
    CHECK_INT(offsetof(ignis_dlpack_versioned, tensor), 32);
}

static void check_tensor(const ignis_dlpack_tensor *tensor, ignis_array array, int code, int bits)
{
    ignis_array_info info;
    int64_t stride = 1;
    int i;
    CHECK_OK(ignis_array_query(array, &info));
    CHECK(tensor->data == info.ptr);
    CHECK_INT(tensor->device_type, 2);
    CHECK_INT(tensor->device_id, info.device);
    CHECK_INT(tensor->code, code);
    CHECK_INT(tensor->bits, bits);
    CHECK_INT(tensor->lanes, 1);
    CHECK_INT(tensor->byte_offset, 0);
    CHECK_INT(tensor->ndim, info.shape.ndim);
    for (i = info.shape.ndim - 1; i >= 0; i--) {
        CHECK_INT(tensor->shape[i], info.shape.dim[i]);
        CHECK_INT(tensor->strides[i], stride);
        stride *= info.shape.dim[i];
    }
}

TEST(every_type_is_lent_in_both_versions)
{
    static const struct {
        ignis_dtype dtype;
        int code, bits;
    } types[] = {{IGNIS_F16, 2, 16}, {IGNIS_BF16, 4, 16},    {IGNIS_F32, 2, 32},
                 {IGNIS_F64, 2, 64}, {IGNIS_I32, 0, 32},     {IGNIS_I64, 0, 64},
                 {IGNIS_U8, 1, 8},   {IGNIS_F8_E4M3, 10, 8}, {IGNIS_F8_E5M2, 12, 8}};
    ignis_array_desc desc;
    ignis_dlpack *plain;
    ignis_dlpack_versioned *versioned;
    ignis_array array;
    int i;
    SETUP(NULL);
    memset(&desc, 0, sizeof desc);
    desc.shape = IGNIS_SHAPE(2, 3, 5);
    for (i = 0; i < (int)(sizeof types / sizeof types[0]); i++) {
        desc.dtype = types[i].dtype;
        array = ignis_array_create(&desc);
        plain = (ignis_dlpack *)ignis_array_to_dlpack(array, 0, NULL);
        versioned = (ignis_dlpack_versioned *)ignis_array_to_dlpack(array, 1, NULL);
        CHECK(plain && versioned);
        if (plain && versioned) {
            check_tensor(&plain->tensor, array, types[i].code, types[i].bits);
            check_tensor(&versioned->tensor, array, types[i].code, types[i].bits);
            CHECK_INT(versioned->major, 1);
            CHECK_INT(versioned->flags, 0);
            plain->deleter(plain);
            versioned->deleter(versioned);
        }
        CHECK_OK(ignis_array_free(array));
    }
    CHECK_INT(memory().live_bytes, 0);
}

TEST(what_is_lent_outlives_the_array_and_a_shutdown)
{
    ignis_dlpack_versioned *lent;
    ignis_array array, again;
    SETUP(NULL);
    array = test_array(3, 5);
    lent = (ignis_dlpack_versioned *)ignis_array_to_dlpack(array, 1, NULL);
    CHECK(lent != NULL);
    if (!lent)
        return;
    CHECK_OK(ignis_array_free(array));
    CHECK(memory().live_bytes > 0);
    again = ignis_array_from_dlpack(lent, 1, NULL); /* and comes home */
    test_check_series(again, 15, 0.0F, 1.0F);
    CHECK_OK(ignis_array_free(again));
    CHECK_INT(memory().live_bytes, 0);

    array = test_array(3, 5);
    lent = (ignis_dlpack_versioned *)ignis_array_to_dlpack(array, 1, NULL);
    CHECK_OK(ignis_array_free(array));
    test_leaks_expected = true;
    CHECK_OK(ignis_shutdown());
    CHECK_INT(test_log_count(IGNIS_DIAG_ARRAY_LEAKED), 1);
    lent->deleter(lent); /* as Python does at its end */
    SETUP(NULL);
    array = test_array(2, 2); /* its handle is another one, also after a new setup */
    CHECK_OK(ignis_array_free(array));
}

/*  A lender: a struct that is freed once. */
static struct {
    ignis_dlpack plain;
    ignis_dlpack_versioned versioned;
    int64_t shape[9], strides[9];
    int given_back;
} lender;

static void lender_delete(ignis_dlpack *self)
{
    CHECK(self == &lender.plain && self->context == &lender);
    lender.given_back++;
}
static void lender_delete_versioned(ignis_dlpack_versioned *self)
{
    CHECK(self == &lender.versioned);
    lender.given_back++;
}

/*  Lends memory of an array as f32 [2, 3]. */
static void lend(ignis_array array)
{
    ignis_dlpack_tensor tensor;
    memset(&lender, 0, sizeof lender);
    memset(&tensor, 0, sizeof tensor);
    tensor.data = ignis_array_device_ptr(array);
    tensor.device_type = 2;
    tensor.ndim = 2;
    tensor.code = 2;
    tensor.bits = 32;
    tensor.lanes = 1;
    tensor.shape = lender.shape;
    tensor.strides = lender.strides;
    lender.shape[0] = 2, lender.shape[1] = lender.strides[0] = 3, lender.strides[1] = 1;
    lender.plain.tensor = lender.versioned.tensor = tensor;
    lender.plain.context = &lender;
    lender.plain.deleter = lender_delete;
    lender.versioned.major = 1;
    lender.versioned.minor = 3;
    lender.versioned.deleter = lender_delete_versioned;
}

TEST(borrowed_memory_is_given_back_once)
{
    ignis_array owner, array, view;
    ignis_array_info info;
    float values[15];
    SETUP(NULL);
    owner = test_array(3, 5);
    lend(owner);
    lender.plain.tensor.byte_offset = 8;
    lender.plain.tensor.strides = NULL; /* row by row */
    array = ignis_array_from_dlpack(&lender.plain, 0, NULL);
    CHECK_OK(ignis_array_query(array, &info));
    CHECK_INT(info.owner, IGNIS_OWNER_IGNIS);
    CHECK(!info.owns_memory);
    CHECK_TEXT(info.tag, "dlpack");
    CHECK_INT(info.shape.ndim, 2);
    test_check_series(array, 6, 2.0F, 1.0F);
    view = ignis_array_slice(array, 0, 1, 1);
    CHECK_OK(ignis_array_free(array));
    CHECK_INT(lender.given_back, 0);
    CHECK_OK(ignis_array_free(view));
    CHECK_INT(lender.given_back, 1);

    lend(owner);
    array = ignis_array_from_dlpack(&lender.versioned, 1, NULL);
    CHECK_OK(ignis_array_fill(array, 7));
    CHECK_OK(ignis_array_free(array));
    CHECK_INT(lender.given_back, 1);
    CHECK_OK(ignis_array_to_host(owner, values, IGNIS_F32, 15));
    CHECK(values[0] == 7 && values[5] == 7 && values[6] == 6);

    lend(owner); /* nobody has to be told */
    lender.versioned.deleter = NULL;
    CHECK_OK(ignis_array_free(ignis_array_from_dlpack(&lender.versioned, 1, NULL)));
    lend(owner); /* no dimensions: one element */
    lender.plain.tensor.ndim = 0;
    lender.plain.tensor.shape = lender.plain.tensor.strides = NULL;
    array = ignis_array_from_dlpack(&lender.plain, 0, NULL);
    CHECK_INT(ignis_array_numel(array), 1);
    CHECK_OK(ignis_array_free(array));
    CHECK_INT(lender.given_back, 1);
    lend(owner); /* no elements: given back at once */
    lender.shape[0] = 0;
    lender.plain.tensor.data = NULL;
    array = ignis_array_from_dlpack(&lender.plain, 0, NULL);
    CHECK_INT(ignis_array_numel(array), 0);
    CHECK_INT(lender.given_back, 1);
    CHECK_OK(ignis_array_free(array));
    CHECK_INT(lender.given_back, 1);
    lend(owner); /* a dimension of one element may have any stride */
    lender.shape[0] = 1;
    lender.strides[0] = 99;
    CHECK_OK(ignis_array_free(ignis_array_from_dlpack(&lender.plain, 0, NULL)));
    CHECK_OK(ignis_array_free(owner));
}

TEST(streams_are_ordered_both_ways)
{
    ignis_dlpack *lent;
    ignis_array array, other;
    void *theirs;
    float values[15];
    int i;
    SETUP(NULL);
    theirs = ignis_stream_create(NULL);
    array = test_array(3, 5);
    for (i = 0; i < 20; i++) {
        CHECK_OK(ignis_array_fill(array, i));
        lent = (ignis_dlpack *)ignis_array_to_dlpack(array, 0, theirs); /* theirs waits for the fill */
        CHECK_OK(ignis_stream_use(theirs));
        other = ignis_array_from_dlpack(lent, 0, NULL);
        CHECK_OK(ignis_array_scale(other, other, 2));
        CHECK_OK(ignis_stream_use(NULL));
        CHECK_OK(ignis_array_free(other)); /* given back */
        CHECK_OK(ignis_stream_wait(NULL, theirs));
        CHECK_OK(ignis_array_to_host(array, values, IGNIS_F32, 15));
        CHECK(values[0] == (float)(2 * i) && values[14] == (float)(2 * i));
    }
    lend(array);
    CHECK_OK(ignis_stream_use(theirs));
    CHECK_OK(ignis_array_fill(array, 5));
    CHECK_OK(ignis_stream_use(NULL));
    other = ignis_array_from_dlpack(&lender.plain, 0, theirs); /* waits for theirs */
    test_check_series(other, 6, 5.0F, 0.0F);
    CHECK_OK(ignis_array_free(other));
    CHECK_OK(ignis_array_free(array));
    CHECK_OK(ignis_stream_free(theirs));
}

static int (*wait_in_stream)(void *stream, void *event, unsigned flags);
static void *waits;

static int note_wait(void *stream, void *event, unsigned flags)
{
    waits = stream;
    return wait_in_stream(stream, event, flags);
}

/*  Also where the other side works on Ignis' own stream, and this thread does not. */
TEST(the_own_stream_is_ordered_with_others)
{
    ignis_dlpack *lent;
    ignis_array array, other;
    void *own, *mine;
    SETUP(NULL);
    own = ignis_stream_current();
    mine = ignis_stream_create(NULL);
    array = test_array(3, 5);
    CHECK_OK(ignis_stream_use(mine));
    CHECK_OK(ignis_array_fill(array, 3));
    wait_in_stream = ignis__cuda.cuStreamWaitEvent;
    ignis__cuda.cuStreamWaitEvent = note_wait;
    waits = NULL;
    lent = (ignis_dlpack *)ignis_array_to_dlpack(array, 0, own);
    CHECK(waits == own);
    waits = NULL;
    other = ignis_array_from_dlpack(lent, 0, own);
    CHECK(waits == mine);
    ignis__cuda.cuStreamWaitEvent = wait_in_stream;
    CHECK_OK(ignis_array_free(other));
    CHECK_OK(ignis_array_free(array));
    CHECK_OK(ignis_stream_use(NULL));
    CHECK_OK(ignis_stream_free(mine));
}

/*  Each refusal leaves the struct with its lender. */
TEST(what_cannot_be_borrowed_stays_with_its_lender)
{
    ignis_array owner;
    float on_host[6];
    SETUP(NULL);
    owner = test_array(3, 5);
#define REFUSED(change, managed, major, status, diagnostic)                                                        \
    do {                                                                                                           \
        lend(owner);                                                                                               \
        change;                                                                                                    \
        CHECK_FAILS(ignis_array_from_dlpack(managed, major, NULL), IGNIS_ERROR_##status, IGNIS_DIAG_##diagnostic); \
        CHECK_INT(lender.given_back, 0);                                                                           \
    } while (0)
    REFUSED((void)0, NULL, 0, ARGUMENT, NULL_ARGUMENT);
    REFUSED((void)0, &lender.plain, 2, ARGUMENT, BAD_NUMBER);
    REFUSED(lender.versioned.major = 2, &lender.versioned, 1, ARGUMENT, BAD_NUMBER);
    REFUSED(lender.versioned.flags = 1, &lender.versioned, 1, UNSUPPORTED, UNSUPPORTED);
    REFUSED(lender.plain.tensor.device_type = 1, &lender.plain, 0, UNSUPPORTED, UNSUPPORTED);
    REFUSED(lender.plain.tensor.device_id = 63, &lender.plain, 0, DEVICE, DEVICE_RANGE);
    REFUSED(lender.plain.tensor.bits = 8, &lender.plain, 0, DTYPE, DTYPE_DIFFERS);
    REFUSED(lender.plain.tensor.code = 5, &lender.plain, 0, DTYPE, DTYPE_DIFFERS);
    REFUSED(lender.plain.tensor.lanes = 4, &lender.plain, 0, DTYPE, DTYPE_DIFFERS);
    REFUSED(lender.plain.tensor.ndim = 9, &lender.plain, 0, SHAPE, SHAPE_RANK);
    REFUSED(lender.plain.tensor.shape = NULL, &lender.plain, 0, SHAPE, SHAPE_RANK);
    REFUSED(lender.shape[0] = -1, &lender.plain, 0, SHAPE, SHAPE_DIM);
    REFUSED(lender.strides[0] = 4, &lender.plain, 0, SHAPE, SLICE_STRIDED);
    REFUSED((lender.strides[0] = 1, lender.strides[1] = 2), &lender.plain, 0, SHAPE, SLICE_STRIDED);
    REFUSED((lender.shape[0] = 4, lender.shape[1] = lender.strides[0] = INT64_MAX / 2), &lender.plain, 0, SHAPE,
            SHAPE_OVERFLOW);
    REFUSED(lender.plain.tensor.byte_offset = 2, &lender.plain, 0, ARGUMENT, BAD_NUMBER);
    REFUSED(lender.plain.tensor.data = NULL, &lender.plain, 0, ARGUMENT, NULL_ARGUMENT);
    REFUSED(lender.plain.tensor.data = on_host, &lender.plain, 0, ARGUMENT, BAD_NUMBER);
#undef REFUSED
    CHECK_FAILS(ignis_array_to_dlpack(owner, 2, NULL), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    CHECK_OK(ignis_graph_begin());
    CHECK_FAILS(ignis_array_to_dlpack(owner, 1, NULL), IGNIS_ERROR_UNSUPPORTED, IGNIS_DIAG_CAPTURE_REFUSED);
    CHECK_FAILS(ignis_array_from_dlpack(&lender.plain, 0, NULL), IGNIS_ERROR_UNSUPPORTED, IGNIS_DIAG_CAPTURE_REFUSED);
    CHECK_OK(ignis_graph_free(ignis_graph_end()));
    CHECK_OK(ignis_array_free(owner));
    CHECK_FAILS(ignis_array_to_dlpack(owner, 1, NULL), IGNIS_ERROR_FREED, IGNIS_DIAG_ARRAY_FREED);
}

/*  Strides that say nothing: of tensors without elements, and of dimensions of one element. And bool, which becomes u8.
    */
TEST(strides_that_lead_nowhere)
{
    static const int64_t cases[][6] = {/* shape, strides */
                                       {0, 4, 1, 0, 4, 1},
                                       {4, 0, 1, 1, 4, 1},
                                       {0, 4, 1, 1, 1, 1},
                                       {0, 2048, 1, 0, 2048, 1},
                                       {2, 3, 0, -7, INT64_MAX, INT64_MIN},
                                       {0, 0, 0, 9, 9, 9},
                                       {1, 1, 1, 5, -1, 0},
                                       {1, 3, 1, 0, 1, 0},
                                       {2, 1, 3, 3, INT64_MIN, 1},
                                       {1, 2, 3, 77, 3, 1}};
    ignis_array owner, array;
    ignis_array_info info;
    int i, k;
    SETUP(NULL);
    owner = test_array(3, 5);
    for (i = 0; i < 20; i++) {
        lend(owner);
        lender.plain.tensor.ndim = 3;
        for (k = 0; k < 3; k++)
            lender.shape[k] = cases[i / 2][k], lender.strides[k] = cases[i / 2][3 + k];
        if (i % 2)
            lender.plain.tensor.code = 6, lender.plain.tensor.bits = 8;
        if (lender.shape[0] * lender.shape[1] * lender.shape[2] == 0)
            lender.plain.tensor.byte_offset = 3; /* no address of anything */
        array = ignis_array_from_dlpack(&lender.plain, 0, NULL);
        CHECK_INT(ignis_array_numel(array), lender.shape[0] * lender.shape[1] * lender.shape[2]);
        CHECK_OK(ignis_array_query(array, &info));
        CHECK_INT(info.dtype, i % 2 ? IGNIS_U8 : IGNIS_F32);
        CHECK_OK(ignis_array_free(array));
        CHECK_INT(lender.given_back, 1);
    }
    CHECK_OK(ignis_array_free(owner));
}

/*  int8 has no dtype: it is copied to i32, and the memory is given back at once; after a failure it is not. */
TEST(integers_of_8_bits_are_copied)
{
    static const unsigned char bytes[6] = {0, 1, 127, 128, 255, 254};
    static const int32_t expected[6] = {0, 1, 127, -128, -1, -2};
    int32_t values[6] = {0};
    ignis_array_desc desc = {0};
    ignis_array owner, array;
    ignis_array_info info;
    int major, i;
    SETUP(NULL);
    desc.shape = IGNIS_SHAPE(6);
    desc.dtype = IGNIS_U8;
    for (major = 0; major < 2; major++) {
        owner = ignis_array_create(&desc);
        CHECK_OK(ignis_array_from_host_raw(owner, bytes, 6));
        lend(owner);
        lender.plain.tensor.code = lender.versioned.tensor.code = 0;
        lender.plain.tensor.bits = lender.versioned.tensor.bits = 8;
        array = ignis_array_from_dlpack(major ? (void *)&lender.versioned : (void *)&lender.plain, major, NULL);
        CHECK_INT(lender.given_back, 1);
        CHECK_OK(ignis_array_fill(owner, 9));
        CHECK_OK(ignis_array_query(array, &info));
        CHECK(info.dtype == IGNIS_I32 && info.owns_memory && info.shape.ndim == 2 && info.shape.dim[1] == 3);
        CHECK_TEXT(info.tag, "dlpack");
        CHECK_OK(ignis_array_to_host(array, values, IGNIS_I32, 6));
        for (i = 0; i < 6; i++)
            CHECK_INT(values[i], expected[i]);
        CHECK_OK(ignis_array_free(array));
        CHECK_INT(lender.given_back, 1);
        lend(owner);
        lender.plain.tensor.code = 0, lender.plain.tensor.bits = 8;
        lender.shape[0] = 0;
        array = ignis_array_from_dlpack(&lender.plain, 0, NULL);
        CHECK_INT(ignis_array_numel(array), 0);
        CHECK_INT(lender.given_back, 1);
        CHECK_OK(ignis_array_free(array));
        lend(owner);
        lender.plain.tensor.code = 0, lender.plain.tensor.bits = 8;
        lender.plain.tensor.data = NULL;
        CHECK_FAILS(ignis_array_from_dlpack(&lender.plain, 0, NULL), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NULL_ARGUMENT);
        CHECK_INT(lender.given_back, 0);
        CHECK_OK(ignis_array_free(owner));
    }
}

int main(int argc, char **argv) { return test_run(argc, argv); }
