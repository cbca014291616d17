// SPDX-License-Identifier: MIT
/*  quantize.cu - numbers as floats of 8 bits and a scale, q = x / scale: of each row of [rows, n], or of all

    The scale makes the largest number the largest one that the type has; it is 1 where all are zero. One
    program per type of x: compiled with -DIGNIS_T=<1 to 4>; of each kernel there is one for e4m3 and one for
    e5m2. Rows are shorter than 2^30: see ignis_row in ignis.cuh for how a row is shared out; kernels named
    _warp are for rows that a warp has in registers, and packed; _block takes any, in blocks of 32 to 512
    threads, with kept rounds in dynamic shared memory. packed: x begins at a multiple of 16 bytes. Any grid
    will do. */
#include "ignis.cuh"

typedef ignis_type<IGNIS_T> T;
typedef ignis_wide<T> Wide;

constexpr int PACK = 16 / (int)sizeof(T); /* elements */

template <typename Q> __device__ inline float scale_for(float largest)
{
    const float scale = largest / (ignis_is_same<Q, ignis_f8_e4m3> ? 448.0f : 57344.0f),
                least = 1.17549435e-38f;                     /* its inverse is finite */
    return largest == 0 ? 1 : scale < least ? least : scale; /* NaN stays */
}

template <typename P> __device__ inline Wide largest_of(Wide largest, const P &x)
{
#pragma unroll
    for (int i = 0; i < x.count; i++)
        largest = ignis_max::combine(largest, Wide(fabs(ignis_wide_at(x, i))));
    return largest;
}

template <typename Q, typename P> __device__ inline void store_scaled(Q *to, const P &x, float inverse)
{
    float values[ignis_pack_count<P>];
#pragma unroll
    for (int i = 0; i < x.count; i++)
        values[i] = float(ignis_wide_at(x, i)) * inverse;
    ignis_store(to, ignis_pack_round<Q>(values));
}

template <typename Q, typename Team, int N>
__device__ inline void rows_of(Q *q, float *scale, const T *x, long long rows, long long n, int kept)
{
    for (long long r = Team::first(); r < rows; r += Team::count()) {
        const T *from = x + r * n;
        const ignis_row<T, Team, N> row(from, n, kept);
        ignis_batch<T, N> xs;
        Wide largest = 0;
        int last = 0;
        for (int round = 0; row.has(round); round++) {
            row.load(xs, from, round);
            row.keep(xs, round);
            row.each(
                round, [&](int, auto &x) { largest = largest_of(largest, x); }, xs);
            last = round;
        }
        const float factor = scale_for<Q>(float(Team::template reduce<ignis_max>(largest))), inverse = 1 / factor;
        if (Team::thread() == 0)
            scale[r] = factor;
        for (int round = last; round >= 0; round--) {
            if (round != last)
                row.recall(xs, from, round);
            row.each(
                round, [&](int column, auto &x) { store_scaled(q + r * n + column, x, inverse); }, xs);
        }
    }
}

/*  Finds the largest size of all numbers, as the bits of a float, which have the same order; then quantizes. */
template <int N> __device__ inline void largest_of_all(unsigned *largest, const T *x, long long count)
{
    const long long thread = blockIdx.x * (long long)blockDim.x + threadIdx.x,
                    threads = gridDim.x * (long long)blockDim.x;
    Wide mine = 0;
    for (long long i = thread; i < count / N; i += threads)
        mine = largest_of(mine, ignis_load<N>(x + i * N));
    for (long long i = count / N * N + thread; i < count; i += threads)
        mine = largest_of(mine, ignis_load<1>(x + i));
    mine = ignis_block_max(mine);
    if (threadIdx.x == 0)
        atomicMax(largest, __float_as_uint(float(mine)));
}

template <typename Q, int N>
__device__ inline void scale_all(Q *q, float *scale, const T *x, const unsigned *largest, long long count)
{
    const long long thread = blockIdx.x * (long long)blockDim.x + threadIdx.x,
                    threads = gridDim.x * (long long)blockDim.x;
    const float factor = scale_for<Q>(__uint_as_float(*largest)), inverse = 1 / factor;
    if (thread == 0)
        *scale = factor;
    for (long long i = thread; i < count / N; i += threads)
        store_scaled(q + i * N, ignis_load<N>(x + i * N), inverse);
    for (long long i = count / N * N + thread; i < count; i += threads)
        store_scaled(q + i, ignis_load<1>(x + i), inverse);
}

extern "C" __global__ void __launch_bounds__(256)
    ignis_quantize_largest(unsigned *largest, const T *x, long long count, int packed)
{
    ignis_grid_dependency();
    if (packed)
        largest_of_all<PACK>(largest, x, count);
    else
        largest_of_all<1>(largest, x, count);
}

#define IGNIS_QUANTIZE(name, Q)                                                                                     \
    extern "C" __global__ void __launch_bounds__(128)                                                               \
        ignis_quantize_##name##_warp(Q *q, float *scale, const T *x, long long rows, long long n)                   \
    {                                                                                                               \
        ignis_grid_dependency();                                                                                    \
        rows_of<Q, ignis_warp_team, PACK>(q, scale, x, rows, n, 0);                                                 \
    }                                                                                                               \
    extern "C" __global__ void __launch_bounds__(512) ignis_quantize_##name##_block(                                \
        Q *q, float *scale, const T *x, long long rows, long long n, int packed, int kept)                          \
    {                                                                                                               \
        ignis_grid_dependency();                                                                                    \
        if (packed)                                                                                                 \
            rows_of<Q, ignis_block_team, PACK>(q, scale, x, rows, n, kept);                                         \
        else                                                                                                        \
            rows_of<Q, ignis_block_team, 1>(q, scale, x, rows, n, 0);                                               \
    }                                                                                                               \
    extern "C" __global__ void __launch_bounds__(256)                                                               \
        ignis_quantize_##name(Q *q, float *scale, const T *x, const unsigned *largest, long long count, int packed) \
    {                                                                                                               \
        ignis_grid_dependency();                                                                                    \
        if (packed)                                                                                                 \
            scale_all<Q, PACK>(q, scale, x, largest, count);                                                        \
        else                                                                                                        \
            scale_all<Q, 1>(q, scale, x, largest, count);                                                           \
    }
IGNIS_QUANTIZE(f8_e4m3, ignis_f8_e4m3)
IGNIS_QUANTIZE(f8_e5m2, ignis_f8_e5m2)
