// SPDX-License-Identifier: MIT
/*  test_fft.c - Fourier transforms beside sums in long double, their gradients, errors and failures

    Tolerances are relative to the largest value of the result. A transform of n points in log2(n) steps of
    additions has an
    error of some units in the last place for each step; Bluestein's algorithm runs three transforms of up to 4 n
    points.*/
#include <math.h>

#include "sweep.h"

typedef long double real;

static const real two_pi = 6.283185307179586476925286766559005768L;

/*  Transforms complex numbers [outer, in, inner] along the middle to [outer, out, inner]: points are cut or filled
    to n. Frees x. */
static real *dft(real *x, int64_t outer, int64_t in, int64_t n, int64_t inner, int sign, real scale)
{
    real *roots = (real *)malloc(sizeof *roots * (size_t)(2 * n)),
         *y = (real *)calloc((size_t)(2 * outer * n * inner + 1), sizeof *y);
    int64_t o, j, k, i;
    for (j = 0; j < n; j++) {
        roots[2 * j] = cosl(two_pi * (real)j / (real)n);
        roots[2 * j + 1] = (real)sign * sinl(two_pi * (real)j / (real)n);
    }
    for (o = 0; o < outer; o++)
        for (k = 0; k < n; k++)
            for (j = 0; j < n && j < in; j++)
                for (i = 0; i < inner; i++) {
                    const real *w = roots + 2 * (j * k % n), *from = x + 2 * ((o * in + j) * inner + i);
                    real *to = y + 2 * ((o * n + k) * inner + i);
                    to[0] += scale * (from[0] * w[0] - from[1] * w[1]);
                    to[1] += scale * (from[0] * w[1] + from[1] * w[0]);
                }
    free(roots);
    free(x);
    return y;
}

static real scale_of(ignis_fft_norm norm, bool inverse, int64_t n)
{
    if (norm == IGNIS_FFT_ORTHO)
        return 1 / sqrtl((real)n);
    return (norm == IGNIS_FFT_FORWARD) != inverse ? 1 / (real)n : 1;
}

/*  The transform of all dimensions that desc names, of complex numbers of the shape (without its 2), which becomes
    that of the result. Frees x. */
static real *transform(real *x, ignis_shape *shape, const ignis_fft_desc *desc, bool inverse)
{
    int i, k;
    for (i = 0; i < desc->ndim; i++) {
        const int at = shape->ndim - desc->ndim + i;
        int64_t outer = 1, inner = 1, n = desc->lengths[i] ? desc->lengths[i] : shape->dim[at];
        for (k = 0; k < shape->ndim; k++)
            *(k < at ? &outer : &inner) *= k == at ? 1 : shape->dim[k];
        x = dft(x, outer, shape->dim[at], n, inner, inverse ? 1 : -1, scale_of(desc->norm, inverse, n));
        shape->dim[at] = n;
    }
    return x;
}

static double tolerance_of(ignis_dtype dtype, int64_t points)
{
    return (dtype == IGNIS_F64 ? 1.2e-16 : 6e-8) * (8 + 4 * log2((double)points + 1));
}

/*  Elements of a tensor are those of the reference. */
#define CHECK_NEAR(tensor, expected, count, tolerance) check_near(__LINE__, tensor, expected, count, tolerance)
static void check_near(int line, ignis_tensor tensor, const real *expected, int64_t count, double tolerance)
{
    double *got = tensor_values(tensor), largest = 0, worst = 0;
    char text[200];
    int64_t i;
    if (numel_of(tensor) != count)
        test__check_int(__FILE__, line, "numel", numel_of(tensor), count);
    for (i = 0; i < count && numel_of(tensor) == count; i++) {
        const double size = (double)fabsl(expected[i]), error = fabs(got[i] - (double)expected[i]);
        largest = size > largest ? size : largest;
        worst = error > worst || error != error ? error : worst;
    }
    if (!(worst <= tolerance * largest)) {
        snprintf(text, sizeof text, "an error of %g in values up to %g, expected %g of it", worst, largest, tolerance);
        test__fail(__FILE__, line, text);
    }
    free(got);
}

static ignis_fft_desc fft_desc(int ndim, int64_t a, int64_t b, int64_t c, ignis_fft_norm norm)
{
    ignis_fft_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.ndim = ndim;
    desc.lengths[0] = a, desc.lengths[1] = b, desc.lengths[2] = c;
    desc.norm = norm;
    return desc;
}

static ignis_shape with(ignis_shape shape, int64_t last)
{
    shape.dim[shape.ndim++] = last;
    return shape;
}

static real *reals_of(ignis_tensor tensor)
{
    double *values = tensor_values(tensor);
    int64_t n = numel_of(tensor), i;
    real *result = (real *)malloc(sizeof *result * (size_t)(n + 1));
    for (i = 0; i < n; i++)
        result[i] = values[i];
    free(values);
    return result;
}

/*  ignis_fft or ignis_ifft of noise of a shape. */
static void complex_case(ignis_shape shape, ignis_dtype dtype, const ignis_fft_desc *desc, bool inverse)
{
    ignis_shape result = shape;
    ignis_scope scope = ignis_scope_begin();
    ignis_tensor x = tensor_noise(with(shape, 2), dtype, 7, false),
                 y = inverse ? ignis_ifft(x, desc) : ignis_fft(x, desc);
    real *expected = transform(reals_of(x), &result, desc, inverse);
    CHECK_SHAPE_IS(y, with(result, 2));
    CHECK_NEAR(y, expected, shape_numel(result) * 2, tolerance_of(dtype, shape_numel(result)));
    free(expected);
    CHECK_OK(ignis_scope_end(scope));
}

/*  ignis_rfft of noise of a shape, and ignis_irfft of half a spectrum with as many points. */
static void real_case(ignis_shape shape, ignis_dtype dtype, const ignis_fft_desc *desc)
{
    const int last = shape.ndim - 1;
    const int64_t n = desc->lengths[desc->ndim - 1] ? desc->lengths[desc->ndim - 1] : shape.dim[last];
    ignis_fft_desc back = *desc;
    ignis_shape result = shape, half, full;
    ignis_scope scope = ignis_scope_begin();
    ignis_tensor x = tensor_noise(shape, dtype, 5, false), y = ignis_rfft(x, desc), z;
    real *values = reals_of(x), *wide = (real *)calloc((size_t)(2 * numel_of(x) + 1), sizeof *wide), *spectrum, *kept;
    int64_t i, rows, k;
    for (i = 0; i < numel_of(x); i++)
        wide[2 * i] = values[i];
    free(values);
    wide = transform(wide, &result, desc, false);
    half = result;
    half.dim[last] = n / 2 + 1;
    CHECK_SHAPE_IS(y, with(half, 2));
    rows = shape_numel(half) / (n / 2 + 1);
    kept = (real *)malloc(sizeof *kept * (size_t)(2 * shape_numel(half) + 1));
    for (i = 0; i < rows; i++)
        memcpy(kept + 2 * i * (n / 2 + 1), wide + 2 * i * n, sizeof *kept * (size_t)(2 * (n / 2 + 1)));
    CHECK_NEAR(y, kept, shape_numel(half) * 2, tolerance_of(dtype, shape_numel(result)));
    free(wide), free(kept);
    /* back, of any numbers: other dimensions first, then the last one with what the first half says of the second */
    y = tensor_noise(with(half, 2), dtype, 3, false);
    back.lengths[back.ndim - 1] = n;
    z = ignis_irfft(y, &back);
    spectrum = reals_of(y);
    full = half;
    for (i = 0; i < desc->ndim - 1; i++) {
        int64_t outer = 1, inner = 1, at = last - (desc->ndim - 1) + i, points;
        points = desc->lengths[i] ? desc->lengths[i] : half.dim[at];
        for (k = 0; k <= last; k++)
            *(k < at ? &outer : &inner) *= k == at ? 1 : full.dim[k];
        spectrum = dft(spectrum, outer, full.dim[at], points, inner, 1, scale_of(desc->norm, true, points));
        full.dim[at] = points;
    }
    rows = shape_numel(full) / (n / 2 + 1);
    wide = (real *)calloc((size_t)(2 * rows * n + 1), sizeof *wide);
    for (i = 0; i < rows; i++)
        for (k = 0; k < n; k++) {
            const int64_t at = k <= n / 2 ? k : n - k;
            wide[2 * (i * n + k)] = spectrum[2 * (i * (n / 2 + 1) + at)];
            wide[2 * (i * n + k) + 1] =
                at == 0 || 2 * at == n ? 0 : (k == at ? 1 : -1) * spectrum[2 * (i * (n / 2 + 1) + at) + 1];
        }
    free(spectrum);
    wide = dft(wide, rows, n, n, 1, 1, scale_of(desc->norm, true, n));
    for (i = 0; i < rows * n; i++)
        wide[i] = wide[2 * i];
    full.dim[last] = n;
    CHECK_SHAPE_IS(z, full);
    CHECK_NEAR(z, wide, rows * n, tolerance_of(dtype, shape_numel(full)));
    free(wide);
    CHECK_OK(ignis_scope_end(scope));
}

static const int64_t lengths[] = {1,  2,  3,  4,  5,   6,   7,   8,   9,   10,  11,   12,   13,   14,  15,
                                  16, 17, 30, 97, 100, 128, 169, 210, 360, 625, 1000, 1024, 1031, 2048};

TEST(lengths_of_complex_signals)
{
    int i;
    SETUP(NULL);
    for (i = 0; i < COUNT_OF(lengths); i++) {
        ignis_fft_desc desc = fft_desc(1, 0, 0, 0, (ignis_fft_norm)(i % 3));
        complex_case(IGNIS_SHAPE(i % 2 ? 3 : 1, lengths[i]), i % 3 ? IGNIS_F32 : IGNIS_F64, &desc, i % 2 == 0);
    }
}

TEST(lengths_of_real_signals)
{
    static const int64_t some[] = {1, 2, 3, 4, 5, 7, 8, 15, 16, 17, 34, 97, 100, 210, 1000, 1031, 2062};
    int i;
    SETUP(NULL);
    for (i = 0; i < COUNT_OF(some); i++) {
        ignis_fft_desc desc = fft_desc(1, 0, 0, 0, (ignis_fft_norm)(i % 3));
        real_case(IGNIS_SHAPE(i % 2 ? 3 : 1, some[i]), i % 3 ? IGNIS_F64 : IGNIS_F32, &desc);
    }
}

/*  Dimensions, cut and filled lengths, and the sizes of batches. */
TEST(dimensions_and_cut_lengths)
{
    int i;
    SETUP(NULL);
    for (i = 0; i < 4; i++) {
        const ignis_dtype dtype = i % 2 ? IGNIS_F32 : IGNIS_F64;
        ignis_fft_desc two = fft_desc(2, 0, 0, 0, IGNIS_FFT_BACKWARD), three = fft_desc(3, 0, 0, 0, IGNIS_FFT_ORTHO),
                       cut = fft_desc(2, 5, 12, 0, IGNIS_FFT_FORWARD), fill = fft_desc(3, 7, 4, 9, IGNIS_FFT_BACKWARD),
                       first = fft_desc(2, 4, 0, 0, IGNIS_FFT_BACKWARD);
        complex_case(IGNIS_SHAPE(9, 15), dtype, &two, i > 1);
        complex_case(IGNIS_SHAPE(2, 3, 17, 10), dtype, &two, i > 1);
        complex_case(IGNIS_SHAPE(2, 5, 4, 3), dtype, &three, i > 1);
        complex_case(IGNIS_SHAPE(2, 8, 11), dtype, &cut, i > 1);
        complex_case(IGNIS_SHAPE(5, 4, 7), dtype, &fill, i > 1);
        complex_case(IGNIS_SHAPE(6, 3), dtype, &first, i > 1);
        complex_case(IGNIS_SHAPE(3, 1, 1, 1), dtype, &three, i > 1);
        if (i > 1)
            continue;
        real_case(IGNIS_SHAPE(9, 15), dtype, &two);
        real_case(IGNIS_SHAPE(2, 3, 8, 10), dtype, &two);
        real_case(IGNIS_SHAPE(5, 4, 6), dtype, &three);
        real_case(IGNIS_SHAPE(2, 8, 11), dtype, &cut);
        real_case(IGNIS_SHAPE(8, 13), dtype, &cut);
        real_case(IGNIS_SHAPE(5, 4, 7), dtype, &fill);
    }
}

/*  Half spectra with fewer and more numbers than a length needs, as numpy.fft.irfft takes them. */
TEST(spectra_of_other_lengths)
{
    static const int64_t points[] = {6, 7, 12, 1, 2};
    int i, k;
    SETUP(NULL);
    for (i = 0; i < COUNT_OF(points); i++) {
        const int64_t n = points[i], half = n / 2 + 1;
        ignis_scope scope = ignis_scope_begin();
        ignis_fft_desc desc = fft_desc(1, n, 0, 0, IGNIS_FFT_BACKWARD);
        ignis_tensor x = tensor_noise(IGNIS_SHAPE(2, 5, 2), IGNIS_F64, 9, false), y = ignis_irfft(x, &desc), z, fit;
        const int64_t before[] = {0, 0, 0}, after[] = {0, half > 5 ? half - 5 : 0, 0};
        fit = half > 5 ? ignis_pad(x, before, after, 3, 0) : ignis_slice(x, 1, 0, half);
        z = ignis_irfft(fit, &desc);
        CHECK_SHAPE_IS(y, IGNIS_SHAPE(2, n));
        for (k = 0; k < 2 * n; k++)
            CHECK_NUMBER(value_at(y, k), value_at(z, k));
        CHECK_OK(ignis_scope_end(scope));
    }
}

/*  Transforms in several passes: with a limit of few numbers for a pass, as long ones on a GPU. */
TEST(several_passes)
{
    static const int64_t some[] = {24, 60, 97, 128, 210, 256, 360, 1000, 1024, 1031};
    const int64_t limit = ignis__fft_pass_limit;
    int i;
    SETUP(NULL);
    ignis__fft_pass_limit = 16;
    for (i = 0; i < COUNT_OF(some); i++) {
        ignis_fft_desc desc = fft_desc(1, 0, 0, 0, (ignis_fft_norm)(i % 3)),
                       two = fft_desc(2, 0, 0, 0, IGNIS_FFT_BACKWARD);
        complex_case(IGNIS_SHAPE(i % 2 ? 3 : 1, some[i]), i % 3 ? IGNIS_F32 : IGNIS_F64, &desc, i % 2 == 0);
        if (some[i] < 300)
            complex_case(IGNIS_SHAPE(2, some[i], 3), IGNIS_F32, &two, i % 2 == 1);
        if (some[i] == 1031 || some[i] < 129)
            real_case(IGNIS_SHAPE(2, some[i]), IGNIS_F64, &desc);
    }
    ignis__fft_pass_limit = limit;
}

/*  Some numbers of long transforms, beside sums. */
TEST(long_transforms)
{
    static const int64_t some[] = {4096, 16384, 65536, 30030};
    int i;
    SETUP(NULL);
    for (i = 0; i < COUNT_OF(some); i++) {
        const int64_t n = some[i];
        ignis_scope scope = ignis_scope_begin();
        ignis_tensor x = tensor_noise(IGNIS_SHAPE(n, 2), IGNIS_F32, 1, false), y = ignis_fft(x, NULL);
        double *from = tensor_values(x), *got = tensor_values(y);
        int64_t k, j;
        for (k = 0; k < n; k += n / 7 - 1) {
            real re = 0, im = 0;
            for (j = 0; j < n; j++) {
                const real angle = two_pi * (real)(j * k % n) / (real)n, c = cosl(angle), s = -sinl(angle);
                re += from[2 * j] * c - from[2 * j + 1] * s;
                im += from[2 * j] * s + from[2 * j + 1] * c;
            }
            /* values are about sqrt(n) */
            CHECK(fabs(got[2 * k] - (double)re) < 1e-6 * sqrt((double)n) * 2);
            CHECK(fabs(got[2 * k + 1] - (double)im) < 1e-6 * sqrt((double)n) * 2);
        }
        free(from), free(got);
        CHECK_OK(ignis_scope_end(scope));
    }
}

/*  The inverse gives back what was there, energies are equal, and sums of signals become sums of spectra. */
TEST(laws)
{
    ignis_tensor a, b, c, d, e;
    ignis_fft_desc desc;
    ignis_scope scope;
    int i;
    SETUP(NULL);
    scope = ignis_scope_begin();
    for (i = 0; i < 3; i++) {
        desc = fft_desc(2, 0, 0, 0, (ignis_fft_norm)i);
        a = tensor_noise(IGNIS_SHAPE(3, 10, 12, 2), IGNIS_F64, 1, false);
        b = ignis_ifft(ignis_fft(a, &desc), &desc);
        CHECK(fabs(ignis_item(ignis_map_reduce(IGNIS_REDUCE_MAX, "abs(a - b)", IGNIS_INPUTS(a, b), NULL))) < 1e-14);
        c = tensor_noise(IGNIS_SHAPE(3, 10, 12), IGNIS_F64, 2, false);
        d = ignis_irfft(ignis_rfft(c, &desc), &desc);
        CHECK(fabs(ignis_item(ignis_map_reduce(IGNIS_REDUCE_MAX, "abs(c - d)", IGNIS_INPUTS(c, d), NULL))) < 1e-14);
    }
    desc = fft_desc(1, 0, 0, 0, IGNIS_FFT_ORTHO);
    b = ignis_fft(a, &desc);
    CHECK_CLOSE(ignis_item(ignis_map_sum("b*b", IGNIS_INPUTS(b))), ignis_item(ignis_map_sum("a*a", IGNIS_INPUTS(a))),
                1e-13);
    e = tensor_noise(IGNIS_SHAPE(3, 10, 12, 2), IGNIS_F64, 4, false);
    c = ignis_fft(ignis_map("2*a - 3*e", IGNIS_INPUTS(a, e)), &desc);
    d = ignis_fft(e, &desc);
    CHECK(fabs(ignis_item(ignis_map_reduce(IGNIS_REDUCE_MAX, "abs(c - 2*b + 3*d)", IGNIS_INPUTS(b, c, d), NULL))) <
          1e-13);
    CHECK_OK(ignis_scope_end(scope));
}

/*  A view that begins between two complex numbers, NaN in one signal of a batch, and no signals. */
TEST(edges)
{
    ignis_scope scope;
    ignis_tensor x, y, z;
    ignis_fft_desc desc;
    double *values;
    int i;
    SETUP(NULL);
    scope = ignis_scope_begin();
    x = noise_at(IGNIS_SHAPE(3, 8, 2), IGNIS_F32, 3, 0, 1, 1, false);
    z = tensor_noise(IGNIS_SHAPE(3, 8, 2), IGNIS_F32, 3, false);
    y = ignis_fft(x, NULL), z = ignis_fft(z, NULL);
    for (i = 0; i < 48; i++)
        CHECK_NUMBER(value_at(y, i), value_at(z, i));
    x = noise_at(IGNIS_SHAPE(3, 8), IGNIS_F64, 3, 0, 1, 1, false);
    z = tensor_noise(IGNIS_SHAPE(3, 8), IGNIS_F64, 3, false);
    y = ignis_rfft(x, NULL), z = ignis_rfft(z, NULL);
    for (i = 0; i < 30; i++)
        CHECK_NUMBER(value_at(y, i), value_at(z, i));
    values = (double *)calloc(2 * 16, sizeof *values);
    values[16 + 3] = NAN;
    y = ignis_fft(tensor_of(values, IGNIS_SHAPE(2, 8, 2), IGNIS_F32, false), NULL);
    free(values);
    CHECK_NUMBER(value_at(y, 15), 0);
    CHECK_NUMBER(value_at(y, 17), NAN);
    y = ignis_fft(tensor_noise(IGNIS_SHAPE(0, 8, 2), IGNIS_F32, 1, false), NULL);
    CHECK_SHAPE_IS(y, IGNIS_SHAPE(0, 8, 2));
    y = ignis_rfft(tensor_noise(IGNIS_SHAPE(3, 0, 8), IGNIS_F64, 1, false), NULL);
    CHECK_SHAPE_IS(y, IGNIS_SHAPE(3, 0, 5, 2));
    desc = fft_desc(1, 4, 0, 0, IGNIS_FFT_BACKWARD); /* zeros alone */
    y = ignis_rfft(tensor_noise(IGNIS_SHAPE(3, 0), IGNIS_F64, 1, false), &desc);
    CHECK_SHAPE_IS(y, IGNIS_SHAPE(3, 3, 2));
    CHECK_NUMBER(value_at(y, 0), 0);
    CHECK_OK(ignis_scope_end(scope));
}

typedef struct grad_case {
    ignis_tensor (*fn)(ignis_tensor x, const ignis_fft_desc *desc);
    ignis_shape shape;
    ignis_fft_desc desc;
} grad_case;

/*  A sum of squares with weights, so that no gradient is that of another element. */
static ignis_tensor grad_loss(const ignis_tensor *inputs, int count, void *user_data)
{
    const grad_case *c = (const grad_case *)user_data;
    ignis_tensor y = c->fn(inputs[0], &c->desc);
    return (void)count, ignis_map_sum("w = 1 + 0.3*index(-1) + 0.7*index(-2); w*y*y + sin(w)*y", IGNIS_INPUTS(y));
}

TEST(gradients)
{
    static const int64_t points[] = {8, 7, 12, 5, 34};
    int i, at;
    SETUP(NULL);
    for (i = 0; i < COUNT_OF(points); i++) {
        const int64_t n = points[i];
        grad_case cases[9];
        memset(cases, 0, sizeof cases);
        for (at = 0; at < COUNT_OF(cases); at++)
            cases[at].desc = fft_desc(1, 0, 0, 0, (ignis_fft_norm)(at % 3));
        cases[0].fn = ignis_fft, cases[0].shape = IGNIS_SHAPE(2, n, 2);
        cases[1].fn = ignis_ifft, cases[1].shape = IGNIS_SHAPE(2, n, 2);
        cases[2].fn = ignis_rfft, cases[2].shape = IGNIS_SHAPE(2, n);
        cases[3].fn = ignis_irfft, cases[3].shape = IGNIS_SHAPE(2, n / 2 + 1, 2), cases[3].desc.lengths[0] = n;
        cases[4].fn = ignis_fft, cases[4].shape = IGNIS_SHAPE(2, 6, 2),
        cases[4].desc.lengths[0] = n; /* cut or filled */
        cases[5].fn = ignis_rfft, cases[5].shape = IGNIS_SHAPE(2, 9), cases[5].desc.lengths[0] = n;
        cases[6].fn = ignis_irfft, cases[6].shape = IGNIS_SHAPE(2, 5, 2), cases[6].desc.lengths[0] = n;
        cases[7].fn = ignis_rfft, cases[7].shape = IGNIS_SHAPE(3, n),
        cases[7].desc = fft_desc(2, 4, 0, 0, IGNIS_FFT_ORTHO);
        cases[8].fn = ignis_irfft, cases[8].shape = IGNIS_SHAPE(3, n / 2 + 1, 2),
        cases[8].desc = fft_desc(2, 2, n, 0, IGNIS_FFT_FORWARD);
        for (at = 0; at < (n == 34 ? 4 : COUNT_OF(cases)); at++) {
            ignis_scope scope = ignis_scope_begin();
            ignis_tensor x = tensor_noise(cases[at].shape, IGNIS_F64, (uint64_t)at, true);
            const double error = ignis_gradcheck(grad_loss, &cases[at], &x, 1, NULL);
            if (!(error < 1e-6))
                fprintf(stderr, "case %d of %d points: an error of %g\n", at, (int)n, error);
            CHECK(error < 1e-6);
            CHECK_OK(ignis_scope_end(scope));
        }
    }
}

static ignis_tensor product_loss(const ignis_tensor *inputs, int count, void *user_data)
{
    ignis_tensor y = ignis_complex_mul(inputs[0], inputs[1], *(const bool *)user_data);
    return (void)count, ignis_map_sum("y*y*(1 + index(-2)) + y*(2 + index(-1))", IGNIS_INPUTS(y));
}

TEST(complex_products)
{
    int d, i, c;
    SETUP(NULL);
    for (d = 0; d < COUNT_OF(float_dtypes); d++)
        for (c = 0; c < 2; c++) {
            const double tolerance = float_dtypes[d] == IGNIS_F64   ? 1e-15
                                     : float_dtypes[d] == IGNIS_F32 ? 2e-7
                                     : float_dtypes[d] == IGNIS_F16 ? 1e-3
                                                                    : 8e-3;
            ignis_scope scope = ignis_scope_begin();
            ignis_tensor a = noise_at(IGNIS_SHAPE(3, 5, 2), float_dtypes[d], 1, 0, 1, 1, false),
                         b = tensor_noise(IGNIS_SHAPE(5, 2), float_dtypes[d], 2, false),
                         y = ignis_complex_mul(a, b, c == 1);
            CHECK_SHAPE_IS(y, IGNIS_SHAPE(3, 5, 2));
            for (i = 0; i < 15; i++) {
                const double ar = value_at(a, 2 * i), ai = value_at(a, 2 * i + 1), br = value_at(b, 2 * (i % 5)),
                             bi = (c ? -1 : 1) * value_at(b, 2 * (i % 5) + 1);
                CHECK_CLOSE(value_at(y, 2 * i), ar * br - ai * bi, tolerance);
                CHECK_CLOSE(value_at(y, 2 * i + 1), ar * bi + ai * br, tolerance);
            }
            CHECK_OK(ignis_scope_end(scope));
        }
    for (c = 0; c < 2; c++) {
        bool conjugates = c == 1;
        ignis_scope scope = ignis_scope_begin();
        ignis_tensor inputs[2];
        inputs[0] = tensor_noise(IGNIS_SHAPE(2, 3, 2), IGNIS_F64, 1, true);
        inputs[1] = tensor_noise(IGNIS_SHAPE(3, 2), IGNIS_F64, 2, true);
        CHECK(ignis_gradcheck(product_loss, &conjugates, inputs, 2, NULL) < 1e-6);
        CHECK_OK(ignis_scope_end(scope));
    }
}

TEST(convolutions)
{
    ignis_scope scope;
    ignis_tensor x, w, y;
    double *a, *b, *got;
    int i, j, k, l, r;
    SETUP(NULL);
    scope = ignis_scope_begin();
    x = tensor_noise(IGNIS_SHAPE(2, 1, 6, 11), IGNIS_F64, 1, false);
    w = tensor_noise(IGNIS_SHAPE(3, 4, 5), IGNIS_F64, 2, false);
    y = ignis_fft_conv(x, w, 2);
    CHECK_SHAPE_IS(y, IGNIS_SHAPE(2, 3, 9, 15));
    a = tensor_values(x), b = tensor_values(w), got = tensor_values(y);
    for (r = 0; r < 6; r++)
        for (i = 0; i < 9; i++)
            for (j = 0; j < 15; j++) {
                double sum = 0;
                for (k = 0; k < 4; k++)
                    for (l = 0; l < 5; l++)
                        if (i - k >= 0 && i - k < 6 && j - l >= 0 && j - l < 11)
                            sum += a[(r / 3 * 6 + i - k) * 11 + j - l] * b[(r % 3 * 4 + k) * 5 + l];
                CHECK_CLOSE(got[(r * 9 + i) * 15 + j], sum, 1e-14);
            }
    free(a), free(b), free(got);
    y = ignis_fft_conv(tensor_counting(IGNIS_SHAPE(3), IGNIS_F32, 1, false),
                       tensor_counting(IGNIS_SHAPE(2), IGNIS_F32, 1, false), 1);
    CHECK_SHAPE_IS(y, IGNIS_SHAPE(4)); /* 1 2 3 * 1 2 */
    CHECK_CLOSE(value_at(y, 0), 1, 1e-6);
    CHECK_CLOSE(value_at(y, 1), 4, 1e-6);
    CHECK_CLOSE(value_at(y, 2), 7, 1e-6);
    CHECK_CLOSE(value_at(y, 3), 6, 1e-6);
    CHECK_OK(ignis_scope_end(scope));
}

TEST(errors)
{
    ignis_scope scope;
    ignis_tensor x, real8, half, none = no_tensor(), freed;
    ignis_fft_desc desc;
    SETUP(NULL);
    scope = ignis_scope_begin();
    x = tensor_noise(IGNIS_SHAPE(4, 8, 2), IGNIS_F32, 1, false);
    half = tensor_noise(IGNIS_SHAPE(4, 8, 2), IGNIS_F16, 1, false);
    freed = tensor_noise(IGNIS_SHAPE(4, 8, 2), IGNIS_F32, 1, false);
    real8 = tensor_noise(IGNIS_SHAPE(1, 1, 1, 1, 1, 1, 1, 4), IGNIS_F32, 1, false);
    CHECK_OK(ignis_tensor_release(freed));
    CHECK_REFUSED(0, ignis_fft(none, NULL).id, IGNIS_ERROR_FREED, IGNIS_DIAG_TENSOR_FREED);
    CHECK_REFUSED(0, ignis_fft(freed, NULL).id, IGNIS_ERROR_FREED, IGNIS_DIAG_TENSOR_FREED);
    CHECK_REFUSED(0, ignis_fft(half, NULL).id, IGNIS_ERROR_DTYPE, IGNIS_DIAG_DTYPE_DIFFERS);
    CHECK_REFUSED(0, ignis_rfft(half, NULL).id, IGNIS_ERROR_DTYPE, IGNIS_DIAG_DTYPE_DIFFERS);
    CHECK_REFUSED(0, ignis_fft(real8, NULL).id, IGNIS_ERROR_SHAPE, IGNIS_DIAG_SHAPE_DIFFERS);
    CHECK_REFUSED(0, ignis_rfft(real8, NULL).id, IGNIS_ERROR_SHAPE, IGNIS_DIAG_SHAPE_DIFFERS);
    desc = fft_desc(4, 0, 0, 0, IGNIS_FFT_BACKWARD);
    CHECK_REFUSED(0, ignis_fft(x, &desc).id, IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    desc = fft_desc(-1, 0, 0, 0, IGNIS_FFT_BACKWARD);
    CHECK_REFUSED(0, ignis_fft(x, &desc).id, IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    desc = fft_desc(3, 0, 0, 0, IGNIS_FFT_BACKWARD);
    CHECK_REFUSED(0, ignis_fft(x, &desc).id, IGNIS_ERROR_SHAPE, IGNIS_DIAG_SHAPE_DIFFERS);
    desc = fft_desc(1, -2, 0, 0, IGNIS_FFT_BACKWARD);
    CHECK_REFUSED(0, ignis_ifft(x, &desc).id, IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    desc = fft_desc(1, ((int64_t)1 << 29) + 1, 0, 0, IGNIS_FFT_BACKWARD);
    CHECK_REFUSED(0, ignis_ifft(x, &desc).id, IGNIS_ERROR_SHAPE, IGNIS_DIAG_SHAPE_DIFFERS);
    desc = fft_desc(1, 0, 0, 0, (ignis_fft_norm)3);
    CHECK_REFUSED(0, ignis_irfft(x, &desc).id, IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_ENUM);
    x = tensor_noise(IGNIS_SHAPE(4, 0, 2), IGNIS_F32, 1, false);
    CHECK_REFUSED(0, ignis_fft(x, NULL).id, IGNIS_ERROR_SHAPE, IGNIS_DIAG_SHAPE_DIFFERS);
    CHECK_REFUSED(0, ignis_irfft(x, NULL).id, IGNIS_ERROR_SHAPE, IGNIS_DIAG_SHAPE_DIFFERS);
    x = tensor_noise(IGNIS_SHAPE(4, 1, 2), IGNIS_F32, 1, false);
    CHECK_REFUSED(0, ignis_irfft(x, NULL).id, IGNIS_ERROR_SHAPE, IGNIS_DIAG_SHAPE_DIFFERS);
    CHECK_REFUSED(0, ignis_complex_mul(x, half, false).id, IGNIS_ERROR_DTYPE, IGNIS_DIAG_DTYPE_DIFFERS);
    CHECK_REFUSED(0, ignis_complex_mul(x, real8, false).id, IGNIS_ERROR_SHAPE, IGNIS_DIAG_SHAPE_DIFFERS);
    half = tensor_noise(IGNIS_SHAPE(3, 1, 2), IGNIS_F32, 1, false);
    CHECK_REFUSED(0, ignis_complex_mul(x, half, false).id, IGNIS_ERROR_SHAPE, IGNIS_DIAG_BROADCAST_SHAPE);
    CHECK_REFUSED(0, ignis_fft_conv(x, half, 4).id, IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    CHECK_REFUSED(0, ignis_fft_conv(x, tensor_noise(IGNIS_SHAPE(2), IGNIS_F32, 1, false), 2).id, IGNIS_ERROR_SHAPE,
                  IGNIS_DIAG_SHAPE_DIFFERS);
    CHECK_OK(ignis_scope_end(scope));
}

/*  Forward and backward of all kinds: 0 is the sum of all. */
static ignis_tensor everything(int at, const ignis_tensor *inputs)
{
    const ignis_fft_desc two = fft_desc(2, 0, 0, 0, IGNIS_FFT_ORTHO), prime = fft_desc(1, 17, 0, 0, IGNIS_FFT_BACKWARD);
    ignis_tensor a = ignis_fft(inputs[0], &two), b = ignis_rfft(inputs[1], NULL), c, d, e;
    (void)at;
    c = ignis_irfft(ignis_complex_mul(b, b, true), NULL);
    d = ignis_ifft(inputs[0], &prime);
    e = ignis_fft_conv(inputs[1], inputs[1], 1);
    return ignis_add(ignis_add(ignis_sum(a), ignis_sum(c)),
                     ignis_add(ignis_sum(d), ignis_map_sum("e*e", IGNIS_INPUTS(e))));
}

TEST(every_failure_is_reported)
{
    static host_counter counter;
    ignis_desc desc = test_counting_desc(&counter);
    static const char *const prefixes[] = {"cuMemAlloc", "cuLaunch", NULL};
    ignis_tensor inputs[2];
    int i;
    SETUP(&desc);
    inputs[0] = tensor_noise(IGNIS_SHAPE(3, 4, 2), IGNIS_F32, 1, true);
    inputs[1] = tensor_noise(IGNIS_SHAPE(2, 6), IGNIS_F32, 2, true);
    for (i = 0; i < COUNT_OF(prefixes); i++)
        sweep_walks(prefixes[i], &counter, everything, inputs);
    let_go(inputs[0]), let_go(inputs[1]);
}

int main(int argc, char **argv) { return test_run(argc, argv); }
