// SPDX-License-Identifier: MIT
/*  select.cu - positions of elements that are not 0, searches in sorted rows, counts in bins, runs of equal elements

    Selected elements are written in order: a first launch counts those of each tile (ignis_select_count), the counts
    are summed up (scan.cu), and a second one writes positions from there on (ignis_select_write). All additions across
    threads are of integers, so results do not depend on their order. NaN is larger than all numbers, and equal to NaN.

    One program per element type: compiled with -DIGNIS_T=<ignis_dtype>. Blocks have THREADS threads. */
#include "ignis.cuh"

typedef ignis_type<IGNIS_T> T;

#include "shared/index.h"

#define THREADS 256
#define TILE IGNIS__SELECT_TILE
#define ROUNDS (TILE / THREADS) /* elements of a thread */

/*  Numbers to compare: those of 16 and 8 bits as float. */
template <bool is_short> struct number_of {
    typedef T type;
};
template <> struct number_of<true> {
    typedef float type;
};
typedef number_of<ignis_is_half<T> || ignis_is_f8<T>>::type Number;

__device__ inline bool is_less(Number a, Number b) { return a < b || (b != b && a == a); }
__device__ inline bool is_equal(Number a, Number b) { return a == b || (a != a && b != b); }

/* >>select ------------------------------------------------------------------------------------------------------ */

/*  Loads the elements of a warp's part of a tile, and returns as bits of a round which lanes have one that is not 0. */
__device__ inline void vote(uint32_t (&votes)[ROUNDS], const T *src, long long n, long long first)
{
    T x[ROUNDS];
#pragma unroll
    for (int r = 0; r < ROUNDS; r++)
        x[r] = first + 32 * r < n ? src[first + 32 * r] : T(0);
#pragma unroll
    for (int r = 0; r < ROUNDS; r++)
        votes[r] = __ballot_sync(0xffffffff, Number(x[r]) != Number(0));
}

__device__ inline long long first_of_lane()
{
    return (long long)blockIdx.x * TILE + threadIdx.x / 32 * (32 * ROUNDS) + threadIdx.x % 32;
}

/*  counts[block] = the number of elements of its tile that are not 0 */
extern "C" __global__ void __launch_bounds__(THREADS) ignis_select_count(int64_t *counts, const T *src, long long n)
{
    uint32_t votes[ROUNDS];
    int count = 0;
    vote(votes, src, n, first_of_lane());
#pragma unroll
    for (int r = 0; r < ROUNDS; r++)
        count += __popc(votes[r]);
    count = ignis_block_sum(threadIdx.x % 32 == 0 ? count : 0);
    if (threadIdx.x == 0)
        counts[blockIdx.x] = count;
}

/*  Writes the positions of elements that are not 0 in their order: [count], or coordinates [count, rank]. ends: the
    number of those up to the end of each tile. */
extern "C" __global__ void __launch_bounds__(THREADS)
    ignis_select_write(int64_t *positions, const int64_t *ends, const T *src, long long n, ignis__select_sizes sizes)
{
    __shared__ int of_warps[THREADS / 32];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const long long first = first_of_lane();
    uint32_t votes[ROUNDS];
    int count = 0;
    vote(votes, src, n, first);
#pragma unroll
    for (int r = 0; r < ROUNDS; r++)
        count += __popc(votes[r]);
    if (lane == 0)
        of_warps[warp] = count;
    __syncthreads();
    long long to = blockIdx.x ? ends[blockIdx.x - 1] : 0;
    for (int w = 0; w < warp; w++)
        to += of_warps[w];
#pragma unroll
    for (int r = 0; r < ROUNDS; r++) {
        const long long place = to + __popc(votes[r] & ((1u << lane) - 1));
        to += __popc(votes[r]);
        if (!(votes[r] >> lane & 1))
            continue;
        long long index = first + 32 * r;
        if (sizes.rank == 0)
            positions[place] = index;
        for (int d = sizes.rank - 1; d >= 0; d--) {
            const long long outer =
                n < 1LL << 31 ? (long long)((uint32_t)index / (uint32_t)sizes.size[d]) : index / sizes.size[d];
            positions[place * sizes.rank + d] = index - outer * sizes.size[d];
            index = outer;
        }
    }
}

/* >>search ------------------------------------------------------------------------------------------------------ */

/*  Returns how many elements of a sorted row of n are less than x, or, if `right`, not greater than it. */
__device__ inline long long search(const T *row, long long n, Number x, bool right)
{
    long long low = 0, high = n;
    while (low < high) {
        const long long middle = low + (high - low) / 2;
        const Number y = Number(row[middle]);
        if (right ? !is_less(x, y) : is_less(y, x))
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/*  out[i] = where values[i] belongs in its sorted row; each row of n serves `share` neighbours. */
extern "C" __global__ void __launch_bounds__(THREADS)
    ignis_search(int64_t *out, const T *sorted, const T *values, long long n, long long share, long long count,
                 int right)
{
    const long long step = (long long)gridDim.x * THREADS;
    for (long long i = (long long)blockIdx.x * THREADS + threadIdx.x; i < count; i += step)
        out[i] = search(sorted + i / share * n, n, Number(values[i]), right);
}

/* >>bins -------------------------------------------------------------------------------------------------------- */

/*  Returns the bin of an element, or -1. Edge k of bins of one width is low + k * width, in double. */
__device__ inline long long bin_of(T element, const T *edges, long long bins, double low, double high, int how)
{
    if (how == IGNIS__COUNT_BY_VALUE) {
        const long long x = (long long)element;
        return x >= 0 && x < bins ? x : -1;
    }
    if (how == IGNIS__COUNT_BY_EDGES) {
        const Number x = Number(element);
        if (!(x >= Number(edges[0]) && x <= Number(edges[bins])))
            return -1;
        return min(search(edges, bins + 1, x, true) - 1, bins - 1);
    }
    const double x = (double)Number(element), width = (high - low) / (double)bins;
    if (!(x >= low && x <= high))
        return -1;
    long long bin = min((long long)((x - low) / width), bins - 1);
    if (bin > 0 && x < __dadd_rn(low, __dmul_rn((double)bin, width)))
        bin--;
    else if (bin < bins - 1 && x >= __dadd_rn(low, __dmul_rn((double)(bin + 1), width)))
        bin++;
    return bin;
}

/*  counts[bin] += the number of elements in it. shared: the bins fit dynamic shared memory, and are counted there. */
extern "C" __global__ void __launch_bounds__(THREADS)
    ignis_count_bins(unsigned long long *counts, const T *src, const T *edges, long long n, long long bins, double low,
                     double high, int how, int shared)
{
    extern __shared__ uint32_t bin_memory[];
    const long long step = (long long)gridDim.x * THREADS;
    if (shared)
        for (int b = threadIdx.x; b < bins; b += THREADS)
            bin_memory[b] = 0;
    __syncthreads();
#pragma unroll 4
    for (long long i = (long long)blockIdx.x * THREADS + threadIdx.x; i < n; i += step) {
        const long long bin = bin_of(src[i], edges, bins, low, high, how);
        if (bin >= 0 && shared)
            atomicAdd(&bin_memory[bin], 1u);
        else if (bin >= 0)
            atomicAdd(&counts[bin], 1ULL);
    }
    __syncthreads();
    if (shared)
        for (int b = threadIdx.x; b < bins; b += THREADS)
            if (bin_memory[b])
                atomicAdd(&counts[b], (unsigned long long)bin_memory[b]);
}

/* >>unique ------------------------------------------------------------------------------------------------------ */

/*  heads[i] = 1 if a sorted element differs from the one before it, else 0; also for the first one */
extern "C" __global__ void __launch_bounds__(THREADS) ignis_unique_heads(int32_t *heads, const T *sorted, long long n)
{
    const long long i = (long long)blockIdx.x * THREADS + threadIdx.x;
    if (i < n)
        heads[i] = i > 0 && !is_equal(Number(sorted[i - 1]), Number(sorted[i]));
}

/*  ranks: the number of the run of each sorted element, from 0. values gets the first element of each run, inverse, or
    null, the run of each element where it was before it was sorted; counts, or null, must be 0 before. */
extern "C" __global__ void __launch_bounds__(THREADS)
    ignis_unique_write(T *values, int64_t *inverse, unsigned long long *counts, const T *sorted,
                       const int64_t *positions, const int32_t *ranks, long long n)
{
    const long long i = (long long)blockIdx.x * THREADS + threadIdx.x;
    if (i >= n)
        return;
    const int rank = ranks[i];
    const bool is_first = i == 0 || ranks[i - 1] != rank, is_last = i == n - 1 || ranks[i + 1] != rank;
    if (inverse)
        inverse[positions[i]] = rank;
    if (is_first)
        values[rank] = sorted[i];
    if (counts && is_first)
        atomicAdd(&counts[rank], (unsigned long long)-i);
    if (counts && is_last)
        atomicAdd(&counts[rank], (unsigned long long)(i + 1));
}
