// SPDX-License-Identifier: MIT
/*  reduce.cu - sums along one dimension of an array [outer, n, inner], giving [outer, inner]

    One program per floating element type: compiled with -DIGNIS_T=<ignis_dtype>. Sums in float (double for
    double).

        ignis_sum_rows, ignis_dot_rows          inner == 1: threads side by side read along n
        ignis_sum_columns, ignis_dot_columns    inner > 1: threads side by side read along inner, each for itself
        ignis_sum_finish                        the parts of any of these

    sum sums the elements of a, dot the products of those of a and b; the result is multiplied with factor. A
    sum is cut into parts of part_length elements along n (the last may be shorter), so that a few long sums
    keep the whole device busy. With parts == 1 the first kernel writes dst; otherwise it writes partial
    [parts, outer * inner], and ignis_sum_finish adds the parts up. The order of all additions follows from
    the launch alone, so equal launches give equal bits. blockDim.x and blockDim.y are powers of two, the grid
    may have any number of blocks. */
#include "ignis.cuh"
#include "shared/reduce.h"

typedef ignis_type<IGNIS_T> T;
typedef ignis_wide<T> Wide;

#define MAX_THREADS IGNIS__SUM_THREADS
#define IN_FLIGHT 4 /* packs that a thread loads before it adds the first one up */

/*  N elements, or 0. */
template <int N, typename S> __device__ inline ignis_pack<S, N> load_if(bool exists, const S *from)
{
    ignis_pack<S, N> pack = {};
    if (exists)
        pack = ignis_load_streaming<N>(from);
    return pack;
}

/* >>rows -------------------------------------------------------------------------------------------------------- */

/*  The share of the thread x of the sum over count packs of N elements. */
template <int N, bool dot> __device__ inline Wide sum_share(const T *a, const T *b, long long count)
{
    const int threads = blockDim.x;
    Wide sum[IN_FLIGHT] = {};
    for (long long i = threadIdx.x; i < count; i += IN_FLIGHT * threads) {
        ignis_pack<T, N> x[IN_FLIGHT], y[IN_FLIGHT];
#pragma unroll
        for (int k = 0; k < IN_FLIGHT; k++) {
            x[k] = load_if<N>(i + k * threads < count, a + (i + k * threads) * N);
            if (dot)
                y[k] = load_if<N>(i + k * threads < count, b + (i + k * threads) * N);
        }
#pragma unroll
        for (int k = 0; k < IN_FLIGHT; k++)
#pragma unroll
            for (int j = 0; j < N; j++)
                sum[k] += dot ? Wide(x[k][j]) * Wide(y[k][j]) : Wide(x[k][j]);
    }
    return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

/*  The threads of a block with equal y, 32 or all of them, do one part of one row. With blockDim.x > 32,
    blockDim.y is 1. */
template <bool dot>
__device__ inline void sum_rows(T *dst, Wide *partial, const T *a, const T *b, const ignis__sum_sizes s)
{
    constexpr int N = 16 / sizeof(T);
    const long long items = s.outer * s.parts, step = (long long)gridDim.x * blockDim.y;
    for (long long first = (long long)blockIdx.x * blockDim.y; first < items; first += step) {
        const long long item =
            min(first + threadIdx.y, items - 1); /* spare threads repeat the last one, as shuffles need them */
        const long long row = item / s.parts, part = item % s.parts;
        const long long at = row * s.n + part * s.part_length, length = min(s.part_length, s.n - part * s.part_length);
        const T *from = a + at, *other = dot ? b + at : nullptr;

        /* A part may begin and end within a pack; a and b can be read in packs together if they do so at the
           same element. */
        const bool packs = !dot || ((size_t)from - (size_t)other) % 16 == 0;
        const long long head = packs ? min(length, (long long)((16 - (size_t)from % 16) % 16 / sizeof(T))) : length;
        const long long body = (length - head) / N * N, tail = length - head - body;
        Wide sum = sum_share<1, dot>(from, other, head);
        sum += sum_share<N, dot>(from + head, other + head, body / N);
        sum += sum_share<1, dot>(from + head + body, other + head + body, tail);

        sum = blockDim.x == 32 ? ignis_warp_sum(sum) : ignis_block_sum(sum);
        if (threadIdx.x == 0 && first + threadIdx.y < items) {
            if (s.parts == 1)
                dst[row] = T(Wide(s.factor) * sum);
            else
                partial[part * s.outer + row] = sum;
        }
    }
}

extern "C" __global__ void __launch_bounds__(MAX_THREADS, 2)
    ignis_sum_rows(T *dst, Wide *partial, const T *a, const ignis__sum_sizes s)
{
    ignis_grid_dependency();
    sum_rows<false>(dst, partial, a, nullptr, s);
}

extern "C" __global__ void __launch_bounds__(MAX_THREADS, 1)
    ignis_dot_rows(T *dst, Wide *partial, const T *a, const T *b, const ignis__sum_sizes s)
{
    ignis_grid_dependency();
    sum_rows<true>(dst, partial, a, b, s);
}

/* >>columns ----------------------------------------------------------------------------------------------------- */

/*  Sums the rows of src; each thread sums every blockDim.y-th in N columns. Then the threads with equal x sum
    their results in shared memory, and the first of them writes it. */
template <int N, bool dot, typename S>
__device__ inline void sum_columns(T *dst, Wide *partial, const S *a, const S *b, const ignis__sum_sizes s,
                                   Wide *shared)
{
    const Wide factor = Wide(s.factor);
    const int threads = blockDim.x * blockDim.y, thread = threadIdx.y * blockDim.x + threadIdx.x;
    const long long width = (long long)blockDim.x * N, tiles = (s.inner + width - 1) / width;
    for (long long item = blockIdx.x; item < s.outer * s.parts * tiles; item += gridDim.x) {
        const long long tile = item % tiles, part = item / tiles % s.parts, group = item / tiles / s.parts;
        const long long column = tile * width + threadIdx.x * N;
        const long long begin = part * s.part_length, end = column < s.inner ? min(begin + s.part_length, s.n) : begin;
        const long long at = group * s.n * s.inner + column;
        Wide sum[N] = {};

        for (long long row = begin + threadIdx.y; row < end; row += IN_FLIGHT * blockDim.y) {
            ignis_pack<S, N> x[IN_FLIGHT], y[IN_FLIGHT];
#pragma unroll
            for (int k = 0; k < IN_FLIGHT; k++) {
                const long long its_row = row + k * blockDim.y;
                x[k] = load_if<N>(its_row < end, a + at + its_row * s.inner);
                if (dot)
                    y[k] = load_if<N>(its_row < end, b + at + its_row * s.inner);
            }
#pragma unroll
            for (int k = 0; k < IN_FLIGHT; k++)
#pragma unroll
                for (int i = 0; i < N; i++)
                    sum[i] += dot ? Wide(x[k][i]) * Wide(y[k][i]) : Wide(x[k][i]);
        }

        for (int rows = blockDim.y / 2; rows > 0; rows /= 2) {
            if (threadIdx.y >= rows && threadIdx.y < 2 * rows) {
#pragma unroll
                for (int i = 0; i < N; i++)
                    shared[i * threads + thread] = sum[i];
            }
            __syncthreads();
            if (threadIdx.y < rows) {
#pragma unroll
                for (int i = 0; i < N; i++)
                    sum[i] += shared[i * threads + thread + rows * blockDim.x];
            }
        } /* the next round writes to memory that no thread reads any more: below this round's */

        if (threadIdx.y == 0 && column < s.inner) {
            if (s.parts == 1) {
                ignis_pack<T, N> result;
#pragma unroll
                for (int i = 0; i < N; i++)
                    result[i] = T(factor * sum[i]);
                ignis_store(dst + group * s.inner + column, result);
            } else {
#pragma unroll
                for (int i = 0; i < N; i++)
                    partial[(part * s.outer + group) * s.inner + column + i] = sum[i];
            }
        }
        __syncthreads(); /* before the next item's shared memory */
    }
}

template <bool dot, typename S>
__device__ inline void sum_columns_in_packs(T *dst, Wide *partial, const S *a, const S *b, const ignis__sum_sizes s)
{
    constexpr int N = 16 / sizeof(S);
    __shared__ Wide shared[N * MAX_THREADS];
    const bool packs =
        s.inner % N == 0 && ignis_is_aligned(a, 16) && ignis_is_aligned(b, 16) && ignis_is_aligned(dst, N * sizeof(T));
    if (packs)
        sum_columns<N, dot>(dst, partial, a, b, s, shared);
    else
        sum_columns<1, dot>(dst, partial, a, b, s, shared);
}

extern "C" __global__ void __launch_bounds__(MAX_THREADS, 2)
    ignis_sum_columns(T *dst, Wide *partial, const T *a, const ignis__sum_sizes s)
{
    ignis_grid_dependency();
    sum_columns_in_packs<false, T>(dst, partial, a, nullptr, s);
}

extern "C" __global__ void __launch_bounds__(MAX_THREADS, 1)
    ignis_dot_columns(T *dst, Wide *partial, const T *a, const T *b, const ignis__sum_sizes s)
{
    ignis_grid_dependency();
    sum_columns_in_packs<true>(dst, partial, a, b, s);
}

/*  dst[i] = factor * (the sum of partial[part, i] over all parts): outer is 1, n the parts, inner the elements. */
extern "C" __global__ void __launch_bounds__(MAX_THREADS, 2)
    ignis_sum_finish(T *dst, const Wide *partial, const ignis__sum_sizes s)
{
    ignis_grid_dependency();
    sum_columns_in_packs<false, Wide>(dst, nullptr, partial, nullptr, s);
}
