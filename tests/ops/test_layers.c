// SPDX-License-Identifier: MIT
/*  test_layers.c - pooling, upsampling, batch_norm and group_norm against double references, forward and backward */
#include "sweep.h"

#include "near.h"

#include <math.h>

#define EACH_FLOAT(dtype) for (dtype = IGNIS_F16; dtype <= IGNIS_F64; dtype = (ignis_dtype)(dtype + 1))

/* One rounding, and what sums of some hundred terms in the wider type add to it. */
static double tolerance_of(ignis_dtype dtype)
{
    return dtype == IGNIS_F64 ? 1e-12 : dtype == IGNIS_F32 ? 8e-6 : dtype == IGNIS_F16 ? 6e-4 : 5e-3;
}

static double *numbers(int64_t count) { return (double *)calloc((size_t)count + 1, sizeof(double)); }

static ignis_tensor constant(ignis_shape shape, double value, bool requires_grad)
{
    return noise_at(shape, IGNIS_F32, 0, value, 0, 0, requires_grad);
}

#define CHECK_ALL(what, dtype, got, expected, count, floor) \
    check_each(__LINE__, what, dtype, count, got, expected, count, tolerance_of(dtype), floor)

/*  The same for an array, which it reads. */
static void check_array(int line, const char *what, ignis_dtype dtype, ignis_array array, const double *expected,
                        int64_t count, double floor)
{
    double *got = array_values(array);
    test__check_int(__FILE__, line, what, ignis_array_numel(array), count);
    check_each(line, what, dtype, count, got, expected, count, tolerance_of(dtype), floor);
    free(got);
}
#define CHECK_ARRAY(what, dtype, array, expected, count, floor) \
    check_array(__LINE__, what, dtype, array, expected, count, floor)

/* --- pooling -------------------------------------------------------------------------------------------------------
   */

static ignis_pool_desc pool_of(int window, int stride, int padding)
{
    ignis_pool_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.window[0] = desc.window[1] = window;
    desc.stride[0] = desc.stride[1] = stride;
    desc.padding[0] = desc.padding[1] = padding;
    return desc;
}

/*  As many windows as begin before the end of the padding behind, or which are whole. */
static int64_t windows(int64_t size, int64_t window, int64_t stride, int64_t padding, bool ceil_mode)
{
    int64_t o = 0;
    while (ceil_mode ? (o == 0 || (o * stride < size + padding && (o - 1) * stride + window < size + 2 * padding))
                     : o * stride + window <= size + 2 * padding)
        o++;
    return o;
}

/*  dims: n, height, width, channels. y is filled; and dx out of dy. Returns the elements of y. */
static int64_t pool_reference(bool is_max, const ignis_pool_desc *d, const int64_t *dims, const double *x, double *y,
                              const double *dy, double *dx, int64_t *out)
{
    int64_t stride[2], n, o[2], c, at[2], channels = dims[3], count = 0;
    int i;
    for (i = 0; i < 2; i++) {
        stride[i] = d->stride[i] ? d->stride[i] : d->window[i];
        out[i] = windows(dims[1 + i], d->window[i], stride[i], d->padding[i], d->ceil_mode);
    }
    for (n = 0; n < dims[0]; n++)
        for (o[0] = 0; o[0] < out[0]; o[0]++)
            for (o[1] = 0; o[1] < out[1]; o[1]++)
                for (c = 0; c < channels; c++, count++) {
                    int64_t first[2], end[2], best = -1;
                    double sum = 0, divisor = 1;
                    for (i = 0; i < 2; i++) {
                        int64_t padded = dims[1 + i] + d->padding[i];
                        first[i] = o[i] * stride[i] - d->padding[i];
                        end[i] = first[i] + d->window[i] < padded ? first[i] + d->window[i] : padded;
                        if (!d->exclude_padding)
                            divisor *= (double)(end[i] - first[i]);
                        first[i] = first[i] < 0 ? 0 : first[i];
                        end[i] = end[i] < dims[1 + i] ? end[i] : dims[1 + i];
                        if (d->exclude_padding)
                            divisor *= (double)(end[i] - first[i]);
                    }
                    for (at[0] = first[0]; at[0] < end[0]; at[0]++)
                        for (at[1] = first[1]; at[1] < end[1]; at[1]++) {
                            int64_t j = ((n * dims[1] + at[0]) * dims[2] + at[1]) * channels + c;
                            sum += x[j];
                            if (best < 0 || x[j] > x[best] || isnan(x[j]))
                                best = j;
                            if (dy && !is_max)
                                dx[j] += dy[count] / divisor;
                        }
                    y[count] = is_max ? x[best] : sum / divisor;
                    if (dy && is_max)
                        dx[best] += dy[count];
                }
    return count;
}

/*  The same numbers twice, so that there are equal ones in a window. */
static void check_pool(bool is_max, const ignis_pool_desc *d, const int64_t *dims, ignis_dtype dtype, int64_t offset)
{
    bool is_signal = d->window[1] == 0;
    int64_t numel = dims[0] * dims[1] * dims[2] * dims[3], count, out[2];
    ignis_shape shape =
        is_signal ? IGNIS_SHAPE(dims[0], dims[1], dims[3]) : IGNIS_SHAPE(dims[0], dims[1], dims[2], dims[3]);
    ignis_tensor x = noise_at(shape, dtype, (uint64_t)numel, 0, 3, offset, true),
                 y = is_max ? ignis_max_pool(x, d) : ignis_avg_pool(x, d);
    ignis_pool_desc whole = *d;
    double *xs = tensor_values(x), *ys, *dys, *dxs = numbers(numel);
    CHECK_OK(ignis_status_last());
    if (is_signal)
        whole.window[1] = whole.stride[1] = 1;
    ys = numbers(numel * 4 + 64);
    count = pool_reference(is_max, &whole, dims, xs, ys, NULL, NULL, out);
    CHECK_SHAPE_IS(y,
                   is_signal ? IGNIS_SHAPE(dims[0], out[0], dims[3]) : IGNIS_SHAPE(dims[0], out[0], out[1], dims[3]));
    CHECK_ARRAY(is_max ? "max_pool" : "avg_pool", dtype, ignis_tensor_data(y), ys, count, 0.1);
    dys = backward_from(y, dtype, 7, offset);
    pool_reference(is_max, &whole, dims, xs, ys, dys, dxs, out);
    CHECK_ARRAY(is_max ? "gradient of max_pool" : "gradient of avg_pool", dtype, ignis_tensor_grad(x), dxs, numel, 0.1);
    free(xs), free(ys), free(dys), free(dxs);
    let_go(x), let_go(y);
}

TEST(pooling)
{
    static const struct {
        int window[2], stride[2], padding[2];
        bool ceil_mode, exclude_padding;
        int64_t dims[4];
    } cases[] = {{{2, 2}, {0, 0}, {0, 0}, false, false, {2, 6, 8, 16}},
                 {{3, 3}, {2, 2}, {1, 1}, false, false, {2, 9, 7, 8}},
                 {{3, 3}, {2, 2}, {1, 1}, true, true, {2, 8, 8, 8}},
                 {{3, 2}, {1, 3}, {1, 0}, true, false, {1, 5, 11, 3}},
                 {{2, 5}, {2, 1}, {1, 2}, false, true, {3, 7, 5, 33}},
                 {{1, 1}, {3, 2}, {0, 0}, false, false, {1, 7, 5, 5}},
                 {{17, 17}, {3, 5}, {8, 0}, true, false, {1, 20, 18, 4}},
                 {{2, 2}, {5, 5}, {0, 0}, true, true, {2, 8, 3, 16}},
                 {{5, 5}, {1, 1}, {2, 2}, false, true, {1, 1, 3, 1}},
                 {{4, 3}, {2, 2}, {2, 1}, true, true, {2, 13, 11, 24}},
                 {{2, 0}, {0, 0}, {0, 0}, false, false, {2, 12, 1, 16}},
                 {{3, 0}, {2, 0}, {1, 0}, true, true, {3, 17, 1, 5}},
                 {{300, 0}, {7, 0}, {0, 0}, false, false, {1, 331, 1, 8}},
                 {{3, 3}, {1, 1}, {1, 1}, false, true, {1, 4, 3, 256}},
                 {{2, 2}, {2, 2}, {1, 0}, false, false, {1, 3, 4, 128}},
                 {{4, 4}, {3, 3}, {1, 1}, true, false, {1, 5, 4, 256}},
                 {{5, 0}, {3, 0}, {1, 0}, true, false, {3, 14, 1, 1}},
                 {{5, 2}, {1, 1}, {1, 1}, false, false, {3, 8, 13, 16}}};
    ignis_dtype dtype;
    int i;
    SETUP(NULL);
    for (i = 0; i < COUNT_OF(cases); i++)
        EACH_FLOAT(dtype)
        {
            ignis_pool_desc d;
            int64_t offset;
            memset(&d, 0, sizeof d);
            memcpy(d.window, cases[i].window, sizeof d.window);
            memcpy(d.stride, cases[i].stride, sizeof d.stride);
            memcpy(d.padding, cases[i].padding, sizeof d.padding);
            d.ceil_mode = cases[i].ceil_mode;
            d.exclude_padding = cases[i].exclude_padding;
            for (offset = 0; offset < (i < 4 ? 2 : 1); offset++) {
                check_pool(true, &d, cases[i].dims, dtype, offset);
                check_pool(false, &d, cases[i].dims, dtype, offset);
            }
        }
}

TEST(the_first_of_equal_elements_has_the_gradient_and_the_last_nan)
{
    const double values[] = {1, 5, 5, 2, 0, 0, NAN, 0, NAN, 3, -INFINITY, -INFINITY},
                 expected[] = {0, 1, 0, 0, 0, 0, 0, 0, 1, 0, 1, 0};
    ignis_pool_desc desc = pool_of(4, 0, 0);
    ignis_tensor x, y;
    ignis_scope scope;
    int i;
    SETUP(NULL);
    scope = ignis_scope_begin();
    desc.window[1] = desc.stride[1] = 0;
    x = tensor_of(values, IGNIS_SHAPE(1, 10, 1), IGNIS_F32, true);
    desc.ceil_mode = true; /* the last window has two elements */
    y = ignis_max_pool(x, &desc);
    CHECK_NUMBER(value_at(y, 0), 5);
    CHECK(isnan(value_at(y, 1)) && isnan(value_at(y, 2)));
    CHECK_OK(ignis_backward(ignis_sum(y), IGNIS_NO_ARRAY));
    for (i = 0; i < 8; i++)
        CHECK_NUMBER(grad_at(x, i), i == 1 || i == 6);
    CHECK_NUMBER(grad_at(x, 8), 1);
    x = tensor_of(values + 10, IGNIS_SHAPE(1, 2, 1), IGNIS_F32, true);
    desc.window[0] = 2;
    y = ignis_max_pool(x, &desc);
    CHECK_NUMBER(value_at(y, 0), -INFINITY);
    CHECK_OK(ignis_backward(ignis_sum(y), IGNIS_NO_ARRAY));
    CHECK_NUMBER(grad_at(x, 0), expected[10]);
    CHECK_NUMBER(grad_at(x, 1), expected[11]);
    CHECK_OK(ignis_scope_end(scope));
}

/* --- upsampling ----------------------------------------------------------------------------------------------------
   */

/*  Where position o of a dimension lies, worked out in double, as between pixels low and high. */
static void between(const ignis_upsample_desc *d, int64_t in, int64_t out, int64_t o, int64_t *low, int64_t *high,
                    double *weight)
{
    double at = d->align_corners ? out > 1 ? (double)(o * (in - 1)) / (double)(out - 1) : 0
                                 : ((double)o + 0.5) * (double)in / (double)out - 0.5;
    if (d->mode == IGNIS_UPSAMPLE_NEAREST) {
        *low = *high = o * in / out;
        *weight = 0;
        return;
    }
    at = at < 0 ? 0 : at;
    *low = (int64_t)floor(at + 1e-12);
    *high = *low + 1 < in ? *low + 1 : in - 1;
    *weight = at - (double)*low;
}

static void upsample_reference(const ignis_upsample_desc *d, const int64_t *dims, const int64_t *out, const double *x,
                               double *y, const double *dy, double *dx)
{
    int64_t n, r, c, k, low[2], high[2], channels = dims[3], count = 0;
    double weight[2];
    for (n = 0; n < dims[0]; n++)
        for (r = 0; r < out[0]; r++)
            for (c = 0; c < out[1]; c++)
                for (k = 0; k < channels; k++, count++) {
                    int corner;
                    double sum = 0;
                    between(d, dims[1], out[0], r, &low[0], &high[0], &weight[0]);
                    between(d, dims[2], out[1], c, &low[1], &high[1], &weight[1]);
                    for (corner = 0; corner < 4; corner++) {
                        int64_t row = corner & 2 ? high[0] : low[0], column = corner & 1 ? high[1] : low[1];
                        int64_t at = ((n * dims[1] + row) * dims[2] + column) * channels + k;
                        double share =
                            (corner & 2 ? weight[0] : 1 - weight[0]) * (corner & 1 ? weight[1] : 1 - weight[1]);
                        if (dy)
                            dx[at] += dy[count] * share;
                        else
                            sum += x[at] * share;
                    }
                    if (!dy)
                        y[count] = sum;
                }
}

static void check_upsample(const ignis_upsample_desc *d, const int64_t *dims, ignis_dtype dtype, int64_t offset)
{
    bool is_signal = d->size[1] == 0;
    int64_t numel = dims[0] * dims[1] * dims[2] * dims[3], out[2], count;
    ignis_shape shape =
        is_signal ? IGNIS_SHAPE(dims[0], dims[1], dims[3]) : IGNIS_SHAPE(dims[0], dims[1], dims[2], dims[3]);
    ignis_tensor x = noise_at(shape, dtype, (uint64_t)numel, 0, 3, offset, true), y = ignis_upsample(x, d);
    ignis_upsample_desc rows = *d;
    double *xs = tensor_values(x), *ys, *dys, *dxs = numbers(numel);
    CHECK_OK(ignis_status_last());
    out[0] = d->size[0];
    out[1] = is_signal ? 1 : d->size[1];
    count = dims[0] * out[0] * out[1] * dims[3];
    ys = numbers(count);
    upsample_reference(&rows, dims, out, xs, ys, NULL, NULL);
    CHECK_SHAPE_IS(y,
                   is_signal ? IGNIS_SHAPE(dims[0], out[0], dims[3]) : IGNIS_SHAPE(dims[0], out[0], out[1], dims[3]));
    CHECK_ARRAY("upsample", dtype, ignis_tensor_data(y), ys, count, 0.5);
    dys = backward_from(y, dtype, 7, offset);
    upsample_reference(&rows, dims, out, xs, NULL, dys, dxs);
    CHECK_ARRAY("gradient of upsample", dtype, ignis_tensor_grad(x), dxs, numel, 0.5);
    free(xs), free(ys), free(dys), free(dxs);
    let_go(x), let_go(y);
}

TEST(upsampling)
{
    static const int64_t cases[][6] = {
        {2, 4, 6, 8, 8, 12},  {1, 5, 7, 16, 13, 9}, {2, 7, 5, 3, 7, 5},   {1, 9, 8, 5, 4, 3},   {1, 1, 1, 8, 3, 4},
        {3, 1, 5, 4, 1, 11},  {1, 6, 2, 33, 1, 1},  {1, 2, 3, 8, 8, 12},  {2, 11, 1, 8, 29, 0}, {1, 30, 1, 3, 7, 0},
        {1, 100, 1, 1, 1, 0}, {1, 2, 2, 2, 31, 2},  {1, 2, 3, 256, 5, 6}, {2, 3, 2, 128, 2, 3}};
    ignis_dtype dtype;
    int i, mode;
    SETUP(NULL);
    for (i = 0; i < COUNT_OF(cases); i++)
        for (mode = 0; mode < 3; mode++)
            EACH_FLOAT(dtype)
            {
                ignis_upsample_desc d;
                int64_t offset;
                memset(&d, 0, sizeof d);
                memcpy(d.size, &cases[i][4], sizeof d.size);
                d.mode = mode ? IGNIS_UPSAMPLE_LINEAR : IGNIS_UPSAMPLE_NEAREST;
                d.align_corners = mode == 2;
                for (offset = 0; offset < (i < 2 ? 2 : 1); offset++)
                    check_upsample(&d, cases[i], dtype, offset);
            }
}

/*  Products of sizes beyond 2^31, which the kernels divide in 64 bits. */
TEST(a_long_signal_is_upsampled)
{
    ignis_upsample_desc d;
    ignis_tensor x, y;
    ignis_scope scope;
    double *values;
    int64_t n = 50021, out = 3 * n, i, wrong = 0;
    SETUP(NULL);
    scope = ignis_scope_begin();
    memset(&d, 0, sizeof d);
    d.size[0] = out;
    x = tensor_counting(IGNIS_SHAPE(1, n, 1), IGNIS_F64, 1, true);
    y = ignis_upsample(x, &d);
    values = tensor_values(y);
    for (i = 0; i < out; i++)
        wrong += values[i] != (double)(1 + i / 3);
    CHECK_INT(wrong, 0);
    free(values);
    d.mode = IGNIS_UPSAMPLE_LINEAR;
    y = ignis_upsample(x, &d);
    values = tensor_values(y);
    for (i = 1; i < out - 1; i++) /* the middle one of three is the pixel, the others are a third away */
        wrong += fabs(values[i] - (1 + ((double)i - 1) / 3)) > 1e-9;
    CHECK_INT(wrong, 0);
    free(values);
    CHECK_OK(ignis_backward(ignis_sum(y), IGNIS_NO_ARRAY));
    values = array_values(ignis_tensor_grad(x));
    for (i = 0; i < n; i++)
        wrong += fabs(values[i] - 3) > 1e-9;
    CHECK_INT(wrong, 0);
    free(values);
    CHECK_OK(ignis_scope_end(scope));
}

/*  A pixel without weight is not read. */
TEST(upsampling_beside_infinity)
{
    const double values[] = {1, INFINITY, 2};
    ignis_upsample_desc d;
    ignis_tensor x, y;
    SETUP(NULL);
    memset(&d, 0, sizeof d);
    d.size[0] = 5;
    d.mode = IGNIS_UPSAMPLE_LINEAR;
    d.align_corners = true;
    x = tensor_of(values, IGNIS_SHAPE(1, 3, 1), IGNIS_F32, false);
    y = ignis_upsample(x, &d);
    CHECK_NUMBER(value_at(y, 0), 1);
    CHECK_NUMBER(value_at(y, 1), INFINITY);
    CHECK_NUMBER(value_at(y, 4), 2);
    let_go(x), let_go(y);
}

/* --- norms ---------------------------------------------------------------------------------------------------------
   */

/*  A norm of x [outer, rows, channels] by groups of channels. given: mean and variance of each channel, or null. */
typedef struct norm_reference {
    int64_t outer, rows, channels, groups;
    double eps;
    const double *x, *w, *b, *dy, *given_mean, *given_var;
    double *y, *dx, *dw, *db, *mean, *var; /* mean and var [outer, groups] */
    double largest;                        /* of the terms that dx is the difference of */
} norm_reference;

static void norm_run(norm_reference *n)
{
    int64_t o, g, r, c, width = n->channels / n->groups;
    double count = (double)(n->rows * width);
    for (o = 0; o < n->outer; o++)
        for (g = 0; g < n->groups; g++) {
            double mean = 0, var = 0, average_g = 0, average_gh = 0, rstd;
#define EACH_ELEMENT              \
    for (r = 0; r < n->rows; r++) \
        for (c = g * width; c < (g + 1) * width; c++)
#define AT ((o * n->rows + r) * n->channels + c)
            EACH_ELEMENT mean += n->x[AT] / count;
            EACH_ELEMENT var += (n->x[AT] - mean) * (n->x[AT] - mean) / count;
            n->mean[o * n->groups + g] = mean;
            n->var[o * n->groups + g] = var;
            if (n->given_mean)
                mean = n->given_mean[g], var = n->given_var[g];
            rstd = 1 / sqrt(var + n->eps);
            EACH_ELEMENT
            {
                double h = (n->x[AT] - mean) * rstd;
                n->y[AT] = h * n->w[c] + n->b[c];
                if (n->dy) {
                    n->dw[c] += n->dy[AT] * h;
                    n->db[c] += n->dy[AT];
                    n->largest = fmax(n->largest, fabs(rstd * n->dy[AT] * n->w[c]));
                    average_g += n->dy[AT] * n->w[c] / count;
                    average_gh += n->dy[AT] * n->w[c] * h / count;
                }
            }
            if (n->given_mean)
                average_g = average_gh = 0;
            if (n->dy)
                EACH_ELEMENT n->dx[AT] =
                    rstd * (n->dy[AT] * n->w[c] - average_g - (n->x[AT] - mean) * rstd * average_gh);
        }
}

typedef struct norm_case {
    int64_t outer, rows, channels;
    int groups; /* 0: batch_norm */
    bool eval;
    double centre, scale;
    int64_t offset;
} norm_case;

static void check_norm(const norm_case *k, ignis_dtype dtype)
{
    ignis_dtype wide = dtype == IGNIS_F64 ? IGNIS_F64 : IGNIS_F32;
    int64_t numel = k->outer * k->rows * k->channels, channels = k->channels, i, stats;
    ignis_tensor x = noise_at(IGNIS_SHAPE(k->outer, k->rows, channels), dtype, (uint64_t)numel, k->centre, k->scale,
                              k->offset, true),
                 w = noise_at(IGNIS_SHAPE(channels), dtype, 3, 1, 0.5, 0, true),
                 b = noise_at(IGNIS_SHAPE(channels), dtype, 4, 0, 1, 0, true), y, running[2];
    double *xs = tensor_values(x), *ws = tensor_values(w), *bs = tensor_values(b), *before[2], momentum = 0.25,
           off_zero, rows;
    ignis_batch_norm_desc desc;
    norm_reference n;
    memset(&desc, 0, sizeof desc);
    memset(&n, 0, sizeof n);
    running[0] = noise_at(IGNIS_SHAPE(channels), wide, 5, 0, 1, 0, false);
    running[1] = noise_at(IGNIS_SHAPE(channels), wide, 6, 2, 1, 0, false);
    for (i = 0; i < 2; i++)
        before[i] = tensor_values(running[i]);
    desc.running_mean = ignis_tensor_data(running[0]);
    desc.running_var = ignis_tensor_data(running[1]);
    desc.momentum = momentum;
    desc.eps = 1e-3;
    desc.eval = k->eval;
    y = k->groups ? ignis_group_norm(x, k->groups, w, b, 1e-3) : ignis_batch_norm(x, w, b, &desc);
    CHECK_OK(ignis_status_last());
    CHECK_SHAPE_IS(y, IGNIS_SHAPE(k->outer, k->rows, channels));
    n.outer = k->groups ? k->outer : 1;
    n.rows = k->groups ? k->rows : k->outer * k->rows;
    n.channels = channels;
    n.groups = k->groups ? k->groups : channels;
    n.eps = 1e-3;
    n.x = xs, n.w = ws, n.b = bs;
    n.given_mean = k->eval ? before[0] : NULL;
    n.given_var = before[1];
    stats = n.outer * n.groups;
    n.y = numbers(numel), n.dx = numbers(numel), n.dw = numbers(channels), n.db = numbers(channels),
    n.mean = numbers(stats), n.var = numbers(stats);
    n.dy = backward_from(y, dtype, 9, k->offset);
    norm_run(&n);
    off_zero = 1 + fabs(k->centre / k->scale) /
                       100; /* the mean is rounded, too: x - mean is off by that much, and dw by as much for each row */
    rows = 1 + (double)n.rows / (dtype < IGNIS_F32 ? 100 : 1);
    CHECK_ARRAY("norm", dtype, ignis_tensor_data(y), n.y, numel, off_zero);
    CHECK_ARRAY("dx", dtype, ignis_tensor_grad(x), n.dx, numel, n.largest / (dtype < IGNIS_F32 ? 10 : 1));
    CHECK_ARRAY("dw", dtype, ignis_tensor_grad(w), n.dw, channels, rows * off_zero);
    CHECK_ARRAY("db", dtype, ignis_tensor_grad(b), n.db, channels, rows);
    for (i = 0; i < channels; i++) {
        double count = (double)n.rows;
        if (!k->groups && !k->eval) {
            before[0][i] += momentum * (n.mean[i] - before[0][i]);
            before[1][i] += momentum * (n.var[i] * count / (count - 1) - before[1][i]);
        }
    }
    CHECK_ARRAY("running_mean", wide, ignis_tensor_data(running[0]), before[0], channels, 1);
    CHECK_ARRAY("running_var", wide, ignis_tensor_data(running[1]), before[1], channels, 1);
    free(xs), free(ws), free(bs), free(before[0]), free(before[1]), free((void *)n.dy);
    free(n.y), free(n.dx), free(n.dw), free(n.db), free(n.mean), free(n.var);
    let_go(x), let_go(w), let_go(b), let_go(y), let_go(running[0]), let_go(running[1]);
}

TEST(norms)
{
    static const norm_case cases[] = {
        {2, 35, 8, 0, false, 0.5, 2, 0}, {2, 35, 8, 0, true, 0.5, 2, 0},  {1, 2, 1, 0, false, 0, 1, 0},
        {3, 7, 5, 0, false, 0, 1, 1},    {2, 9, 16, 0, false, 0, 1, 1},   {1, 700, 64, 0, false, 0, 1, 0},
        {2, 3, 264, 0, false, 0, 1, 0},  {1, 1, 24, 0, true, 0, 1, 0},    {5, 1, 3, 0, true, 0, 1, 1},
        {2, 20, 8, 2, false, 1, 2, 0},   {3, 13, 12, 3, false, 0, 1, 0},  {2, 5, 5, 5, false, 0, 1, 0},
        {2, 7, 33, 3, false, 0, 1, 1},   {1, 300, 16, 1, false, 0, 1, 0}, {4, 1, 32, 4, false, 0, 1, 0},
        {33, 2, 7, 1, false, 0, 1, 0},   {2, 6, 272, 17, false, 0, 1, 0}, {1, 2049, 3, 0, false, 0, 1, 0}};
    ignis_dtype dtype;
    int i;
    SETUP(NULL);
    for (i = 0; i < COUNT_OF(cases); i++)
        EACH_FLOAT(dtype) check_norm(&cases[i], dtype);
}

/*  Sums of x^2 in f32 would have nothing left of a variance of 1 around 1000. */
TEST(norms_of_numbers_far_from_zero)
{
    static const norm_case cases[] = {{1, 3000, 8, 0, false, 1000, 1, 0}, {2, 500, 8, 2, false, -2000, 1, 0}};
    SETUP(NULL);
    check_norm(&cases[0], IGNIS_F32);
    check_norm(&cases[1], IGNIS_F32);
}

/*  Channels of each second group are 2^power times as large: their squares overflow or vanish. Compared with the norm
    of ordinary channels, with an eps that is smaller by the square, or is 2^-126, the least that counts beside f32. */
static void check_far_norm(const norm_case *k, ignis_dtype dtype, int power)
{
    int64_t numel = k->outer * k->rows * k->channels, channels = k->channels, i,
            width = k->groups ? channels / k->groups : 1;
    ignis_tensor x = noise_at(IGNIS_SHAPE(k->outer, k->rows, channels), dtype, (uint64_t)numel, 0, 1, k->offset, true),
                 w = noise_at(IGNIS_SHAPE(channels), dtype, 3, 1, 0.5, 0, true),
                 b = noise_at(IGNIS_SHAPE(channels), dtype, 4, 0, 1, 0, true), y;
    double *xs = tensor_values(x), *ws = tensor_values(w), *bs = tensor_values(b), *far = numbers(numel), *dx;
    double eps = power > 0 ? 1e-3 : ldexp(1, 2 * power - 3), rows;
    ignis_batch_norm_desc desc;
    norm_reference n[2];
    int f;
#define IS_FAR(at) ((at) % channels / width % 2 == 0)
    for (i = 0; i < numel; i++)
        far[i] = ldexp(xs[i], IS_FAR(i) ? power : 0);
    CHECK_OK(ignis_array_from_host(ignis_tensor_data(x), far, IGNIS_F64, numel));
    memset(&desc, 0, sizeof desc), memset(n, 0, sizeof n);
    desc.eps = eps;
    y = k->groups ? ignis_group_norm(x, k->groups, w, b, eps) : ignis_batch_norm(x, w, b, &desc);
    CHECK_OK(ignis_status_last());
    n[0].dy = n[1].dy = backward_from(y, dtype, 9, k->offset);
    for (f = 0; f < 2; f++) { /* as it is, and what is far */
        n[f].outer = k->groups ? k->outer : 1;
        n[f].rows = k->groups ? k->rows : k->outer * k->rows;
        n[f].channels = channels;
        n[f].groups = k->groups ? k->groups : channels;
        n[f].eps = ldexp(dtype == IGNIS_F64 ? eps : fmax((double)(float)eps, ldexp(1, -126)), f ? -2 * power : 0);
        n[f].x = xs, n[f].w = ws, n[f].b = bs;
        n[f].y = numbers(numel), n[f].dx = numbers(numel), n[f].dw = numbers(channels), n[f].db = numbers(channels);
        n[f].mean = numbers(n[f].outer * n[f].groups), n[f].var = numbers(n[f].outer * n[f].groups);
        norm_run(&n[f]);
    }
    dx = array_values(ignis_tensor_grad(x));
    for (i = 0; i < numel; i++) {
        int which = IS_FAR(i);
        far[i] = n[which].y[i];
        n[0].dx[i] = n[which].dx[i];
        dx[i] = ldexp(dx[i], which ? power : 0);
        if (i < channels)
            n[0].dw[i] = n[which].dw[i];
    }
    rows = 1 + (double)n[0].rows / (dtype < IGNIS_F32 ? 100 : 1);
    CHECK_ARRAY("a far norm", dtype, ignis_tensor_data(y), far, numel, 1);
    CHECK_ARRAY("dw of it", dtype, ignis_tensor_grad(w), n[0].dw, channels, rows);
    if (power < (dtype == IGNIS_F64 ? 1000 : 110)) { /* else they are subnormal */
        CHECK_OK(ignis_array_from_host(ignis_tensor_grad(x), dx, IGNIS_F64, numel));
        CHECK_ARRAY("dx of it", dtype, ignis_tensor_grad(x), n[0].dx, numel,
                    n[1].largest / (dtype < IGNIS_F32 ? 10 : 1));
    }
    for (f = 0; f < 2; f++)
        free(n[f].y), free(n[f].dx), free(n[f].dw), free(n[f].db), free(n[f].mean), free(n[f].var);
    free(xs), free(ws), free(bs), free(far), free(dx), free((void *)n[0].dy);
    let_go(x), let_go(w), let_go(b), let_go(y);
}

TEST(norms_of_channels_far_from_one)
{
    static const norm_case cases[] = {
        {2, 35, 8, 0, false, 0, 0, 0},   {3, 7, 5, 0, false, 0, 0, 1},   {1, 700, 64, 0, false, 0, 0, 0},
        {2, 20, 8, 2, false, 0, 0, 0},   {3, 13, 12, 3, false, 0, 0, 0}, {2, 7, 33, 3, false, 0, 0, 1},
        {1, 300, 16, 1, false, 0, 0, 0}, {4, 1, 32, 4, false, 0, 0, 0},  {1, 2049, 3, 0, false, 0, 0, 0}};
    static const ignis_dtype dtypes[] = {IGNIS_F32, IGNIS_BF16, IGNIS_F64};
    static const int powers[][2] = {{66, 520}, {100, 1000}, {126, 1022}, {-60, -520}, {-63, -530}};
    int i, d, k;
    SETUP(NULL);
    for (i = 0; i < COUNT_OF(cases); i++)
        for (d = 0; d < 3; d++)
            for (k = 0; k < 5; k++)
                check_far_norm(&cases[i], dtypes[d], powers[k][d == 2]);
}

/*  What does not vary is b; and one huge element at the beginning, around which the first sums are, spoils no others.
    */
TEST(norms_of_extremes)
{
    ignis_tensor x, ones, zeros, y;
    double *values, mean = 1e4 / 4096, largest = 0;
    int i;
    SETUP(NULL);
    x = constant(IGNIS_SHAPE(64, 8), 7.25, false);
    ones = constant(IGNIS_SHAPE(8), 1, false);
    zeros = constant(IGNIS_SHAPE(8), 0.5, false);
    y = ignis_batch_norm(x, ones, zeros, NULL);
    for (i = 0; i < 512; i += 37)
        CHECK_NUMBER(value_at(y, i), 0.5);
    let_go(y), let_go(x), let_go(ones), let_go(zeros);
    ones = constant(IGNIS_SHAPE(1), 1, false);
    zeros = constant(IGNIS_SHAPE(1), 0, false);
    values = numbers(4096);
    values[0] = 1e4;
    x = tensor_of(values, IGNIS_SHAPE(4096, 1), IGNIS_F32, false);
    y = ignis_batch_norm(x, ones, zeros, NULL);
    free(values);
    values = tensor_values(y);
    for (i = 1; i < 4096; i++) {
        double expected = -mean / sqrt(1e8 / 4096 - mean * mean + 1e-5), error = fabs(values[i] / expected - 1);
        largest = error > largest ? error : largest;
    }
    CHECK(largest < 1e-4);
    free(values);
    let_go(y), let_go(x), let_go(ones), let_go(zeros);
}

/* --- what they have in common --------------------------------------------------------------------------------------
   */

/*  Each layer as a function of x [2, 4, 6, 4], w and b [4]. */
static struct {
    ignis_tensor mean, var;
} common;

static void common_begin(ignis_dtype dtype)
{
    common.mean = noise_at(IGNIS_SHAPE(4), dtype, 11, 0, 1, 0, false);
    common.var = noise_at(IGNIS_SHAPE(4), dtype, 12, 2, 1, 0, false);
}

static void common_end(void) { let_go(common.mean), let_go(common.var); }

static ignis_tensor common_run(int which, const ignis_tensor *in)
{
    ignis_pool_desc pool = pool_of(3, 2, 1);
    ignis_upsample_desc size;
    ignis_batch_norm_desc norm;
    memset(&size, 0, sizeof size);
    memset(&norm, 0, sizeof norm);
    size.size[0] = 7, size.size[1] = 5;
    size.mode = which == 3 ? IGNIS_UPSAMPLE_NEAREST : IGNIS_UPSAMPLE_LINEAR;
    size.align_corners = which == 5;
    norm.running_mean = ignis_tensor_data(common.mean);
    norm.running_var = ignis_tensor_data(common.var);
    norm.eval = which == 7;
    pool.exclude_padding = which == 2;
    switch (which) {
    case 0: return ignis_max_pool(in[0], &pool);
    case 1:
    case 2: return ignis_avg_pool(in[0], &pool);
    case 3:
    case 4:
    case 5: return ignis_upsample(in[0], &size);
    case 6:
    case 7: return ignis_batch_norm(in[0], in[1], in[2], &norm);
    case 8: return ignis_group_norm(in[0], 2, in[1], in[2], 0);
    default: return no_tensor();
    }
}
enum { COMMON = 9 };

static ignis_tensor common_call(const ignis_tensor *in, int count, void *which)
{
    (void)count;
    return common_run(*(const int *)which, in);
}

static void make_inputs(ignis_tensor *in, ignis_dtype dtype)
{
    in[0] = noise_at(IGNIS_SHAPE(2, 4, 6, 4), dtype, 1, 0, 1, 0, true);
    in[1] = noise_at(IGNIS_SHAPE(4), dtype, 2, 1, 0.5, 0, true);
    in[2] = noise_at(IGNIS_SHAPE(4), dtype, 3, 0, 1, 0, true);
}

TEST(gradients_agree_with_differences)
{
    int which;
    SETUP(NULL);
    common_begin(IGNIS_F64);
    for (which = 0; which < COMMON; which++) {
        ignis_tensor in[3];
        make_inputs(in, IGNIS_F64);
        CHECK(ignis_gradcheck(common_call, &which, in, which < 6 ? 1 : 3, NULL) < 1e-6);
        CHECK_OK(ignis_status_last());
        let_go(in[0]), let_go(in[1]), let_go(in[2]);
    }
    common_end();
}

/*  Only what is asked for is computed, and is the same then. */
TEST(gradients_of_some_inputs)
{
    int which, asked, i;
    SETUP(NULL);
    common_begin(IGNIS_F32);
    for (which = 6; which < COMMON; which++) {
        double *all[3] = {NULL, NULL, NULL};
        for (asked = -1; asked < 3; asked++) {
            ignis_scope scope = ignis_scope_begin();
            ignis_tensor in[3], y;
            make_inputs(in, IGNIS_F32);
            for (i = 0; i < 3; i++)
                if (asked >= 0 && i != asked)
                    in[i] = ignis_detach(in[i]);
            y = common_run(which, in);
            CHECK_OK(ignis_backward(ignis_map_sum("y * y * y", IGNIS_INPUTS(y)), IGNIS_NO_ARRAY));
            for (i = 0; i < 3; i++) {
                double *got;
                if (asked >= 0 && i != asked)
                    continue;
                got = array_values(ignis_tensor_grad(in[i]));
                if (asked < 0)
                    all[i] = got;
                else
                    CHECK(memcmp(got, all[i], sizeof *got * (size_t)numel_of(in[i])) == 0);
                if (asked >= 0)
                    free(got);
            }
            CHECK_OK(ignis_scope_end(scope));
            if (which == 6) { /* they have moved */
                common_end();
                common_begin(IGNIS_F32);
            }
        }
        free(all[0]), free(all[1]), free(all[2]);
    }
    common_end();
}

/*  A graph computes values and gradients anew, and moves running averages, at each launch. */
TEST(graphs)
{
    int which, i, j;
    SETUP(NULL);
    for (which = 0; which < COMMON; which++) {
        ignis_tensor in[3], y = no_tensor();
        double *values = NULL, *grad = NULL, *again, *mean = NULL;
        ignis_graph graph = {0};
        common_begin(IGNIS_F32);
        make_inputs(in, IGNIS_F32);
        for (i = 0; i < 2; i++) {
            ignis_scope scope = ignis_scope_begin();
            if (i == 1)
                CHECK_OK(ignis_graph_begin());
            y = common_run(which, in);
            CHECK_OK(ignis_backward(ignis_sum(ignis_mul(y, y)), IGNIS_NO_ARRAY));
            if (i == 1)
                graph = ignis_graph_end();
            if (i == 0) {
                values = tensor_values(y);
                grad = array_values(ignis_tensor_grad(in[0]));
                CHECK_OK(ignis_array_zero(ignis_tensor_grad(in[0])));
                CHECK_OK(ignis_scope_end(scope));
                continue;
            }
            y = ignis_scope_return(scope, y);
        }
        mean = tensor_values(common.mean);
        CHECK_OK(ignis_graph_launch(graph));
        again = tensor_values(y);
        CHECK(memcmp(again, values, sizeof *values * (size_t)numel_of(y)) == 0);
        free(again);
        again = array_values(ignis_tensor_grad(in[0]));
        CHECK(memcmp(again, grad, sizeof *grad * (size_t)numel_of(in[0])) == 0);
        free(again);
        if (which == 6) { /* by a tenth each time, towards the same mean */
            double *xs = tensor_values(in[0]), target = 0, expected = mean[1];
            for (i = 0; i < 48; i++)
                target += xs[4 * i + 1] / 48;
            CHECK_OK(ignis_graph_launch(graph));
            CHECK_OK(ignis_graph_launch(graph));
            for (j = 0; j < 3; j++)
                expected += 0.1 * (target - expected);
            CHECK_CLOSE(value_at(common.mean, 1), expected, 1e-6);
            free(xs);
        }
        CHECK_OK(ignis_graph_free(graph));
        free(values), free(grad), free(mean);
        let_go(y), let_go(in[0]), let_go(in[1]), let_go(in[2]);
        common_end();
    }
}

TEST(a_checkpoint_moves_running_averages_once)
{
    ignis_scope scope;
    ignis_tensor in[3], y;
    double first, second, *xs, mean = 0;
    int which = 6, i;
    SETUP(NULL);
    common_begin(IGNIS_F32);
    scope = ignis_scope_begin();
    make_inputs(in, IGNIS_F32);
    first = value_at(common.mean, 2);
    y = ignis_checkpoint(common_call, &which, in, 3, NULL);
    second = value_at(common.mean, 2);
    CHECK_OK(ignis_backward(ignis_map_sum("y * y * y", IGNIS_INPUTS(y)), IGNIS_NO_ARRAY));
    CHECK_NUMBER(value_at(common.mean, 2), second);
    xs = tensor_values(in[0]);
    for (i = 0; i < 48; i++)
        mean += xs[4 * i + 2] / 48;
    CHECK_CLOSE(second, first + 0.1 * (mean - first), 1e-6);
    CHECK(ignis_tensor_grad(in[0]).id != 0);
    free(xs);
    CHECK_OK(ignis_scope_end(scope));
    common_end();
}

/*  Evaluation after training, and training after evaluation, before its backward: what was saved is not the running
    averages. */
TEST(running_averages_may_move_before_backward)
{
    ignis_scope scope;
    ignis_tensor in[3], eval;
    double *grad, *again;
    SETUP(NULL);
    common_begin(IGNIS_F32);
    scope = ignis_scope_begin();
    make_inputs(in, IGNIS_F32);
    eval = common_run(7, in);
    CHECK_OK(ignis_backward(ignis_sum(ignis_mul(eval, eval)), IGNIS_NO_ARRAY));
    grad = array_values(ignis_tensor_grad(in[0]));
    CHECK_OK(ignis_array_zero(ignis_tensor_grad(in[0])));
    eval = common_run(7, in);
    CHECK(common_run(6, in).id != 0);
    CHECK_OK(ignis_backward(ignis_sum(ignis_mul(eval, eval)), IGNIS_NO_ARRAY));
    again = array_values(ignis_tensor_grad(in[0]));
    CHECK(memcmp(grad, again, sizeof *grad * 192) == 0);
    free(grad), free(again);
    CHECK_OK(ignis_scope_end(scope));
    common_end();
}

TEST(nothing_at_all)
{
    ignis_tensor x, w, b, y;
    ignis_pool_desc pool = pool_of(2, 0, 0);
    ignis_upsample_desc size;
    int i;
    SETUP(NULL);
    memset(&size, 0, sizeof size);
    size.size[0] = size.size[1] = 3;
    for (i = 0; i < 2; i++) { /* no images, no channels */
        int64_t n = i ? 2 : 0, c = i ? 0 : 5;
        ignis_scope scope = ignis_scope_begin();
        x = tensor_noise(IGNIS_SHAPE(n, 4, 4, c), IGNIS_F32, 1, true);
        w = constant(IGNIS_SHAPE(c), 1, true);
        b = constant(IGNIS_SHAPE(c), 1, false);
        CHECK_SHAPE_IS(ignis_max_pool(x, &pool), IGNIS_SHAPE(n, 2, 2, c));
        CHECK_SHAPE_IS(ignis_avg_pool(x, &pool), IGNIS_SHAPE(n, 2, 2, c));
        CHECK_SHAPE_IS(ignis_upsample(x, &size), IGNIS_SHAPE(n, 3, 3, c));
        y = ignis_group_norm(x, 1, w, b, 0);
        CHECK_SHAPE_IS(y, IGNIS_SHAPE(n, 4, 4, c));
        CHECK_OK(ignis_backward(ignis_sum(y), IGNIS_NO_ARRAY));
        if (c)
            CHECK_NUMBER(grad_at(w, 4), 0);
        CHECK_OK(ignis_scope_end(scope));
    }
    CHECK_OK(ignis_status_last());
}

TEST(bad_input)
{
    ignis_tensor image, row, ids, w, b;
    ignis_pool_desc pool = pool_of(2, 0, 0), bad;
    ignis_upsample_desc size, wrong;
    ignis_batch_norm_desc norm;
    ignis_array f16, five, four;
    ignis_scope scope;
    SETUP(NULL);
    scope = ignis_scope_begin();
    image = tensor_noise(IGNIS_SHAPE(1, 4, 5, 6), IGNIS_F32, 1, false);
    row = tensor_noise(IGNIS_SHAPE(4, 6), IGNIS_F32, 1, false);
    ids = tensor_counting(IGNIS_SHAPE(1, 4, 5, 6), IGNIS_I32, 1, false);
    w = tensor_noise(IGNIS_SHAPE(6), IGNIS_F32, 2, false);
    b = tensor_noise(IGNIS_SHAPE(5), IGNIS_F32, 3, false);
    memset(&size, 0, sizeof size);
    size.size[0] = size.size[1] = 8;
#define REFUSE_POOL(status, diagnostic)                                   \
    CHECK_REFUSED(0, ignis_max_pool(image, &bad).id, status, diagnostic); \
    CHECK_REFUSED(0, ignis_avg_pool(image, &bad).id, status, diagnostic)
    CHECK_REFUSED(0, ignis_max_pool(image, NULL).id, IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NULL_ARGUMENT);
    CHECK_REFUSED(0, ignis_max_pool(row, &pool).id, IGNIS_ERROR_SHAPE, IGNIS_DIAG_SHAPE_DIFFERS);
    CHECK_REFUSED(0, ignis_max_pool(ids, &pool).id, IGNIS_ERROR_DTYPE, IGNIS_DIAG_DTYPE_DIFFERS);
    CHECK_REFUSED(0, ignis_avg_pool(ignis_reshape(image, IGNIS_SHAPE(1, 20, 6)), &pool).id, IGNIS_ERROR_ARGUMENT,
                  IGNIS_DIAG_BAD_NUMBER);
    bad = pool, bad.window[1] = 0;
    REFUSE_POOL(IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    bad = pool, bad.stride[0] = -1;
    REFUSE_POOL(IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    bad = pool, bad.padding[0] = 2;
    REFUSE_POOL(IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    bad = pool, bad.padding[0] = -1;
    REFUSE_POOL(IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    bad = pool, bad.window[0] = 5;
    REFUSE_POOL(IGNIS_ERROR_SHAPE, IGNIS_DIAG_SHAPE_DIFFERS);
    CHECK_MESSAGE_HAS("ignis_avg_pool");
    CHECK_MESSAGE_HAS("x is [1, 4, 5, 6], too small for a window of 5");
    bad = pool, bad.window[0] = 1 << 28;
    REFUSE_POOL(IGNIS_ERROR_UNSUPPORTED, IGNIS_DIAG_UNSUPPORTED);
    CHECK_REFUSED(0, ignis_max_pool(tensor_noise(IGNIS_SHAPE(1, 0, 4, 2), IGNIS_F32, 1, false), &pool).id,
                  IGNIS_ERROR_SHAPE, IGNIS_DIAG_SHAPE_DIFFERS);

    CHECK_REFUSED(0, ignis_upsample(image, NULL).id, IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NULL_ARGUMENT);
    CHECK_REFUSED(0, ignis_upsample(row, &size).id, IGNIS_ERROR_SHAPE, IGNIS_DIAG_SHAPE_DIFFERS);
    CHECK_REFUSED(0, ignis_upsample(ids, &size).id, IGNIS_ERROR_DTYPE, IGNIS_DIAG_DTYPE_DIFFERS);
    wrong = size, wrong.size[1] = 0;
    CHECK_REFUSED(0, ignis_upsample(image, &wrong).id, IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    wrong = size, wrong.size[0] = INT64_C(1) << 28;
    CHECK_REFUSED(0, ignis_upsample(image, &wrong).id, IGNIS_ERROR_UNSUPPORTED, IGNIS_DIAG_UNSUPPORTED);
    wrong = size, wrong.mode = (ignis_upsample_mode)7;
    CHECK_REFUSED(0, ignis_upsample(image, &wrong).id, IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    wrong = size, wrong.align_corners = true;
    CHECK_REFUSED(0, ignis_upsample(image, &wrong).id, IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    CHECK_REFUSED(0, ignis_upsample(tensor_noise(IGNIS_SHAPE(1, 0, 4, 2), IGNIS_F32, 1, false), &size).id,
                  IGNIS_ERROR_SHAPE, IGNIS_DIAG_SHAPE_DIFFERS);

    four = make(IGNIS_SHAPE(6), IGNIS_F32), five = make(IGNIS_SHAPE(5), IGNIS_F32),
    f16 = make(IGNIS_SHAPE(6), IGNIS_F16);
#define REFUSE_NORM(status, diagnostic) CHECK_REFUSED(0, ignis_batch_norm(image, w, w, &norm).id, status, diagnostic)
    CHECK_REFUSED(0, ignis_batch_norm(ids, w, w, NULL).id, IGNIS_ERROR_DTYPE, IGNIS_DIAG_DTYPE_DIFFERS);
    CHECK_REFUSED(0, ignis_batch_norm(image, w, b, NULL).id, IGNIS_ERROR_SHAPE, IGNIS_DIAG_SHAPE_DIFFERS);
    CHECK_REFUSED(0, ignis_batch_norm(image, ignis_cast(w, IGNIS_F64), w, NULL).id, IGNIS_ERROR_DTYPE,
                  IGNIS_DIAG_DTYPE_DIFFERS);
    CHECK_REFUSED(0, ignis_batch_norm(w, w, w, NULL).id, IGNIS_ERROR_SHAPE,
                  IGNIS_DIAG_SHAPE_DIFFERS); /* one element a channel */
    memset(&norm, 0, sizeof norm);
    norm.eval = true;
    REFUSE_NORM(IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NULL_ARGUMENT);
    norm.running_mean = four;
    REFUSE_NORM(IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NULL_ARGUMENT);
    norm.running_var = five;
    REFUSE_NORM(IGNIS_ERROR_SHAPE, IGNIS_DIAG_SHAPE_DIFFERS);
    norm.running_var = f16;
    REFUSE_NORM(IGNIS_ERROR_DTYPE, IGNIS_DIAG_DTYPE_DIFFERS);
    norm.running_var = make(IGNIS_SHAPE(6), IGNIS_F32);
    REFUSE_NORM(IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_ARRAY_UNWRITTEN);
    CHECK_OK(ignis_array_fill(four, 0));
    CHECK_OK(ignis_array_fill(norm.running_var, 1));
    norm.momentum = 1.5;
    REFUSE_NORM(IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    norm.momentum = 0, norm.eps = -1;
    REFUSE_NORM(IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    CHECK_NUMBER(array_at(four, 0), 0); /* nothing has moved */
    CHECK_OK(ignis_array_free(norm.running_var));
    norm.eps = 0;
    REFUSE_NORM(IGNIS_ERROR_FREED, IGNIS_DIAG_ARRAY_FREED);

    CHECK_REFUSED(0, ignis_group_norm(ids, 2, w, w, 0).id, IGNIS_ERROR_DTYPE, IGNIS_DIAG_DTYPE_DIFFERS);
    CHECK_REFUSED(0, ignis_group_norm(image, 0, w, w, 0).id, IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    CHECK_REFUSED(0, ignis_group_norm(image, 4, w, w, 0).id, IGNIS_ERROR_SHAPE, IGNIS_DIAG_SHAPE_DIFFERS);
    CHECK_REFUSED(0, ignis_group_norm(w, 2, w, w, 0).id, IGNIS_ERROR_SHAPE, IGNIS_DIAG_SHAPE_DIFFERS);
    CHECK_REFUSED(0, ignis_group_norm(image, 2, w, b, 0).id, IGNIS_ERROR_SHAPE, IGNIS_DIAG_SHAPE_DIFFERS);
    CHECK_REFUSED(0, ignis_group_norm(image, 2, w, w, (double)NAN).id, IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    drop(four), drop(five), drop(f16);
    CHECK_OK(ignis_scope_end(scope));
}

/* --- memory ------------------------------------------------------------------------------------------------------- */

static ignis_tensor everything(int at, const ignis_tensor *in)
{
    ignis_tensor y = in[0];
    int which;
    (void)at;
    for (which = 0; which < COMMON; which++) {
        ignis_tensor inputs[3];
        inputs[0] = which % 3 == 0 ? in[0] : y, inputs[1] = in[1], inputs[2] = in[2];
        y = common_run(which, inputs);
        if (!y.id)
            return y;
    }
    return ignis_sum(y);
}

static void sweep(const char *prefix)
{
    static host_counter counter;
    ignis_desc desc = test_counting_desc(&counter);
    ignis_tensor in[3];
    SETUP(&desc);
    common_begin(IGNIS_F32);
    make_inputs(in, IGNIS_F32);
    sweep_walks(prefix, &counter, everything, in);
    let_go(in[0]), let_go(in[1]), let_go(in[2]);
    common_end();
}

TEST(each_launch_fails_once) { sweep("cuLaunchKernel"); }
TEST(each_host_allocation_fails_once) { sweep(NULL); }

int main(int argc, char **argv) { return test_run(argc, argv); }
