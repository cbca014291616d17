// SPDX-License-Identifier: MIT
/*  test_ops_rows.c - softmax, log_softmax, layer_norm, rms_norm, rope and embedding against double references */
#include "rows.h"

/*  Row lengths around the borders of packs, of what a warp and a block have in registers, and beyond. */
static const int64_t lengths[] = {1,   2,    3,    7,    8,    31,   33,   64,   129,  256,  264,
                                  768, 1000, 1024, 1025, 1032, 2049, 8192, 8200, 9001, 20000};

/* softmax --------------------------------------------------------------------------------------------------------- */

static void check_softmax(ignis_dtype dtype, int64_t rows, int64_t n, int64_t offset)
{
    ignis_tensor x = noise_at(IGNIS_SHAPE(rows, n), dtype, (uint64_t)n, 0, 6, offset, true), y = ignis_softmax(x);
    double *xs = tensor_values(x), *ys = tensor_values(y), *expected = numbers(rows * n), *grads, *dx;
    int64_t r, i;
    for (r = 0; r < rows; r++)
        softmax_reference(xs + r * n, expected + r * n, n);
    CHECK_ALL("softmax", dtype, n, ys, expected, rows * n, rounding_of(dtype), dtype == IGNIS_F16 ? 1e-4 : 1e-9);
    grads = backward_from(y, dtype, 7, offset);
    for (r = 0; r < rows; r++) {
        double sum = 0;
        for (i = r * n; i < (r + 1) * n; i++)
            sum += ys[i] * grads[i];
        for (i = r * n; i < (r + 1) * n; i++)
            expected[i] = ys[i] * (grads[i] - sum);
    }
    dx = array_values(ignis_tensor_grad(x));
    CHECK_ALL("gradient of softmax", dtype, n, dx, expected, rows * n, rounding_of(dtype),
              largest(ys, rows * n) * (dtype < IGNIS_F32 ? 0.1 : 1) + 1e-4);
    free(xs), free(ys), free(expected), free(grads), free(dx);
    let_go(x), let_go(y);
}

TEST(softmax_of_many_lengths)
{
    ignis_dtype dtype;
    int i;
    SETUP(NULL);
    EACH_FLOAT(dtype)
    for (i = 0; i < COUNT_OF(lengths); i++) {
        check_softmax(dtype, lengths[i] > 2000 ? 2 : 9, lengths[i], 0);
        if (i % 3 == 0)
            check_softmax(dtype, 3, lengths[i], 1);
    }
}

/*  The gradient is dy - softmax(x) * sum of dy, rounded once: not made of the rounded result. */
static void check_log_softmax(ignis_dtype dtype, int64_t rows, int64_t n, int64_t offset)
{
    ignis_tensor x = noise_at(IGNIS_SHAPE(rows, n), dtype, (uint64_t)n, 0, 6, offset, true), y = ignis_log_softmax(x);
    double *xs = tensor_values(x), *ys = tensor_values(y), *expected = numbers(rows * n), *shares = numbers(rows * n),
           *grads, *dx;
    int64_t r, i;
    for (r = 0; r < rows; r++) {
        softmax_reference(xs + r * n, shares + r * n, n);
        for (i = r * n; i < (r + 1) * n; i++)
            expected[i] = log(shares[i]);
    }
    CHECK_INT(tensor_info(y).dtype, dtype);
    CHECK_ALL("log_softmax", dtype, n, ys, expected, rows * n, rounding_of(dtype), dtype == IGNIS_F64 ? 1 : 0.1);
    grads = backward_from(y, dtype, 7, offset);
    for (r = 0; r < rows; r++) {
        double sum = 0;
        for (i = r * n; i < (r + 1) * n; i++)
            sum += grads[i];
        for (i = r * n; i < (r + 1) * n; i++)
            expected[i] = grads[i] - shares[i] * sum;
    }
    dx = array_values(ignis_tensor_grad(x));
    CHECK_ALL("gradient of log_softmax", dtype, n, dx, expected, rows * n, rounding_of(dtype), 0.1);
    free(xs), free(ys), free(expected), free(shares), free(grads), free(dx);
    let_go(x), let_go(y);
}

TEST(log_softmax_of_many_lengths)
{
    ignis_dtype dtype;
    int i;
    SETUP(NULL);
    EACH_FLOAT(dtype)
    for (i = 0; i < COUNT_OF(lengths); i++) {
        check_log_softmax(dtype, lengths[i] > 2000 ? 2 : 9, lengths[i], 0);
        if (i % 3 == 0)
            check_log_softmax(dtype, 3, lengths[i], 1);
    }
    EACH_FLOAT(dtype)
    check_log_softmax(dtype, 1, 200000, 0);
    CHECK_INT(memory().live_blocks, 0);
}

TEST(softmax_of_200000)
{
    ignis_dtype dtype;
    SETUP(NULL);
    EACH_FLOAT(dtype)
    {
        check_softmax(dtype, 3, 50257, 0);
        check_softmax(dtype, 1, 200000, 0);
        check_softmax(dtype, 2, 100001, dtype == IGNIS_F32);
    }
}

/*  A row of nothing but -infinity, of one number beside it, with an infinity, and with NaN. */
static void check_infinities(ignis_tensor (*function)(ignis_tensor), double certain, double impossible)
{
    double x[4 * 40], *y, *dx;
    ignis_dtype dtype;
    ignis_tensor tensor, result;
    int i;
    EACH_FLOAT(dtype)
    {
        for (i = 0; i < 160; i++)
            x[i] = i < 40    ? -INFINITY
                   : i < 80  ? (i == 47 ? 3 : -INFINITY)
                   : i < 120 ? (i == 90 ? INFINITY : 1)
                             : (i == 130 ? NAN : 1);
        tensor = tensor_of(x, IGNIS_SHAPE(4, 40), dtype, true);
        result = function(tensor);
        y = tensor_values(result);
        for (i = 0; i < 160; i++)
            CHECK(i < 80 ? y[i] == (i == 47 ? certain : impossible) : isnan(y[i]));
        free(backward_from(result, dtype, 3, 0));
        dx = array_values(ignis_tensor_grad(tensor));
        for (i = 0; i < (certain == 1 ? 80 : 40); i++)
            CHECK(dx[i] == 0);
        for (i = 40; i < 80; i++)
            CHECK(isfinite(dx[i]));
        free(y), free(dx);
        let_go(tensor), let_go(result);
    }
}

TEST(softmax_of_infinities)
{
    SETUP(NULL);
    check_infinities(ignis_softmax, 1, 0);
    check_infinities(ignis_log_softmax, 0, -INFINITY);
}

/*  exp of an element less the maximum of others would overflow: of a lane without an element, say. */
TEST(softmax_of_numbers_far_from_zero)
{
    static const int64_t counts[] = {5, 40, 1024, 3000};
    double *x = numbers(3000), *expected = numbers(3000), *rounded, *y;
    ignis_dtype dtype;
    ignis_tensor tensor, result;
    int i, k, sign;
    SETUP(NULL);
    EACH_FLOAT(dtype)
    for (i = 0; i < COUNT_OF(counts); i++)
        for (sign = -1; sign <= 1; sign += 2) {
            for (k = 0; k < counts[i]; k++)
                x[k] = sign * 2000 + k % 7;
            tensor = tensor_of(x, IGNIS_SHAPE(counts[i]), dtype, false);
            rounded = tensor_values(tensor);
            softmax_reference(rounded, expected, counts[i]);
            result = ignis_softmax(tensor);
            y = tensor_values(result);
            CHECK_ALL("softmax far from zero", dtype, counts[i], y, expected, counts[i], 2 * rounding_of(dtype),
                      dtype == IGNIS_F16 ? 1e-4 : 1e-9);
            free(rounded), free(y);
            let_go(tensor), let_go(result);
        }
    free(x), free(expected);
}

/* layer_norm, rms_norm ----------------------------------------------------------------------------------------------
   */

/*  y, the norm of x [rows, n], and what the gradient g of y gives those of x, w and b, which has none in an rms_norm;
    dw and db begin at 0. */
static void norm_reference(bool rms, const double *x, const double *g, const double *w, const double *b, int64_t rows,
                           int64_t n, double eps, double *y, double *dx, double *dw, double *db)
{
    int64_t r, i;
    for (r = 0; r < rows; r++) {
        double mean = 0, square = 0, rstd, sum_g = 0, sum_gh = 0;
        const double *row = x + r * n, *grad = g + r * n;
        for (i = 0; i < n && !rms; i++)
            mean += row[i] / (double)n;
        for (i = 0; i < n; i++)
            square += (row[i] - mean) * (row[i] - mean) / (double)n;
        rstd = 1 / sqrt(square + eps);
        for (i = 0; i < n; i++) {
            double h = (row[i] - mean) * rstd;
            y[r * n + i] = h * w[i] + (rms ? 0 : b[i]);
            sum_g += rms ? 0 : grad[i] * w[i] / (double)n;
            sum_gh += grad[i] * w[i] * h / (double)n;
            dw[i] += grad[i] * h;
            db[i] += grad[i];
        }
        for (i = 0; i < n; i++)
            dx[r * n + i] = rstd * (grad[i] * w[i] - sum_g - (row[i] - mean) * rstd * sum_gh);
    }
}

/*  offset, of_w: elements in front of x and w in their memory. */
static void check_norm_at(bool rms, ignis_dtype dtype, int64_t rows, int64_t n, int64_t offset, int64_t of_w,
                          double shift)
{
    const char *name = rms ? "rms_norm" : "layer_norm";
    const double eps = 1e-3;
    ignis_tensor x = noise_at(IGNIS_SHAPE(rows, n), dtype, (uint64_t)n, 0, 2, offset, true), moved = x, y;
    ignis_tensor w = noise_at(IGNIS_SHAPE(n), dtype, 11, 0, 1, of_w, true),
                 b = noise_at(IGNIS_SHAPE(n), dtype, 12, 0, 1, 0, true);
    double *xs = tensor_values(x), *ws = tensor_values(w), *bs = tensor_values(b), *grads, *got,
           tolerance = rounding_of(dtype);
    double *expected = numbers(rows * n), *dx = numbers(rows * n), *dw = numbers(n), *db = numbers(n);
    int64_t i;
    if (shift != 0) {
        for (i = 0; i < rows * n; i++)
            xs[i] += shift;
        CHECK_OK(ignis_array_from_host(ignis_tensor_data(moved), xs, IGNIS_F64, rows * n));
        free(xs);
        xs = tensor_values(moved);
    }
    y = rms ? ignis_rms_norm(x, w, eps) : ignis_layer_norm(x, w, b, eps);
    grads = backward_from(y, dtype, 13, offset);
    norm_reference(rms, xs, grads, ws, bs, rows, n, eps, expected, dx, dw, db);
    got = tensor_values(y);
    CHECK_ALL(name, dtype, n, got, expected, rows * n, tolerance * (shift != 0 ? 50 : 1), 1);
    free(got);
    got = array_values(ignis_tensor_grad(x));
    CHECK_ALL("dx of it", dtype, n, got, dx, rows * n, tolerance * (shift != 0 ? 50 : 1),
              largest(dx, rows * n) * 0.3 + (n == 1 ? 10 : 1e-3)); /* n 1: what cancels */
    free(got);
    got = array_values(ignis_tensor_grad(w));
    CHECK_ALL("dw of it", dtype, n, got, dw, n, tolerance * (shift != 0 ? 50 : 1), largest(dw, n) * 0.3 + 1e-3);
    free(got);
    if (!rms) {
        got = array_values(ignis_tensor_grad(b));
        CHECK_ALL("db of it", dtype, n, got, db, n, tolerance, largest(db, n) * 0.3 + 1e-3);
        free(got);
    }
    free(xs), free(ws), free(bs), free(grads), free(expected), free(dx), free(dw), free(db);
    let_go(x), let_go(w), let_go(b), let_go(y);
}

static void check_norm(bool rms, ignis_dtype dtype, int64_t rows, int64_t n, int64_t offset, double shift)
{
    check_norm_at(rms, dtype, rows, n, offset, offset, shift);
}

TEST(norms_of_many_lengths)
{
    ignis_dtype dtype;
    int i;
    SETUP(NULL);
    EACH_FLOAT(dtype)
    for (i = 0; i < COUNT_OF(lengths); i++) {
        check_norm(false, dtype, lengths[i] > 2000 ? 3 : 37, lengths[i], 0, 0);
        check_norm(true, dtype, lengths[i] > 2000 ? 2 : 19, lengths[i], i % 2, 0);
        if (i % 3 == 1)
            check_norm(false, dtype, 3, lengths[i], 1, 0);
    }
}

/*  Rows that begin anywhere, and long ones: what a warp has, what a block has with 1, 2 and 4 packs a thread, and
    longer; in several turns. */
TEST(norms_of_odd_rows)
{
    static const int64_t sizes[][2] = {{1, 257},  {700, 257}, {3000, 5},   {129, 511}, {300, 513},
                                       {9, 2047}, {9, 2061},  {140, 1003}, {9, 2500},  {5, 6143},
                                       {3, 6145}, {2, 8191},  {3, 4111},   {3, 16391}};
    ignis_dtype dtype;
    int i;
    SETUP(NULL);
    EACH_FLOAT(dtype)
    for (i = 0; i < COUNT_OF(sizes); i++) {
        check_norm(false, dtype, sizes[i][0], sizes[i][1], 0, 0);
        if (i % 2)
            check_norm(true, dtype, sizes[i][0], sizes[i][1], 0, 0);
    }
    check_norm(false, IGNIS_BF16, 140, 12291, 0, 0); /* more rows than blocks */
    check_norm(false, IGNIS_BF16, 20000, 7, 0, 0);
    check_norm(true, IGNIS_F16, 1500, 301, 0, 0);
    check_norm(false, IGNIS_F32, 600, 1030, 0, 0);
    check_norm(true, IGNIS_F32, 3, 8000, 0, 0);
}

/* --- what is far from 1 ------------------------------------------------------------------------------------------- */

/*  The norm of rows whose numbers, all but those of each third row, are 2^power times as large: squares of these are no
    numbers. Held against that of rows that are not, with an eps that is smaller by the square, or is 2^-126, the least
    that counts beside f32. add: what is normalized is a sum.
    offset: elements in front of x in its memory. */
static void check_far_norm(bool rms, bool add, ignis_dtype dtype, int64_t rows, int64_t n, int64_t offset, int power)
{
    double eps = power > 0 ? 1e-3 : ldexp(1, 2 * power - 3),
           own = dtype == IGNIS_F64 ? eps : fmax((double)(float)eps, ldexp(1, -126));
    double *xs = rounded_noise(IGNIS_SHAPE(rows, n), dtype, 3, 1), *ws, *bs, *grads, *got,
           tolerance = 2 * rounding_of(dtype);
    double *expected = numbers(rows * n), *dx = numbers(rows * n), *dw = numbers(n), *db = numbers(n);
    ignis_tensor x = noise_at(IGNIS_SHAPE(rows, n), dtype, 3, 0, 1, offset, true),
                 half = noise_at(IGNIS_SHAPE(rows, n), dtype, 3, 0, 1, offset, false);
    ignis_tensor w = noise_at(IGNIS_SHAPE(n), dtype, 11, 0, 1, 0, true),
                 b = noise_at(IGNIS_SHAPE(n), dtype, 12, 0, 1, 0, true), y;
    int64_t r, i;
    for (i = 0; i < rows * n; i++)
        xs[i] = ldexp(xs[i], i / n % 3 == 2 ? 0 : power - add);
    CHECK_OK(ignis_array_from_host(ignis_tensor_data(x), xs, IGNIS_F64, rows * n));
    CHECK_OK(ignis_array_from_host(ignis_tensor_data(half), xs, IGNIS_F64, rows * n));
    for (i = 0; i < rows * n; i++)
        xs[i] = ldexp(xs[i], i / n % 3 == 2 ? add : add - power + add);
    for (i = 0; add && i < rows * n; i++)
        xs[i] = i / n % 3 == 2 ? xs[i] : xs[i] / 2;
    ws = tensor_values(w), bs = tensor_values(b);
    y = add && rms ? ignis_add_rms_norm(x, half, w, eps, NULL)
        : add      ? ignis_add_layer_norm(x, half, w, b, eps, NULL)
        : rms      ? ignis_rms_norm(x, w, eps)
                   : ignis_layer_norm(x, w, b, eps);
    grads = backward_from(y, dtype, 13, offset);
    for (r = 0; r < rows; r++)
        norm_reference(rms, xs + r * n, grads + r * n, ws, bs, 1, n, r % 3 == 2 ? own : ldexp(own, -2 * power),
                       expected + r * n, dx + r * n, dw, db);
    got = tensor_values(y);
    CHECK_ALL("a far norm", dtype, n, got, expected, rows * n, tolerance, 1);
    free(got);
    got = array_values(ignis_tensor_grad(x));
    for (i = 0; i < rows * n; i++)
        got[i] = ldexp(got[i], i / n % 3 == 2 ? 0 : power);
    if (power < (dtype == IGNIS_F64 ? 1000 : 110)) /* else they are subnormal */
        CHECK_ALL("dx of a far norm", dtype, n, got, dx, rows * n, tolerance, largest(dx, rows * n) * 0.3);
    free(got);
    got = array_values(ignis_tensor_grad(w));
    CHECK_ALL("dw of a far norm", dtype, n, got, dw, n, tolerance, largest(dw, n) * 0.3 + 1e-3);
    free(got), free(xs), free(ws), free(bs), free(grads), free(expected), free(dx), free(dw), free(db);
    let_go(x), let_go(half), let_go(w), let_go(b), let_go(y);
}

/*  Every kernel: rows of a warp, of a block, even and odd ones, long ones, and those that are added up first. */
TEST(norms_of_rows_far_from_one)
{
    static const int64_t sizes[][2] = {{7, 8},     {7, 5},    {40, 31},   {7, 64},    {7, 257},  {7, 768},
                                       {300, 768}, {7, 1000}, {7, 1024},  {5, 1031},  {5, 2056}, {4, 4096},
                                       {4, 4111},  {3, 8192}, {3, 12291}, {3, 40000}, {1, 20000}};
    static const ignis_dtype dtypes[] = {IGNIS_F32, IGNIS_BF16, IGNIS_F64};
    static const int powers[][2] = {{66, 520}, {100, 1000}, {126, 1022}, {-60, -520}, {-63, -530}};
    int i, d, k = 0;
    SETUP(NULL);
    for (i = 0; i < COUNT_OF(sizes); i++)
        for (d = 0; d < 3; d++)
            for (k = (i + d) % 2; k < 4; k += 2)
                check_far_norm((i + d + k / 2) % 2 != 0, k > 1, dtypes[d], sizes[i][0], sizes[i][1],
                               (i + k + d) % 3 == 1, powers[(i + 2 * d + k) % 5][d == 2]);
    for (d = 0; d < 3; d++)
        for (i = 0; i < 5; i++)
            for (k = 0; k < 4; k++)
                check_far_norm(k % 2, k > 1, dtypes[d], 4, 72, 0, powers[i][d == 2]);
}

/*  The largest numbers there are, whose sum and differences overflow, too; and rows of infinities and NaN, which stay
    what they are. */
TEST(norms_of_the_largest_numbers)
{
    static const int64_t columns[] = {8, 31, 264, 1000, 5000, 16384};
    int i, d, k, r;
    SETUP(NULL);
    for (d = 0; d < 2; d++)
        for (i = 0; i < 6; i++)
            for (k = 0; k < 2; k++) {
                ignis_dtype dtype = d ? IGNIS_F64 : IGNIS_F32;
                int64_t n = columns[i], c;
                double most = d ? 1.7976931348623157e308 : 3.4028234663852886e38, *xs = numbers(5 * n), *ys;
                ignis_tensor x, w, b, y;
                for (c = 0; c < n; c++) {
                    xs[c] = most, xs[n + c] = c % 4 ? -most : most;
                    xs[2 * n + c] = c ? 1 : INFINITY, xs[3 * n + c] = c ? 1 : NAN, xs[4 * n + c] = c % 2 ? 1 : -1;
                }
                x = tensor_of(xs, IGNIS_SHAPE(5, n), dtype, false);
                for (c = 0; c < n; c++)
                    xs[c] = 1;
                w = tensor_of(xs, IGNIS_SHAPE(n), dtype, false);
                for (c = 0; c < n; c++)
                    xs[c] = 0;
                b = tensor_of(xs, IGNIS_SHAPE(n), dtype, false);
                y = k ? ignis_rms_norm(x, w, 0) : ignis_layer_norm(x, w, b, 0);
                ys = tensor_values(y);
                for (c = 0; c < n; c++) {
                    double high = (double)((n + 3) / 4) / (double)n, mean = k ? 0 : 2 * high - 1,
                           root = sqrt(k ? 1 : 1 - mean * mean);
                    if (k)
                        CHECK_CLOSE(ys[c], 1, 1e-4);
                    CHECK_CLOSE(ys[n + c], ((c % 4 ? -1 : 1) - mean) / root, 1e-4);
                    for (r = 2; r < 4; r++)
                        CHECK(ys[r * n + c] != ys[r * n + c] || (r == 2 && c > 0 && k && ys[r * n + c] == 0));
                }
                CHECK_CLOSE(ys[4 * n], n % 2 && !k ? (-1 + 1.0 / (double)n) / sqrt(1 - 1.0 / (double)(n * n)) : -1,
                            1e-4);
                free(xs), free(ys);
                let_go(x), let_go(w), let_go(b), let_go(y);
            }
}

/*  The bits of the gradients, twice. */
TEST(norm_gradients_are_deterministic)
{
    static const int64_t sizes[][2] = {{900, 257}, {300, 1003}, {200, 12288}, {40, 3001}, {900, 256}, {1100, 1032}};
    double *values[2][3];
    int i, k, run;
    SETUP(NULL);
    for (i = 0; i < COUNT_OF(sizes); i++) {
        for (run = 0; run < 2; run++) {
            ignis_tensor x = tensor_noise(IGNIS_SHAPE(sizes[i][0], sizes[i][1]), IGNIS_BF16, 1, true);
            ignis_tensor w = tensor_noise(IGNIS_SHAPE(sizes[i][1]), IGNIS_BF16, 2, true),
                         b = tensor_noise(IGNIS_SHAPE(sizes[i][1]), IGNIS_BF16, 3, true),
                         y = ignis_layer_norm(x, w, b, 0);
            free(backward_from(y, IGNIS_BF16, 4, 0));
            for (k = 0; k < 3; k++)
                values[run][k] = array_values(ignis_tensor_grad(k == 0 ? x : k == 1 ? w : b));
            let_go(x), let_go(w), let_go(b), let_go(y);
        }
        for (k = 0; k < 3; k++) {
            CHECK(memcmp(values[0][k], values[1][k],
                         sizeof **values[0] * (size_t)(k ? sizes[i][1] : sizes[i][0] * sizes[i][1])) == 0);
            free(values[0][k]), free(values[1][k]);
        }
    }
}

TEST(norms_of_200000)
{
    SETUP(NULL);
    check_norm(false, IGNIS_BF16, 2, 200000, 0, 0);
    check_norm(true, IGNIS_F32, 1, 200000, 0, 0);
    check_norm(false, IGNIS_F32, 1, 100003, 0, 0);
    check_norm(false, IGNIS_BF16, 19, 50257, 0, 0);
    check_norm(true, IGNIS_F16, 9, 20001, 3, 0); /* w begins anywhere, too */
    check_norm(false, IGNIS_F64, 5, 10001, 0, 0);
}

TEST(norms_of_many_rows)
{
    SETUP(NULL);
    check_norm(false, IGNIS_F32, 5000, 24, 0, 0);
    check_norm(true, IGNIS_BF16, 5000, 24, 0, 0);
    check_norm(false, IGNIS_F32, 2000, 5, 0, 0);
    check_norm(false, IGNIS_BF16, 2200, 1031, 0, 0);
    check_norm(true, IGNIS_F16, 1100, 1600, 0, 0);
    check_norm(false, IGNIS_F64, 1100, 260, 0, 0);
}

/*  A variance from sums of x and x^2 would be lost in rounding here. */
TEST(layer_norm_far_from_zero)
{
    SETUP(NULL);
    check_norm(false, IGNIS_F32, 4, 512, 0, 1000);
    check_norm(false, IGNIS_F32, 2, 9000, 0, 1000);
    check_norm(false, IGNIS_F64, 4, 100, 0, 1000);
}

/*  Tensors whose sum is normalized, each used twice more, so that every gradient is a sum: what is normalized has one
    before the norm adds its own. */
static void check_add_norm(bool rms, bool fused, ignis_dtype dtype, int64_t rows, int64_t n, int64_t offset)
{
    const double eps = 1e-3;
    const char *name = fused ? "add_norm" : "add and norm";
    ignis_tensor x = noise_at(IGNIS_SHAPE(rows, n), dtype, (uint64_t)n, 0, 2, offset, true),
                 y = noise_at(shape_of(x), dtype, 3, 0, 1, 0, true);
    ignis_tensor w = noise_at(IGNIS_SHAPE(n), dtype, 11, 0, 1, 0, true),
                 b = noise_at(IGNIS_SHAPE(n), dtype, 12, 0, 1, 0, true), sum, h, out;
    double *ss, *ws = tensor_values(w), *bs = tensor_values(b), *expected = numbers(rows * n), *dx = numbers(rows * n),
                *dw = numbers(n);
    double *grads, *got, *db = numbers(n), *xs = tensor_values(x), *ys = tensor_values(y),
                         tolerance = rounding_of(dtype);
    ignis_scope scope = ignis_scope_begin();
    int64_t i;
    if (fused) {
        h = rms ? ignis_add_rms_norm(x, y, w, eps, &sum) : ignis_add_layer_norm(x, y, w, b, eps, &sum);
    } else {
        sum = ignis_add(x, y);
        h = rms ? ignis_rms_norm(sum, w, eps) : ignis_layer_norm(sum, w, b, eps);
    }
    out = ignis_add(sum, h);
    ss = tensor_values(sum);
    for (i = 0; i < rows * n; i++)
        expected[i] = xs[i] + ys[i];
    CHECK_ALL(name, dtype, n, ss, expected, rows * n, tolerance, 1);
    grads = backward_from(out, dtype, 13, 0);
    norm_reference(rms, ss, grads, ws, bs, rows, n, eps, expected, dx, dw, db);
    for (i = 0; i < rows * n; i++)
        dx[i] += grads[i];
    got = tensor_values(h);
    CHECK_ALL(name, dtype, n, got, expected, rows * n, tolerance, 1);
    free(got);
    for (i = 0; i < 2; i++) {
        got = array_values(ignis_tensor_grad(i ? y : x));
        CHECK_ALL("gradient of what is added", dtype, n, got, dx, rows * n, 2 * tolerance,
                  largest(dx, rows * n) * 0.3 + (n == 1 ? 10 : 1e-3));
        free(got);
    }
    got = array_values(ignis_tensor_grad(w));
    CHECK_ALL("dw behind a sum", dtype, n, got, dw, n, tolerance, largest(dw, n) * 0.3 + 1e-3);
    free(got), free(xs), free(ys), free(ss), free(ws), free(bs), free(grads), free(expected), free(dx), free(dw),
        free(db);
    CHECK_OK(ignis_scope_end(scope));
    let_go(x), let_go(y), let_go(w), let_go(b);
}

TEST(add_norm_is_add_and_norm)
{
    static const int64_t few[] = {1, 7, 8, 64, 257, 768, 1032, 1033, 8192, 9001, 12288, 20000};
    ignis_dtype dtype;
    int i, kind;
    SETUP(NULL);
    EACH_FLOAT(dtype)
    for (i = 0; i < COUNT_OF(few); i++)
        for (kind = 0; kind < 4; kind++)
            if (kind > 1 || few[i] < 1100)
                check_add_norm(kind % 2 == 1, kind > 1, dtype, few[i] > 2000 ? 2 : 19, few[i],
                               few[i] == 1032 && kind % 2);
    CHECK_INT(memory().live_blocks, 0);
}

/*  Rows of whole packs where one kernel ends and another begins, in turns that are not full. */
TEST(norms_of_whole_packs)
{
    static const int64_t packs[] = {32, 33, 128, 129, 256, 257, 512, 513}, rows[] = {1, 3, 5, 7};
    ignis_dtype dtype;
    int i, k;
    SETUP(NULL);
    EACH_FLOAT(dtype)
    for (i = 0; i < COUNT_OF(packs); i++) {
        int64_t n = packs[i] * 16 / (int64_t)ignis_dtype_size(dtype);
        for (k = 0; k < COUNT_OF(rows); k++) {
            check_norm(k % 2, dtype, rows[k], n, 0, 0);
            check_norm_at(k % 2 == 0, dtype, rows[k], n, 0, k % 3, 0);
            check_add_norm(k > 1, true, dtype, rows[k], n, 0);
        }
    }
}

/*  What is one call gives the bits of what is two, and its gradients too. `offset`: elements in front of x and y in
    their memory. */
static void check_bits_of_add_norm(ignis_dtype dtype, int64_t n, int64_t offset)
{
    double *values[2][4];
    int i, k, fused;
    for (fused = 0; fused < 2; fused++) {
        ignis_scope scope = ignis_scope_begin();
        ignis_tensor x = noise_at(IGNIS_SHAPE(5, n), dtype, 7, 0, 1, offset, true),
                     y = noise_at(IGNIS_SHAPE(5, n), dtype, 8, 0, 1, offset, true), h;
        ignis_tensor w = tensor_noise(IGNIS_SHAPE(n), dtype, 9, true),
                     b = tensor_noise(IGNIS_SHAPE(n), dtype, 10, true), sum = x;
        if (fused) {
            h = ignis_add_layer_norm(sum, y, w, b, 0, &sum); /* in place of what it was */
        } else {
            sum = ignis_add(sum, y);
            h = ignis_layer_norm(sum, w, b, 0);
        }
        values[fused][0] = tensor_values(sum);
        values[fused][1] = tensor_values(h);
        free(backward_from(ignis_mul(h, sum), dtype, 5, 0));
        values[fused][2] = array_values(ignis_tensor_grad(x));
        values[fused][3] = array_values(ignis_tensor_grad(w));
        CHECK_OK(ignis_scope_end(scope));
    }
    for (i = 0; i < 4; i++) {
        CHECK(memcmp(values[0][i], values[1][i], sizeof **values[0] * (size_t)(i < 3 ? 5 * n : n)) == 0);
        for (k = 0; k < 2; k++)
            free(values[k][i]);
    }
}

TEST(add_norm_has_the_bits_of_both)
{
    ignis_dtype dtype;
    int64_t offset;
    SETUP(NULL);
    EACH_FLOAT(dtype)
    {
        for (offset = 0; offset < 2; offset++) {
            check_bits_of_add_norm(dtype, 64, offset);
            check_bits_of_add_norm(dtype, 257, offset);
            check_bits_of_add_norm(dtype, 600, offset);
            check_bits_of_add_norm(dtype, 1600, offset);
            check_bits_of_add_norm(dtype, 9001, offset);
            check_bits_of_add_norm(dtype, 12288, offset);
            check_bits_of_add_norm(dtype, 20000, offset);
        }
    }
}

/*  Nothing is left of a sum that nobody asked for, of one without gradients, and of none. */
TEST(add_norm_without_sum_gradient_or_rows)
{
    ignis_tensor x, y, w, h, sum;
    double *dx;
    int i;
    SETUP(NULL);
    x = tensor_noise(IGNIS_SHAPE(3, 16), IGNIS_F64, 1, true);
    y = tensor_noise(IGNIS_SHAPE(3, 16), IGNIS_F64, 2, false);
    w = tensor_noise(IGNIS_SHAPE(16), IGNIS_F64, 3, true);
    h = ignis_add_rms_norm(x, y, w, 0, NULL);
    free(backward_from(h, IGNIS_F64, 4, 0));
    dx = array_values(ignis_tensor_grad(x));
    CHECK(largest(dx, 48) > 0);
    CHECK(ignis_tensor_grad(y).id == 0);
    free(dx);
    let_go(h);
    h = ignis_add_rms_norm(y, y, w, 0, &sum); /* only w is to have a gradient */
    CHECK(!tensor_info(sum).requires_grad);
    free(backward_from(h, IGNIS_F64, 4, 0));
    let_go(h), let_go(sum);
    CHECK_OK(ignis_no_grad_begin());
    h = ignis_add_rms_norm(x, y, w, 0, &sum);
    CHECK(!tensor_info(h).requires_grad && !tensor_info(sum).requires_grad);
    let_go(h), let_go(sum);
    CHECK_OK(ignis_no_grad_end());
    let_go(x), let_go(y);
    x = tensor_noise(IGNIS_SHAPE(0, 16), IGNIS_F64, 1, true);
    h = ignis_add_rms_norm(x, x, w, 0, &sum);
    CHECK_SHAPE_IS(h, IGNIS_SHAPE(0, 16));
    CHECK_OK(ignis_backward(h, ignis_tensor_data(h)));
    let_go(h), let_go(sum), let_go(x);
    x = tensor_noise(IGNIS_SHAPE(3, 16), IGNIS_F64, 1, true);
    y = tensor_noise(IGNIS_SHAPE(16), IGNIS_F64, 1, true);
    for (i = 0; i < 3; i++) {
        sum = w;
        CHECK(ignis_add_rms_norm(x, i ? x : y, i == 1 ? x : w, i == 2 ? -1 : 0, &sum).id == 0 && sum.id == 0);
        CHECK_INT(ignis_status_last(), i == 2 ? IGNIS_ERROR_ARGUMENT : IGNIS_ERROR_SHAPE);
        ignis_status_clear();
    }
    let_go(x), let_go(y), let_go(w);
    CHECK_INT(memory().live_blocks, 0);
}

/*  The gradient that is there before is shared with a leaf, which must not see what a norm adds to it. The sum is
    rounded once. */
TEST(norm_adds_to_a_gradient_that_others_have)
{
    const int rows = 4, n = 64;
    ignis_tensor x, other, w, s, h, out;
    double *xs, *ws, *dx, *d_other, *grads, *rounded, *expected = numbers(rows * n);
    int r, i, differ = 0;
    ignis_scope scope;
    SETUP(NULL);
    scope = ignis_scope_begin();
    x = tensor_noise(IGNIS_SHAPE(rows, n), IGNIS_BF16, 1, true);
    other = tensor_noise(IGNIS_SHAPE(rows, n), IGNIS_BF16, 2, true);
    w = tensor_noise(IGNIS_SHAPE(n), IGNIS_BF16, 3, false);
    s = ignis_scale(x, 1);
    h = ignis_rms_norm(s, w, 0);
    out = ignis_add(ignis_add(s, other), h);
    grads = backward_from(out, IGNIS_BF16, 4, 0);
    xs = tensor_values(x);
    ws = tensor_values(w);
    for (r = 0; r < rows; r++) {
        const double *row = xs + r * n, *grad = grads + r * n;
        double square = 1e-5, sum = 0;
        for (i = 0; i < n; i++) {
            square += row[i] * row[i] / n;
            sum += grad[i] * ws[i] * row[i] / n;
        }
        for (i = 0; i < n; i++)
            expected[r * n + i] = grad[i] + (grad[i] * ws[i] - row[i] * sum / square) / sqrt(square);
    }
    dx = array_values(ignis_tensor_grad(x));
    d_other = array_values(ignis_tensor_grad(other));
    CHECK_ALL("gradient beside a norm", IGNIS_BF16, n, d_other, grads, rows * n, 0, 0);
    rounded = tensor_values(tensor_of(expected, IGNIS_SHAPE(rows, n), IGNIS_BF16, false));
    for (i = 0; i < rows * n; i++)
        differ += dx[i] != rounded[i];
    CHECK(differ <= 2); /* where the exact sum is next to the middle of two numbers */
    free(rounded), free(xs), free(ws), free(dx), free(d_other), free(grads), free(expected);
    CHECK_OK(ignis_scope_end(scope));
}

/*  What stands before a norm, whose gradient holds that of a bias: the layer, and how it comes to the norm. */
enum { ADDED_SECOND, ADDED_FIRST, ADDED_APART, ALONE, OF_RMS, USED_TWICE, BIAS_WAYS };

static ignis_tensor behind_a_bias(int way, ignis_tensor x, ignis_tensor y, ignis_tensor w, ignis_tensor b)
{
    ignis_tensor sum, h;
    if (way == ALONE)
        return ignis_layer_norm(y, w, b, 0);
    if (way == ADDED_APART) {
        sum = ignis_add(x, y);
        h = ignis_layer_norm(sum, w, b, 0);
    } else {
        h = way == OF_RMS ? ignis_add_rms_norm(x, y, w, 0, &sum)
                          : ignis_add_layer_norm(way == ADDED_FIRST ? y : x, way == ADDED_FIRST ? x : y, w, b, 0, &sum);
    }
    h = ignis_add(sum, h);
    return way == USED_TWICE ? ignis_add(h, y) : h;
}

/*  The gradient of a bias is the sum of the columns of what its layer gets, which is found with a leaf in the layer's
    place. */
static void check_bias_behind(int way, bool mlp, ignis_dtype dtype, int64_t n, bool one_pass)
{
    const int rows = 70, k = 24; /* more rows than one step of sums has */
    double *expected = numbers(n), *gradients, *got, *values;
    ignis_scope scope = ignis_scope_begin();
    ignis_tensor x = tensor_noise(IGNIS_SHAPE(rows, n), dtype, 1, true),
                 in = tensor_noise(IGNIS_SHAPE(rows, k), dtype, 2, false);
    ignis_tensor weight = tensor_noise(IGNIS_SHAPE(n, k), dtype, 3, true),
                 bias = tensor_noise(IGNIS_SHAPE(n), dtype, 4, true);
    ignis_tensor w = tensor_noise(IGNIS_SHAPE(n), dtype, 5, true), b = tensor_noise(IGNIS_SHAPE(n), dtype, 6, true), y,
                 leaf;
    int64_t sums;
    int i, pass;
    y = mlp ? ignis_mlp(in, tensor_noise(IGNIS_SHAPE(k, k), dtype, 7, true),
                        tensor_noise(IGNIS_SHAPE(k), dtype, 8, true), weight, bias, IGNIS_ACTIVATION_GELU)
            : ignis_linear(in, weight, bias);
    values = tensor_values(y);
    leaf = tensor_of(values, IGNIS_SHAPE(rows, n), dtype, true);
    free(values);
    free(backward_from(behind_a_bias(way, x, leaf, w, b), dtype, 9, 0));
    gradients = array_values(ignis_tensor_grad(leaf));
    for (i = 0; i < rows * n; i++)
        expected[i % n] += gradients[i];
    CHECK_OK(ignis_profile_begin());
    free(backward_from(behind_a_bias(way, x, y, w, b), dtype, 9, 0));
    sums = columns_summed();
    if (dtype != IGNIS_F32)                                  /* of which cuBLASLt adds them up beside its products */
        CHECK_INT(sums, (one_pass ? 0 : 1) + (mlp ? 1 : 0)); /* the lower layer has its own */
    got = array_values(ignis_tensor_grad(bias));
    CHECK_ALL("bias behind a norm", dtype, n, got, expected, n, rounding_of(dtype), largest(expected, n) * 0.05);
    free(got);
    CHECK_OK(ignis_zero_grad(bias));
    if (!mlp)
        y = behind_a_bias(way, x, ignis_linear(in, weight, bias), w, b);
    for (pass = 0; pass < (mlp ? 0 : 2); pass++) { /* the same graph twice, and added to what is there */
        leaf = noise_at(shape_of(y), dtype, 9, 0, 1, 0, false);
        CHECK_OK(pass ? ignis_backward(y, ignis_tensor_data(leaf)) : ignis_backward_retain(y, ignis_tensor_data(leaf)));
        got = array_values(ignis_tensor_grad(bias));
        for (i = 0; pass && i < n; i++)
            expected[i] *= 2;
        CHECK_ALL("the same again", dtype, n, got, expected, n, 2 * rounding_of(dtype), largest(expected, n) * 0.05);
        free(got);
    }
    free(gradients), free(expected);
    CHECK_OK(ignis_scope_end(scope));
}

TEST(norm_sums_the_gradient_of_a_bias_behind_it)
{
    ignis_dtype dtype;
    int way, room;
    ignis_desc desc = test_desc(NULL);
    desc.matmul = IGNIS_MATMUL_CUBLASLT; /* which leaves such sums to a kernel of their own */
    SETUP(&desc);
    EACH_FLOAT(dtype)
    for (way = 0; way < BIAS_WAYS; way++) {
        const int64_t pack = 16 / (int64_t)ignis_dtype_size(dtype);
        check_bias_behind(way, way == OF_RMS, dtype, 33 * pack, way != USED_TWICE);
        check_bias_behind(way, way != OF_RMS, dtype, 96 * pack, way != USED_TWICE);
        check_bias_behind(way, way == ALONE, dtype, 33 * pack + 1, false); /* by kernels that have no such sums */
    }
    room = ignis__devices[0].info.shared_per_block;
    for (way = 0; way < 2; way++) { /* in the second turn there is no room for the kernel that has them */
        check_bias_behind(ADDED_SECOND, false, IGNIS_F16, 400 * 8, way == 0);
        ignis__devices[0].info.shared_per_block = 48 << 10;
    }
    ignis__devices[0].info.shared_per_block = room;
    CHECK_INT(memory().live_blocks, 0);
}

TEST(norm_of_no_rows)
{
    static const int64_t columns[] = {5, 800};
    ignis_tensor x, w, b, y;
    double *dw;
    int i, k;
    SETUP(NULL);
    for (k = 0; k < COUNT_OF(columns); k++) {
        int64_t n = columns[k];
        x = tensor_noise(IGNIS_SHAPE(0, n), IGNIS_F32, 1, true);
        w = tensor_noise(IGNIS_SHAPE(n), IGNIS_F32, 1, true);
        b = tensor_noise(IGNIS_SHAPE(n), IGNIS_F32, 1, true);
        y = ignis_layer_norm(x, w, b, 1e-5);
        CHECK_SHAPE_IS(y, IGNIS_SHAPE(0, n));
        CHECK_OK(ignis_backward(y, ignis_tensor_data(y)));
        dw = array_values(ignis_tensor_grad(w));
        for (i = 0; i < n; i++)
            CHECK_NUMBER(dw[i], 0.0);
        free(dw);
        let_go(x), let_go(w), let_go(b), let_go(y);
    }
}

TEST(norm_of_empty_rows)
{
    ignis_tensor x, w, y, sum;
    SETUP(NULL);
    x = tensor_noise(IGNIS_SHAPE(3, 0), IGNIS_BF16, 1, true);
    w = tensor_noise(IGNIS_SHAPE(0), IGNIS_BF16, 1, true);
    y = ignis_layer_norm(x, w, w, 0);
    CHECK_SHAPE_IS(y, IGNIS_SHAPE(3, 0));
    let_go(y);
    y = ignis_add_rms_norm(x, x, w, 0, &sum);
    CHECK_SHAPE_IS(sum, IGNIS_SHAPE(3, 0));
    CHECK_OK(ignis_backward(y, ignis_tensor_data(y)));
    let_go(x), let_go(w), let_go(y), let_go(sum);
}

/* rope ----------------------------------------------------------------------------------------------------------------
   */

static void rope_reference(const double *x, double *y, int64_t rows, int64_t seq, int64_t offset, int heads,
                           int head_dim, const double *frequencies, double direction)
{
    int64_t r;
    int h, i, half = head_dim / 2;
    for (r = 0; r < rows; r++)
        for (h = 0; h < heads; h++)
            for (i = 0; i < half; i++) {
                double angle = (double)(r % seq + offset) * frequencies[i], s = direction * sin(angle), c = cos(angle);
                const double *a = x + (r * heads + h) * head_dim + i;
                double *to = y + (r * heads + h) * head_dim + i;
                to[0] = a[0] * c - a[half] * s;
                to[half] = a[half] * c + a[0] * s;
            }
}

/*  Frequencies: those of base, the caller's on the host, or on the device; the last two in f64. */
enum { OF_BASE, ON_HOST, ON_DEVICE, WIDE_ON_HOST, WIDE_ON_DEVICE };

static ignis_array frequency_array_of(ignis_dtype dtype, const double *frequencies, int count)
{
    ignis_array array = make(IGNIS_SHAPE(count), dtype);
    CHECK_OK(ignis_array_from_host(array, frequencies, IGNIS_F64, count));
    return array;
}

static ignis_array frequency_array(const float *frequencies, int count)
{
    double wide[256];
    int i;
    for (i = 0; i < count; i++)
        wide[i] = (double)frequencies[i];
    return frequency_array_of(IGNIS_F32, wide, count);
}

static void check_rope(ignis_dtype dtype, int64_t batches, int64_t seq, int heads, int head_dim, int64_t offset,
                       double base, int own, int64_t skip)
{
    ignis_rope_desc desc;
    int64_t rows = batches * seq, numel = rows * heads * head_dim;
    ignis_tensor x = noise_at(IGNIS_SHAPE(batches, seq, heads * head_dim), dtype, 5, 0, 1, skip, true), y;
    double *xs = tensor_values(x), *expected = numbers(numel), *got, *grads;
    double frequencies[256];
    float narrow[256];
    int i;
    bool wide = dtype == IGNIS_F64 && (own == OF_BASE || own >= WIDE_ON_HOST),
         on_device = own == ON_DEVICE || own == WIDE_ON_DEVICE;
    memset(&desc, 0, sizeof desc);
    desc.num_heads = heads;
    desc.base = base;
    desc.pos_offset = offset;
    for (i = 0; i < head_dim / 2; i++) {
        frequencies[i] = own ? 1.0 / (i + 1.5) : pow(base == 0 ? 10000 : base, -2.0 * i / head_dim);
        narrow[i] = (float)frequencies[i];
        frequencies[i] = wide ? frequencies[i] : (double)narrow[i];
    }
    if (own == ON_HOST)
        desc.inv_freq = narrow, desc.inv_freq_count = head_dim / 2;
    if (own == WIDE_ON_HOST)
        desc.inv_freq_f64 = frequencies, desc.inv_freq_count = head_dim / 2;
    if (on_device)
        desc.inv_freq_array = frequency_array_of(own == ON_DEVICE ? IGNIS_F32 : IGNIS_F64, frequencies, head_dim / 2);
    y = ignis_rope(x, &desc);
    if (on_device)
        drop(desc.inv_freq_array); /* backward has it still */
    rope_reference(xs, expected, rows, seq, offset, heads, head_dim, frequencies, 1);
    got = tensor_values(y);
    /* frequencies of base may differ in their last bit, which large positions magnify */
    CHECK_ALL("rope", dtype, head_dim, got, expected, numel,
              rounding_of(dtype) + (own ? 0 : (wide ? 1e-15 : 1.2e-7) * (double)(offset + seq)), 1);
    free(got);
    grads = backward_from(y, dtype, 6, skip);
    rope_reference(grads, expected, rows, seq, offset, heads, head_dim, frequencies, -1);
    got = array_values(ignis_tensor_grad(x));
    CHECK_ALL("gradient of rope", dtype, head_dim, got, expected, numel,
              rounding_of(dtype) + (own ? 0 : (wide ? 1e-15 : 1.2e-7) * (double)(offset + seq)), 1);
    free(got), free(grads), free(xs), free(expected);
    let_go(x), let_go(y);
}

TEST(rope_turns)
{
    ignis_dtype dtype;
    SETUP(NULL);
    EACH_FLOAT(dtype)
    {
        check_rope(dtype, 2, 5, 1, 2, 0, 0, OF_BASE, 0);
        check_rope(dtype, 2, 7, 3, 6, 3, 0, OF_BASE, 0);
        check_rope(dtype, 1, 9, 4, 64, 0, 500000, OF_BASE, 0);
        check_rope(dtype, 3, 2, 9, 32, 100, 0, ON_HOST, 0);
        check_rope(dtype, 1, 3, 2, 32, -5, 0, ON_HOST, 1);
        check_rope(dtype, 1, 2, 1, 512, 0, 1, OF_BASE, 0);
        check_rope(dtype, 2, 3, 5, 2, 7, 0, ON_DEVICE, 0);
        check_rope(dtype, 3, 2, 9, 32, 100, 0, ON_DEVICE, 0);
        check_rope(dtype, 1, 3, 2, 26, -5, 0, ON_DEVICE, 1);
        check_rope(dtype, 0, 3, 2, 26, 0, 0, ON_DEVICE, 0);
        check_rope(dtype, 3, 2, 9, 32, 100, 0, WIDE_ON_HOST, 0);
    }
    check_rope(IGNIS_F64, 2, 3, 5, 32, 77, 0, WIDE_ON_DEVICE, 0);
    check_rope(IGNIS_F64, 1, 3, 2, 26, -5, 0, WIDE_ON_DEVICE, 1);
}

/*  In f64 angles are so, too: of all sizes of heads, far out, and whatever the base. */
TEST(rope_in_f64_has_angles_in_f64)
{
    static const int sizes[] = {2, 6, 64, 80, 128, 256, 512};
    static const double bases[] = {0, 500000, 1e6, 2};
    int i, k;
    SETUP(NULL);
    for (i = 0; i < COUNT_OF(sizes); i++)
        for (k = 0; k < COUNT_OF(bases); k++) {
            check_rope(IGNIS_F64, 1, 40, 1, sizes[i], 0, bases[k], OF_BASE, 0);
            check_rope(IGNIS_F64, 1, 3, 1, sizes[i], 100000, bases[k], OF_BASE, 0);
        }
}

/*  As exact at the position of 1 million as at that of 1. */
TEST(rope_far_away)
{
    SETUP(NULL);
    check_rope(IGNIS_F32, 1, 50, 2, 64, 1000000, 0, ON_HOST, 0);
    check_rope(IGNIS_F32, 1, 50, 2, 64, 131072, 0, ON_HOST, 0);
    check_rope(IGNIS_F64, 1, 5, 2, 64, 1000000, 0, ON_HOST, 0);
    check_rope(IGNIS_F64, 1, 5, 2, 64, 1000000, 0, WIDE_ON_HOST, 0);
    check_rope(IGNIS_F64, 1, 5, 2, 64, 1000000, 0, WIDE_ON_DEVICE, 0);
}

/*  A graph reads frequencies on the device anew at each launch. */
TEST(rope_with_frequencies_that_change_between_launches)
{
    static const float slow[2] = {0.25f, 0.5f}, fast[2] = {1, 2};
    ignis_rope_desc desc;
    ignis_tensor x, y;
    ignis_graph graph;
    SETUP(NULL);
    memset(&desc, 0, sizeof desc);
    desc.num_heads = 1;
    desc.pos_offset = 3;
    desc.inv_freq_array = frequency_array(slow, 2);
    x = tensor_noise(IGNIS_SHAPE(1, 4), IGNIS_F64, 1, false);
    let_go(ignis_rope(x, &desc));
    CHECK_OK(ignis_graph_begin());
    y = ignis_rope(x, &desc);
    graph = ignis_graph_end();
    CHECK_OK(ignis_graph_launch(graph));
    CHECK_CLOSE(value_at(y, 1), value_at(x, 1) * cos(1.5) - value_at(x, 3) * sin(1.5), 1e-12);
    CHECK_OK(ignis_array_from_host(desc.inv_freq_array, fast, IGNIS_F32, 2));
    CHECK_OK(ignis_graph_launch(graph));
    CHECK_CLOSE(value_at(y, 1), value_at(x, 1) * cos(6) - value_at(x, 3) * sin(6), 1e-12);
    CHECK_OK(ignis_graph_free(graph));
    drop(desc.inv_freq_array);
    let_go(x), let_go(y);
}

TEST(rope_of_one_row_and_of_none)
{
    ignis_rope_desc desc;
    ignis_tensor x, y, z;
    SETUP(NULL);
    memset(&desc, 0, sizeof desc);
    desc.num_heads = 2;
    desc.pos_offset = 1;
    x = tensor_noise(IGNIS_SHAPE(8), IGNIS_F64, 1, false);
    y = ignis_rope(x, &desc);
    CHECK_CLOSE(value_at(y, 0), value_at(x, 0) * cos(1) - value_at(x, 2) * sin(1), 1e-12);
    CHECK_CLOSE(value_at(y, 2), value_at(x, 2) * cos(1) + value_at(x, 0) * sin(1), 1e-12);
    let_go(x), let_go(y);
    x = tensor_noise(IGNIS_SHAPE(2, 0, 8), IGNIS_F32, 1, false);
    z = ignis_rope(x, &desc);
    CHECK_SHAPE_IS(z, IGNIS_SHAPE(2, 0, 8));
    let_go(x), let_go(z);
}

/* embedding -------------------------------------------------------------------------------------------------------- */

static void check_embedding(ignis_dtype dtype, ignis_dtype id_dtype, int64_t vocab, int64_t n, int64_t count,
                            int64_t spread, int64_t skip)
{
    ignis_tensor table = noise_at(IGNIS_SHAPE(vocab, n), dtype, 8, 0, 1, skip, true), ids, out;
    int64_t *indices = (int64_t *)malloc(sizeof *indices * (size_t)(count + 1)), i, c;
    double *values = tensor_values(table), *expected = numbers(count * n + vocab * n), *got, *grads, most;
    for (i = 0; i < count; i++) { /* `spread` ids, the first of which is everywhere; two are out of range */
        double where = noise(9, i);
        indices[i] = where < 0 ? spread / 2 : (int64_t)(where * (double)spread);
        if (i == 5 || i == 70)
            indices[i] = i == 5 ? vocab : -1;
    }
    ids = indices_of(indices, IGNIS_SHAPE(count), id_dtype);
    out = ignis_embedding(table, ids);
    CHECK_SHAPE_IS(out, IGNIS_SHAPE(count, n));
    for (i = 0; i < count; i++)
        for (c = 0; c < n; c++)
            expected[i * n + c] = indices[i] >= 0 && indices[i] < vocab ? values[indices[i] * n + c] : NAN;
    got = tensor_values(out);
    CHECK_ALL("embedding", dtype, n, got, expected, count * n, 0, 0);
    free(got);
    grads = backward_from(out, dtype, 10, skip);
    memset(expected, 0, sizeof *expected * (size_t)(vocab * n));
    for (i = 0; i < count; i++)
        for (c = 0; c < n && indices[i] >= 0 && indices[i] < vocab; c++)
            expected[indices[i] * n + c] += grads[i * n + c];
    got = array_values(ignis_tensor_grad(table));
    most = largest(expected, vocab * n);
    CHECK_ALL("gradient of embedding", dtype, n, got, expected, vocab * n, rounding_of(dtype),
              dtype < IGNIS_F32 ? 0.1
              : most > 1        ? most
                                : 1);
    free(got), free(grads), free(values), free(expected), free(indices);
    let_go(table), let_go(ids), let_go(out);
}

TEST(embedding_and_its_gradient)
{
    static const int64_t counts[] = {0, 1, 63, 64, 65, 200, 2047, 2049, 5000};
    ignis_dtype dtype;
    int i;
    SETUP(NULL);
    EACH_FLOAT(dtype)
    {
        for (i = 0; i < COUNT_OF(counts); i++)
            check_embedding(dtype, i % 2 ? IGNIS_I32 : IGNIS_I64, 300, i % 3 ? 8 : 5, counts[i], i % 2 ? 300 : 4, 0);
        check_embedding(dtype, IGNIS_I64, 1, 3, 300, 1, 0);
        check_embedding(dtype, IGNIS_I32, 255, 16, 300, 255, 1);
        check_embedding(dtype, IGNIS_I32, 256, 300, 100, 256, 0);
    }
    check_embedding(IGNIS_F32, IGNIS_I32, 70000, 4, 3000, 70000, 0);
    check_embedding(IGNIS_BF16, IGNIS_I64, 100, 3000, 80, 10, 0);
}

/*  A table that something else has given a gradient already, which is 2 g of its own, or g itself, which others have,
    too. */
static void check_tied_embedding(ignis_dtype dtype, int64_t vocab, int64_t n, bool own)
{
    ignis_tensor table = tensor_noise(IGNIS_SHAPE(vocab, n), dtype, 1, true),
                 other = tensor_noise(IGNIS_SHAPE(vocab, n), dtype, 2, true);
    int64_t *indices = (int64_t *)malloc(sizeof *indices * (size_t)vocab), i, c;
    ignis_tensor ids, rows, beside, sum;
    double *g, *got, *expected = numbers(vocab * n);
    for (i = 0; i < vocab; i++) /* most are id 3, some do not occur, one is out of range */
        indices[i] = i == 7 ? vocab : i % 4 ? 3 : i;
    ids = indices_of(indices, IGNIS_SHAPE(vocab), IGNIS_I32);
    rows = ignis_embedding(table, ids);
    beside = own ? ignis_scale(table, 2) : ignis_add(table, other);
    sum = ignis_add(rows, beside);
    g = backward_from(sum, dtype, 3, 0);
    for (i = 0; i < vocab * n; i++)
        expected[i] = own ? 2 * g[i] : g[i];
    for (i = 0; i < vocab; i++)
        for (c = 0; c < n && indices[i] < vocab; c++)
            expected[indices[i] * n + c] += g[i * n + c];
    got = array_values(ignis_tensor_grad(table));
    CHECK_ALL("gradient of a tied embedding", dtype, n, got, expected, vocab * n, rounding_of(dtype),
              largest(expected, vocab * n));
    free(got);
    if (!own) {
        got = array_values(ignis_tensor_grad(other));
        CHECK_ALL("gradient beside it", dtype, n, got, g, vocab * n, 0, 0);
        free(got);
    }
    free(g), free(expected), free(indices);
    let_go(table), let_go(other), let_go(ids), let_go(rows), let_go(beside), let_go(sum);
}

TEST(embedding_adds_to_the_gradient_of_its_table)
{
    ignis_dtype dtype;
    SETUP(NULL);
    EACH_FLOAT(dtype)
    {
        check_tied_embedding(dtype, 300, 16, true);
        check_tied_embedding(dtype, 300, 5, true);
        check_tied_embedding(dtype, 9, 8, true);
        check_tied_embedding(dtype, 300, 16, false);
    }
}

/*  Twice the same, bit for bit. */
TEST(embedding_gradient_is_deterministic)
{
    double *first = NULL, *again;
    int64_t ids[4000], i;
    int run;
    SETUP(NULL);
    for (i = 0; i < 4000; i++)
        ids[i] = i * i % 7;
    for (run = 0; run < 2; run++) {
        ignis_tensor table = tensor_noise(IGNIS_SHAPE(50, 16), IGNIS_F32, 3, true),
                     indices = indices_of(ids, IGNIS_SHAPE(4000), IGNIS_I32);
        ignis_tensor out = ignis_embedding(table, indices);
        free(backward_from(out, IGNIS_F32, 4, 0));
        again = array_values(ignis_tensor_grad(table));
        if (run == 0) {
            first = again;
        } else {
            CHECK(memcmp(first, again, 50 * 16 * sizeof *again) == 0);
            free(first), free(again);
        }
        let_go(table), let_go(indices), let_go(out);
    }
}

/* errors ----------------------------------------------------------------------------------------------------------- */

TEST(eps_0_is_the_default)
{
    ignis_tensor x, w, b, by_default, by_number;
    int d, i;
    SETUP(NULL);
    for (d = 0; d < 4; d++) {
        x = tensor_noise(IGNIS_SHAPE(3, 5), float_dtypes[d], 1, false);
        w = tensor_noise(IGNIS_SHAPE(5), float_dtypes[d], 2, false);
        b = tensor_noise(IGNIS_SHAPE(5), float_dtypes[d], 3, false);
        CHECK_OK(
            ignis_array_scale(ignis_tensor_data(x), ignis_tensor_data(x), 1.0 / 256)); /* squares of the size of eps */
        for (i = 0; i < 2; i++) {
            by_default = i ? ignis_rms_norm(x, w, 0) : ignis_layer_norm(x, w, b, 0);
            by_number = i ? ignis_rms_norm(x, w, 1e-5) : ignis_layer_norm(x, w, b, 1e-5);
            CHECK_NUMBER(value_at(by_default, 7), value_at(by_number, 7));
            let_go(by_number);
            by_number = i ? ignis_rms_norm(x, w, 1e-30) : ignis_layer_norm(x, w, b, 1e-30);
            CHECK(value_at(by_default, 7) != value_at(by_number, 7));
            let_go(by_default), let_go(by_number);
        }
        let_go(x), let_go(w), let_go(b);
    }
}

/*  One that f32 has no number for is the smallest that it has: rows of zeros stay zeros, and their gradients numbers.
    */
TEST(eps_is_above_0)
{
    static const double epss[] = {1e-37, 1e-40, 1e-50, 1e-320};
    ignis_batch_norm_desc batch;
    ignis_tensor x, ones, zeros, y;
    double *values;
    int d, i, k, norm;
    SETUP(NULL);
    memset(&batch, 0, sizeof batch);
    for (d = 0; d < 4; d++)
        for (i = 0; i < COUNT_OF(epss); i++)
            for (norm = 0; norm < 4; norm++) {
                ignis_scope scope = ignis_scope_begin();
                x = tensor_noise(IGNIS_SHAPE(3, 8), float_dtypes[d], 1, true);
                CHECK_OK(ignis_array_scale(ignis_tensor_data(x), ignis_tensor_data(x), 0));
                ones = ignis_map("1 + 0*w",
                                 IGNIS_INPUTS(IGNIS_NAMED(w, tensor_noise(IGNIS_SHAPE(8), float_dtypes[d], 2, false))));
                zeros = ignis_map("0*w", IGNIS_INPUTS(IGNIS_NAMED(w, ones)));
                batch.eps = epss[i];
                y = norm == 0   ? ignis_rms_norm(x, ones, epss[i])
                    : norm == 1 ? ignis_layer_norm(x, ones, zeros, epss[i])
                    : norm == 2 ? ignis_group_norm(x, 2, ones, zeros, epss[i])
                                : ignis_batch_norm(x, ones, zeros, &batch);
                values = tensor_values(y);
                for (k = 0; k < 24; k++)
                    CHECK_NUMBER(values[k], 0);
                free(values);
                CHECK_OK(ignis_backward(y, ignis_tensor_data(x)));
                values = array_values(ignis_tensor_grad(x));
                for (k = 0; k < 24; k++)
                    CHECK_NUMBER(values[k], 0);
                free(values);
                CHECK_OK(ignis_scope_end(scope));
            }
}

TEST(wrong_arguments_of_norms)
{
    ignis_tensor x, w, w4, half, freed;
    SETUP(NULL);
    x = tensor_noise(IGNIS_SHAPE(2, 3), IGNIS_F32, 1, false);
    w = tensor_noise(IGNIS_SHAPE(3), IGNIS_F32, 1, false);
    w4 = tensor_noise(IGNIS_SHAPE(4), IGNIS_F32, 1, false);
    half = tensor_noise(IGNIS_SHAPE(3), IGNIS_F16, 1, false);
    CHECK_REFUSED(0, ignis_layer_norm(x, w4, w, 1e-5).id, IGNIS_ERROR_SHAPE, IGNIS_DIAG_SHAPE_DIFFERS);
    CHECK_MESSAGE_HAS("w is [4]; x is [2, 3], and needs [3]");
    CHECK_REFUSED(0, ignis_layer_norm(x, w, x, 1e-5).id, IGNIS_ERROR_SHAPE, IGNIS_DIAG_SHAPE_DIFFERS);
    CHECK_REFUSED(0, ignis_rms_norm(x, w4, 1e-5).id, IGNIS_ERROR_SHAPE, IGNIS_DIAG_SHAPE_DIFFERS);
    CHECK_REFUSED(0, ignis_rms_norm(x, half, 1e-5).id, IGNIS_ERROR_DTYPE, IGNIS_DIAG_DTYPE_DIFFERS);
    CHECK_REFUSED(0, ignis_layer_norm(x, w, half, 1e-5).id, IGNIS_ERROR_DTYPE, IGNIS_DIAG_DTYPE_DIFFERS);
    CHECK_REFUSED(0, ignis_layer_norm(x, w, w, -1).id, IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    CHECK_REFUSED(0, ignis_rms_norm(x, w, NAN).id, IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    freed = tensor_noise(IGNIS_SHAPE(3), IGNIS_F32, 1, false);
    let_go(freed);
    CHECK_REFUSED(0, ignis_rms_norm(x, freed, 1e-5).id, IGNIS_ERROR_FREED, IGNIS_DIAG_TENSOR_FREED);
    CHECK_REFUSED(0, ignis_softmax(freed).id, IGNIS_ERROR_FREED, IGNIS_DIAG_TENSOR_FREED);
    CHECK_REFUSED(0, ignis_log_softmax(freed).id, IGNIS_ERROR_FREED, IGNIS_DIAG_TENSOR_FREED);
    let_go(x), let_go(w), let_go(w4), let_go(half);
}

TEST(wrong_arguments_of_rope)
{
    ignis_rope_desc desc;
    float frequencies[4] = {1, 1, 1, 1};
    ignis_tensor x, wide, ints;
    static const int64_t zeros[8] = {0};
    SETUP(NULL);
    x = tensor_noise(IGNIS_SHAPE(2, 8), IGNIS_F32, 1, false);
    wide = tensor_noise(IGNIS_SHAPE(1, 1028), IGNIS_F32, 1, false);
    ints = indices_of(zeros, IGNIS_SHAPE(1, 8), IGNIS_I32);
    memset(&desc, 0, sizeof desc);
    CHECK_REFUSED(0, ignis_rope(x, NULL).id, IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NULL_ARGUMENT);
    CHECK_REFUSED(0, ignis_rope(x, &desc).id, IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    desc.num_heads = 8;
    CHECK_REFUSED(0, ignis_rope(x, &desc).id, IGNIS_ERROR_SHAPE, IGNIS_DIAG_SHAPE_DIFFERS);
    CHECK_MESSAGE_HAS("8 heads of an even number");
    desc.num_heads = 3;
    CHECK_REFUSED(0, ignis_rope(x, &desc).id, IGNIS_ERROR_SHAPE, IGNIS_DIAG_SHAPE_DIFFERS);
    desc.num_heads = 2;
    CHECK_REFUSED(0, ignis_rope(ints, &desc).id, IGNIS_ERROR_DTYPE, IGNIS_DIAG_DTYPE_DIFFERS);
    CHECK_REFUSED(0, ignis_rope(wide, &desc).id, IGNIS_ERROR_UNSUPPORTED, IGNIS_DIAG_UNSUPPORTED);
    desc.base = -1;
    CHECK_REFUSED(0, ignis_rope(x, &desc).id, IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    desc.base = 0;
    desc.pos_offset = (int64_t)1 << 40;
    CHECK_REFUSED(0, ignis_rope(x, &desc).id, IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    desc.pos_offset = 0;
    desc.inv_freq = frequencies;
    desc.inv_freq_count = 4;
    CHECK_REFUSED(0, ignis_rope(x, &desc).id, IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_COUNT_MISMATCH);
    desc.inv_freq_f64 = (const double[]){1, 1, 1, 1};
    CHECK_REFUSED(0, ignis_rope(x, &desc).id, IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    CHECK_MESSAGE_HAS("both desc->inv_freq and desc->inv_freq_f64 are given");
    desc.inv_freq_f64 = NULL;
    desc.inv_freq = NULL;
    desc.inv_freq_count = 2;
    CHECK_REFUSED(0, ignis_rope(x, &desc).id, IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NULL_ARGUMENT);
    desc.inv_freq_array = frequency_array(frequencies, 2);
    CHECK_REFUSED(0, ignis_rope(x, &desc).id, IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    CHECK_MESSAGE_HAS("both desc->inv_freq and desc->inv_freq_array are given");
    desc.inv_freq_count = 0;
    drop(desc.inv_freq_array);
    CHECK_REFUSED(0, ignis_rope(x, &desc).id, IGNIS_ERROR_FREED, IGNIS_DIAG_ARRAY_FREED);
    desc.inv_freq_array = frequency_array(frequencies, 3);
    CHECK_REFUSED(0, ignis_rope(x, &desc).id, IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_COUNT_MISMATCH);
    CHECK_MESSAGE_HAS("[3]; heads of 4 elements have 2 frequencies");
    drop(desc.inv_freq_array);
    desc.inv_freq_array = make(IGNIS_SHAPE(2), IGNIS_F64);
    CHECK_REFUSED(0, ignis_rope(x, &desc).id, IGNIS_ERROR_DTYPE, IGNIS_DIAG_DTYPE_DIFFERS);
    drop(desc.inv_freq_array);
    desc.inv_freq_array = make(IGNIS_SHAPE(2), IGNIS_F32);
    CHECK_REFUSED(0, ignis_rope(x, &desc).id, IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_ARRAY_UNWRITTEN);
    drop(desc.inv_freq_array);
    if (ignis_device_count() > 1) {
        ignis_array_desc other = desc_of(IGNIS_SHAPE(2), IGNIS_F32);
        other.device = 1;
        desc.inv_freq_array = ignis_array_create(&other);
        CHECK_REFUSED(0, ignis_rope(x, &desc).id, IGNIS_ERROR_DEVICE, IGNIS_DIAG_DEVICE_DIFFERS);
        drop(desc.inv_freq_array);
    }
    let_go(x), let_go(wide), let_go(ints);
}

TEST(wrong_arguments_with_indices)
{
    static const int64_t zeros[8] = {0};
    ignis_cross_entropy_desc desc;
    ignis_tensor x, flat, ids, two, deep, none;
    SETUP(NULL);
    memset(&desc, 0, sizeof desc);
    x = tensor_noise(IGNIS_SHAPE(2, 8), IGNIS_F32, 1, false);
    flat = tensor_noise(IGNIS_SHAPE(8), IGNIS_F32, 1, false);
    ids = indices_of(zeros, IGNIS_SHAPE(3), IGNIS_I32);
    two = indices_of(zeros, IGNIS_SHAPE(2), IGNIS_I32);
    deep = indices_of(zeros, IGNIS_SHAPE(1, 1, 1, 1, 1, 1, 1, 1), IGNIS_I32);
    none = tensor_noise(IGNIS_SHAPE(2, 0), IGNIS_F32, 1, false);
    CHECK_REFUSED(0, ignis_embedding(x, flat).id, IGNIS_ERROR_DTYPE, IGNIS_DIAG_DTYPE_DIFFERS);
    CHECK_REFUSED(0, ignis_embedding(ids, ids).id, IGNIS_ERROR_DTYPE, IGNIS_DIAG_DTYPE_DIFFERS);
    CHECK_REFUSED(0, ignis_embedding(flat, ids).id, IGNIS_ERROR_SHAPE, IGNIS_DIAG_SHAPE_DIFFERS);
    CHECK_REFUSED(0, ignis_embedding(x, deep).id, IGNIS_ERROR_SHAPE, IGNIS_DIAG_SHAPE_RANK);
    CHECK_REFUSED(0, ignis_softmax(ids).id, IGNIS_ERROR_DTYPE, IGNIS_DIAG_DTYPE_DIFFERS);
    CHECK_REFUSED(0, ignis_log_softmax(ids).id, IGNIS_ERROR_DTYPE, IGNIS_DIAG_DTYPE_DIFFERS);
    CHECK_MESSAGE_HAS("ignis_log_softmax");
    CHECK_REFUSED(0, ignis_cross_entropy(x, ids, NULL).id, IGNIS_ERROR_SHAPE, IGNIS_DIAG_SHAPE_DIFFERS);
    CHECK_MESSAGE_HAS("one target is needed for each of 2 rows");
    CHECK_REFUSED(0, ignis_cross_entropy(none, two, NULL).id, IGNIS_ERROR_SHAPE, IGNIS_DIAG_SHAPE_DIFFERS);
    CHECK_REFUSED(0, ignis_cross_entropy(x, flat, NULL).id, IGNIS_ERROR_DTYPE, IGNIS_DIAG_DTYPE_DIFFERS);
    CHECK_REFUSED(0, ignis_cross_entropy(ids, two, NULL).id, IGNIS_ERROR_DTYPE, IGNIS_DIAG_DTYPE_DIFFERS);
    desc.classes = 9;
    CHECK_REFUSED(0, ignis_cross_entropy(x, two, &desc).id, IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    desc.classes = 0;
    desc.reduction = IGNIS_REDUCTION_COUNT;
    CHECK_REFUSED(0, ignis_cross_entropy(x, two, &desc).id, IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_ENUM);
    let_go(x), let_go(flat), let_go(ids), let_go(two), let_go(deep), let_go(none);
}

int main(int argc, char **argv) { return test_run(argc, argv); }
