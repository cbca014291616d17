// SPDX-License-Identifier: MIT
/*  test_patches.c - unfold and fold, and padding by elements of the tensor, beside loops in double

    Both are linear, and copies: the results are exact, sums are rounded once for each addend. */
#include "sweep.h"

#include <math.h>

static double tolerance_of(ignis_dtype dtype)
{
    return dtype == IGNIS_F64 ? 1e-14 : dtype == IGNIS_F32 ? 1e-6 : dtype == IGNIS_F16 ? 2e-3 : 1.6e-2;
}

/* --- unfold and fold ---------------------------------------------------------------------------------------------- */

typedef struct scenario {
    int images, sides, size[3], channels, kernel[3], stride[3], padding[3], dilation[3];
} scenario;

static int out_side(const scenario *s, int i)
{
    return (s->size[i] + 2 * s->padding[i] - s->dilation[i] * (s->kernel[i] - 1) - 1) / s->stride[i] + 1;
}

static ignis_unfold_desc unfold_desc(const scenario *s)
{
    ignis_unfold_desc desc;
    memcpy(desc.kernel, s->kernel, sizeof s->kernel);
    memcpy(desc.stride, s->stride, sizeof s->stride);
    memcpy(desc.padding, s->padding, sizeof s->padding);
    memcpy(desc.dilation, s->dilation, sizeof s->dilation);
    return desc;
}

static ignis_shape image_shape(const scenario *s)
{
    ignis_shape shape = IGNIS_SHAPE(s->images);
    int i;
    for (i = 0; i < s->sides; i++)
        shape.dim[shape.ndim++] = s->size[i];
    shape.dim[shape.ndim++] = s->channels;
    return shape;
}

static ignis_shape rows_shape(const scenario *s)
{
    int64_t patches = 1, taps = 1;
    int i;
    for (i = 0; i < s->sides; i++)
        patches *= out_side(s, i), taps *= s->kernel[i];
    return IGNIS_SHAPE(s->images, patches, taps * s->channels);
}

/*  Returns where element `at` of the rows is in the image; below 0 outside. */
static int64_t element_of(const scenario *s, int64_t at)
{
    ignis_shape rows = rows_shape(s);
    int64_t channel = at % s->channels, tap = at / s->channels % (rows.dim[2] / s->channels),
            patch = at / rows.dim[2] % rows.dim[1], n = at / rows.dim[2] / rows.dim[1], pixel = 0, scale = 1;
    int i;
    for (i = s->sides - 1; i >= 0; i--) {
        int64_t x = patch % out_side(s, i) * s->stride[i] - s->padding[i] + tap % s->kernel[i] * s->dilation[i];
        if (x < 0 || x >= s->size[i])
            return -1;
        pixel += x * scale;
        scale *= s->size[i];
        patch /= out_side(s, i);
        tap /= s->kernel[i];
    }
    return (n * scale + pixel) * s->channels + channel;
}

static void check_unfold(int line, const scenario *s, ignis_dtype dtype)
{
    ignis_unfold_desc desc = unfold_desc(s);
    ignis_shape is = image_shape(s), rs = rows_shape(s);
    int64_t size[3] = {s->size[0], s->size[1], s->size[2]}, numel = shape_numel(rs), pixels = shape_numel(is), i;
    ignis_scope scope = ignis_scope_begin();
    ignis_tensor x = tensor_noise(is, dtype, 1, true), r = tensor_noise(rs, dtype, 2, true);
    ignis_tensor rows = ignis_unfold(x, &desc), image = ignis_fold(r, size, s->sides, &desc);
    double *xv = tensor_values(x), *rv = tensor_values(r), *rows_v, *image_v, *gx, *gr, *dx, *dr;
    double *sum = (double *)calloc((size_t)pixels + 1, sizeof *sum), *grad = (double *)calloc((size_t)pixels + 1, 8);
    int64_t wrong[4] = {0, 0, 0, 0};
    char text[160];
    CHECK_OK(ignis_status_last());
    CHECK_SHAPE_IS(rows, rs);
    CHECK_SHAPE_IS(image, is);
    gx = backward_from(rows, dtype, 5, 0), gr = backward_from(image, dtype, 6, 0);
    rows_v = tensor_values(rows), image_v = tensor_values(image);
    dx = array_values(ignis_tensor_grad(x)), dr = array_values(ignis_tensor_grad(r));
    for (i = 0; i < numel; i++) {
        int64_t at = element_of(s, i);
        wrong[0] += rows_v[i] != (at < 0 ? 0 : xv[at]);
        wrong[1] += dr[i] != (at < 0 ? 0 : gr[at]);
        if (at >= 0)
            sum[at] += rv[i], grad[at] += gx[i];
    }
    for (i = 0; i < pixels; i++) { /* a sum of at most 27 numbers below 1 */
        wrong[2] += !is_close(image_v[i], sum[i], tolerance_of(dtype));
        wrong[3] += !is_close(dx[i], grad[i], tolerance_of(dtype));
    }
    snprintf(text, sizeof text, "in %s: %lld of rows, %lld of their gradient, %lld of the image, %lld of its gradient",
             ignis_dtype_name(dtype), (long long)wrong[0], (long long)wrong[1], (long long)wrong[2],
             (long long)wrong[3]);
    if (wrong[0] + wrong[1] + wrong[2] + wrong[3])
        test__fail(__FILE__, line, text);
    free(xv), free(rv), free(rows_v), free(image_v), free(gx), free(gr), free(dx), free(dr), free(sum), free(grad);
    CHECK_OK(ignis_scope_end(scope));
}

/*  images, sides, size, channels, kernel, stride, padding, dilation */
static const scenario scenarios[] = {
    {1, 1, {1}, 1, {1}, {1}, {0}, {1}},
    {2, 1, {7}, 3, {3}, {2}, {1}, {1}},
    {2, 2, {5, 4}, 3, {3, 2}, {1, 1}, {1, 0}, {1, 1}},
    {1, 2, {6, 7}, 8, {2, 3}, {2, 3}, {0, 2}, {2, 1}},
    {1, 2, {5, 6}, 16, {3, 3}, {1, 2}, {1, 1}, {1, 1}},
    {1, 2, {9, 9}, 2, {2, 2}, {5, 4}, {0, 0}, {1, 1}}, /* pixels without a patch */
    {2, 3, {3, 4, 5}, 3, {2, 3, 2}, {1, 2, 1}, {1, 1, 0}, {1, 1, 2}},
    {1, 3, {4, 3, 3}, 8, {3, 1, 2}, {2, 1, 1}, {1, 0, 0}, {1, 1, 1}},
    {2, 3, {3, 2, 4}, 2, {1, 2, 2}, {1, 1, 2}, {0, 1, 0}, {1, 1, 1}}, /* of images, in planes */
    {2, 3, {4, 2, 3}, 2, {3, 1, 1}, {1, 1, 1}, {1, 0, 0}, {1, 1, 1}}, /* along planes alone */
    {0, 2, {4, 4}, 3, {3, 3}, {1, 1}, {0, 0}, {1, 1}},
    {2, 2, {0, 3}, 3, {2, 2}, {1, 1}, {1, 1}, {1, 1}}};

TEST(unfold_and_fold)
{
    int i, d;
    SETUP(NULL);
    for (i = 0; i < COUNT_OF(scenarios); i++)
        for (d = 0; d < 4; d++)
            check_unfold(__LINE__, &scenarios[i], float_dtypes[d]);
}

/*  Rows times weights are a convolution. */
TEST(rows_times_weights)
{
    ignis_unfold_desc desc = {{3, 2}, {2, 1}, {1, 0}, {1, 1}};
    ignis_conv_desc conv = {{2, 1}, {1, 0}, {1, 1}, 1};
    ignis_scope scope;
    ignis_tensor x, w, y, z;
    int64_t i;
    SETUP(NULL);
    scope = ignis_scope_begin();
    x = tensor_noise(IGNIS_SHAPE(2, 5, 4, 3), IGNIS_F64, 1, false);
    w = tensor_noise(IGNIS_SHAPE(7, 3, 2, 3), IGNIS_F64, 2, false);
    y = ignis_conv2d(x, w, no_tensor(), &conv);
    z = ignis_matmul_t(ignis_unfold(x, &desc), ignis_reshape(w, IGNIS_SHAPE(7, 18)));
    CHECK_OK(ignis_status_last());
    for (i = 0; i < numel_of(y); i++)
        CHECK_CLOSE(value_at(z, i), value_at(y, i), 1e-14);
    CHECK_OK(ignis_scope_end(scope));
}

static ignis_tensor call_unfold(const ignis_tensor *x, int count, void *user_data)
{
    return (void)count, ignis_unfold(x[0], (const ignis_unfold_desc *)user_data);
}

static ignis_tensor call_fold(const ignis_tensor *x, int count, void *user_data)
{
    static const int64_t size[] = {3, 4, 5};
    return (void)count, ignis_fold(x[0], size, 3, (const ignis_unfold_desc *)user_data);
}

/* --- padding ------------------------------------------------------------------------------------------------------ */

typedef ignis_tensor (*pad_fn)(ignis_tensor tensor, const int64_t *before, const int64_t *after, int count);
static const pad_fn pads[] = {ignis_pad_reflect, ignis_pad_replicate, ignis_pad_circular};
enum { REFLECT, REPLICATE, CIRCULAR, MODES };

typedef struct padding {
    int ndim;
    int64_t size[5], before[5], after[5];
} padding;

static int64_t inside_of(int mode, int64_t n, int64_t at)
{
    if (mode == REFLECT)
        return at < 0 ? -at : at >= n ? 2 * n - 2 - at : at;
    if (mode == CIRCULAR)
        return (at + n) % n;
    return at < 0 ? 0 : at >= n ? n - 1 : at;
}

static ignis_shape shape_with(const padding *p, bool padded)
{
    ignis_shape shape = IGNIS_SHAPE(1);
    int i;
    shape.ndim = p->ndim;
    for (i = 0; i < p->ndim; i++)
        shape.dim[i] = p->size[i] + (padded ? p->before[i] + p->after[i] : 0);
    return shape;
}

static void check_pad(int line, int mode, const padding *p, ignis_dtype dtype)
{
    ignis_shape from = shape_with(p, false), to = shape_with(p, true);
    bool is_float = !ignis__dtype_is_int(dtype);
    ignis_scope scope = ignis_scope_begin();
    ignis_tensor x = is_float ? tensor_noise(from, dtype, 1, true) : tensor_counting(from, dtype, 1, false),
                 y = pads[mode](x, p->before, p->after, p->ndim);
    double *xv = tensor_values(x), *yv, *g = NULL, *dx = NULL,
           *sum = (double *)calloc((size_t)numel_of(x) + 1, sizeof *sum);
    int64_t i, wrong = 0, wrong_sums = 0;
    char text[160];
    int d;
    CHECK_OK(ignis_status_last());
    CHECK_SHAPE_IS(y, to);
    yv = tensor_values(y);
    if (is_float)
        g = backward_from(y, dtype, 5, 0), dx = array_values(ignis_tensor_grad(x));
    for (i = 0; i < shape_numel(to); i++) {
        int64_t rest = i, at = 0, scale = 1;
        for (d = p->ndim - 1; d >= 0; d--) {
            at += inside_of(mode, p->size[d], rest % to.dim[d] - p->before[d]) * scale;
            rest /= to.dim[d];
            scale *= p->size[d];
        }
        wrong += yv[i] != xv[at];
        if (g)
            sum[at] += g[i];
    }
    for (i = 0; g && i < shape_numel(from); i++)
        wrong_sums += !is_close(dx[i], sum[i], tolerance_of(dtype));
    snprintf(text, sizeof text, "mode %d in %s: %lld values and %lld gradients differ", mode, ignis_dtype_name(dtype),
             (long long)wrong, (long long)wrong_sums);
    if (wrong || wrong_sums)
        test__fail(__FILE__, line, text);
    free(xv), free(yv), free(g), free(dx), free(sum);
    CHECK_OK(ignis_scope_end(scope));
}

static const padding paddings[] = {
    {1, {1}, {0}, {0}},
    {1, {7}, {3}, {6}},
    {2, {3, 5}, {0, 2}, {0, 1}},
    {3, {2, 6, 3}, {0, 5, 0}, {0, 2, 0}},                   /* a signal */
    {4, {2, 5, 4, 8}, {0, 1, 3, 0}, {0, 2, 0, 0}},          /* an image in packs */
    {5, {2, 3, 4, 3, 3}, {0, 2, 1, 1, 0}, {0, 1, 0, 2, 0}}, /* a volume */
    {5, {3, 2, 3, 2, 4}, {2, 0, 1, 0, 3}, {1, 0, 2, 0, 0}}, /* others between those that are padded */
    {4, {0, 4, 4, 3}, {0, 1, 1, 0}, {0, 1, 1, 0}}};

TEST(padding_by_its_own_elements)
{
    static const ignis_dtype whole[] = {IGNIS_I32, IGNIS_I64, IGNIS_U8};
    static const padding one = {2, {1, 1}, {3, 0}, {0, 2}}; /* one element, everywhere */
    int i, d, mode;
    SETUP(NULL);
    for (mode = 0; mode < MODES; mode++) {
        for (i = 0; i < COUNT_OF(paddings); i++)
            for (d = 0; d < 4; d++)
                check_pad(__LINE__, mode, &paddings[i], float_dtypes[d]);
        for (d = 0; d < COUNT_OF(whole); d++)
            check_pad(__LINE__, mode, &paddings[2], whole[d]);
    }
    check_pad(__LINE__, REPLICATE, &one, IGNIS_F32);
}

/*  NaN and infinities are copied as they are. */
TEST(no_number_is_no_obstacle)
{
    const double values[] = {1, INFINITY, NAN, -INFINITY};
    const int64_t two[] = {2};
    ignis_scope scope;
    ignis_tensor y;
    int i;
    SETUP(NULL);
    scope = ignis_scope_begin();
    y = ignis_pad_reflect(tensor_of(values, IGNIS_SHAPE(4), IGNIS_F32, false), two, two, 1);
    for (i = 0; i < 8; i++)
        CHECK_NUMBER(value_at(y, i), values[inside_of(REFLECT, 4, i - 2)]);
    CHECK_OK(ignis_scope_end(scope));
}

static ignis_tensor call_pad(const ignis_tensor *x, int count, void *user_data)
{
    static const int64_t before[] = {0, 1, 2}, after[] = {1, 0, 1};
    return (void)count, pads[*(const int *)user_data](x[0], before, after, 3);
}

/* --- all of them -------------------------------------------------------------------------------------------------- */

TEST(gradients_agree_with_differences)
{
    ignis_unfold_desc desc = {{2, 3, 2}, {1, 2, 2}, {1, 1, 0}, {1, 1, 2}};
    ignis_tensor x, rows;
    int mode;
    SETUP(NULL);
    x = tensor_noise(IGNIS_SHAPE(1, 3, 4, 5, 2), IGNIS_F64, 1, true);
    CHECK(ignis_gradcheck(call_unfold, &desc, &x, 1, NULL) < 1e-6);
    rows = ignis_unfold(x, &desc);
    let_go(x);
    x = tensor_noise(shape_of(rows), IGNIS_F64, 2, true);
    let_go(rows);
    CHECK(ignis_gradcheck(call_fold, &desc, &x, 1, NULL) < 1e-6);
    let_go(x);
    x = tensor_noise(IGNIS_SHAPE(2, 3, 3), IGNIS_F64, 3, true);
    for (mode = 0; mode < MODES; mode++)
        CHECK(ignis_gradcheck(call_pad, &mode, &x, 1, NULL) < 1e-6);
    let_go(x);
}

TEST(unfold_refusals)
{
    ignis_unfold_desc desc = {{3, 3}, {1, 1}, {0, 0}, {1, 1}};
    const int64_t size[] = {4, 5}, negative[] = {4, -1};
    ignis_scope scope;
    ignis_tensor x, rows;
    SETUP(NULL);
    scope = ignis_scope_begin();
    x = ignis_tensor_zeros(IGNIS_SHAPE(1, 4, 5, 2), NULL);
    rows = ignis_tensor_zeros(IGNIS_SHAPE(1, 6, 18), NULL);
    CHECK_REFUSED(0, ignis_unfold(x, NULL).id, IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NULL_ARGUMENT);
    CHECK_REFUSED(0, ignis_fold(rows, NULL, 2, &desc).id, IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NULL_ARGUMENT);
    CHECK_MESSAGE_HAS("ignis_fold");
    CHECK_MESSAGE_HAS("size is null");
    CHECK_REFUSED(0, ignis_fold(rows, size, 4, &desc).id, IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    CHECK_MESSAGE_HAS("sides is 4; expected 1 to 3");
    CHECK_REFUSED(0, ignis_fold(rows, negative, 2, &desc).id, IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    CHECK_REFUSED(0, ignis_fold(x, size, 2, &desc).id, IGNIS_ERROR_SHAPE, IGNIS_DIAG_SHAPE_DIFFERS);
    CHECK_REFUSED(0, ignis_fold(ignis_slice(rows, 1, 0, 5), size, 2, &desc).id, IGNIS_ERROR_SHAPE,
                  IGNIS_DIAG_SHAPE_DIFFERS);
    CHECK_MESSAGE_HAS("patches is [1, 5, 18]; an image [1, 4, 5, 2] has patches [1, 6, 9 taps of equal channels]");
    CHECK_REFUSED(0, ignis_unfold(ignis_reshape(x, IGNIS_SHAPE(8, 5)), &desc).id, IGNIS_ERROR_SHAPE,
                  IGNIS_DIAG_SHAPE_DIFFERS);
    CHECK_REFUSED(0, ignis_unfold(ignis_cast(x, IGNIS_I32), &desc).id, IGNIS_ERROR_DTYPE, IGNIS_DIAG_DTYPE_DIFFERS);
    desc.dilation[0] = 2;
    CHECK_REFUSED(0, ignis_unfold(x, &desc).id, IGNIS_ERROR_SHAPE, IGNIS_DIAG_SHAPE_DIFFERS);
    CHECK_MESSAGE_HAS(
        "dimension 1 of an image [1, 4, 5, 2] with a padding of 0 on both sides is shorter than a patch, 5");
    desc.dilation[0] = 0, desc.padding[1] = -1;
    CHECK_REFUSED(0, ignis_unfold(x, &desc).id, IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    desc.padding[1] = INT32_MAX;
    CHECK_REFUSED(0, ignis_unfold(x, &desc).id, IGNIS_ERROR_UNSUPPORTED, IGNIS_DIAG_UNSUPPORTED);
    desc.padding[1] = 0, desc.kernel[1] = 0;
    CHECK_REFUSED(0, ignis_unfold(x, &desc).id, IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    CHECK_MESSAGE_HAS("desc.kernel[1] is 0; expected 1 or more");
    let_go(x);
    CHECK_REFUSED(0, ignis_unfold(x, &desc).id, IGNIS_ERROR_FREED, IGNIS_DIAG_TENSOR_FREED);
    CHECK_OK(ignis_scope_end(scope));
}

TEST(padding_refusals)
{
    const int64_t none[] = {0, 0}, two[] = {0, 2}, three[] = {0, 3}, below[] = {0, -1}, large[] = {INT64_MAX - 1, 0};
    ignis_scope scope;
    ignis_tensor x;
    SETUP(NULL);
    scope = ignis_scope_begin();
    x = ignis_tensor_zeros(IGNIS_SHAPE(3, 2), NULL);
    CHECK_REFUSED(0, ignis_pad_reflect(x, two, none, 2).id, IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    CHECK_MESSAGE_HAS("ignis_pad_reflect");
    CHECK_MESSAGE_HAS("dimension 1 of [3, 2] is padded by 2 and 0; expected less than the size");
    CHECK_REFUSED(0, ignis_pad_circular(x, NULL, three, 2).id, IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    CHECK_MESSAGE_HAS("expected at most the size");
    CHECK_REFUSED(0, ignis_pad_replicate(x, below, NULL, 2).id, IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    CHECK_REFUSED(0, ignis_pad_replicate(x, none, none, 1).id, IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_COUNT_MISMATCH);
    CHECK_REFUSED(0, ignis_pad_replicate(x, large, large, 2).id, IGNIS_ERROR_SHAPE, IGNIS_DIAG_SHAPE_OVERFLOW);
    CHECK_REFUSED(0, ignis_pad_replicate(ignis_tensor_zeros(IGNIS_SHAPE(3, 0), NULL), two, none, 2).id,
                  IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    CHECK_MESSAGE_HAS("expected an element to repeat");
    CHECK_OK(ignis_scope_end(scope));
}

static ignis_tensor everything(int at, const ignis_tensor *inputs)
{
    static const int64_t before[] = {0, 1, 2, 0}, after[] = {0, 2, 1, 0}, size[] = {6, 6};
    ignis_unfold_desc desc = {{2, 3}, {2, 1}, {0, 1}, {1, 1}};
    ignis_tensor x = inputs[0];
    int mode;
    (void)at;
    for (mode = 0; mode < MODES && x.id; mode++)
        x = ignis_slice(ignis_slice(pads[mode](x, before, after, 4), 1, 0, 3), 2, 0, 3);
    x = ignis_pad_replicate(x, before, after, 4);
    return ignis_sum(ignis_fold(ignis_unfold(x, &desc), size, 2, &desc));
}

static void sweep(const char *prefix)
{
    static host_counter counter;
    ignis_desc desc = test_counting_desc(&counter);
    ignis_tensor x;
    SETUP(&desc);
    x = tensor_noise(IGNIS_SHAPE(1, 3, 3, 2), IGNIS_F32, 1, true);
    sweep_walks(prefix, &counter, everything, &x);
    let_go(x);
}

TEST(each_launch_fails_once) { sweep("cuLaunchKernel"); }
TEST(each_host_allocation_fails_once) { sweep(NULL); }

int main(int argc, char **argv) { return test_run(argc, argv); }
