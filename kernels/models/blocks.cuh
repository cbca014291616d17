// SPDX-License-Identifier: MIT
/*  models/blocks.cuh - the layout of quantised weights on the device, and their formulas

    The numbers of GGUF's blocks of 32 elements. Eight blocks form a record, in an order of which lanes read 16 aligned
    bytes, and which becomes operands of mma.m16n8k32 with few instructions (see weights_blocks.cuh). A row is a
    sequence of records, the last one filled up with zeros. Eight rows have their first records together, then their
    second ones: TMA copies them as one run of bytes. shared/models/weights.h has the types: the bits q of a number,
    its meaning, and the scales. Signed numbers are stored in two's complement; others are stored as they are. Of eight
    elements of a block, 8 i to 8 i + 7,

        4    bits are word i of the block's four: byte j has element j in its low nibble, element 4 + j in the high one;
             of tables, nibble j has element j
        2    bits, above those, are bits 2 i and 2 i + 1 of bytes: byte j of the block's first word has element j, byte
             j of its second word element 4 + j
        1    bit is bit i of byte j of the block's word for element j, bit 4 + i for element 4 + j. Of five bits it is
             the highest one, of three the lowest one

    and a record has, each item for all of its blocks, the numbers of four bits, of two, of one; of Q8_0, bytes of
    elements 0 to 15 of a block; of 16 to 31; then the scales. A record of F8 has pairs of blocks instead, and of a pair
    elements 8 i to 8 i + 7 of both blocks before the next eight: fours of bytes, each in the order 0, 2, 1, 3. A number
    is, with S and M of its block or of 16 elements,

        d q              one scale of a block, divided by that of the type
        d q + m          Q4_1, Q5_1
        d S q - e M      Q2_K, Q4_K, Q5_K; the others without M
*/
#ifndef IGNIS_BLOCKS_CUH
#define IGNIS_BLOCKS_CUH

constexpr int RECORD = 8; /* blocks per record */

#include "shared/models/weights.h"

#define IGNIS__BLOCKS_NAME(name, number, ...) BLOCKS_##name = number,
enum blocks_type { IGNIS__BLOCKS_TYPES(IGNIS__BLOCKS_NAME) BLOCKS_NONE = 0 }; /* the numbers of GGUF */

struct blocks_layout {
    int bits, scales, numbers, divisor;
};

__device__ constexpr blocks_layout layout_of(int type)
{
#define IGNIS__BLOCKS_LAYOUT(name, number, elements, bytes, bits, scales, numbers, divisor) \
    case number: return {bits, IGNIS__SCALES_##scales, IGNIS__NUMBERS_##numbers, divisor};
    switch (type) {
        IGNIS__BLOCKS_TYPES(IGNIS__BLOCKS_LAYOUT)
    default: return {};
    }
}

/*  Returns the bytes of a record. */
__device__ constexpr int record_bytes(int type)
{
    return IGNIS__BLOCKS_RECORD(layout_of(type).bits, layout_of(type).scales);
}

/*  Returns four items of a table as bytes. numbers: from IGNIS__NUMBERS_IQ4 on. */
__device__ constexpr uint32_t table_word(int numbers, int word)
{
    constexpr signed char tables[][16] = IGNIS__BLOCKS_TABLES;
    uint32_t bytes = 0;
    for (int i = 0; i < 4; i++)
        bytes |= (uint32_t)(uint8_t)tables[numbers - IGNIS__NUMBERS_IQ4][4 * word + i] << 8 * i;
    return bytes;
}
template <int numbers, int word> struct table {
    static constexpr uint32_t bytes = table_word(numbers, word);
};

/*  Returns item `i` of a table's first eight, or of its last eight from the last one on, as ignis_ptx_prmt needs it:
    nibbles look up the first eight, and inverted the last eight. A nibble of the other eight gives 0 or -1, the sign of
    the item with its three low bits. So each item makes up for the one that is added to it, and the sum is exact. */
__device__ constexpr int half_item(int numbers, bool last, int i)
{
    constexpr signed char tables[][16] = IGNIS__BLOCKS_TABLES;
    const signed char *const items = tables[numbers - IGNIS__NUMBERS_IQ4];
    return last ? items[15 - i] + (items[7 - i] < 0) : items[i] + (items[i + 8] < 0);
}

/*  Returns four items of half a table as bytes. */
__device__ constexpr uint32_t half_word(int numbers, bool last, int word)
{
    uint32_t bytes = 0;
    for (int i = 0; i < 4; i++)
        bytes |= (uint32_t)(uint8_t)half_item(numbers, last, 4 * word + i) << 8 * i;
    return bytes;
}
template <int numbers, bool last> struct half_table {
    static constexpr uint32_t low = half_word(numbers, last, 0), high = half_word(numbers, last, 1);

    /*  True if all items are bytes and have the signs of those in the table. */
    static __device__ constexpr bool fits()
    {
        constexpr signed char tables[][16] = IGNIS__BLOCKS_TABLES;
        for (int i = 0; i < 8; i++) {
            const int item = half_item(numbers, last, i);
            if (item > 127 || (item < 0) != (tables[numbers - IGNIS__NUMBERS_IQ4][last ? 15 - i : i] < 0))
                return false;
        }
        return true;
    }
};

__device__ inline float blocks_half(const uint8_t *at) { return ignis_ptx_cvt_f32_f16(*(const uint16_t *)at); }

/*  Unpacks the scale and the minimum of one of eight blocks, six bits each. s: the bytes after d and e. */
__device__ inline void blocks_scale(const uint8_t *s, int j, int &scale, int &least)
{
    scale = j < 4 ? s[j] & 63 : (s[j + 4] & 15) | s[j - 4] >> 6 << 4;
    least = j < 4 ? s[j + 4] & 63 : s[j + 4] >> 4 | s[j] >> 6 << 4;
}

/*  Returns the index of a row's first record. The next one is TOGETHER records later. */
constexpr int TOGETHER = 8;
__device__ inline long long first_record(long long row, int records)
{
    return row / TOGETHER * TOGETHER * records + row % TOGETHER;
}

/*  Finds the factor of elements 8 i to 8 i + 7 of a block, and what is taken off. s: the scales of the record; outside:
    those that are outside. */
__device__ inline void blocks_factor(const blocks_layout &layout, const uint8_t *s, const uint8_t *outside, int own,
                                     int i, float &scale, float &base)
{
    int S = 1, M = 0;
    const int half = own * 2 + i / 2; /* which 16 elements */
    base = 0;
    switch (layout.scales) {
    case IGNIS__SCALES_128: scale = ((const float *)s)[own / 4]; break;
    case IGNIS__SCALES_POWER: scale = __uint_as_float((uint32_t)((const uint16_t *)s)[own] << 16); break;
    case IGNIS__SCALES_K:
        blocks_scale(s + 4, own, S, M);
        scale = blocks_half(s) * (float)S;
        base = blocks_half(s + 2) * (float)M;
        break;
    case IGNIS__SCALES_32: scale = blocks_half(s) * (float)((const int8_t *)s)[8 + own]; break;
    case IGNIS__SCALES_16: scale = blocks_half(outside) * (float)((const int8_t *)s)[half]; break;
    case IGNIS__SCALES_16_MIN:
        scale = blocks_half(outside) * (float)(s[half] & 15);
        base = blocks_half(outside + 2) * (float)(s[half] >> 4);
        break;
    default:
        scale = blocks_half(s + 2 * own);
        if (layout.scales == IGNIS__SCALES_ADDED)
            base = -blocks_half(s + 16 + 2 * own);
    }
    scale *= 1.0f / (float)layout.divisor;
}

/*  Dequantises elements 8 i to 8 i + 7 of a block. Products and sums are rounded one by one, as on the host. */
__device__ inline void blocks_eight(const ignis__quantised_weight &w, long long row, int block, int i, float (&v)[8])
{
    const int own = block % RECORD, records = (int)((w.k + 32 * RECORD - 1) / (32 * RECORD));
    const blocks_layout layout = layout_of(w.type);
    const int bits = layout.bits, outside = IGNIS__BLOCKS_OUTSIDE(layout.scales);
    const bool is_signed = layout.numbers == IGNIS__NUMBERS_SIGNED, is_table = layout.numbers >= IGNIS__NUMBERS_IQ4;
    const uint8_t *record = w.records + (first_record(row, records) + block / RECORD * TOGETHER) *
                                            IGNIS__BLOCKS_RECORD(bits, layout.scales);
    float scale, base;
    blocks_factor(layout, record + 32 * bits, w.scales + (row * records + block / RECORD) * outside, own, i, scale,
                  base);
    if (layout.numbers == IGNIS__NUMBERS_E4M3) {
        const uint8_t *q = record + own / 2 * 64 + i * 16 + own % 2 * 8;
#pragma unroll
        for (int j = 0; j < 8; j++)
            v[j] = __fmul_rn(scale, ignis_e4m3_value(q[j / 4 * 4 + j % 2 * 2 + j / 2 % 2]));
        return;
    }
    if (bits == 8) {
        const int8_t *q = (const int8_t *)record + i / 2 * 128 + own * 16 + i % 2 * 8;
#pragma unroll
        for (int j = 0; j < 8; j++)
            v[j] = __fmul_rn(scale, (float)q[j]);
        return;
    }
    const uint8_t *const twos = record + (bits >= 4 ? 128 : 0), *const ones = twos + (bits == 3 ? 64 : 0);
    const uint32_t low = bits >= 4 ? *(const uint32_t *)(record + own * 16 + i * 4) : 0;
    uint32_t more[2] = {0, 0}, one = 0, words[4] = {0, 0, 0, 0};
    if (bits != 4 && bits != 5) {
        more[0] = *(const uint32_t *)(twos + own * 8) >> 2 * i;
        more[1] = *(const uint32_t *)(twos + own * 8 + 4) >> 2 * i;
    }
    if (bits == 3 || bits == 5)
        one = *(const uint32_t *)(ones + own * 4) >> i;
#pragma unroll
    for (int word = 0; word < 4; word++)
        words[word] = layout.numbers == IGNIS__NUMBERS_IQ4       ? table_word(IGNIS__NUMBERS_IQ4, word)
                      : layout.numbers == IGNIS__NUMBERS_MXFP4   ? table_word(IGNIS__NUMBERS_MXFP4, word)
                      : layout.numbers == IGNIS__NUMBERS_IQ3_XXS ? table_word(IGNIS__NUMBERS_IQ3_XXS, word)
                      : layout.numbers == IGNIS__NUMBERS_IQ3_S   ? table_word(IGNIS__NUMBERS_IQ3_S, word)
                                                                 : table_word(IGNIS__NUMBERS_IQ2, word);
#pragma unroll
    for (int j = 0; j < 8; j++) {
        const int at = j % 4 * 8 + j / 4 * 4;
        int q = (int)(low >> (is_table ? 4 * j : at) & 15);
        q |= (int)(more[j / 4] >> j % 4 * 8 & 3) << (bits == 6 ? 4 : bits == 3 ? 1 : 0);
        q |= (int)(one >> at & 1) << (bits == 5 ? 4 : 0);
        if (is_signed)
            q = (q ^ 1 << (bits - 1)) - (1 << (bits - 1));
        if (is_table) {
            const uint32_t word = q & 8 ? q & 4 ? words[3] : words[2] : q & 4 ? words[1] : words[0];
            q = (int8_t)(word >> 8 * (q & 3));
        }
        v[j] = __fsub_rn(__fmul_rn(scale, (float)q), base);
    }
}

#endif /* IGNIS_BLOCKS_CUH */
