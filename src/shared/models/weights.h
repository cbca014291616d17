#pragma once
/*  Quantised weights; kernels/models/blocks.cuh has the layout of records. */
typedef struct ignis__quantised_weight {
    IGNIS__POINTER(const uint8_t) records, scales; /* scales: d of types that have it outside, [rows, records] */
    long long k;
    int type; /* an ignis__gguf_type */
} ignis__quantised_weight;
IGNIS__ASSERT_SIZE(ignis__quantised_weight, 32);

/*  The scales of a record, after its numbers; d, e and m are f16. S, M: of a block, or of 16 elements. */
typedef enum ignis__blocks_scales {
    IGNIS__SCALES_BLOCK,  /* d of each block */
    IGNIS__SCALES_POWER,  /* d of each block, as bf16 */
    IGNIS__SCALES_ADDED,  /* d of each block, m of each block, 16 unused bytes */
    IGNIS__SCALES_K,      /* d, e; S and M of each block, six bits each, as in Q4_K */
    IGNIS__SCALES_32,     /* d; from byte 8 on, i8 S of each block */
    IGNIS__SCALES_16,     /* i8 S; d is outside */
    IGNIS__SCALES_16_MIN, /* S and M, four bits each; d and e are outside */
    IGNIS__SCALES_128     /* f32 d of each half; 8 unused bytes */
} ignis__blocks_scales;

/*  The meaning of the bits q of a number. */
typedef enum ignis__blocks_numbers {
    IGNIS__NUMBERS_SIGNED, /* q - 2^(bits - 1) */
    IGNIS__NUMBERS_PLAIN,  /* q, and a minimum is taken off */
    IGNIS__NUMBERS_E4M3,   /* q, a float of 8 bits; a half with a NaN has a NaN as d */
    IGNIS__NUMBERS_IQ4,    /* this and all below: an item of a table */
    IGNIS__NUMBERS_MXFP4,
    IGNIS__NUMBERS_IQ3_XXS,
    IGNIS__NUMBERS_IQ3_S,
    IGNIS__NUMBERS_IQ2
} ignis__blocks_numbers;

/*  From IGNIS__NUMBERS_IQ4 on. */
#define IGNIS__BLOCKS_TABLES                                                        \
    {                                                                               \
        {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113}, \
            {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12},              \
            {4, 12, 20, 28, 36, 44, 52, 62, -4, -12, -20, -28, -36, -44, -52, -62}, \
            {1, 3, 5, 7, 9, 11, 13, 15, -1, -3, -5, -7, -9, -11, -13, -15},         \
        {                                                                           \
            8, -8, 25, -25, 43, -43, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0                   \
        }                                                                           \
    }

/*  The types that stay quantised: name, number in GGUF, elements and bytes of a block of the file; on the device bits,
    scales and numbers; what scales are divided by. F8 is of Ignis alone: a block is an f32 and 128 of e4m3. */
#define IGNIS__BLOCKS_TYPES(X)                 \
    X(Q4_0, 2, 32, 18, 4, BLOCK, SIGNED, 1)    \
    X(Q4_1, 3, 32, 20, 4, ADDED, PLAIN, 1)     \
    X(Q5_0, 6, 32, 22, 5, BLOCK, SIGNED, 1)    \
    X(Q5_1, 7, 32, 24, 5, ADDED, PLAIN, 1)     \
    X(Q8_0, 8, 32, 34, 8, BLOCK, SIGNED, 1)    \
    X(Q2_K, 10, 256, 84, 2, 16_MIN, PLAIN, 1)  \
    X(Q3_K, 11, 256, 110, 3, 16, SIGNED, 1)    \
    X(Q4_K, 12, 256, 144, 4, K, PLAIN, 1)      \
    X(Q5_K, 13, 256, 176, 5, K, PLAIN, 1)      \
    X(Q6_K, 14, 256, 210, 6, 16, SIGNED, 1)    \
    X(IQ2_XXS, 16, 256, 66, 3, 16, IQ2, 8)     \
    X(IQ2_XS, 17, 256, 74, 3, 16, IQ2, 8)      \
    X(IQ3_XXS, 18, 256, 98, 4, 32, IQ3_XXS, 4) \
    X(IQ4_NL, 20, 32, 18, 4, BLOCK, IQ4, 1)    \
    X(IQ3_S, 21, 256, 110, 4, 32, IQ3_S, 1)    \
    X(IQ2_S, 22, 256, 82, 3, 16, IQ2, 8)       \
    X(IQ4_XS, 23, 256, 136, 4, 32, IQ4, 1)     \
    X(MXFP4, 39, 32, 17, 4, POWER, MXFP4, 1)   \
    X(F8, 62, 128, 132, 8, 128, E4M3, 1)

/*  Bytes of a record, always an odd multiple of 16, and of its scales that are outside. */
#define IGNIS__BLOCKS_RECORD(bits, scales) (32 * (bits) + ((scales) == IGNIS__SCALES_ADDED ? 48 : 16))
#define IGNIS__BLOCKS_OUTSIDE(scales) ((scales) == IGNIS__SCALES_16 ? 2 : (scales) == IGNIS__SCALES_16_MIN ? 4 : 0)
