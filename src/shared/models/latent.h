#pragma once
/*  Params of the kernels of latent attention besides attention itself. Kernels define T, the type of elements. */
typedef struct ignis__latent {
    /* [rows, qkv_row]: q through its low rank, or q, then from latent_at on the latent and what rotates of the keys */
    IGNIS__POINTER(const T) qkv;
    IGNIS__POINTER(T) q_normed;                      /* [rows, q_rank] */
    IGNIS__POINTER(const T) q_weight, latent_weight; /* of norms */
    IGNIS__POINTER(T) cache;                         /* [pages, IGNIS__PAGE, latent + rotary] */
    IGNIS__POINTER(const T) q;                       /* [rows, q_row]: heads of plain + rotary elements */
    IGNIS__POINTER(T) query;                         /* [rows, heads, latent + rotary] */
    /* [heads * plain + heads * value_dim, latent]: rows of keys of all heads, then those of values */
    IGNIS__POINTER(const T) kv_b;
    IGNIS__POINTER(const T) attended; /* [rows, heads, latent] */
    IGNIS__POINTER(T) out;            /* [rows, heads * value_dim] */
    IGNIS__POINTER(const ignis__generate_row) rows;
    long long qkv_row, q_row;
    double eps, factor; /* factor: of rotated elements */
    int count;          /* rows */
    int heads, q_rank, latent_at, latent, rotary, plain, value_dim;
    int table; /* see ignis__generate_row */
    int unused;
} ignis__latent;
IGNIS__ASSERT_SIZE(ignis__latent, 160);
