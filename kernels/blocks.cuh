// SPDX-License-Identifier: MIT
/*  blocks.cuh - where quantised weights lie on the device, and what they are

    The numbers of GGUF's blocks, bit for bit and in as many bytes, but in planes, each [rows, bytes], so that they are read 16 aligned bytes at
    a time. Elements of a row go in blocks of 32 along K, as mma.m16n8k16 wants them (see weights.cuh): lane t of four has eight of them, 8 t to
    8 t + 7; of Q6_K, whose scales are of 16 elements, 4 t to 4 t + 3 and 16 + 4 t to 16 + 4 t + 3. Bits of those eight are

        4    a word: of the elements 2 j and 2 j + 1 of the eight, nibbles j and j + 4
        8    two such words: the low nibbles of q + 128, and the high ones
        2    half of a word that two blocks share: of the same elements, bits 2 j and 2 j + 16; of the second block 8 more

    and those of as many blocks as fill 16 bytes lie together, for lane 0 first; at the end of a row, where blocks are left, block after block.

        Q8_0   8 bits; f16 d of each block                                                    d (q - 128)
        Q4_0   4 bits; f16 d of each block                                                    d (q - 8)
        Q4_K   4 bits; 16 bytes of each 8 blocks: f16 d, e; scales S and minima M             d S q - e M
        Q6_K   4 bits, the low ones; 2 bits; i8 S of 16 elements; f16 d of 8 blocks           d S (q - 32)
*/
#ifndef IGNIS_BLOCKS_CUH
#define IGNIS_BLOCKS_CUH

enum blocks_type { BLOCKS_Q4_0 = 2, BLOCKS_Q8_0 = 8, BLOCKS_Q4_K = 12, BLOCKS_Q6_K = 14 }; /* GGUF's numbers */

/*  ignis.h has the same struct. */
struct quantised {
    const uint8_t *plane[4];
    long long k;
    int type;
};

/*  Where in a row of a plane the bits of lane t of a block are, if they take so many bytes. */
__device__ inline int blocks_place(int blocks, int block, int t, int bytes)
{
    const int together = 16 / bytes, unit = block / together, inside = block % together;
    if ((unit + 1) * together <= blocks)
        return unit * 64 + t * 16 + inside * bytes;
    return unit * 64 + (inside * 4 + t) * bytes;
}

__device__ inline float blocks_half(const uint8_t *at) { return ignis_ptx_cvt_f32_f16(*(const uint16_t *)at); }

/*  The scale and the minimum of one of eight blocks of Q4_K, six bits each. s: behind d and e. */
__device__ inline void blocks_scale(const uint8_t *s, int j, int &scale, int &least)
{
    scale = j < 4 ? s[j] & 63 : (s[j + 4] & 15) | s[j - 4] >> 6 << 4;
    least = j < 4 ? s[j + 4] & 63 : s[j + 4] >> 4 | s[j] >> 6 << 4;
}

/*  The eight numbers of lane t of a block, and which element of the block the first four begin at, and the last four. Products and sums are
    rounded one by one, as the host does it. */
__device__ inline void blocks_eight(const quantised &w, long long row, int block, int t, float (&v)[8], int (&first)[2])
{
    const int blocks = (int)(w.k / 32), wide = w.type == BLOCKS_Q8_0 ? 8 : 4;
    const uint8_t *at = w.plane[0] + row * (blocks * 4 * wide) + blocks_place(blocks, block, t, wide);
    const uint32_t low = *(const uint32_t *)at, high = wide == 8 ? *(const uint32_t *)(at + 4) : 0;
    uint32_t more = 0;
    float scales[2], base = 0;
    int offset = wide == 8 ? 128 : 8;
    first[0] = 8 * t;
    first[1] = 8 * t + 4;
    if (w.type == BLOCKS_Q6_K) {
        first[0] = 4 * t;
        first[1] = 16 + 4 * t;
        more = *(const uint32_t *)(w.plane[1] + row * (blocks * 8) + blocks_place(blocks / 2, block / 2, t, 4)) >> block % 2 * 8;
        const float d = blocks_half(w.plane[3] + (row * (blocks / 8) + block / 8) * 2);
        const int8_t *s = (const int8_t *)w.plane[2] + (row * blocks + block) * 2;
        scales[0] = d * (float)s[0];
        scales[1] = d * (float)s[1];
        offset = 32;
    } else if (w.type == BLOCKS_Q4_K) {
        const uint8_t *s = w.plane[1] + (row * (blocks / 8) + block / 8) * 16;
        int scale, least;
        blocks_scale(s + 4, block % 8, scale, least);
        scales[0] = scales[1] = blocks_half(s) * (float)scale;
        base = blocks_half(s + 2) * (float)least;
        offset = 0;
    } else {
        scales[0] = scales[1] = blocks_half(w.plane[1] + (row * blocks + block) * 2);
    }
#pragma unroll
    for (int i = 0; i < 8; i++) {
        const int nibble = 4 * (i / 2 + i % 2 * 4);
        int q = low >> nibble & 15;
        q |= (high >> nibble & 15) << 4;
        q |= (more >> (i / 2 * 2 + i % 2 * 16) & 3) << 4;
        v[i] = __fsub_rn(__fmul_rn(scales[i / 4], (float)(q - offset)), base);
    }
}

#endif /* IGNIS_BLOCKS_CUH */
