// SPDX-License-Identifier: MIT
/*  test_conv.c - convolutions and their gradients: every type and kernel, odd sizes, all numbers of the desc, against
    sums in double */

#include "sweep.h"
#include <math.h>

static const char *const dtype_names[] = {"default", "f16", "bf16", "f32", "f64"};

typedef struct scenario {
    int images, height, width, channels, outs, kernel[2], stride[2], padding[2], dilation[2], groups;
} scenario;

/*  Of sides and channels; everything else as the desc has it. */
static scenario plain(int images, int height, int width, int channels, int outs, int kernel)
{
    scenario s;
    memset(&s, 0, sizeof s);
    s.images = images, s.height = height, s.width = width, s.channels = channels, s.outs = outs;
    s.kernel[0] = s.kernel[1] = kernel;
    s.stride[0] = s.stride[1] = s.dilation[0] = s.dilation[1] = s.groups = 1;
    return s;
}

static scenario strided(scenario s, int stride, int padding, int dilation)
{
    s.stride[0] = s.stride[1] = stride, s.padding[0] = s.padding[1] = padding, s.dilation[0] = s.dilation[1] = dilation;
    return s;
}

static scenario grouped(scenario s, int groups)
{
    s.groups = groups;
    return s;
}

static int out_side(const scenario *s, int side)
{
    return ((side ? s->width : s->height) + 2 * s->padding[side] - s->dilation[side] * (s->kernel[side] - 1) - 1) /
               s->stride[side] +
           1;
}

static ignis_conv_desc conv_desc(const scenario *s)
{
    ignis_conv_desc desc;
    memset(&desc, 0, sizeof desc);
    memcpy(desc.stride, s->stride, sizeof s->stride);
    memcpy(desc.padding, s->padding, sizeof s->padding);
    memcpy(desc.dilation, s->dilation, sizeof s->dilation);
    desc.groups = s->groups;
    return desc;
}

/*  What a convolution gives, as double, and for each number the sum of what was added up to it, without signs. */
enum { OUT, DX, DW, DB, RESULTS };
typedef struct results {
    double *value[RESULTS], *size[RESULTS];
    int64_t numel[RESULTS];
} results;

static results results_make(const scenario *s)
{
    results r;
    int i;
    r.numel[OUT] = (int64_t)s->images * out_side(s, 0) * out_side(s, 1) * s->outs;
    r.numel[DX] = (int64_t)s->images * s->height * s->width * s->channels;
    r.numel[DW] = (int64_t)s->outs * s->kernel[0] * s->kernel[1] * (s->channels / s->groups);
    r.numel[DB] = s->outs;
    for (i = 0; i < RESULTS; i++) {
        r.value[i] = (double *)calloc((size_t)r.numel[i] + 1, sizeof(double));
        r.size[i] = (double *)calloc((size_t)r.numel[i] + 1, sizeof(double));
    }
    return r;
}

static void results_free(results *r)
{
    int i;
    for (i = 0; i < RESULTS; i++)
        free(r->value[i]), free(r->size[i]);
}

OPTIMIZED static void add_to(results *r, int which, int64_t at, double x)
{
    r->value[which][at] += x;
    r->size[which][at] += fabs(x);
}

/*  By the definition. */
OPTIMIZED static results reference(const scenario *s, const double *x, const double *w, const double *bias,
                                   const double *g)
{
    results r = results_make(s);
    int oh = out_side(s, 0), ow = out_side(s, 1), c = s->channels / s->groups, o = s->outs / s->groups, n, p, q, f, i,
        j, k;
    for (n = 0; n < s->images; n++)
        for (p = 0; p < oh; p++)
            for (q = 0; q < ow; q++)
                for (f = 0; f < s->outs; f++) {
                    int64_t out = (((int64_t)n * oh + p) * ow + q) * s->outs + f;
                    for (i = 0; i < s->kernel[0]; i++)
                        for (j = 0; j < s->kernel[1]; j++) {
                            int y = p * s->stride[0] - s->padding[0] + i * s->dilation[0];
                            int z = q * s->stride[1] - s->padding[1] + j * s->dilation[1];
                            for (k = 0; k < c && y >= 0 && y < s->height && z >= 0 && z < s->width; k++) {
                                int64_t from =
                                    (((int64_t)n * s->height + y) * s->width + z) * s->channels + f / o * c + k;
                                int64_t weight = (((int64_t)f * s->kernel[0] + i) * s->kernel[1] + j) * c + k;
                                add_to(&r, OUT, out, x[from] * w[weight]);
                                add_to(&r, DX, from, g[out] * w[weight]);
                                add_to(&r, DW, weight, g[out] * x[from]);
                            }
                        }
                    if (bias)
                        add_to(&r, OUT, out, bias[f]);
                    add_to(&r, DB, f, g[out]);
                }
    return r;
}

static void compare(const char *what, const scenario *s, ignis_dtype dtype, int which, const double *got,
                    const results *r, double rounding)
{
    double unit = dtype == IGNIS_F64   ? ldexp(1, -53)
                  : dtype == IGNIS_F32 ? ldexp(1, -24)
                  : dtype == IGNIS_F16 ? ldexp(1, -11)
                                       : ldexp(1, -8);
    double sums = dtype == IGNIS_F64 ? ldexp(1, -53) : ldexp(1, -24);
    /* so many numbers are added up, each sum is rounded to f32 (f64), the last one to the dtype */
    double terms = which == OUT  ? s->kernel[0] * s->kernel[1] * s->channels / s->groups
                   : which == DX ? s->kernel[0] * s->kernel[1] * s->outs / s->groups
                                 : (double)r->numel[OUT] / (s->outs ? s->outs : 1);
    int64_t i;
    for (i = 0; i < r->numel[which]; i++) {
        double bound = unit * 1.01 * fabs(r->value[which][i]) + (sums * (terms + 4) + rounding) * r->size[which][i] +
                       1e-7 * (dtype == IGNIS_F16);
        char text[400];
        if (fabs(got[i] - r->value[which][i]) <= bound)
            continue;
        snprintf(text, sizeof text,
                 "%s of %s [%d, %d, %d, %d] by [%d, %d, %d] stride %d %d padding %d %d dilation %d %d groups %d, "
                 "element %lld: %.9g, "
                 "expected %.9g "
                 "within %.3g",
                 what, dtype_names[dtype], s->images, s->height, s->width, s->channels, s->outs, s->kernel[0],
                 s->kernel[1], s->stride[0], s->stride[1], s->padding[0], s->padding[1], s->dilation[0], s->dilation[1],
                 s->groups, (long long)i, got[i], r->value[which][i], bound);
        test__fail(__FILE__, __LINE__, text);
        return;
    }
}

/*  What the device is said to be: by so many multiprocessors kernels choose tiles and splits. */
enum { FEW = 1, MANY = 132, NO_PIXELS = 1 << 10, NO_TENSOR_CORES = 1 << 11 };

typedef struct pretence {
    ignis_device_info info;
    char encode[sizeof ignis__cuda.cuTensorMapEncodeIm2col];
} pretence;

static pretence pretend(int what)
{
    pretence before;
    before.info = ignis__devices[0].info;
    memcpy(before.encode, &ignis__cuda.cuTensorMapEncodeIm2col, sizeof before.encode);
    ignis__devices[0].info.multiprocessors = what & (NO_PIXELS - 1);
    if (what & NO_TENSOR_CORES)
        ignis__devices[0].info.compute_major = 7, ignis__devices[0].info.compute_minor = 5;
    if (what & NO_PIXELS)
        memset(&ignis__cuda.cuTensorMapEncodeIm2col, 0, sizeof before.encode); /* as a driver without it */
    return before;
}

static void pretend_no_more(const pretence *before)
{
    ignis__devices[0].info = before->info;
    memcpy(&ignis__cuda.cuTensorMapEncodeIm2col, before->encode, sizeof before->encode);
}

/*  Runs it, and compares all that it gives. `rounding`: of the factors. */
static void check_rounding(scenario s, ignis_dtype dtype, int what, bool bias, double rounding)
{
    static const char *const names[] = {"result", "gradient of x", "gradient of w", "gradient of bias"};
    int oh = out_side(&s, 0), ow = out_side(&s, 1), i;
    ignis_tensor in[3] = {
        tensor_noise(IGNIS_SHAPE(s.images, s.height, s.width, s.channels), dtype, 1, true),
        tensor_noise(IGNIS_SHAPE(s.outs, s.kernel[0], s.kernel[1], s.channels / s.groups), dtype, 2, true),
        bias ? tensor_noise(IGNIS_SHAPE(s.outs), dtype, 3, true) : no_tensor()};
    ignis_tensor g = tensor_noise(IGNIS_SHAPE(s.images, oh, ow, s.outs), dtype, 4, false), out;
    double *values[3], *got, *gv = tensor_values(g);
    ignis_conv_desc desc = conv_desc(&s);
    pretence before = pretend(what);
    results r;
    for (i = 0; i < 3; i++)
        values[i] = in[i].id ? tensor_values(in[i]) : NULL;
    r = reference(&s, values[0], values[1], values[2], gv);
    out = ignis_conv2d(in[0], in[1], in[2], &desc);
    CHECK_OK(ignis_backward(out, ignis_tensor_data(g)));
    pretend_no_more(&before);
    CHECK_SHAPE_IS(out, IGNIS_SHAPE(s.images, oh, ow, s.outs));
    for (i = 0; i < RESULTS; i++) {
        if (i == DB && !bias)
            continue;
        got = i == OUT ? tensor_values(out) : array_values(ignis_tensor_grad(in[i - 1]));
        compare(names[i], &s, dtype, i, got, &r, rounding);
        free(got);
    }
    let_go(out), let_go(g);
    for (i = 0; i < 3; i++) {
        if (in[i].id)
            let_go(in[i]);
        free(values[i]);
    }
    free(gv);
    results_free(&r);
}

static void check(scenario s, ignis_dtype dtype, int what) { check_rounding(s, dtype, what, true, 0); }

/*  Odd sizes, with all that a desc can say. */
static int scenarios(scenario *s)
{
    int count = 0;
    s[count++] = plain(1, 1, 1, 1, 1, 1);
    s[count++] = plain(2, 5, 7, 3, 5, 3);
    s[count++] = strided(plain(2, 5, 7, 8, 16, 3), 1, 1, 1);
    s[count++] = strided(plain(3, 9, 6, 5, 7, 3), 2, 1, 1);
    s[count++] = strided(plain(1, 11, 13, 16, 8, 1), 2, 0, 1); /* most of x is not read */
    s[count++] = strided(plain(1, 11, 10, 8, 24, 2), 3, 2, 1); /* rows of x that no patch meets */
    s[count++] = strided(plain(2, 12, 11, 8, 8, 3), 2, 3, 2);
    s[count++] = strided(plain(1, 14, 9, 3, 4, 4), 3, 4, 2);
    s[count++] = strided(plain(2, 15, 17, 3, 8, 7), 2, 3, 1); /* the first layer of many networks */
    s[count++] = strided(plain(3, 6, 7, 4, 2, 3), 1, 1, 1);   /* half packs that are there, and that are not */
    s[count++] = grouped(strided(plain(2, 6, 5, 6, 9, 3), 1, 1, 1), 3);
    s[count++] = grouped(strided(plain(2, 5, 6, 8, 8, 3), 2, 1, 1), 2);
    s[count++] = grouped(strided(plain(2, 7, 5, 32, 16, 3), 2, 1, 1), 2);
    s[count++] = grouped(strided(plain(2, 6, 7, 12, 12, 3), 1, 1, 1), 12);
    s[count++] = grouped(strided(plain(1, 6, 7, 5, 10, 3), 2, 1, 1), 5);
    s[count++] = grouped(strided(plain(2, 9, 8, 24, 24, 7), 1, 3, 1), 24); /* many taps */
    s[count++] = grouped(strided(plain(3, 8, 11, 136, 136, 3), 2, 1, 1), 136);
    s[count++] =
        grouped(strided(plain(2, 9, 13, 16, 16, 3), 1, 1, 1), 16); /* strips of pixels, of which the last one is cut */
    s[count++] = grouped(strided(plain(3, 7, 10, 40, 40, 5), 1, 2, 1), 40);
    s[count++] = grouped(strided(plain(1, 11, 14, 8, 8, 5), 2, 2, 1), 8);
    s[count++] = grouped(strided(plain(1, 17, 15, 16, 16, 7), 2, 3, 1), 16);
    s[count++] =
        grouped(strided(plain(2, 9, 13, 64, 64, 3), 1, 1, 1), 8); /* groups of packs: a slab, and parts of one */
    s[count++] = grouped(strided(plain(2, 11, 37, 80, 80, 3), 2, 1, 1), 10);
    s[count++] = grouped(strided(plain(1, 6, 9, 24, 48, 3), 1, 2, 2), 3);
    s[count++] = grouped(strided(plain(3, 7, 8, 32, 16, 1), 2, 0, 1), 2);
    s[count++] = grouped(strided(plain(1, 10, 6, 64, 64, 3), 1, 1, 1), 2);
    s[count++] = grouped(strided(plain(1, 5, 6, 16, 16, 5), 1, 2, 1), 1);
    s[count++] = strided(plain(2, 14, 18, 3, 16, 7), 2, 3, 1); /* pairs of pixels */
    s[count++] = strided(plain(3, 12, 66, 4, 64, 4), 2, 2, 1);
    s[count++] = strided(plain(1, 9, 10, 2, 8, 5), 2, 1, 1);
    s[count] = grouped(plain(2, 8, 9, 8, 8, 3), 8);
    s[count].kernel[0] = 4, s[count].stride[0] = 2, s[count].padding[1] = 2, s[count].dilation[0] = 2;
    count++;
    s[count] = plain(2, 9, 4, 8, 8, 3); /* nothing alike in the two directions */
    s[count].kernel[1] = 2, s[count].stride[0] = 2, s[count].stride[1] = 3, s[count].padding[1] = 3,
    s[count].dilation[0] = 3;
    count++;
    s[count] = plain(2, 1, 20, 8, 8, 1);
    s[count].kernel[1] = 5, s[count].stride[1] = 4, s[count].dilation[1] = 2, s[count].padding[1] = 4;
    count++;
    return count;
}

/*  alike: scenarios, one after the other, that the simulator takes in the same 16-bit type; test_takes has the rest. */
static void check_all(ignis_dtype dtype, int what, int alike)
{
    scenario s[48];
    int count = scenarios(s), i, failures = test__state.failures;
    SETUP(NULL);
    for (i = 0; i < count && failures == test__state.failures; i++)
        if (test_takes(dtype, i / alike))
            check(s[i], dtype, what);
}

TEST(f64) { check_all(IGNIS_F64, FEW, 1); }
TEST(f32) { check_all(IGNIS_F32, MANY, 1); }
TEST(f16) { check_all(IGNIS_F16, MANY, 1); }
TEST(bf16) { check_all(IGNIS_BF16, FEW, 1); }
TEST(bf16_by_mma) { check_all(IGNIS_BF16, MANY | NO_PIXELS, 2); }
TEST(f16_without_tensor_cores)
{
    SETUP(NULL);
    if (!test_is_simulator())
        SKIP("kernels for an older device do not run on this one");
    CHECK_OK(ignis_shutdown());
    check_all(IGNIS_F16, FEW | NO_TENSOR_CORES, 2);
}

/*  Runs it by wgmma: forward, the gradient of x in as many parts as patches and strides meet, and that of w, which
    needs whole channels. */
static void check_wgmma(scenario s, ignis_dtype dtype, int what)
{
    int maps = 1 + (s.channels % 64 == 0), i, j;
    for (i = 0; i < s.stride[0] && i < s.kernel[0]; i++)
        for (j = 0; j < s.stride[1] && j < s.kernel[1]; j++)
            maps += s.stride[0] * s.stride[1] > 1 && s.channels % 8 == 0 && what == FEW
                        ? 2
                        : 1; /* a result that is apart has one, too */
    fault_reset_counts();
    check(s, dtype, what);
    CHECK_INT(fault_count("cuTensorMapEncodeIm2col"), maps);
}

TEST(wgmma)
{
    ignis_device_info device;
    SETUP(NULL);
    CHECK_OK(ignis_device_query(0, &device));
    if (device.compute_major != 9)
        SKIP("the device is not of compute capability 9.0");
    check_wgmma(strided(plain(2, 15, 17, 128, 128, 3), 1, 1, 1), IGNIS_BF16, FEW);
    fault_reset_counts();
    check(strided(plain(2, 15, 17, 128, 128, 3), 1, 1, 1), IGNIS_BF16, FEW);
    CHECK_INT(fault_count("cuModuleLoadData"), 0); /* once more, by the kernels that are there */
    check_wgmma(strided(plain(3, 13, 11, 192, 136, 3), 1, 2, 2), IGNIS_F16, FEW);
    check_wgmma(strided(plain(4, 24, 21, 128, 200, 3), 2, 1, 1), IGNIS_BF16, FEW);
    check_wgmma(strided(plain(4, 24, 21, 120, 256, 2), 2, 0, 1), IGNIS_F16, FEW);
    check_wgmma(strided(plain(9, 16, 15, 256, 256, 1), 2, 0, 1), IGNIS_BF16, FEW);
    check_wgmma(strided(plain(2, 15, 17, 128, 256, 3), 1, 1, 1), IGNIS_BF16, 40); /* k is shared out */
    check_wgmma(strided(plain(3, 15, 17, 64, 64, 3), 1, 1, 1), IGNIS_BF16, FEW);  /* tiles of 64 columns */
    check_wgmma(strided(plain(3, 15, 17, 64, 64, 3), 1, 1, 1), IGNIS_F16, 3);
    check(strided(plain(4, 20, 17, 64, 40, 3), 2, 1, 1), IGNIS_F16, FEW);
}

/*  The same gradients each time, and by any number of multiprocessors whose tiles are the same: sums are in a fixed
    order. */
TEST(equal_inputs_give_equal_bits)
{
    ignis_tensor x, w, y;
    double *first[2], *second;
    int i, turn;
    ignis_array g;
    SETUP(NULL);
    x = tensor_noise(IGNIS_SHAPE(3, 9, 11, 16), IGNIS_BF16, 1, true);
    w = tensor_noise(IGNIS_SHAPE(24, 3, 3, 16), IGNIS_BF16, 2, true);
    g = make(IGNIS_SHAPE(3, 7, 9, 24), IGNIS_BF16);
    CHECK_OK(ignis_array_fill(g, 0.37));
    for (turn = 0; turn < 2; turn++) {
        y = ignis_conv2d(x, w, no_tensor(), NULL);
        CHECK_OK(ignis_backward(y, g));
        for (i = 0; i < 2; i++) {
            second = array_values(ignis_tensor_grad(i ? w : x));
            if (turn)
                CHECK(memcmp(first[i], second, sizeof *second * (size_t)numel_of(i ? w : x)) == 0), free(first[i]),
                    free(second);
            else
                first[i] = second;
        }
        CHECK_OK(ignis_zero_grad(x)), CHECK_OK(ignis_zero_grad(w));
        let_go(y);
    }
    let_go(x), let_go(w), drop(g);
}

TEST(tf32)
{
    ignis_desc desc = test_desc(NULL);
    desc.allow_tf32 = true;
    SETUP(&desc);
    check_rounding(strided(plain(2, 7, 6, 5, 9, 3), 2, 1, 1), IGNIS_F32, FEW, true, ldexp(1, -10));
    check_rounding(grouped(strided(plain(2, 9, 6, 16, 8, 3), 1, 1, 1), 2), IGNIS_F32, MANY, false, ldexp(1, -10));
}

TEST(without_bias)
{
    SETUP(NULL);
    check_rounding(strided(plain(2, 7, 6, 5, 9, 3), 2, 1, 1), IGNIS_F32, FEW, false, 0);
    check_rounding(plain(2, 4, 3, 6, 5, 1), IGNIS_F64, FEW, false, 0);
}

/*  Rows of points: the same as images of one row. */
TEST(conv1d)
{
    ignis_conv_desc one, two;
    ignis_tensor x, w, bias, in[3], out[2];
    double *a, *b;
    int i;
    int64_t j;
    SETUP(NULL);
    memset(&one, 0, sizeof one), memset(&two, 0, sizeof two);
    one.stride[0] = two.stride[1] = 2, one.padding[0] = two.padding[1] = 3, one.dilation[0] = two.dilation[1] = 2;
    one.groups = two.groups = 2;
    x = tensor_noise(IGNIS_SHAPE(3, 17, 4), IGNIS_F32, 1, true),
    w = tensor_noise(IGNIS_SHAPE(6, 5, 2), IGNIS_F32, 2, true);
    bias = tensor_noise(IGNIS_SHAPE(6), IGNIS_F32, 3, true);
    in[0] = ignis_reshape(x, IGNIS_SHAPE(3, 1, 17, 4)), in[1] = ignis_reshape(w, IGNIS_SHAPE(6, 1, 5, 2)), in[2] = bias;
    out[0] = ignis_conv1d(x, w, bias, &one), out[1] = ignis_conv2d(in[0], in[1], in[2], &two);
    CHECK_SHAPE_IS(out[0], IGNIS_SHAPE(3, 8, 6));
    CHECK_SHAPE_IS(out[1], IGNIS_SHAPE(3, 1, 8, 6));
    a = tensor_values(out[0]), b = tensor_values(out[1]);
    for (j = 0; j < numel_of(out[0]); j++)
        CHECK_NUMBER(a[j], b[j]);
    free(a), free(b);
    let_go(out[0]), let_go(out[1]), let_go(in[0]), let_go(in[1]);
    CHECK_FAILS(ignis_conv1d(x, w, bias, NULL), IGNIS_ERROR_SHAPE, IGNIS_DIAG_CONV_SHAPE);
    CHECK_MESSAGE_HAS("x is [3, 17, 4], w is [6, 5, 2], of 1 groups");
    for (i = 0; i < 3; i++)
        let_go(i == 0 ? x : i == 1 ? w : bias);
}

static ignis_tensor run_conv(const ignis_tensor *in, int count, void *user_data)
{
    return ignis_conv2d(in[0], in[1], count > 2 ? in[2] : no_tensor(), (const ignis_conv_desc *)user_data);
}

TEST(gradients_are_those_of_finite_differences)
{
    scenario s[48];
    int count = scenarios(s), i;
    SETUP(NULL);
    for (i = 0; i < count; i++) {
        ignis_conv_desc desc = conv_desc(&s[i]);
        ignis_tensor in[3];
        if (s[i].images * s[i].height * s[i].width * s[i].channels > 300)
            continue;
        in[0] = tensor_noise(IGNIS_SHAPE(s[i].images, s[i].height, s[i].width, s[i].channels), IGNIS_F64, 1, true);
        in[1] = tensor_noise(IGNIS_SHAPE(s[i].outs, s[i].kernel[0], s[i].kernel[1], s[i].channels / s[i].groups),
                             IGNIS_F64, 2, true);
        in[2] = tensor_noise(IGNIS_SHAPE(s[i].outs), IGNIS_F64, 3, true);
        CHECK(ignis_gradcheck(run_conv, &desc, in, 3, NULL) < 1e-6);
        let_go(in[0]), let_go(in[1]), let_go(in[2]);
    }
}

/*  No images, no channels, nothing at all in the result. */
TEST(empty)
{
    static const int64_t shapes[][8] = {
        {0, 4, 4, 3, 2, 3, 3, 3}, {2, 4, 4, 0, 2, 3, 3, 0}, {2, 4, 4, 3, 0, 3, 3, 3}, {2, 4, 4, 3, 0, 1, 1, 3}};
    ignis_dtype dtypes[] = {IGNIS_F32, IGNIS_BF16};
    int i, d, k;
    SETUP(NULL);
    for (i = 0; i < 4; i++)
        for (d = 0; d < 2; d++) {
            const int64_t *n = shapes[i];
            ignis_tensor x = tensor_noise(IGNIS_SHAPE(n[0], n[1], n[2], n[3]), dtypes[d], 1, true);
            ignis_tensor w = tensor_noise(IGNIS_SHAPE(n[4], n[5], n[6], n[7]), dtypes[d], 2, true);
            ignis_tensor bias = tensor_noise(IGNIS_SHAPE(n[4]), dtypes[d], 3, true), y = ignis_conv2d(x, w, bias, NULL);
            ignis_array g = make(IGNIS_SHAPE(n[0], 5 - n[5], 5 - n[6], n[4]), dtypes[d]);
            CHECK_OK(ignis_array_fill(g, 1));
            CHECK_OK(ignis_backward(y, g));
            if (i == 1) { /* nothing but the bias */
                CHECK_NUMBER(value_at(y, 0), value_at(bias, 0));
                CHECK_NUMBER(grad_at(bias, 1), 8);
            }
            for (k = 0; k < 2; k++)
                if (numel_of(k ? w : x) > 0)
                    CHECK_NUMBER(grad_at(k ? w : x, numel_of(k ? w : x) - 1), 0);
            let_go(x), let_go(w), let_go(bias), let_go(y), drop(g);
        }
}

TEST(bad_input)
{
    ignis_tensor x, w, bias, half, whole;
    ignis_conv_desc desc;
    int *const numbers[] = {&desc.stride[0], &desc.padding[1], &desc.dilation[1], &desc.groups};
    static const char *const says[] = {"desc.stride[0] is -1, below 1", "desc.padding[1] is -1, below 0",
                                       "desc.dilation[1] is -1, below 1", "desc.groups is -1, below 1"};
    int i;
    SETUP(NULL);
    x = tensor_noise(IGNIS_SHAPE(2, 5, 4, 6), IGNIS_F32, 1, true),
    w = tensor_noise(IGNIS_SHAPE(4, 3, 3, 6), IGNIS_F32, 2, true);
    bias = tensor_noise(IGNIS_SHAPE(5), IGNIS_F32, 3, true),
    half = tensor_noise(IGNIS_SHAPE(4, 3, 3, 6), IGNIS_F16, 3, false);
    whole = tensor_counting(IGNIS_SHAPE(2, 5, 4, 6), IGNIS_I32, 1, false);
    for (i = 0; i < 4; i++) {
        memset(&desc, 0, sizeof desc);
        *numbers[i] = -1;
        CHECK_FAILS(ignis_conv2d(x, w, no_tensor(), &desc), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
        CHECK_MESSAGE_HAS("ignis_conv2d");
        CHECK_MESSAGE_HAS(says[i]);
    }
    CHECK_FAILS(ignis_conv2d(x, half, no_tensor(), NULL), IGNIS_ERROR_DTYPE, IGNIS_DIAG_DTYPE_DIFFERS);
    CHECK_FAILS(ignis_conv2d(whole, w, no_tensor(), NULL), IGNIS_ERROR_DTYPE, IGNIS_DIAG_DTYPE_DIFFERS);
    CHECK_FAILS(ignis_conv2d(x, w, bias, NULL), IGNIS_ERROR_SHAPE, IGNIS_DIAG_CONV_SHAPE);
    CHECK_MESSAGE_HAS("bias is [5]; w [4, 3, 3, 6] needs [4]");
    CHECK_FAILS(ignis_conv1d(x, w, no_tensor(), NULL), IGNIS_ERROR_SHAPE, IGNIS_DIAG_CONV_SHAPE);
    CHECK_MESSAGE_HAS("[images, length, channels] and [outs, length, channels / groups] are needed");
    memset(&desc, 0, sizeof desc);
    desc.groups = 3; /* which 4 results are not */
    CHECK_FAILS(ignis_conv2d(x, w, no_tensor(), &desc), IGNIS_ERROR_SHAPE, IGNIS_DIAG_CONV_SHAPE);
    desc.groups = 0, desc.dilation[0] = 3;
    CHECK_FAILS(ignis_conv2d(x, w, no_tensor(), &desc), IGNIS_ERROR_SHAPE, IGNIS_DIAG_CONV_SHAPE);
    CHECK_MESSAGE_HAS("dimension 1 of x [2, 5, 4, 6] with a padding of 0 on both sides is shorter than the 7");
    desc.dilation[0] = 0, desc.padding[0] = INT32_MAX;
    CHECK_FAILS(ignis_conv2d(x, w, no_tensor(), &desc), IGNIS_ERROR_UNSUPPORTED, IGNIS_DIAG_UNSUPPORTED);
    let_go(w);
    CHECK_FAILS(ignis_conv2d(x, w, no_tensor(), NULL), IGNIS_ERROR_FREED, IGNIS_DIAG_TENSOR_FREED);
    let_go(x), let_go(bias), let_go(half), let_go(whole);
}

/*  Where a gradient is not wanted, the others are as always. */
TEST(only_some_gradients)
{
    int wanted, i;
    double *all[3], *some;
    ignis_conv_desc desc;
    SETUP(NULL);
    memset(&desc, 0, sizeof desc);
    desc.stride[0] = desc.stride[1] = 2;
    for (wanted = 7; wanted > 0; wanted--) {
        ignis_tensor in[3], y;
        ignis_array g = make(IGNIS_SHAPE(2, 2, 3, 4), IGNIS_F32);
        in[0] = tensor_noise(IGNIS_SHAPE(2, 6, 7, 3), IGNIS_F32, 1, wanted & 1),
        in[1] = tensor_noise(IGNIS_SHAPE(4, 3, 3, 3), IGNIS_F32, 2, wanted & 2);
        in[2] = tensor_noise(IGNIS_SHAPE(4), IGNIS_F32, 3, wanted & 4);
        y = ignis_conv2d(in[0], in[1], in[2], &desc);
        CHECK_OK(ignis_array_fill(g, 0.25));
        CHECK_OK(ignis_backward(y, g));
        for (i = 0; i < 3; i++) {
            if (!(wanted >> i & 1))
                continue;
            some = array_values(ignis_tensor_grad(in[i]));
            if (wanted == 7)
                all[i] = some;
            else
                CHECK(is_close(some[5 % numel_of(in[i])], all[i][5 % numel_of(in[i])], 1e-5)), free(some);
        }
        let_go(in[0]), let_go(in[1]), let_go(in[2]), let_go(y), drop(g);
    }
    for (i = 0; i < 3; i++)
        free(all[i]);
}

/*  All kinds of kernels, one after the other: 16-bit ones whose channels are copied, those of wgmma, and plain ones in
    parts. */
static ignis_tensor everything(int at, const ignis_tensor *inputs)
{
    ignis_conv_desc desc;
    ignis_tensor y, z, loss = no_tensor();
    (void)at;
    memset(&desc, 0, sizeof desc);
    desc.stride[0] = desc.stride[1] = 2, desc.padding[0] = desc.padding[1] = 1;
    y = ignis_conv2d(inputs[0], inputs[1], inputs[2], &desc);
    z = y.id ? ignis_conv2d(y, inputs[3], no_tensor(), NULL) : y;
    if (z.id)
        loss = ignis_sum(z);
    return loss;
}

static void sweep(const char *prefix)
{
    static host_counter counter;
    ignis_desc desc = test_counting_desc(&counter);
    ignis_tensor inputs[4];
    int i;
    SETUP(&desc);
    inputs[0] = tensor_noise(IGNIS_SHAPE(2, 9, 9, 3), IGNIS_BF16, 1, true);
    inputs[1] = tensor_noise(IGNIS_SHAPE(64, 3, 3, 3), IGNIS_BF16, 2, true);
    inputs[2] = tensor_noise(IGNIS_SHAPE(64), IGNIS_BF16, 3, true);
    inputs[3] = tensor_noise(IGNIS_SHAPE(64, 3, 3, 64), IGNIS_BF16, 4, true);
    sweep_walks(prefix, &counter, everything, inputs);
    for (i = 0; i < 4; i++)
        let_go(inputs[i]);
}

TEST(each_launch_fails_once) { sweep("cuLaunchKernel"); }
TEST(each_map_fails_once) { sweep("cuTensorMapEncodeIm2col"); }
TEST(each_host_allocation_fails_once) { sweep(NULL); }

int main(int argc, char **argv) { return test_run(argc, argv); }
