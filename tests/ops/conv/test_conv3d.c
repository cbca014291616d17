// SPDX-License-Identifier: MIT
/*  test_conv3d.c - convolutions of volumes and their transposes, forward and backward, beside sums in double

    Each scenario runs as a convolution, and as the transpose whose result has the shape of its x. */
#include "sweep.h"

#include <math.h>

typedef struct scenario {
    int images, size[3], channels, outs, kernel[3], stride[3], padding[3], dilation[3], groups;
} scenario;

static int out_side(const scenario *s, int i)
{
    return (s->size[i] + 2 * s->padding[i] - s->dilation[i] * (s->kernel[i] - 1) - 1) / s->stride[i] + 1;
}

/*  Sums, and the sums of the sizes of what was added. */
typedef struct sums {
    double *value, *size;
    int64_t numel;
} sums;

static sums sums_make(ignis_shape shape)
{
    sums s;
    s.numel = shape_numel(shape);
    s.value = (double *)calloc((size_t)s.numel + 1, sizeof(double));
    s.size = (double *)calloc((size_t)s.numel + 1, sizeof(double));
    return s;
}

static void sums_free(sums *s) { free(s->value), free(s->size); }

static void add_to(sums *s, int64_t at, double x) { s->value[at] += x, s->size[at] += fabs(x); }

/*  Calls body for each pair of a pixel of the result and a pixel of its patch, by the definition. */
typedef struct pair {
    int64_t x, out, tap; /* pixels, and the number of the tap */
} pair;

static int64_t each_pair(const scenario *s, pair *pairs)
{
    int64_t count = 0;
    int n, o[3], k[3], at[3], i;
    for (n = 0; n < s->images; n++)
        for (o[0] = 0; o[0] < out_side(s, 0); o[0]++)
            for (o[1] = 0; o[1] < out_side(s, 1); o[1]++)
                for (o[2] = 0; o[2] < out_side(s, 2); o[2]++)
                    for (k[0] = 0; k[0] < s->kernel[0]; k[0]++)
                        for (k[1] = 0; k[1] < s->kernel[1]; k[1]++)
                            for (k[2] = 0; k[2] < s->kernel[2]; k[2]++) {
                                bool inside = true;
                                pair p = {0, 0, 0};
                                p.x = p.out = n;
                                for (i = 0; i < 3; i++) {
                                    at[i] = o[i] * s->stride[i] - s->padding[i] + k[i] * s->dilation[i];
                                    inside = inside && at[i] >= 0 && at[i] < s->size[i];
                                    p.x = p.x * s->size[i] + at[i];
                                    p.out = p.out * out_side(s, i) + o[i];
                                    p.tap = p.tap * s->kernel[i] + k[i];
                                }
                                if (inside && pairs)
                                    pairs[count] = p;
                                count += inside;
                            }
    return count;
}

/*  Adds up the result y, and what the gradient `g` of the one that was computed, y (back: x), gives. */
static void reference(const scenario *s, const double *x, const double *w, const double *y, sums *to_x, sums *to_w,
                      sums *to_y)
{
    int64_t count = each_pair(s, NULL), i, taps = (int64_t)s->kernel[0] * s->kernel[1] * s->kernel[2];
    int c = s->channels / s->groups, o = s->outs / s->groups, f, k;
    pair *pairs = (pair *)malloc(sizeof *pairs * (size_t)(count + 1));
    each_pair(s, pairs);
    for (i = 0; i < count; i++)
        for (f = 0; f < s->outs; f++)
            for (k = 0; k < c; k++) {
                int64_t from = pairs[i].x * s->channels + f / o * c + k, to = pairs[i].out * s->outs + f,
                        weight = (f * taps + pairs[i].tap) * c + k;
                if (to_x)
                    add_to(to_x, from, y[to] * w[weight]);
                if (to_w)
                    add_to(to_w, weight, y[to] * x[from]);
                if (to_y)
                    add_to(to_y, to, x[from] * w[weight]);
            }
    free(pairs);
}

static double factor_rounding; /* of the factors, to tf32 */

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
        wrong += !(fabs(values[i] - expected->value[i]) <=
                   2.02 * unit * fabs(expected->value[i]) + (wide * (terms + 4) + factor_rounding) * expected->size[i] +
                       1e-7 * (dtype == IGNIS_F16));
    snprintf(text, sizeof text, "%s in %s: %lld of %lld differ", what, ignis_dtype_name(dtype), (long long)wrong,
             (long long)expected->numel);
    if (wrong || ignis_array_numel(got) != expected->numel)
        test__fail(__FILE__, line, text);
    free(values);
}

static ignis_conv_desc conv_desc(const scenario *s)
{
    ignis_conv_desc desc;
    memcpy(desc.stride, s->stride, sizeof s->stride);
    memcpy(desc.padding, s->padding, sizeof s->padding);
    memcpy(desc.dilation, s->dilation, sizeof s->dilation);
    desc.groups = s->groups;
    return desc;
}

static ignis_conv_transpose_desc transpose_desc(const scenario *s)
{
    ignis_conv_transpose_desc desc;
    int i;
    memcpy(desc.stride, s->stride, sizeof s->stride);
    memcpy(desc.padding, s->padding, sizeof s->padding);
    memcpy(desc.dilation, s->dilation, sizeof s->dilation);
    for (i = 0; i < 3; i++)
        desc.output_padding[i] =
            (s->size[i] + 2 * s->padding[i] - s->dilation[i] * (s->kernel[i] - 1) - 1) % s->stride[i];
    desc.groups = s->groups;
    return desc;
}

static ignis_shape x_shape(const scenario *s)
{
    return IGNIS_SHAPE(s->images, s->size[0], s->size[1], s->size[2], s->channels);
}

static ignis_shape w_shape(const scenario *s)
{
    return IGNIS_SHAPE(s->outs, s->kernel[0], s->kernel[1], s->kernel[2], s->channels / s->groups);
}

static ignis_shape y_shape(const scenario *s)
{
    return IGNIS_SHAPE(s->images, out_side(s, 0), out_side(s, 1), out_side(s, 2), s->outs);
}

static void check(int line, const scenario *s, ignis_dtype dtype, bool transposed)
{
    ignis_conv_desc desc = conv_desc(s);
    ignis_conv_transpose_desc back = transpose_desc(s);
    ignis_scope scope = ignis_scope_begin();
    ignis_tensor in = tensor_noise(transposed ? y_shape(s) : x_shape(s), dtype, 1, true),
                 w = tensor_noise(w_shape(s), dtype, 2, true), bias, out;
    sums sx = sums_make(x_shape(s)), sw = sums_make(w_shape(s)), sy = sums_make(y_shape(s)), db, *result;
    double *in_values = tensor_values(in), *weights = tensor_values(w), *biases, *g, taps, terms[2];
    int features = transposed ? s->channels : s->outs;
    int64_t i;
    bias = tensor_noise(IGNIS_SHAPE(features), dtype, 3, true);
    biases = tensor_values(bias);
    db = sums_make(IGNIS_SHAPE(features));
    out = transposed ? ignis_conv_transpose3d(in, w, bias, &back) : ignis_conv3d(in, w, bias, &desc);
    CHECK_OK(ignis_status_last());
    CHECK_SHAPE_IS(out, transposed ? x_shape(s) : y_shape(s));
    g = backward_from(out, dtype, 5, 0);
    if (transposed) {
        reference(s, NULL, weights, in_values, &sx, NULL, NULL);
        reference(s, g, weights, in_values, NULL, &sw, &sy);
    } else {
        reference(s, in_values, weights, NULL, NULL, NULL, &sy);
        reference(s, in_values, weights, g, &sx, &sw, NULL);
    }
    result = transposed ? &sx : &sy;
    for (i = 0; i < result->numel; i++) {
        add_to(result, i, biases[i % features]);
        add_to(&db, i % features, g[i]);
    }
    taps = (double)s->kernel[0] * s->kernel[1] * s->kernel[2] / s->groups;
    terms[0] = taps * s->outs, terms[1] = taps * s->channels;
    compare(line, "x", dtype, transposed ? ignis_tensor_data(out) : ignis_tensor_grad(in), &sx, terms[0]);
    compare(line, "y", dtype, transposed ? ignis_tensor_grad(in) : ignis_tensor_data(out), &sy, terms[1]);
    compare(line, "dw", dtype, ignis_tensor_grad(w), &sw, (double)sy.numel / (s->outs + 1) + 1);
    compare(line, "db", dtype, ignis_tensor_grad(bias), &db, (double)result->numel);
    free(in_values), free(weights), free(biases), free(g);
    sums_free(&sx), sums_free(&sw), sums_free(&sy), sums_free(&db);
    CHECK_OK(ignis_scope_end(scope));
}

/*  images, size, channels, outs; kernel, stride, padding, dilation; groups */
static const scenario scenarios[] = {
    {1, {1, 1, 1}, 1, 1, {1, 1, 1}, {1, 1, 1}, {0, 0, 0}, {1, 1, 1}, 1},
    {2, {3, 4, 5}, 3, 7, {3, 3, 3}, {1, 1, 1}, {1, 1, 1}, {1, 1, 1}, 1},
    {1, {5, 3, 4}, 8, 16, {2, 3, 2}, {2, 1, 3}, {0, 2, 1}, {2, 1, 1}, 1},
    {2, {4, 5, 3}, 4, 5, {3, 1, 2}, {2, 2, 1}, {1, 0, 1}, {1, 1, 2}, 1},
    {1, {5, 2, 7}, 5, 2, {2, 1, 2}, {3, 2, 4}, {0, 0, 0}, {1, 1, 1}, 1}, /* pixels without a patch */
    {2, {3, 4, 3}, 6, 9, {2, 3, 2}, {1, 2, 1}, {1, 0, 1}, {1, 1, 1}, 3},
    {2, {4, 3, 5}, 6, 6, {3, 3, 3}, {1, 2, 1}, {1, 1, 1}, {1, 1, 1}, 6},  /* each channel by itself */
    {1, {3, 4, 4}, 8, 8, {3, 2, 3}, {2, 1, 1}, {1, 1, 1}, {1, 1, 1}, 8},  /* in packs */
    {3, {3, 2, 4}, 16, 8, {1, 1, 1}, {1, 1, 1}, {0, 0, 0}, {1, 1, 1}, 1}, /* a product */
    {2, {3, 5, 4}, 4, 6, {1, 3, 3}, {1, 2, 1}, {0, 1, 1}, {1, 1, 1}, 1},  /* of images, in planes */
    {2, {5, 3, 2}, 4, 6, {3, 1, 1}, {2, 1, 1}, {1, 0, 0}, {1, 1, 1}, 1},  /* along planes alone */
    {0, {4, 4, 4}, 4, 8, {3, 3, 3}, {2, 2, 2}, {1, 1, 1}, {1, 1, 1}, 1}};

static void check_all(ignis_dtype dtype)
{
    int i, failures = test__state.failures;
    SETUP(NULL);
    for (i = 0; i < COUNT_OF(scenarios) && failures == test__state.failures; i++) {
        if (!test_takes(dtype, i))
            continue;
        check(__LINE__, &scenarios[i], dtype, false);
        check(__LINE__, &scenarios[i], dtype, true);
        if (failures != test__state.failures)
            fprintf(stderr, "scenario %d\n", i);
    }
}

TEST(f64) { check_all(IGNIS_F64); }
TEST(f32) { check_all(IGNIS_F32); }
TEST(f16) { check_all(IGNIS_F16); }
TEST(bf16) { check_all(IGNIS_BF16); }

/*  Channels that are full k steps, which TMA gathers: forward, the gradient of x for each phase, and that of w. */
TEST(wgmma)
{
    static const scenario tiles[] = {{1, {4, 5, 6}, 64, 64, {3, 3, 3}, {1, 1, 1}, {1, 1, 1}, {1, 1, 1}, 1},
                                     {2, {3, 4, 5}, 64, 72, {2, 1, 2}, {2, 1, 2}, {0, 0, 1}, {1, 1, 1}, 1}};
    ignis_device_info device;
    SETUP(NULL);
    CHECK_OK(ignis_device_query(0, &device));
    if (device.compute_major != 9)
        SKIP("the device is not of compute capability 9.0");
    fault_reset_counts();
    check(__LINE__, &tiles[0], IGNIS_BF16, false);
    CHECK_INT(fault_count("cuTensorMapEncodeIm2col"), 3);
    check(__LINE__, &tiles[1], IGNIS_F16, false);
    check(__LINE__, &tiles[1], IGNIS_BF16, true);
    CHECK(fault_count("cuTensorMapEncodeIm2col") > 6);
}

TEST(tf32)
{
    ignis_desc desc = test_desc(NULL);
    desc.allow_tf32 = true;
    SETUP(&desc);
    factor_rounding = ldexp(1, -10); /* two factors of 10 bits */
    check(__LINE__, &scenarios[1], IGNIS_F32, false);
    check(__LINE__, &scenarios[2], IGNIS_F32, false);
    check(__LINE__, &scenarios[2], IGNIS_F32, true);
    factor_rounding = 0;
}

static ignis_tensor call_conv(const ignis_tensor *x, int count, void *user_data)
{
    return (void)count, ignis_conv3d(x[0], x[1], x[2], (const ignis_conv_desc *)user_data);
}

static ignis_tensor call_transpose(const ignis_tensor *x, int count, void *user_data)
{
    return (void)count, ignis_conv_transpose3d(x[0], x[1], x[2], (const ignis_conv_transpose_desc *)user_data);
}

TEST(gradients_agree_with_differences)
{
    static const scenario small = {1, {3, 2, 4}, 2, 3, {2, 2, 2}, {2, 1, 2}, {1, 0, 1}, {1, 1, 1}, 1};
    ignis_conv_desc desc = conv_desc(&small);
    ignis_conv_transpose_desc back = transpose_desc(&small);
    ignis_tensor x[3];
    int i, transposed;
    SETUP(NULL);
    for (transposed = 0; transposed < 2; transposed++) {
        x[0] = tensor_noise(transposed ? y_shape(&small) : x_shape(&small), IGNIS_F64, 1, true);
        x[1] = tensor_noise(w_shape(&small), IGNIS_F64, 2, true);
        x[2] = tensor_noise(IGNIS_SHAPE(transposed ? small.channels : small.outs), IGNIS_F64, 3, true);
        CHECK(ignis_gradcheck(transposed ? call_transpose : call_conv, transposed ? (void *)&back : (void *)&desc, x, 3,
                              NULL) < 1e-6);
        for (i = 0; i < 3; i++)
            let_go(x[i]);
    }
}

TEST(refusals)
{
    ignis_conv_transpose_desc back;
    ignis_conv_desc desc;
    ignis_scope scope;
    ignis_tensor x, w, none = no_tensor();
    SETUP(NULL);
    scope = ignis_scope_begin();
    memset(&desc, 0, sizeof desc), memset(&back, 0, sizeof back);
    x = ignis_tensor_zeros(IGNIS_SHAPE(1, 3, 4, 5, 6), NULL);
    w = ignis_tensor_zeros(IGNIS_SHAPE(6, 2, 2, 2, 6), NULL);
    CHECK_REFUSED(0, ignis_conv2d(x, w, none, NULL).id, IGNIS_ERROR_SHAPE, IGNIS_DIAG_CONV_SHAPE);
    CHECK_REFUSED(0, ignis_conv3d(ignis_tensor_zeros(IGNIS_SHAPE(3, 4, 5, 6), NULL), w, none, NULL).id,
                  IGNIS_ERROR_SHAPE, IGNIS_DIAG_CONV_SHAPE);
    CHECK_MESSAGE_HAS("[images, depth, height, width, channels] and [outs, depth, height, width, channels / groups]");
    desc.stride[2] = -1;
    CHECK_REFUSED(0, ignis_conv3d(x, w, none, &desc).id, IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    CHECK_MESSAGE_HAS("desc.stride[2] is -1, below 1");
    desc.stride[2] = 0, desc.dilation[0] = 3;
    CHECK_REFUSED(0, ignis_conv3d(x, w, none, &desc).id, IGNIS_ERROR_SHAPE, IGNIS_DIAG_CONV_SHAPE);
    CHECK_MESSAGE_HAS("dimension 1 of x [1, 3, 4, 5, 6] with a padding of 0 on both sides is shorter than the 4");
    CHECK_REFUSED(0, ignis_conv3d(x, w, ignis_tensor_zeros(IGNIS_SHAPE(5), NULL), NULL).id, IGNIS_ERROR_SHAPE,
                  IGNIS_DIAG_CONV_SHAPE);
    CHECK_REFUSED(0, ignis_conv3d(x, ignis_cast(w, IGNIS_F16), none, NULL).id, IGNIS_ERROR_DTYPE,
                  IGNIS_DIAG_DTYPE_DIFFERS);
    CHECK_REFUSED(0, ignis_conv_transpose3d(ignis_sum(x), w, none, NULL).id, IGNIS_ERROR_SHAPE, IGNIS_DIAG_CONV_SHAPE);
    CHECK_MESSAGE_HAS("[channels, depth, height, width, outs / groups]");
    back.output_padding[2] = 1;
    CHECK_REFUSED(0, ignis_conv_transpose3d(x, w, none, &back).id, IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    CHECK_MESSAGE_HAS("desc.output_padding[2] is 1; expected a number below the stride, 1");
    back.output_padding[2] = 0, back.padding[0] = 3;
    CHECK_REFUSED(0, ignis_conv_transpose3d(x, w, none, &back).id, IGNIS_ERROR_SHAPE, IGNIS_DIAG_CONV_SHAPE);
    CHECK_OK(ignis_scope_end(scope));
}

static ignis_tensor everything(int at, const ignis_tensor *inputs)
{
    ignis_conv_desc desc = conv_desc(&scenarios[2]);
    ignis_conv_transpose_desc back = transpose_desc(&scenarios[2]);
    ignis_tensor y = ignis_conv3d(inputs[0], inputs[1], inputs[2], &desc);
    ignis_tensor x = ignis_conv_transpose3d(y, inputs[1], no_tensor(), &back);
    (void)at;
    return ignis_sum(ignis_conv3d(x, inputs[1], inputs[2], &desc));
}

static void sweep(const char *prefix)
{
    static host_counter counter;
    ignis_desc desc = test_counting_desc(&counter);
    ignis_tensor inputs[3];
    int i;
    SETUP(&desc);
    inputs[0] = tensor_noise(x_shape(&scenarios[2]), IGNIS_F32, 1, true);
    inputs[1] = tensor_noise(w_shape(&scenarios[2]), IGNIS_F32, 2, true);
    inputs[2] = tensor_noise(IGNIS_SHAPE(16), IGNIS_F32, 3, true);
    sweep_walks(prefix, &counter, everything, inputs);
    for (i = 0; i < 3; i++)
        let_go(inputs[i]);
}

TEST(each_launch_fails_once) { sweep("cuLaunchKernel"); }
TEST(each_host_allocation_fails_once) { sweep(NULL); }

int main(int argc, char **argv) { return test_run(argc, argv); }
