// SPDX-License-Identifier: MIT
/*  pattern.cu - arrays whose elements follow from their places: lines, diagonals, triangles, one-hot rows

    One program per element type: compiled with -DIGNIS_T=<ignis_dtype>. Blocks have THREADS threads, and do
    TILE elements each. */
#include "ignis.cuh"

typedef ignis_type<IGNIS_T> T;

#define THREADS 256
#define TILE 4096
#define PACK (16 / (int)sizeof(T))

/*  f(i, N elements of dst from i on) for all of this block's, in packs if dst is aligned and N are left, else
    one by one. */
template <typename F> __device__ inline void each(T *dst, long long n, F f)
{
    const long long first = (long long)blockIdx.x * TILE, end = min(first + TILE, n);
    const long long packed = ignis_is_aligned(dst, 16) ? first + (end - first) / PACK * PACK : first;
    for (long long i = first + threadIdx.x * PACK; i < packed; i += THREADS * PACK) {
        ignis_pack<T, PACK> pack;
        f(i, pack);
        ignis_store(dst + i, pack);
    }
    for (long long i = packed + threadIdx.x; i < end; i += THREADS) {
        ignis_pack<T, 1> one;
        f(i, one);
        ignis_store(dst + i, one);
    }
}

/*  i / size, in 32 bits where that is enough. */
__device__ inline long long quotient(long long i, long long size)
{
    return ((i | size) >> 31) == 0 ? (long long)((uint32_t)i / (uint32_t)size) : i / size;
}

/*  Writes numbers from start on in equal steps. The second half counts back from the last, so that it is
    exact, unless half is n or more. 64 bits continue in integer steps, as a double has 53. */
extern "C" __global__ void __launch_bounds__(THREADS)
    ignis_line(T *dst, double start, double last, double step, long long half, long long n)
{
    if constexpr (ignis_is_same<T, int64_t>) {
        const double limit = 4611686018427387904., end = fma((double)n, step, start);
        if (start == trunc(start) && step == trunc(step) && (half >= n || end - step == last) && fabs(start) < limit &&
            fabs(end) < limit) {
            const int64_t first = (int64_t)start, by = (int64_t)step;
            each(dst, n, [=](long long i, auto &pack) {
#pragma unroll
                for (int e = 0; e < pack.count; e++)
                    pack[e] = ignis_convert<T>(first + (int64_t)(i + e) * by);
            });
            return;
        }
    }
    each(dst, n, [=](long long i, auto &pack) {
#pragma unroll
        for (int e = 0; e < pack.count; e++) {
            const long long at = i + e;
            pack[e] =
                ignis_convert<T>(at < half ? fma((double)at, step, start) : fma(-(double)(n - 1 - at), step, last));
        }
    });
}

/*  Writes matrices [rows, columns], kept where low <= column - row <= high, else 0; of ones if src is null. */
extern "C" __global__ void __launch_bounds__(THREADS)
    ignis_band(T *dst, const T *src, long long rows, long long columns, long long low, long long high, long long n)
{
    each(dst, n, [=](long long i, auto &pack) {
        constexpr int N = ignis_pack_count<decltype(pack)>;
        long long row = quotient(i, columns), column = i - row * columns;
        row -= quotient(row, rows) * rows;
        if (src && ignis_is_aligned(src, 16))
            pack = ignis_load<N>(src + i);
#pragma unroll
        for (int e = 0; e < N; e++) {
            const long long diagonal = column - row;
            const bool keep = low <= diagonal && diagonal <= high;
            if (!keep)
                pack[e] = T(0);
            else if (!src)
                pack[e] = T(1);
            else if (!ignis_is_aligned(src, 16))
                pack[e] = src[i + e];
            if (++column == columns) {
                column = 0;
                row = row + 1 == rows ? 0 : row + 1;
            }
        }
    });
}

/*  Writes dst [ids, classes]: 1 at the id of the row, else 0. */
extern "C" __global__ void __launch_bounds__(THREADS)
    ignis_one_hot(T *dst, const void *ids, int id_bytes, long long classes, long long n)
{
    each(dst, n, [=](long long i, auto &pack) {
        long long row = quotient(i, classes), column = i - row * classes, id = ignis_index(ids, id_bytes, row);
#pragma unroll
        for (int e = 0; e < pack.count; e++) {
            pack[e] = T(column == id ? 1 : 0);
            if (++column == classes) {
                column = 0;
                row++;
                if (i + e + 1 < n)
                    id = ignis_index(ids, id_bytes, row);
            }
        }
    });
}
