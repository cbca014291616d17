#pragma once
/*  Params of adapters (LoRA) beside the products of a layer. Kernels define T, the type of elements, and Wide, that of
    sums. */

enum {
    IGNIS__LORA_PAIRS = 3,            /* pairs of A and B of a product, at most: those of q, k and v */
    IGNIS__LORA_SEQUENCE_RANK = 512,  /* of adapters that sequences are computed with, at most */
    IGNIS__LORA_SHRINK_THREADS = 128, /* of a block of ignis_lora_shrink */
    IGNIS__LORA_EXPAND_THREADS = 256  /* of a block of ignis_lora_expand; each has a column */
};

/*  The products of a layer. Tables of adapters have IGNIS__LORA_PAIRS pairs for each of them, layer by layer. */
enum { IGNIS__LORA_QKV, IGNIS__LORA_O, IGNIS__LORA_UP, IGNIS__LORA_DOWN, IGNIS__LORA_PRODUCTS };

/*  A and B of some columns of a product's result. */
typedef struct ignis__lora_pair {
    IGNIS__POINTER(const void) a, b; /* [rank, k], [columns, rank] */
    double scale;
    int32_t first, columns; /* of the result */
    int32_t rank, dtype;    /* rank: 0 if there is no pair; dtype: of a and b */
} ignis__lora_pair;
IGNIS__ASSERT_SIZE(ignis__lora_pair, 40);

typedef struct ignis__lora_step {
    IGNIS__POINTER(const struct ignis__generate_row) rows; /* of each row of x */
    IGNIS__POINTER(const T) x;                             /* [count, k] */
    IGNIS__POINTER(Wide) shrunk; /* [count, IGNIS__LORA_PAIRS, IGNIS__LORA_SEQUENCE_RANK]: scale x A^T */
    /* receives shrunk B^T, and -0, which changes no sum, in columns without a pair; or null */
    IGNIS__POINTER(Wide) delta;
    IGNIS__POINTER(Wide) sum; /* shrunk B^T is added to it; or null */
    IGNIS__POINTER(T) out;    /* as sum, if both others are null */
    long long k, n;           /* n: columns of the results, whose rows are adjacent */
    int count, product;       /* product: its number in tables, from the first layer on */
} ignis__lora_step;
IGNIS__ASSERT_SIZE(ignis__lora_step, 72);
