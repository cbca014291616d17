// SPDX-License-Identifier: MIT
/*  test_convert.c - ignis_array_from_host and ignis_array_to_host between all dtypes, against reference.h */
#include "array.h"
#include "reference.h"

/*  The first element that differs fails the test, with the values. */
static void check_converted(const char *how, ignis_dtype to, const void *got, ignis_dtype from, const void *values,
                            size_t count)
{
    char text[256];
    size_t i;
    for (i = 0; i < count; i++) {
        uint64_t x = ref_load(values, from, i), expected = ref_convert(to, from, x), y = ref_load(got, to, i);
        if (ref_same(to, expected, y))
            continue;
        snprintf(text, sizeof text, "%s: %s 0x%llx (%.17g) to %s: got 0x%llx (%.17g), expected 0x%llx (%.17g)", how,
                 ref_formats[from].name, (unsigned long long)x, ref_to_double(from, x), ref_formats[to].name,
                 (unsigned long long)y, ref_to_double(to, y), (unsigned long long)expected,
                 ref_to_double(to, expected));
        test__fail(__FILE__, __LINE__, text);
        return;
    }
}

/*  Converts values of one dtype on the way in, and on the way out, to every dtype. */
static void check_all_targets(ignis_dtype from, const void *values, size_t count)
{
    ignis_array source = make(IGNIS_SHAPE((int64_t)count), from);
    void *got = malloc(count * 8);
    ignis_dtype to;
    CHECK_OK(ignis_array_from_host_raw(source, values, (int64_t)(count * ref_size(from))));
    REF_EACH_DTYPE(to)
    {
        ignis_array target = make(IGNIS_SHAPE((int64_t)count), to);
        CHECK_OK(ignis_array_from_host(target, values, from, (int64_t)count));
        memset(got, 0xA5, count * 8);
        CHECK_OK(ignis_array_to_host_raw(target, got, (int64_t)(count * ref_size(to))));
        check_converted("from_host", to, got, from, values, count);
        drop(target);
        memset(got, 0xA5, count * 8);
        CHECK_OK(ignis_array_to_host(source, got, to, (int64_t)count));
        check_converted("to_host", to, got, from, values, count);
    }
    drop(source);
    free(got);
}

static void check_hard_values(ignis_dtype from)
{
    size_t count;
    void *values = ref_hard_values(from, &count);
    check_all_targets(from, values, count);
    free(values);
}

/*  The reference itself, where the language defines the same conversion. */
TEST(reference_agrees_with_c)
{
    ignis_dtype from;
    int64_t wrong = 0;
    REF_EACH_DTYPE(from)
    {
        size_t count, i;
        void *values = ref_hard_values(from, &count);
        for (i = 0; i < count; i++) {
            uint64_t x = ref_load(values, from, i);
            double d = ref_to_double(from, x);
            if (from == IGNIS_F64) {
                wrong += !ref_same(from, ref_from_double(d), x);
                wrong += !ref_same(IGNIS_F32, ref_convert(IGNIS_F32, from, x), ref_from_float((float)d));
            }
            if (from == IGNIS_I64) {
                wrong += ref_convert(IGNIS_F32, from, x) != ref_from_float((float)(int64_t)x);
                wrong += ref_convert(IGNIS_F64, from, x) != ref_from_double((double)(int64_t)x);
            }
            if (ref_is_float(from) && d > -2147483649.0 && d < 2147483648.0)
                wrong += ref_convert(IGNIS_I32, from, x) != (uint32_t)(int32_t)d;
            if (ref_is_float(from) && d >= -9223372036854775808.0 && d < 9223372036854775808.0)
                wrong += ref_convert(IGNIS_I64, from, x) != (uint64_t)(int64_t)d;
            if (from == IGNIS_I32 || from == IGNIS_U8)
                wrong += d != (double)(from == IGNIS_I32 ? (int32_t)(uint32_t)x : (int32_t)x);
        }
        free(values);
    }
    CHECK_INT(wrong, 0);
}

/*  A few results written by hand, so that the reference is not trusted blindly. */
TEST(known_values)
{
    static const struct {
        double value;
        ignis_dtype to;
        uint64_t bits;
    } table[] = {
        {1.0, IGNIS_F16, 0x3C00},
        {1.0, IGNIS_BF16, 0x3F80},
        {-0.0, IGNIS_F16, 0x8000},
        {-0.0, IGNIS_BF16, 0x8000},
        {-0.0, IGNIS_I32, 0},
        {65504.0, IGNIS_F16, 0x7BFF},
        {65519.99, IGNIS_F16, 0x7BFF},
        {65520.0, IGNIS_F16, 0x7C00},
        {-1e300, IGNIS_F16, 0xFC00},
        {2049.0, IGNIS_F16, 0x6800},
        {2051.0, IGNIS_F16, 0x6802},
        {2049.0000001, IGNIS_F16, 0x6801}, /* ties to even */
        {5.9604644775390625e-8, IGNIS_F16, 0x0001},
        {2.98023223876953125e-8, IGNIS_F16, 0x0000}, /* subnormal, and half of it */
        {2.9802322387695316e-8, IGNIS_F16, 0x0001},
        {6.103515625e-5, IGNIS_F16, 0x0400},
        {257.0, IGNIS_BF16, 0x4380},
        {259.0, IGNIS_BF16, 0x4382},
        {257.00000000001, IGNIS_BF16, 0x4381}, /* not by way of f32 */
        {3.4028235677973366e38, IGNIS_F32, 0x7F800000},
        {1e-46, IGNIS_F32, 0},
        {16777217.0, IGNIS_F32, 0x4B800000},
        {2.9, IGNIS_I32, 2},
        {-2.9, IGNIS_I32, (uint32_t)-2},
        {3e9, IGNIS_I32, INT32_MAX},
        {-3e9, IGNIS_I32, (uint32_t)INT32_MIN},
        {1e19, IGNIS_I64, INT64_MAX},
        {-1e19, IGNIS_I64, (uint64_t)INT64_MIN},
        {-0.9, IGNIS_U8, 0},
        {-5.0, IGNIS_U8, 0},
        {255.9, IGNIS_U8, 255},
        {256.0, IGNIS_U8, 255},
    };
    size_t i;
    SETUP(NULL);
    for (i = 0; i < COUNT_OF(table); i++) {
        ignis_array array = make(IGNIS_SHAPE(1), table[i].to);
        uint64_t bits = 0;
        CHECK_INT(ref_convert(table[i].to, IGNIS_F64, ref_from_double(table[i].value)), table[i].bits);
        CHECK_OK(ignis_array_from_host(array, &table[i].value, IGNIS_F64, 1));
        CHECK_OK(ignis_array_to_host_raw(array, &bits, (int64_t)ref_size(table[i].to)));
        CHECK_INT(bits, table[i].bits);
        drop(array);
    }
}

/*  i64 values that would come out wrong by way of a double, which has 53 bits. */
TEST(i64_is_rounded_once)
{
    static const struct {
        int64_t value;
        ignis_dtype to;
        uint64_t bits;
    } table[] = {
        {(INT64_C(1) << 54) + (INT64_C(1) << 30) + 1, IGNIS_F32, 0x5A800001},
        {(INT64_C(1) << 54) + (INT64_C(3) << 30) - 1, IGNIS_F32, 0x5A800001},
        {(INT64_C(1) << 55) + (INT64_C(1) << 47) + 1, IGNIS_BF16, 0x5B01},
        {-((INT64_C(1) << 55) + (INT64_C(1) << 47) + 1), IGNIS_BF16, 0xDB01},
        {INT64_MAX, IGNIS_F32, 0x5F000000},
        {INT64_MIN, IGNIS_F32, 0xDF000000},
        {2049, IGNIS_F16, 0x6800},
        {65519, IGNIS_F16, 0x7BFF},
        {65520, IGNIS_F16, 0x7C00},
    };
    size_t i;
    SETUP(NULL);
    for (i = 0; i < COUNT_OF(table); i++) {
        ignis_array array = make(IGNIS_SHAPE(1), table[i].to);
        uint64_t bits = 0;
        CHECK_OK(ignis_array_from_host(array, &table[i].value, IGNIS_I64, 1));
        CHECK_OK(ignis_array_to_host_raw(array, &bits, (int64_t)ref_size(table[i].to)));
        CHECK_INT(bits, table[i].bits);
        drop(array);
    }
}

TEST(every_f16_to_every_dtype)
{
    SETUP(NULL);
    check_hard_values(IGNIS_F16);
}
TEST(every_bf16_to_every_dtype)
{
    SETUP(NULL);
    check_hard_values(IGNIS_BF16);
}
TEST(every_u8_to_every_dtype)
{
    SETUP(NULL);
    check_hard_values(IGNIS_U8);
}
TEST(hard_f32_to_every_dtype)
{
    SETUP(NULL);
    check_hard_values(IGNIS_F32);
}
TEST(hard_f64_to_every_dtype)
{
    SETUP(NULL);
    check_hard_values(IGNIS_F64);
}
TEST(hard_i32_to_every_dtype)
{
    SETUP(NULL);
    check_hard_values(IGNIS_I32);
}
TEST(hard_i64_to_every_dtype)
{
    SETUP(NULL);
    check_hard_values(IGNIS_I64);
}

/*  There and back: 16-bit floats survive f32 and f64 bit for bit, NaN apart. */
TEST(sixteen_bits_there_and_back)
{
    static const ignis_dtype wide[] = {IGNIS_F32, IGNIS_F64};
    size_t count, w, i;
    ignis_dtype narrow;
    SETUP(NULL);
    for (narrow = IGNIS_F16; narrow <= IGNIS_BF16; narrow = (ignis_dtype)(narrow + 1))
        for (w = 0; w < 2; w++) {
            void *values = ref_hard_values(narrow, &count), *wider = malloc(count * 8), *back = malloc(count * 2);
            ignis_array array = make(IGNIS_SHAPE((int64_t)count), narrow);
            int wrong = 0;
            CHECK_OK(ignis_array_from_host_raw(array, values, (int64_t)count * 2));
            CHECK_OK(ignis_array_to_host(array, wider, wide[w], (int64_t)count));
            CHECK_OK(ignis_array_from_host(array, wider, wide[w], (int64_t)count));
            CHECK_OK(ignis_array_to_host_raw(array, back, (int64_t)count * 2));
            for (i = 0; i < count; i++)
                wrong += !ref_same(narrow, ref_load(values, narrow, i), ref_load(back, narrow, i));
            CHECK_INT(wrong, 0);
            drop(array);
            free(values), free(wider), free(back);
        }
}

/*  dtype 0 means the array's own, and then nothing is converted, NaN payloads included. */
TEST(own_dtype_keeps_every_bit)
{
    ignis_dtype dtype;
    SETUP(NULL);
    REF_EACH_DTYPE(dtype)
    {
        size_t count;
        void *values = ref_hard_values(dtype, &count), *back = malloc(count * ref_size(dtype));
        ignis_array array = make(IGNIS_SHAPE((int64_t)count), dtype);
        CHECK_OK(ignis_array_from_host(array, values, IGNIS_DTYPE_DEFAULT, (int64_t)count));
        CHECK_OK(ignis_array_to_host(array, back, IGNIS_DTYPE_DEFAULT, (int64_t)count));
        CHECK(memcmp(values, back, count * ref_size(dtype)) == 0);
        drop(array);
        free(values), free(back);
    }
}

int main(int argc, char **argv) { return test_run(argc, argv); }
