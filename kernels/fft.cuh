// SPDX-License-Identifier: MIT
/*  fft.cuh - complex numbers, roots of one, and how signals of Fourier transforms are read and written

    The kinds of signals are in shared/fft.h. Reading and writing pad, cut, exchange parts, scale, and make complex
    numbers of real signals and of half spectra, so that a transform itself knows complex numbers alone.
    Kernels define IGNIS_T, and get T. */
#ifndef IGNIS_FFT_CUH
#define IGNIS_FFT_CUH

#include "ignis.cuh"
#include "shared/fft.h"

typedef ignis_type<IGNIS_T> T;
typedef ignis__fft_params fft_params;

struct alignas(2 * sizeof(T)) Complex {
    T re, im;
};

__device__ inline Complex operator+(Complex a, Complex b) { return {a.re + b.re, a.im + b.im}; }
__device__ inline Complex operator-(Complex a, Complex b) { return {a.re - b.re, a.im - b.im}; }
__device__ inline Complex operator*(Complex a, Complex b)
{
    return {a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re};
}
__device__ inline Complex operator*(T a, Complex b) { return {a * b.re, a * b.im}; }
__device__ inline Complex conjugate(Complex a) { return {a.re, -a.im}; }
__device__ inline Complex swapped(Complex a) { return {a.im, a.re}; }
__device__ inline Complex times_i(Complex a) { return {-a.im, a.re}; }

/*  Sine and cosine of pi x for |x| <= 1/4, by polynomials that are exact to one unit in the last place. */
__device__ inline void sine_cosine_of_pi(float x, float *sine, float *cosine)
{
    const float square = x * x;
    float even = 0.231384277f, odd = -0.595703125f;
    even = fmaf(fmaf(fmaf(even, square, -1.33502197f), square, 4.0587039f), square, -4.93480206f);
    odd = fmaf(fmaf(odd, square, 2.55039954f), square, -5.16772413f);
    *cosine = fmaf(even, square, 1.0f);
    *sine = fmaf(x, 3.14159274f, x * square * odd);
}
__device__ inline void sine_cosine_of_pi(double x, double *sine, double *cosine) { sincospi(x, sine, cosine); }

__device__ inline int nearest(float x) { return (int)rintf(x); }
__device__ inline int nearest(double x) { return (int)rint(x); }

/*  Returns exp(-2 pi i q / n) for 0 <= q < n <= 2^30; inverse is 1 / n. The angle is reduced to an eighth of a turn in
    integers, so each part is exact to two units in its last place. */
__device__ inline Complex root(unsigned q, unsigned n, T inverse)
{
    const int quarter = nearest(4 * T(q) * inverse);
    T sine, cosine;
    sine_cosine_of_pi(T((int)(4 * q - (unsigned)quarter * n)) * (T(0.5) * inverse), &sine, &cosine);
    if (quarter & 1)
        return quarter & 2 ? Complex{sine, cosine} : Complex{-sine, -cosine};
    return quarter & 2 ? Complex{-cosine, sine} : Complex{cosine, -sine};
}

__device__ inline Complex root(unsigned q, unsigned n) { return root(q, n, T(1) / T(n)); }

/*  Returns number k of a spectrum. whole: it has all numbers. */
template <bool whole> __device__ inline Complex spectrum(const fft_params &p, long long base, int k)
{
    return whole || k < p.from.length ? ((const Complex *)p.in)[base + k] : Complex{0, 0};
}

/*  Returns element e of the signal at base. chirps: of a pass of Bluestein's algorithm; whole: all elements are in
    memory, and pairs are aligned; points: elements of the whole transform. */
template <int mode, bool chirps, bool whole>
__device__ inline Complex fft_load(const fft_params &p, long long base, int e, int points, T inner)
{
    Complex x = {0, 0};
    if constexpr (mode == IGNIS__FFT_COMPLEX) {
        if (whole || e < p.from.length)
            x = ((const Complex *)p.in)[base + e * p.from.stride];
    } else if constexpr (mode == IGNIS__FFT_REAL) {
        if (e < p.from.length)
            x.re = ((const T *)p.in)[base + e];
    } else if constexpr (mode == IGNIS__FFT_PAIRS) {
        const T *at = (const T *)p.in + base + 2 * (long long)e;
        if (whole || (p.how & IGNIS__FFT_PACKED_IN)) {
            if (whole || 2 * e < p.from.length)
                x = *(const Complex *)at;
        } else {
            if (2 * e < p.from.length)
                x.re = at[0];
            if (2 * e + 1 < p.from.length)
                x.im = at[1];
        }
    } else if constexpr (mode == IGNIS__FFT_MERGED) {
        if (!chirps || e < points) {
            Complex low = inner * spectrum<whole>(p, base, e),
                    high = inner * conjugate(spectrum<whole>(p, base, points - e));
            if (e == 0) {
                low = {spectrum<whole>(p, base, 0).re, 0};
                high = {spectrum<whole>(p, base, points).re, 0};
            }
            x = low + high + times_i(conjugate(root((unsigned)e, 2 * (unsigned)points)) * (low - high));
        }
    } else if (e < points) {
        x = inner * (e <= points / 2 ? spectrum<false>(p, base, e) : conjugate(spectrum<false>(p, base, points - e)));
        if (e == 0)
            x = {spectrum<false>(p, base, 0).re, 0};
    }
    if (p.how & IGNIS__FFT_SWAP_IN)
        x = swapped(x);
    if (chirps && (p.how & IGNIS__FFT_CHIRP_IN))
        x = e < p.points ? x * ((const Complex *)p.chirp)[e] : Complex{0, 0};
    return x;
}

/*  Writes element e of the signal at base; not for MERGED. */
template <int mode, bool chirps, bool whole>
__device__ inline void fft_store(const fft_params &p, long long base, int e, T scale, Complex x)
{
    if (chirps && p.filter)
        x = x * ((const Complex *)p.filter)[e];
    if (p.how & IGNIS__FFT_SWAP_OUT)
        x = swapped(x);
    if (chirps && (p.how & IGNIS__FFT_CHIRP_OUT) && e < p.points)
        x = x * ((const Complex *)p.chirp)[e];
    if (chirps && (p.how & IGNIS__FFT_SWAP_LAST))
        x = swapped(x);
    x = scale * x;
    if constexpr (mode == IGNIS__FFT_COMPLEX) {
        if (whole || e < p.to.length)
            ((Complex *)p.out)[base + e * p.to.stride] = x;
    } else if constexpr (mode == IGNIS__FFT_REAL) {
        if (e < p.to.length)
            ((T *)p.out)[base + e] = x.re;
    } else if constexpr (mode == IGNIS__FFT_PAIRS) {
        T *at = (T *)p.out + base + 2 * (long long)e;
        if (whole || (p.how & IGNIS__FFT_PACKED_OUT)) {
            if (whole || 2 * e < p.to.length)
                *(Complex *)at = x;
        } else {
            if (2 * e < p.to.length)
                at[0] = x.re;
            if (2 * e + 1 < p.to.length)
                at[1] = x.im;
        }
    } else {
        if (e < p.to.length)
            ((Complex *)p.out)[base + e] = e == 0 ? x : T(p.inner) * x;
    }
}

/*  Writes numbers k and n - k of the spectrum of a real signal of 2 n numbers, from numbers k and n - k of the
    transform of its pairs. 0 <= k <= n / 2, and x = y for k = 0. */
template <bool whole>
__device__ inline void fft_store_merged(const fft_params &p, long long base, int n, int k, Complex x, Complex y)
{
    const Complex even = T(0.5 * p.scale) * (x + conjugate(y)), odd = T(0.5 * p.scale) * (x - conjugate(y)),
                  turned = root((unsigned)k, 2 * (unsigned)n) * odd;
    const Complex low = {even.re + turned.im, even.im - turned.re}, high = {even.re - turned.im, -even.im - turned.re};
    const T inner = k == 0 ? T(1) : T(p.inner);
    Complex *out = (Complex *)p.out + base;
    if (whole || k < p.to.length)
        out[k] = inner * low;
    if ((whole || n - k < p.to.length) && 2 * k != n)
        out[n - k] = inner * high;
}

#endif
