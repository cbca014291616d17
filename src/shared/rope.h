#pragma once
enum {
    IGNIS__ROPE_HALF = 256,    /* pairs of a head that are rotated, at most */
    IGNIS__ROPE_THREADS = 256, /* of a block of kernels/rope.cu */
    IGNIS__ROPE_HEADS = 2      /* that a thread rotates by the same angles */
};

/*  kernels/rope.cu: heads at the beginning of rows. */
typedef struct ignis__rope_params {
    long long y_row, x_row; /* elements from row to row */
    long long rows, seq, offset;
    double direction;                /* 1, or -1: back */
    IGNIS__POINTER(const float) own; /* frequencies on the device; or null: those of the table */
    /* of documents, as in attention_bounds.cu: positions count from their first rows; null: from that of a sequence */
    IGNIS__POINTER(const int2) bounds;
    int heads, half;
    int packed;      /* half and the rows are multiples of a pack of 16 bytes, and x and y are aligned to that */
    int own_is_wide; /* `own` has f64 */
} ignis__rope_params;
IGNIS__ASSERT_SIZE(ignis__rope_params, 80);

/*  kernels/attention_hopper_backward.cu: the rotation of q and k; their gradients are rotated back. */
typedef struct ignis__rotation {
    long long offset;                /* position of the first row */
    IGNIS__POINTER(const float) own; /* frequencies on the device; or null: those after it */
    float frequencies[IGNIS__ROPE_HALF];
} ignis__rotation;
IGNIS__ASSERT_SIZE(ignis__rotation, 1040);
