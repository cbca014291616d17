// SPDX-License-Identifier: MIT
/*  test_grid_sample.c - ignis_grid_sample and both of its gradients, beside the definition in double

    Positions in f32 are off by some roundings of n, which move a result by as much of the difference of two pixels. */
#include "sweep.h"

#include <math.h>

typedef struct scenario {
    int images, sides, size[3], points[3], channels; /* size and points: of columns first, as in a position */
} scenario;

static ignis_shape shape_with(const scenario *s, const int *size, int last)
{
    ignis_shape shape = IGNIS_SHAPE(s->images);
    int i;
    for (i = s->sides - 1; i >= 0; i--)
        shape.dim[shape.ndim++] = size[i];
    shape.dim[shape.ndim++] = last;
    return shape;
}

/*  A position along a side of n pixels, and its derivative. */
static double position_of(const ignis_grid_sample_desc *desc, int n, double g, double *slope)
{
    double x = desc->align_corners ? (g + 1) / 2 * (n - 1) : ((g + 1) * n - 1) / 2;
    *slope = (desc->align_corners ? n - 1 : n) / 2.0;
    if (desc->padding == IGNIS_GRID_REFLECTION) {
        double low = desc->align_corners ? 0 : -0.5, high = desc->align_corners ? n - 1 : n - 0.5;
        while (high > low && (x < low || x > high)) {
            x = x < low ? 2 * low - x : 2 * high - x;
            *slope = -*slope;
        }
        if (high <= low)
            x = 0, *slope = 0;
    }
    if (desc->padding != IGNIS_GRID_ZEROS && (x <= 0 || x >= n - 1)) {
        x = x <= 0 ? 0 : n - 1;
        *slope = 0;
    }
    return x;
}

typedef struct results {
    double *y, *dx, *dgrid;
} results;

/*  Adds up the results for one point of one image, by the definition. */
static void add_point(const scenario *s, const ignis_grid_sample_desc *desc, int64_t image, int64_t point,
                      const double *x, const double *grid, const double *g, results *r)
{
    double at[3], slope[3];
    int corner, i, k, c = s->channels;
    for (i = 0; i < s->sides; i++)
        at[i] = position_of(desc, s->size[i], grid[point * s->sides + i], &slope[i]);
    for (corner = 0; corner < (desc->nearest ? 1 : 1 << s->sides); corner++) {
        int64_t pixel = image;
        double weight = 1, without[3] = {1, 1, 1};
        bool inside = true;
        for (i = s->sides - 1; i >= 0; i--) {
            double low = desc->nearest ? rint(at[i]) : floor(at[i]), w = desc->nearest     ? 1
                                                                         : corner >> i & 1 ? at[i] - low
                                                                                           : 1 - at[i] + low;
            int where = (int)low + (corner >> i & 1);
            inside = inside && where >= 0 && where < s->size[i];
            pixel = pixel * s->size[i] + where;
            weight *= w;
            for (k = 0; k < 3; k++)
                without[k] *= k == i ? (corner >> i & 1 ? 1 : -1) : w;
        }
        for (k = 0; inside && k < c; k++) {
            r->y[point * c + k] += weight * x[pixel * c + k];
            r->dx[pixel * c + k] += weight * g[point * c + k];
            for (i = 0; !desc->nearest && i < s->sides; i++)
                r->dgrid[point * s->sides + i] += without[i] * slope[i] * x[pixel * c + k] * g[point * c + k];
        }
    }
}

static int64_t count_wrong(const double *got, const double *expected, int64_t count, double tolerance)
{
    int64_t i, wrong = 0;
    for (i = 0; i < count; i++)
        wrong += !is_close(got[i], expected[i], tolerance);
    return wrong;
}

static void check(int line, const scenario *s, const ignis_grid_sample_desc *desc, ignis_dtype dtype,
                  ignis_dtype grid_dtype)
{
    ignis_shape xs = shape_with(s, s->size, s->channels), gs = shape_with(s, s->points, s->sides),
                ys = shape_with(s, s->points, s->channels);
    double unit = dtype == IGNIS_F64 ? 1e-14 : dtype == IGNIS_F32 ? 4e-6 : dtype == IGNIS_F16 ? 2e-3 : 1.6e-2;
    ignis_scope scope = ignis_scope_begin();
    ignis_tensor x = tensor_noise(xs, dtype, 1, true), y,
                 grid = noise_at(gs, grid_dtype, 2, 0, 1.7, 0, true); /* some positions are outside */
    double *xv = tensor_values(x), *gv = tensor_values(grid), *g, *got[3];
    int64_t points = s->channels ? shape_numel(ys) / s->channels : 0, wrong[3], i;
    results r;
    char text[200];
    r.y = (double *)calloc((size_t)shape_numel(ys) + 1, sizeof(double));
    r.dx = (double *)calloc((size_t)shape_numel(xs) + 1, sizeof(double));
    r.dgrid = (double *)calloc((size_t)shape_numel(gs) + 1, sizeof(double));
    y = ignis_grid_sample(x, grid, desc);
    CHECK_OK(ignis_status_last());
    CHECK_SHAPE_IS(y, ys);
    g = backward_from(y, dtype, 5, 0);
    for (i = 0; i < points; i++)
        add_point(s, desc, i / (points / s->images), i, xv, gv, g, &r);
    got[0] = tensor_values(y);
    got[1] = array_values(ignis_tensor_grad(x)), got[2] = array_values(ignis_tensor_grad(grid));
    wrong[0] = count_wrong(got[0], r.y, shape_numel(ys), unit);
    wrong[1] = count_wrong(got[1], r.dx, shape_numel(xs), unit * (dtype == IGNIS_F32 ? 2 : 1));
    wrong[2] = count_wrong(got[2], r.dgrid, shape_numel(gs), grid_dtype == dtype ? 4 * unit : 2e-5);
    snprintf(text, sizeof text,
             "%s, grid %s, padding %d, nearest %d, align %d: %lld values, %lld dx, %lld dgrid differ",
             ignis_dtype_name(dtype), ignis_dtype_name(grid_dtype), (int)desc->padding, desc->nearest,
             desc->align_corners, (long long)wrong[0], (long long)wrong[1], (long long)wrong[2]);
    if (wrong[0] + wrong[1] + wrong[2])
        test__fail(__FILE__, line, text);
    for (i = 0; i < 3; i++)
        free(got[i]);
    free(xv), free(gv), free(g), free(r.y), free(r.dx), free(r.dgrid);
    CHECK_OK(ignis_scope_end(scope));
}

static const scenario scenarios[] = {{1, 2, {1, 1}, {1, 1}, 1},        {2, 2, {5, 3}, {4, 7}, 3},
                                     {1, 2, {7, 5}, {5, 3}, 8},        {2, 2, {3, 7}, {33, 3}, 40},
                                     {1, 2, {5, 1}, {3, 4}, 2},        {2, 3, {5, 3, 3}, {3, 2, 5}, 3},
                                     {1, 3, {3, 5, 7}, {4, 3, 3}, 16}, {1, 2, {3, 3}, {2, 5}, 256}};

TEST(beside_the_definition)
{
    ignis_grid_sample_desc desc;
    int i, d, way;
    SETUP(NULL);
    for (way = 0; way < 12; way++) {
        desc.padding = (ignis_grid_padding)(way % 3);
        desc.nearest = way / 3 % 2, desc.align_corners = way / 6;
        for (i = 0; i < COUNT_OF(scenarios); i++)
            for (d = 0; d < (i < 3 || i == 5 ? 4 : 2); d++)
                check(__LINE__, &scenarios[i], &desc, float_dtypes[d], float_dtypes[d]);
        check(__LINE__, &scenarios[1], &desc, IGNIS_BF16, IGNIS_F32);
        check(__LINE__, &scenarios[2], &desc, IGNIS_F16, IGNIS_F32);
    }
}

TEST(empty)
{
    static const scenario empty[] = {{0, 2, {3, 3}, {2, 2}, 3}, {1, 2, {3, 3}, {0, 2}, 3}, {1, 2, {3, 3}, {2, 2}, 0}};
    ignis_grid_sample_desc desc;
    int i;
    SETUP(NULL);
    memset(&desc, 0, sizeof desc);
    for (i = 0; i < COUNT_OF(empty); i++)
        check(__LINE__, &empty[i], &desc, IGNIS_F32, IGNIS_F32);
}

/*  Positions at 0 of -1 to 1, far outside, and no numbers; pixels that are infinite beside others. */
TEST(no_numbers)
{
    const double positions[] = {NAN, 0, 0, INFINITY, 3e38, -3e38, -1, -1}, pixels[] = {1, 2, INFINITY, 4};
    ignis_grid_sample_desc desc;
    ignis_scope scope;
    ignis_tensor x, grid, y;
    int i;
    SETUP(NULL);
    scope = ignis_scope_begin();
    memset(&desc, 0, sizeof desc);
    x = tensor_of(pixels, IGNIS_SHAPE(1, 2, 2, 1), IGNIS_F32, true);
    grid = tensor_of(positions, IGNIS_SHAPE(1, 1, 4, 2), IGNIS_F32, true);
    desc.align_corners = true;
    y = ignis_grid_sample(x, grid, &desc);
    for (i = 0; i < 3; i++)
        CHECK_NUMBER(value_at(y, i), 0);
    CHECK_NUMBER(value_at(y, 3), 1); /* the pixel itself: its neighbours have no weight */
    CHECK_OK(ignis_backward(ignis_sum(y), IGNIS_NO_ARRAY));
    for (i = 0; i < 4; i++)
        CHECK_NUMBER(grad_at(x, i), i == 0);
    for (i = 0; i < 6; i++)
        CHECK_NUMBER(grad_at(grid, i), 0);
    CHECK_OK(ignis_scope_end(scope));
}

/*  All positions at one pixel: its gradient is the sum of all, the same each time. */
TEST(many_positions_of_one_pixel)
{
    enum { POINTS = 1000 };
    ignis_grid_sample_desc desc;
    ignis_scope scope;
    ignis_tensor x, grid;
    SETUP(NULL);
    scope = ignis_scope_begin();
    memset(&desc, 0, sizeof desc);
    desc.nearest = true;
    x = tensor_noise(IGNIS_SHAPE(1, 3, 3, 2), IGNIS_F32, 1, true);
    grid = ignis_tensor_zeros(IGNIS_SHAPE(1, POINTS, 1, 2), NULL);
    CHECK_OK(ignis_backward(ignis_sum(ignis_grid_sample(x, grid, &desc)), IGNIS_NO_ARRAY));
    CHECK_NUMBER(grad_at(x, 8), POINTS);
    CHECK_NUMBER(grad_at(x, 9), POINTS);
    CHECK_NUMBER(grad_at(x, 7), 0);
    CHECK_OK(ignis_scope_end(scope));
}

static ignis_tensor call_sample(const ignis_tensor *x, int count, void *user_data)
{
    return (void)count, ignis_grid_sample(x[0], x[1], (const ignis_grid_sample_desc *)user_data);
}

TEST(gradients_agree_with_differences)
{
    ignis_grid_sample_desc desc;
    ignis_tensor x[2];
    int padding;
    SETUP(NULL);
    memset(&desc, 0, sizeof desc);
    for (padding = 0; padding < IGNIS_GRID_COUNT; padding++) {
        desc.padding = (ignis_grid_padding)padding;
        x[0] = tensor_noise(IGNIS_SHAPE(1, 3, 4, 2), IGNIS_F64, 1, true);
        x[1] = noise_at(IGNIS_SHAPE(1, 2, 3, 2), IGNIS_F64, 2, 0, 1.5, 0, true);
        CHECK(ignis_gradcheck(call_sample, &desc, x, 2, NULL) < 1e-5);
        let_go(x[0]), let_go(x[1]);
    }
}

TEST(refusals)
{
    ignis_grid_sample_desc desc;
    ignis_scope scope;
    ignis_tensor x, grid;
    SETUP(NULL);
    scope = ignis_scope_begin();
    memset(&desc, 0, sizeof desc);
    x = ignis_tensor_zeros(IGNIS_SHAPE(2, 3, 4, 5), NULL);
    grid = ignis_tensor_zeros(IGNIS_SHAPE(2, 6, 7, 2), NULL);
    CHECK_REFUSED(0, ignis_grid_sample(x, ignis_slice(grid, 0, 0, 1), NULL).id, IGNIS_ERROR_SHAPE,
                  IGNIS_DIAG_SHAPE_DIFFERS);
    CHECK_MESSAGE_HAS("ignis_grid_sample");
    CHECK_MESSAGE_HAS("x is [2, 3, 4, 5], grid is [1, 6, 7, 2]; expected [n, height, width, channels] and");
    CHECK_REFUSED(0, ignis_grid_sample(x, ignis_tensor_zeros(IGNIS_SHAPE(2, 6, 7, 3), NULL), NULL).id,
                  IGNIS_ERROR_SHAPE, IGNIS_DIAG_SHAPE_DIFFERS);
    CHECK_REFUSED(0, ignis_grid_sample(ignis_tensor_zeros(IGNIS_SHAPE(2, 3, 5), NULL), grid, NULL).id,
                  IGNIS_ERROR_SHAPE, IGNIS_DIAG_SHAPE_DIFFERS);
    CHECK_REFUSED(0, ignis_grid_sample(ignis_slice(x, 1, 0, 0), grid, NULL).id, IGNIS_ERROR_SHAPE,
                  IGNIS_DIAG_SHAPE_DIFFERS);
    CHECK_MESSAGE_HAS("which has no pixels");
    CHECK_REFUSED(0, ignis_grid_sample(x, ignis_cast(grid, IGNIS_F16), NULL).id, IGNIS_ERROR_DTYPE,
                  IGNIS_DIAG_DTYPE_DIFFERS);
    CHECK_REFUSED(0, ignis_grid_sample(ignis_cast(x, IGNIS_I32), grid, NULL).id, IGNIS_ERROR_DTYPE,
                  IGNIS_DIAG_DTYPE_DIFFERS);
    desc.padding = IGNIS_GRID_COUNT;
    CHECK_REFUSED(0, ignis_grid_sample(x, grid, &desc).id, IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    CHECK_MESSAGE_HAS("desc.padding is 3; expected one of ignis_grid_padding");
    let_go(grid);
    CHECK_REFUSED(0, ignis_grid_sample(x, grid, NULL).id, IGNIS_ERROR_FREED, IGNIS_DIAG_TENSOR_FREED);
    CHECK_OK(ignis_scope_end(scope));
}

static ignis_tensor everything(int at, const ignis_tensor *inputs)
{
    ignis_tensor y = ignis_grid_sample(inputs[0], inputs[1], NULL);
    (void)at;
    return ignis_sum(ignis_grid_sample(y, inputs[1], NULL));
}

static void sweep(const char *prefix)
{
    static host_counter counter;
    ignis_desc desc = test_counting_desc(&counter);
    ignis_tensor inputs[2];
    SETUP(&desc);
    inputs[0] = tensor_noise(IGNIS_SHAPE(1, 3, 3, 2), IGNIS_F32, 1, true);
    inputs[1] = tensor_noise(IGNIS_SHAPE(1, 2, 2, 2), IGNIS_F32, 2, true);
    sweep_walks(prefix, &counter, everything, inputs);
    let_go(inputs[0]), let_go(inputs[1]);
}

TEST(each_launch_fails_once) { sweep("cuLaunchKernel"); }
TEST(each_host_allocation_fails_once) { sweep(NULL); }

int main(int argc, char **argv) { return test_run(argc, argv); }
