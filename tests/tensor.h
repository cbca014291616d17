// SPDX-License-Identifier: MIT
/*  tensor.h - what tests that use tensors share, beyond array.h

    The operations here are users' own: they go through ignis_tape_record, so that tests of tensors and of the tape need
    none of Ignis'. */
#ifndef TENSOR_H
#define TENSOR_H

#include "array.h"

static const ignis_dtype float_dtypes[4] = {IGNIS_F64, IGNIS_F32, IGNIS_F16, IGNIS_BF16};

/*  Whether a case, by its number, is taken in a dtype. Kernels of f16 and bf16 differ by the type alone: the simulator
    takes cases of even numbers in f16 and the others in bf16, which halves what it compiles and runs. */
static inline bool test_takes(ignis_dtype dtype, int number)
{
    return (dtype != IGNIS_F16 && dtype != IGNIS_BF16) || number % 2 == (dtype == IGNIS_BF16) || test_takes_all();
}

static inline ignis_tensor_info tensor_info(ignis_tensor tensor)
{
    ignis_tensor_info info;
    memset(&info, 0, sizeof info);
    CHECK_OK(ignis_tensor_query(tensor, &info));
    return info;
}

static inline int64_t shape_numel(ignis_shape shape)
{
    int64_t numel = 1;
    int i;
    for (i = 0; i < shape.ndim; i++)
        numel *= shape.dim[i];
    return numel;
}

static inline ignis_shape shape_of(ignis_tensor tensor) { return tensor_info(tensor).shape; }
static inline int64_t numel_of(ignis_tensor tensor) { return shape_numel(shape_of(tensor)); }

static inline ignis_tensor_desc tensor_desc(ignis_dtype dtype, bool requires_grad)
{
    ignis_tensor_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.dtype = dtype;
    desc.requires_grad = requires_grad;
    return desc;
}

/*  A tensor of numbers, which are given as double. */
static inline ignis_tensor tensor_of(const double *values, ignis_shape shape, ignis_dtype dtype, bool requires_grad)
{
    ignis_tensor_desc desc = tensor_desc(dtype, requires_grad);
    desc.host_dtype = IGNIS_F64;
    return ignis_tensor_from_host(values, shape, &desc);
}

/*  The numbers 1, 2, 3, ... times step. */
static inline ignis_tensor tensor_counting(ignis_shape shape, ignis_dtype dtype, double step, bool requires_grad)
{
    int64_t numel = shape_numel(shape), i;
    double *values = (double *)malloc(sizeof *values * (size_t)(numel + 1));
    ignis_tensor tensor;
    for (i = 0; i < numel; i++)
        values[i] = (double)(i + 1) * step;
    tensor = tensor_of(values, shape, dtype, requires_grad);
    free(values);
    return tensor;
}

/*  Numbers between -1 and 1 that look random, and are the same every time. */
static inline double noise(uint64_t seed, int64_t i)
{
    uint64_t x = (uint64_t)(i + 1) * UINT64_C(0x9E3779B97F4A7C15) + seed * UINT64_C(0xD1B54A32D192ED03);
    x ^= x >> 31, x *= UINT64_C(0xBF58476D1CE4E5B9), x ^= x >> 27, x *= UINT64_C(0x94D049BB133111EB), x ^= x >> 31;
    return (double)(x >> 11) / (double)(UINT64_C(1) << 52) - 1.0;
}

static inline ignis_tensor tensor_noise(ignis_shape shape, ignis_dtype dtype, uint64_t seed, bool requires_grad)
{
    int64_t numel = shape_numel(shape), i;
    double *values = (double *)malloc(sizeof *values * (size_t)(numel + 1));
    ignis_tensor tensor;
    for (i = 0; i < numel; i++)
        values[i] = noise(seed, i);
    tensor = tensor_of(values, shape, dtype, requires_grad);
    free(values);
    return tensor;
}

/*  All elements as double; the caller frees them. Never null. */
static inline double *array_values(ignis_array array)
{
    int64_t numel = array.id ? ignis_array_numel(array) : 0;
    double *values = (double *)calloc((size_t)(numel > 0 ? numel : 0) + 1, sizeof *values);
    if (numel > 0)
        CHECK_OK(ignis_array_to_host(array, values, IGNIS_F64, numel));
    return values;
}
static inline double *tensor_values(ignis_tensor tensor) { return array_values(ignis_tensor_data(tensor)); }

/*  Element i of an array, and of a tensor's gradient. */
static inline double array_at(ignis_array array, int64_t i)
{
    double *values = array_values(array),
           value = array.id && i < ignis_array_numel(array) ? values[i] : -12345; /* there is no such element */
    free(values);
    return value;
}
static inline double value_at(ignis_tensor tensor, int64_t i) { return array_at(ignis_tensor_data(tensor), i); }
static inline double grad_at(ignis_tensor tensor, int64_t i) { return array_at(ignis_tensor_grad(tensor), i); }

#define CHECK_NUMBER(a, b) check_number(__LINE__, #a, (a), (b))
static inline void check_number(int line, const char *what, double got, double expected)
{
    char text[512];
    if (got == expected || (got != got && expected != expected))
        return;
    snprintf(text, sizeof text, "%.300s is %.17g, expected %.17g", what, got, expected);
    test__fail(__FILE__, line, text);
}

/*  |a - b| <= tolerance * max(1, |b|) */
#define CHECK_CLOSE(a, b, tolerance) check_close(__LINE__, #a, (a), (b), (tolerance))
static inline bool is_close(double got, double expected, double tolerance)
{
    double size = expected < 0 ? -expected : expected, error = got > expected ? got - expected : expected - got;
    return error <= tolerance * (size > 1 ? size : 1);
}
static inline void check_close(int line, const char *what, double got, double expected, double tolerance)
{
    char text[512];
    if (is_close(got, expected, tolerance))
        return;
    snprintf(text, sizeof text, "%.300s is %.17g, expected %.17g within %g", what, got, expected, tolerance);
    test__fail(__FILE__, line, text);
}

#define CHECK_SHAPE_IS(tensor, expected) check_shape_is(__LINE__, tensor, expected)
static inline void check_shape_is(int line, ignis_tensor tensor, ignis_shape expected)
{
    ignis_shape shape = shape_of(tensor);
    int i;
    test__check_int(__FILE__, line, "ndim", shape.ndim, expected.ndim);
    for (i = 0; i < expected.ndim; i++)
        test__check_int(__FILE__, line, "dim", shape.dim[i], expected.dim[i]);
}

static inline void let_go(ignis_tensor tensor) { CHECK_OK(ignis_tensor_release(tensor)); }

/*  centre + scale * noise, behind `offset` other elements of a larger array: offset 1 makes addresses that no pack may
    be read from. */
static inline ignis_tensor noise_at(ignis_shape shape, ignis_dtype dtype, uint64_t seed, double centre, double scale,
                                    int64_t offset, bool requires_grad)
{
    int64_t numel = shape_numel(shape), i;
    double *values = (double *)malloc(sizeof *values * (size_t)(numel + 1));
    ignis_array whole = make(IGNIS_SHAPE(numel + offset), dtype), part = ignis_array_slice(whole, 0, offset, numel);
    ignis_array view = ignis_array_reshape(part, shape);
    ignis_tensor tensor;
    for (i = 0; i < numel; i++)
        values[i] = centre + scale * noise(seed, i);
    CHECK_OK(ignis_array_from_host(view, values, IGNIS_F64, numel));
    tensor = ignis_tensor_from_array(view, requires_grad);
    drop(view), drop(part), drop(whole);
    free(values);
    return tensor;
}

/*  Runs backward from y with noise as its gradient, whose values it returns. */
static inline double *backward_from(ignis_tensor y, ignis_dtype dtype, uint64_t seed, int64_t offset)
{
    ignis_tensor grad = noise_at(shape_of(y), dtype, seed, 0, 1, offset, false);
    double *values = tensor_values(grad);
    CHECK_OK(ignis_backward(y, ignis_tensor_data(grad)));
    let_go(grad);
    return values;
}

static inline ignis_tensor no_tensor(void)
{
    ignis_tensor none = {0};
    return none;
}

/*  Numbers as they are after rounding to a dtype; the caller frees them. */
static inline double *rounded_noise(ignis_shape shape, ignis_dtype dtype, uint64_t seed, double factor)
{
    int64_t numel = shape_numel(shape), i;
    double *values = (double *)malloc(sizeof *values * (size_t)(numel + 1)), *result;
    ignis_tensor tensor;
    for (i = 0; i < numel; i++)
        values[i] = factor * noise(seed, i);
    tensor = tensor_of(values, shape, dtype, false);
    if (!tensor.id) /* the test has failed, and goes on */
        return values;
    result = tensor_values(tensor);
    let_go(tensor);
    free(values);
    return result;
}

/* --- operations of a user ---------------------------------------------------------------------------------------- */

/*  A new array like another one, which nobody has written to. */
static inline ignis_array array_like(ignis_array like)
{
    ignis_array_info info;
    if (ignis_array_query(like, &info) != IGNIS_OK) {
        ignis_array none = {0};
        return none;
    }
    return make(info.shape, info.dtype);
}

/*  The new array as a tensor, recorded; no handle after a failure. Takes the array over. */
static inline ignis_tensor user_result(ignis_array made, const ignis_tensor *inputs, int count, const ignis_rule *rule)
{
    ignis_tensor result = {0};
    if (!made.id)
        return result;
    result = ignis_tensor_from_array(made, false);
    ignis_array_free(made);
    if (result.id && ignis_tape_record(result, inputs, count, rule) != IGNIS_OK) {
        ignis_tensor_release(result);
        result.id = 0;
    }
    return result;
}

/*  The array, or none, freed, when what was to fill it has failed. */
static inline ignis_array user_discard(ignis_array array, ignis_status status)
{
    if (status != IGNIS_OK && array.id) {
        ignis_array_free(array);
        array.id = 0;
    }
    return array;
}

/*  The same for a gradient. */
static inline ignis_status user_give(const ignis_backward_args *args, int input, ignis_array grad, ignis_status status)
{
    args->grad_inputs[input] = user_discard(grad, status);
    return status != IGNIS_OK ? status : grad.id ? IGNIS_OK : IGNIS_ERROR_MEMORY;
}

/*  a + b: the gradient of both is that of the output, the very same array */
static inline ignis_status user_add_backward(const ignis_backward_args *args)
{
    args->grad_inputs[0] = args->grad_output;
    args->grad_inputs[1] = args->grad_output;
    return IGNIS_OK;
}

static inline ignis_tensor user_add(ignis_tensor a, ignis_tensor b)
{
    ignis_tensor inputs[2];
    ignis_array made = array_like(ignis_tensor_data(a));
    ignis_rule rule;
    inputs[0] = a, inputs[1] = b;
    memset(&rule, 0, sizeof rule);
    rule.name = "user_add";
    rule.backward_fn = user_add_backward;
    if (made.id)
        made = user_discard(made, ignis_array_add(made, ignis_tensor_data(a), ignis_tensor_data(b)));
    return user_result(made, inputs, 2, &rule);
}

/*  a * b */
static inline ignis_status user_mul_backward(const ignis_backward_args *args)
{
    ignis_status status = IGNIS_OK;
    int i;
    for (i = 0; i < 2 && status == IGNIS_OK; i++) {
        ignis_array grad;
        if (!args->needed[i])
            continue;
        grad = array_like(args->grad_output);
        status = user_give(args, i, grad,
                           grad.id ? ignis_array_mul(grad, args->grad_output, args->saved[1 - i]) : IGNIS_ERROR_MEMORY);
    }
    return status;
}

static inline ignis_tensor user_mul(ignis_tensor a, ignis_tensor b)
{
    ignis_tensor inputs[2];
    ignis_array saved[2], made = array_like(ignis_tensor_data(a));
    ignis_rule rule;
    inputs[0] = a, inputs[1] = b;
    saved[0] = ignis_tensor_data(a), saved[1] = ignis_tensor_data(b);
    memset(&rule, 0, sizeof rule);
    rule.name = "user_mul";
    rule.backward_fn = user_mul_backward;
    rule.saved = saved;
    rule.saved_count = 2;
    if (made.id)
        made = user_discard(made, ignis_array_mul(made, saved[0], saved[1]));
    return user_result(made, inputs, 2, &rule);
}

/*  factor * a, with the factor in the rule's params */
static inline ignis_status user_scale_backward(const ignis_backward_args *args)
{
    ignis_array grad = array_like(args->grad_output);
    return user_give(args, 0, grad,
                     grad.id ? ignis_array_scale(grad, args->grad_output, *(const double *)args->params)
                             : IGNIS_ERROR_MEMORY);
}

static inline ignis_tensor user_scale(ignis_tensor a, double factor)
{
    ignis_array made = array_like(ignis_tensor_data(a));
    ignis_rule rule;
    memset(&rule, 0, sizeof rule);
    rule.name = "user_scale";
    rule.backward_fn = user_scale_backward;
    rule.params = &factor;
    rule.params_size = sizeof factor;
    if (made.id)
        made = user_discard(made, ignis_array_scale(made, ignis_tensor_data(a), factor));
    return user_result(made, &a, 1, &rule);
}

/*  The sum of all elements, [1]. Waits, as it adds up on the host. */
static inline ignis_status user_sum_backward(const ignis_backward_args *args)
{
    ignis_array grad = make(*(const ignis_shape *)args->params, info_of(args->grad_output).dtype);
    double value = 0;
    ignis_status status = ignis_array_to_host(args->grad_output, &value, IGNIS_F64, 1);
    if (grad.id && status == IGNIS_OK)
        status = ignis_array_fill(grad, value);
    return user_give(args, 0, grad, status);
}

static inline ignis_tensor user_sum(ignis_tensor a)
{
    ignis_tensor_info info;
    ignis_tensor none = {0};
    ignis_array made;
    ignis_rule rule;
    double sum = 0, *values;
    int64_t numel, i;
    if (ignis_tensor_query(a, &info) != IGNIS_OK)
        return none;
    numel = shape_numel(info.shape);
    values = (double *)malloc(sizeof *values * (size_t)(numel + 1));
    made = make(IGNIS_SHAPE(1), info.dtype);
    if (ignis_tensor_to_host(a, values, IGNIS_F64, numel) == IGNIS_OK) {
        for (i = 0; i < numel; i++)
            sum += values[i];
        if (made.id)
            made = user_discard(made, ignis_array_from_host(made, &sum, IGNIS_F64, 1));
    } else {
        made = user_discard(made, IGNIS_ERROR_CUDA);
    }
    free(values);
    memset(&rule, 0, sizeof rule);
    rule.name = "user_sum";
    rule.backward_fn = user_sum_backward;
    rule.params = &info.shape;
    rule.params_size = sizeof info.shape;
    return user_result(made, &a, 1, &rule);
}

/*  How often columns were added up by a kernel of its own since ignis_profile_begin. */
static inline int64_t columns_summed(void)
{
    static ignis_profile_row rows[64];
    int count, i;
    int64_t sums = 0;
    CHECK_OK(ignis_profile_end(NULL, NULL));
    count = ignis_profile_rows(rows, COUNT_OF(rows));
    CHECK(count > 0 && count <= COUNT_OF(rows));
    for (i = 0; i < count; i++)
        if (strcmp(rows[i].name, "ignis_sum_columns") == 0)
            sums += rows[i].count;
    return sums;
}

#endif /* TENSOR_H */
