// SPDX-License-Identifier: MIT
/*  random.cu - random numbers that depend on a seed and a position alone

    One program per floating element type: compiled with -DIGNIS_T=<ignis_dtype>. Launched as ignis_map asks
    for: blocks of 256 threads, of which each does 4096 elements: grid = ceil(n / 4096).

    Equal seeds give equal bits on every GPU, every compiler and the simulator: Philox is integer arithmetic,
    and the normal distribution is computed in double with nothing but operations that IEEE 754 rounds in one
    way (fma, product, quotient, square root; no sum that a compiler might fuse with a product), then rounded
    to T once. So a tensor of another element type has the same numbers, except for that rounding.

    The random words of element i: word i % 4 of Philox with the key seed at the counter first + i / 4; and at
    the same counter with its top bit set the lower halves of 64-bit numbers. step, if not null, points to a
    number in device memory that is part of the counter too: how often the CUDA graph that this is a part of
    was launched. */
#include "ignis.cuh"

typedef ignis_type<IGNIS_T> T;
typedef ignis_wide<T> Wide;

#define KERNEL extern "C" __global__ void __launch_bounds__(IGNIS_MAP_THREADS)

static constexpr unsigned long long lower_half = 1ULL << 63;

extern "C" __global__ void ignis_random_advance(unsigned long long *step) { *step += 1; }

/* >>uniform ----------------------------------------------------------------------------------------------------- */

/*  In [0, 1), with as many bits as T has, so that nothing is rounded up to 1. */
__device__ inline Wide uniform(uint32_t upper, uint32_t lower)
{
    if constexpr (ignis_is_same<T, double>)
        return (double)((uint64_t)upper << 21 | lower >> 11) * 0x1p-53;
    else if constexpr (ignis_is_same<T, float>)
        return (float)(upper >> 8) * 0x1p-24f;
    else if constexpr (ignis_is_same<T, ignis_f16>)
        return (float)(upper >> 21) * 0x1p-11f;
    else
        return (float)(upper >> 24) * 0x1p-8f;
}

/*  dst = low + (high - low) * u, u uniform in [0, 1) */
KERNEL ignis_rand(T *dst, double low, double high, unsigned long long seed, unsigned long long first,
                  const unsigned long long *step, long long n)
{
    const Wide start = Wide(low), width = Wide(high - low);
    const uint64_t stream = step ? *step : 0;
    const ignis_random_words upper(seed, first, stream), lower(seed, first, stream | lower_half);
    if constexpr (ignis_is_same<T, double>)
        ignis_map(
            n, [=](uint32_t a, uint32_t b) { return fma(uniform(a, b), width, start); }, dst, upper, lower);
    else
        ignis_map(
            n, [=](uint32_t a) { return T(fmaf(uniform(a, 0), width, start)); }, dst, upper);
}

/* >>normal ------------------------------------------------------------------------------------------------------ */

/*  Returns log(u) for u in (0, 1], to 2 units in the last place: u = m 2^e with m in [sqrt(1/2), sqrt(2)),
    log m = 2 artanh(s). */
__device__ inline double portable_log(double u)
{
    const uint64_t bits = __double_as_longlong(u);
    int exponent = (int)(bits >> 52) - 1023;
    double m = __longlong_as_double((bits & 0xFFFFFFFFFFFFFULL) | 0x3FF0000000000000ULL);
    if (m > 1.41421356237309504880) {
        m *= 0.5;
        exponent++;
    }
    const double s = __ddiv_rn(m - 1, m + 1), s2 = s * s;
    double series = 1.0 / 23;
#pragma unroll
    for (int k = 21; k >= 1; k -= 2)
        series = fma(series, s2, 1.0 / k);
    return fma((double)exponent, 0.69314718055994530942, 2 * s * series);
}

/*  The sine and cosine of 2 pi u for u in [0, 1), by the quarter of the circle and the Taylor series within
    pi/4 of its middle. */
__device__ inline void portable_sincos(double u, double *sine, double *cosine)
{
    const int quarter = (int)fma(u, 4.0, 0.5);
    const double x = fma(u, 4.0, (double)-quarter) * 1.57079632679489661923, x2 = x * x;
    double s = 1, c = 1;
#pragma unroll
    for (int k = 18; k >= 2; k -= 2) {
        s = fma(x2 * (-1.0 / (k * (k + 1))), s, 1.0);
        c = fma(x2 * (-1.0 / (k * (k - 1))), c, 1.0);
    }
    s *= x;
    *sine = quarter % 4 == 0 ? s : quarter % 4 == 1 ? c : quarter % 4 == 2 ? -s : -c;
    *cosine = quarter % 4 == 0 ? c : quarter % 4 == 1 ? -s : quarter % 4 == 2 ? -c : s;
}

/*  Reader of standard normal numbers (Box and Muller 1958): elements 2k and 2k + 1 are r cos a and r sin a,
    with r from the random number of the one, and a from that of the other. */
struct normals {
    static constexpr int element_bytes = 0;
    ignis_random_words upper, lower;

    __device__ normals(uint64_t seed, uint64_t first, uint64_t stream)
        : upper(seed, first, stream), lower(seed, first, stream | lower_half)
    {
    }
    template <int N> __device__ bool packs() const { return true; }
    template <int step> __device__ void start(long long at)
    {
        upper.start<step>(at);
        lower.start<step>(at);
    }
    template <int N, int step> __device__ ignis_pack<double, N> next()
    {
        ignis_pack<double, N> pack;
        if constexpr (N == 1) { /* one of a pair */
            const uint4 high = upper.four(), low = lower.four();
            const uint32_t rest = upper.at % 4;
            double both[2];
            if (rest < 2)
                pair(high.x, low.x, high.y, low.y, both);
            else
                pair(high.z, low.z, high.w, low.w, both);
            pack[0] = rest % 2 == 0 ? both[0] : both[1];
            upper.at += step;
            lower.at += step;
        } else {
            const ignis_pack<uint32_t, N> high = upper.next<N, step>(), low = lower.next<N, step>();
#pragma unroll
            for (int i = 0; i < N; i += 2)
                pair(high[i], low[i], high[i + 1], low[i + 1], &pack[i]);
        }
        return pack;
    }

  private:
    static __device__ void pair(uint32_t high1, uint32_t low1, uint32_t high2, uint32_t low2, double *out)
    {
        const double u1 = (double)(((uint64_t)high1 << 21 | low1 >> 11) + 1) * 0x1p-53; /* in (0, 1] */
        const double u2 = (double)((uint64_t)high2 << 21 | low2 >> 11) * 0x1p-53;       /* in [0, 1) */
        const double r = __dsqrt_rn(-2 * portable_log(u1));
        double sine, cosine;
        portable_sincos(u2, &sine, &cosine);
        out[0] = r * cosine;
        out[1] = r * sine;
    }
};

/*  dst = mean + deviation * z, z standard normal */
KERNEL ignis_randn(T *dst, double mean, double deviation, unsigned long long seed, unsigned long long first,
                   const unsigned long long *step, long long n)
{
    ignis_map(
        n, [=](double z) { return ignis_convert<T>(fma(z, deviation, mean)); }, dst,
        normals(seed, first, step ? *step : 0));
}
