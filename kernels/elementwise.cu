// SPDX-License-Identifier: MIT
/*  elementwise.cu - arithmetic and conversion, element by element

    One program per element type: compiled with -DIGNIS_T=<ignis_dtype>.
    Launched as ignis_map asks for: blocks of 256 threads, of which each does 4096 elements: grid = ceil(n /
    4096). dst may be a source. Pointers are aligned to their elements; where they are aligned to packs too,
    packs are used. */
#include "ignis.cuh"

typedef ignis_type<IGNIS_T> T;
#include "shared/addends.h"

#define THREADS IGNIS_MAP_THREADS

extern "C" __global__ void __launch_bounds__(THREADS) ignis_fill(T *dst, T value, long long n)
{
    ignis_map(
        n, [=] { return value; }, dst);
}

extern "C" __global__ void __launch_bounds__(THREADS) ignis_add(T *dst, const T *a, const T *b, long long n)
{
    typedef ignis_wide<T> Wide;
    ignis_map(
        n, [](T x, T y) { return T(Wide(x) + Wide(y)); }, dst, a, b);
}

extern "C" __global__ void __launch_bounds__(THREADS) ignis_add_each(ignis__addends addends, int count)
{
    typedef ignis_wide<T> Wide;
    int low = 0, high = count; /* the array is the last one that begins at this block or before it */
    while (high - low > 1) {
        const int middle = (low + high) / 2;
        if (addends.at[middle].first_block <= blockIdx.x)
            low = middle;
        else
            high = middle;
    }
    const ignis__addend addend = addends.at[low];
    ignis_grid_dependency();
    ignis_map_tile(
        blockIdx.x - addend.first_block, addend.n, [](T x, T y) { return T(Wide(x) + Wide(y)); }, addend.dst,
        ignis_reader(addend.dst), ignis_reader(addend.src));
}

extern "C" __global__ void __launch_bounds__(THREADS) ignis_mul(T *dst, const T *a, const T *b, long long n)
{
    typedef ignis_wide<T> Wide;
    ignis_map(
        n, [](T x, T y) { return T(Wide(x) * Wide(y)); }, dst, a, b);
}

extern "C" __global__ void __launch_bounds__(THREADS) ignis_scale(T *dst, const T *src, double factor, long long n)
{
    typedef ignis_wide<ignis_type<ignis_is_integer<T> ? IGNIS_F64 : IGNIS_T>> Wide; /* a double holds every int32_t */
    const Wide wide_factor = (Wide)factor;
    if constexpr (ignis_is_same<T, int64_t>) { /* by an integer in 64 bits, as far as that reaches: doubles have 53 */
        const double limit = 9223372036854773760.;
        const int64_t whole = factor == trunc(factor) && fabs(factor) < limit ? (int64_t)factor : 0;
        if (whole != 0) {
            const auto times = [=](T x) {
                const double product = (double)x * factor;
                return ignis_convert<T>(fabs(product) < limit ? (int64_t)((uint64_t)x * (uint64_t)whole)
                                                              : ignis_convert<int64_t>(product));
            };
            ignis_map(n, times, dst, src);
            return;
        }
    }
    ignis_map(
        n, [=](T x) { return ignis_convert<T>(Wide(x) * wide_factor); }, dst, src);
}

#define IGNIS_CAST(name, dtype, D)                                                                             \
    extern "C" __global__ void __launch_bounds__(THREADS) ignis_cast_##name(D *dst, const T *src, long long n) \
    {                                                                                                          \
        ignis_map(                                                                                             \
            n, [](T x) { return ignis_convert<D>(x); }, dst, src);                                             \
    }
IGNIS_DTYPES(IGNIS_CAST)
