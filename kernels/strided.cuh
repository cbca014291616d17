// SPDX-License-Identifier: MIT
/*  strided.cuh - two arrays looped over together, each by strides of its own

    An index is split into coordinates by divisions that the host has prepared (ignis_divisor).
    The host merges dimensions first, so that a kernel has few.
*/
#ifndef IGNIS_STRIDED_CUH
#define IGNIS_STRIDED_CUH

#include "ignis.cuh"

/*  Index i counts through all dimensions, the last one fastest. It names element sum of i[d] * from[d] of one
    array, and sum of i[d] * to[d] of the other. If packs are counted, the last dimension is that of packs:
    its size is that in elements divided by those of a pack, its strides are of packs. The host has the same
    struct. */
struct ignis_strided {
    long long size[8], from[8], to[8];
    uint32_t multiplier[8],
        shift[8];    /* x / size = (the upper word of x * multiplier, plus x) >> shift, for x below 2^31 */
    long long count; /* elements or packs in all */
    long long step;  /* in the first array, from one element of a pack to the next */
    int rank;
};

/*  Adds the offsets of index i. */
__device__ inline void locate(const ignis_strided &s, long long i, long long &from, long long &to)
{
    const bool is_short = s.count < 1LL << 31;
#pragma unroll 1
    for (int d = s.rank - 1; d > 0; d--) {
        const long long outer =
            is_short ? (__umulhi((uint32_t)i, s.multiplier[d]) + (uint32_t)i) >> s.shift[d] : i / s.size[d];
        const long long at = i - outer * s.size[d];
        from += at * s.from[d];
        to += at * s.to[d];
        i = outer;
    }
    from += i * s.from[0];
    to += i * s.to[0];
}

#endif /* IGNIS_STRIDED_CUH */
