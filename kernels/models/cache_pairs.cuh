// SPDX-License-Identifier: MIT
/*  models/cache_pairs.cuh - keys and values of 8 or 4 bits as operands of tensor cores: two elements at a time

    For f16 and bf16, sm_80 and up. The elements have the bits of cache_read, as each product is exact but for one
    rounding.
*/
#ifndef IGNIS_CACHE_PAIRS_CUH
#define IGNIS_CACHE_PAIRS_CUH

#include "cache_types.cuh"
#include "mma.cuh"

#if __CUDA_ARCH__ >= 800
/*  Returns elements 2 p and 2 p + 1 of a word, or the p-th ones of both halves of any word. scales: what multiplies
    them, as two T. whole: of F8, scales have the power of two of the type besides, which takes one product less; T has
    them if a row's exponent + 127 is at most CACHE_WHOLE. */
constexpr int CACHE_WHOLE = 134;
template <typename T, int type, bool whole = false>
__device__ inline uint32_t cache_pair(uint32_t word, int p, uint32_t scales)
{
    constexpr bool is_bf16 = ignis_is_same<T, ignis_bf16>;
    constexpr uint32_t signs = 0x80008000; /* as a number -0, which changes no sum */
    if constexpr (type == IGNIS__CACHE_F8) {
        /* the bits as those of T: 2^120, or 2^8, times too small; exact, also below the normal numbers */
        const uint32_t high = p ? word : word << 8;
        const uint32_t bits = and_or(high >> (is_bf16 ? 4 : 1), is_bf16 ? 0x07f007f0 : 0x3f803f80, high & signs);
        const uint32_t number = whole ? bits : fma_two<T>(bits, is_bf16 ? 0x7b807b80 : 0x5c005c00, signs);
        return fma_two<T>(number, scales, signs);
    } else if constexpr (type == IGNIS__CACHE_Q8_0) { /* (1 + m / 128) S - S, rounded once */
        const uint32_t sizes = is_bf16 ? and_or(word >> 8 * p, 0x007f007f, 0x3f803f80)
                                       : and_or(p ? word >> 5 : word << 3, 0x03f803f8, 0x3c003c00);
        return fma_two<T>(sizes, scales, scales ^ signs) ^ ((p ? word : word << 8) & signs);
    } else { /* n + 128, or n + 1024, then n - 8 */
        const uint32_t above = and_or(word >> 4 * p, 0x000f000f, is_bf16 ? 0x43004300 : 0x64006400);
        const uint32_t number = fma_two<T>(above, is_bf16 ? 0x3f803f80 : 0x3c003c00, is_bf16 ? 0xc308c308 : 0xe408e408);
        return fma_two<T>(number, scales, signs);
    }
}

/*  Returns a scale as T, from its bits in a cell. whole: see cache_pair. */
template <typename T, int type, bool whole = false> __device__ inline uint32_t cache_scale_bits(uint32_t stored)
{
    const uint32_t more = !whole ? 0 : ignis_is_same<T, ignis_bf16> ? 120 : 8;
    if constexpr (type != IGNIS__CACHE_F8)
        return stored;
    else if constexpr (ignis_is_same<T, ignis_bf16>)
        return (stored + more) << 7;
    else
        return T(__uint_as_float((stored + more) << 23)).bits;
}

/*  Returns twice what multiplies element d of a row of a cell in global memory. */
template <typename T, int type>
__device__ inline uint32_t cache_scale_two(const uint8_t *cell, int head_dim, int row, int d)
{
    const uint8_t *const scales = cell + PAGE * IGNIS__CACHE_ROW(type, head_dim);
    const uint32_t stored =
        type == IGNIS__CACHE_F8 ? __ldcg(scales + row) : __ldcg((const uint16_t *)scales + d / 32 * PAGE + row);
    return cache_scale_bits<T, type>(stored) * 0x10001;
}

/*  Returns eight elements of a row from its words; of Q4_0 there is one. */
template <typename T, int type, bool whole = false> __device__ inline uint4 cache_eight(uint2 words, uint32_t scales)
{
    if constexpr (type == IGNIS__CACHE_Q4_0)
        return make_uint4(
            cache_pair<T, type, whole>(words.x, 0, scales), cache_pair<T, type, whole>(words.x, 1, scales),
            cache_pair<T, type, whole>(words.x, 2, scales), cache_pair<T, type, whole>(words.x, 3, scales));
    else
        return make_uint4(
            cache_pair<T, type, whole>(words.x, 0, scales), cache_pair<T, type, whole>(words.x, 1, scales),
            cache_pair<T, type, whole>(words.y, 0, scales), cache_pair<T, type, whole>(words.y, 1, scales));
}
#endif

#endif /* IGNIS_CACHE_PAIRS_CUH */
