// SPDX-License-Identifier: MIT
/*  map.cuh - what generated kernels of formulas use: packs, conversions, functions that CUDA lacks; see
    >>formula in ignis.h

    Without templates, and without ignis.cuh, as a user waits while a formula is compiled. The text that
    includes it has defined W, the type that it computes in: float, or double with IGNIS_WIDE; and IGNIS_HALF
    where all results are 16-bit types, whose functions may be exact to fewer bits. */
#ifndef IGNIS_MAP_CUH
#define IGNIS_MAP_CUH

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef long long i64;
typedef unsigned long long u64;
#define DI static __device__ __forceinline__

/* >>packs ------------------------------------------------------------------------------------------------------- */

/*  Up to 16 bytes as words of 32 bits; the number in the name is the pack's bytes. */
DI void ld16(u32 *w, const char *p)
{
    const uint4 v = *(const uint4 *)p;
    w[0] = v.x, w[1] = v.y, w[2] = v.z, w[3] = v.w;
}
DI void ld8(u32 *w, const char *p)
{
    const uint2 v = *(const uint2 *)p;
    w[0] = v.x, w[1] = v.y;
}
DI void ld4(u32 *w, const char *p) { w[0] = *(const u32 *)p; }
DI void ld2(u32 *w, const char *p) { w[0] = *(const u16 *)p; }
DI void ld1(u32 *w, const char *p) { w[0] = *(const u8 *)p; }
DI void st16(char *p, const u32 *w) { *(uint4 *)p = make_uint4(w[0], w[1], w[2], w[3]); }
DI void st8(char *p, const u32 *w) { *(uint2 *)p = make_uint2(w[0], w[1]); }
DI void st4(char *p, const u32 *w) { *(u32 *)p = w[0]; }
DI void st2(char *p, const u32 *w) { *(u16 *)p = (u16)w[0]; }
DI void st1(char *p, const u32 *w) { *(u8 *)p = (u8)w[0]; }

/* >>conversion -------------------------------------------------------------------------------------------------- */

#include "f8.cuh"

DI float from_f16(u16 bits)
{
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
    return value;
}
DI u16 to_f16(float value)
{
    u16 bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    return bits;
}
#if __CUDA_ARCH__ >= 800
DI u32 pair_f16(float low, float high)
{
    u32 bits;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(high), "f"(low));
    return bits;
}
DI u32 pair_bf16(float low, float high)
{
    u32 bits;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(high), "f"(low));
    return bits;
}
#else
DI u32 to_bf16(float x)
{
    const u32 word = __float_as_uint(x);
    return x != x ? 0x7fff : (word + 0x7fff + (word >> 16 & 1)) >> 16;
}
DI u32 pair_f16(float low, float high) { return to_f16(low) | (u32)to_f16(high) << 16; }
DI u32 pair_bf16(float low, float high) { return to_bf16(low) | to_bf16(high) << 16; }
#endif

/*  To integers: toward zero, saturating at the ends of the range; NaN is 0. */
DI int to_i32(float x) { return x != x ? 0 : __float2int_rz(x); }
DI int to_i32(double x) { return x != x ? 0 : __double2int_rz(x); }
DI int to_i32(i64 x) { return (int)(x < -2147483647 - 1 ? -2147483647 - 1 : x > 2147483647 ? 2147483647 : x); }
DI i64 to_i64(float x) { return x != x ? 0 : __float2ll_rz(x); }
DI i64 to_i64(double x) { return x != x ? 0 : __double2ll_rz(x); }
DI i64 to_i64(i64 x) { return x; }
DI u32 to_u8(float x) { return x != x ? 0 : min(__float2uint_rz(x), 255u); }
DI u32 to_u8(double x) { return x != x ? 0 : min(__double2uint_rz(x), 255u); }
DI u32 to_u8(i64 x) { return (u32)(x < 0 ? 0 : x > 255 ? 255 : x); }

/*  Rounds to odd, so that rounding to fewer bits gives the bits of one rounding: see ignis_round_to_odd in
    ignis.cuh. */
DI float map_odd(float x) { return x; }
DI float map_odd(double x)
{
    const float cut = __double2float_rz(x);
    return (double)cut == x ? cut : __uint_as_float(__float_as_uint(cut) | 1);
}
DI float map_odd(i64 x)
{
    const float cut = __ll2float_rz(x);
    return (i64)cut == x ? cut : __uint_as_float(__float_as_uint(cut) | 1);
}

/*  Element e of a pack, an element of an array, and a pack's element e that is set; o is 0 before. Elements
    of 16 bits are set two at a time. */
#define GET_f16(w, e) from_f16((u16)((w)[(e) / 2] >> 16 * ((e)&1)))
#define GET_bf16(w, e) __uint_as_float((e)&1 ? (w)[(e) / 2] & 0xffff0000u : (w)[(e) / 2] << 16)
#define GET_f32(w, e) __uint_as_float((w)[e])
#define GET_f64(w, e) __hiloint2double((int)(w)[2 * (e) + 1], (int)(w)[2 * (e)])
#define GET_i32(w, e) ((int)(w)[e])
#define GET_i64(w, e) ((i64)((u64)(w)[2 * (e) + 1] << 32 | (w)[2 * (e)]))
#define GET_u8(w, e) ((int)((w)[(e) / 4] >> 8 * ((e)&3) & 255u))
#define GET_f8_e4m3(w, e) ignis_e4m3_value((w)[(e) / 4] >> 8 * ((e)&3) & 255u)
#define GET_f8_e5m2(w, e) ignis_e5m2_value((w)[(e) / 4] >> 8 * ((e)&3) & 255u)
#define ONE_f16(p) from_f16(*(const u16 *)(p))
#define ONE_bf16(p) __uint_as_float((u32) * (const u16 *)(p) << 16)
#define ONE_f32(p) (*(const float *)(p))
#define ONE_f64(p) (*(const double *)(p))
#define ONE_i32(p) (*(const int *)(p))
#define ONE_i64(p) (*(const i64 *)(p))
#define ONE_u8(p) ((int)*(const u8 *)(p))
#define ONE_f8_e4m3(p) ignis_e4m3_value(*(const u8 *)(p))
#define ONE_f8_e5m2(p) ignis_e5m2_value(*(const u8 *)(p))
#define TWO_f16(o, e, x, y) (o)[(e) / 2] = pair_f16(map_odd(x), map_odd(y))
#define TWO_bf16(o, e, x, y) (o)[(e) / 2] = pair_bf16(map_odd(x), map_odd(y))
#define SET_f32(o, e, x) (o)[e] = __float_as_uint((float)(x))
#define SET_f64(o, e, x) SET_i64(o, e, __double_as_longlong((double)(x)))
#define SET_i32(o, e, x) (o)[e] = (u32)to_i32(x)
#define SET_i64(o, e, x)                      \
    {                                         \
        const u64 word = (u64)to_i64(x);      \
        (o)[2 * (e)] = (u32)word;             \
        (o)[2 * (e) + 1] = (u32)(word >> 32); \
    }
#define SET_u8(o, e, x) (o)[(e) / 4] |= to_u8(x) << 8 * ((e)&3)
#define SET_f8_e4m3(o, e, x) (o)[(e) / 4] |= ignis_e4m3_bits(map_odd(x)) << 8 * ((e)&3)
#define SET_f8_e5m2(o, e, x) (o)[(e) / 4] |= ignis_e5m2_bits(map_odd(x)) << 8 * ((e)&3)

/* >>functions --------------------------------------------------------------------------------------------------- */

/*  Returns n / d for n < 2^31, with words that the host has computed for d (Granlund and Montgomery, PLDI
    1994). */
DI u32 map_quotient(u32 n, u64 magic, u64 shift) { return (u32)(((u64)__umulhi(n, (u32)magic) + n) >> shift); }

/*  Returns the coordinate of element n in a dimension, from the divisors of the elements after it and of its
    size, and the size. */
DI int map_place(const u64 *w, u32 n)
{
    const u32 row = map_quotient(n, w[0], w[1]);
    return (int)(row - map_quotient(row, w[2], w[3]) * (u32)w[4]);
}

/*  The larger and the smaller one of two; NaN where one is. */
#if !defined(IGNIS_WIDE) && __CUDA_ARCH__ >= 800
DI float map_most(float a, float b)
{
    float c;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(c) : "f"(a), "f"(b));
    return c;
}
DI float map_least(float a, float b)
{
    float c;
    asm("min.NaN.f32 %0, %1, %2;" : "=f"(c) : "f"(a), "f"(b));
    return c;
}
#else
DI W map_most(W a, W b) { return a > b || a != a ? a : b; }
DI W map_least(W a, W b) { return a < b || a != a ? a : b; }
#endif
DI i64 map_most(i64 a, i64 b) { return a > b ? a : b; }
DI i64 map_least(i64 a, i64 b) { return a < b ? a : b; }

DI i64 map_modulo(i64 a, i64 b) { return b == 0 || b == -1 ? 0 : a % b; }

/*  The remainder with the sign of b. */
DI i64 map_mod_whole(i64 a, i64 b)
{
    const i64 rest = map_modulo(a, b);
    return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}
DI W map_mod(W a, W b)
{
    const W rest = fmod(a, b);
    return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

/*  Quotients of integers, rounded in four ways; too large ones are the largest or smallest number, 0 / 0 is
    0. */
DI i64 map_trunc(i64 a, i64 b)
{
    const i64 largest = 0x7fffffffffffffffLL;
    if (b == 0 || (b == -1 && a == -largest - 1))
        return a == 0 ? 0 : (a < 0) == (b < 0) ? largest : -largest - 1;
    return a / b;
}
DI i64 map_floor(i64 a, i64 b)
{
    const i64 q = map_trunc(a, b);
    return b == 0 || (a < 0) == (b < 0) ? q : q - (map_modulo(a, b) != 0);
}
DI i64 map_ceil(i64 a, i64 b)
{
    const i64 q = map_trunc(a, b);
    return b == 0 || (a < 0) != (b < 0) ? q : q + (map_modulo(a, b) != 0);
}
DI i64 map_round(i64 a, i64 b) /* to the even one of two neighbours */
{
    const i64 q = map_trunc(a, b), rest = map_modulo(a, b);
    const u64 left = rest < 0 ? 0 - (u64)rest : rest, whole = b < 0 ? 0 - (u64)b : b;
    const bool away = left > whole - left || (left == whole - left && (q & 1));
    return b == 0 || left == 0 || !away ? q : (a < 0) == (b < 0) ? q + 1 : q - 1;
}

/*  Returns the mean of n integers with the sum low, unsigned, and 2^64 high; and toward zero, in 64 bits. */
DI double map_mean(i64 low, int high, i64 n)
{
    if (high == (low < 0 ? -1 : 0))
        return (double)(low / n) + (double)(low % n) / (double)n;
    return ((double)high * 18446744073709551616. + (double)(u64)low) / (double)n;
}
DI i64 map_mean_whole(i64 low, int high, i64 n)
{
    u64 sum = (u64)low, upper = (u64)(i64)high, rest = 0, q = 0;
    if (high == (low < 0 ? -1 : 0))
        return low / n;
    if (high < 0) {
        sum = 0 - sum;
        upper = ~upper + (sum == 0);
    }
    for (int bit = 127; bit >= 0; bit--) { /* on paper, bit by bit */
        rest = rest << 1 | ((bit < 64 ? sum >> bit : upper >> (bit - 64)) & 1);
        q = q << 1 | (rest >= (u64)n);
        rest -= rest >= (u64)n ? (u64)n : 0;
    }
    return (i64)(high < 0 ? 0 - q : q);
}

/*  Bits moved; by 64 and more, and by less than 0, all are moved out. */
DI i64 map_left(i64 a, i64 n) { return (u64)n < 64 ? (i64)((u64)a << n) : 0; }
DI i64 map_right(i64 a, i64 n) { return a >> ((u64)n < 64 ? n : 63); }

/*  x to the power of a number that the compiler knows. */
DI W map_power(W x, i64 n)
{
    W r = 1;
    for (u64 k = n < 0 ? 0 - (u64)n : (u64)n; k; k >>= 1, x *= x)
        if (k & 1)
            r *= x;
    return n < 0 ? 1 / r : r;
}

DI i64 map_power_whole(i64 x, i64 n)
{
    u64 r = 1, square = (u64)x;
    for (; n > 0; n >>= 1, square *= square)
        if (n & 1)
            r *= square;
    return (i64)r;
}

#define map_infinity ((W)__int_as_float(0x7f800000))
#define map_nan ((W)__int_as_float(0x7fc00000))

/*  The derivative of lgamma, and its derivative: below 0 by reflection; up to 10 by recurrence; then by the asymptotic
    series (Abramowitz and Stegun 6.3 and 6.4), whose first term left out is below 1e-15 there. */
DI W map_digamma(W x)
{
    W sum = 0;
    if (x == 0)
        return -1 / x;
    if (x < 0) {
        const W part = x - floor(x), pi = (W)3.14159265358979324;
        if (part == 0)
            return map_nan;
        sum = -pi / tan(pi * part);
        x = 1 - x;
    }
    for (; x < 10; x += 1)
        sum -= 1 / x;
    const W r = 1 / (x * x);
    const W series =
        r * ((W)(1.0 / 12) -
             r * ((W)(1.0 / 120) -
                  r * ((W)(1.0 / 252) - r * ((W)(1.0 / 240) - r * ((W)(1.0 / 132) - r * (W)(691.0 / 32760))))));
    return sum + log(x) - (W)0.5 / x - series;
}
DI W map_trigamma(W x)
{
    W sum = 0, sign = 1;
    if (x <= 0) {
        const W part = x - floor(x), s = sin((W)3.14159265358979324 * part);
        if (part == 0)
            return map_infinity;
        sum = (W)9.86960440108935862 / (s * s);
        x = 1 - x;
        sign = -1;
    }
    for (; x < 10; x += 1)
        sum += sign / (x * x);
    const W r = 1 / (x * x);
    const W series =
        r *
        ((W)(1.0 / 6) -
         r * ((W)(1.0 / 30) - r * ((W)(1.0 / 42) - r * ((W)(1.0 / 30) - r * ((W)(5.0 / 66) - r * (W)(691.0 / 2730))))));
    return sum + sign * (1 / x + (W)0.5 * r + series / x);
}

/*  For half types W is float, and relative errors are below 2^-14. The last bits of / are wrong, but an integer
    quotient of divide is exact. */
#ifdef IGNIS_HALF
DI float map_divide(float a, float b)
{
    const float r = __fdividef(1.f, b), q = a * r, exact = fmaf(fmaf(-q, b, a), r, q);
    return exact == exact ? exact : q;
}
DI float half_log1p(float x) { return fabsf(x) < 0.0078125f ? x - 0.5f * x * x : __logf(1 + x); }
DI float half_erf(float x) /* Abramowitz and Stegun 7.1.26, near 0 the series */
{
    const float z = fabsf(x), t = __fdividef(1.f, fmaf(0.3275911f, z, 1.f));
    const float q = ((((1.061405429f * t - 1.453152027f) * t + 1.421413741f) * t - 0.284496736f) * t + 0.254829592f) *
                    t * __expf(-x * x);
    return z < 0.25f ? x * (1.1283791671f - x * x * (0.3761263890f - x * x * 0.1128379167f)) : copysignf(1 - q, x);
}
DI float half_log(float x)
{
    const float d = x - 1;
    return fabsf(d) < 0.0078125f ? d - 0.5f * d * d : __logf(x);
}
DI float half_tanh(float x) /* near 0 the series */
{
    const float s = x * x;
    return fabsf(x) < 0.25f ? x * (1 - s * (0.33333333f - s * (0.13333333f - s * 0.053968254f)))
                            : 1 - 2 * __fdividef(1.f, 1.f + __expf(2 * x));
}
DI float half_pow(float x, float y) /* for |y| up to some hundred */
{
    const float r = exp2f(y * __log2f(fabsf(x)));
    const bool whole = y == rintf(y), odd = whole && 2 * rintf(0.5f * y) != y;
    return y == 0 || x == 1 ? 1 : x < 0 ? (odd ? -r : whole || x == -map_infinity ? r : map_nan) : r;
}
DI float map_sigmoid(float x) { return __fdividef(1.f, 1.f + __expf(-x)); }
#define exp(x) __expf(x)
#define log(x) half_log(x)
#define tanh(x) half_tanh(x)
#define log1p(x) half_log1p(x)
#define erf(x) half_erf(x)
#define pow(x, y) half_pow(x, y)
#else
#define map_divide(a, b) ((a) / (b))
DI W map_sigmoid(W x) { return 1 / (1 + exp(-x)); }
#endif

#ifndef IGNIS_WIDE /* not inlined: their code for large arguments takes long to compile, eight times over */
static __device__ __noinline__ float called_sin(float x) { return sinf(x); }
static __device__ __noinline__ float called_cos(float x) { return cosf(x); }
static __device__ __noinline__ float called_tan(float x) { return tanf(x); }
#define sin(x) called_sin(x)
#define cos(x) called_cos(x)
#define tan(x) called_tan(x)
static __device__ __noinline__ float called_atan2(float y, float x) { return atan2f(y, x); }
static __device__ __noinline__ float called_fmod(float x, float y) { return fmodf(x, y); }
#define atan2(y, x) called_atan2(y, x)
#define fmod(x, y) called_fmod(x, y)
#ifndef IGNIS_HALF
static __device__ __noinline__ float called_pow(float x, float y) { return powf(x, y); }
#define pow(x, y) called_pow(x, y)
#endif
#endif

/*  The saved value of a product, for its gradient: the product of its numbers that are not 0, whose last bit
    is set if one is 0; 0 if several are. From it the product of all numbers except x. */
#ifdef IGNIS_WIDE
#define BITS(x) __double_as_longlong(x)
#define FROM_BITS(b) __longlong_as_double(b)
#else
#define BITS(x) __float_as_int(x)
#define FROM_BITS(b) __int_as_float(b)
#endif
DI W map_product(W v, int zeros)
{
    return zeros > 1 ? (W)0 : fabs(v) == map_infinity ? v : FROM_BITS((BITS(v) & ~1) | zeros);
}
/*  A norm is the root of a sum of squares, whose range is twice that of the numbers. There are two sums, of
    numbers times one power of two and times another; the second one has the answer if the first one
    overflows. */
#ifdef IGNIS_WIDE
#define MAP_NORM_LOW 0x1p360
#define MAP_NORM_HIGH 0x1p-520
#else
#define MAP_NORM_LOW 0x1p45f
#define MAP_NORM_HIGH 0x1p-66f
#endif
DI W map_norm(W low, W high)
{
    return low < map_infinity ? sqrt(low) * (1 / MAP_NORM_LOW) : sqrt(high) * (1 / MAP_NORM_HIGH);
}
DI W map_others(W x, W kept) { return x == 0 ? FROM_BITS(BITS(kept) & ~1) : BITS(kept) & 1 ? (W)0 : kept / x; }

/* >>random ------------------------------------------------------------------------------------------------------ */

/*  Random numbers r in [0, 1) for the n elements from `element` on, all in one group of 4 or in full groups:
    those of ignis_tensor_rand. w is the seed, the first counter, and the address of a graph's launch counter;
    each group has `per` counters, of which this is number k. */
DI uint4 philox(u64 counter, u64 stream, u64 seed) /* see ignis_philox in ignis.cuh */
{
    uint4 c = make_uint4((u32)counter, (u32)(counter >> 32), (u32)stream, (u32)(stream >> 32));
    u32 x = (u32)seed, y = (u32)(seed >> 32);
#pragma unroll
    for (int round = 0; round < 10; round++, x += 0x9E3779B9u, y += 0xBB67AE85u)
        c = make_uint4(__umulhi(0xCD9E8D57u, c.z) ^ c.y ^ x, 0xCD9E8D57u * c.z, __umulhi(0xD2511F53u, c.x) ^ c.w ^ y,
                       0xD2511F53u * c.x);
    return c;
}
DI u32 word(const uint4 four, u32 i) { return i & 2 ? (i & 1 ? four.w : four.z) : i & 1 ? four.y : four.x; }
DI void map_uniform(W *r, const int n, u64 element, const u64 *w, int per, int k)
{
    const u64 stream = w[2] ? *(const u64 *)w[2] : 0;
#pragma unroll
    for (int e = 0; e < n; e += 4) {
        const u64 counter = w[1] + (element + e) / 4 * per + k;
        const uint4 upper = philox(counter, stream, w[0]);
#ifdef IGNIS_WIDE
        const uint4 lower = philox(counter, stream | 1ULL << 63, w[0]);
#endif
#pragma unroll
        for (int i = e; i < n && i < e + 4; i++) {
            const u32 place = n < 4 ? (u32)element + i : i;
#ifdef IGNIS_WIDE
            r[i] = (double)((u64)word(upper, place) << 21 | word(lower, place) >> 11) * 0x1p-53;
#else
            r[i] = (float)(word(upper, place) >> 8) * 0x1p-24f;
#endif
        }
    }
}

/*  A standard normal number out of two uniform ones (Box and Muller 1958). */
#ifdef IGNIS_HALF
DI W map_normal(W u, W v) { return sqrt(-2 * log(1 - u)) * __cosf(6.2831853f * v); }
#else
static __device__ __noinline__ W map_normal(W u, W v) { return sqrt(-2 * log(1 - u)) * cospi(2 * v); }
#endif

DI W map_softplus(W x) { return (x > 0 || x != x ? x : (W)0) + log1p(exp(-fabs(x))); }

#endif /* IGNIS_MAP_CUH */
