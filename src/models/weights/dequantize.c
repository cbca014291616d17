/*  models/weights/dequantize.c - GGUF blocks to floats, and GGUF blocks to the layout of the device

    The layout is in kernels/models/blocks.cuh. Bits are those of llama.cpp.
    May use: nothing of the room. Locks: none. */

#include "room.h"

/*  Converts a half to a float. */
IGNIS__PRIVATE float ignis__half_at(const unsigned char *at)
{
    return (float)ignis__widen_float((uint16_t)(at[0] | at[1] << 8), 10, 5);
}

/*  Unpacks the scale and the minimum of one of the eight sub-blocks of Q4_K and Q5_K, six bits each. */
static void ignis__k_scale(const unsigned char *s, int j, int *scale, int *least)
{
    *scale = j < 4 ? s[j] & 63 : (s[j + 4] & 15) | s[j - 4] >> 6 << 4;
    *least = j < 4 ? s[j + 4] & 63 : s[j + 4] >> 4 | s[j] >> 6 << 4;
}

/*  Converts one block to floats. Each product and each sum is rounded once to f32, as in llama.cpp. */
IGNIS__PRIVATE void ignis__dequantise(uint32_t type, const unsigned char *block, float *out)
{
    float d = ignis__half_at(type == IGNIS__GGUF_Q6_K ? block + 208 : block), m = 0;
    int i, j, k, scale = 0, least = 0, q;
    switch (type) {
    case IGNIS__GGUF_Q8_0:
        for (i = 0; i < 32; i++)
            out[i] = d * (float)(signed char)block[2 + i];
        break;
    case IGNIS__GGUF_Q4_0:
        for (i = 0; i < 16; i++) {
            out[i] = d * (float)((block[2 + i] & 15) - 8);
            out[i + 16] = d * (float)((block[2 + i] >> 4) - 8);
        }
        break;
    case IGNIS__GGUF_Q4_1:
        m = ignis__half_at(block + 2);
        for (i = 0; i < 16; i++) {
            float low = d * (float)(block[4 + i] & 15), high = d * (float)(block[4 + i] >> 4);
            out[i] = low + m;
            out[i + 16] = high + m;
        }
        break;
    case IGNIS__GGUF_Q6_K:
        for (i = 0; i < 256; i++) {
            int h = i / 128, g = i % 128 / 32, l = i % 32;
            q = (block[64 * h + 32 * (g & 1) + l] >> 4 * (g >> 1) & 15) | (block[128 + 32 * h + l] >> 2 * g & 3) << 4;
            m = d * (float)(signed char)block[192 + i / 16];
            out[i] = m * (float)(q - 32);
        }
        break;
    default: /* Q4_K, Q5_K */
        m = ignis__half_at(block + 2);
        for (j = 0; j < 8; j++) {
            const unsigned char *nibbles = block + (type == IGNIS__GGUF_Q5_K ? 48 : 16) + 32 * (j / 2);
            float step, base;
            ignis__k_scale(block + 4, j, &scale, &least);
            step = d * (float)scale;
            base = m * (float)least;
            for (k = 0; k < 32; k++) {
                float value;
                q = nibbles[k] >> 4 * (j & 1) & 15;
                if (type == IGNIS__GGUF_Q5_K)
                    q |= (block[16 + k] >> j & 1) << 4;
                value = step * (float)q;
                out[32 * j + k] = value - base;
            }
        }
    }
}

/*  Converts a row of GGUF blocks to records: every eighth record from its first on. Q6_K has scales besides. */
IGNIS__PRIVATE void ignis__blocks_pack(uint32_t type, const unsigned char *from, int64_t columns, unsigned char *record,
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
