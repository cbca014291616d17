#pragma once
/*  Params of the products with one or a few rows. Rows of x have k elements, rows of results result_row. Kernels define
    T, the type of elements, and Wide, that of sums. */

/*  Where a product goes; GELU: out, by that activation, or gated by it in place of silu; ADD: to the sum; CACHE: q, k
    and v of heads, rotated. */
typedef enum ignis__gemv_kind {
    IGNIS__GEMV_OUT,
    IGNIS__GEMV_GELU,
    IGNIS__GEMV_ADD,
    IGNIS__GEMV_LOGITS,
    IGNIS__GEMV_CACHE
} ignis__gemv_kind;

/*  kernels/models/gemv.cu */
typedef struct ignis__gemv {
    /* weights [n, k]; gated [2 n, k]: silu of the first half's product, times that of the second half */
    IGNIS__POINTER(const T) x, weights;
    IGNIS__POINTER(const T) bias; /* [n] or [2 n], or null */
    IGNIS__POINTER(T) out;
    IGNIS__POINTER(Wide) sum;
    IGNIS__POINTER(float) logits;
    /* what adapters add to the products, after the bias; or null. Rows as those of ignis__gemv_mma */
    IGNIS__POINTER(const Wide) delta;
    long long n, k, result_row;
    int rows, kind, packed; /* packed: rows of x and of the weights consist of aligned packs of 16 bytes */
} ignis__gemv;
IGNIS__ASSERT_SIZE(ignis__gemv, 96);

typedef struct ignis__gemv_mma {
    IGNIS__POINTER(const T) x;
    /* [n, k]; gated [2 n, k]: silu of the first half's product, times that of the second half */
    IGNIS__POINTER(const void) weights;
    IGNIS__POINTER(const T) bias; /* [n] or [2 n], or null */
    IGNIS__POINTER(T) out;
    IGNIS__POINTER(T) ordered; /* of the norm and of ignis_gemv_mma_order: x for gemv_hopper.cu, or null */
    IGNIS__POINTER(float) sum, logits;
    /* what adapters add to the products, after the bias; or null. Rows of result_row elements, or twice as many if
       gated; not with ADD or LOGITS */
    IGNIS__POINTER(const float) delta;
    IGNIS__POINTER(const float) norm_of; /* one row, whose norm is x; null if x is ready */
    IGNIS__POINTER(const T) norm_weight, norm_bias;
    /* IGNIS__GEMV_CACHE: results are q, k and v of heads; k and v go to the KV cache */
    IGNIS__POINTER(const struct ignis__generate_row) places;
    IGNIS__POINTER(T) keys, values;
    IGNIS__POINTER(const float) frequencies; /* of the rotation of q and k, or null */
    double eps;
    long long n, k, result_row;
    int rows, kind, gated, rms, heads, kv_heads, head_dim;
    /* one row: chunks of weights in flight to shared memory; the offset of the results after them */
    int ring, found_at;
    int table;  /* IGNIS__GEMV_CACHE: see ignis__generate_row */
    int across; /* gemv_hopper.cu, gemv_f8.cu: blocks that divide the rows of x */
    int orders; /* gemv_hopper.cu: out is in the order of operands */
} ignis__gemv_mma;
IGNIS__ASSERT_SIZE(ignis__gemv_mma, 200);

/*  Params of quantised weights. */
typedef struct ignis__gemv_blocks {
    ignis__gemv_mma product;
    IGNIS__POINTER(const uint8_t) scales_of; /* of weights whose scales are outside of the records: see blocks.cuh */
    /* many rows: whole numbers, [rows, units] of UNIT_BYTES; of a block, high bytes, then low ones, eight elements
       after eight. For gemv_f8.cu, as scales: see ignis_gemv_f8_rows */
    IGNIS__POINTER(uint8_t) x;
    /* [blocks of the units, rows, up to a multiple of 8], then sums, if the weights have minima */
    IGNIS__POINTER(float) scales;
    /* the result of the first row of these weights; product.n is the one after the last row */
    int first;
    int paired; /* whether x is not two bytes, but the number as a T, in the order of paired_place */
    int x_ring; /* gemv_f8.cu: units of x in flight to shared memory; product.ring is of records of weights */
    int unused;
} ignis__gemv_blocks;
IGNIS__ASSERT_SIZE(ignis__gemv_blocks, 240);
