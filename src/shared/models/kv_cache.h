#pragma once
/*  Params of the kernels that write the KV cache, and of paged attention. Kernels define T, the type of elements, and
    Wide, that of sums. */

enum {
    IGNIS__SPLIT = 64, /* keys of a split of attention, or a multiple of it */
    IGNIS__SPLITS = 32 /* the largest number of splits */
};

/*  Rotates heads of q and k, and appends k and v to the KV cache. */
typedef struct ignis__generate_cache {
    IGNIS__POINTER(T) qkv;  /* [rows, heads + 2 kv_heads, head_dim] */
    IGNIS__POINTER(T) k, v; /* of the KV cache */
    /* null, or a second destination: [positions, kv_heads, head_dim], of one sequence */
    IGNIS__POINTER(T) k_too, v_too;
    /* of an rms_norm of each head before it is rotated; null if there is no norm */
    IGNIS__POINTER(const T) q_weight, k_weight;
    IGNIS__POINTER(const ignis__generate_row) rows;
    /* weight_offset: is added to the weights of the norms; rest_scale: multiplies elements of q and k from pair
       `turning` on, which do not rotate */
    double eps, weight_offset, rest_scale;
    int heads, kv_heads, head_dim, turns, turning, table; /* table: see ignis__generate_row */
    int type;                                             /* of the KV cache: IGNIS__CACHE_NUMBERS, ... */
    int unused;
} ignis__generate_cache;
IGNIS__ASSERT_SIZE(ignis__generate_cache, 120);

/*  Attention of rows over the pages of their sequences. */
typedef struct ignis__paged {
    IGNIS__POINTER(const T) q; /* [rows, heads, head_dim], rows of q_row elements */
    IGNIS__POINTER(T) out;     /* [rows, heads * head_dim] */
    IGNIS__POINTER(const T) k, v;
    IGNIS__POINTER(const ignis__generate_row) rows;
    /* [rows, heads, splits, 2 + head_dim]: the greatest score, the sum of 2^(score - greatest), and that of 2^(score
       - greatest) v */
    IGNIS__POINTER(Wide) scratch;
    /* [rows, heads]: blocks that have ended, for each group of heads; zeros before and after the launch */
    IGNIS__POINTER(uint32_t) ended;
    long long q_row;
    double scale;
    int heads, kv_heads, head_dim, splits;
    int settled; /* earlier kernels write no keys and values of the row's sequence, except those of the row itself */
    int count;   /* rows */
    /* with -DIGNIS_WINDOW=1. sinks: [heads], scores that the softmax has besides those of keys, or null; softcap: of
       the scores, or 0; window: keys that a row sees, its own included, or 0: all */
    IGNIS__POINTER(const T) sinks;
    double softcap;
    int window;
    int table; /* see ignis__generate_row */
    int type;  /* of k and v: IGNIS__CACHE_NUMBERS, ..., as -DIGNIS_CACHE_TYPE says */
    int unused;
} ignis__paged;
IGNIS__ASSERT_SIZE(ignis__paged, 128);
