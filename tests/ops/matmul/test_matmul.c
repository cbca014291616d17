// SPDX-License-Identifier: MIT
/*  test_matmul.c - matrix products against sums in double, their gradients, their errors */
#include "matmul.h"

#include <math.h>

/* --- values and gradients in every dtype ------------------------------------------------------------------------- */

/*  y = a b or a b^T with gradients, batched (batch > 0) or not; b of one matrix (shared_b) serves the whole batch. */
static void check_matmul(ignis_dtype dtype, sizes s, int64_t batch, bool shared_b, bool transpose_b)
{
    ignis_shape a_shape = batch ? IGNIS_SHAPE(batch, s.m, s.k) : IGNIS_SHAPE(s.m, s.k);
    ignis_shape b_shape = batch && !shared_b
                              ? (transpose_b ? IGNIS_SHAPE(batch, s.n, s.k) : IGNIS_SHAPE(batch, s.k, s.n))
                              : (transpose_b ? IGNIS_SHAPE(s.n, s.k) : IGNIS_SHAPE(s.k, s.n));
    ignis_shape y_shape = batch ? IGNIS_SHAPE(batch, s.m, s.n) : IGNIS_SHAPE(s.m, s.n);
    ignis_tensor a = tensor_noise(a_shape, dtype, 1, true), b = tensor_noise(b_shape, dtype, 2, true);
    ignis_tensor g = tensor_noise(y_shape, dtype, 3, false),
                 y = transpose_b ? ignis_matmul_t(a, b) : ignis_matmul(a, b);
    double *av, *bv, *gv, *yv, *da, *db;
    int64_t i, count = batch && !shared_b ? batch : 1, rows = batch && shared_b ? batch * s.m : s.m;
    bool ok = true;
    CHECK_SHAPE_IS(y, y_shape);
    CHECK_INT(tensor_info(y).dtype, dtype);
    CHECK_TEXT(tensor_info(y).operation, transpose_b ? "matmul_t" : "matmul");
    CHECK_OK(ignis_backward(y, ignis_tensor_data(g)));
    CHECK_SHAPE(ignis_tensor_grad(a), a_shape);
    CHECK_SHAPE(ignis_tensor_grad(b), b_shape);
    av = tensor_values(a), bv = tensor_values(b), gv = tensor_values(g), yv = tensor_values(y);
    da = array_values(ignis_tensor_grad(a)), db = array_values(ignis_tensor_grad(b));
    for (i = 0; ok && i < count; i++) {
        const double *a_i = av + i * rows * s.k, *b_i = bv + i * s.k * s.n, *g_i = gv + i * rows * s.n;
        ok = check_product("y", dtype, yv + i * rows * s.n, matrix_of(a_i, rows, s.k, false),
                           matrix_of(b_i, s.k, s.n, transpose_b), NULL) &&
             check_product("da", dtype, da + i * rows * s.k, matrix_of(g_i, rows, s.n, false),
                           matrix_of(b_i, s.n, s.k, !transpose_b), NULL);
        if (ok && transpose_b)
            ok = check_product("db", dtype, db + i * s.k * s.n, matrix_of(g_i, s.n, rows, true),
                               matrix_of(a_i, rows, s.k, false), NULL);
        else if (ok)
            ok = check_product("db", dtype, db + i * s.k * s.n, matrix_of(a_i, s.k, rows, true),
                               matrix_of(g_i, rows, s.n, false), NULL);
    }
    free(av), free(bv), free(gv), free(yv), free(da), free(db);
    let_go(a), let_go(b), let_go(g), let_go(y);
}

TEST(matmul_of_two_dimensions)
{
    int d, i;
    SETUP(NULL);
    for (d = 0; d < 4; d++)
        for (i = 0; i < COUNT_OF(all_sizes); i++)
            check_matmul(float_dtypes[d], all_sizes[i], 0, false, false);
}

TEST(matmul_t_of_two_dimensions)
{
    int d, i;
    SETUP(NULL);
    for (d = 0; d < 4; d++)
        for (i = 0; i < COUNT_OF(all_sizes); i++)
            check_matmul(float_dtypes[d], all_sizes[i], 0, false, true);
}

TEST(matmul_in_batches)
{
    static const sizes few[] = {{1, 1, 1}, {7, 11, 13}, {16, 8, 24}, {1, 5, 3}};
    int d, i, way;
    SETUP(NULL);
    for (d = 0; d < 4; d++)
        for (i = 0; i < COUNT_OF(few); i++)
            for (way = 0; way < 4; way++)
                check_matmul(float_dtypes[d], few[i], i == 1 ? 1 : 5, way % 2 != 0, way / 2 != 0);
}

TEST(matmul_with_more_leading_dimensions)
{
    ignis_tensor a, b, c, y, z;
    double *av, *bv, *cv, *yv, *zv;
    int64_t i;
    SETUP(NULL);
    a = tensor_noise(IGNIS_SHAPE(2, 3, 4, 5), IGNIS_F32, 1, false);
    b = tensor_noise(IGNIS_SHAPE(2, 3, 5, 6), IGNIS_F32, 2, false);
    c = tensor_noise(IGNIS_SHAPE(7, 5), IGNIS_F32, 3, false);
    y = ignis_matmul(a, b);
    z = ignis_matmul_t(a, c);
    CHECK_SHAPE_IS(y, IGNIS_SHAPE(2, 3, 4, 6));
    CHECK_SHAPE_IS(z, IGNIS_SHAPE(2, 3, 4, 7));
    av = tensor_values(a), bv = tensor_values(b), cv = tensor_values(c), yv = tensor_values(y), zv = tensor_values(z);
    for (i = 0; i < 6; i++)
        check_product("y", IGNIS_F32, yv + i * 24, matrix_of(av + i * 20, 4, 5, false),
                      matrix_of(bv + i * 30, 5, 6, false), NULL);
    check_product("z", IGNIS_F32, zv, matrix_of(av, 24, 5, false), matrix_of(cv, 5, 7, true), NULL);
    free(av), free(bv), free(cv), free(yv), free(zv);
    let_go(a), let_go(b), let_go(c), let_go(y), let_go(z);
}

/*  A matrix with itself: both gradients go to one leaf. */
/*  -1, 0 and 1, so that sums are exact in every dtype. */
static double *few_numbers(ignis_shape shape, uint64_t seed)
{
    int64_t numel = shape_numel(shape), i;
    double *values = (double *)malloc(sizeof *values * (size_t)(numel + 1));
    for (i = 0; i < numel; i++)
        values[i] = floor((noise(seed, i) + 1) * 1.5) - 1;
    return values;
}

/*  The matrix of a shape that belongs to one of the result's, counted over its leading dimensions. */
static int64_t spread_matrix(const ignis_shape *shape, const ignis_shape *out, int64_t i)
{
    int64_t index = 0, step = 1;
    int k;
    for (k = 3; k <= out->ndim; k++) {
        int64_t at = i % out->dim[out->ndim - k], size = k <= shape->ndim ? shape->dim[shape->ndim - k] : 1;
        i /= out->dim[out->ndim - k];
        index += size == 1 ? 0 : at * step;
        step *= size;
    }
    return index;
}

static void check_spread(ignis_dtype dtype, ignis_shape a, ignis_shape b, ignis_shape y, bool transpose_b)
{
    int64_t m = a.dim[a.ndim - 2], k = a.dim[a.ndim - 1], n = y.dim[y.ndim - 1], batch, i, j, l, count, wrong = 0;
    double *av = few_numbers(a, 1), *bv, *gv = few_numbers(y, 3), *got, *da, *db;
    ignis_scope scope = ignis_scope_begin();
    ignis_tensor at, bt, yt;
    if (transpose_b)
        b.dim[b.ndim - 2] = n, b.dim[b.ndim - 1] = k;
    bv = few_numbers(b, 2);
    da = (double *)calloc((size_t)shape_numel(a) + 1, sizeof *da);
    db = (double *)calloc((size_t)shape_numel(b) + 1, sizeof *db);
    at = tensor_of(av, a, dtype, true), bt = tensor_of(bv, b, dtype, true);
    yt = transpose_b ? ignis_matmul_t(at, bt) : ignis_matmul(at, bt);
    CHECK_SHAPE_IS(yt, y);
    CHECK_OK(ignis_backward(yt, ignis_tensor_data(tensor_of(gv, y, dtype, false))));
    got = tensor_values(yt);
    for (count = shape_numel(y) / (m * n), batch = 0; batch < count; batch++) {
        int64_t from_a = spread_matrix(&a, &y, batch) * m * k, from_b = spread_matrix(&b, &y, batch) * k * n,
                from_y = batch * m * n;
        for (i = 0; i < m; i++)
            for (j = 0; j < n; j++) {
                double sum = 0, g = gv[from_y + i * n + j];
                for (l = 0; l < k; l++) {
                    int64_t in_a = from_a + i * k + l, in_b = from_b + (transpose_b ? j * k + l : l * n + j);
                    sum += av[in_a] * bv[in_b];
                    da[in_a] += g * bv[in_b];
                    db[in_b] += g * av[in_a];
                }
                wrong += got[from_y + i * n + j] != sum;
            }
    }
    free(got);
    got = array_values(ignis_tensor_grad(at));
    for (i = 0; i < shape_numel(a); i++)
        wrong += got[i] != da[i];
    free(got);
    got = array_values(ignis_tensor_grad(bt));
    for (i = 0; i < shape_numel(b); i++)
        wrong += got[i] != db[i];
    CHECK_INT(wrong, 0);
    free(got), free(av), free(bv), free(gv), free(da), free(db);
    CHECK_OK(ignis_scope_end(scope));
}

TEST(matmul_spreads_leading_dimensions)
{
    int d, t;
    SETUP(NULL);
    for (d = 0; d < 4; d++)
        for (t = 0; t < 2; t++) {
            check_spread(float_dtypes[d], IGNIS_SHAPE(3, 5), IGNIS_SHAPE(4, 5, 2), IGNIS_SHAPE(4, 3, 2), t != 0);
            check_spread(float_dtypes[d], IGNIS_SHAPE(1, 3, 5), IGNIS_SHAPE(4, 5, 2), IGNIS_SHAPE(4, 3, 2), t != 0);
            check_spread(float_dtypes[d], IGNIS_SHAPE(4, 3, 5), IGNIS_SHAPE(1, 5, 2), IGNIS_SHAPE(4, 3, 2), t != 0);
            check_spread(float_dtypes[d], IGNIS_SHAPE(2, 1, 3, 5), IGNIS_SHAPE(3, 5, 2), IGNIS_SHAPE(2, 3, 3, 2),
                         t != 0);
            check_spread(float_dtypes[d], IGNIS_SHAPE(2, 3, 7, 5), IGNIS_SHAPE(3, 5, 1), IGNIS_SHAPE(2, 3, 7, 1),
                         t != 0);
            check_spread(float_dtypes[d], IGNIS_SHAPE(3, 7, 5), IGNIS_SHAPE(2, 1, 5, 2), IGNIS_SHAPE(2, 3, 7, 2),
                         t != 0);
            check_spread(float_dtypes[d], IGNIS_SHAPE(0, 3, 5), IGNIS_SHAPE(1, 5, 2), IGNIS_SHAPE(0, 3, 2), t != 0);
        }
}

TEST(matmul_of_a_tensor_with_itself)
{
    ignis_tensor a, y, g;
    double *av, *gv, *grad;
    int i;
    SETUP(NULL);
    a = tensor_noise(IGNIS_SHAPE(4, 4), IGNIS_F64, 1, true);
    g = tensor_noise(IGNIS_SHAPE(4, 4), IGNIS_F64, 2, false);
    y = ignis_matmul(a, a);
    CHECK_OK(ignis_backward(y, ignis_tensor_data(g)));
    av = tensor_values(a), gv = tensor_values(g), grad = array_values(ignis_tensor_grad(a));
    for (i = 0; i < 16; i++) {
        int r = i / 4, c = i % 4, l;
        double expected = 0;
        for (l = 0; l < 4; l++)
            expected += gv[r * 4 + l] * av[c * 4 + l] + av[l * 4 + r] * gv[l * 4 + c];
        CHECK_CLOSE(grad[i], expected, 1e-14);
    }
    free(av), free(gv), free(grad);
    let_go(a), let_go(y), let_go(g);
}

/* --- ignis_matmul_f8 --------------------------------------------------------------------------------------------- */

static bool multiplies_eights(void)
{
    ignis_device_info info;
    CHECK_OK(ignis_device_query(0, &info));
    return 10 * info.compute_major + info.compute_minor >= 89;
}

/*  Numbers of 8 bits times their scales: scales 1 for one, above 1 for one a row, 0 for none. Tensor cores add groups
    of 32 products to a sum, and of all addends keep 13 bits behind the point of the largest: they may lose half of 33
    last places, and of many results their root mean square is a thousandth. */
static void check_f8(ignis_dtype type, ignis_dtype dtype, sizes s, int scales_a, int scales_b, bool biased)
{
    ignis_scope scope = ignis_scope_begin();
    int64_t rows_a = scales_a > 1 ? s.m : 1, rows_b = scales_b > 1 ? s.n : 1, step = s.m > 300 ? 37 : 1, i, j, l;
    ignis_tensor a = ignis_cast(tensor_noise(IGNIS_SHAPE(s.m, s.k), IGNIS_F32, 1, false), type),
                 b = ignis_cast(tensor_noise(IGNIS_SHAPE(s.n, s.k), IGNIS_F32, 2, false), type), none = no_tensor();
    ignis_tensor noise_a = tensor_noise(IGNIS_SHAPE(rows_a, 1), IGNIS_F32, 3, false),
                 noise_b = tensor_noise(IGNIS_SHAPE(rows_b), IGNIS_F32, 4, false);
    ignis_tensor scale_a = scales_a ? ignis_map("1 + noise_a * noise_a", IGNIS_INPUTS(noise_a)) : none;
    ignis_tensor scale_b = scales_b ? ignis_map("1 + noise_b * noise_b", IGNIS_INPUTS(noise_b)) : none;
    ignis_tensor bias = biased ? tensor_noise(IGNIS_SHAPE(s.n), dtype, 5, false) : none;
    ignis_tensor out = ignis_matmul_f8(a, b, scale_a, scale_b, bias, dtype);
    double *av = tensor_values(a), *bv = tensor_values(b), *sa = scales_a ? tensor_values(scale_a) : NULL, wrong = 0,
           errors = 0, squares = 0;
    double *sb = scales_b ? tensor_values(scale_b) : NULL, *biases = biased ? tensor_values(bias) : NULL, *got;
    CHECK_OK(ignis_status_last());
    CHECK_SHAPE_IS(out, IGNIS_SHAPE(s.m, s.n));
    CHECK_INT(tensor_info(out).dtype, dtype);
    got = tensor_values(out);
    for (i = 0; got && i < s.m; i += step)
        for (j = 0; j < s.n; j++) {
            double x = 0, sum = 0, largest = 0, bound = 0,
                   factor = (sa ? sa[i % rows_a] : 1) * (sb ? sb[j % rows_b] : 1), error;
            for (l = 0; l < s.k; l++) {
                double product = av[i * s.k + l] * bv[j * s.k + l];
                x += product, sum += product;
                largest = fmax(largest, fmax(fabs(sum), fabs(product)));
                if (l % 32 == 31 || l == s.k - 1) {
                    bound += 16 * ldexp(largest, -12);
                    largest = fabs(sum = l % 512 == 511 ? 0 : sum);
                }
            }
            x = x * factor + (biases ? biases[j] : 0);
            error = fabs(got[i * s.n + j] - x);
            wrong += !(error <= factor * bound + epsilon_of(dtype) * fabs(x));
            errors += error * error, squares += x * x;
        }
    CHECK_NUMBER(wrong, 0);
    CHECK(errors <= squares * pow(1e-3 + epsilon_of(dtype), 2));
    free(av), free(bv), free(sa), free(sb), free(biases), free(got);
    CHECK_OK(ignis_scope_end(scope));
}

static void check_f8_of_some_sizes(int kinds)
{
    static const sizes table[] = {{1, 1, 1},      {33, 17, 16},    {64, 64, 128},  {100, 72, 200},  {130, 264, 144},
                                  {257, 136, 80}, {128, 256, 33},  {200, 408, 96}, {16, 300, 1040}, {70, 70, 5000},
                                  {140, 64, 640}, {900, 130, 384}, {3, 5, 0}};
    int i, k;
    for (i = 0; i < COUNT_OF(table); i++)
        for (k = 0; k < kinds; k++)
            check_f8(k % 2 ? IGNIS_F8_E5M2 : IGNIS_F8_E4M3,
                     k % 3 == 0   ? IGNIS_BF16
                     : k % 3 == 1 ? IGNIS_F32
                                  : IGNIS_F16,
                     table[i], k % 3, (k + 1) / 2, k > 2);
}

TEST(matmul_f8_against_double)
{
    SETUP(NULL);
    if (!multiplies_eights())
        SKIP("the device is older than compute capability 8.9");
    check_f8_of_some_sizes(6);
}

TEST(matmul_f8_without_wgmma)
{
    SETUP(NULL);
    if (!multiplies_eights())
        SKIP("the device is older than compute capability 8.9");
    ignis__cuda.cuTensorMapEncodeTiled = NULL; /* as an older driver */
    check_f8_of_some_sizes(2);
    CHECK_OK(ignis_shutdown()); /* the next setup finds it again */
}

TEST(matmul_f8_refuses)
{
    ignis_scope scope;
    ignis_tensor a, b, half, scale, none = no_tensor();
    SETUP(NULL);
    scope = ignis_scope_begin();
    a = ignis_cast(tensor_counting(IGNIS_SHAPE(3, 16), IGNIS_F32, 0, false), IGNIS_F8_E4M3);
    b = ignis_cast(a, IGNIS_F8_E5M2);
    half = ignis_cast(a, IGNIS_F16);
    scale = tensor_counting(IGNIS_SHAPE(2), IGNIS_F32, 1, false);
    CHECK_REFUSED(0, ignis_matmul_f8(a, a, none, none, none, IGNIS_F64).id, IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_ENUM);
    CHECK_REFUSED(0, ignis_matmul_f8(half, half, none, none, none, IGNIS_F16).id, IGNIS_ERROR_DTYPE,
                  IGNIS_DIAG_DTYPE_DIFFERS);
    CHECK_REFUSED(0, ignis_matmul_f8(a, b, none, none, none, IGNIS_F16).id, IGNIS_ERROR_DTYPE,
                  IGNIS_DIAG_DTYPE_DIFFERS);
    CHECK_REFUSED(0, ignis_matmul_f8(a, a, scale, none, none, IGNIS_F16).id, IGNIS_ERROR_SHAPE,
                  IGNIS_DIAG_MATMUL_SHAPE);
    CHECK_REFUSED(0, ignis_matmul_f8(a, a, none, scale, none, IGNIS_F16).id, IGNIS_ERROR_SHAPE,
                  IGNIS_DIAG_MATMUL_SHAPE);
    CHECK_REFUSED(0, ignis_matmul_f8(a, a, none, none, half, IGNIS_F16).id, IGNIS_ERROR_SHAPE, IGNIS_DIAG_MATMUL_SHAPE);
    CHECK_REFUSED(0, ignis_matmul_f8(a, a, half, none, none, IGNIS_F16).id, IGNIS_ERROR_DTYPE,
                  IGNIS_DIAG_DTYPE_DIFFERS);
    CHECK_REFUSED(0, ignis_matmul_f8(a, ignis_reshape(a, IGNIS_SHAPE(1, 3, 16)), none, none, none, IGNIS_F16).id,
                  IGNIS_ERROR_SHAPE, IGNIS_DIAG_MATMUL_SHAPE);
    CHECK_REFUSED(0, ignis_matmul_f8(a, ignis_slice(a, 1, 0, 8), none, none, none, IGNIS_F16).id, IGNIS_ERROR_SHAPE,
                  IGNIS_DIAG_MATMUL_SHAPE);
    if (!multiplies_eights())
        CHECK_REFUSED(0, ignis_matmul_f8(a, a, none, none, none, IGNIS_F16).id, IGNIS_ERROR_UNSUPPORTED,
                      IGNIS_DIAG_UNSUPPORTED);
    CHECK_OK(ignis_scope_end(scope));
}

/* --- ignis_quantize_f8 ------------------------------------------------------------------------------------------- */

/*  Numbers of very different rows: each is half a step of its type away from x / scale at most, and the largest has the
    type's largest size. */
static void check_quantized(ignis_tensor x, ignis_dtype type, bool per_row)
{
    ignis_tensor_info info = tensor_info(x), of_scale;
    int64_t n = info.shape.dim[info.shape.ndim - 1], count = numel_of(x), rows = count / n, i;
    double most = type == IGNIS_F8_E4M3 ? 448 : 57344, half = ldexp(1, type == IGNIS_F8_E4M3 ? -4 : -3), wrong = 0,
           missed = 0;
    double least = ldexp(1, type == IGNIS_F8_E4M3 ? -10 : -17), *from = tensor_values(x), *got, *scales,
           *largest; /* least: half the smallest */
    ignis_tensor scale, q = ignis_quantize_f8(x, type, per_row, &scale);
    CHECK_OK(ignis_status_last());
    CHECK_SHAPE_IS(q, info.shape);
    CHECK_INT(tensor_info(q).dtype, type);
    of_scale = tensor_info(scale);
    CHECK_INT(of_scale.dtype, IGNIS_F32);
    CHECK_INT(numel_of(scale), per_row ? rows : 1);
    CHECK_INT(of_scale.shape.ndim, per_row ? info.shape.ndim : 1);
    got = tensor_values(q), scales = tensor_values(scale);
    largest = (double *)calloc((size_t)rows, sizeof *largest);
    for (i = 0; i < count; i++) {
        double s = scales[per_row ? i / n : 0], exact = from[i] / s;
        wrong += !(fabs(got[i] - exact) <= fmax(least, half * fabs(exact)) * (1 + 1e-6));
        largest[per_row ? i / n : 0] = fmax(largest[per_row ? i / n : 0], fabs(got[i]));
    }
    for (i = 0; i < (per_row ? rows : 1); i++)
        missed += largest[i] != (scales[i] == 1 ? 0 : most);
    CHECK_NUMBER(wrong, 0);
    CHECK_NUMBER(missed, 0);
    free(from), free(got), free(scales), free(largest);
}

TEST(quantize_f8_rounds_by_the_largest)
{
    static const ignis_dtype types[] = {IGNIS_F32, IGNIS_BF16, IGNIS_F16, IGNIS_F64};
    static const int lengths[] = {1, 7, 64, 257, 1024, 5000, 33000};
    int t, i;
    SETUP(NULL);
    for (t = 0; t < COUNT_OF(types); t++)
        for (i = 0; i < COUNT_OF(lengths); i++) {
            ignis_scope scope = ignis_scope_begin();
            ignis_tensor x = tensor_noise(IGNIS_SHAPE(3, 3, lengths[i]), IGNIS_F32, 1, false);
            ignis_tensor row = tensor_counting(IGNIS_SHAPE(3, 1, 1), IGNIS_F32, 1, false);
            x = ignis_cast(ignis_map("x * (row - 1) * exp(row)", IGNIS_INPUTS(x, row)),
                           types[t]); /* the first rows are zero */
            check_quantized(x, i % 2 ? IGNIS_F8_E5M2 : IGNIS_F8_E4M3, true);
            check_quantized(x, i % 2 ? IGNIS_F8_E4M3 : IGNIS_F8_E5M2, false);
            check_quantized(ignis_slice(x, 0, 1, 2), IGNIS_F8_E4M3, i % 2 == 0); /* which may begin at an odd address */
            CHECK_OK(ignis_scope_end(scope));
        }
}

/*  A batch of rows with a scale each, by a matrix with one: as the product of what the numbers stand for. */
TEST(matmul_f8_of_what_is_quantized)
{
    enum { ROWS = 2 * 5, N = 7, K = 64 };
    ignis_scope scope;
    ignis_tensor a, b, scale_a, scale_b, y;
    double *av, *bv, *sa, *sb, *got;
    int i, j, l;
    SETUP(NULL);
    if (!multiplies_eights())
        SKIP("the device is older than compute capability 8.9");
    scope = ignis_scope_begin();
    a = ignis_quantize_f8(tensor_noise(IGNIS_SHAPE(2, 5, K), IGNIS_BF16, 1, false), IGNIS_F8_E4M3, true, &scale_a);
    b = ignis_quantize_f8(tensor_noise(IGNIS_SHAPE(N, K), IGNIS_F32, 2, false), IGNIS_F8_E4M3, false, &scale_b);
    y = ignis_matmul_f8(a, b, scale_a, scale_b, no_tensor(), IGNIS_F32);
    CHECK_SHAPE_IS(y, IGNIS_SHAPE(2, 5, N));
    av = tensor_values(a), bv = tensor_values(b), sa = tensor_values(scale_a), sb = tensor_values(scale_b),
    got = tensor_values(y);
    for (i = 0; i < ROWS; i++)
        for (j = 0; j < N; j++) {
            double sum = 0, size = 0;
            for (l = 0; l < K; l++)
                sum += av[i * K + l] * bv[j * K + l], size += fabs(av[i * K + l] * bv[j * K + l]);
            CHECK(fabs(got[i * N + j] - sum * sa[i] * sb[0]) <=
                  size * sa[i] * sb[0] * 0x1p-10); /* 13 bits of the largest, for each of 64 */
        }
    free(av), free(bv), free(sa), free(sb), free(got);
    CHECK_OK(ignis_scope_end(scope));
}

TEST(quantize_f8_refuses)
{
    ignis_scope scope;
    ignis_tensor x, scale;
    double *values;
    SETUP(NULL);
    scope = ignis_scope_begin();
    x = tensor_counting(IGNIS_SHAPE(2, 3), IGNIS_F32, 0, false);
    CHECK_REFUSED(0, ignis_quantize_f8(x, IGNIS_F16, true, &scale).id, IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_ENUM);
    CHECK_INT(scale.id, 0);
    CHECK_REFUSED(0, ignis_quantize_f8(x, IGNIS_F8_E4M3, true, NULL).id, IGNIS_ERROR_ARGUMENT,
                  IGNIS_DIAG_NULL_ARGUMENT);
    CHECK_REFUSED(0, ignis_quantize_f8(ignis_cast(x, IGNIS_I32), IGNIS_F8_E4M3, true, &scale).id, IGNIS_ERROR_DTYPE,
                  IGNIS_DIAG_DTYPE_DIFFERS);
    x = ignis_quantize_f8(tensor_counting(IGNIS_SHAPE(2, 0), IGNIS_F32, 0, false), IGNIS_F8_E4M3, true, &scale);
    CHECK_SHAPE_IS(scale, IGNIS_SHAPE(2, 1));
    x = tensor_counting(IGNIS_SHAPE(2), IGNIS_F32, 1, false);
    x = ignis_map("1 / (x - x)", IGNIS_INPUTS(x)); /* infinity */
    x = ignis_quantize_f8(x, IGNIS_F8_E4M3, false, &scale);
    values = tensor_values(x);
    CHECK(isnan(values[0]) && isnan(values[1]));
    free(values);
    x = tensor_counting(IGNIS_SHAPE(2), IGNIS_F32, 1, false);
    x = ignis_map("x > 1 ? -2 : nan", IGNIS_INPUTS(x));
    values = tensor_values(ignis_quantize_f8(x, IGNIS_F8_E4M3, false, &scale));
    CHECK(isnan(values[0]) && values[1] == -448);
    CHECK_NUMBER(ignis_item(scale), (double)(2.0f / 448));
    free(values);
    CHECK_OK(ignis_scope_end(scope));
}

TEST(matmul_of_nothing)
{
    static const sizes empty[] = {{0, 3, 2}, {3, 0, 2}, {3, 2, 0}, {0, 0, 0}, {2, 0, 0}, {0, 5, 0}};
    int i, d, transpose_b;
    SETUP(NULL);
    for (d = 0; d < 4; d++)
        for (i = 0; i < COUNT_OF(empty); i++)
            for (transpose_b = 0; transpose_b < 2; transpose_b++) {
                check_matmul(float_dtypes[d], empty[i], 0, false, transpose_b != 0);
                check_matmul(float_dtypes[d], empty[i], 3, false, transpose_b != 0);
                check_matmul(float_dtypes[d], empty[i], 2, true, transpose_b != 0);
            }
}

TEST(matmul_of_no_batches)
{
    ignis_tensor a, b, y;
    ignis_array g;
    SETUP(NULL);
    a = tensor_noise(IGNIS_SHAPE(0, 2, 3), IGNIS_F32, 1, true);
    b = tensor_noise(IGNIS_SHAPE(0, 3, 4), IGNIS_F32, 2, true);
    y = ignis_matmul(a, b);
    CHECK_SHAPE_IS(y, IGNIS_SHAPE(0, 2, 4));
    g = make(IGNIS_SHAPE(0, 2, 4), IGNIS_F32);
    CHECK_OK(ignis_backward(y, g));
    drop(g);
    let_go(a), let_go(b), let_go(y);
}

/*  Views at odd elements: the addresses have the alignment of one element only. */
TEST(matmul_of_views_at_odd_addresses)
{
    static const int64_t offsets[] = {1, 2, 3, 8};
    int d, i;
    SETUP(NULL);
    for (d = 0; d < 4; d++) {
        for (i = 0; i < COUNT_OF(offsets); i++) {
            ignis_tensor whole = tensor_noise(IGNIS_SHAPE(200), float_dtypes[d], 4, false), a, b, y;
            ignis_array view = ignis_array_slice(ignis_tensor_data(whole), 0, offsets[i], 8 * 8 + 8 * 4), left, right,
                        matrix_view;
            double *av, *bv, *yv;
            left = ignis_array_slice(view, 0, 0, 64);
            matrix_view = ignis_array_reshape(left, IGNIS_SHAPE(8, 8));
            a = ignis_tensor_from_array(matrix_view, false);
            drop(matrix_view), drop(left);
            right = ignis_array_slice(view, 0, 64, 32);
            matrix_view = ignis_array_reshape(right, IGNIS_SHAPE(8, 4));
            b = ignis_tensor_from_array(matrix_view, false);
            drop(matrix_view), drop(right), drop(view);
            y = ignis_matmul(a, b);
            av = tensor_values(a), bv = tensor_values(b), yv = tensor_values(y);
            check_product("y of views", float_dtypes[d], yv, matrix_of(av, 8, 8, false), matrix_of(bv, 8, 4, false),
                          NULL);
            free(av), free(bv), free(yv);
            let_go(whole), let_go(a), let_go(b), let_go(y);
        }
    }
}

TEST(matmul_keeps_nan_and_infinity)
{
    static const double a_values[4] = {1, NAN, INFINITY, 2}, b_values[2] = {1, 0.5};
    ignis_tensor a, b, y;
    double *v;
    SETUP(NULL);
    a = tensor_of(a_values, IGNIS_SHAPE(2, 2), IGNIS_F32, false);
    b = tensor_of(b_values, IGNIS_SHAPE(2, 1), IGNIS_F32, false);
    y = ignis_matmul(a, b);
    v = tensor_values(y);
    CHECK(isnan(v[0]));
    CHECK(isinf(v[1]));
    free(v);
    let_go(a), let_go(b), let_go(y);
}

/*  The sum of many small products is made in f32: in f16 it would stop at 2048, in bf16 at 256. */
TEST(matmul_sums_in_f32)
{
    enum { K = 8192 };
    int d;
    SETUP(NULL);
    for (d = 1; d < 4; d++) {
        ignis_tensor_desc desc = tensor_desc(float_dtypes[d], false);
        ignis_tensor a = ignis_tensor_ones(IGNIS_SHAPE(1, K), &desc), b = ignis_tensor_ones(IGNIS_SHAPE(K, 1), &desc),
                     y = ignis_matmul(a, b);
        CHECK_NUMBER(ignis_item(y), K);
        let_go(a), let_go(b), let_go(y);
    }
}

TEST(plans_are_found_again)
{
    ignis_memory_info first, last;
    ignis_tensor a, b;
    int i;
    SETUP(NULL);
    a = tensor_noise(IGNIS_SHAPE(16, 16), IGNIS_F32, 1, false);
    b = tensor_noise(IGNIS_SHAPE(16, 16), IGNIS_F32, 2, false);
    memset(&first, 0, sizeof first);
    for (i = 0; i < 200; i++) {
        let_go(ignis_matmul(a, b));
        if (i == 1)
            first = memory();
    }
    last = memory();
    CHECK_INT(last.live_bytes, first.live_bytes);
    CHECK_INT(last.reserved_bytes, first.reserved_bytes);
    let_go(a), let_go(b);
}

/* --- gradients by finite differences ------------------------------------------------------------------------------ */

static ignis_tensor run_matmul(const ignis_tensor *in, int count, void *user_data)
{
    (void)count;
    return user_data ? ignis_matmul_t(in[0], in[1]) : ignis_matmul(in[0], in[1]);
}

static void gradcheck_matmul(ignis_shape a, ignis_shape b, bool transpose_b)
{
    static int yes;
    ignis_tensor in[2];
    in[0] = tensor_noise(a, IGNIS_F64, 5, true);
    in[1] = tensor_noise(b, IGNIS_F64, 6, true);
    CHECK(ignis_gradcheck(run_matmul, transpose_b ? &yes : NULL, in, 2, NULL) < 1e-6);
    CHECK_INT(ignis_status_last(), IGNIS_OK);
    let_go(in[0]), let_go(in[1]);
}

TEST(gradients_against_finite_differences)
{
    SETUP(NULL);
    gradcheck_matmul(IGNIS_SHAPE(3, 4), IGNIS_SHAPE(4, 2), false);
    gradcheck_matmul(IGNIS_SHAPE(3, 4), IGNIS_SHAPE(2, 4), true);
    gradcheck_matmul(IGNIS_SHAPE(1, 1), IGNIS_SHAPE(1, 1), false);
    gradcheck_matmul(IGNIS_SHAPE(2, 3, 4), IGNIS_SHAPE(4, 5), false);
    gradcheck_matmul(IGNIS_SHAPE(2, 3, 4), IGNIS_SHAPE(5, 4), true);
    gradcheck_matmul(IGNIS_SHAPE(2, 3, 4), IGNIS_SHAPE(2, 4, 5), false);
    gradcheck_matmul(IGNIS_SHAPE(2, 3, 4), IGNIS_SHAPE(2, 5, 4), true);
    gradcheck_matmul(IGNIS_SHAPE(2, 2, 1, 3), IGNIS_SHAPE(2, 2, 3, 2), false);
}

TEST(only_wanted_gradients_are_made)
{
    ignis_tensor a, b, y;
    ignis_array g;
    int way;
    SETUP(NULL);
    for (way = 0; way < 2; way++) {
        a = tensor_noise(IGNIS_SHAPE(3, 4), IGNIS_F32, 1, way == 0);
        b = tensor_noise(IGNIS_SHAPE(4, 2), IGNIS_F32, 2, way == 1);
        y = ignis_matmul(a, b);
        g = test_array(3, 2);
        CHECK_OK(ignis_backward(y, g));
        CHECK_INT(ignis_tensor_grad(a).id != 0, way == 0);
        CHECK_INT(ignis_tensor_grad(b).id != 0, way == 1);
        drop(g);
        let_go(a), let_go(b), let_go(y);
    }
}

/* --- errors ------------------------------------------------------------------------------------------------------- */

TEST(matmul_refuses)
{
    ignis_tensor a, b, c, d, e, f, integers;
    ignis_tensor_desc desc = tensor_desc(IGNIS_I32, false);
    int64_t before;
    SETUP(NULL);
    a = tensor_noise(IGNIS_SHAPE(64, 128), IGNIS_F32, 1, true);
    b = tensor_noise(IGNIS_SHAPE(64, 10), IGNIS_F32, 2, true);
    c = tensor_noise(IGNIS_SHAPE(128), IGNIS_F32, 3, true);
    d = tensor_noise(IGNIS_SHAPE(128, 4), IGNIS_BF16, 4, true);
    e = tensor_noise(IGNIS_SHAPE(3, 2, 64), IGNIS_F32, 5, true);
    f = tensor_noise(IGNIS_SHAPE(2, 64, 2), IGNIS_F32, 6, true);
    integers = ignis_tensor_ones(IGNIS_SHAPE(2, 2), &desc);
    before = memory().live_blocks;
    CHECK_REFUSED(0, ignis_matmul(a, b).id, IGNIS_ERROR_SHAPE, IGNIS_DIAG_MATMUL_SHAPE);
    CHECK_MESSAGE_HAS("ignis_matmul: inner dimensions differ: a is [64, 128], b is [64, 10]");
    CHECK_REFUSED(0, ignis_matmul_t(a, b).id, IGNIS_ERROR_SHAPE, IGNIS_DIAG_MATMUL_SHAPE);
    CHECK_MESSAGE_HAS("transposed");
    CHECK_REFUSED(0, ignis_matmul(a, c).id, IGNIS_ERROR_SHAPE, IGNIS_DIAG_MATMUL_SHAPE);
    CHECK_REFUSED(0, ignis_matmul(c, a).id, IGNIS_ERROR_SHAPE, IGNIS_DIAG_MATMUL_SHAPE);
    CHECK_REFUSED(0, ignis_matmul(e, f).id, IGNIS_ERROR_SHAPE, IGNIS_DIAG_MATMUL_SHAPE);
    CHECK_MESSAGE_HAS("leading dimensions differ: a is [3, 2, 64], b is [2, 64, 2]");
    CHECK_REFUSED(0, ignis_matmul(a, e).id, IGNIS_ERROR_SHAPE, IGNIS_DIAG_MATMUL_SHAPE); /* b has more dimensions */
    CHECK_REFUSED(0, ignis_matmul(a, d).id, IGNIS_ERROR_DTYPE, IGNIS_DIAG_DTYPE_DIFFERS);
    CHECK_MESSAGE_HAS("bf16");
    CHECK_REFUSED(0, ignis_matmul(integers, integers).id, IGNIS_ERROR_DTYPE, IGNIS_DIAG_DTYPE_DIFFERS);
    CHECK_REFUSED(0, ignis_linear(a, d, c).id, IGNIS_ERROR_DTYPE, IGNIS_DIAG_DTYPE_DIFFERS);
    CHECK_REFUSED(0, ignis_linear(a, b, c).id, IGNIS_ERROR_SHAPE, IGNIS_DIAG_MATMUL_SHAPE);
    CHECK_REFUSED(0, ignis_linear(e, f, c).id, IGNIS_ERROR_SHAPE, IGNIS_DIAG_MATMUL_SHAPE);
    CHECK_REFUSED(0, ignis_linear(e, b, c).id, IGNIS_ERROR_SHAPE, IGNIS_DIAG_MATMUL_SHAPE);
    CHECK_INT(memory().live_blocks, before);
    CHECK_INT(ignis_tape_length(), 0);
    let_go(a), let_go(b), let_go(c), let_go(d), let_go(e), let_go(f), let_go(integers);
}

TEST(matmul_across_devices_is_refused)
{
    ignis_tensor a, b;
    ignis_tensor_desc desc = tensor_desc(IGNIS_F32, false);
    SETUP(NULL);
    NEEDS_DEVICES(2);
    a = ignis_tensor_ones(IGNIS_SHAPE(2, 2), &desc);
    desc.device = 1;
    b = ignis_tensor_ones(IGNIS_SHAPE(2, 2), &desc);
    CHECK_REFUSED(0, ignis_matmul(a, b).id, IGNIS_ERROR_DEVICE, IGNIS_DIAG_DEVICE_DIFFERS);
    let_go(a);
    a = ignis_matmul(b, b); /* on the other device, though it is not current */
    CHECK_INT(tensor_info(a).device, 1);
    CHECK_NUMBER(value_at(a, 3), 2);
    let_go(a), let_go(b);
}

/*  Without cuBLASLt built-in kernels compute products, which the logger is told once. */
TEST(a_missing_library)
{
    ignis_desc desc = test_desc(NULL);
    desc.cublas_library = "missing/libcublasLt.so";
    desc.verbose = true;
    SETUP(&desc);
    CHECK(!ignis__cublaslt_available("test"));
    CHECK(strstr(test_log_text(IGNIS_DIAG_NONE), "built-in kernels compute products") != NULL);
    check_matmul(IGNIS_F32, all_sizes[5], 0, false, false);
    check_linear(IGNIS_F32, all_sizes[5], true);
    CHECK_INT(ignis_status_last(), IGNIS_OK);
}

/*  Without NVRTC there are no own kernels: cuBLASLt computes the products, too, that they would have taken. */
TEST(own_kernels_without_a_compiler)
{
    static float ones[256 * 256];
    static double values[256 * 256];
    ignis_desc desc = test_desc(NULL);
    ignis_tensor_desc bf16 = tensor_desc(IGNIS_BF16, false);
    ignis_tensor x, y;
    int i;
    desc.nvrtc_library = "missing/libnvrtc.so";
    desc.verbose = true;
    SETUP(&desc);
    if (ignis__matmul_backend != IGNIS_MATMUL_AUTO)
        SKIP("IGNIS_MATMUL says who computes products");
    if (!ignis__cublaslt_available("test"))
        SKIP("there is no cuBLASLt");
    for (i = 0; i < COUNT_OF(ones); i++)
        ones[i] = 1;
    x = ignis_tensor_from_host(ones, IGNIS_SHAPE(256, 256), &bf16);
    ignis__devices[0].info.multiprocessors = 2; /* two tiles are a round */
    y = ignis_matmul(x, x);
    CHECK(strstr(test_log_text(IGNIS_DIAG_NONE), "Kernels come from the bundle and from the cache alone") != NULL ||
          ignis__devices[0].info.compute_major != 9);
    CHECK_OK(ignis_tensor_to_host(y, values, IGNIS_F64, COUNT_OF(values)));
    CHECK_NUMBER(values[0], 256);
    CHECK_INT(ignis_status_last(), IGNIS_OK);
    let_go(x), let_go(y);
}

/*  Where cuBLASLt alone is to compute them, products fail with what to do about it, and everything else works. */
TEST(a_missing_library_that_was_asked_for)
{
    ignis_desc desc = test_desc(NULL);
    ignis_tensor a, b, y;
    ignis_array g;
    desc.cublas_library = "missing/libcublasLt.so";
    desc.matmul = IGNIS_MATMUL_CUBLASLT;
    SETUP(&desc);
    a = tensor_counting(IGNIS_SHAPE(3, 2), IGNIS_F32, 1, true);
    b = tensor_counting(IGNIS_SHAPE(2, 3), IGNIS_F32, 1, true);
    CHECK_REFUSED(0, ignis_matmul(a, b).id, IGNIS_ERROR_LIBRARY, IGNIS_DIAG_LIBRARY_MISSING);
    CHECK_MESSAGE_HAS("cuBLASLt");
    CHECK_MESSAGE_HAS("install");
    CHECK_MESSAGE_HAS("IGNIS_CUBLAS_LIBRARY");
    CHECK_MESSAGE_HAS("missing/libcublasLt.so");
    CHECK_REFUSED(0, ignis_matmul_t(a, a).id, IGNIS_ERROR_LIBRARY, IGNIS_DIAG_LIBRARY_MISSING);
    CHECK_REFUSED(0, ignis_linear(a, a, b).id, IGNIS_ERROR_SHAPE, IGNIS_DIAG_MATMUL_SHAPE);
    CHECK_INT(ignis_tape_length(), 0);
    y = user_mul(a, ignis_reshape(a, IGNIS_SHAPE(3, 2)));
    test_leaks_expected = true; /* the reshaped one has no name here */
    g = test_array(3, 2);
    CHECK_OK(ignis_backward(y, g));
    CHECK_NUMBER(grad_at(a, 5), 2 * 6 * 5);
    drop(g);
    let_go(a), let_go(b), let_go(y);
}

/*  tf32 rounds factors to 10 bits, where it is asked for and the device has it; never otherwise. */
TEST(tf32_is_opt_in)
{
    ignis_desc desc = test_desc(NULL);
    double value = 1 + ldexp(1, -13);
    int way;
    for (way = 0; way < 2; way++) {
        ignis_tensor a, y;
        double result;
        desc.allow_tf32 = way == 1;
        SETUP(&desc);
        a = tensor_of(&value, IGNIS_SHAPE(1, 1), IGNIS_F32, false);
        y = ignis_matmul(a, a);
        result = ignis_item(y);
        if (way == 0)
            CHECK_NUMBER(result, (double)(float)(value * value));
        else
            CHECK_CLOSE(result, 1, 1e-3);
        let_go(a), let_go(y);
        CHECK_OK(ignis_shutdown());
    }
}

int main(int argc, char **argv) { return test_run(argc, argv); }
