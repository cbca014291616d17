/*  models/weights/dequantize.c - GGUF blocks to floats, and GGUF blocks to the layout of the device

    The layout is in kernels/models/blocks.cuh. Bits are those of llama.cpp.
    May use: block_read.c. Locks: none. */

#include "room.h"

/*  Converts a half to a float. */
IGNIS__PRIVATE float ignis__half_at(const unsigned char *at)
{
    return (float)ignis__widen_float((uint16_t)(at[0] | at[1] << 8), 10, 5);
}

/*  Converts one block to floats. Each product and each sum is rounded once to f32, as in llama.cpp. */
IGNIS__PRIVATE void ignis__dequantise(uint32_t type, const unsigned char *bytes, float *out)
{
    const struct ignis__blocks_types_type *of = &ignis__blocks_types[ignis__blocks_type((int)type)];
    float numbers[64], d, e;
    ignis__weight_block block;
    int i, k;
    if (type == IGNIS__GGUF_F8) {
        memcpy(&d, bytes, 4);
        ignis__convert(out, IGNIS_F32, bytes + 4, IGNIS_F8_E4M3, 128);
        for (i = 0; i < 128; i++)
            out[i] *= d;
        return;
    }
    ignis__weight_block_read(type, bytes, &block);
    d = of->scales == (int)IGNIS__SCALES_POWER ? (float)ignis__widen_float(block.d, 7, 8)
                                               : (float)ignis__widen_float(block.d, 10, 5);
    e = (float)ignis__widen_float(block.e, 10, 5);
    e = of->scales == (int)IGNIS__SCALES_ADDED ? -e : e;
    for (i = 0; of->bits < 8 && i < 1 << of->bits; i++)
        numbers[i] = (float)ignis__weight_block_number(of, i);
    for (i = 0; i < of->file_elements; i += 16) {
        float step = d * (float)block.scale[i / 16],
              base = of->scales == (int)IGNIS__SCALES_ADDED ? e : e * (float)block.least[i / 16];
        step = step / (float)of->divisor; /* a power of two */
        for (k = i; k < i + 16; k++) {
            float value = step * (of->bits == 8 ? (float)(block.q[k] - 128) : numbers[block.q[k]]);
            out[k] = value - base;
        }
    }
}

/*  As ignis__blocks_pack for Q4_0, Q8_0, Q4_K and Q6_K, eight numbers at a time. */
static void ignis__blocks_pack_words(uint32_t type, const unsigned char *from, int64_t columns, unsigned char *record,
                                     unsigned char *scales)
{
    const uint64_t fours = 0x0F0F0F0F0F0F0F0Fu, twos = 0x0303030303030303u;
    int64_t blocks = columns / 32, block;
    int size = ignis__blocks_types[ignis__blocks_type((int)type)].bytes, i, j;
    if (blocks % 8)
        memset(record + blocks / 8 * 8 * size, 0, (size_t)size);
    for (block = 0; block < blocks; block++) {
        uint32_t word, more[2] = {0, 0};
        j = (int)(block % 8);
        if (type == IGNIS__GGUF_Q8_0) {
            memcpy(record + j * 16, from + 2, 16);
            memcpy(record + 128 + j * 16, from + 18, 16);
            memcpy(record + 256 + j * 2, from, 2);
            from += 34;
        }
        for (i = 0; i < 4 && type != IGNIS__GGUF_Q8_0; i++) { /* elements 8 i to 8 i + 7 */
            uint64_t bytes, two;
            if (type == IGNIS__GGUF_Q4_0) {
                memcpy(&bytes, from + 2 + i % 2 * 8, 8);
                bytes = (bytes >> i / 2 * 4 & fours) ^ 0x0808080808080808u;
            } else if (type == IGNIS__GGUF_Q4_K) {
                memcpy(&bytes, from + 16 + 32 * (j / 2) + 8 * i, 8);
                bytes = bytes >> j % 2 * 4 & fours;
            } else { /* Q6_K */
                memcpy(&bytes, from + 64 * (j / 4) + 32 * (j % 2) + 8 * i, 8);
                memcpy(&two, from + 128 + 32 * (j / 4) + 8 * i, 8);
                bytes = bytes >> j % 4 / 2 * 4 & fours;
                two = (two >> j % 4 * 2 & twos) ^ 0x0202020202020202u;
                more[0] |= (uint32_t)two << 2 * i;
                more[1] |= (uint32_t)(two >> 32) << 2 * i;
            }
            word = (uint32_t)bytes | (uint32_t)(bytes >> 32) << 4;
            memcpy(record + j * 16 + 4 * i, &word, 4);
        }
        if (type == IGNIS__GGUF_Q4_0) {
            memcpy(record + 128 + j * 2, from, 2);
            from += 18;
        }
        if (type == IGNIS__GGUF_Q6_K)
            memcpy(record + 128 + j * 8, more, 8);
        if (j < 7)
            continue;
        if (type == IGNIS__GGUF_Q4_K) {
            memcpy(record + 128, from, 16);
            from += 144;
        } else if (type == IGNIS__GGUF_Q6_K) {
            memcpy(record + 192, from + 192, 16);
            memcpy(scales + block / 8 * 2, from + 208, 2);
            from += 210;
        }
        record += 8 * size;
    }
}

/*  As ignis__blocks_pack for F8: see kernels/models/blocks.cuh. */
static void ignis__blocks_pack_f8(const unsigned char *from, int64_t columns, unsigned char *record)
{
    const int size = ignis__blocks_types[IGNIS__BLOCKS_F8].bytes;
    int64_t unit;
    int i;
    for (unit = 0; unit < columns / 128; unit++, from += 132) {
        unsigned char *to = record + unit / 2 * 8 * size;
        const int second = (int)(unit % 2);
        if (second == 0)
            memset(to, 0, (size_t)size);
        memcpy(to + 256 + 4 * second, from, 4);
        for (i = 0; i < 128; i += 4) {
            const unsigned char *four = from + 4 + i;
            unsigned char *at = to + 128 * second + i / 64 * 64 + i % 32 / 8 * 16 + i / 32 % 2 * 8 + i % 8 / 4 * 4;
            at[0] = four[0], at[1] = four[2], at[2] = four[1], at[3] = four[3];
        }
    }
}

/*  Writes the numbers of block `j` of a record. */
static void ignis__blocks_pack_numbers(const struct ignis__blocks_types_type *of, const unsigned char *q, int j,
                                       unsigned char *record)
{
    const int bits = of->bits, flipped = of->numbers == (int)IGNIS__NUMBERS_SIGNED ? 1 << (bits - 1) : 0;
    const int upper = bits == 6 ? 4 : bits == 3 ? 1 : 0, single = bits == 5 ? 4 : 0;
    unsigned char *twos = record + (bits >= 4 ? 128 : 0), *ones = twos + (bits == 3 ? 64 : 0);
    int i, k;
    for (i = 0; i < 4; i++) /* elements 8 i to 8 i + 7 */
        for (k = 0; k < 8; k++) {
            int now = q[8 * i + k] ^ flipped;
            if (bits >= 4 && of->numbers >= (int)IGNIS__NUMBERS_IQ4)
                record[16 * j + 4 * i + k / 2] |= (unsigned char)(now << k % 2 * 4);
            else if (bits >= 4)
                record[16 * j + 4 * i + k % 4] |= (unsigned char)((now & 15) << k / 4 * 4);
            if (bits == 2 || bits == 3 || bits == 6)
                twos[8 * j + k] |= (unsigned char)((now >> upper & 3) << 2 * i);
            if (bits == 3 || bits == 5)
                ones[4 * j + k % 4] |= (unsigned char)((now >> single & 1) << (i + k / 4 * 4));
        }
}

/*  Writes the scales of block `j` of a record to `to`, or to `outside`. It begins at element `first` of
    the file's block, whose bytes are `header`. */
static void ignis__blocks_pack_scales(const struct ignis__blocks_types_type *of, const ignis__weight_block *block,
                                      int first, const unsigned char *header, int j, unsigned char *to,
                                      unsigned char *outside)
{
    int i;
    switch (of->scales) {
    case IGNIS__SCALES_K: memcpy(to, header, 16); break;
    case IGNIS__SCALES_32:
        memcpy(to, &block->d, 2);
        to[8 + j] = (unsigned char)block->scale[first / 16];
        break;
    case IGNIS__SCALES_16:
    case IGNIS__SCALES_16_MIN:
        for (i = 0; i < 2; i++)
            to[2 * j + i] = (unsigned char)(of->scales == (int)IGNIS__SCALES_16
                                                ? block->scale[first / 16 + i]
                                                : block->scale[first / 16 + i] | block->least[first / 16 + i] << 4);
        memcpy(outside, &block->d, 2);
        if (of->scales == (int)IGNIS__SCALES_16_MIN)
            memcpy(outside + 2, &block->e, 2);
        break;
    default:
        memcpy(to + 2 * j, &block->d, 2);
        if (of->scales == (int)IGNIS__SCALES_ADDED)
            memcpy(to + 16 + 2 * j, &block->e, 2);
    }
}

/*  Converts a row of GGUF blocks to records: every eighth record from its first on. scales: of types that have some
    outside of the records. */
IGNIS__PRIVATE void ignis__blocks_pack(uint32_t type, const unsigned char *from, int64_t columns, unsigned char *record,
                                       unsigned char *scales)
{
    const struct ignis__blocks_types_type *of = &ignis__blocks_types[ignis__blocks_type((int)type)];
    ignis__weight_block block;
    int64_t i;
    if (type == IGNIS__GGUF_F8) {
        ignis__blocks_pack_f8(from, columns, record);
        return;
    }
    if (type == IGNIS__GGUF_Q4_0 || type == IGNIS__GGUF_Q8_0 || type == IGNIS__GGUF_Q4_K || type == IGNIS__GGUF_Q6_K) {
        ignis__blocks_pack_words(type, from, columns, record, scales);
        return;
    }
    for (i = 0; i < columns; i += 32) {
        int j = (int)(i / 32 % 8), first = (int)(i % of->file_elements);
        if (j == 0)
            memset(record, 0, (size_t)of->bytes);
        if (first == 0)
            ignis__weight_block_read(type, from, &block);
        ignis__blocks_pack_numbers(of, block.q + first, j, record);
        ignis__blocks_pack_scales(of, &block, first, from, j, record + 32 * of->bits, scales + i / 256 * of->scale);
        if (first + 32 == of->file_elements)
            from += of->file_bytes;
        if (j == 7)
            record += 8 * of->bytes;
    }
}
