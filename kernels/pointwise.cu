// SPDX-License-Identifier: MIT
/*  pointwise.cu - arithmetic of tensors, element by element, with one operand broadcast to the other; dropout

    One program per floating element type: compiled with -DIGNIS_T=<ignis_dtype>. Computes in float (double
    for double) and rounds once. Launched as ignis_map asks for: blocks of 256 threads, of which each does
    4096 elements: grid = ceil(n / 4096). dst may be a, b or src, unless that is broadcast. */
#include "ignis.cuh"

typedef ignis_type<IGNIS_T> T;
typedef ignis_wide<T> Wide;

#define KERNEL extern "C" __global__ void __launch_bounds__(IGNIS_MAP_THREADS)

/* >>arithmetic -------------------------------------------------------------------------------------------------- */

KERNEL ignis_sub(T *dst, const T *a, const T *b, long long n)
{
    ignis_map(
        n, [](T x, T y) { return T(Wide(x) - Wide(y)); }, dst, a, b);
}

/*  An operation with b [outer, inner] broadcast to a [outer, span / inner, inner]: see ignis_broadcast. */
KERNEL ignis_add_broadcast(T *dst, const T *a, const T *b, long long span, long long inner, long long n)
{
    ignis_map(
        n, [](T x, T y) { return T(Wide(x) + Wide(y)); }, dst, a, ignis_broadcast<T>(b, span, inner));
}

KERNEL ignis_sub_broadcast(T *dst, const T *a, const T *b, long long span, long long inner, long long n)
{
    ignis_map(
        n, [](T x, T y) { return T(Wide(x) - Wide(y)); }, dst, a, ignis_broadcast<T>(b, span, inner));
}

KERNEL ignis_mul_broadcast(T *dst, const T *a, const T *b, long long span, long long inner, long long n)
{
    ignis_map(
        n, [](T x, T y) { return T(Wide(x) * Wide(y)); }, dst, a, ignis_broadcast<T>(b, span, inner));
}

/*  Writes dst = factor * src, with src [outer, inner] broadcast to dst: the gradient of a sum or mean. */
KERNEL ignis_broadcast_scaled(T *dst, const T *src, double factor, long long span, long long inner, long long n)
{
    const Wide wide_factor = Wide(factor);
    ignis_map(
        n, [=](T x) { return T(wide_factor * Wide(x)); }, dst, ignis_broadcast<T>(src, span, inner));
}

/*  Multiplies n complex numbers, which are two neighbouring elements each. first_conjugates, conjugates: of a, of b. */
KERNEL ignis_complex_mul(T *dst, const T *a, const T *b, long long n, int first_conjugates, int conjugates)
{
    ignis_grid_dependency_wait();
    const Wide sign_a = first_conjugates ? -1 : 1, sign_b = conjugates ? -1 : 1;
    for (long long i = (long long)blockIdx.x * IGNIS_MAP_THREADS + threadIdx.x; i < n;
         i += (long long)gridDim.x * IGNIS_MAP_THREADS) {
        const ignis_pack<T, 2> x = ignis_load<2>(a + 2 * i), y = ignis_load<2>(b + 2 * i);
        const Wide re = Wide(x[0]), im = sign_a * Wide(x[1]), other_re = Wide(y[0]), other_im = sign_b * Wide(y[1]);
        ignis_pack<T, 2> product;
        product[0] = T(re * other_re - im * other_im);
        product[1] = T(re * other_im + im * other_re);
        ignis_store(dst + 2 * i, product);
    }
}

/* >>dropout ----------------------------------------------------------------------------------------------------- */

/*  Writes dst = src * scale where the element's random word is threshold or more, else 0. With src = g this
    is the gradient: the mask is made again from the same seed, first counter and step, as in random.cu, so
    that each replay of a CUDA graph has a mask of its own. threshold = 2^32 * the probability. */
KERNEL ignis_dropout(T *dst, const T *src, long long threshold, double scale, unsigned long long seed,
                     unsigned long long first, const unsigned long long *step, long long n)
{
    const Wide wide_scale = Wide(scale);
    ignis_grid_dependency_wait(); /* for *step */
    ignis_map(
        n, [=](T x, uint32_t word) { return word < threshold ? T(0) : T(Wide(x) * wide_scale); }, dst, src,
        ignis_random_words(seed, first, step ? *step : 0));
}
