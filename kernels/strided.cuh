// SPDX-License-Identifier: MIT
/*  strided.cuh - two arrays looped over together, each by strides of its own

    An index is split into coordinates by divisions that the host has prepared (ignis__divisor).
    The host merges dimensions first, so that a kernel has few.
*/
#ifndef IGNIS_STRIDED_CUH
#define IGNIS_STRIDED_CUH

#include "ignis.cuh"
#include "shared/strided.h"

/*  Adds the offsets of index i. */
__device__ inline void locate(const ignis__strided &s, long long i, long long &from, long long &to)
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
