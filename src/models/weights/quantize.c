/*  models/weights/quantize.c - floats to blocks of Q8_0, Q4_0, Q4_K and F8

    Q8_0 and Q4_0 give the blocks of ggml's reference. Q4_K is fitted by least squares. The scale of F8 makes the
    greatest number 448, the greatest one of e4m3.
    May use: dequantize.c (halves). Locks: none. */

#include "room.h"

static void ignis__half_write(unsigned char *to, float value) { ignis__convert(to, IGNIS_F16, &value, IGNIS_F32, 1); }

/*  Finds the number with the greatest magnitude, the first one of equals. False if one of them is infinite or
    NaN. Signs are random: a branch on one is mispredicted half of the time, so magnitudes are compared as bits. */
static bool ignis__quantise_find_extreme(const float *x, int count, float *most)
{
    uint32_t largest = 0, found = 0;
    int i;
    for (i = 0; i < count; i++) {
        uint32_t bits, size;
        memcpy(&bits, &x[i], sizeof bits);
        size = bits & 0x7FFFFFFFu;
        found = size > largest ? bits : found;
        largest = size > largest ? size : largest;
    }
    memcpy(most, &found, sizeof found);
    return largest < 0x7F800000u;
}

/*  Quantises 32 numbers to 0..15 with a scale and a minimum. Tries some scales near that of the range, fits
    each by least squares, and keeps the one with the least squared error. */
static void ignis__quantise_32(const float *x, float *scale, float *least, unsigned char *q)
{
    float low = 0, high = 0, best = -1;
    unsigned char some[32];
    int i, trial;
    for (i = 0; i < 32; i++) {
        low = x[i] < low ? x[i] : low;
        high = x[i] > high ? x[i] : high;
    }
    *scale = 0;
    *least = -low;
    memset(q, 0, 32);
    for (trial = -3; high > low && trial <= 3; trial++) {
        float inverse = (15 + 0.3f * (float)trial) / (high - low), sum_q = 0, sum_qq = 0, sum_x = 0, sum_qx = 0,
              error = 0, step, base, whole;
        for (i = 0; i < 32; i++) {
            int level = (int)((x[i] - low) * inverse + 0.5f);
            some[i] = (unsigned char)(level > 15 ? 15 : level);
            sum_q += (float)some[i];
            sum_qq += (float)some[i] * (float)some[i];
            sum_x += x[i];
            sum_qx += (float)some[i] * x[i];
        }
        whole = 32 * sum_qq - sum_q * sum_q;
        if (!(whole > 0))
            continue;
        step = (32 * sum_qx - sum_q * sum_x) / whole;
        base = (sum_qq * sum_x - sum_q * sum_qx) / whole;
        if (base > 0) { /* a minimum is at most 0 */
            base = 0;
            step = sum_qx / sum_qq;
        }
        for (i = 0; i < 32; i++) {
            float off = step * (float)some[i] + base - x[i];
            error += off * off;
        }
        if (best < 0 || error < best) {
            best = error;
            *scale = step;
            *least = -base;
            memcpy(q, some, 32);
        }
    }
}

/*  Quantises 256 numbers to a block of Q4_K. */
static void ignis__quantise_k(const float *x, unsigned char *to)
{
    float scale[8], least[8], most_scale = 0, most_least = 0, d, e;
    unsigned char q[256];
    int S[8], M[8], i, j;
    for (j = 0; j < 8; j++) {
        ignis__quantise_32(x + 32 * j, &scale[j], &least[j], q + 32 * j);
        most_scale = scale[j] > most_scale ? scale[j] : most_scale;
        most_least = least[j] > most_least ? least[j] : most_least;
    }
    memset(to, 0, 144);
    ignis__half_write(to, most_scale / 63);
    ignis__half_write(to + 2, most_least / 63);
    d = ignis__half_at(to);
    e = ignis__half_at(to + 2);
    for (j = 0; j < 8; j++) {
        float step, base;
        S[j] = d > 0 ? (int)(scale[j] / d + 0.5f) : 0;
        M[j] = e > 0 ? (int)(least[j] / e + 0.5f) : 0;
        S[j] = S[j] > 63 ? 63 : S[j] < 0 ? 0 : S[j];
        M[j] = M[j] > 63 ? 63 : M[j];
        step = d * (float)S[j];
        base = e * (float)M[j];
        for (i = 32 * j; step > 0 && i < 32 * j + 32; i++) { /* quantised again with the rounded scale and minimum */
            float level = (x[i] + base) / step + 0.5f;
            q[i] = (unsigned char)(level < 0 ? 0 : level > 15 ? 15 : (int)level);
        }
        to[4 + j % 4 + (j < 4 ? 0 : 8)] |= (unsigned char)(j < 4 ? S[j] : S[j] & 15);
        if (j < 4) {
            to[8 + j] |= (unsigned char)M[j];
        } else {
            to[j] |= (unsigned char)(S[j] >> 4 << 6);
            to[4 + j] |= (unsigned char)(M[j] >> 4 << 6);
            to[8 + j] |= (unsigned char)((M[j] & 15) << 4);
        }
    }
    for (j = 0; j < 8; j++)
        for (i = 0; i < 32; i++)
            to[16 + 32 * (j / 2) + i] |= (unsigned char)(q[32 * j + i] << 4 * (j % 2));
}

/*  Returns the bits of e4m3 of a number, 448 for larger ones: rounded to the nearest, ties to even. ignis__convert
    gives the same bits, in ten times as long. */
static unsigned char ignis__e4m3_of(float x)
{
    uint32_t bits, size, low, normal;
    float magnitude;
    memcpy(&bits, &x, 4);
    size = bits & 0x7FFFFFFFu;
    size = size > 0x43E00000u ? 0x43E00000u : size; /* 448 */
    memcpy(&magnitude, &size, 4);
    magnitude += 16384; /* whole steps of the numbers below 2^-6, whose distance is 2^-9 */
    memcpy(&low, &magnitude, 4);
    normal = ((size + 0x7FFFFu + (size >> 20 & 1)) >> 20) - (120u << 3); /* exponent + 7, three bits of fraction */
    return (unsigned char)((bits >> 24 & 128) | (size < 0x3C800000u ? low & 15 : normal));
}

/*  Quantises 128 numbers to a block of F8: an f32, and bits of e4m3. The inverse of the scale is finite. */
static void ignis__quantise_f8(const float *x, float most, unsigned char *to)
{
    const float least = 1.17549435e-38f, scale = (most < 0 ? -most : most) / 448,
                used = most == 0       ? 1
                       : scale < least ? least
                                       : scale,
                inverse = 1 / used;
    int i;
    memcpy(to, &used, 4);
    for (i = 0; i < 128; i++)
        to[4 + i] = ignis__e4m3_of(x[i] * inverse); /* rounding may make it a little more than 448 */
}

/*  Quantises a row to GGUF blocks, Q8_0 and Q4_0 as ggml does. A block with a number that is not finite
    becomes NaN. */
IGNIS__PRIVATE void ignis__quantise(int type, const float *x, int64_t columns, unsigned char *to)
{
    const struct ignis__blocks_types_type *of = &ignis__blocks_types[ignis__blocks_type(type)];
    int elements = of->file_elements, bytes = of->file_bytes, i;
    for (; columns > 0; columns -= elements, x += elements, to += bytes) {
        float most, d, inverse;
        if (!ignis__quantise_find_extreme(x, elements, &most)) {
            memset(to, 0, (size_t)bytes);
            to[1] = 0x7E; /* d is NaN */
            if (type == IGNIS__GGUF_F8)
                memset(to, 0xFF, 4);
            continue;
        }
        if (type == IGNIS__GGUF_F8) {
            ignis__quantise_f8(x, most, to);
            continue;
        }
        if (type == IGNIS__GGUF_Q4_K) {
            ignis__quantise_k(x, to);
            continue;
        }
        d = type == IGNIS__GGUF_Q4_0 ? most / -8 : (most < 0 ? -most : most) / 127;
        inverse = d != 0 && 1 / d - 1 / d == 0 ? 1 / d : 0;
        ignis__half_write(to, d);
        for (i = 0; i < (type == IGNIS__GGUF_Q4_0 ? 16 : 32); i++) {
            if (type == IGNIS__GGUF_Q8_0) {
                const float level = x[i] * inverse;
                to[2 + i] = (unsigned char)(signed char)(int)(level + copysignf(0.5f, level));
            } else {
                int low = (int)((double)x[i] * (double)inverse + 8.5),
                    high = (int)((double)x[i + 16] * (double)inverse + 8.5);
                to[2 + i] = (unsigned char)((low > 15 ? 15 : low) | (high > 15 ? 15 : high) << 4);
            }
        }
    }
}

/*  Converts a row of the file. */
IGNIS__PRIVATE void ignis__model_source_row(const ignis__model_source *source, const unsigned char *from,
                                            int64_t columns, char *to, ignis_dtype dtype)
{
    float block[256];
    int64_t i;
    if (!source->quant && source->dtype == dtype) {
        memcpy(to, from, (size_t)(columns * ignis__dtypes[dtype].size));
    } else if (!source->quant) {
        ignis__convert(to, dtype, from, source->dtype, columns);
    } else {
        for (i = 0; i < columns; i += source->elements, from += source->bytes) {
            ignis__dequantise(source->quant, from, block);
            if (dtype == IGNIS_F32)
                memcpy(to + i * 4, block, (size_t)source->elements * 4);
            else
                ignis__convert(to + i * ignis__dtypes[dtype].size, dtype, block, IGNIS_F32, source->elements);
        }
    }
}
