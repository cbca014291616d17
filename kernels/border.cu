// SPDX-License-Identifier: MIT
/*  border.cu - arrays with elements of their own around them: reflected, the nearest one, or from the other side

    An element of dst is one of src: each dimension maps its coordinate. The gradient of an element of src is the sum of
    its copies' in dst, in the order of their coordinates, so equal inputs give equal bits.

    One program per element type: compiled with -DIGNIS_T=<ignis_dtype>. Blocks have THREADS threads, grids any number
    of blocks. A thread has an element, or a pack where the last dimension is not padded and consists of packs. */
#include "divisor.cuh"
#include "shared/border.h"

typedef ignis_type<IGNIS_T> T;
typedef ignis_wide<T> Wide;

#define THREADS IGNIS__BORDER_THREADS
#define PACK (16 / (int)sizeof(T))

/*  Returns the coordinate in src of coordinate at of dst, which counts from the first element of src. */
__device__ inline long long inside_of(const ignis__border &p, int d, long long at)
{
    const long long n = p.src[d];
    if (at >= 0 && at < n)
        return at;
    if (p.mode == IGNIS__BORDER_REFLECT)
        return at < 0 ? -at : 2 * (n - 1) - at;
    if (p.mode == IGNIS__BORDER_CIRCULAR)
        return at < 0 ? at + n : at - n;
    return at < 0 ? 0 : n - 1;
}

__device__ inline long long quotient(long long i, const ignis__divisor &divisor, long long size)
{
    int rest;
    return i >> 31 == 0 && size >> 31 == 0 ? ignis_divide(divisor, (int)i, rest) : i / size;
}

template <int N> __device__ inline void pad(T *dst, const T *src, const ignis__border &p)
{
    for (long long i = (long long)blockIdx.x * THREADS + threadIdx.x; i < p.count;
         i += (long long)gridDim.x * THREADS) {
        long long left = i, from = 0;
#pragma unroll 1
        for (int d = p.rank - 1; d >= 0; d--) {
            const long long outer = quotient(left, p.by[d], p.dst[d]);
            from += inside_of(p, d, left - outer * p.dst[d] - p.before[d]) * p.src_stride[d];
            left = outer;
        }
        ignis_store(dst + i * N, ignis_load<N>(src + from));
    }
}

/*  The copies in dst of a coordinate of src: `count`, the first at `begin`. Others follow it (REPLICATE), or are at
    `other` and `last`. */
struct Copies {
    long long begin, other, last, count;

    __device__ long long at(const ignis__border &p, long long k) const
    {
        return p.mode == IGNIS__BORDER_REPLICATE ? begin + k : k == 0 ? begin : k == 1 ? other : last;
    }
};

__device__ inline Copies copies_of(const ignis__border &p, int d, long long at)
{
    const long long n = p.src[d], before = p.before[d], size = p.dst[d];
    Copies copies = {at + before, 0, 0, 1};
    if (p.mode == IGNIS__BORDER_REPLICATE) {
        copies.begin = at == 0 ? 0 : at + before;
        copies.count = (at == n - 1 ? size : at + before + 1) - copies.begin;
        return copies;
    }
    const bool reflects = p.mode == IGNIS__BORDER_REFLECT;
    const long long low = reflects ? before - at : before + at - n,
                    high = before + at + (reflects ? 2 * (n - 1 - at) : n);
    if (low >= 0 && (!reflects || at > 0)) {
        copies.begin = low;
        copies.other = at + before;
        copies.count = 2;
    }
    if (high < size && (!reflects || at < n - 1)) {
        (copies.count == 1 ? copies.other : copies.last) = high;
        copies.count++;
    }
    return copies;
}

/*  Returns where copy k of element i of src is in dst, and how many copies it has. p.by divides by the sizes of src. */
__device__ inline long long copy_of(const ignis__border &p, long long i, long long k, long long &all)
{
    long long from = 0;
    all = 1;
#pragma unroll 1
    for (int d = p.rank - 1; d >= 0; d--) {
        const long long outer = quotient(i, p.by[d], p.src[d]);
        const Copies copies = copies_of(p, d, i - outer * p.src[d]);
        long long which = 0;
        if (copies.count > 1) {
            const long long next = k / copies.count;
            which = k - next * copies.count;
            k = next;
        }
        all *= copies.count;
        from += copies.at(p, which) * p.dst_stride[d];
        i = outer;
    }
    return from;
}

template <int N> __device__ inline void sum_copies(T *dx, const T *dy, const ignis__border &p)
{
    for (long long i = (long long)blockIdx.x * THREADS + threadIdx.x; i < p.count;
         i += (long long)gridDim.x * THREADS) {
        Wide sum[N] = {};
        long long all = 1;
#pragma unroll 1
        for (long long k = 0; k < all; k++) {
            const auto pack = ignis_load<N>(dy + copy_of(p, i, k, all));
#pragma unroll
            for (int e = 0; e < N; e++)
                sum[e] += ignis_wide_at(pack, e);
        }
        ignis_store(dx + i * N, ignis_pack_round<T, N>(sum));
    }
}

extern "C" __global__ void __launch_bounds__(THREADS) ignis_pad_border(T *dst, const T *src, const ignis__border p)
{
    if (p.packed)
        pad<PACK>(dst, src, p);
    else
        pad<1>(dst, src, p);
}

#if IGNIS_T >= 1 && IGNIS_T <= 4
extern "C" __global__ void __launch_bounds__(THREADS)
    ignis_pad_border_backward(T *dx, const T *dy, const ignis__border p)
{
    if (p.packed)
        sum_copies<PACK>(dx, dy, p);
    else
        sum_copies<1>(dx, dy, p);
}
#endif
