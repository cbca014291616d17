// SPDX-License-Identifier: MIT
/*  f8.cuh - floating numbers of 8 bits, for ignis.cuh and map.cuh: e4m3 has 4 bits of exponent, 3 of fraction
    and no infinities, e5m2 5 and 2

    OCP 8-bit Floating Point Specification (2023), in its saturating mode: what is larger than the largest
    number, 448 and 57344, and infinities become that; NaN stays. sm_89 and up have instructions that round
    so. */
#ifndef IGNIS_F8_CUH
#define IGNIS_F8_CUH

/*  Returns the bits of a float whose exponent is 2^120, or 2^112, times too small: exact, also below the
    normal numbers. */
static __device__ __forceinline__ float ignis_e4m3_value(unsigned bits)
{
    const unsigned size = bits & 0x7f;
    const float value =
        size == 0x7f ? __uint_as_float(0x7fc00000) : __uint_as_float(size << 20) * __uint_as_float(0x7b800000);
    return bits & 0x80 ? -value : value;
}

static __device__ __forceinline__ float ignis_e5m2_value(unsigned bits)
{
    const unsigned size = bits & 0x7f;
    const float value = size >= 0x7c ? __uint_as_float(0x7f800000 | size << 21)
                                     : __uint_as_float(size << 21) * __uint_as_float(0x77800000);
    return bits & 0x80 ? -value : value;
}

#if !(__CUDA_ARCH__ >= 890)
/*  Rounds to nearest even: to full steps of the number's power of two, or of the smallest one. The hidden
    bit, or a carry, adds one to the exponent. */
static __device__ __forceinline__ unsigned ignis_f8_bits(float x, int fraction, int bias, float largest)
{
    const float size = fminf(fabsf(x), largest);
    const int power = max((int)(__float_as_uint(size) >> 23) - 127, 1 - bias);
    const unsigned steps = __float2uint_rn(size * __uint_as_float((unsigned)(127 + fraction - power) << 23));
    return x != x ? 0x7f : (__float_as_uint(x) >> 24 & 0x80) | (((unsigned)(power + bias - 1) << fraction) + steps);
}
#endif

/*  The bits of two, the first in the lower ones; of one. */
#if __CUDA_ARCH__ >= 890
static __device__ __forceinline__ unsigned ignis_e4m3_two(float first, float second)
{
    unsigned short bits;
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(bits) : "f"(second), "f"(first));
    return bits;
}

static __device__ __forceinline__ unsigned ignis_e5m2_two(float first, float second)
{
    unsigned short bits;
    asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(bits) : "f"(second), "f"(first));
    return bits;
}

static __device__ __forceinline__ unsigned ignis_e4m3_bits(float x) { return ignis_e4m3_two(x, 0); }
static __device__ __forceinline__ unsigned ignis_e5m2_bits(float x) { return ignis_e5m2_two(x, 0); }
#else
static __device__ __forceinline__ unsigned ignis_e4m3_bits(float x) { return ignis_f8_bits(x, 3, 7, 448); }
static __device__ __forceinline__ unsigned ignis_e5m2_bits(float x) { return ignis_f8_bits(x, 2, 15, 57344); }
static __device__ __forceinline__ unsigned ignis_e4m3_two(float first, float second)
{
    return ignis_e4m3_bits(first) | ignis_e4m3_bits(second) << 8;
}
static __device__ __forceinline__ unsigned ignis_e5m2_two(float first, float second)
{
    return ignis_e5m2_bits(first) | ignis_e5m2_bits(second) << 8;
}
#endif

#endif /* IGNIS_F8_CUH */
