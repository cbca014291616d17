#pragma once
/*  Params of kernels/models/generate_step.cu, a decode step in one launch. */

/*  The products of a layer, and that of the logits. */
enum {
    IGNIS__STEP_QKV,
    IGNIS__STEP_ATTENDED,
    IGNIS__STEP_UP,
    IGNIS__STEP_DOWN,
    IGNIS__STEP_HEAD,
    IGNIS__STEP_PRODUCTS
};

/*  A product. */
typedef struct ignis__decode_step_shape {
    int n, k, kind, gated, head_dim, tiles;
} ignis__decode_step_shape;
IGNIS__ASSERT_SIZE(ignis__decode_step_shape, 24);

/*  Rows of a quantised matrix that have one type. */
typedef struct IGNIS__ALIGNED(16) ignis__decode_step_part {
    IGNIS__POINTER(const uint8_t) records; /* scales that are outside of the records follow them */
    int type, first;                       /* first of a part that does not exist: the number of rows */
} ignis__decode_step_part;
IGNIS__ASSERT_SIZE(ignis__decode_step_part, 16);

/*  A weight. Dense: a TMA map of columns, rows, and planes if a tile's rows are not adjacent; else parts. A kernel is
    for one of both. */
#ifdef IGNIS__STEP_OF_PARTS
typedef struct ignis__decode_step_weights {
    ignis__decode_step_part parts[3];
    uint32_t padding[20]; /* to the size of a TMA map */
} ignis__decode_step_weights;
#elif defined(IGNIS__STEP_OF_MAPS)
typedef struct ignis__decode_step_weights {
    ignis__tensor_map map;
} ignis__decode_step_weights;
#else
typedef union ignis__decode_step_weights {
    ignis__tensor_map map;
    ignis__decode_step_part parts[3];
} ignis__decode_step_weights;
#endif
IGNIS__ASSERT_SIZE(ignis__decode_step_weights, 128);

typedef struct IGNIS__ALIGNED(64) ignis__decode_step_layer {
    ignis__decode_step_weights weights[4]; /* after the last layer: those of the logits */
    IGNIS__POINTER(const T) bias[4], norm[2], norm_bias[2];
    IGNIS__POINTER(const T) head_norm[2]; /* of q and k, or null */
    IGNIS__POINTER(const T) nothing[6];   /* the maps of the next layer begin at a multiple of 64 bytes */
} ignis__decode_step_layer;
IGNIS__ASSERT_SIZE(ignis__decode_step_layer, 640);

typedef struct ignis__decode_step {
    IGNIS__POINTER(const ignis__decode_step_layer) layers; /* [count + 1] */
    IGNIS__POINTER(const ignis__generate_row) row;         /* the uploaded row */
    IGNIS__POINTER(const float) frequencies;
    IGNIS__POINTER(const T) embedding, positions; /* positions: of learned ones, or null */
    ignis__quantised_weight table;                /* in place of the embedding, if it has records */
    IGNIS__POINTER(T) cache;                      /* keys and values of one layer after the other */
    long long slab;                               /* elements of a layer's keys */
    IGNIS__POINTER(float) logits;
    /* the number of the last step's last layer, and the count of ended blocks, which is 0 between steps */
    IGNIS__POINTER(uint32_t) state;
    IGNIS__POINTER(unsigned long long) sums[2];              /* words: before attention, and after it */
    IGNIS__POINTER(unsigned long long) qkv, attended, inner; /* two elements per word */
    IGNIS__POINTER(unsigned long long) found;                /* of attention: [heads, splits, 2 + head_dim] */
    double eps, scale;
    ignis__decode_step_shape shapes[IGNIS__STEP_PRODUCTS];
    /* found_at, row_at: offsets of the slices' results and of x in shared memory */
    int count, rms, heads, kv_heads, head_dim, splits, ring, found_at, row_at;
} ignis__decode_step;
IGNIS__ASSERT_SIZE(ignis__decode_step, 328);
