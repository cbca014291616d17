// SPDX-License-Identifier: MIT
/*  test_init.c - initial values beside their distribution functions in double precision, by Kolmogorov and Smirnov's
    test, and orthogonal matrices beside the identity */
#include "tensor.h"

#include <math.h>
#include <stdlib.h>

enum { UNIFORM, NORMAL, TRUNCATED };

static ignis_init_desc init_of(ignis_init kind)
{
    ignis_init_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.kind = kind;
    return desc;
}

static int by_value(const void *a, const void *b)
{
    return (*(const double *)a > *(const double *)b) - (*(const double *)a < *(const double *)b);
}

static double normal_cdf(double x) { return 0.5 * erfc(-x / sqrt(2.0)); }

/*  Distribution functions; a and b: bound and 0, deviation and 0, or the desc of a truncated one. */
static double cdf(int kind, double a, const ignis_init_desc *d, double x)
{
    double low, high;
    if (kind == UNIFORM)
        return x < -a ? 0 : x > a ? 1 : (x + a) / (2 * a);
    if (kind == NORMAL)
        return normal_cdf(x / a);
    low = normal_cdf((d->low - d->mean) / d->std), high = normal_cdf((d->high - d->mean) / d->std);
    return x < d->low ? 0 : x > d->high ? 1 : (normal_cdf((x - d->mean) / d->std) - low) / (high - low);
}

/*  The largest distance of two distribution functions is below 1.95 / sqrt(n), but for a chance of 0.001; the seed is
    the same in each run. bf16 rounds by 2^-9 of the value, which a density moves by. */
static void check_distribution(ignis_tensor tensor, const ignis_init_desc *desc, int kind, double scale)
{
    int64_t n = ignis_array_numel(ignis_tensor_data(tensor)), i;
    double *values, distance = 0, limit = 1.95 / sqrt((double)n);
    limit += tensor_info(tensor).dtype == IGNIS_BF16 ? 1.0 / 256 : 0;
    ignis_seed(11);
    CHECK_OK(ignis_initialize(tensor, desc));
    values = tensor_values(tensor);
    if (kind != NORMAL) /* no number is outside */
        for (i = 0; i < n; i++)
            CHECK(cdf(kind, scale * (1 + 1.0 / 256), desc, values[i]) >= 0 &&
                  (kind == UNIFORM ? fabs(values[i]) <= scale * (1 + 1.0 / 256)
                                   : values[i] >= desc->low && values[i] <= desc->high));
    qsort(values, (size_t)n, sizeof *values, by_value);
    for (i = 0; i < n; i++) {
        double f = cdf(kind, scale, desc, values[i]);
        distance = fmax(distance, fmax(fabs(f - (double)i / (double)n), fabs(f - (double)(i + 1) / (double)n)));
    }
    CHECK(distance < limit);
    free(values);
    let_go(tensor);
}

TEST(kaiming_and_xavier)
{
    ignis_init_desc d;
    int k;
    SETUP(NULL);
    for (k = 0; k < COUNT_OF(float_dtypes); k++) {
        ignis_dtype dtype = float_dtypes[k];
        d = init_of(IGNIS_INIT_KAIMING_UNIFORM); /* fan in 30: gain sqrt(2) */
        check_distribution(tensor_noise(IGNIS_SHAPE(50, 30), dtype, 1, true), &d, UNIFORM, sqrt(3 * 2.0 / 30));
        d.slope = sqrt(5.0); /* 1 / sqrt(fan in) */
        check_distribution(tensor_noise(IGNIS_SHAPE(50, 30), dtype, 1, true), &d, UNIFORM, 1 / sqrt(30.0));
        d.fan = IGNIS_FAN_OUT, d.gain = IGNIS_GAIN_TANH; /* which takes the place of the slope */
        check_distribution(tensor_noise(IGNIS_SHAPE(50, 30), dtype, 1, true), &d, UNIFORM,
                           sqrt(3.0 / 50) * IGNIS_GAIN_TANH);
        d = init_of(IGNIS_INIT_KAIMING_NORMAL); /* of a convolution: 20 outs of 3 x 3 patches of 7 */
        check_distribution(tensor_noise(IGNIS_SHAPE(20, 3, 3, 7), dtype, 1, true), &d, NORMAL, sqrt(2.0 / 63));
        d.fan = IGNIS_FAN_OUT;
        check_distribution(tensor_noise(IGNIS_SHAPE(20, 3, 3, 7), dtype, 1, true), &d, NORMAL, sqrt(2.0 / 180));
        d = init_of(IGNIS_INIT_XAVIER_UNIFORM);
        check_distribution(tensor_noise(IGNIS_SHAPE(40, 3, 10), dtype, 1, true), &d, UNIFORM, sqrt(6.0 / 150));
        d = init_of(IGNIS_INIT_XAVIER_NORMAL), d.gain = 2;
        check_distribution(tensor_noise(IGNIS_SHAPE(40, 3, 10), dtype, 1, true), &d, NORMAL, 2 * sqrt(2.0 / 150));
    }
    check_distribution(tensor_noise(IGNIS_SHAPE(50, 30), IGNIS_F32, 1, true), NULL, UNIFORM, sqrt(3 * 2.0 / 30));
}

TEST(truncated_normal)
{
    static const double cases[][4] = {
        {0, 1, -2, 2}, {0, 0.02, -0.04, 0.04}, {1, 2, 0.5, 9}, {0, 1, -7, 7}, {3, 1, 0, 1}};
    int k, d;
    SETUP(NULL);
    for (k = 0; k < COUNT_OF(cases); k++)
        for (d = 0; d < COUNT_OF(float_dtypes); d++) {
            ignis_init_desc desc = init_of(IGNIS_INIT_TRUNCATED_NORMAL);
            desc.mean = cases[k][0], desc.std = cases[k][1], desc.low = cases[k][2], desc.high = cases[k][3];
            if (k == 1 && float_dtypes[d] < IGNIS_F32)
                continue; /* 0.04 rounds up, above itself */
            check_distribution(tensor_noise(IGNIS_SHAPE(1001), float_dtypes[d], 1, true), &desc, TRUNCATED, 0);
        }
}

/*  Rows or columns are orthonormal. Householder reflections of f32 leave 1e-6, bf16 rounds each element. */
static void check_orthogonal(ignis_shape shape, ignis_dtype dtype, double gain)
{
    ignis_init_desc desc = init_of(IGNIS_INIT_ORTHOGONAL);
    ignis_tensor tensor = tensor_noise(shape, dtype, 1, true);
    const int64_t rows = shape.dim[0], columns = rows ? ignis_array_numel(ignis_tensor_data(tensor)) / rows : 0;
    const int64_t count = rows < columns ? rows : columns, length = rows < columns ? columns : rows;
    const double tolerance = dtype == IGNIS_F64   ? 1e-13
                             : dtype == IGNIS_F32 ? 3e-6
                             : dtype == IGNIS_F16 ? 2e-3
                                                  : 1.0 / 64;
    double *values;
    int64_t i, j, k;
    desc.gain = gain;
    CHECK_OK(ignis_initialize(tensor, &desc));
    values = tensor_values(tensor);
    gain = gain != 0 ? gain : 1;
    for (i = 0; i < count; i++)
        for (j = 0; j <= i; j++) {
            double dot = 0;
            for (k = 0; k < length; k++)
                dot += rows < columns ? values[i * columns + k] * values[j * columns + k]
                                      : values[k * columns + i] * values[k * columns + j];
            CHECK(fabs(dot / (gain * gain) - (i == j)) < tolerance);
        }
    free(values);
    let_go(tensor);
}

TEST(orthogonal)
{
    int d;
    SETUP(NULL);
    for (d = 0; d < COUNT_OF(float_dtypes); d++) {
        check_orthogonal(IGNIS_SHAPE(7, 13), float_dtypes[d], 0);
        check_orthogonal(IGNIS_SHAPE(13, 7), float_dtypes[d], IGNIS_GAIN_RELU);
        check_orthogonal(IGNIS_SHAPE(8, 8), float_dtypes[d], 3);
        check_orthogonal(IGNIS_SHAPE(5, 3, 3, 2), float_dtypes[d], 0);
        check_orthogonal(IGNIS_SHAPE(1, 9), float_dtypes[d], 0);
        check_orthogonal(IGNIS_SHAPE(9, 1), float_dtypes[d], 0);
        check_orthogonal(IGNIS_SHAPE(1, 1), float_dtypes[d], 0);
    }
    check_orthogonal(IGNIS_SHAPE(70, 66), IGNIS_F32, 0); /* factored by blocks */
    check_orthogonal(IGNIS_SHAPE(0, 4), IGNIS_F32, 0);
}

/*  Reflections alone would give one sign; uniformly distributed matrices have both: of 60 about 30, which differ by
    more than 20 with a chance of 1e-7. */
TEST(orthogonal_matrices_have_all_signs)
{
    ignis_init_desc desc = init_of(IGNIS_INIT_ORTHOGONAL);
    ignis_tensor tensor;
    int i, k, positive[4] = {0, 0, 0, 0};
    SETUP(NULL);
    ignis_seed(5);
    tensor = tensor_noise(IGNIS_SHAPE(2, 2), IGNIS_F32, 1, true);
    for (i = 0; i < 60; i++) {
        CHECK_OK(ignis_initialize(tensor, &desc));
        for (k = 0; k < 4; k++)
            positive[k] += value_at(tensor, k) > 0;
    }
    for (k = 0; k < 4; k++)
        CHECK(positive[k] > 10 && positive[k] < 50);
    let_go(tensor);
}

TEST(seeds_and_graphs)
{
    ignis_init_desc desc = init_of(IGNIS_INIT_KAIMING_NORMAL);
    ignis_tensor a, b;
    ignis_graph graph;
    double *values[3];
    int i;
    SETUP(NULL);
    a = tensor_noise(IGNIS_SHAPE(4, 5), IGNIS_F32, 1, true), b = tensor_noise(IGNIS_SHAPE(4, 5), IGNIS_F32, 2, true);
    ignis_seed(3);
    CHECK_OK(ignis_initialize(a, &desc));
    ignis_seed(3);
    CHECK_OK(ignis_initialize(b, &desc));
    values[0] = tensor_values(a), values[1] = tensor_values(b);
    CHECK(memcmp(values[0], values[1], 20 * sizeof *values[0]) == 0);
    free(values[0]), free(values[1]);
    CHECK_OK(ignis_graph_begin());
    CHECK_OK(ignis_initialize(a, &desc));
    graph = ignis_graph_end();
    for (i = 0; i < 2; i++) { /* each launch draws others */
        CHECK_OK(ignis_graph_launch(graph));
        values[i] = tensor_values(a);
    }
    CHECK(memcmp(values[0], values[1], 20 * sizeof *values[0]) != 0);
    free(values[0]), free(values[1]);
    CHECK_OK(ignis_graph_free(graph));
    let_go(a), let_go(b);
}

TEST(parameters)
{
    ignis_init_desc desc = init_of(IGNIS_INIT_TRUNCATED_NORMAL);
    ignis_optimizer optimizer, none = {0};
    ignis_optimizer_info info;
    ignis_tensor w, b, c;
    ignis_scope scope;
    SETUP(NULL);
    scope = ignis_scope_begin();
    optimizer = ignis_adamw(NULL);
    w = ignis_parameter(optimizer, IGNIS_SHAPE(4, 3), NULL), b = ignis_parameter(optimizer, IGNIS_SHAPE(4), NULL);
    c = ignis_parameter(optimizer, IGNIS_SHAPE(4), &desc);
    CHECK(tensor_info(w).requires_grad && tensor_info(b).requires_grad);
    CHECK(value_at(w, 0) != 0 && value_at(w, 11) != 0 && value_at(w, 0) != value_at(w, 11));
    CHECK(value_at(c, 3) != 0);
    CHECK_NUMBER(value_at(b, 3), 0);
    CHECK_OK(ignis_optimizer_query(optimizer, &info));
    CHECK_INT(info.parameters, 3);
    CHECK_INT(ignis_parameter(none, IGNIS_SHAPE(2), NULL).id, 0);
    test__check_failure(__FILE__, __LINE__, "ignis_optimizer_add", IGNIS_ERROR_FREED, IGNIS_DIAG_OPTIMIZER_FREED);
    CHECK_MESSAGE_HAS("inside ignis_parameter");
    desc = init_of(IGNIS_INIT_ORTHOGONAL);
    CHECK_INT(ignis_parameter(optimizer, IGNIS_SHAPE(2), &desc).id, 0);
    test__check_failure(__FILE__, __LINE__, "ignis_initialize", IGNIS_ERROR_SHAPE, IGNIS_DIAG_SHAPE_DIFFERS);
    CHECK_OK(ignis_optimizer_free(optimizer));
    CHECK_OK(ignis_scope_end(scope));
}

TEST(refusals)
{
    ignis_init_desc d;
    ignis_tensor x, row, integers, none = no_tensor();
    SETUP(NULL);
    x = tensor_noise(IGNIS_SHAPE(2, 3), IGNIS_F32, 1, true), row = tensor_noise(IGNIS_SHAPE(3), IGNIS_F32, 1, true);
    integers = tensor_counting(IGNIS_SHAPE(2, 3), IGNIS_I32, 0, false);
    CHECK_STATUS(ignis_initialize(none, NULL), IGNIS_ERROR_FREED, IGNIS_DIAG_TENSOR_FREED);
    CHECK_STATUS(ignis_initialize(integers, NULL), IGNIS_ERROR_DTYPE, IGNIS_DIAG_DTYPE_DIFFERS);
    CHECK_MESSAGE_HAS("the tensor is i32");
    CHECK_STATUS(ignis_initialize(row, NULL), IGNIS_ERROR_SHAPE, IGNIS_DIAG_SHAPE_DIFFERS);
    CHECK_MESSAGE_HAS("[3]; two dimensions");
#define REFUSED(field, value, diag, message)                                        \
    d = init_of(IGNIS_INIT_TRUNCATED_NORMAL), d.field = value;                      \
    CHECK_STATUS(ignis_initialize(x, &d), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_##diag); \
    CHECK_MESSAGE_HAS(message)
    REFUSED(kind, (ignis_init)6, BAD_ENUM, "desc->kind is 6");
    REFUSED(fan, (ignis_fan)2, BAD_ENUM, "desc->fan is 2");
    REFUSED(gain, -1, BAD_NUMBER, "desc->gain is -1");
    REFUSED(slope, NAN, BAD_NUMBER, "desc->slope is ");
    REFUSED(std, INFINITY, BAD_NUMBER, "desc->std is inf");
    REFUSED(low, 1, BAD_NUMBER, "low is 1, high is 0");
    REFUSED(mean, NAN, BAD_NUMBER, "desc->mean is ");
    let_go(x), let_go(row), let_go(integers);
}

int main(int argc, char **argv) { return test_run(argc, argv); }
