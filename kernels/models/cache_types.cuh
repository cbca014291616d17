// SPDX-License-Identifier: MIT
/*  models/cache_types.cuh - keys and values of 8 or 4 bits: how they are written and read

    A row is the key or the value of a token and of one of its heads. Its numbers and scales depend on the row alone.
    The rows of a page and head are a cell: the numbers of PAGE rows, then their scales. The cells of a page follow each
    other, one for each head.

        F8      e4m3 numbers (OCP 8-bit Floating Point Specification, 2023) times a power of two, with which the
                greatest one is above 224 and at most 448. Scales: [rows], a byte each, the exponent + 127
        Q8_0    for each 32 elements a scale S: sign m / 128 S, with 7 bits m below the sign. Scales: [blocks, rows]
        Q4_0    for each 32 elements a scale d: (n - 8) d, with 4 bits n. The greatest one has n = 0. Scales likewise

    S and d have the type of the model, or bf16 if that is f32. A row of F8, or a block, with a NaN or an infinity is
    NaN as a whole. An element that is read is rounded to the model's type once, and is finite if its row was.

    A word has 4 or 8 elements. Elements 2 p and 2 p + 1 are the p-th bytes, or nibbles, of its lower and its upper
    half. So a few operations on words make operands of tensor cores: see cache_pairs.cuh.
*/
#ifndef IGNIS_CACHE_TYPES_CUH
#define IGNIS_CACHE_TYPES_CUH

#include "generate.cuh"
#include "shared/models/cache_types.h"

template <typename T> struct cache_scale_of {
    typedef ignis_bf16 type;
};
template <> struct cache_scale_of<ignis_f16> {
    typedef ignis_f16 type;
};

/*  Elements of a word. */
__device__ constexpr int cache_word(int type) { return type == IGNIS__CACHE_Q4_0 ? 8 : 4; }

/*  Bytes of a cell. */
__device__ constexpr int cache_cell(int type, int head_dim)
{
    return PAGE * (IGNIS__CACHE_ROW(type, head_dim) + IGNIS__CACHE_SCALES(type, head_dim));
}

/*  Returns the bits of a word at which its element i begins. */
__device__ constexpr int cache_bit(int type, int i) { return i % 2 * 16 + i / 2 * (type == IGNIS__CACHE_Q4_0 ? 4 : 8); }

/*  Returns element i of a word, before its scale multiplies it. */
template <int type> __device__ inline float cache_number(uint32_t word, int i)
{
    const uint32_t bits = word >> cache_bit(type, i);
    if (type == IGNIS__CACHE_Q4_0)
        return (float)((int)(bits & 15) - 8);
    if (type == IGNIS__CACHE_F8)
        return ignis_e4m3_value(bits & 255);
    return (bits & 128 ? -1.0f : 1.0f) * (float)(bits & 127) / 128;
}

/*  Returns what multiplies element d of a row of a cell. */
template <typename T, int type> __device__ inline float cache_scale(const uint8_t *cell, int head_dim, int row, int d)
{
    const uint8_t *const scales = cell + PAGE * IGNIS__CACHE_ROW(type, head_dim);
    if (type == IGNIS__CACHE_F8)
        return __uint_as_float((uint32_t)__ldcg(scales + row) << 23); /* infinity, of zeros, if the row is NaN */
    return float(cache_scale_of<T>::type::from_bits(__ldcg((const uint16_t *)scales + d / 32 * PAGE + row)));
}

/*  Reads N elements of a row, from d on, a multiple of N. N: 4 or 8. */
template <typename T, int type, int N>
__device__ inline ignis_pack<T, N> cache_read(const uint8_t *cell, int head_dim, int row, int d)
{
    constexpr int per_word = cache_word(type), words = (N + per_word - 1) / per_word;
    const uint8_t *const from = cell + row * IGNIS__CACHE_ROW(type, head_dim) + d / per_word * 4;
    const float scale = cache_scale<T, type>(cell, head_dim, row, d);
    uint32_t word[words];
    ignis_pack<T, N> x;
    if constexpr (words == 2) {
        const uint2 two = __ldcg((const uint2 *)from);
        word[0] = two.x;
        word[1] = two.y;
    } else {
        word[0] = __ldcg((const uint32_t *)from);
    }
#pragma unroll
    for (int i = 0; i < N; i++) {
        const int at = N < per_word ? d % per_word + i : i % per_word;
        x[i] = T(cache_number<type>(word[i / per_word], at) * scale);
    }
    return x;
}

/*  Reads elements of any type of cells. */
template <typename T, int N>
__device__ inline ignis_pack<T, N> cache_read_any(int type, const uint8_t *cell, int head_dim, int row, int d)
{
    if (type == IGNIS__CACHE_F8)
        return cache_read<T, IGNIS__CACHE_F8, N>(cell, head_dim, row, d);
    if (type == IGNIS__CACHE_Q8_0)
        return cache_read<T, IGNIS__CACHE_Q8_0, N>(cell, head_dim, row, d);
    return cache_read<T, IGNIS__CACHE_Q4_0, N>(cell, head_dim, row, d);
}

/* >>writing ----------------------------------------------------------------------------------------------------- */

/*  Returns the exponent + 127 of the power of two of a row of F8. most: the bits of the greatest element; NaN is above
    infinity. 255: the row is NaN. */
template <typename T> __device__ inline int cache_exponent(uint32_t most)
{
    constexpr int lowest = ignis_is_same<T, ignis_f16> ? 127 - 24 : 1; /* T has it */
    const int exponent = most >> 23;
    return exponent == 255 ? 255 : max(lowest, exponent - 8 + ((most & 0x7fffff) > 0x600000));
}

/*  Returns n / x, or the greatest finite number; 0 if x is 0. */
__device__ inline float cache_inverse(float n, float x)
{
    constexpr float largest = 3.402823466e38f;
    return x == 0 ? 0.0f : fminf(fmaxf(n / x, -largest), largest);
}

/*  Writes 8 elements of a row per lane. All lanes of a warp call it. from: the elements of the row; too: null, or where
    they go as they will be read. */
template <typename T, int type>
__device__ inline void cache_write(uint8_t *cell, int head_dim, int row, const T *from, T *too)
{
    typedef typename cache_scale_of<T>::type Scale;
    constexpr int N = sizeof(T) == 2 ? 8 : 4, per_word = cache_word(type), words = 8 / per_word,
                  lanes = type == IGNIS__CACHE_F8 ? 32 : 4;
    /* the exponent + 127 at which 256 is above what T has */
    constexpr int top = ignis_is_same<T, ignis_f16> ? 127 + 8 : 127 + 120;
    const int d = threadIdx.x % 32 * 8;
    uint8_t *const scales = cell + PAGE * IGNIS__CACHE_ROW(type, head_dim);
    float x[8], scale, inverse;
    uint32_t most = 0, word[words];
    int bits;
#pragma unroll
    for (int i = 0; i < 8; i += N) {
        const auto pack = d < head_dim ? ignis_load<N>(from + d + i) : ignis_pack<T, N>{};
#pragma unroll
        for (int j = 0; j < N; j++) {
            x[i + j] = float(pack[j]);
            most = max(most, __float_as_uint(x[i + j]) << 1 | __float_as_uint(x[i + j]) >> 31); /* the sign is last */
        }
    }
#pragma unroll
    for (int apart = 1; apart < lanes; apart *= 2)
        most = max(most, __shfl_xor_sync(0xffffffff, most, apart));
    const bool finite = most >> 1 < 0x7f800000;
    if constexpr (type == IGNIS__CACHE_F8) {
        bits = cache_exponent<T>(most >> 1);
        scale = __uint_as_float((uint32_t)bits << 23);
        inverse = finite ? __uint_as_float((uint32_t)(254 - bits) << 23) : 0.0f;
    } else {
        const float largest = float(ignis_max_value<Scale>()), greatest = __uint_as_float(most >> 1);
        const Scale own = type == IGNIS__CACHE_Q8_0 ? Scale(fminf(greatest * (128.0f / 127), largest))
                                                    : Scale((most & 1 ? greatest : -greatest) * 0.125f);
        bits = finite ? own.bits : 0x7fff;
        scale = float(Scale::from_bits((uint16_t)bits));
        inverse = cache_inverse(type == IGNIS__CACHE_Q8_0 ? 128.0f : 1.0f, float(own));
    }
#pragma unroll
    for (int w = 0; w < words; w++) {
        word[w] = 0;
#pragma unroll
        for (int i = 0; i < per_word; i++) {
            const float scaled = x[w * per_word + i] * inverse;
            uint32_t number;
            if constexpr (type == IGNIS__CACHE_F8) {
                const float limit = bits == top ? 240.0f : 448.0f;
                number = ignis_e4m3_bits(fminf(fmaxf(scaled, -limit), limit));
            } else if constexpr (type == IGNIS__CACHE_Q8_0) {
                number = (uint32_t)fminf(rintf(fabsf(scaled)), 127) | (__float_as_uint(scaled) >> 24 & 128);
            } else {
                number = (uint32_t)fminf(fmaxf(rintf(scaled) + 8, 0), 15);
            }
            word[w] |= number << cache_bit(type, i);
        }
        word[w] = finite ? word[w] : 0;
    }
    if (d >= head_dim)
        return;
    uint32_t *const to = (uint32_t *)(cell + row * IGNIS__CACHE_ROW(type, head_dim)) + d / per_word;
    if constexpr (words == 2)
        *(uint2 *)to = make_uint2(word[0], word[1]);
    else
        *to = word[0];
    if (type == IGNIS__CACHE_F8 && d == 0)
        scales[row] = (uint8_t)bits;
    else if (type != IGNIS__CACHE_F8 && d % 32 == 0)
        ((uint16_t *)scales)[d / 32 * PAGE + row] = (uint16_t)bits;
    if (too)
#pragma unroll
        for (int i = 0; i < 8; i++)
            too[d + i] = T(cache_number<type>(word[i / per_word], i % per_word) * scale);
}

/*  Writes a row to cells of any type. */
template <typename T>
__device__ inline void cache_write_any(int type, uint8_t *cell, int head_dim, int row, const T *from, T *too)
{
    if (type == IGNIS__CACHE_F8)
        cache_write<T, IGNIS__CACHE_F8>(cell, head_dim, row, from, too);
    else if (type == IGNIS__CACHE_Q8_0)
        cache_write<T, IGNIS__CACHE_Q8_0>(cell, head_dim, row, from, too);
    else
        cache_write<T, IGNIS__CACHE_Q4_0>(cell, head_dim, row, from, too);
}

#endif /* IGNIS_CACHE_TYPES_CUH */
