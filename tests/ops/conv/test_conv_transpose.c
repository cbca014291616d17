// SPDX-License-Identifier: MIT
/*  test_conv_transpose.c - transposed convolutions and pixel_shuffle, forward and backward, beside sums in double */
#include "sweep.h"

#include <math.h>

typedef struct scenario {
    int images, height, width, channels, outs, kernel[2], stride[2], padding[2], dilation[2], more[2], groups;
} scenario;

static int out_side(const scenario *s, int side)
{
    return ((side ? s->width : s->height) - 1) * s->stride[side] - 2 * s->padding[side] +
           s->dilation[side] * (s->kernel[side] - 1) + 1 + s->more[side];
}

/*  Sums, and the sums of the sizes of what was added. */
typedef struct sums {
    double *value, *size;
    int64_t numel;
} sums;

static sums sums_make(int64_t numel)
{
    sums s;
    s.numel = numel;
    s.value = (double *)calloc((size_t)numel + 1, sizeof(double));
    s.size = (double *)calloc((size_t)numel + 1, sizeof(double));
    return s;
}

static void sums_free(sums *s) { free(s->value), free(s->size); }

static void add_to(sums *s, int64_t at, double x) { s->value[at] += x, s->size[at] += fabs(x); }

/*  By the definition: each pixel of x adds its product with w to a patch of y. */
static void reference(const scenario *s, const double *x, const double *w, const double *g, sums *y, sums *dx, sums *dw)
{
    int oh = out_side(s, 0), ow = out_side(s, 1), c = s->channels / s->groups, o = s->outs / s->groups, n, p, q, k, i,
        j, f;
    for (n = 0; n < s->images; n++)
        for (p = 0; p < s->height; p++)
            for (q = 0; q < s->width; q++)
                for (k = 0; k < s->channels; k++)
                    for (i = 0; i < s->kernel[0]; i++)
                        for (j = 0; j < s->kernel[1]; j++) {
                            int row = p * s->stride[0] - s->padding[0] + i * s->dilation[0];
                            int column = q * s->stride[1] - s->padding[1] + j * s->dilation[1];
                            for (f = 0; f < o && row >= 0 && row < oh && column >= 0 && column < ow; f++) {
                                int64_t from = (((int64_t)n * s->height + p) * s->width + q) * s->channels + k;
                                int64_t weight = (((int64_t)k * s->kernel[0] + i) * s->kernel[1] + j) * o + f;
                                int64_t to = (((int64_t)n * oh + row) * ow + column) * s->outs + k / c * o + f;
                                add_to(y, to, x[from] * w[weight]);
                                add_to(dx, from, g[to] * w[weight]);
                                add_to(dw, weight, g[to] * x[from]);
                            }
                        }
}

/*  Each sum has a rounding for each of `terms` numbers in f32 (f64), and one to the dtype. */
static void compare(int line, const char *what, ignis_dtype dtype, ignis_array got, const sums *expected, double terms)
{
    double unit = dtype == IGNIS_F64   ? ldexp(1, -53)
                  : dtype == IGNIS_F32 ? ldexp(1, -24)
                  : dtype == IGNIS_F16 ? ldexp(1, -11)
                                       : ldexp(1, -8);
    double wide = dtype == IGNIS_F64 ? ldexp(1, -53) : ldexp(1, -24), *values = array_values(got);
    int64_t i, wrong = 0;
    char text[160];
    for (i = 0; i < expected->numel; i++)
        wrong += !(fabs(values[i] - expected->value[i]) <= 2.02 * unit * fabs(expected->value[i]) +
                                                               wide * (terms + 4) * expected->size[i] +
                                                               1e-7 * (dtype == IGNIS_F16));
    snprintf(text, sizeof text, "%s in %s: %lld of %lld differ", what, ignis_dtype_name(dtype), (long long)wrong,
             (long long)expected->numel);
    if (wrong || ignis_array_numel(got) != expected->numel)
        test__fail(__FILE__, line, text);
    free(values);
}

static ignis_conv_transpose_desc transpose_desc(const scenario *s)
{
    ignis_conv_transpose_desc desc;
    memset(&desc, 0, sizeof desc);
    memcpy(desc.stride, s->stride, sizeof s->stride);
    memcpy(desc.padding, s->padding, sizeof s->padding);
    memcpy(desc.dilation, s->dilation, sizeof s->dilation);
    memcpy(desc.output_padding, s->more, sizeof s->more);
    desc.groups = s->groups;
    return desc;
}

static void check_scenario(int line, const scenario *s, ignis_dtype dtype, bool is_row)
{
    ignis_conv_transpose_desc desc = transpose_desc(s);
    int oh = out_side(s, 0), ow = out_side(s, 1), o = s->outs / s->groups, i;
    ignis_shape xs = IGNIS_SHAPE(s->images, s->height, s->width, s->channels),
                ws = IGNIS_SHAPE(s->channels, s->kernel[0], s->kernel[1], o);
    ignis_shape ys = IGNIS_SHAPE(s->images, oh, ow, s->outs);
    ignis_scope scope = ignis_scope_begin();
    ignis_tensor x, w, bias, y;
    sums sy = sums_make(shape_numel(ys)), dx = sums_make(shape_numel(xs)), dw = sums_make(shape_numel(ws)),
         db = sums_make(s->outs);
    double *in, *weights, *biases, *g;
    if (is_row) {
        xs = IGNIS_SHAPE(s->images, s->width, s->channels), ws = IGNIS_SHAPE(s->channels, s->kernel[1], o);
        ys = IGNIS_SHAPE(s->images, ow, s->outs);
        desc.stride[0] = s->stride[1], desc.padding[0] = s->padding[1], desc.dilation[0] = s->dilation[1];
        desc.output_padding[0] = s->more[1];
    }
    x = tensor_noise(xs, dtype, 1, true), w = tensor_noise(ws, dtype, 2, true);
    bias = tensor_noise(IGNIS_SHAPE(s->outs), dtype, 3, true);
    y = is_row ? ignis_conv_transpose1d(x, w, bias, &desc) : ignis_conv_transpose2d(x, w, bias, &desc);
    CHECK_OK(ignis_status_last());
    CHECK_SHAPE_IS(y, ys);
    in = tensor_values(x), weights = tensor_values(w), biases = tensor_values(bias);
    g = backward_from(y, dtype, 5, 0);
    reference(s, in, weights, g, &sy, &dx, &dw);
    for (i = 0; i < sy.numel; i++) {
        add_to(&sy, i, biases[i % s->outs]);
        add_to(&db, i % s->outs, g[i]);
    }
    compare(line, "y", dtype, ignis_tensor_data(y), &sy, s->kernel[0] * s->kernel[1] * s->channels / s->groups);
    compare(line, "dx", dtype, ignis_tensor_grad(x), &dx, s->kernel[0] * s->kernel[1] * o);
    compare(line, "dw", dtype, ignis_tensor_grad(w), &dw, s->images * s->height * s->width);
    compare(line, "db", dtype, ignis_tensor_grad(bias), &db, (double)s->images * oh * ow);
    free(in), free(weights), free(biases), free(g);
    sums_free(&sy), sums_free(&dx), sums_free(&dw), sums_free(&db);
    CHECK_OK(ignis_scope_end(scope));
}

/*  images, height, width, channels, outs; kernel, stride, padding, dilation, output_padding; groups */
static const scenario scenarios[] = {
    {1, 1, 1, 1, 1, {1, 1}, {1, 1}, {0, 0}, {1, 1}, {0, 0}, 1},
    {2, 3, 5, 4, 7, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {0, 0}, 1},
    {1, 4, 4, 8, 16, {4, 4}, {2, 2}, {1, 1}, {1, 1}, {0, 0}, 1}, /* of a DCGAN */
    {2, 3, 2, 16, 8, {3, 3}, {2, 2}, {1, 1}, {1, 1}, {1, 1}, 1},
    {1, 3, 4, 5, 3, {2, 3}, {3, 2}, {0, 1}, {1, 2}, {2, 1}, 1},
    {1, 2, 3, 3, 2, {1, 2}, {3, 4}, {0, 0}, {1, 1}, {1, 2}, 1}, /* pixels without a patch */
    {2, 4, 3, 6, 9, {3, 2}, {2, 1}, {1, 0}, {1, 1}, {0, 0}, 3},
    {1, 5, 4, 6, 6, {3, 3}, {2, 2}, {1, 1}, {1, 1}, {1, 0}, 6},  /* each channel by itself */
    {3, 4, 4, 16, 8, {1, 1}, {1, 1}, {0, 0}, {1, 1}, {0, 0}, 1}, /* a product */
    {0, 4, 4, 4, 8, {3, 3}, {2, 2}, {1, 1}, {1, 1}, {0, 0}, 1}};

TEST(beside_the_definition)
{
    int i, d;
    SETUP(NULL);
    for (i = 0; i < COUNT_OF(scenarios); i++)
        for (d = 0; d < 4; d++)
            check_scenario(__LINE__, &scenarios[i], float_dtypes[d], false);
}

/*  Channels that fill tiles of tensor cores, in phases and not. */
TEST(many_channels)
{
    static const scenario two[] = {{1, 6, 6, 64, 64, {4, 4}, {2, 2}, {1, 1}, {1, 1}, {0, 0}, 1},
                                   {1, 6, 6, 64, 64, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {0, 0}, 1}};
    SETUP(NULL);
    check_scenario(__LINE__, &two[0], IGNIS_F16, false);
    check_scenario(__LINE__, &two[1], IGNIS_BF16, false);
}

TEST(rows_of_points)
{
    static const scenario rows[] = {{2, 1, 7, 4, 5, {1, 3}, {1, 2}, {0, 1}, {1, 1}, {0, 1}, 1},
                                    {1, 1, 9, 8, 8, {1, 4}, {1, 2}, {0, 1}, {1, 2}, {0, 0}, 2}};
    int i, d;
    SETUP(NULL);
    for (i = 0; i < COUNT_OF(rows); i++)
        for (d = 0; d < 4; d++)
            check_scenario(__LINE__, &rows[i], float_dtypes[d], true);
}

static ignis_tensor call_transpose(const ignis_tensor *x, int count, void *user_data)
{
    return (void)count, ignis_conv_transpose2d(x[0], x[1], x[2], (const ignis_conv_transpose_desc *)user_data);
}

TEST(gradients_agree_with_differences)
{
    ignis_conv_transpose_desc desc = transpose_desc(&scenarios[4]);
    ignis_tensor x[3];
    SETUP(NULL);
    x[0] = tensor_noise(IGNIS_SHAPE(1, 3, 4, 5), IGNIS_F64, 1, true);
    x[1] = tensor_noise(IGNIS_SHAPE(5, 2, 3, 3), IGNIS_F64, 2, true);
    x[2] = tensor_noise(IGNIS_SHAPE(3), IGNIS_F64, 3, true);
    CHECK(ignis_gradcheck(call_transpose, &desc, x, 3, NULL) < 1e-6);
    let_go(x[0]), let_go(x[1]), let_go(x[2]);
}

static ignis_tensor call_shuffle(const ignis_tensor *x, int count, void *user_data)
{
    return (void)count, (void)user_data, ignis_pixel_shuffle(x[0], 3);
}

TEST(pixel_shuffle)
{
    enum { N = 2, H = 3, W = 2, C = 2, F = 3 };
    static const ignis_dtype dtypes[] = {IGNIS_F64, IGNIS_F32, IGNIS_F16, IGNIS_BF16, IGNIS_I64, IGNIS_U8};
    ignis_tensor x;
    int d;
    SETUP(NULL);
    for (d = 0; d < COUNT_OF(dtypes); d++) {
        ignis_scope scope = ignis_scope_begin();
        ignis_tensor y, back;
        double *in, *got, *again;
        int n, p, q, k, wrong = 0;
        x = tensor_counting(IGNIS_SHAPE(N, H, W, C * F * F), dtypes[d], 1, false);
        y = ignis_pixel_shuffle(x, F);
        back = ignis_pixel_unshuffle(y, F);
        CHECK_OK(ignis_status_last());
        CHECK_SHAPE_IS(y, IGNIS_SHAPE(N, H * F, W * F, C));
        CHECK_SHAPE_IS(back, IGNIS_SHAPE(N, H, W, C * F * F));
        in = tensor_values(x), got = tensor_values(y), again = tensor_values(back);
        for (n = 0; n < N; n++)
            for (p = 0; p < H * F; p++)
                for (q = 0; q < W * F; q++)
                    for (k = 0; k < C; k++)
                        wrong += got[((n * H * F + p) * W * F + q) * C + k] !=
                                 in[((n * H + p / F) * W + q / F) * C * F * F + (k * F + p % F) * F + q % F];
        CHECK_INT(wrong, 0);
        CHECK(memcmp(in, again, sizeof *in * N * H * W * C * F * F) == 0);
        free(in), free(got), free(again);
        CHECK_OK(ignis_scope_end(scope));
    }
    x = tensor_noise(IGNIS_SHAPE(1, 2, 1, 18), IGNIS_F64, 1, true);
    CHECK(ignis_gradcheck(call_shuffle, NULL, &x, 1, NULL) < 1e-6);
    let_go(x);
}

TEST(refusals)
{
    ignis_conv_transpose_desc desc;
    ignis_scope scope;
    ignis_tensor x, w, none = no_tensor();
    SETUP(NULL);
    scope = ignis_scope_begin();
    memset(&desc, 0, sizeof desc);
    x = ignis_tensor_zeros(IGNIS_SHAPE(1, 4, 4, 6), NULL);
    w = ignis_tensor_zeros(IGNIS_SHAPE(6, 3, 3, 2), NULL);
    CHECK_REFUSED(0, ignis_conv_transpose1d(x, w, none, NULL).id, IGNIS_ERROR_SHAPE, IGNIS_DIAG_CONV_SHAPE);
    CHECK_REFUSED(0, ignis_conv_transpose2d(x, ignis_slice(w, 0, 0, 5), none, NULL).id, IGNIS_ERROR_SHAPE,
                  IGNIS_DIAG_CONV_SHAPE);
    CHECK_MESSAGE_HAS("the first dimension of w is the channels of x");
    CHECK_REFUSED(0, ignis_conv_transpose2d(x, ignis_cast(w, IGNIS_F16), none, NULL).id, IGNIS_ERROR_DTYPE,
                  IGNIS_DIAG_DTYPE_DIFFERS);
    CHECK_REFUSED(0, ignis_conv_transpose2d(x, w, ignis_tensor_zeros(IGNIS_SHAPE(3), NULL), NULL).id, IGNIS_ERROR_SHAPE,
                  IGNIS_DIAG_CONV_SHAPE);
    CHECK_MESSAGE_HAS("bias is [3]; w [6, 3, 3, 2] needs [2]");
    desc.output_padding[1] = 1;
    CHECK_REFUSED(0, ignis_conv_transpose2d(x, w, none, &desc).id, IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    CHECK_MESSAGE_HAS("desc.output_padding[1] is 1; expected a number below the stride, 1");
    desc.output_padding[1] = -1;
    CHECK_REFUSED(0, ignis_conv_transpose2d(x, w, none, &desc).id, IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    desc.output_padding[1] = 0, desc.padding[0] = 3;
    CHECK_REFUSED(0, ignis_conv_transpose2d(x, w, none, &desc).id, IGNIS_ERROR_SHAPE, IGNIS_DIAG_CONV_SHAPE);
    CHECK_MESSAGE_HAS("gives no pixel");
    desc.padding[0] = 0, desc.groups = 4;
    CHECK_REFUSED(0, ignis_conv_transpose2d(x, w, none, &desc).id, IGNIS_ERROR_SHAPE, IGNIS_DIAG_CONV_SHAPE);
    desc.groups = -1;
    CHECK_REFUSED(0, ignis_conv_transpose2d(x, w, none, &desc).id, IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    CHECK_REFUSED(0, ignis_pixel_shuffle(x, 2).id, IGNIS_ERROR_SHAPE, IGNIS_DIAG_SHAPE_DIFFERS);
    CHECK_REFUSED(0, ignis_pixel_shuffle(x, 0).id, IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    CHECK_REFUSED(0, ignis_pixel_unshuffle(x, 3).id, IGNIS_ERROR_SHAPE, IGNIS_DIAG_SHAPE_DIFFERS);
    CHECK_OK(ignis_scope_end(scope));
}

static ignis_tensor everything(int at, const ignis_tensor *inputs)
{
    ignis_conv_transpose_desc desc = transpose_desc(&scenarios[2]);
    ignis_tensor y = ignis_conv_transpose2d(inputs[0], inputs[1], inputs[2], &desc);
    (void)at;
    return ignis_sum(ignis_pixel_unshuffle(ignis_pixel_shuffle(y, 2), 2));
}

static void sweep(const char *prefix)
{
    static host_counter counter;
    ignis_desc desc = test_counting_desc(&counter);
    ignis_tensor inputs[3];
    SETUP(&desc);
    inputs[0] = tensor_noise(IGNIS_SHAPE(1, 2, 2, 8), IGNIS_F32, 1, true);
    inputs[1] = tensor_noise(IGNIS_SHAPE(8, 4, 4, 4), IGNIS_F32, 2, true);
    inputs[2] = tensor_noise(IGNIS_SHAPE(4), IGNIS_F32, 3, true);
    sweep_walks(prefix, &counter, everything, inputs);
    let_go(inputs[0]), let_go(inputs[1]), let_go(inputs[2]);
}

TEST(each_launch_fails_once) { sweep("cuLaunchKernel"); }
TEST(each_host_allocation_fails_once) { sweep(NULL); }

int main(int argc, char **argv) { return test_run(argc, argv); }
