// SPDX-License-Identifier: MIT
/*  test_print.c - tensors and models as text: the layout of values is that of numpy.array2string, NumPy 2.4 */
#include "fault.h"
#include "tensor.h"

static char text[20000];

static void check_print(int line, ignis_tensor tensor, const char *expected)
{
    int length = ignis_tensor_values_to_string(tensor, text, sizeof text);
    test__check_int(__FILE__, line, "length", length, (int64_t)strlen(expected));
    test__check_text(__FILE__, line, "text", text, expected, true);
}
#define CHECK_PRINT(tensor, expected) check_print(__LINE__, tensor, expected)

/*  What numpy.array2string(a, separator=', ', prefix='tensor(', suffix=')') gives, and the shape and dtype. */
TEST(values_are_laid_out_as_by_numpy)
{
    const double inf = INFINITY;
    static const double mixed[] = {1, 2.5, -3, 0.25}, thirds[] = {1.0 / 3, 100, -2e-4};
    static const double tiny[] = {1e-5, -0.0, 123.5}, large[] = {1e6, 1};
    const double special[] = {NAN, 1.5, -inf, 0};
    ignis_scope scope;
    SETUP(NULL);
    scope = ignis_scope_begin();
    CHECK_PRINT(tensor_of(mixed, IGNIS_SHAPE(2, 2), IGNIS_F32, false),
                "tensor([[ 1.  ,  2.5 ],\n        [-3.  ,  0.25]], shape=[2, 2], dtype=f32)");
    CHECK_PRINT(tensor_of(thirds, IGNIS_SHAPE(3), IGNIS_F64, false),
                "tensor([ 3.33333333e-01,  1.00000000e+02, -2.00000000e-04],\n       shape=[3], dtype=f64)");
    CHECK_PRINT(tensor_of(thirds, IGNIS_SHAPE(2), IGNIS_F32, false),
                "tensor([  0.33333334, 100.        ], shape=[2], dtype=f32)");
    CHECK_PRINT(tensor_of(tiny, IGNIS_SHAPE(1, 3), IGNIS_F64, false),
                "tensor([[ 1.000e-05, -0.000e+00,  1.235e+02]], shape=[1, 3], dtype=f64)");
    CHECK_PRINT(tensor_of(large, IGNIS_SHAPE(2), IGNIS_F32, false), "tensor([1.e+06, 1.e+00], shape=[2], dtype=f32)");
    CHECK_PRINT(tensor_of(large, IGNIS_SHAPE(2), IGNIS_I64, false), "tensor([1000000,       1], shape=[2], dtype=i64)");
    CHECK_PRINT(tensor_of(special, IGNIS_SHAPE(4), IGNIS_F16, false),
                "tensor([ nan,  1.5, -inf,  0. ], shape=[4], dtype=f16)");
    CHECK_PRINT(tensor_of(special, IGNIS_SHAPE(1), IGNIS_F16, true),
                "tensor([nan], shape=[1], dtype=f16, requires_grad)");
    CHECK_PRINT(tensor_of(mixed, IGNIS_SHAPE(0, 3), IGNIS_U8, false), "tensor([], shape=[0, 3], dtype=u8)");
    CHECK_PRINT(tensor_counting(IGNIS_SHAPE(2, 1, 2), IGNIS_I32, -1, false),
                "tensor([[[-1, -2]],\n\n        [[-3, -4]]], shape=[2, 1, 2], dtype=i32)");
    CHECK_PRINT(tensor_of(thirds, IGNIS_SHAPE(1), IGNIS_BF16, false), "tensor([0.334], shape=[1], dtype=bf16)");
    CHECK_OK(ignis_scope_end(scope));
}

/*  Rows are broken at 75 columns; above 1000 elements three are shown at each edge. */
TEST(long_tensors)
{
    ignis_scope scope;
    SETUP(NULL);
    scope = ignis_scope_begin();
    CHECK_PRINT(tensor_counting(IGNIS_SHAPE(20), IGNIS_I32, 1, false),
                "tensor([ 1,  2,  3,  4,  5,  6,  7,  8,  9, 10, 11, 12, 13, 14, 15, 16,\n        17, 18, 19, 20], "
                "shape=[20], dtype=i32)");
    CHECK_PRINT(tensor_counting(IGNIS_SHAPE(1001), IGNIS_F32, 0.5, false),
                "tensor([5.000e-01, 1.000e+00, 1.500e+00, ..., 4.995e+02, 5.000e+02,\n        5.005e+02], "
                "shape=[1001], dtype=f32)");
    CHECK_PRINT(tensor_counting(IGNIS_SHAPE(7, 300), IGNIS_I32, 1, false),
                "tensor([[   1,    2,    3, ...,  298,  299,  300],\n"
                "        [ 301,  302,  303, ...,  598,  599,  600],\n"
                "        [ 601,  602,  603, ...,  898,  899,  900],\n"
                "        ...,\n"
                "        [1201, 1202, 1203, ..., 1498, 1499, 1500],\n"
                "        [1501, 1502, 1503, ..., 1798, 1799, 1800],\n"
                "        [1801, 1802, 1803, ..., 2098, 2099, 2100]],\n       shape=[7, 300], dtype=i32)");
    /* beyond 1 MiB only the edges are read */
    CHECK_PRINT(tensor_counting(IGNIS_SHAPE(2, 200000), IGNIS_I32, 1, false),
                "tensor([[     1,      2,      3, ..., 199998, 199999, 200000],\n"
                "        [200001, 200002, 200003, ..., 399998, 399999, 400000]],\n"
                "       shape=[2, 200000], dtype=i32)");
    CHECK_OK(ignis_scope_end(scope));
}

TEST(texts_are_cut_and_calls_are_checked)
{
    ignis_tensor tensor, none = {0};
    SETUP(NULL);
    tensor = tensor_counting(IGNIS_SHAPE(3), IGNIS_I32, 1, false);
    CHECK_INT(ignis_tensor_values_to_string(tensor, NULL, 0), 39);
    CHECK_INT(ignis_tensor_values_to_string(tensor, text, 10), 39);
    CHECK_TEXT(text, "tensor([1");
    CHECK_REFUSED(-1, ignis_tensor_values_to_string(tensor, NULL, 1), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NULL_ARGUMENT);
    CHECK_OK(ignis_tensor_print(tensor));
    let_go(tensor);
    CHECK_REFUSED(-1, ignis_tensor_values_to_string(tensor, text, 10), IGNIS_ERROR_FREED, IGNIS_DIAG_TENSOR_FREED);
    CHECK_STATUS(ignis_tensor_print(none), IGNIS_ERROR_FREED, IGNIS_DIAG_TENSOR_FREED);
}

TEST(a_summary_has_names_and_sums)
{
    static const char *const names[] = {"layers.0.weight", NULL};
    static const char expected[] = "name             shape      dtype    parameters          size\n"
                                   "layers.0.weight  [10, 300]  f32           3,000   12000 bytes\n"
                                   "bias             [5]        f16               5      10 bytes  frozen\n"
                                   "total                                     3,005   12010 bytes\n"
                                   "trainable: 3,000 parameters; gradients: 12000 bytes\n"
                                   "device 0: ";
    ignis_tensor_desc desc = tensor_desc(IGNIS_F32, true);
    ignis_tensor tensors[2];
    ignis_scope scope;
    int length;
    SETUP(NULL);
    scope = ignis_scope_begin();
    tensors[0] = ignis_tensor_ones(IGNIS_SHAPE(10, 300), &desc);
    desc = tensor_desc(IGNIS_F16, false);
    desc.tag = "bias";
    tensors[1] = ignis_tensor_ones(IGNIS_SHAPE(5), &desc);
    CHECK_OK(ignis_backward(ignis_sum(tensors[0]), IGNIS_NO_ARRAY));
    length = ignis_summary_to_string(names, tensors, 2, text, sizeof text);
    CHECK(length > (int)sizeof expected && (size_t)length == strlen(text));
    text[sizeof expected - 1] = 0;
    CHECK_TEXT(text, expected);
    CHECK(ignis_summary_to_string(NULL, tensors, 2, text, sizeof text) > 0);
    CHECK_HAS(text, "\nbias   [5] ");
    CHECK(ignis_summary_to_string(NULL, NULL, 0, text, sizeof text) > 0);
    CHECK_OK(ignis_summary_print(names, tensors, 2));
    CHECK_REFUSED(-1, ignis_summary_to_string(names, NULL, 2, text, 10), IGNIS_ERROR_ARGUMENT,
                  IGNIS_DIAG_NULL_ARGUMENT);
    CHECK_REFUSED(-1, ignis_summary_to_string(names, tensors, -1, text, 10), IGNIS_ERROR_ARGUMENT,
                  IGNIS_DIAG_BAD_NUMBER);
    CHECK_OK(ignis_scope_end(scope));
    CHECK_STATUS(ignis_summary_print(names, tensors, 2), IGNIS_ERROR_FREED, IGNIS_DIAG_TENSOR_FREED);
}

TEST(allocations_that_fail)
{
    host_counter counter;
    ignis_desc desc = test_counting_desc(&counter);
    bool hit = true;
    int at, failed = 0;
    for (at = 1; hit && at < 100; at++) {
        ignis_tensor tensor;
        SETUP(&desc);
        tensor = tensor_counting(IGNIS_SHAPE(2, 3), IGNIS_F32, 1, false);
        fault_plan(NULL, at, 0, &counter, false);
        if (ignis_tensor_print(tensor) != IGNIS_OK || ignis_summary_print(NULL, &tensor, 1) != IGNIS_OK) {
            CHECK_INT(ignis_status_last(), IGNIS_ERROR_MEMORY);
            ignis_status_clear();
            failed++;
        }
        hit = fault_over(&counter);
        let_go(tensor);
        CHECK_OK(ignis_shutdown());
        CHECK_INT(counter.blocks, 0);
    }
    CHECK(!hit && failed > 3);
}

int main(int argc, char **argv) { return test_run(argc, argv); }
