// SPDX-License-Identifier: MIT
/*  scan.cu - sums of all elements up to each one, along one dimension

        dst[outer, i, inner] = the sum of src[outer, j, inner] over all j <= i, or over all j >= i if reverse

    Computed in ignis_wide<T>, and rounded once. Where there are few sums, they are cut into parts of part_length: ignis_scan_parts writes
    the sum of each to partial [outer, parts, inner], and ignis_scan adds those before its own. The order of all additions follows from the
    launch alone, so equal launches give equal bits.

    One program per element type: compiled with -DIGNIS_T=<ignis_dtype>. Blocks have THREADS threads, grids any number of blocks.
*/
#include "ignis.cuh"

typedef ignis_type<IGNIS_T> T;
typedef ignis_wide<T> Wide;

#define THREADS 256
#define PACK (sizeof(T) == 1 ? 8 : 16 / (int)sizeof(T)) /* consecutive elements of a thread */
#define IN_FLIGHT 8                                     /* rows that a thread of the columns loads before it adds the first */

/*  The sum of x over all threads of the team before this one; *all becomes that over the whole team. */
template <typename Team> __device__ inline Wide sum_before(Wide x, Wide *all)
{
    __shared__ Wide warp_sums[THREADS / 32];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    Wide sum = x, before = 0;
#pragma unroll
    for (int distance = 1; distance < 32; distance *= 2) {
        const Wide lower = __shfl_up_sync(0xffffffff, sum, distance);
        if (lane >= distance)
            sum = lower + sum;
    }
    const Wide up_to_me = sum;
    if constexpr (Team::is_block) {
        __syncthreads();
        if (lane == 31)
            warp_sums[warp] = sum;
        __syncthreads();
        *all = 0;
#pragma unroll
        for (int w = 0; w < THREADS / 32; w++) {
            if (w == warp)
                before = *all;
            *all += warp_sums[w];
        }
    } else {
        *all = __shfl_sync(0xffffffff, sum, 31);
    }
    const Wide lower = __shfl_up_sync(0xffffffff, up_to_me, 1);
    return lane ? before + lower : before;
}

/*  PACK elements from i on, in the order of the sum; there are none from end on. */
__device__ inline void load(Wide (&x)[PACK], const T *row, long long n, long long i, long long end, bool reverse, bool packed)
{
    ignis_pack<T, PACK> pack;
    if (packed && i < end)
        pack = ignis_load<PACK>(row + (reverse ? n - PACK - i : i));
#pragma unroll
    for (int e = 0; e < PACK; e++) {
        if (i + e >= end)
            x[e] = 0;
        else if (packed)
            x[e] = Wide(reverse ? pack[PACK - 1 - e] : pack[e]);
        else
            x[e] = Wide(row[reverse ? n - 1 - i - e : i + e]);
    }
}

__device__ inline void store(T *row, const Wide (&x)[PACK], long long n, long long i, long long end, bool reverse, bool packed)
{
    if (i >= end)
        return;
    if (packed) {
        ignis_pack<T, PACK> pack;
#pragma unroll
        for (int e = 0; e < PACK; e++)
            pack[reverse ? PACK - 1 - e : e] = T(x[e]);
        ignis_store(row + (reverse ? n - PACK - i : i), pack);
    } else {
#pragma unroll
        for (int e = 0; e < PACK; e++)
            if (i + e < end)
                row[reverse ? n - 1 - i - e : i + e] = T(x[e]);
    }
}

/* >>rows -------------------------------------------------------------------------------------------------------- */

/*  A team does a part of a row; without dst it only sums it up. */
template <typename Team>
__device__ inline void scan_rows(T *dst, Wide *partial, const T *src, long long outer, long long n, long long part_length, long long parts,
                                 bool reverse, bool packed)
{
    for (long long item = Team::first(); item < outer * parts; item += Team::count()) {
        const long long row = item / parts, part = item % parts, begin = part * part_length, end = min(begin + part_length, n);
        Wide carry = 0;
        if (dst && parts > 1) {
            for (long long p = Team::thread(); p < part; p += Team::size())
                carry += partial[row * parts + p];
            carry = Team::template reduce<ignis_sum>(carry);
        }
        for (long long at = begin; at < end; at += Team::size() * PACK) {
            const long long i = at + Team::thread() * PACK;
            Wide x[PACK], all;
            load(x, src + row * n, n, i, end, reverse, packed);
#pragma unroll
            for (int e = 1; e < PACK; e++)
                x[e] += x[e - 1];
            if (!dst) {
                carry += x[PACK - 1];
                continue;
            }
            const Wide before = carry + sum_before<Team>(x[PACK - 1], &all);
#pragma unroll
            for (int e = 0; e < PACK; e++)
                x[e] += before;
            store(dst + row * n, x, n, i, end, reverse, packed);
            carry += all;
        }
        if (!dst) {
            carry = Team::template reduce<ignis_sum>(carry);
            if (Team::thread() == 0)
                partial[item] = carry;
        }
    }
}

/*  inner is 1. packed: n and part_length are multiples of PACK, dst and src aligned to 16 bytes. warps: a warp does a part, and not a
    block. */
extern "C" __global__ void __launch_bounds__(THREADS, 3)
    ignis_scan_rows(T *dst, Wide *partial, const T *src, long long outer, long long n, long long part_length, long long parts, int reverse,
                    int packed, int warps)
{
    if (warps)
        scan_rows<ignis_warp_team>(dst, partial, src, outer, n, part_length, parts, reverse, packed);
    else
        scan_rows<ignis_block_team>(dst, partial, src, outer, n, part_length, parts, reverse, packed);
}

/* >>columns ----------------------------------------------------------------------------------------------------- */

/*  A thread does a part of a column; without dst it only sums it up. */
extern "C" __global__ void __launch_bounds__(THREADS)
    ignis_scan_columns(T *dst, Wide *partial, const T *src, long long outer, long long n, long long inner, long long part_length,
                       long long parts, int reverse)
{
    const long long step = (long long)gridDim.x * THREADS;
    for (long long item = (long long)blockIdx.x * THREADS + threadIdx.x; item < outer * parts * inner; item += step) {
        const long long column = item % inner, part = item / inner % parts, group = item / inner / parts;
        const long long begin = part * part_length, end = min(begin + part_length, n);
        const long long first = group * n * inner + column + (reverse ? (n - 1) * inner : 0), by = reverse ? -inner : inner;
        Wide sum = 0;
        if (dst)
            for (long long p = 0; p < part; p++)
                sum += partial[(group * parts + p) * inner + column];
        for (long long i = begin; i < end; i += IN_FLIGHT) {
            T x[IN_FLIGHT];
#pragma unroll
            for (int k = 0; k < IN_FLIGHT; k++)
                if (i + k < end)
                    x[k] = src[first + (i + k) * by];
#pragma unroll
            for (int k = 0; k < IN_FLIGHT; k++)
                if (i + k < end) {
                    sum += Wide(x[k]);
                    if (dst)
                        dst[first + (i + k) * by] = T(sum);
                }
        }
        if (!dst)
            partial[item] = sum;
    }
}
