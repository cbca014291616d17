// SPDX-License-Identifier: MIT
/*  test_conv.c - convolutions and their gradients: every type and kernel, odd sizes, all numbers of the desc, against sums in double */

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
    return ((side ? s->width : s->height) + 2 * s->padding[side] - s->dilation[side] * (s->kernel[side] - 1) - 1) / s->stride[side] + 1;
}

static ignis_conv_desc conv_desc(const scenario *s)
{
    ignis_conv_desc desc;
    memset(&desc, 0, sizeof desc);
    memcpy(desc.stride, s->stride, sizeof desc.stride);
    memcpy(desc.padding, s->padding, sizeof desc.padding);
    memcpy(desc.dilation, s->dilation, sizeof desc.dilation);
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

static void add_to(results *r, int which, int64_t at, double x)
{
    r->value[which][at] += x;
    r->size[which][at] += fabs(x);
}

/*  By the definition. */
static results reference(const scenario *s, const double *x, const double *w, const double *bias, const double *g)
{
    results r = results_make(s);
    int oh = out_side(s, 0), ow = out_side(s, 1), c = s->channels / s->groups, o = s->outs / s->groups, n, p, q, f, i, j, k;
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
                                int64_t from = (((int64_t)n * s->height + y) * s->width + z) * s->channels + f / o * c + k;
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

static void compare(const char *what, const scenario *s, ignis_dtype dtype, int which, const double *got, const results *r, double rounding)
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
        double bound =
            unit * 1.01 * fabs(r->value[which][i]) + (sums * (terms + 4) + rounding) * r->size[which][i] + 1e-7 * (dtype == IGNIS_F16);
        char text[400];
        if (fabs(got[i] - r->value[which][i]) <= bound)
            continue;
        snprintf(text, sizeof text,
                 "%s of %s [%d, %d, %d, %d] by [%d, %d, %d] stride %d %d padding %d %d dilation %d %d groups %d, element %lld: %.9g, "
                 "expected %.9g "
                 "within %.3g",
                 what, dtype_names[dtype], s->images, s->height, s->width, s->channels, s->outs, s->kernel[0], s->kernel[1], s->stride[0],
                 s->stride[1], s->padding[0], s->padding[1], s->dilation[0], s->dilation[1], s->groups, (long long)i, got[i],
                 r->value[which][i], bound);
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
    ignis_tensor in[3] = {tensor_noise(IGNIS_SHAPE(s.images, s.height, s.width, s.channels), dtype, 1, true),
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
    s[count++] = grouped(strided(plain(2, 6, 5, 6, 9, 3), 1, 1, 1), 3);
    s[count++] = grouped(strided(plain(2, 7, 5, 32, 16, 3), 2, 1, 1), 2);
    s[count++] = grouped(strided(plain(2, 6, 7, 12, 12, 3), 1, 1, 1), 12);
    s[count++] = grouped(strided(plain(1, 6, 7, 5, 10, 3), 2, 1, 1), 5);
    s[count] = plain(2, 9, 4, 8, 8, 3); /* nothing alike in the two directions */
    s[count].kernel[1] = 2, s[count].stride[0] = 2, s[count].stride[1] = 3, s[count].padding[1] = 3, s[count].dilation[0] = 3;
    count++;
    s[count] = plain(2, 1, 20, 8, 8, 1);
    s[count].kernel[1] = 5, s[count].stride[1] = 4, s[count].dilation[1] = 2, s[count].padding[1] = 4;
    count++;
    return count;
}

static void check_all(ignis_dtype dtype, int what)
{
    scenario s[32];
    int count = scenarios(s), i, failures = test__state.failures;
    SETUP(NULL);
    for (i = 0; i < count && failures == test__state.failures; i++)
        check(s[i], dtype, what);
}

TEST(f64) { check_all(IGNIS_F64, FEW); }
TEST(f32) { check_all(IGNIS_F32, MANY); }
TEST(f16) { check_all(IGNIS_F16, MANY); }
TEST(bf16) { check_all(IGNIS_BF16, FEW); }
TEST(bf16_by_mma) { check_all(IGNIS_BF16, MANY | NO_PIXELS); }
TEST(f16_without_tensor_cores) { check_all(IGNIS_F16, FEW | NO_TENSOR_CORES); }

int main(int argc, char **argv) { return test_run(argc, argv); }
