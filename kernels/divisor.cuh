// SPDX-License-Identifier: MIT
/*  divisor.cuh - division by a number that the host has prepared

    Takes an addition, a multiplication and a shift. An index below 2^31 is split into coordinates by it:
    pixels and taps of images and patches. */
#ifndef IGNIS_DIVISOR_CUH
#define IGNIS_DIVISOR_CUH

#include "ignis.cuh"
#include "shared/divisor.h"

/*  Returns x / divisor, and the remainder, for x below 2^31. */
__device__ inline int ignis_divide(const ignis__divisor &divisor, int x, int &rest)
{
    const int quotient = (int)((__umulhi((uint32_t)x, divisor.multiplier) + (uint32_t)x) >> divisor.shift);
    rest = x - quotient * (int)divisor.size;
    return quotient;
}

/*  Returns x / divisor, for any x. */
__device__ inline long long ignis_quotient(const ignis__divisor &divisor, long long x)
{
    int rest;
    return x >> 31 == 0 ? ignis_divide(divisor, (int)x, rest) : x / divisor.size;
}

/*  As ignis_quotient, and the remainder. */
__device__ inline long long ignis_divide_any(const ignis__divisor &divisor, long long x, int &rest)
{
    const long long quotient = ignis_quotient(divisor, x);
    rest = (int)((uint32_t)x - (uint32_t)quotient * divisor.size);
    return quotient;
}

#endif /* IGNIS_DIVISOR_CUH */
