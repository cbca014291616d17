#pragma once
/*  Params of the kernels of kernels/embedding.cu that sum the gradient of a table [vocab, n]. */

enum {
    IGNIS__EMBEDDING_THREADS = 256, /* of a block, at most */
    IGNIS__EMBEDDING_CHUNK = 64     /* sorted keys of a block, so that a frequent id is the work of many blocks */
};

typedef struct ignis__embedding_sums {
    IGNIS__POINTER(T) table;
    IGNIS__POINTER(Wide) partial;                   /* [chunk, 2, n] */
    IGNIS__POINTER(const T) grad;                   /* [count, n] */
    IGNIS__POINTER(const uint32_t) keys, positions; /* sorted ids, and where they were */
    IGNIS__POINTER(const Wide) weights;    /* of ids, with -DIGNIS_WEIGHTED=1: a row of grad is that of 2^shift ids */
    IGNIS__POINTER(const uint32_t) bounds; /* [vocab, 2]: the keys of an id */
    long long count, vocab, n;
    int packed, adds; /* adds: to the existing rows */
    int shift;
} ignis__embedding_sums;
IGNIS__ASSERT_SIZE(ignis__embedding_sums, 96);
