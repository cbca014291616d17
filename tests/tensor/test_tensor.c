// SPDX-License-Identifier: MIT
/*  test_tensor.c - tensors and scopes: making, reading, sharing, releasing */
#include "tensor.h"
#include "reference.h"
#include <math.h>

static const ignis_dtype dtypes[7] = {IGNIS_F16, IGNIS_BF16, IGNIS_F32, IGNIS_F64, IGNIS_I32, IGNIS_I64, IGNIS_U8};

/* --- making ------------------------------------------------------------------------------------------------------ */

/*  The numbers 0 to count - 1 in a dtype. */
static void write_numbers(void *out, ignis_dtype dtype, int64_t count)
{
    int64_t i;
    for (i = 0; i < count; i++)
        ref_store(out, dtype, (size_t)i, ref_convert(dtype, IGNIS_I64, (uint64_t)i));
}

TEST(from_host_takes_every_dtype_and_host_dtype)
{
    enum { COUNT = 24 };
    char data[8 * COUNT];
    double back[COUNT];
    int to, from, i;
    SETUP(NULL);
    for (to = 0; to < 7; to++) {
        for (from = -1; from < 7; from++) {
            ignis_tensor_desc desc = tensor_desc(dtypes[to], false);
            ignis_dtype host = from >= 0                                             ? dtypes[from]
                               : dtypes[to] == IGNIS_F16 || dtypes[to] == IGNIS_BF16 ? IGNIS_F32
                                                                                     : dtypes[to];
            ignis_tensor tensor;
            int wrong = 0;
            if (from >= 0)
                desc.host_dtype = dtypes[from];
            write_numbers(data, host, COUNT);
            tensor = ignis_tensor_from_host(data, IGNIS_SHAPE(2, 3, 4), &desc);
            memset(data, 0xFF, sizeof data); /* may be reused */
            CHECK_OK(ignis_tensor_to_host(tensor, back, IGNIS_F64, COUNT));
            for (i = 0; i < COUNT; i++)
                wrong += back[i] != i;
            CHECK_INT(wrong, 0);
            CHECK_INT(tensor_info(tensor).dtype, dtypes[to]);
            let_go(tensor);
        }
    }
}

TEST(from_host_rounds_as_arrays_do)
{
    static const double values[6] = {1.0 + 1.0 / 4096, -0.1, 65504, 70000, 1e-8, 3.7};
    ignis_dtype dtype;
    double back[6];
    int i;
    SETUP(NULL);
    REF_EACH_DTYPE(dtype)
    {
        ignis_tensor tensor = tensor_of(values, IGNIS_SHAPE(6), dtype, false);
        CHECK_OK(ignis_tensor_to_host(tensor, back, IGNIS_F64, 6));
        for (i = 0; i < 6; i++)
            CHECK_NUMBER(back[i], ref_to_double(dtype, ref_convert(dtype, IGNIS_F64, ref_from_double(values[i]))));
        let_go(tensor);
    }
}

TEST(from_host_without_a_desc_is_f32)
{
    static const float values[3] = {1, 2, 3};
    ignis_tensor_info info;
    ignis_tensor tensor;
    SETUP(NULL);
    tensor = ignis_tensor_from_host(values, IGNIS_SHAPE(3), NULL);
    info = tensor_info(tensor);
    CHECK_INT(info.dtype, IGNIS_F32);
    CHECK_INT(info.device, 0);
    CHECK_INT(info.shape.ndim, 1);
    CHECK_INT(info.shape.dim[0], 3);
    CHECK(!info.requires_grad);
    CHECK(info.is_leaf);
    CHECK(info.data.id != 0);
    CHECK_INT(info.data.id, ignis_tensor_data(tensor).id);
    CHECK_INT(info.grad.id, 0);
    CHECK_TEXT(info.operation, "");
    CHECK_NUMBER(value_at(tensor, 2), 3);
    let_go(tensor);
}

TEST(from_host_takes_every_rank_and_empty_shapes)
{
    float values[256];
    ignis_shape shape;
    ignis_tensor tensor;
    int n, i;
    SETUP(NULL);
    for (i = 0; i < 256; i++)
        values[i] = (float)i;
    for (n = 1; n <= IGNIS_MAX_DIMS; n++) {
        shape.ndim = n;
        for (i = 0; i < n; i++)
            shape.dim[i] = 2;
        tensor = ignis_tensor_from_host(values, shape, NULL);
        CHECK_SHAPE_IS(tensor, shape);
        CHECK_NUMBER(value_at(tensor, (1 << n) - 1), (1 << n) - 1);
        let_go(tensor);
    }
    tensor = ignis_tensor_from_host(NULL, IGNIS_SHAPE(3, 0), NULL);
    CHECK_SHAPE_IS(tensor, IGNIS_SHAPE(3, 0));
    CHECK_OK(ignis_tensor_to_host(tensor, NULL, IGNIS_F32, 0));
    let_go(tensor);
}

TEST(from_host_keeps_the_tag)
{
    ignis_tensor_desc desc = tensor_desc(IGNIS_F32, false);
    ignis_tensor tensor;
    SETUP(NULL);
    desc.tag = "weights";
    tensor = ignis_tensor_zeros(IGNIS_SHAPE(2), &desc);
    CHECK_TEXT(info_of(ignis_tensor_data(tensor)).tag, "weights");
    let_go(tensor);
}

TEST(from_host_refuses)
{
    static const float values[4] = {1, 2, 3, 4};
    ignis_tensor_desc desc = tensor_desc(IGNIS_F32, false);
    ignis_shape shape = IGNIS_SHAPE(4);
    int64_t before;
    int i;
    SETUP(NULL);
    before = memory().live_blocks;
    CHECK_REFUSED(0, ignis_tensor_from_host(NULL, shape, NULL).id, IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NULL_ARGUMENT);
    CHECK_MESSAGE_HAS("data is null");
    CHECK_REFUSED(0, ignis_tensor_from_host(values, IGNIS_SHAPE(2, -2), NULL).id, IGNIS_ERROR_SHAPE,
                  IGNIS_DIAG_SHAPE_DIM);
    CHECK_REFUSED(0, ignis_tensor_from_host(values, IGNIS_SHAPE(INT64_MAX / 2, 4), NULL).id, IGNIS_ERROR_SHAPE,
                  IGNIS_DIAG_SHAPE_OVERFLOW);
    shape.ndim = 0;
    CHECK_REFUSED(0, ignis_tensor_from_host(values, shape, NULL).id, IGNIS_ERROR_SHAPE, IGNIS_DIAG_SHAPE_RANK);
    shape.ndim = IGNIS_MAX_DIMS + 1;
    CHECK_REFUSED(0, ignis_tensor_from_host(values, shape, NULL).id, IGNIS_ERROR_SHAPE, IGNIS_DIAG_SHAPE_RANK);
    shape = IGNIS_SHAPE(4);
    desc.dtype = (ignis_dtype)99;
    CHECK_REFUSED(0, ignis_tensor_from_host(values, shape, &desc).id, IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_ENUM);
    desc = tensor_desc(IGNIS_F32, false);
    desc.host_dtype = (ignis_dtype)-3;
    CHECK_REFUSED(0, ignis_tensor_from_host(values, shape, &desc).id, IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_ENUM);
    desc = tensor_desc(IGNIS_F32, false);
    desc.device = 63;
    CHECK_REFUSED(0, ignis_tensor_from_host(values, shape, &desc).id, IGNIS_ERROR_DEVICE, IGNIS_DIAG_DEVICE_RANGE);
    for (i = 4; i < 7; i++) {
        desc = tensor_desc(dtypes[i], true);
        CHECK_REFUSED(0, ignis_tensor_from_host(values, IGNIS_SHAPE(1), &desc).id, IGNIS_ERROR_DTYPE,
                      IGNIS_DIAG_GRAD_OF_INTEGERS);
        CHECK_REFUSED(0, ignis_tensor_zeros(IGNIS_SHAPE(1), &desc).id, IGNIS_ERROR_DTYPE, IGNIS_DIAG_GRAD_OF_INTEGERS);
        CHECK_REFUSED(0, ignis_tensor_ones(IGNIS_SHAPE(1), &desc).id, IGNIS_ERROR_DTYPE, IGNIS_DIAG_GRAD_OF_INTEGERS);
        CHECK_MESSAGE_HAS(ref_formats[dtypes[i]].name);
    }
    CHECK_INT(memory().live_blocks, before);
}

TEST(from_host_knows_how_much_there_is)
{
    static const float data[6] = {1, 2, 3, 4, 5, 6};
    ignis_tensor_desc desc;
    ignis_tensor tensor;
    SETUP(NULL);
    memset(&desc, 0, sizeof desc);
    desc.host_count = 6;
    tensor = ignis_tensor_from_host(data, IGNIS_SHAPE(2, 3), &desc);
    CHECK_NUMBER(value_at(tensor, 5), 6);
    let_go(tensor);
    CHECK_REFUSED(0, ignis_tensor_from_host(data, IGNIS_SHAPE(2, 4), &desc).id, IGNIS_ERROR_ARGUMENT,
                  IGNIS_DIAG_COUNT_MISMATCH);
    CHECK_MESSAGE_HAS("[2, 4] f32 has 8 elements, the call says 6");
    CHECK_REFUSED(0, ignis_tensor_from_host(data, IGNIS_SHAPE(5), &desc).id, IGNIS_ERROR_ARGUMENT,
                  IGNIS_DIAG_COUNT_MISMATCH);
    CHECK_REFUSED(0, ignis_tensor_from_host(NULL, IGNIS_SHAPE(0), &desc).id, IGNIS_ERROR_ARGUMENT,
                  IGNIS_DIAG_COUNT_MISMATCH);
    desc.host_count = -1;
    CHECK_REFUSED(0, ignis_tensor_from_host(data, IGNIS_SHAPE(6), &desc).id, IGNIS_ERROR_ARGUMENT,
                  IGNIS_DIAG_COUNT_MISMATCH);
    desc.host_count = 0;
    tensor = ignis_tensor_from_host(data, IGNIS_SHAPE(5), &desc);
    CHECK_NUMBER(value_at(tensor, 4), 5);
    let_go(tensor);
}

TEST(from_host_on_another_device)
{
    static const float values[2] = {5, 6};
    ignis_tensor_desc desc = tensor_desc(IGNIS_F32, false);
    ignis_tensor tensor;
    SETUP(NULL);
    NEEDS_DEVICES(2);
    desc.device = 1;
    tensor = ignis_tensor_from_host(values, IGNIS_SHAPE(2), &desc);
    CHECK_INT(tensor_info(tensor).device, 1);
    CHECK_NUMBER(value_at(tensor, 1), 6);
    CHECK_OK(ignis_device_use(1));
    desc.device = IGNIS_DEVICE_0;
    let_go(tensor);
    tensor = ignis_tensor_from_host(values, IGNIS_SHAPE(2), &desc);
    CHECK_INT(tensor_info(tensor).device, 0);
    let_go(tensor);
    CHECK_OK(ignis_device_use(0));
}

TEST(zeros_and_ones)
{
    int i, k;
    SETUP(NULL);
    for (i = 0; i < 7; i++) {
        ignis_tensor_desc desc = tensor_desc(dtypes[i], false);
        ignis_tensor zeros = ignis_tensor_zeros(IGNIS_SHAPE(5, 7), &desc),
                     ones = ignis_tensor_ones(IGNIS_SHAPE(5, 7), &desc);
        double *z = tensor_values(zeros), *o = tensor_values(ones);
        int wrong = 0;
        for (k = 0; k < 35; k++)
            wrong += z[k] != 0 || o[k] != 1;
        CHECK_INT(wrong, 0);
        free(z);
        free(o);
        let_go(zeros);
        let_go(ones);
        zeros = ignis_tensor_zeros(IGNIS_SHAPE(0), &desc);
        ones = ignis_tensor_ones(IGNIS_SHAPE(2, 0), &desc);
        CHECK_INT(numel_of(zeros), 0);
        CHECK_INT(numel_of(ones), 0);
        let_go(zeros);
        let_go(ones);
    }
    CHECK_REFUSED(0, ignis_tensor_zeros(IGNIS_SHAPE(-1), NULL).id, IGNIS_ERROR_SHAPE, IGNIS_DIAG_SHAPE_DIM);
    CHECK_REFUSED(0, ignis_tensor_ones(IGNIS_SHAPE(-1), NULL).id, IGNIS_ERROR_SHAPE, IGNIS_DIAG_SHAPE_DIM);
}

TEST(making_needs_a_setup)
{
    static const float value = 1;
    CHECK_REFUSED(0, ignis_tensor_from_host(&value, IGNIS_SHAPE(1), NULL).id, IGNIS_ERROR_NOT_SETUP,
                  IGNIS_DIAG_NOT_SETUP);
    CHECK_REFUSED(0, ignis_tensor_zeros(IGNIS_SHAPE(1), NULL).id, IGNIS_ERROR_NOT_SETUP, IGNIS_DIAG_NOT_SETUP);
    CHECK_REFUSED(0, ignis_scope_begin().id, IGNIS_ERROR_NOT_SETUP, IGNIS_DIAG_NOT_SETUP);
    CHECK_STATUS(ignis_seed(1), IGNIS_ERROR_NOT_SETUP, IGNIS_DIAG_NOT_SETUP);
    CHECK_STATUS(ignis_no_grad_begin(), IGNIS_ERROR_NOT_SETUP, IGNIS_DIAG_NOT_SETUP);
    CHECK_STATUS(ignis_no_grad_end(), IGNIS_ERROR_NOT_SETUP, IGNIS_DIAG_NOT_SETUP);
    CHECK_STATUS(ignis_tape_clear(), IGNIS_ERROR_NOT_SETUP, IGNIS_DIAG_NOT_SETUP);
    CHECK_REFUSED(-1, ignis_tape_length(), IGNIS_ERROR_NOT_SETUP, IGNIS_DIAG_NOT_SETUP);
    CHECK_REFUSED(-1, ignis_tensor_to_string(no_tensor(), NULL, 0), IGNIS_ERROR_NOT_SETUP, IGNIS_DIAG_NOT_SETUP);
}

/* --- random numbers ---------------------------------------------------------------------------------------------- */

/*  Philox 4x32-10 (Salmon et al. 2011) */
static void philox(uint64_t seed, uint64_t counter, uint64_t stream, uint32_t out[4])
{
    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
    uint32_t c0 = (uint32_t)counter, c1 = (uint32_t)(counter >> 32), c2 = (uint32_t)stream,
             c3 = (uint32_t)(stream >> 32);
    int round;
    for (round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)c0 * 0xD2511F53u, p1 = (uint64_t)c2 * 0xCD9E8D57u;
        uint32_t n0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0, n2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c1 = (uint32_t)p1, c3 = (uint32_t)p0, c0 = n0, c2 = n2;
        k0 += 0x9E3779B9u, k1 += 0xBB67AE85u;
    }
    out[0] = c0, out[1] = c1, out[2] = c2, out[3] = c3;
}

TEST(philox_reference_gives_the_published_vectors)
{
    uint32_t out[4];
    philox(0, 0, 0, out);
    CHECK(out[0] == 0x6627E8D5u && out[1] == 0xE169C58Du && out[2] == 0xBC57AC4Cu && out[3] == 0x9B00DBD8u);
    philox(UINT64_MAX, UINT64_MAX, UINT64_MAX, out);
    CHECK(out[0] == 0x408F276Du && out[1] == 0x41C83B0Eu && out[2] == 0xA20BC7C6u && out[3] == 0x6D5451FDu);
}

TEST(rand_is_philox)
{
    enum { COUNT = 4099 };
    static float values[COUNT];
    ignis_tensor first, second;
    uint32_t words[4];
    int i, wrong = 0;
    SETUP(NULL);
    CHECK_OK(ignis_seed(UINT64_C(0x123456789ABCDEF0)));
    first = ignis_tensor_rand(IGNIS_SHAPE(5), NULL); /* takes 2 counters */
    second = ignis_tensor_rand(IGNIS_SHAPE(COUNT), NULL);
    CHECK_OK(ignis_tensor_to_host(first, values, IGNIS_F32, 5));
    philox(UINT64_C(0x123456789ABCDEF0), 1, 0, words);
    CHECK(values[4] == (float)(words[0] >> 8) * (1.0f / 16777216));
    CHECK_OK(ignis_tensor_to_host(second, values, IGNIS_F32, COUNT));
    for (i = 0; i < COUNT; i++) {
        philox(UINT64_C(0x123456789ABCDEF0), 2 + (uint64_t)i / 4, 0, words);
        wrong += values[i] != (float)(words[i % 4] >> 8) * (1.0f / 16777216);
    }
    CHECK_INT(wrong, 0);
    let_go(first);
    let_go(second);
}

TEST(rand_lies_between_0_and_1)
{
    enum { COUNT = 20000 };
    static double values[COUNT];
    int d, i;
    SETUP(NULL);
    for (d = 0; d < 4; d++) {
        ignis_tensor_desc desc = tensor_desc(float_dtypes[d], false);
        ignis_tensor tensor;
        double sum = 0, squares = 0, low = 1, high = 0;
        CHECK_OK(ignis_seed(7));
        tensor = ignis_tensor_rand(IGNIS_SHAPE(COUNT), &desc);
        CHECK_OK(ignis_tensor_to_host(tensor, values, IGNIS_F64, COUNT));
        for (i = 0; i < COUNT; i++) {
            sum += values[i], squares += values[i] * values[i];
            low = values[i] < low ? values[i] : low, high = values[i] > high ? values[i] : high;
        }
        CHECK(low >= 0 && low < 0.01);
        CHECK(high < 1 && high > 0.99);
        CHECK_CLOSE(sum / COUNT, 0.5, 0.01);
        CHECK_CLOSE(squares / COUNT, 1.0 / 3, 0.01);
        let_go(tensor);
    }
}

TEST(randn_is_standard_normal)
{
    enum { COUNT = 20000 };
    static double values[COUNT], wide[COUNT];
    int d, i;
    SETUP(NULL);
    for (d = 0; d < 4; d++) {
        ignis_tensor_desc desc = tensor_desc(float_dtypes[d], false);
        ignis_tensor tensor;
        double sum = 0, squares = 0, fourth = 0;
        int wrong = 0;
        CHECK_OK(ignis_seed(11));
        tensor = ignis_tensor_randn(IGNIS_SHAPE(COUNT), &desc);
        CHECK_OK(ignis_tensor_to_host(tensor, values, IGNIS_F64, COUNT));
        if (d == 0)
            memcpy(wide, values, sizeof wide);
        for (i = 0; i < COUNT; i++) {
            double x = values[i];
            sum += x, squares += x * x, fourth += x * x * x * x;
            wrong +=
                x != ref_to_double(float_dtypes[d], ref_convert(float_dtypes[d], IGNIS_F64, ref_from_double(wide[i])));
        }
        CHECK_INT(wrong, 0); /* every dtype has the same numbers, but for the rounding */
        CHECK_CLOSE(sum / COUNT, 0, 0.03);
        CHECK_CLOSE(squares / COUNT, 1, 0.04);
        CHECK_CLOSE(fourth / COUNT, 3, 0.1);
        let_go(tensor);
    }
}

/*  Box and Muller from the two words of each number, by the C library. */
TEST(randn_is_box_and_muller_over_philox)
{
    enum { COUNT = 1001 };
    static double values[COUNT];
    ignis_tensor_desc desc = tensor_desc(IGNIS_F64, false);
    ignis_tensor tensor;
    uint32_t high[4], low[4];
    int i;
    SETUP(NULL);
    CHECK_OK(ignis_seed(3));
    tensor = ignis_tensor_randn(IGNIS_SHAPE(COUNT), &desc);
    CHECK_OK(ignis_tensor_to_host(tensor, values, IGNIS_F64, COUNT));
    for (i = 0; i < COUNT; i++) {
        int a = i % 4 / 2 * 2, b = a + 1;
        double u1, u2, r;
        philox(3, (uint64_t)i / 4, 0, high);
        philox(3, (uint64_t)i / 4, UINT64_C(1) << 63, low);
        u1 = (double)(((uint64_t)high[a] << 21 | low[a] >> 11) + 1) / 9007199254740992.0;
        u2 = (double)((uint64_t)high[b] << 21 | low[b] >> 11) / 9007199254740992.0;
        r = sqrt(-2 * log(u1));
        CHECK_CLOSE(values[i], i % 2 ? r * sin(6.283185307179586477 * u2) : r * cos(6.283185307179586477 * u2), 1e-12);
    }
    let_go(tensor);
}

static bool equal_values(ignis_tensor a, ignis_tensor b)
{
    double *x = tensor_values(a), *y = tensor_values(b);
    int64_t n = numel_of(a);
    bool equal = n == numel_of(b) && memcmp(x, y, sizeof *x * (size_t)n) == 0;
    free(x);
    free(y);
    return equal;
}

TEST(seed_starts_the_sequence_anew)
{
    ignis_tensor t[6];
    int i;
    SETUP(NULL);
    t[0] = ignis_tensor_rand(IGNIS_SHAPE(100), NULL); /* the seed is 0 */
    t[1] = ignis_tensor_rand(IGNIS_SHAPE(100), NULL);
    CHECK_OK(ignis_seed(0));
    t[2] = ignis_tensor_rand(IGNIS_SHAPE(10, 10), NULL);
    t[3] = ignis_tensor_rand(IGNIS_SHAPE(100), NULL);
    CHECK_OK(ignis_seed(1));
    t[4] = ignis_tensor_rand(IGNIS_SHAPE(100), NULL);
    CHECK_OK(ignis_seed(UINT64_C(1) << 32));
    t[5] = ignis_tensor_rand(IGNIS_SHAPE(100), NULL);
    CHECK(equal_values(t[0], t[2]));
    CHECK(equal_values(t[1], t[3]));
    CHECK(!equal_values(t[0], t[1]));
    CHECK(!equal_values(t[0], t[4]));
    CHECK(!equal_values(t[0], t[5]));
    CHECK(!equal_values(t[4], t[5]));
    for (i = 0; i < 6; i++)
        let_go(t[i]);
}

static void *random_thread(void *arg)
{
    *(ignis_tensor *)arg = ignis_tensor_rand(IGNIS_SHAPE(50), NULL);
    CHECK_INT(ignis_status_last(), IGNIS_OK);
    return NULL;
}

TEST(each_thread_has_its_own_sequence)
{
    ignis_tensor mine, its;
    pthread_t thread;
    SETUP(NULL);
    mine = ignis_tensor_rand(IGNIS_SHAPE(50), NULL);
    REQUIRE(pthread_create(&thread, NULL, random_thread, &its) == 0);
    pthread_join(thread, NULL);
    CHECK(equal_values(mine, its)); /* it begins with seed 0, too */
    let_go(mine);
    let_go(its);
}

TEST(random_integers_are_refused)
{
    int i;
    SETUP(NULL);
    for (i = 4; i < 7; i++) {
        ignis_tensor_desc desc = tensor_desc(dtypes[i], false);
        CHECK(ignis_tensor_rand(IGNIS_SHAPE(3), &desc).id == 0);
        CHECK_INT(ignis_status_last(), IGNIS_ERROR_DTYPE);
        ignis_status_clear();
        CHECK(ignis_tensor_randn(IGNIS_SHAPE(3), &desc).id == 0);
        CHECK_INT(ignis_status_last(), IGNIS_ERROR_DTYPE);
        ignis_status_clear();
    }
    CHECK_REFUSED(0, ignis_tensor_rand(IGNIS_SHAPE(-3), NULL).id, IGNIS_ERROR_SHAPE, IGNIS_DIAG_SHAPE_DIM);
    CHECK_REFUSED(0, ignis_tensor_randn(IGNIS_SHAPE(-3), NULL).id, IGNIS_ERROR_SHAPE, IGNIS_DIAG_SHAPE_DIM);
}

TEST(random_tensors_may_be_empty_or_odd)
{
    static const int64_t sizes[] = {0, 1, 2, 3, 5, 4095, 4097};
    int i, d;
    SETUP(NULL);
    for (i = 0; i < COUNT_OF(sizes); i++) {
        for (d = 0; d < 4; d++) {
            ignis_tensor_desc desc = tensor_desc(float_dtypes[d], true);
            ignis_tensor a = ignis_tensor_rand(IGNIS_SHAPE(sizes[i]), &desc),
                         b = ignis_tensor_randn(IGNIS_SHAPE(sizes[i]), &desc);
            CHECK_INT(numel_of(a), sizes[i]);
            CHECK_INT(numel_of(b), sizes[i]);
            CHECK(tensor_info(a).requires_grad);
            free(tensor_values(a));
            free(tensor_values(b));
            let_go(a);
            let_go(b);
        }
    }
}

/* --- sharing memory ---------------------------------------------------------------------------------------------- */

TEST(from_array_shares_memory)
{
    ignis_array array;
    ignis_tensor tensor;
    SETUP(NULL);
    array = test_array(2, 3);
    tensor = ignis_tensor_from_array(array, true);
    CHECK(tensor_info(tensor).requires_grad);
    CHECK(ignis_array_device_ptr(array) == ignis_array_device_ptr(ignis_tensor_data(tensor)));
    CHECK_OK(ignis_array_fill(array, 9));
    CHECK_NUMBER(value_at(tensor, 5), 9);
    CHECK_OK(ignis_array_fill(ignis_tensor_data(tensor), 4));
    CHECK_NUMBER(array_at(array, 0), 4);
    drop(array); /* the memory lives on */
    CHECK_NUMBER(value_at(tensor, 1), 4);
    let_go(tensor);
    CHECK_INT(memory().live_blocks, 0);

    array = test_array(2, 3);
    tensor = ignis_tensor_from_array(array, false);
    let_go(tensor); /* the other way round */
    CHECK_NUMBER(array_at(array, 5), 5);
    drop(array);
    CHECK_INT(memory().live_blocks, 0);
}

TEST(from_array_of_a_slice)
{
    ignis_array array, rows;
    ignis_tensor tensor;
    SETUP(NULL);
    array = test_array(4, 3);
    rows = ignis_array_slice(array, 0, 1, 2);
    tensor = ignis_tensor_from_array(rows, false);
    drop(rows);
    drop(array);
    CHECK_SHAPE_IS(tensor, IGNIS_SHAPE(2, 3));
    CHECK_NUMBER(value_at(tensor, 0), 3);
    CHECK_NUMBER(value_at(tensor, 5), 8);
    let_go(tensor);
}

TEST(from_array_refuses)
{
    ignis_array array, none = {0};
    SETUP(NULL);
    array = make_counting(IGNIS_SHAPE(4), 0);
    CHECK_REFUSED(0, ignis_tensor_from_array(array, true).id, IGNIS_ERROR_DTYPE, IGNIS_DIAG_GRAD_OF_INTEGERS);
    CHECK_MESSAGE_HAS("i32");
    drop(array); /* the refusal has left nothing that holds it */
    CHECK_REFUSED(0, ignis_tensor_from_array(array, false).id, IGNIS_ERROR_FREED, IGNIS_DIAG_ARRAY_FREED);
    CHECK_REFUSED(0, ignis_tensor_from_array(none, false).id, IGNIS_ERROR_FREED, IGNIS_DIAG_ARRAY_FREED);
    CHECK_INT(memory().live_blocks, 0);
}

TEST(an_array_that_was_never_written_is_not_read)
{
    ignis_array array;
    ignis_tensor tensor;
    float value[4];
    SETUP(NULL);
    array = make(IGNIS_SHAPE(4), IGNIS_F32);
    tensor = ignis_tensor_from_array(array, false);
    CHECK_STATUS(ignis_tensor_to_host(tensor, value, IGNIS_F32, 4), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_ARRAY_UNWRITTEN);
    drop(array);
    let_go(tensor);
}

TEST(data_and_grad_belong_to_the_tensor)
{
    ignis_tensor tensor;
    ignis_array data, grad;
    ignis_status status;
    SETUP(NULL);
    tensor = tensor_counting(IGNIS_SHAPE(3), IGNIS_F32, 1, true);
    CHECK_INT(ignis_tensor_grad(tensor).id, 0); /* no failure */
    CHECK_INT(ignis_status_last(), IGNIS_OK);
    CHECK_OK(ignis_zero_grad(tensor));
    data = ignis_tensor_data(tensor);
    grad = ignis_tensor_grad(tensor);
    CHECK_STATUS(ignis_array_free(data), IGNIS_ERROR_CONTRACT, IGNIS_DIAG_FREE_REFERENCED);
    CHECK_MESSAGE_HAS("ref_count is 1, not 0: it is the data of a tensor");
    CHECK_STATUS(ignis_array_free(grad), IGNIS_ERROR_CONTRACT, IGNIS_DIAG_FREE_REFERENCED);
    CHECK_MESSAGE_HAS("it is the gradient of a tensor");
    CHECK_NUMBER(value_at(tensor, 2), 3);
    CHECK_NUMBER(grad_at(tensor, 2), 0);
    let_go(tensor);
    CHECK(!ignis_array_is_live(data));
    CHECK(!ignis_array_is_live(grad));
    status = ignis_array_free(data);
    CHECK_INT(status, IGNIS_ERROR_FREED);
    ignis_status_clear();
    CHECK_INT(memory().live_blocks, 0);
}

TEST(a_reference_of_the_caller_keeps_the_array)
{
    ignis_tensor tensor;
    ignis_array data;
    SETUP(NULL);
    tensor = tensor_counting(IGNIS_SHAPE(3), IGNIS_F32, 1, false);
    data = ignis_tensor_data(tensor);
    CHECK_INT(ignis_array_increment_ref(data), 2);
    let_go(tensor);
    CHECK(ignis_array_is_live(data));
    CHECK_NUMBER(array_at(data, 2), 3);
    CHECK_INT(ignis_array_decrement_ref(data), 0);
    CHECK(!ignis_array_is_live(data)); /* it belonged to its references */
    CHECK_INT(memory().live_blocks, 0);
}

TEST(a_reference_that_was_not_the_callers)
{
    ignis_tensor tensor;
    ignis_array data;
    SETUP(NULL);
    tensor = tensor_counting(IGNIS_SHAPE(3), IGNIS_F32, 1, false);
    data = ignis_tensor_data(tensor);
    ignis_array_decrement_ref(data); /* takes the tensor's */
    ignis_status_clear();
    CHECK(ignis_tensor_to_host(tensor, NULL, IGNIS_F32, 3) != IGNIS_OK); /* and no crash */
    ignis_status_clear();
    let_go(tensor);
    CHECK_INT(memory().live_blocks, 0);
}

TEST(detach_shares_memory)
{
    ignis_tensor a, b, product;
    SETUP(NULL);
    a = tensor_counting(IGNIS_SHAPE(3), IGNIS_F32, 1, true);
    product = user_mul(a, a);
    b = ignis_detach(product);
    CHECK(!tensor_info(b).requires_grad);
    CHECK(tensor_info(b).is_leaf);
    CHECK_TEXT(tensor_info(b).operation, "");
    CHECK_TEXT(tensor_info(product).operation, "user_mul");
    CHECK(tensor_info(product).requires_grad);
    CHECK(!tensor_info(product).is_leaf);
    CHECK(ignis_array_device_ptr(ignis_tensor_data(b)) == ignis_array_device_ptr(ignis_tensor_data(product)));
    let_go(product);
    CHECK_NUMBER(value_at(b, 2), 9);
    let_go(b);
    CHECK_FAILS(ignis_detach(b), IGNIS_ERROR_FREED, IGNIS_DIAG_TENSOR_FREED);
    let_go(a);
    CHECK_INT(memory().live_blocks, 0);
}

/* --- reading ----------------------------------------------------------------------------------------------------- */

TEST(item_of_every_dtype)
{
    static const double value = 7;
    int i;
    SETUP(NULL);
    for (i = 0; i < 7; i++) {
        ignis_tensor tensor = tensor_of(&value, IGNIS_SHAPE(1, 1, 1), dtypes[i], false);
        CHECK_NUMBER(ignis_item(tensor), 7);
        let_go(tensor);
    }
}

TEST(item_refuses)
{
    ignis_tensor tensor, none = {0};
    SETUP(NULL);
    tensor = tensor_counting(IGNIS_SHAPE(2, 3), IGNIS_F32, 1, false);
    CHECK(ignis_item(tensor) != ignis_item(tensor));
    CHECK_INT(ignis_status_last(), IGNIS_ERROR_SHAPE);
    CHECK_HAS(ignis_status_message(), "[2, 3]");
    ignis_status_clear();
    let_go(tensor);
    tensor = ignis_tensor_zeros(IGNIS_SHAPE(0), NULL);
    CHECK_FAILS(ignis_item(tensor), IGNIS_ERROR_SHAPE, IGNIS_DIAG_SHAPE_DIFFERS);
    let_go(tensor);
    CHECK_FAILS(ignis_item(tensor), IGNIS_ERROR_FREED, IGNIS_DIAG_TENSOR_FREED);
    CHECK_FAILS(ignis_item(none), IGNIS_ERROR_FREED, IGNIS_DIAG_TENSOR_FREED);
}

TEST(items_of_large_integers)
{
    static const int64_t exact[] = {
        0, -1, INT64_C(9007199254740992), INT64_C(-9007199254740994), INT64_C(1) << 62, INT64_MIN};
    static const int64_t inexact[] = {INT64_C(9007199254740993), INT64_C(-9007199254740993), INT64_MAX, INT64_MIN + 1};
    ignis_tensor_desc desc = tensor_desc(IGNIS_I64, false);
    ignis_tensor tensor;
    double item;
    int i;
    SETUP(NULL);
    for (i = 0; i < 6; i++) {
        tensor = ignis_tensor_from_host(&exact[i], IGNIS_SHAPE(1), &desc);
        CHECK_NUMBER(ignis_item(tensor), (double)exact[i]);
        CHECK(ignis_item_i64(tensor) == exact[i]);
        let_go(tensor);
    }
    CHECK_OK(ignis_status_last());
    for (i = 0; i < 4; i++) {
        tensor = ignis_tensor_from_host(&inexact[i], IGNIS_SHAPE(1), &desc);
        item = ignis_item(tensor);
        CHECK(item != item);
        ignis_status_clear();
        CHECK_FAILS(ignis_item(tensor), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
        CHECK_MESSAGE_HAS("ignis_item_i64");
        CHECK(ignis_item_i64(tensor) == inexact[i]);
        let_go(tensor);
    }
    CHECK_OK(ignis_status_last());
    for (i = 0; i < 7; i++) {
        static const double value = 200;
        tensor = tensor_of(&value, IGNIS_SHAPE(1, 1), dtypes[i], false);
        if (i >= 4)
            CHECK_INT(ignis_item_i64(tensor), 200);
        else
            CHECK_REFUSED(INT64_MIN, ignis_item_i64(tensor), IGNIS_ERROR_DTYPE, IGNIS_DIAG_DTYPE_DIFFERS);
        let_go(tensor);
    }
    CHECK_REFUSED(INT64_MIN, ignis_item_i64(tensor), IGNIS_ERROR_FREED, IGNIS_DIAG_TENSOR_FREED);
    tensor = ignis_tensor_zeros(IGNIS_SHAPE(2), &desc);
    CHECK_REFUSED(INT64_MIN, ignis_item_i64(tensor), IGNIS_ERROR_SHAPE, IGNIS_DIAG_SHAPE_DIFFERS);
    let_go(tensor);
}

TEST(shape_numel_and_text)
{
    ignis_tensor_desc desc = tensor_desc(IGNIS_F64, true);
    ignis_tensor leaf, result, ids;
    char text[128];
    SETUP(NULL);
    desc.tag = "weights";
    leaf = ignis_tensor_ones(IGNIS_SHAPE(3, 0, 5), &desc);
    result = user_scale(leaf, 2);
    ids = tensor_counting(IGNIS_SHAPE(7), IGNIS_I64, 1, false);
    CHECK_INT(ignis_tensor_shape(leaf).ndim, 3);
    CHECK_INT(ignis_tensor_shape(leaf).dim[2], 5);
    CHECK_INT(ignis_tensor_numel(leaf), 0);
    CHECK_INT(ignis_tensor_numel(ids), 7);
    CHECK_INT(ignis_tensor_to_string(leaf, text, sizeof text), 70);
    CHECK_TEXT(text, "tensor [3, 0, 5] f64 on device 0, leaf, requires a gradient, 'weights'");
    CHECK_INT(ignis_tensor_to_string(leaf, NULL, 0), 70);
    CHECK_INT(ignis_tensor_to_string(leaf, text, 7), 70);
    CHECK_TEXT(text, "tensor");
    ignis_tensor_to_string(result, text, sizeof text);
    CHECK_TEXT(text, "tensor [3, 0, 5] f64 on device 0, result of user_scale");
    CHECK_OK(ignis_tape_clear());
    ignis_tensor_to_string(result, text, sizeof text);
    CHECK_TEXT(text, "tensor [3, 0, 5] f64 on device 0, result of an operation that was released");
    ignis_tensor_to_string(ids, text, sizeof text);
    CHECK_TEXT(text, "tensor [7] i64 on device 0, leaf");
    CHECK_REFUSED(-1, ignis_tensor_to_string(ids, NULL, 5), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NULL_ARGUMENT);
    let_go(result), let_go(leaf), let_go(ids);
    ignis_tensor_to_string(ids, text, sizeof text);
    CHECK_HAS(text, "tensor handle 0x");
    CHECK_HAS(text, " (freed)");
    CHECK_REFUSED(-1, ignis_tensor_numel(ids), IGNIS_ERROR_FREED, IGNIS_DIAG_TENSOR_FREED);
    CHECK_REFUSED(0, ignis_tensor_shape(ids).ndim, IGNIS_ERROR_FREED, IGNIS_DIAG_TENSOR_FREED);
}

TEST(to_host_converts_and_refuses)
{
    ignis_tensor tensor;
    float floats[6];
    uint8_t bytes[6];
    SETUP(NULL);
    tensor = tensor_counting(IGNIS_SHAPE(2, 3), IGNIS_BF16, 1, false);
    CHECK_OK(ignis_tensor_to_host(tensor, bytes, IGNIS_U8, 6));
    CHECK_INT(bytes[5], 6);
    CHECK_OK(ignis_tensor_to_host(tensor, floats, IGNIS_F32, 6));
    CHECK_NUMBER(floats[5], 6);
    CHECK_STATUS(ignis_tensor_to_host(tensor, floats, IGNIS_F32, 5), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_COUNT_MISMATCH);
    CHECK_STATUS(ignis_tensor_to_host(tensor, NULL, IGNIS_F32, 6), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NULL_ARGUMENT);
    CHECK_STATUS(ignis_tensor_to_host(tensor, floats, (ignis_dtype)77, 6), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_ENUM);
    CHECK_STATUS(ignis_tensor_query(tensor, NULL), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NULL_ARGUMENT);
    let_go(tensor);
}

TEST(stale_handles_are_refused_everywhere)
{
    ignis_tensor tensor, of_array;
    ignis_tensor_info info;
    ignis_array array, none = {0};
    ignis_rule rule;
    float value;
    int which;
    SETUP(NULL);
    array = test_array(1, 1);
    tensor = tensor_counting(IGNIS_SHAPE(1), IGNIS_F32, 1, true);
    let_go(tensor);
    of_array.id = array.id;
    memset(&rule, 0, sizeof rule);
    rule.name = "nothing";
    rule.backward_fn = user_add_backward;
    for (which = 0; which < 3; which++) {
        ignis_tensor bad = {0};
        ignis_diagnostic diagnostic = which == 1 ? IGNIS_DIAG_WRONG_KIND : IGNIS_DIAG_TENSOR_FREED;
        bad.id = which == 0 ? tensor.id : which == 1 ? of_array.id : 0;
        if (bad.id)
            CHECK_STATUS(ignis_tensor_release(bad), IGNIS_ERROR_FREED, diagnostic);
        CHECK_REFUSED(0, ignis_tensor_data(bad).id, IGNIS_ERROR_FREED, diagnostic);
        CHECK_REFUSED(0, ignis_tensor_grad(bad).id, IGNIS_ERROR_FREED, diagnostic);
        CHECK_STATUS(ignis_tensor_query(bad, &info), IGNIS_ERROR_FREED, diagnostic);
        CHECK_STATUS(ignis_tensor_to_host(bad, &value, IGNIS_F32, 1), IGNIS_ERROR_FREED, diagnostic);
        CHECK_FAILS(ignis_item(bad), IGNIS_ERROR_FREED, diagnostic);
        CHECK_REFUSED(0, ignis_detach(bad).id, IGNIS_ERROR_FREED, diagnostic);
        CHECK_STATUS(ignis_zero_grad(bad), IGNIS_ERROR_FREED, diagnostic);
        CHECK_STATUS(ignis_tensor_set_grad(bad, none), IGNIS_ERROR_FREED, diagnostic);
        CHECK_REFUSED(-1, ignis_tensor_numel(bad), IGNIS_ERROR_FREED, diagnostic);
        CHECK_REFUSED(0, ignis_tensor_shape(bad).ndim, IGNIS_ERROR_FREED, diagnostic);
        CHECK_REFUSED(INT64_MIN, ignis_item_i64(bad), IGNIS_ERROR_FREED, diagnostic);
        CHECK_STATUS(ignis_backward(bad, none), IGNIS_ERROR_FREED, diagnostic);
        CHECK_STATUS(ignis_backward_retain(bad, none), IGNIS_ERROR_FREED, diagnostic);
        CHECK_STATUS(ignis_tape_record(bad, NULL, 0, &rule), IGNIS_ERROR_FREED, diagnostic);
        CHECK_REFUSED(-1, ignis_tape_dot(bad, NULL, 0), IGNIS_ERROR_FREED, diagnostic);
        CHECK_REFUSED(0, ignis_reshape(bad, IGNIS_SHAPE(1)).id, IGNIS_ERROR_FREED, diagnostic);
        CHECK_REFUSED(0, ignis_slice(bad, 0, 0, 1).id, IGNIS_ERROR_FREED, diagnostic);
        CHECK_REFUSED(0, ignis_matmul(bad, bad).id, IGNIS_ERROR_FREED, diagnostic);
    }
    tensor.id = array.id; /* and a tensor's handle is no array */
    drop(array);
}

/*  A chain of operations is checked once, at its end. */
TEST(a_handle_of_0_leaves_the_first_failure)
{
    ignis_tensor a, b, c;
    ignis_status_info info;
    SETUP(NULL);
    a = tensor_counting(IGNIS_SHAPE(2, 3), IGNIS_F32, 1, true);
    b = ignis_reshape(a, IGNIS_SHAPE(4));
    CHECK_INT(b.id, 0);
    c = ignis_reshape(b, IGNIS_SHAPE(6));
    CHECK_INT(c.id, 0);
    CHECK(ignis_item(c) != 0);
    CHECK(ignis_backward(c, IGNIS_NO_ARRAY) != IGNIS_OK);
    CHECK_INT(ignis_status_query(&info), IGNIS_ERROR_SHAPE);
    CHECK_TEXT(info.call, "ignis_reshape");
    CHECK_HAS(info.message, "[2, 3] cannot become [4]");
    ignis_status_clear();
    let_go(a);
}

/* --- scopes ------------------------------------------------------------------------------------------------------ */

static bool is_live(ignis_tensor tensor)
{
    ignis_tensor_info info;
    bool live = ignis_tensor_query(tensor, &info) == IGNIS_OK;
    ignis_status_clear();
    return live;
}

TEST(a_scope_releases_what_was_made_in_it)
{
    ignis_scope scope;
    ignis_tensor before, inside[100], after;
    int i;
    SETUP(NULL);
    before = ignis_tensor_zeros(IGNIS_SHAPE(2), NULL);
    scope = ignis_scope_begin();
    CHECK(scope.id != 0);
    for (i = 0; i < 100; i++)
        inside[i] = i % 2 ? ignis_tensor_zeros(IGNIS_SHAPE(2), NULL) : ignis_detach(before);
    CHECK_OK(ignis_scope_end(scope));
    after = ignis_tensor_zeros(IGNIS_SHAPE(2), NULL);
    for (i = 0; i < 100; i++)
        CHECK(!is_live(inside[i]));
    CHECK(is_live(before));
    CHECK(is_live(after));
    let_go(before);
    let_go(after);
    CHECK_INT(memory().live_blocks, 0);
}

TEST(scopes_nest)
{
    ignis_scope scope[50];
    ignis_tensor tensor[50];
    int i;
    SETUP(NULL);
    for (i = 0; i < 50; i++) {
        scope[i] = ignis_scope_begin();
        tensor[i] = ignis_tensor_ones(IGNIS_SHAPE(3), NULL);
    }
    for (i = 49; i >= 0; i--) {
        CHECK(is_live(tensor[i]));
        CHECK_OK(ignis_scope_end(scope[i]));
        CHECK(!is_live(tensor[i]));
        CHECK(i == 0 || is_live(tensor[i - 1]));
    }
}

TEST(a_scope_returns_a_tensor_to_the_enclosing_one)
{
    ignis_scope outer, inner;
    ignis_tensor kept, lost, out;
    SETUP(NULL);
    outer = ignis_scope_begin();
    inner = ignis_scope_begin();
    lost = ignis_tensor_zeros(IGNIS_SHAPE(2), NULL);
    kept = ignis_tensor_ones(IGNIS_SHAPE(2), NULL);
    out = ignis_scope_return(inner, kept);
    CHECK_INT(out.id, kept.id);
    CHECK(!is_live(lost));
    CHECK(is_live(kept));
    out = ignis_scope_return(outer, out); /* and out of all scopes: the caller's */
    CHECK(is_live(out));
    CHECK_NUMBER(value_at(out, 1), 1);
    let_go(out);
}

TEST(a_returned_tensor_ends_with_the_enclosing_scope)
{
    ignis_scope outer, inner;
    ignis_tensor kept;
    SETUP(NULL);
    outer = ignis_scope_begin();
    inner = ignis_scope_begin();
    kept = ignis_scope_return(inner, ignis_tensor_ones(IGNIS_SHAPE(2), NULL));
    CHECK(is_live(kept));
    CHECK_OK(ignis_scope_end(outer));
    CHECK(!is_live(kept));
}

TEST(a_scope_returns_what_is_not_its_own)
{
    ignis_scope outer, inner;
    ignis_tensor from_outside, from_outer, none = {0};
    SETUP(NULL);
    from_outside = ignis_tensor_ones(IGNIS_SHAPE(2), NULL);
    outer = ignis_scope_begin();
    from_outer = ignis_tensor_ones(IGNIS_SHAPE(2), NULL);
    inner = ignis_scope_begin();
    CHECK_INT(ignis_scope_return(inner, from_outside).id, from_outside.id);
    inner = ignis_scope_begin();
    CHECK_INT(ignis_scope_return(inner, from_outer).id, from_outer.id);
    inner = ignis_scope_begin();
    CHECK_INT(ignis_scope_return(inner, none).id, 0); /* a layer that has failed */
    CHECK_OK(ignis_scope_end(outer));
    CHECK(!is_live(from_outer));
    CHECK(is_live(from_outside)); /* nobody's scope has it */
    let_go(from_outside);
}

TEST(scopes_end_in_order)
{
    ignis_scope outer, inner, none = {0};
    ignis_tensor tensor;
    SETUP(NULL);
    CHECK_STATUS(ignis_scope_end(none), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_SCOPE_ORDER);
    outer = ignis_scope_begin();
    tensor = ignis_tensor_ones(IGNIS_SHAPE(2), NULL);
    inner = ignis_scope_begin();
    CHECK_STATUS(ignis_scope_end(outer), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_SCOPE_ORDER);
    CHECK_MESSAGE_HAS("2 open");
    CHECK(is_live(tensor));
    CHECK_INT(ignis_scope_return(outer, tensor).id, tensor.id);
    CHECK_INT(ignis_status_last(), IGNIS_ERROR_ARGUMENT);
    ignis_status_clear();
    CHECK_OK(ignis_scope_end(inner));
    CHECK_STATUS(ignis_scope_end(inner), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_SCOPE_ORDER);
    CHECK(is_live(tensor));
    CHECK_OK(ignis_scope_end(outer));
    CHECK_STATUS(ignis_scope_end(outer), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_SCOPE_ORDER);
    CHECK(!is_live(tensor));
}

TEST(release_inside_a_scope)
{
    ignis_scope scope;
    ignis_tensor tensor, other;
    SETUP(NULL);
    scope = ignis_scope_begin();
    tensor = ignis_tensor_ones(IGNIS_SHAPE(2), NULL);
    let_go(tensor);
    other = ignis_tensor_ones(IGNIS_SHAPE(2), NULL); /* may take the same slot */
    CHECK(other.id != tensor.id);
    CHECK_OK(ignis_scope_end(scope));
    CHECK_INT(ignis_status_last(), IGNIS_OK);
    CHECK(!is_live(other));
    scope = ignis_scope_begin();
    tensor = ignis_tensor_ones(IGNIS_SHAPE(2), NULL);
    let_go(tensor);
    CHECK_INT(ignis_scope_return(scope, tensor).id, tensor.id);
    CHECK(!is_live(tensor));
}

/*  A slot that is taken again elsewhere must not be released by the scope of the old tensor. */
TEST(a_scope_leaves_the_next_tensor_of_a_slot_alone)
{
    ignis_scope scope;
    ignis_tensor old, mine, none = {0};
    ignis_scope inner;
    SETUP(NULL);
    scope = ignis_scope_begin();
    old = ignis_tensor_ones(IGNIS_SHAPE(2), NULL);
    let_go(old);
    inner = ignis_scope_begin();
    mine = ignis_tensor_ones(IGNIS_SHAPE(2), NULL);
    ignis_scope_return(inner, mine);
    ignis_scope_return(scope, mine);
    (void)none;
    CHECK(is_live(mine));
    let_go(mine);
}

typedef struct scope_case {
    ignis_scope scope;
    ignis_tensor made, outer;
} scope_case;

static void *scope_thread(void *arg)
{
    scope_case *c = (scope_case *)arg;
    ignis_scope mine;
    c->made = ignis_tensor_ones(IGNIS_SHAPE(2), NULL); /* this thread has no scope */
    CHECK_STATUS(ignis_scope_end(c->scope), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_SCOPE_ORDER);
    mine = ignis_scope_begin();
    (void)ignis_tensor_ones(IGNIS_SHAPE(2), NULL);
    CHECK_OK(ignis_scope_end(mine));
    CHECK_OK(ignis_tensor_release(c->outer)); /* of another thread's scope */
    return NULL;
}

TEST(each_thread_has_its_own_scopes)
{
    scope_case c;
    pthread_t thread;
    SETUP(NULL);
    c.scope = ignis_scope_begin();
    c.outer = ignis_tensor_ones(IGNIS_SHAPE(2), NULL);
    REQUIRE(pthread_create(&thread, NULL, scope_thread, &c) == 0);
    pthread_join(thread, NULL);
    CHECK_OK(ignis_scope_end(c.scope));
    CHECK(is_live(c.made));
    CHECK(!is_live(c.outer));
    let_go(c.made);
}

static void *open_scope_thread(void *arg)
{
    (void)arg;
    (void)ignis_scope_begin();
    (void)ignis_tensor_ones(IGNIS_SHAPE(2), NULL);
    return NULL;
}

/*  What a thread leaves open when it ends is reported at shutdown, and freed. */
TEST(a_thread_that_ends_inside_a_scope)
{
    pthread_t thread;
    SETUP(NULL);
    test_leaks_expected = true;
    REQUIRE(pthread_create(&thread, NULL, open_scope_thread, NULL) == 0);
    pthread_join(thread, NULL);
    CHECK_OK(ignis_shutdown());
    CHECK(test_log_count(IGNIS_DIAG_ARRAY_LEAKED) == 1);
}

TEST(scopes_of_a_finished_setup_are_forgotten)
{
    ignis_scope scope;
    ignis_tensor tensor;
    SETUP(NULL);
    test_leaks_expected = true;
    scope = ignis_scope_begin();
    tensor = ignis_tensor_ones(IGNIS_SHAPE(2), NULL);
    CHECK_OK(ignis_no_grad_begin());
    CHECK_OK(ignis_shutdown());
    CHECK_INT(test_log_count(IGNIS_DIAG_ARRAY_LEAKED), 1);
    CHECK_HAS(test_log_text(IGNIS_DIAG_ARRAY_LEAKED), "tensor");
    CHECK_HAS(test_log_text(IGNIS_DIAG_ARRAY_LEAKED), "[2]");
    CHECK(!is_live(tensor));
    SETUP(NULL);
    CHECK(!is_live(tensor));
    CHECK_STATUS(ignis_scope_end(scope), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_SCOPE_ORDER);
    CHECK_STATUS(ignis_no_grad_end(), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_SCOPE_ORDER);
    tensor = ignis_tensor_ones(IGNIS_SHAPE(2), NULL);
    let_go(tensor);
}

/*  A thread's own loop over scopes takes no memory with time. */
TEST(a_thousand_scopes_take_no_memory)
{
    ignis_memory_info first, last;
    ignis_tensor weight;
    int i;
    SETUP(NULL);
    weight = tensor_counting(IGNIS_SHAPE(64), IGNIS_F32, 1, true);
    memset(&first, 0, sizeof first);
    for (i = 0; i < 1000; i++) {
        ignis_scope scope = ignis_scope_begin();
        (void)user_scale(user_mul(weight, weight), 0.5);
        CHECK_OK(ignis_scope_end(scope));
        if (i == 10)
            first = memory();
    }
    last = memory();
    CHECK_INT(last.live_bytes, first.live_bytes);
    CHECK_INT(last.live_blocks, first.live_blocks);
    CHECK_INT(last.reserved_bytes, first.reserved_bytes);
    CHECK_INT(ignis_tape_length(), 0); /* branches that nobody can walk any more go with their tensors */
    let_go(weight);
}

/*  A leaf begins and ends to require a gradient; what was recorded before stays. */
TEST(requires_grad_of_a_leaf)
{
    ignis_scope scope;
    ignis_tensor a, b, y, z, integers;
    SETUP(NULL);
    scope = ignis_scope_begin();
    a = tensor_counting(IGNIS_SHAPE(2), IGNIS_F32, 1, false);
    b = tensor_counting(IGNIS_SHAPE(2), IGNIS_F32, 1, true);
    integers = tensor_counting(IGNIS_SHAPE(2), IGNIS_I32, 1, false);
    CHECK_OK(ignis_tensor_set_requires_grad(a, true));
    CHECK(tensor_info(a).requires_grad && tensor_info(a).is_leaf);
    y = ignis_sum(ignis_mul(a, b));
    CHECK_OK(ignis_tensor_set_requires_grad(b, false));
    z = ignis_sum(ignis_mul(a, b));
    CHECK_OK(ignis_backward(z, IGNIS_NO_ARRAY));
    CHECK_NUMBER(grad_at(a, 1), 2);
    CHECK_INT(ignis_tensor_grad(b).id, 0);
    CHECK_OK(ignis_backward(y, IGNIS_NO_ARRAY)); /* recorded while b required a gradient */
    CHECK_NUMBER(grad_at(a, 1), 4);
    CHECK_NUMBER(grad_at(b, 1), 2);
    CHECK_OK(ignis_tensor_set_requires_grad(a, false));
    CHECK_NUMBER(grad_at(a, 1), 4); /* is kept */
    CHECK(!tensor_info(ignis_mul(a, b)).requires_grad);
    CHECK_OK(ignis_tensor_set_requires_grad(b, true));
    y = ignis_scale(b, 2);
    CHECK_FAILS(ignis_tensor_set_requires_grad(y, false), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NO_GRAD_WANTED);
    CHECK_MESSAGE_HAS("the tensor is the result of an operation; expected a leaf, which ignis_detach makes of it");
    CHECK_OK(ignis_tensor_set_requires_grad(integers, false));
    CHECK_FAILS(ignis_tensor_set_requires_grad(integers, true), IGNIS_ERROR_DTYPE, IGNIS_DIAG_GRAD_OF_INTEGERS);
    CHECK_OK(ignis_scope_end(scope));
    CHECK_FAILS(ignis_tensor_set_requires_grad(a, true), IGNIS_ERROR_FREED, IGNIS_DIAG_TENSOR_FREED);
}

int main(int argc, char **argv) { return test_run(argc, argv); }
