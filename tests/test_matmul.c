// SPDX-License-Identifier: MIT
/*  test_matmul.c - matrix products and linear layers against sums in double, their gradients, their errors */
#include "tensor.h"
#include <math.h>

static const char *const dtype_names[] = {"default", "f16", "bf16", "f32", "f64"};

/* --- a reference in double ---------------------------------------------------------------------------------------- */

/*  Where an operand's element [row, column] is: op(x) of a stored matrix. */
typedef struct matrix {
    const double *at;
    int64_t rows, columns; /* of op(x) */
    bool transposed;       /* stored [columns, rows] */
} matrix;

static double matrix_at(matrix m, int64_t row, int64_t column)
{
    return m.transposed ? m.at[column * m.rows + row] : m.at[row * m.columns + column];
}

static matrix matrix_of(const double *at, int64_t rows, int64_t columns, bool transposed)
{
    matrix m;
    m.at = at, m.rows = rows, m.columns = columns, m.transposed = transposed;
    return m;
}

/*  Unit of rounding of a result, and of the sums behind it. */
static double epsilon_of(ignis_dtype dtype)
{
    return dtype == IGNIS_F64 ? ldexp(1, -53) : dtype == IGNIS_F32 ? ldexp(1, -24) : dtype == IGNIS_F16 ? ldexp(1, -11) : ldexp(1, -8);
}

/*  got [a.rows, b.columns] is a b + bias: each sum may be off by its own rounding, and by one rounding of the result. cuBLASLt has kernels
    that round the product to 16 bits before they add the bias, which is a rounding more. */
static bool check_product(const char *what, ignis_dtype dtype, const double *got, matrix a, matrix b, const double *bias)
{
    double sums = dtype == IGNIS_F64 ? ldexp(1, -53) : ldexp(1, -24), tiny = dtype == IGNIS_F16 ? ldexp(1, -24) : 1e-37;
    int64_t i, j, l;
    for (i = 0; i < a.rows; i++) {
        for (j = 0; j < b.columns; j++) {
            double sum = bias ? bias[j] : 0, size = fabs(sum), error;
            for (l = 0; l < a.columns; l++) {
                double term = matrix_at(a, i, l) * matrix_at(b, l, j);
                sum += term, size += fabs(term);
            }
            error = fabs(got[i * b.columns + j] - sum);
            if (!(error <= epsilon_of(dtype) * (fabs(sum) + (bias ? fabs(sum - bias[j]) : 0)) * 1.01 +
                               sums * size * (double)(a.columns + 2) + tiny)) {
                char text[512];
                snprintf(text, sizeof text, "%s: %s [%lld, %lld] x [%lld, %lld], element [%lld, %lld] is %.9g, expected %.9g", what,
                         dtype_names[dtype], (long long)a.rows, (long long)a.columns, (long long)b.rows, (long long)b.columns, (long long)i,
                         (long long)j, got[i * b.columns + j], sum);
                test__fail(__FILE__, __LINE__, text);
                return false;
            }
        }
    }
    return true;
}

/* --- values and gradients in every dtype ------------------------------------------------------------------------- */

typedef struct sizes {
    int64_t m, k, n;
} sizes;

static const sizes all_sizes[] = {{1, 1, 1},   {1, 7, 1},   {1, 1, 5},    {5, 1, 1},   {3, 2, 5},    {7, 11, 13},
                                  {17, 31, 1}, {1, 64, 33}, {16, 16, 16}, {64, 8, 24}, {31, 37, 41}, {128, 65, 3}};

/*  y = a b or a b^T with gradients, batched (batch > 0) or not; b of one matrix (shared_b) serves the whole batch. */
static void check_matmul(ignis_dtype dtype, sizes s, int64_t batch, bool shared_b, bool transpose_b)
{
    ignis_shape a_shape = batch ? IGNIS_SHAPE(batch, s.m, s.k) : IGNIS_SHAPE(s.m, s.k);
    ignis_shape b_shape = batch && !shared_b ? (transpose_b ? IGNIS_SHAPE(batch, s.n, s.k) : IGNIS_SHAPE(batch, s.k, s.n))
                                             : (transpose_b ? IGNIS_SHAPE(s.n, s.k) : IGNIS_SHAPE(s.k, s.n));
    ignis_shape y_shape = batch ? IGNIS_SHAPE(batch, s.m, s.n) : IGNIS_SHAPE(s.m, s.n);
    ignis_tensor a = tensor_noise(a_shape, dtype, 1, true), b = tensor_noise(b_shape, dtype, 2, true);
    ignis_tensor g = tensor_noise(y_shape, dtype, 3, false), y = transpose_b ? ignis_matmul_t(a, b) : ignis_matmul(a, b);
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
        ok =
            check_product("y", dtype, yv + i * rows * s.n, matrix_of(a_i, rows, s.k, false), matrix_of(b_i, s.k, s.n, transpose_b), NULL) &&
            check_product("da", dtype, da + i * rows * s.k, matrix_of(g_i, rows, s.n, false), matrix_of(b_i, s.n, s.k, !transpose_b), NULL);
        if (ok && transpose_b)
            ok = check_product("db", dtype, db + i * s.k * s.n, matrix_of(g_i, s.n, rows, true), matrix_of(a_i, rows, s.k, false), NULL);
        else if (ok)
            ok = check_product("db", dtype, db + i * s.k * s.n, matrix_of(a_i, s.k, rows, true), matrix_of(g_i, rows, s.n, false), NULL);
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
        check_product("y", IGNIS_F32, yv + i * 24, matrix_of(av + i * 20, 4, 5, false), matrix_of(bv + i * 30, 5, 6, false), NULL);
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
        int64_t from_a = spread_matrix(&a, &y, batch) * m * k, from_b = spread_matrix(&b, &y, batch) * k * n, from_y = batch * m * n;
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
            check_spread(float_dtypes[d], IGNIS_SHAPE(2, 1, 3, 5), IGNIS_SHAPE(3, 5, 2), IGNIS_SHAPE(2, 3, 3, 2), t != 0);
            check_spread(float_dtypes[d], IGNIS_SHAPE(2, 3, 7, 5), IGNIS_SHAPE(3, 5, 1), IGNIS_SHAPE(2, 3, 7, 1), t != 0);
            check_spread(float_dtypes[d], IGNIS_SHAPE(3, 7, 5), IGNIS_SHAPE(2, 1, 5, 2), IGNIS_SHAPE(2, 3, 7, 2), t != 0);
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

/*  Numbers of 8 bits times their scales: scales 1 for one, above 1 for one a row, 0 for none. Tensor cores add groups of 32 products to a sum, and
    of all addends keep 13 bits behind the point of the largest: they may lose half of 33 last places, and of many results their root mean square
    is a thousandth. */
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
    double *av = tensor_values(a), *bv = tensor_values(b), *sa = scales_a ? tensor_values(scale_a) : NULL, wrong = 0, errors = 0,
           squares = 0;
    double *sb = scales_b ? tensor_values(scale_b) : NULL, *biases = biased ? tensor_values(bias) : NULL, *got;
    CHECK_OK(ignis_status_last());
    CHECK_SHAPE_IS(out, IGNIS_SHAPE(s.m, s.n));
    CHECK_INT(tensor_info(out).dtype, dtype);
    got = tensor_values(out);
    for (i = 0; got && i < s.m; i += step)
        for (j = 0; j < s.n; j++) {
            double x = 0, sum = 0, largest = 0, bound = 0, factor = (sa ? sa[i % rows_a] : 1) * (sb ? sb[j % rows_b] : 1), error;
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
    CHECK_REFUSED(0, ignis_matmul_f8(half, half, none, none, none, IGNIS_F16).id, IGNIS_ERROR_DTYPE, IGNIS_DIAG_DTYPE_DIFFERS);
    CHECK_REFUSED(0, ignis_matmul_f8(a, b, none, none, none, IGNIS_F16).id, IGNIS_ERROR_DTYPE, IGNIS_DIAG_DTYPE_DIFFERS);
    CHECK_REFUSED(0, ignis_matmul_f8(a, a, scale, none, none, IGNIS_F16).id, IGNIS_ERROR_SHAPE, IGNIS_DIAG_MATMUL_SHAPE);
    CHECK_REFUSED(0, ignis_matmul_f8(a, a, none, scale, none, IGNIS_F16).id, IGNIS_ERROR_SHAPE, IGNIS_DIAG_MATMUL_SHAPE);
    CHECK_REFUSED(0, ignis_matmul_f8(a, a, none, none, half, IGNIS_F16).id, IGNIS_ERROR_SHAPE, IGNIS_DIAG_MATMUL_SHAPE);
    CHECK_REFUSED(0, ignis_matmul_f8(a, a, half, none, none, IGNIS_F16).id, IGNIS_ERROR_DTYPE, IGNIS_DIAG_DTYPE_DIFFERS);
    CHECK_REFUSED(0, ignis_matmul_f8(a, ignis_reshape(a, IGNIS_SHAPE(1, 3, 16)), none, none, none, IGNIS_F16).id, IGNIS_ERROR_SHAPE,
                  IGNIS_DIAG_MATMUL_SHAPE);
    CHECK_REFUSED(0, ignis_matmul_f8(a, ignis_slice(a, 1, 0, 8), none, none, none, IGNIS_F16).id, IGNIS_ERROR_SHAPE,
                  IGNIS_DIAG_MATMUL_SHAPE);
    if (!multiplies_eights())
        CHECK_REFUSED(0, ignis_matmul_f8(a, a, none, none, none, IGNIS_F16).id, IGNIS_ERROR_UNSUPPORTED, IGNIS_DIAG_UNSUPPORTED);
    CHECK_OK(ignis_scope_end(scope));
}

/* --- ignis_quantize_f8 ------------------------------------------------------------------------------------------- */

/*  Numbers of very different rows: each is half a step of its type away from x / scale at most, and the largest has the type's largest size. */
static void check_quantized(ignis_tensor x, ignis_dtype type, bool per_row)
{
    ignis_tensor_info info = tensor_info(x), of_scale;
    int64_t n = info.shape.dim[info.shape.ndim - 1], count = numel_of(x), rows = count / n, i;
    double most = type == IGNIS_F8_E4M3 ? 448 : 57344, half = ldexp(1, type == IGNIS_F8_E4M3 ? -4 : -3), wrong = 0, missed = 0;
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
            x = ignis_cast(ignis_map("x * (row - 1) * exp(row)", IGNIS_INPUTS(x, row)), types[t]); /* the first rows are zero */
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
    av = tensor_values(a), bv = tensor_values(b), sa = tensor_values(scale_a), sb = tensor_values(scale_b), got = tensor_values(y);
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
    CHECK_REFUSED(0, ignis_quantize_f8(x, IGNIS_F8_E4M3, true, NULL).id, IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NULL_ARGUMENT);
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
            ignis_array view = ignis_array_slice(ignis_tensor_data(whole), 0, offsets[i], 8 * 8 + 8 * 4), left, right, matrix_view;
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
            check_product("y of views", float_dtypes[d], yv, matrix_of(av, 8, 8, false), matrix_of(bv, 8, 4, false), NULL);
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

/* --- linear ------------------------------------------------------------------------------------------------------- */

static void check_linear(ignis_dtype dtype, sizes s, bool with_bias)
{
    ignis_tensor none = {0}, x = tensor_noise(IGNIS_SHAPE(2, s.m, s.k), dtype, 1, true),
                 w = tensor_noise(IGNIS_SHAPE(s.n, s.k), dtype, 2, true);
    ignis_tensor bias = with_bias ? tensor_noise(IGNIS_SHAPE(s.n), dtype, 3, true) : none,
                 g = tensor_noise(IGNIS_SHAPE(2, s.m, s.n), dtype, 4, false);
    ignis_tensor y = ignis_linear(x, w, bias);
    int64_t rows = 2 * s.m, i;
    double *xv = tensor_values(x), *wv = tensor_values(w), *bv = with_bias ? tensor_values(bias) : NULL, *gv = tensor_values(g),
           *yv = tensor_values(y);
    double *dx, *dw, *db, *ones = (double *)calloc((size_t)rows + 1, sizeof *ones);
    for (i = 0; i < rows; i++)
        ones[i] = 1;
    CHECK_SHAPE_IS(y, IGNIS_SHAPE(2, s.m, s.n));
    CHECK_OK(ignis_backward(y, ignis_tensor_data(g)));
    dx = array_values(ignis_tensor_grad(x)), dw = array_values(ignis_tensor_grad(w)),
    db = with_bias ? array_values(ignis_tensor_grad(bias)) : NULL;
    check_product("linear", dtype, yv, matrix_of(xv, rows, s.k, false), matrix_of(wv, s.k, s.n, true), bv);
    check_product("linear dx", dtype, dx, matrix_of(gv, rows, s.n, false), matrix_of(wv, s.n, s.k, false), NULL);
    check_product("linear dw", dtype, dw, matrix_of(gv, s.n, rows, true), matrix_of(xv, rows, s.k, false), NULL);
    if (with_bias)
        check_product("linear db", dtype, db, matrix_of(ones, 1, rows, false), matrix_of(gv, rows, s.n, false), NULL);
    free(xv), free(wv), free(bv), free(gv), free(yv), free(dx), free(dw), free(db), free(ones);
    let_go(x), let_go(w), let_go(g), let_go(y);
    if (with_bias)
        let_go(bias);
}

TEST(linear_with_and_without_a_bias)
{
    int d, i;
    SETUP(NULL);
    for (d = 0; d < 4; d++) {
        for (i = 0; i < COUNT_OF(all_sizes); i++) {
            check_linear(float_dtypes[d], all_sizes[i], true);
            if (i % 3 == 0)
                check_linear(float_dtypes[d], all_sizes[i], false);
        }
    }
}

TEST(linear_of_nothing)
{
    static const sizes empty[] = {{0, 3, 2}, {3, 0, 2}, {3, 2, 0}, {0, 0, 0}};
    int d, i;
    SETUP(NULL);
    for (d = 0; d < 4; d++)
        for (i = 0; i < COUNT_OF(empty); i++)
            check_linear(float_dtypes[d], empty[i], true);
}

static ignis_tensor run_linear(const ignis_tensor *in, int count, void *user_data)
{
    ignis_tensor none = {0};
    (void)user_data;
    return ignis_linear(in[0], in[1], count > 2 ? in[2] : none);
}

TEST(linear_against_finite_differences)
{
    ignis_tensor in[3];
    SETUP(NULL);
    in[0] = tensor_noise(IGNIS_SHAPE(2, 3, 4), IGNIS_F64, 5, true);
    in[1] = tensor_noise(IGNIS_SHAPE(5, 4), IGNIS_F64, 6, true);
    in[2] = tensor_noise(IGNIS_SHAPE(5), IGNIS_F64, 7, true);
    CHECK(ignis_gradcheck(run_linear, NULL, in, 3, NULL) < 1e-6);
    CHECK(ignis_gradcheck(run_linear, NULL, in, 2, NULL) < 1e-6);
    let_go(in[0]), let_go(in[1]), let_go(in[2]);
}

static ignis_tensor run_two_linear(const ignis_tensor *in, int count, void *user_data)
{
    ignis_tensor none = {0}, first = ignis_linear(in[0], in[1], none);
    (void)count, (void)user_data;
    return ignis_add(first, ignis_linear(in[0], in[2], none));
}

/*  Of two layers the second one to give x a gradient adds to that of the first, inside its product: the sum is rounded once. */
TEST(linear_adds_to_a_gradient_that_x_has)
{
    enum { ROWS = 24, IN = 40, OUT = 16 };
    ignis_tensor in[3], y, other, rounded;
    double *g, *w1, *w2, *dx, *first, *expected = (double *)calloc(ROWS * IN, sizeof(double)), *kept;
    int r, i, k, differ = 0;
    ignis_scope scope;
    SETUP(NULL);
    in[0] = tensor_noise(IGNIS_SHAPE(3, 4), IGNIS_F64, 5, true);
    in[1] = tensor_noise(IGNIS_SHAPE(5, 4), IGNIS_F64, 6, true);
    in[2] = tensor_noise(IGNIS_SHAPE(5, 4), IGNIS_F64, 7, true);
    CHECK(ignis_gradcheck(run_two_linear, NULL, in, 3, NULL) < 1e-6);
    let_go(in[0]), let_go(in[1]), let_go(in[2]);

    scope = ignis_scope_begin();
    in[0] = tensor_noise(IGNIS_SHAPE(ROWS, IN), IGNIS_BF16, 5, true);
    in[1] = tensor_noise(IGNIS_SHAPE(OUT, IN), IGNIS_BF16, 6, true);
    in[2] = tensor_noise(IGNIS_SHAPE(OUT, IN), IGNIS_BF16, 7, true);
    y = run_two_linear(in, 3, NULL);
    other = tensor_noise(IGNIS_SHAPE(ROWS, OUT), IGNIS_BF16, 8, false);
    CHECK_OK(ignis_backward(y, ignis_tensor_data(other)));
    g = tensor_values(other), w1 = tensor_values(in[1]), w2 = tensor_values(in[2]);
    for (r = 0; r < ROWS; r++) /* the layer that came last is the first of the walk */
        for (i = 0; i < IN; i++)
            for (k = 0; k < OUT; k++)
                expected[r * IN + i] += g[r * OUT + k] * w2[k * IN + i];
    rounded = tensor_of(expected, IGNIS_SHAPE(ROWS, IN), IGNIS_BF16, false);
    first = tensor_values(rounded);
    for (r = 0; r < ROWS; r++)
        for (i = 0; i < IN; i++) {
            double sum = 0;
            for (k = 0; k < OUT; k++)
                sum += g[r * OUT + k] * w1[k * IN + i];
            expected[r * IN + i] = sum + first[r * IN + i];
        }
    rounded = tensor_of(expected, IGNIS_SHAPE(ROWS, IN), IGNIS_BF16, false);
    kept = tensor_values(rounded);
    dx = array_values(ignis_tensor_grad(in[0]));
    for (i = 0; i < ROWS * IN; i++)
        differ += dx[i] != kept[i];
    CHECK(differ <= 4); /* where the exact sum is next to the middle of two numbers; of sums that are rounded twice a fifth differs */
    free(g), free(w1), free(w2), free(dx), free(first), free(expected), free(kept);
    CHECK_OK(ignis_scope_end(scope));
}

TEST(linear_makes_the_gradient_of_the_bias_alone)
{
    ignis_tensor x, w, bias, y;
    ignis_array g;
    int d;
    SETUP(NULL);
    for (d = 0; d < 4; d++) {
        x = tensor_noise(IGNIS_SHAPE(3, 4), float_dtypes[d], 1, false);
        w = tensor_noise(IGNIS_SHAPE(2, 4), float_dtypes[d], 2, false);
        bias = tensor_noise(IGNIS_SHAPE(2), float_dtypes[d], 3, true);
        y = ignis_linear(x, w, bias);
        g = make(IGNIS_SHAPE(3, 2), float_dtypes[d]);
        CHECK_OK(ignis_array_fill(g, 0.5));
        CHECK_OK(ignis_backward(y, g));
        CHECK_NUMBER(grad_at(bias, 1), 1.5);
        CHECK_INT(ignis_tensor_grad(w).id, 0);
        drop(g);
        let_go(x), let_go(w), let_go(bias), let_go(y);
    }
}

/* --- two layers at once ------------------------------------------------------------------------------------------- */

enum { MLP_X, MLP_W1, MLP_B1, MLP_W2, MLP_B2, MLP_INPUTS };

static ignis_tensor run_mlp(const ignis_tensor *in, int count, void *user_data)
{
    (void)count;
    return ignis_mlp(in[MLP_X], in[MLP_W1], in[MLP_B1], in[MLP_W2], in[MLP_B2], *(const ignis_activation *)user_data);
}

static ignis_tensor run_mlp_without_biases(const ignis_tensor *in, int count, void *user_data)
{
    ignis_tensor none = {0};
    (void)count;
    return ignis_mlp(in[0], in[1], none, in[2], none, *(const ignis_activation *)user_data);
}

TEST(mlp_against_finite_differences)
{
    static const ignis_activation gelu = IGNIS_ACTIVATION_GELU;
    ignis_tensor in[MLP_INPUTS], plain[3];
    int i;
    SETUP(NULL);
    in[MLP_X] = tensor_noise(IGNIS_SHAPE(2, 3, 4), IGNIS_F64, 5, true);
    in[MLP_W1] = tensor_noise(IGNIS_SHAPE(6, 4), IGNIS_F64, 6, true);
    in[MLP_B1] = tensor_noise(IGNIS_SHAPE(6), IGNIS_F64, 7, true);
    in[MLP_W2] = tensor_noise(IGNIS_SHAPE(3, 6), IGNIS_F64, 8, true);
    in[MLP_B2] = tensor_noise(IGNIS_SHAPE(3), IGNIS_F64, 9, true);
    plain[0] = in[MLP_X], plain[1] = in[MLP_W1], plain[2] = in[MLP_W2];
    CHECK(ignis_gradcheck(run_mlp, (void *)&gelu, in, MLP_INPUTS, NULL) < 1e-6);
    CHECK(ignis_gradcheck(run_mlp_without_biases, (void *)&gelu, plain, 3, NULL) < 1e-6);
    for (i = 0; i < MLP_INPUTS; i++)
        let_go(in[i]);
}

/*  The largest difference of two arrays, as a part of the largest number. */
static double largest_difference(ignis_array a, ignis_array b)
{
    double *x = array_values(a), *y = array_values(b), most = 0, size = 1e-30;
    int64_t i, count = ignis_array_numel(a);
    CHECK_INT(ignis_array_numel(b), count);
    for (i = 0; i < count; i++) {
        most = fabs(x[i] - y[i]) > most || isnan(x[i]) ? fabs(x[i] - y[i]) : most;
        size = fabs(y[i]) > size ? fabs(y[i]) : size;
    }
    free(x), free(y);
    return most / size;
}

/*  The same as its parts, in values and gradients; of those only the wanted ones are made. */
static void check_mlp(ignis_dtype dtype, int64_t rows, bool biases, ignis_activation activation, int wanted)
{
    ignis_tensor in[2][MLP_INPUTS], hidden, pre, y[2], none = {0}, g = tensor_noise(IGNIS_SHAPE(rows, 12), dtype, 9, false);
    int way, i;
    for (way = 0; way < 2; way++)
        for (i = 0; i < MLP_INPUTS; i++)
            in[way][i] = i == MLP_X              ? tensor_noise(IGNIS_SHAPE(rows, 20), dtype, 1, wanted & 1)
                         : i == MLP_W1           ? tensor_noise(IGNIS_SHAPE(24, 20), dtype, 2, wanted & 2)
                         : i == MLP_W2           ? tensor_noise(IGNIS_SHAPE(12, 24), dtype, 3, wanted & 4)
                         : biases && i == MLP_B1 ? tensor_noise(IGNIS_SHAPE(24), dtype, 4, wanted & 8)
                         : biases                ? tensor_noise(IGNIS_SHAPE(12), dtype, 5, wanted & 16)
                                                 : none;
    y[0] = ignis_mlp(in[0][MLP_X], in[0][MLP_W1], in[0][MLP_B1], in[0][MLP_W2], in[0][MLP_B2], activation);
    pre = ignis_linear(in[1][MLP_X], in[1][MLP_W1], in[1][MLP_B1]);
    hidden = activation == IGNIS_ACTIVATION_RELU ? ignis_relu(pre) : ignis_gelu(pre);
    y[1] = ignis_linear(hidden, in[1][MLP_W2], in[1][MLP_B2]);
    for (way = 0; way < 2; way++)
        CHECK_OK(ignis_backward(y[way], ignis_tensor_data(g)));
    CHECK(largest_difference(ignis_tensor_data(y[0]), ignis_tensor_data(y[1])) <= 8 * epsilon_of(dtype));
    for (i = 0; i < MLP_INPUTS; i++) {
        ignis_array grad[2];
        if (!in[0][i].id)
            continue;
        grad[0] = ignis_tensor_grad(in[0][i]), grad[1] = ignis_tensor_grad(in[1][i]);
        CHECK_INT(grad[0].id != 0, grad[1].id != 0);
        if (grad[0].id && grad[1].id)
            CHECK(largest_difference(grad[0], grad[1]) <= 24 * epsilon_of(dtype));
    }
    let_go(pre), let_go(hidden), let_go(y[0]), let_go(y[1]), let_go(g);
    for (way = 0; way < 2; way++)
        for (i = 0; i < MLP_INPUTS; i++)
            if (in[way][i].id)
                let_go(in[way][i]);
}

static const ignis_matmul_backend both_ways[2] = {IGNIS_MATMUL_AUTO, IGNIS_MATMUL_OWN};

TEST(mlp_is_its_parts)
{
    int d, way;
    for (way = 0; way < 2; way++) {
        ignis_desc desc = test_desc(NULL);
        desc.matmul = both_ways[way];
        SETUP(&desc);
        for (d = 0; d < 4; d++) {
            check_mlp(float_dtypes[d], 17, true, IGNIS_ACTIVATION_GELU, 31);
            check_mlp(float_dtypes[d], 9, true, IGNIS_ACTIVATION_RELU, 31);
            check_mlp(float_dtypes[d], 9, false, IGNIS_ACTIVATION_GELU, 7);
            check_mlp(float_dtypes[d], 5, true, IGNIS_ACTIVATION_GELU, 1 << d | 16);
        }
        check_mlp(IGNIS_F32, 5, true, IGNIS_ACTIVATION_RELU, 0 | 8);
        check_mlp(IGNIS_F32, 0, true, IGNIS_ACTIVATION_RELU, 31);
        CHECK_OK(ignis_shutdown());
    }
}

TEST(mlp_refuses)
{
    ignis_tensor x, w1, b1, w2, none = {0};
    SETUP(NULL);
    x = tensor_noise(IGNIS_SHAPE(2, 3), IGNIS_F32, 1, true);
    w1 = tensor_noise(IGNIS_SHAPE(4, 3), IGNIS_F32, 2, true);
    b1 = tensor_noise(IGNIS_SHAPE(3), IGNIS_F32, 3, true);
    w2 = tensor_noise(IGNIS_SHAPE(5, 4), IGNIS_F32, 4, true);
    CHECK_REFUSED(0, ignis_mlp(x, w1, b1, w2, none, IGNIS_ACTIVATION_GELU).id, IGNIS_ERROR_SHAPE, IGNIS_DIAG_MATMUL_SHAPE);
    CHECK_MESSAGE_HAS("b1 is [3]; [4] is needed");
    CHECK_REFUSED(0, ignis_mlp(x, w1, none, w2, b1, IGNIS_ACTIVATION_GELU).id, IGNIS_ERROR_SHAPE, IGNIS_DIAG_MATMUL_SHAPE);
    CHECK_MESSAGE_HAS("b2 is [3]; [5] is needed");
    CHECK_REFUSED(0, ignis_mlp(x, w1, none, w1, none, IGNIS_ACTIVATION_GELU).id, IGNIS_ERROR_SHAPE, IGNIS_DIAG_MATMUL_SHAPE);
    CHECK_MESSAGE_HAS("w2 is [4, 3]; [out, 4] is needed");
    CHECK_REFUSED(0, ignis_mlp(x, w2, none, w1, none, IGNIS_ACTIVATION_GELU).id, IGNIS_ERROR_SHAPE, IGNIS_DIAG_MATMUL_SHAPE);
    CHECK_REFUSED(0, ignis_mlp(x, w1, none, w2, none, (ignis_activation)0).id, IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_ENUM);
    CHECK_INT(ignis_tape_length(), 0);
    let_go(x), let_go(w1), let_go(b1), let_go(w2);
}

/* --- gated layers ------------------------------------------------------------------------------------------------- */

enum { GATED_X, GATED_GATE, GATED_UP, GATED_DOWN, GATED_INPUTS };

static ignis_tensor run_gated(const ignis_tensor *in, int count, void *user_data)
{
    (void)count, (void)user_data;
    return ignis_mlp_gated(in[GATED_X], in[GATED_GATE], in[GATED_UP], in[GATED_DOWN]);
}

static void gated_open(ignis_tensor *in, ignis_dtype dtype, int64_t rows, int64_t hidden, int wanted)
{
    in[GATED_X] = tensor_noise(IGNIS_SHAPE(rows, 20), dtype, 1, wanted & 1);
    in[GATED_GATE] = tensor_noise(IGNIS_SHAPE(hidden, 20), dtype, 2, wanted & 2);
    in[GATED_UP] = tensor_noise(IGNIS_SHAPE(hidden, 20), dtype, 3, wanted & 4);
    in[GATED_DOWN] = tensor_noise(IGNIS_SHAPE(12, hidden), dtype, 4, wanted & 8);
}

static void gated_close(const ignis_tensor *in)
{
    int i;
    for (i = 0; i < GATED_INPUTS; i++)
        let_go(in[i]);
}

TEST(mlp_gated_against_finite_differences)
{
    ignis_tensor in[GATED_INPUTS];
    SETUP(NULL);
    in[GATED_X] = tensor_noise(IGNIS_SHAPE(2, 3, 4), IGNIS_F64, 5, true);
    in[GATED_GATE] = tensor_noise(IGNIS_SHAPE(7, 4), IGNIS_F64, 6, true);
    in[GATED_UP] = tensor_noise(IGNIS_SHAPE(7, 4), IGNIS_F64, 7, true);
    in[GATED_DOWN] = tensor_noise(IGNIS_SHAPE(3, 7), IGNIS_F64, 8, true);
    CHECK(ignis_gradcheck(run_gated, NULL, in, GATED_INPUTS, NULL) < 1e-6);
    gated_close(in);
}

/*  The same as its parts, in values and gradients; of those only the wanted ones are made. The second time nothing is recorded. */
static void check_gated(ignis_dtype dtype, int64_t rows, int64_t hidden, int wanted)
{
    ignis_tensor in[2][GATED_INPUTS], part[3], y[3], none = {0}, g = tensor_noise(IGNIS_SHAPE(rows, 12), dtype, 9, false);
    int way, i;
    for (way = 0; way < 2; way++)
        gated_open(in[way], dtype, rows, hidden, wanted);
    y[0] = ignis_mlp_gated(in[0][GATED_X], in[0][GATED_GATE], in[0][GATED_UP], in[0][GATED_DOWN]);
    part[0] = ignis_linear(in[1][GATED_X], in[1][GATED_GATE], none), part[1] = ignis_linear(in[1][GATED_X], in[1][GATED_UP], none);
    part[2] = ignis_silu_mul(part[0], part[1]);
    y[1] = ignis_linear(part[2], in[1][GATED_DOWN], none);
    ignis_no_grad_begin();
    y[2] = ignis_mlp_gated(in[0][GATED_X], in[0][GATED_GATE], in[0][GATED_UP], in[0][GATED_DOWN]);
    ignis_no_grad_end();
    CHECK(largest_difference(ignis_tensor_data(y[2]), ignis_tensor_data(y[0])) == 0);
    CHECK(largest_difference(ignis_tensor_data(y[0]), ignis_tensor_data(y[1])) <= 8 * epsilon_of(dtype));
    for (way = 0; wanted && way < 2; way++)
        CHECK_OK(ignis_backward(y[way], ignis_tensor_data(g)));
    for (i = 0; i < GATED_INPUTS; i++) {
        ignis_array grad[2];
        grad[0] = ignis_tensor_grad(in[0][i]), grad[1] = ignis_tensor_grad(in[1][i]);
        CHECK_INT(grad[0].id != 0, wanted >> i & 1);
        CHECK_INT(grad[0].id != 0, grad[1].id != 0);
        if (grad[0].id && grad[1].id)
            CHECK(largest_difference(grad[0], grad[1]) <= 24 * epsilon_of(dtype));
    }
    for (i = 0; i < 3; i++)
        let_go(y[i]), let_go(part[i]);
    let_go(g), gated_close(in[0]), gated_close(in[1]);
}

TEST(mlp_gated_is_its_parts)
{
    int d, way, wanted;
    for (way = 0; way < 2; way++) {
        ignis_desc desc = test_desc(NULL);
        desc.matmul = both_ways[way];
        SETUP(&desc);
        for (d = 0; d < 4; d++) {
            check_gated(float_dtypes[d], 17, 24, 15);
            check_gated(float_dtypes[d], 5, 37, 15);
        }
        for (wanted = 0; wanted < 15; wanted++)
            check_gated(IGNIS_F32, 3, 8, wanted);
        check_gated(IGNIS_F32, 0, 8, 15);
        check_gated(IGNIS_F32, 3, 0, 15);
        CHECK_OK(ignis_shutdown());
    }
}

TEST(mlp_gated_refuses)
{
    ignis_tensor in[GATED_INPUTS], half;
    SETUP(NULL);
    gated_open(in, IGNIS_F32, 3, 8, 15);
    half = tensor_noise(IGNIS_SHAPE(8, 20), IGNIS_F16, 1, false);
    CHECK_REFUSED(0, ignis_mlp_gated(in[0], in[3], in[2], in[3]).id, IGNIS_ERROR_SHAPE, IGNIS_DIAG_MATMUL_SHAPE);
    CHECK_REFUSED(0, ignis_mlp_gated(in[0], in[1], in[0], in[3]).id, IGNIS_ERROR_SHAPE, IGNIS_DIAG_MATMUL_SHAPE);
    CHECK_MESSAGE_HAS("w_up is [3, 20]; that of w_gate is needed, [8, 20]");
    CHECK_REFUSED(0, ignis_mlp_gated(in[0], in[1], in[2], in[2]).id, IGNIS_ERROR_SHAPE, IGNIS_DIAG_MATMUL_SHAPE);
    CHECK_MESSAGE_HAS("w_down is [8, 20]; [out, 8] is needed");
    CHECK_REFUSED(0, ignis_mlp_gated(in[0], in[1], half, in[3]).id, IGNIS_ERROR_DTYPE, IGNIS_DIAG_DTYPE_DIFFERS);
    CHECK_MESSAGE_HAS("w_up");
    CHECK_INT(ignis_tape_length(), 0);
    let_go(half), gated_close(in);
}

/* --- any number of layers ----------------------------------------------------------------------------------------- */

enum { MOST_LAYERS = 5 };

static const int64_t layer_widths[MOST_LAYERS + 1] = {20, 24, 12, 40, 7, 9};

/*  A network, whose layers have biases where they are one of these bits. */
typedef struct network {
    ignis_activation activation;
    int count, biased;
    ignis_tensor x, weights[MOST_LAYERS], biases[MOST_LAYERS];
} network;

/*  wanted: which have gradients: x is 1, the weights and biases follow in turns. */
static void network_open(network *n, ignis_dtype dtype, int64_t rows, int64_t narrower, int wanted)
{
    int i;
    n->x = tensor_noise(IGNIS_SHAPE(rows, layer_widths[0] / narrower), dtype, 1, wanted & 1);
    for (i = 0; i < n->count; i++) {
        int64_t in = layer_widths[i] / narrower, out = layer_widths[i + 1] / narrower;
        ignis_tensor none = {0};
        n->weights[i] = tensor_noise(IGNIS_SHAPE(out, in), dtype, (uint64_t)(2 + 2 * i), wanted >> (1 + 2 * i) & 1);
        n->biases[i] = n->biased >> i & 1 ? tensor_noise(IGNIS_SHAPE(out), dtype, (uint64_t)(3 + 2 * i), wanted >> (2 + 2 * i) & 1) : none;
    }
}

static void network_close(network *n)
{
    int i;
    let_go(n->x);
    for (i = 0; i < n->count; i++) {
        let_go(n->weights[i]);
        if (n->biases[i].id)
            let_go(n->biases[i]);
    }
}

static ignis_tensor network_at_once(const network *n)
{
    return ignis_mlp_layers(n->x, n->weights, n->biased ? n->biases : NULL, n->count, n->activation);
}

static ignis_tensor network_in_parts(const network *n)
{
    ignis_scope scope = ignis_scope_begin();
    ignis_tensor h = n->x;
    int i;
    for (i = 0; i < n->count; i++) {
        h = ignis_linear(h, n->weights[i], n->biases[i]);
        if (i < n->count - 1)
            h = n->activation == IGNIS_ACTIVATION_RELU ? ignis_relu(h) : ignis_gelu(h);
    }
    return ignis_scope_return(scope, h);
}

/*  The result in double, by rows. */
static double *network_reference(const network *n)
{
    double *h = tensor_values(n->x);
    int64_t rows = tensor_info(n->x).shape.dim[0], row, in, out;
    int i;
    for (i = 0; i < n->count; i++) {
        ignis_shape shape = tensor_info(n->weights[i]).shape;
        double *w = tensor_values(n->weights[i]), *b = n->biases[i].id ? tensor_values(n->biases[i]) : NULL;
        double *next = (double *)calloc((size_t)(rows * shape.dim[0] + 1), sizeof *next);
        for (row = 0; row < rows; row++) {
            for (out = 0; out < shape.dim[0]; out++) {
                double sum = b ? b[out] : 0;
                for (in = 0; in < shape.dim[1]; in++)
                    sum += h[row * shape.dim[1] + in] * w[out * shape.dim[1] + in];
                if (i < n->count - 1 && n->activation == IGNIS_ACTIVATION_RELU)
                    sum = sum < 0 ? 0 : sum;
                else if (i < n->count - 1)
                    sum = sum / 2 * (1 + tanh(0.79788456080286535588 * (sum + 0.044715 * sum * sum * sum)));
                next[row * shape.dim[0] + out] = sum;
            }
        }
        free(h), free(w), free(b);
        h = next;
    }
    return h;
}

static ignis_tensor run_network(const ignis_tensor *in, int count, void *user_data)
{
    network n = *(const network *)user_data;
    int i, at = 1 + n.count;
    n.x = in[0];
    for (i = 0; i < n.count; i++) {
        n.weights[i] = in[1 + i];
        if (n.biased >> i & 1)
            n.biases[i] = in[at++];
    }
    CHECK_INT(at, count);
    return network_at_once(&n);
}

static const int layer_counts[] = {1, 2, 3, 5};

TEST(mlp_layers_against_finite_differences)
{
    ignis_tensor in[1 + 2 * MOST_LAYERS];
    network n;
    int c, biased, i, count;
    SETUP(NULL);
    for (c = 0; c < COUNT_OF(layer_counts); c++) {
        for (biased = 0; biased < 3; biased++) {
            n.activation = (c + biased) % 2 ? IGNIS_ACTIVATION_RELU : IGNIS_ACTIVATION_GELU;
            n.count = layer_counts[c];
            n.biased = biased == 0 ? 0 : biased == 1 ? 0x15 : 0x1F;
            network_open(&n, IGNIS_F64, 3, 4, -1);
            count = 0;
            in[count++] = n.x;
            for (i = 0; i < n.count; i++)
                in[count++] = n.weights[i];
            for (i = 0; i < n.count; i++)
                if (n.biases[i].id)
                    in[count++] = n.biases[i];
            CHECK(ignis_gradcheck(run_network, &n, in, count, NULL) < 1e-6);
            network_close(&n);
        }
    }
    CHECK_INT(memory().live_blocks, 0);
}

static bool same_gradients(ignis_tensor a, ignis_tensor b, double tolerance)
{
    ignis_array x, y;
    if (!a.id)
        return true;
    x = ignis_tensor_grad(a), y = ignis_tensor_grad(b);
    return (x.id != 0) == (y.id != 0) && (!x.id || largest_difference(x, y) <= tolerance);
}

/*  The same as its parts, and its values as in double; only the wanted gradients are made. */
static void check_layers(ignis_dtype dtype, int64_t rows, int count, int biased, ignis_activation activation, int wanted)
{
    network n[2];
    ignis_tensor y[2], g = tensor_noise(IGNIS_SHAPE(rows, layer_widths[count]), dtype, 20, false);
    int way, i;
    double *values, *reference, size = 1e-30;
    int64_t k;
    for (way = 0; way < 2; way++) {
        n[way].activation = activation;
        n[way].count = count;
        n[way].biased = biased;
        network_open(&n[way], dtype, rows, 1, wanted);
        y[way] = way ? network_in_parts(&n[way]) : network_at_once(&n[way]);
        CHECK_INT(tensor_info(y[way]).shape.dim[1], layer_widths[count]);
    }
    values = tensor_values(y[0]), reference = network_reference(&n[0]);
    for (k = 0; k < rows * layer_widths[count]; k++)
        size = fabs(reference[k]) > size ? fabs(reference[k]) : size;
    for (k = 0; k < rows * layer_widths[count]; k++)
        CHECK(fabs(values[k] - reference[k]) <= 24 * epsilon_of(dtype) * size);
    free(values), free(reference);
    CHECK_INT(tensor_info(y[0]).requires_grad, wanted != 0);
    for (way = 0; way < 2 && wanted; way++)
        CHECK_OK(ignis_backward(y[way], ignis_tensor_data(g)));
    CHECK(same_gradients(n[0].x, n[1].x, 32 * epsilon_of(dtype)));
    for (i = 0; i < count; i++) {
        CHECK(same_gradients(n[0].weights[i], n[1].weights[i], 32 * epsilon_of(dtype)));
        CHECK(same_gradients(n[0].biases[i], n[1].biases[i], 32 * epsilon_of(dtype)));
    }
    let_go(y[0]), let_go(y[1]), let_go(g);
    network_close(&n[0]), network_close(&n[1]);
}

TEST(mlp_layers_are_their_parts)
{
    int d, c, i, way;
    for (way = 0; way < 2; way++) {
        ignis_desc desc = test_desc(NULL);
        desc.matmul = both_ways[way];
        SETUP(&desc);
        for (c = 0; c < COUNT_OF(layer_counts); c++) {
            for (d = 0; d < 4; d++) {
                check_layers(float_dtypes[d], 9, layer_counts[c], 0x1F, d % 2 ? IGNIS_ACTIVATION_RELU : IGNIS_ACTIVATION_GELU, -1);
                check_layers(float_dtypes[d], 7, layer_counts[c], 0, d % 2 ? IGNIS_ACTIVATION_GELU : IGNIS_ACTIVATION_RELU, -1);
            }
            check_layers(IGNIS_F32, 5, layer_counts[c], 0x15, IGNIS_ACTIVATION_GELU, 0);
            check_layers(IGNIS_F32, 5, layer_counts[c], 0x1F, IGNIS_ACTIVATION_GELU, -2);    /* not of x */
            check_layers(IGNIS_F32, 5, layer_counts[c], 0x1F, IGNIS_ACTIVATION_RELU, 0x555); /* biases and x */
            check_layers(IGNIS_F32, 0, layer_counts[c], 0x1F, IGNIS_ACTIVATION_RELU, -1);
            check_layers(IGNIS_F32, 520, layer_counts[c], 0x1F, IGNIS_ACTIVATION_GELU, -1); /* more than tiny products have */
        }
        for (i = 0; i < 7; i++) /* each alone */
            check_layers(IGNIS_F32, 5, 3, 7, IGNIS_ACTIVATION_RELU, 1 << i);
        CHECK_INT(memory().live_blocks, 0);
        CHECK_OK(ignis_shutdown());
    }
}

TEST(mlp_layers_of_most_and_of_no_width)
{
    ignis_tensor x, y, one[2], weights[IGNIS_MAX_LAYERS], biases[IGNIS_MAX_LAYERS], none = {0};
    ignis_array g;
    int i, empty;
    SETUP(NULL);
    for (empty = 0; empty < 2; empty++) {
        x = tensor_noise(IGNIS_SHAPE(2, 3, 4), IGNIS_F32, 1, true);
        for (i = 0; i < IGNIS_MAX_LAYERS; i++) {
            int64_t in = empty && i == 3 ? 0 : 4, out = empty && i == 2 ? 0 : 4;
            weights[i] = tensor_noise(IGNIS_SHAPE(out, in), IGNIS_F32, (uint64_t)i + 2, true);
            biases[i] = tensor_noise(IGNIS_SHAPE(out), IGNIS_F32, (uint64_t)i + 20, true);
        }
        y = ignis_mlp_layers(x, weights, biases, IGNIS_MAX_LAYERS, IGNIS_ACTIVATION_GELU);
        CHECK_SHAPE_IS(y, IGNIS_SHAPE(2, 3, 4));
        one[0] = ignis_mlp_layers(x, weights, NULL, 1, IGNIS_ACTIVATION_GELU), one[1] = ignis_linear(x, weights[0], none);
        CHECK(largest_difference(ignis_tensor_data(one[0]), ignis_tensor_data(one[1])) == 0);
        g = make(IGNIS_SHAPE(2, 3, 4), IGNIS_F32);
        CHECK_OK(ignis_array_fill(g, 1));
        CHECK_OK(ignis_backward(y, g));
        CHECK_SHAPE(ignis_tensor_grad(x), IGNIS_SHAPE(2, 3, 4));
        CHECK_NUMBER(grad_at(biases[IGNIS_MAX_LAYERS - 1], 3), 6);
        for (i = 0; i < IGNIS_MAX_LAYERS; i++) {
            CHECK(ignis_tensor_grad(weights[i]).id != 0);
            CHECK(ignis_tensor_grad(biases[i]).id != 0);
            let_go(weights[i]), let_go(biases[i]);
        }
        if (empty)
            CHECK_NUMBER(grad_at(x, 5), 0);
        drop(g);
        let_go(x), let_go(y), let_go(one[0]), let_go(one[1]);
    }
}

TEST(mlp_layers_refuses)
{
    ignis_tensor x, w[3], b[3], other, freed, none = {0}, weights[IGNIS_MAX_LAYERS + 1], biases[3];
    static const ignis_activation gelu = IGNIS_ACTIVATION_GELU;
    int64_t before;
    int i;
    SETUP(NULL);
    x = tensor_noise(IGNIS_SHAPE(2, 3), IGNIS_F32, 1, true);
    for (i = 0; i < 3; i++) {
        w[i] = tensor_noise(IGNIS_SHAPE(4 + i, 3 + i), IGNIS_F32, (uint64_t)i + 2, true);
        b[i] = tensor_noise(IGNIS_SHAPE(4 + i), IGNIS_F32, (uint64_t)i + 5, true);
        weights[i] = w[i], biases[i] = b[i];
    }
    other = tensor_noise(IGNIS_SHAPE(5, 4), IGNIS_F64, 9, true);
    freed = tensor_noise(IGNIS_SHAPE(5, 4), IGNIS_F32, 9, true);
    let_go(freed);
    before = memory().live_blocks;
    CHECK_REFUSED(0, ignis_mlp_layers(x, weights, biases, 0, gelu).id, IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    CHECK_MESSAGE_HAS("count is 0, outside 1 to 8");
    CHECK_REFUSED(0, ignis_mlp_layers(x, weights, biases, -1, gelu).id, IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    CHECK_REFUSED(0, ignis_mlp_layers(x, weights, biases, IGNIS_MAX_LAYERS + 1, gelu).id, IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    CHECK_REFUSED(0, ignis_mlp_layers(x, NULL, biases, 3, gelu).id, IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NULL_ARGUMENT);
    CHECK_REFUSED(0, ignis_mlp_layers(x, weights, biases, 3, (ignis_activation)7).id, IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_ENUM);
    CHECK_REFUSED(0, ignis_mlp_layers(none, weights, biases, 3, gelu).id, IGNIS_ERROR_FREED, IGNIS_DIAG_TENSOR_FREED);
    weights[1] = none;
    CHECK_REFUSED(0, ignis_mlp_layers(x, weights, biases, 3, gelu).id, IGNIS_ERROR_FREED, IGNIS_DIAG_TENSOR_FREED);
    weights[1] = freed;
    CHECK_REFUSED(0, ignis_mlp_layers(x, weights, biases, 3, gelu).id, IGNIS_ERROR_FREED, IGNIS_DIAG_TENSOR_FREED);
    weights[1] = other;
    CHECK_REFUSED(0, ignis_mlp_layers(x, weights, biases, 3, gelu).id, IGNIS_ERROR_DTYPE, IGNIS_DIAG_DTYPE_DIFFERS);
    CHECK_MESSAGE_HAS("weights[1] is f64");
    weights[1] = w[2];
    CHECK_REFUSED(0, ignis_mlp_layers(x, weights, biases, 3, gelu).id, IGNIS_ERROR_SHAPE, IGNIS_DIAG_MATMUL_SHAPE);
    CHECK_MESSAGE_HAS("ignis_mlp_layers: weights[1] is [6, 5]; [out, 4] is needed");
    weights[1] = b[1];
    CHECK_REFUSED(0, ignis_mlp_layers(x, weights, biases, 3, gelu).id, IGNIS_ERROR_SHAPE, IGNIS_DIAG_MATMUL_SHAPE);
    weights[1] = w[1], weights[0] = b[0];
    CHECK_REFUSED(0, ignis_mlp_layers(x, weights, biases, 3, gelu).id, IGNIS_ERROR_SHAPE, IGNIS_DIAG_MATMUL_SHAPE);
    CHECK_MESSAGE_HAS("weights[0] is [4]; [out, in] is needed");
    weights[0] = w[1];
    CHECK_REFUSED(0, ignis_mlp_layers(x, weights, biases, 3, gelu).id, IGNIS_ERROR_SHAPE, IGNIS_DIAG_MATMUL_SHAPE);
    weights[0] = w[0], biases[2] = b[1];
    CHECK_REFUSED(0, ignis_mlp_layers(x, weights, biases, 3, gelu).id, IGNIS_ERROR_SHAPE, IGNIS_DIAG_MATMUL_SHAPE);
    CHECK_MESSAGE_HAS("biases[2] is [5]; [6] is needed");
    biases[2] = other;
    CHECK_REFUSED(0, ignis_mlp_layers(x, weights, biases, 3, gelu).id, IGNIS_ERROR_DTYPE, IGNIS_DIAG_DTYPE_DIFFERS);
    biases[2] = freed;
    CHECK_REFUSED(0, ignis_mlp_layers(x, weights, biases, 3, gelu).id, IGNIS_ERROR_FREED, IGNIS_DIAG_TENSOR_FREED);
    CHECK_INT(memory().live_blocks, before);
    CHECK_INT(ignis_tape_length(), 0);
    for (i = 0; i < 3; i++)
        let_go(w[i]), let_go(b[i]);
    let_go(x), let_go(other);
}

/* --- two products in one launch ----------------------------------------------------------------------------------- */

enum { OF_LINEAR, OF_MATMUL, OF_MATMUL_T, PRODUCTS };

/*  The wanted gradients (bits) of a product's operands and bias, to be freed; null: not wanted. */
static void product_gradients(int which, ignis_dtype dtype, sizes s, int wanted, double **gradients)
{
    ignis_tensor in[3] = {{0}}, y, g = tensor_noise(IGNIS_SHAPE(s.m, s.n), dtype, 3, false);
    int i, count = which == OF_LINEAR ? 3 : 2;
    in[0] = tensor_noise(IGNIS_SHAPE(s.m, s.k), dtype, 1, wanted & 1);
    in[1] = tensor_noise(which == OF_MATMUL ? IGNIS_SHAPE(s.k, s.n) : IGNIS_SHAPE(s.n, s.k), dtype, 2, wanted & 2);
    if (which == OF_LINEAR)
        in[2] = tensor_noise(IGNIS_SHAPE(s.n), dtype, 4, wanted & 4);
    y = which == OF_LINEAR   ? ignis_linear(in[0], in[1], in[2])
        : which == OF_MATMUL ? ignis_matmul(in[0], in[1])
                             : ignis_matmul_t(in[0], in[1]);
    CHECK_OK(ignis_backward(y, ignis_tensor_data(g)));
    for (i = 0; i < count; i++) {
        gradients[i] = wanted >> i & 1 ? array_values(ignis_tensor_grad(in[i])) : NULL;
        let_go(in[i]);
    }
    let_go(y), let_go(g);
}

static bool same_bits(const double *a, const double *b, int64_t count) { return memcmp(a, b, (size_t)count * sizeof *a) == 0; }

/*  Tiny products of every type are joined; not larger ones, and ones of long k, which are split. Each gradient has the bits that it has alone. */
TEST(gradients_in_one_launch_have_the_bits_of_each_alone)
{
    static const sizes few[] = {{64, 128, 10}, {17, 31, 9}, {1, 7, 1}, {600, 40, 24}, {16, 3000, 16}, {700, 24, 700}};
    int way, which, d, i;
    for (way = 0; way < 2; way++) {
        ignis_desc desc = test_desc(NULL);
        desc.matmul = both_ways[way];
        SETUP(&desc);
        for (which = 0; which < PRODUCTS; which++) {
            for (d = 0; d < 4; d++) {
                for (i = 0; i < (d == 2 ? COUNT_OF(few) : 3); i++) {
                    double *both[3], *of_a[3], *of_b[3];
                    product_gradients(which, float_dtypes[d], few[i], 7, both);
                    product_gradients(which, float_dtypes[d], few[i], 1, of_a);
                    product_gradients(which, float_dtypes[d], few[i], 6, of_b);
                    CHECK(same_bits(both[0], of_a[0], few[i].m * few[i].k));
                    CHECK(same_bits(both[1], of_b[1], few[i].n * few[i].k));
                    free(both[0]), free(both[1]), free(of_a[0]), free(of_b[1]);
                    if (which == OF_LINEAR) {
                        CHECK(same_bits(both[2], of_b[2], few[i].n));
                        free(both[2]), free(of_b[2]);
                    }
                }
            }
        }
        CHECK_OK(ignis_shutdown());
    }
}

TEST(gradients_of_layers_have_the_bits_of_each_alone)
{
    network n[2];
    ignis_tensor y, g;
    int d, i, way;
    SETUP(NULL);
    for (d = 0; d < 4; d++) {
        for (i = 0; i < 4; i++) { /* x, and the weights of three layers */
            ignis_array all, alone;
            g = tensor_noise(IGNIS_SHAPE(33, layer_widths[3]), float_dtypes[d], 20, false);
            for (way = 0; way < 2; way++) {
                n[way].activation = IGNIS_ACTIVATION_GELU;
                n[way].count = 3, n[way].biased = 7;
                network_open(&n[way], float_dtypes[d], 33, 1, way ? 1 << (i ? 2 * i - 1 : 0) : -1);
                y = network_at_once(&n[way]);
                CHECK_OK(ignis_backward(y, ignis_tensor_data(g)));
                let_go(y);
            }
            all = ignis_tensor_grad(i ? n[0].weights[i - 1] : n[0].x), alone = ignis_tensor_grad(i ? n[1].weights[i - 1] : n[1].x);
            CHECK(largest_difference(all, alone) == 0);
            network_close(&n[0]), network_close(&n[1]);
            let_go(g);
        }
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

TEST(linear_refuses_a_bias_of_another_size)
{
    ignis_tensor x, w, bias;
    SETUP(NULL);
    x = tensor_noise(IGNIS_SHAPE(2, 3), IGNIS_F32, 1, true);
    w = tensor_noise(IGNIS_SHAPE(4, 3), IGNIS_F32, 2, true);
    bias = tensor_noise(IGNIS_SHAPE(3), IGNIS_F32, 3, true);
    CHECK_REFUSED(0, ignis_linear(x, w, bias).id, IGNIS_ERROR_SHAPE, IGNIS_DIAG_MATMUL_SHAPE);
    CHECK_MESSAGE_HAS("[4]");
    let_go(x), let_go(w), let_go(bias);
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

/*  Without cuBLASLt Ignis' own kernels compute products, which the logger is told once. */
TEST(a_missing_library)
{
    ignis_desc desc = test_desc(NULL);
    desc.cublas_library = "missing/libcublasLt.so";
    desc.verbose = true;
    SETUP(&desc);
    CHECK(!ignis__cublaslt_available("test"));
    CHECK(strstr(test_log_text(IGNIS_DIAG_NONE), "Ignis' own kernels compute products") != NULL);
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
