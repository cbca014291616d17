// SPDX-License-Identifier: MIT
/*  shim_math.h - mathematics, conversions and bit functions of CUDA C++

    The accurate functions are the C library's; the fast ones (`__expf`) are the same here, because the simulator
    shows what a kernel computes, not how many bits its hardware approximations have. Conversions saturate as PTX
    does.
*/
#ifndef SIM_SHIM_MATH_H
#define SIM_SHIM_MATH_H

/* ------------------------------------------------------------------- the C library's functions and overloads */

template <class T> struct sim_if_integer {
};
#define SIM_INTEGER(T)                     \
    template <> struct sim_if_integer<T> { \
        typedef double as_double;          \
    };
SIM_INTEGER(char)
SIM_INTEGER(signed char)
SIM_INTEGER(unsigned char)
SIM_INTEGER(short)
SIM_INTEGER(unsigned short)
SIM_INTEGER(int)
SIM_INTEGER(unsigned)
SIM_INTEGER(long)
SIM_INTEGER(unsigned long)
SIM_INTEGER(long long)
SIM_INTEGER(unsigned long long)

#define SIM_MATH1(name)                                   \
    extern "C" double name(double) noexcept;              \
    extern "C" float name##f(float) noexcept;             \
    SIM_DEVICE float name(float x) { return name##f(x); } \
    template <class T> SIM_DEVICE typename sim_if_integer<T>::as_double name(T x) { return name((double)x); }
#define SIM_MATH2(name)                              \
    extern "C" double name(double, double) noexcept; \
    extern "C" float name##f(float, float) noexcept; \
    SIM_DEVICE float name(float x, float y) { return name##f(x, y); }

SIM_MATH1(sin)
SIM_MATH1(cos)
SIM_MATH1(tan)
SIM_MATH1(asin)
SIM_MATH1(acos)
SIM_MATH1(atan)
SIM_MATH1(sinh)
SIM_MATH1(cosh)
SIM_MATH1(tanh)
SIM_MATH1(asinh)
SIM_MATH1(acosh)
SIM_MATH1(atanh)
SIM_MATH1(exp)
SIM_MATH1(exp2)
SIM_MATH1(exp10)
SIM_MATH1(expm1)
SIM_MATH1(log)
SIM_MATH1(log2)
SIM_MATH1(log10)
SIM_MATH1(log1p)
SIM_MATH1(logb)
SIM_MATH1(sqrt)
SIM_MATH1(cbrt)
SIM_MATH1(erf)
SIM_MATH1(erfc)
SIM_MATH1(tgamma)
SIM_MATH1(floor)
SIM_MATH1(ceil)
SIM_MATH1(trunc)
SIM_MATH1(round)
SIM_MATH1(rint)
SIM_MATH1(nearbyint)
SIM_MATH1(fabs)
SIM_MATH2(pow)
SIM_MATH2(atan2)
SIM_MATH2(fmod)
SIM_MATH2(remainder)
SIM_MATH2(hypot)
SIM_MATH2(fdim)
SIM_MATH2(copysign)
SIM_MATH2(nextafter)

extern "C" {
double fma(double, double, double) noexcept;
float fmaf(float, float, float) noexcept;
double ldexp(double, int) noexcept;
float ldexpf(float, int) noexcept;
double frexp(double, int *) noexcept;
float frexpf(float, int *) noexcept;
double scalbn(double, int) noexcept;
float scalbnf(float, int) noexcept;
double modf(double, double *) noexcept;
float modff(float, float *) noexcept;
int ilogb(double) noexcept;
int ilogbf(float) noexcept;
long lrint(double) noexcept;
long lrintf(float) noexcept;
long long llrint(double) noexcept;
long long llrintf(float) noexcept;
long lround(double) noexcept;
long lroundf(float) noexcept;
long long llround(double) noexcept;
long long llroundf(float) noexcept;
}
SIM_DEVICE float fma(float a, float b, float c) { return fmaf(a, b, c); }
SIM_DEVICE float ldexp(float x, int e) { return ldexpf(x, e); }
SIM_DEVICE float frexp(float x, int *e) { return frexpf(x, e); }

SIM_DEVICE float rsqrtf(float x) { return 1.0f / sqrtf(x); }
SIM_DEVICE double rsqrt(double x) { return 1.0 / sqrt(x); }
SIM_DEVICE float rsqrt(float x) { return rsqrtf(x); }
SIM_DEVICE float rcbrtf(float x) { return 1.0f / cbrtf(x); }
SIM_DEVICE double rcbrt(double x) { return 1.0 / cbrt(x); }
SIM_DEVICE double sinpi(double x) { return sin(3.14159265358979323846 * fmod(x, 2.0)); }
SIM_DEVICE double cospi(double x) { return cos(3.14159265358979323846 * fmod(x, 2.0)); }
SIM_DEVICE float sinpif(float x) { return (float)sinpi((double)x); }
SIM_DEVICE float cospif(float x) { return (float)cospi((double)x); }
SIM_DEVICE void sincos(double x, double *s, double *c)
{
    *s = sin(x);
    *c = cos(x);
}
SIM_DEVICE void sincosf(float x, float *s, float *c)
{
    *s = sinf(x);
    *c = cosf(x);
}
SIM_DEVICE void sincospif(float x, float *s, float *c)
{
    *s = sinpif(x);
    *c = cospif(x);
}
SIM_DEVICE void sincospi(double x, double *s, double *c)
{
    *s = sinpi(x);
    *c = cospi(x);
}
/* lgamma of the C library writes the sign to a variable of all threads. */
extern "C" double lgamma_r(double, int *) noexcept;
extern "C" float lgammaf_r(float, int *) noexcept;
SIM_DEVICE double lgamma(double x)
{
    int sign;
    return lgamma_r(x, &sign);
}
SIM_DEVICE float lgammaf(float x)
{
    int sign;
    return lgammaf_r(x, &sign);
}
SIM_DEVICE float lgamma(float x) { return lgammaf(x); }
template <class T> SIM_DEVICE typename sim_if_integer<T>::as_double lgamma(T x) { return lgamma((double)x); }
SIM_DEVICE double normcdf(double x) { return 0.5 * erfc(-x * 0.70710678118654752440); }
SIM_DEVICE float normcdff(float x) { return (float)normcdf((double)x); }
SIM_DEVICE float norm3df(float a, float b, float c) { return sqrtf(a * a + b * b + c * c); }
SIM_DEVICE float norm4df(float a, float b, float c, float d) { return sqrtf(a * a + b * b + c * c + d * d); }
SIM_DEVICE float fdividef(float a, float b) { return a / b; }

/* Newton steps on erf from a rational start (Giles 2010). */
SIM_DEVICE double erfinv(double y)
{
    if (!(y > -1 && y < 1))
        return y == 1 ? __builtin_inf() : y == -1 ? -__builtin_inf() : __builtin_nan("");
    double l = log(1 - y * y), k = 4.3307467508 + l / 2;
    double x = copysign(sqrt(sqrt(k * k - l / 0.147) - k), y);
    for (int i = 0; i < 4; i++)
        x -= (erf(x) - y) / (1.12837916709551257390 * exp(-x * x));
    return x;
}
SIM_DEVICE float erfinvf(float y) { return (float)erfinv((double)y); }

template <class T> SIM_DEVICE bool isnan(T x) { return x != x; }
template <class T> SIM_DEVICE bool isinf(T x) { return __builtin_isinf(x); }
template <class T> SIM_DEVICE bool isfinite(T x) { return __builtin_isfinite(x); }
template <class T> SIM_DEVICE bool signbit(T x) { return __builtin_signbit(x); }

/* ----------------------------------------------------------------------------------------------- min, max, abs */

#define SIM_MIN_MAX(T, A, B)                                         \
    SIM_DEVICE T min(A a, B b) { return (T)b < (T)a ? (T)b : (T)a; } \
    SIM_DEVICE T max(A a, B b) { return (T)a < (T)b ? (T)b : (T)a; }
#define SIM_MIN_MAX_INTEGERS(S, U) \
    SIM_MIN_MAX(S, S, S)           \
    SIM_MIN_MAX(U, U, U)           \
    SIM_MIN_MAX(U, S, U)           \
    SIM_MIN_MAX(U, U, S)
SIM_MIN_MAX_INTEGERS(int, unsigned)
SIM_MIN_MAX_INTEGERS(long, unsigned long)
SIM_MIN_MAX_INTEGERS(long long, unsigned long long)

/* NaN loses, as in IEEE 754 minNum and CUDA. */
#define SIM_FMIN_FMAX(T, suffix)                                            \
    SIM_DEVICE T fmin##suffix(T a, T b) { return b < a || a != a ? b : a; } \
    SIM_DEVICE T fmax##suffix(T a, T b) { return a < b || a != a ? b : a; } \
    SIM_DEVICE T min(T a, T b) { return fmin##suffix(a, b); }               \
    SIM_DEVICE T max(T a, T b) { return fmax##suffix(a, b); }
SIM_FMIN_FMAX(float, f)
SIM_FMIN_FMAX(double, )
SIM_DEVICE float fmin(float a, float b) { return fminf(a, b); }
SIM_DEVICE float fmax(float a, float b) { return fmaxf(a, b); }
SIM_DEVICE double min(float a, double b) { return fmin((double)a, b); }
SIM_DEVICE double min(double a, float b) { return fmin(a, (double)b); }
SIM_DEVICE double max(float a, double b) { return fmax((double)a, b); }
SIM_DEVICE double max(double a, float b) { return fmax(a, (double)b); }

SIM_DEVICE int abs(int x) { return x < 0 ? -x : x; }
SIM_DEVICE long abs(long x) { return x < 0 ? -x : x; }
SIM_DEVICE long long abs(long long x) { return x < 0 ? -x : x; }
SIM_DEVICE float abs(float x) { return fabsf(x); }
SIM_DEVICE double abs(double x) { return fabs(x); }
SIM_DEVICE long labs(long x) { return abs(x); }
SIM_DEVICE long long llabs(long long x) { return abs(x); }

/* --------------------------------------------------------------------------------- fast and rounded arithmetic */

SIM_DEVICE float __sinf(float x) { return sinf(x); }
SIM_DEVICE float __cosf(float x) { return cosf(x); }
SIM_DEVICE float __tanf(float x) { return tanf(x); }
SIM_DEVICE void __sincosf(float x, float *s, float *c) { sincosf(x, s, c); }
SIM_DEVICE float __expf(float x) { return expf(x); }
SIM_DEVICE float __exp10f(float x) { return exp10f(x); }
SIM_DEVICE float __logf(float x) { return logf(x); }
SIM_DEVICE float __log2f(float x) { return log2f(x); }
SIM_DEVICE float __log10f(float x) { return log10f(x); }
SIM_DEVICE float __powf(float x, float y) { return powf(x, y); }
SIM_DEVICE float __tanhf(float x) { return tanhf(x); }
SIM_DEVICE float __fdividef(float a, float b) { return a / b; }
SIM_DEVICE float __saturatef(float x) { return x > 0 ? (x < 1 ? x : 1.0f) : 0.0f; }
SIM_DEVICE float __frsqrt_rn(float x) { return (float)(1.0 / sqrt((double)x)); }

/* The host rounds to nearest; separate functions keep the compiler from fusing them. */
#define SIM_ROUNDED(T, prefix)                                                                \
    static __attribute__((noinline, unused)) T __##prefix##mul_rn(T a, T b) { return a * b; } \
    SIM_DEVICE T __##prefix##add_rn(T a, T b)                                                 \
    {                                                                                         \
        volatile T r = a + b;                                                                 \
        return r;                                                                             \
    }                                                                                         \
    SIM_DEVICE T __##prefix##sub_rn(T a, T b)                                                 \
    {                                                                                         \
        volatile T r = a - b;                                                                 \
        return r;                                                                             \
    }
SIM_ROUNDED(float, f)
SIM_ROUNDED(double, d)
SIM_DEVICE float __fdiv_rn(float a, float b) { return a / b; }
SIM_DEVICE double __ddiv_rn(double a, double b) { return a / b; }
SIM_DEVICE float __frcp_rn(float a) { return 1.0f / a; }
SIM_DEVICE double __drcp_rn(double a) { return 1.0 / a; }
SIM_DEVICE float __fsqrt_rn(float a) { return sqrtf(a); }
SIM_DEVICE double __dsqrt_rn(double a) { return sqrt(a); }
SIM_DEVICE float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
SIM_DEVICE float __fmaf_ieee_rn(float a, float b, float c) { return fmaf(a, b, c); }
SIM_DEVICE double __fma_rn(double a, double b, double c) { return fma(a, b, c); }

/* ------------------------------------------------------------------------------------------------ conversions */

template <class To, class From> SIM_DEVICE To sim_bits(From x)
{
    static_assert(sizeof(To) == sizeof(From), "");
    To r;
    __builtin_memcpy(&r, &x, sizeof r);
    return r;
}
SIM_DEVICE int __float_as_int(float x) { return sim_bits<int>(x); }
SIM_DEVICE unsigned __float_as_uint(float x) { return sim_bits<unsigned>(x); }
SIM_DEVICE float __int_as_float(int x) { return sim_bits<float>(x); }
SIM_DEVICE float __uint_as_float(unsigned x) { return sim_bits<float>(x); }
SIM_DEVICE long long __double_as_longlong(double x) { return sim_bits<long long>(x); }
SIM_DEVICE double __longlong_as_double(long long x) { return sim_bits<double>(x); }
SIM_DEVICE int __double2hiint(double x) { return (int)(__double_as_longlong(x) >> 32); }
SIM_DEVICE int __double2loint(double x) { return (int)__double_as_longlong(x); }
SIM_DEVICE double __hiloint2double(int high, int low)
{
    return __longlong_as_double((long long)(((unsigned long long)(unsigned)high << 32) | (unsigned)low));
}

/* Converts to an integer type with saturation; NaN becomes 0. */
template <class T> SIM_DEVICE T sim_saturate(double x)
{
    const bool is_signed = (T)-1 < (T)0;
    const int bits = (int)sizeof(T) * 8 - is_signed;
    const double limit = (double)(1ull << (bits - 1)) * 2; /* 2^bits */
    const T largest = is_signed ? (T) ~(1ull << (sizeof(T) * 8 - 1)) : (T)~0ull;
    if (x != x)
        return 0;
    if (x >= limit)
        return largest;
    if (x <= (is_signed ? -limit : 0.0))
        return is_signed ? (T)~largest : (T)0;
    return (T)x;
}
#define SIM_TO_INTEGER(from, From, to, To)                                                   \
    SIM_DEVICE To __##from##2##to##_rn(From x) { return sim_saturate<To>(rint((double)x)); } \
    SIM_DEVICE To __##from##2##to##_rz(From x) { return sim_saturate<To>((double)x); }       \
    SIM_DEVICE To __##from##2##to##_ru(From x) { return sim_saturate<To>(ceil((double)x)); } \
    SIM_DEVICE To __##from##2##to##_rd(From x) { return sim_saturate<To>(floor((double)x)); }
SIM_TO_INTEGER(float, float, int, int)
SIM_TO_INTEGER(float, float, uint, unsigned)
SIM_TO_INTEGER(float, float, ll, long long)
SIM_TO_INTEGER(float, float, ull, unsigned long long)
SIM_TO_INTEGER(double, double, int, int)
SIM_TO_INTEGER(double, double, uint, unsigned)
SIM_TO_INTEGER(double, double, ll, long long)
SIM_TO_INTEGER(double, double, ull, unsigned long long)
SIM_DEVICE float __int2float_rn(int x) { return (float)x; }
SIM_DEVICE float __uint2float_rn(unsigned x) { return (float)x; }
SIM_DEVICE float __ll2float_rn(long long x) { return (float)x; }
SIM_DEVICE float __ull2float_rn(unsigned long long x) { return (float)x; }
SIM_DEVICE double __int2double_rn(int x) { return (double)x; }
SIM_DEVICE double __uint2double_rn(unsigned x) { return (double)x; }
SIM_DEVICE double __ll2double_rn(long long x) { return (double)x; }
SIM_DEVICE double __ull2double_rn(unsigned long long x) { return (double)x; }
SIM_DEVICE float __double2float_rn(double x) { return (float)x; }

/* Truncates toward zero, to a float. The value is exact in the extended type. */
SIM_DEVICE float sim_toward_zero(long double x)
{
    float r = (float)x;
    return (r < 0 ? -(long double)r : (long double)r) > (x < 0 ? -x : x) ? sim_bits<float>(sim_bits<unsigned>(r) - 1)
                                                                         : r;
}
SIM_DEVICE float __double2float_rz(double x) { return sim_toward_zero(x); }
SIM_DEVICE float __int2float_rz(int x) { return sim_toward_zero(x); }
SIM_DEVICE float __uint2float_rz(unsigned x) { return sim_toward_zero(x); }
SIM_DEVICE float __ll2float_rz(long long x) { return sim_toward_zero(x); }
SIM_DEVICE float __ull2float_rz(unsigned long long x) { return sim_toward_zero(x); }

/* ------------------------------------------------------------------------------------------------------- bits */

SIM_DEVICE int __clz(int x) { return x ? __builtin_clz((unsigned)x) : 32; }
SIM_DEVICE int __clzll(long long x) { return x ? __builtin_clzll((unsigned long long)x) : 64; }
SIM_DEVICE int __popc(unsigned x) { return __builtin_popcount(x); }
SIM_DEVICE int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
SIM_DEVICE int __ffs(int x) { return __builtin_ffs(x); }
SIM_DEVICE int __ffsll(long long x) { return __builtin_ffsll(x); }
SIM_DEVICE unsigned __brev(unsigned x)
{
    x = (x >> 1 & 0x55555555u) | (x & 0x55555555u) << 1;
    x = (x >> 2 & 0x33333333u) | (x & 0x33333333u) << 2;
    x = (x >> 4 & 0x0f0f0f0fu) | (x & 0x0f0f0f0fu) << 4;
    return __builtin_bswap32(x);
}
SIM_DEVICE unsigned long long __brevll(unsigned long long x)
{
    return (unsigned long long)__brev((unsigned)x) << 32 | __brev((unsigned)(x >> 32));
}
SIM_DEVICE unsigned __byte_perm(unsigned a, unsigned b, unsigned selector)
{
    unsigned long long bytes = (unsigned long long)b << 32 | a;
    unsigned r = 0;
    for (int i = 0; i < 4; i++) {
        unsigned s = selector >> 4 * i, byte = (unsigned)(bytes >> 8 * (s & 7)) & 0xff;
        if (s & 8)
            byte = byte & 0x80 ? 0xff : 0; /* replicate the sign */
        r |= byte << 8 * i;
    }
    return r;
}
SIM_DEVICE int __mulhi(int a, int b) { return (int)((long long)a * b >> 32); }
SIM_DEVICE unsigned __umulhi(unsigned a, unsigned b) { return (unsigned)((unsigned long long)a * b >> 32); }
SIM_DEVICE long long __mul64hi(long long a, long long b) { return (long long)((__int128)a * b >> 64); }
SIM_DEVICE unsigned long long __umul64hi(unsigned long long a, unsigned long long b)
{
    return (unsigned long long)((unsigned __int128)a * b >> 64);
}
SIM_DEVICE int __mul24(int a, int b) { return (a << 8 >> 8) * (b << 8 >> 8); }
SIM_DEVICE unsigned __umul24(unsigned a, unsigned b) { return (a & 0xffffff) * (b & 0xffffff); }
SIM_DEVICE unsigned __sad(int a, int b, unsigned c) { return c + (unsigned)(a > b ? a - b : b - a); }
SIM_DEVICE unsigned __usad(unsigned a, unsigned b, unsigned c) { return c + (a > b ? a - b : b - a); }
SIM_DEVICE int __hadd(int a, int b) { return (int)(((long long)a + b) >> 1); }
SIM_DEVICE unsigned __funnelshift_l(unsigned low, unsigned high, unsigned n)
{
    return (unsigned)((((unsigned long long)high << 32 | low) << (n & 31)) >> 32);
}
SIM_DEVICE unsigned __funnelshift_r(unsigned low, unsigned high, unsigned n)
{
    return (unsigned)(((unsigned long long)high << 32 | low) >> (n & 31));
}
SIM_DEVICE unsigned __funnelshift_lc(unsigned low, unsigned high, unsigned n)
{
    return n >= 32 ? low : __funnelshift_l(low, high, n);
}
SIM_DEVICE unsigned __funnelshift_rc(unsigned low, unsigned high, unsigned n)
{
    return n >= 32 ? high : __funnelshift_r(low, high, n);
}
SIM_DEVICE int __dp4a(int a, int b, int c)
{
    for (int i = 0; i < 32; i += 8)
        c += (signed char)(a >> i) * (signed char)(b >> i);
    return c;
}
SIM_DEVICE unsigned __dp4a(unsigned a, unsigned b, unsigned c)
{
    for (int i = 0; i < 32; i += 8)
        c += (a >> i & 0xff) * (b >> i & 0xff);
    return c;
}

#endif
