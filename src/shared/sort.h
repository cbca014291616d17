#pragma once
/*  Params and geometry of kernels/sort.cu. */

enum {
    IGNIS__SORT_THREADS = 256,      /* of the blocks that sort short rows, or select from one of many rows */
    IGNIS__SORT_FEW_THREADS = 512,  /* of those that select from one of few rows */
    IGNIS__SORT_ROW_ROUNDS = 8,     /* elements of a thread of a block that sorts a row */
    IGNIS__SORT_DIGITS = 256,       /* values of the 8 bits of a key that a pass sorts by */
    IGNIS__SORT_TILE_THREADS = 512, /* of a block that moves a tile */
    IGNIS__SORT_ROUNDS = 12,        /* elements of its threads */
    IGNIS__SORT_ROUNDS_OF_8 = 8,    /* the same for elements of 8 bytes */
    IGNIS__SORT_COUNTED = 4         /* tiles that a block counts */
};

/*  The first k of each row of src [rows, n], or of each of its parts. */
typedef struct ignis__selection {
    IGNIS__POINTER(T) values;
    IGNIS__POINTER(int64_t) positions;
    IGNIS__POINTER(const T) src;
    IGNIS__POINTER(const int64_t) from_positions; /* of the elements of src; null: where they are in the row */
    long long n;
    int parts, k;
    int items; /* of shared memory: a power of 2 from k and 64 on */
    int descending;
} ignis__selection;
IGNIS__ASSERT_SIZE(ignis__selection, 56);
