// SPDX-License-Identifier: MIT
/*  models/blocks.cuh - the layout of quantised weights on the device, and their formulas

    The numbers of GGUF's blocks of 32 elements, in as many bytes. Eight blocks form a record, in an order of which
    lanes read 16 aligned bytes, and which becomes operands of mma.m16n8k32 with few instructions (see
    weights_blocks.cuh). A row is a sequence of records, the last one filled up with zeros. Eight rows have their
    first records together, then their second ones: TMA copies them as one run of bytes. Numbers are stored minus
    2^(bits - 1), in two's complement; those of Q4_K are stored as they are. Of eight elements of a block, 8 i to 8
    i + 7,

        4    bits are word i of the block's four: byte j has element j in its low nibble, element 4 + j in the high one
        2    bits, above those, are bits 2 i and 2 i + 1 of bytes: byte j of the block's first word has element j, byte
             j of its second word element 4 + j

    and a record has, each item for all of its blocks,

        Q8_0   bytes of elements 0 to 15 of a block; of 16 to 31; f16 d                       d (q - 128)
        Q4_0   4 bits; f16 d                                                                  d (q - 8)
        Q4_K   4 bits; 16 bytes: f16 d, e of the record; scales S and minima M                d S q - e M
        Q6_K   4 bits, the low ones; 2 bits; i8 S of 16 elements; after all rows, f16 d       d S (q - 32)
*/
#ifndef IGNIS_BLOCKS_CUH
#define IGNIS_BLOCKS_CUH

constexpr int RECORD = 8; /* blocks per record */

enum blocks_type { BLOCKS_Q4_0 = 2, BLOCKS_Q8_0 = 8, BLOCKS_Q4_K = 12, BLOCKS_Q6_K = 14 }; /* the numbers of GGUF */

#include "shared/models/weights.h"

__device__ inline float blocks_half(const uint8_t *at) { return ignis_ptx_cvt_f32_f16(*(const uint16_t *)at); }

/*  Unpacks the scale and the minimum of one of eight blocks of Q4_K, six bits each. s: the bytes after d and e. */
__device__ inline void blocks_scale(const uint8_t *s, int j, int &scale, int &least)
{
    scale = j < 4 ? s[j] & 63 : (s[j + 4] & 15) | s[j - 4] >> 6 << 4;
    least = j < 4 ? s[j + 4] & 63 : s[j + 4] >> 4 | s[j] >> 6 << 4;
}

/*  Returns the bytes of a record. The host has the same. */
__device__ constexpr int record_bytes(int type) { return type == BLOCKS_Q8_0 ? 272 : type == BLOCKS_Q6_K ? 208 : 144; }

/*  Returns the index of a row's first record. The next one is TOGETHER records later. */
constexpr int TOGETHER = 8;
__device__ inline long long first_record(long long row, int records)
{
    return row / TOGETHER * TOGETHER * records + row % TOGETHER;
}

/*  Dequantises elements 8 i to 8 i + 7 of a block. Products and sums are rounded one by one, as on the host. */
__device__ inline void blocks_eight(const ignis__quantised_weight &w, long long row, int block, int i, float (&v)[8])
{
    const int own = block % RECORD, records = (int)((w.k + 32 * RECORD - 1) / (32 * RECORD));
    const uint8_t *record = w.records + (first_record(row, records) + block / RECORD * TOGETHER) * record_bytes(w.type);
    float scale = 0, base = 0;
    if (w.type == BLOCKS_Q8_0) {
        const int8_t *q = (const int8_t *)record + i / 2 * 128 + own * 16 + i % 2 * 8;
        scale = blocks_half(record + 256 + own * 2);
#pragma unroll
        for (int j = 0; j < 8; j++)
            v[j] = __fmul_rn(scale, (float)q[j]);
        return;
    }
    const uint32_t low = *(const uint32_t *)(record + own * 16 + i * 4);
    uint32_t more[2] = {0, 0};
    int flipped = 0; /* the sign bit, and the offset of the type */
    if (w.type == BLOCKS_Q6_K) {
        const uint32_t *two = (const uint32_t *)(record + 128 + own * 8);
        more[0] = two[0] >> 2 * i;
        more[1] = two[1] >> 2 * i;
        scale = blocks_half(w.scales + (row * records + block / RECORD) * 2) *
                (float)((const int8_t *)record)[192 + own * 2 + i / 2];
        flipped = 32;
    } else if (w.type == BLOCKS_Q4_K) {
        const uint8_t *s = record + 128;
        int whole, least;
        blocks_scale(s + 4, own, whole, least);
        scale = blocks_half(s) * (float)whole;
        base = blocks_half(s + 2) * (float)least;
    } else {
        scale = blocks_half(record + 128 + own * 2);
        flipped = 8;
    }
#pragma unroll
    for (int j = 0; j < 8; j++) {
        const int q = (low >> (j % 4 * 8 + j / 4 * 4) & 15) | (more[j / 4] >> j % 4 * 8 & 3) << 4;
        v[j] = __fsub_rn(__fmul_rn(scale, (float)((q ^ flipped) - flipped)), base);
    }
}

#endif /* IGNIS_BLOCKS_CUH */
