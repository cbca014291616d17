/*  models/weights/block_read.c - blocks of GGUF files as numbers and scales

    Each type has a function, which unpacks one block as the format defines it.
    May use: block_grids.c, dequantize.c (halves). Locks: none. */

#include "room.h"

static uint16_t ignis__u16_at(const unsigned char *at) { return (uint16_t)(at[0] | at[1] << 8); }

static uint32_t ignis__u32_at(const unsigned char *at)
{
    return (uint32_t)ignis__u16_at(at) | (uint32_t)ignis__u16_at(at + 2) << 16;
}

/*  Reads 32 numbers whose low four bits are nibbles, and whose fifth bits, if there are any, are a word. */
static void ignis__weight_block_read_32(const unsigned char *nibbles, const unsigned char *fifth, unsigned char *q)
{
    uint32_t bits = fifth ? ignis__u32_at(fifth) : 0;
    int i;
    for (i = 0; i < 16; i++) {
        q[i] = (unsigned char)((nibbles[i] & 15) | (bits >> i & 1) << 4);
        q[16 + i] = (unsigned char)(nibbles[i] >> 4 | (bits >> (16 + i) & 1) << 4);
    }
}

/*  Reads Q4_K or Q5_K. */
static void ignis__weight_block_read_k(const unsigned char *from, const unsigned char *fifth,
                                       const unsigned char *nibbles, ignis__weight_block *to)
{
    const unsigned char *s = from + 4;
    int i, j;
    to->d = ignis__u16_at(from);
    to->e = ignis__u16_at(from + 2);
    for (j = 0; j < 8; j++) {
        int scale = j < 4 ? s[j] & 63 : (s[j + 4] & 15) | s[j - 4] >> 6 << 4,
            least = j < 4 ? s[j + 4] & 63 : s[j + 4] >> 4 | s[j] >> 6 << 4;
        to->scale[2 * j] = to->scale[2 * j + 1] = (signed char)scale;
        to->least[2 * j] = to->least[2 * j + 1] = (unsigned char)least;
        for (i = 0; i < 32; i++)
            to->q[32 * j + i] = (unsigned char)((nibbles[32 * (j / 2) + i] >> 4 * (j & 1) & 15) |
                                                (fifth ? (fifth[i] >> j & 1) << 4 : 0));
    }
}

/*  Reads numbers of two bits of Q2_K and Q3_K. */
static void ignis__weight_block_read_twos(const unsigned char *twos, unsigned char *q)
{
    int i;
    for (i = 0; i < 256; i++)
        q[i] = twos[32 * (i / 128) + i % 32] >> 2 * (i % 128 / 32) & 3;
}

static void ignis__weight_block_read_q2_k(const unsigned char *from, ignis__weight_block *to)
{
    int i;
    to->d = ignis__u16_at(from + 80);
    to->e = ignis__u16_at(from + 82);
    ignis__weight_block_read_twos(from + 16, to->q);
    for (i = 0; i < 16; i++) {
        to->scale[i] = (signed char)(from[i] & 15);
        to->least[i] = from[i] >> 4;
    }
}

static void ignis__weight_block_read_q3_k(const unsigned char *from, ignis__weight_block *to)
{
    const unsigned char *s = from + 96;
    int i;
    to->d = ignis__u16_at(from + 108);
    ignis__weight_block_read_twos(from + 32, to->q);
    for (i = 0; i < 256; i++)
        to->q[i] |= (unsigned char)((from[i % 32] >> i / 32 & 1) << 2);
    for (i = 0; i < 16; i++)
        to->scale[i] = (signed char)((s[i % 8] >> i / 8 * 4 & 15) + 16 * (s[8 + i % 4] >> i / 4 * 2 & 3) - 32);
}

static void ignis__weight_block_read_q6_k(const unsigned char *from, ignis__weight_block *to)
{
    int i;
    to->d = ignis__u16_at(from + 208);
    for (i = 0; i < 256; i++) {
        int h = i / 128, g = i % 128 / 32, l = i % 32;
        to->q[i] = (unsigned char)((from[64 * h + 32 * (g & 1) + l] >> 4 * (g >> 1) & 15) |
                                   (from[128 + 32 * h + l] >> 2 * g & 3) << 4);
    }
    memcpy(to->scale, from + 192, 16);
}

static void ignis__weight_block_read_iq4_xs(const unsigned char *from, ignis__weight_block *to)
{
    int upper = ignis__u16_at(from + 2), j;
    to->d = ignis__u16_at(from);
    for (j = 0; j < 8; j++) {
        int scale = (from[4 + j / 2] >> 4 * (j % 2) & 15) + 16 * (upper >> 2 * j & 3) - 32;
        to->scale[2 * j] = to->scale[2 * j + 1] = (signed char)scale;
        ignis__weight_block_read_32(from + 8 + 16 * j, NULL, to->q + 32 * j);
    }
}

/*  Completes seven signs: an even number of eight is negative. */
static int ignis__weight_block_signs(int seven)
{
    int odd = seven ^ seven >> 4;
    odd ^= odd >> 2;
    return (seven & 127) | ((odd ^ odd >> 1) & 1) << 7;
}

/*  Reads eight numbers of IQ2: a point, and the signs as bits. */
static void ignis__weight_block_read_iq2(int point, int signs, unsigned char *q)
{
    int i;
    for (i = 0; i < 8; i++)
        q[i] = (unsigned char)((point >> 2 * i & 3) << 1 | (signs >> i & 1));
}

/*  Reads eight numbers of IQ3: two points, and the signs as bits. */
static void ignis__weight_block_read_iq3(int low, int high, int signs, unsigned char *q)
{
    int i;
    for (i = 0; i < 8; i++)
        q[i] = (unsigned char)(((i < 4 ? low : high) >> 3 * (i % 4) & 7) | (signs >> i & 1) << 3);
}

/*  Reads types whose blocks of 32 have four indices, and a word with the signs and a scale: IQ2_XXS, IQ3_XXS. */
static void ignis__weight_block_read_xxs(const unsigned char *from, bool three, ignis__weight_block *to)
{
    int i, j;
    to->d = ignis__u16_at(from);
    for (j = 0; j < 8; j++) {
        const unsigned char *at = three ? from + 2 + 8 * j : from + 2 + 8 * j;
        uint32_t word = ignis__u32_at(three ? from + 66 + 4 * j : at + 4);
        to->scale[2 * j] = to->scale[2 * j + 1] = (signed char)(2 * (int)(word >> 28) + 1);
        for (i = 0; i < 4; i++) {
            int signs = ignis__weight_block_signs((int)(word >> 7 * i & 127));
            if (three)
                ignis__weight_block_read_iq3(ignis__grid_iq3_xxs[at[2 * i]], ignis__grid_iq3_xxs[at[2 * i + 1]], signs,
                                             to->q + 32 * j + 8 * i);
            else
                ignis__weight_block_read_iq2(ignis__grid_iq2_xxs[at[i]], signs, to->q + 32 * j + 8 * i);
        }
    }
}

static void ignis__weight_block_read_iq2_xs(const unsigned char *from, ignis__weight_block *to)
{
    int i;
    to->d = ignis__u16_at(from);
    for (i = 0; i < 32; i++) {
        int word = ignis__u16_at(from + 2 + 2 * i);
        ignis__weight_block_read_iq2(ignis__grid_iq2_xs[word & 511], ignis__weight_block_signs(word >> 9),
                                     to->q + 8 * i);
    }
    for (i = 0; i < 16; i++)
        to->scale[i] = (signed char)(2 * (from[66 + i / 2] >> 4 * (i % 2) & 15) + 1);
}

static void ignis__weight_block_read_iq2_s(const unsigned char *from, ignis__weight_block *to)
{
    int i;
    to->d = ignis__u16_at(from);
    for (i = 0; i < 32; i++)
        ignis__weight_block_read_iq2(ignis__grid_iq2_s[from[2 + i] | (from[66 + i / 4] >> 2 * (i % 4) & 3) << 8],
                                     from[34 + i], to->q + 8 * i);
    for (i = 0; i < 16; i++)
        to->scale[i] = (signed char)(2 * (from[74 + i / 2] >> 4 * (i % 2) & 15) + 1);
}

static void ignis__weight_block_read_iq3_s(const unsigned char *from, ignis__weight_block *to)
{
    int i;
    to->d = ignis__u16_at(from);
    for (i = 0; i < 32; i++) {
        const unsigned char *at = from + 2 + 2 * i;
        int upper = from[66 + i / 4] >> 2 * (i % 4);
        ignis__weight_block_read_iq3(ignis__grid_iq3_s[at[0] | (upper & 1) << 8],
                                     ignis__grid_iq3_s[at[1] | (upper & 2) << 7], from[74 + i], to->q + 8 * i);
    }
    for (i = 0; i < 16; i++)
        to->scale[i] = (signed char)(2 * (from[106 + i / 4] >> 4 * (i / 2 % 2) & 15) + 1);
}

IGNIS__PRIVATE void ignis__weight_block_read(uint32_t type, const unsigned char *from, ignis__weight_block *to)
{
    int i;
    memset(to->scale, 1, sizeof to->scale);
    memset(to->least, 0, sizeof to->least);
    to->d = ignis__u16_at(from);
    to->e = 0;
    switch (type) {
    case IGNIS__GGUF_Q4_0:
    case IGNIS__GGUF_IQ4_NL: ignis__weight_block_read_32(from + 2, NULL, to->q); break;
    case IGNIS__GGUF_Q5_0: ignis__weight_block_read_32(from + 6, from + 2, to->q); break;
    case IGNIS__GGUF_Q4_1:
        to->e = ignis__u16_at(from + 2);
        ignis__weight_block_read_32(from + 4, NULL, to->q);
        break;
    case IGNIS__GGUF_Q5_1:
        to->e = ignis__u16_at(from + 2);
        ignis__weight_block_read_32(from + 8, from + 4, to->q);
        break;
    case IGNIS__GGUF_Q8_0:
        for (i = 0; i < 32; i++)
            to->q[i] = from[2 + i] ^ 128;
        break;
    case IGNIS__GGUF_MXFP4: /* half of the power of two, as numbers are doubled */
        to->d = (uint16_t)(from[0] < 2 ? 0x20 << from[0] : (from[0] - 1) << 7);
        ignis__weight_block_read_32(from + 1, NULL, to->q);
        break;
    case IGNIS__GGUF_Q2_K: ignis__weight_block_read_q2_k(from, to); break;
    case IGNIS__GGUF_Q3_K: ignis__weight_block_read_q3_k(from, to); break;
    case IGNIS__GGUF_Q4_K: ignis__weight_block_read_k(from, NULL, from + 16, to); break;
    case IGNIS__GGUF_Q5_K: ignis__weight_block_read_k(from, from + 16, from + 48, to); break;
    case IGNIS__GGUF_Q6_K: ignis__weight_block_read_q6_k(from, to); break;
    case IGNIS__GGUF_IQ2_XXS: ignis__weight_block_read_xxs(from, false, to); break;
    case IGNIS__GGUF_IQ2_XS: ignis__weight_block_read_iq2_xs(from, to); break;
    case IGNIS__GGUF_IQ2_S: ignis__weight_block_read_iq2_s(from, to); break;
    case IGNIS__GGUF_IQ3_XXS: ignis__weight_block_read_xxs(from, true, to); break;
    case IGNIS__GGUF_IQ3_S: ignis__weight_block_read_iq3_s(from, to); break;
    default: ignis__weight_block_read_iq4_xs(from, to);
    }
}

/*  Returns the number that bits mean. */
IGNIS__PRIVATE int ignis__weight_block_number(const struct ignis__blocks_types_type *type, int q)
{
    static const signed char tables[][16] = IGNIS__BLOCKS_TABLES;
    return type->numbers >= (int)IGNIS__NUMBERS_IQ4      ? tables[type->numbers - (int)IGNIS__NUMBERS_IQ4][q & 15]
           : type->numbers == (int)IGNIS__NUMBERS_SIGNED ? q - (1 << (type->bits - 1))
                                                         : q;
}
