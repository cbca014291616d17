#pragma once
/*  Constants of the kernels of cross-entropy in kernels/softmax.cu. */
enum {
    IGNIS__ROWS_EXACT = 2,          /* for packed: all rows are full packs of 16 bytes */
    IGNIS__LOSS_WARP_THREADS = 640, /* of a block without gradient, for rows that a warp reads */
    IGNIS__LOSS_THREADS = 256,      /* of a block that reads a row */
    IGNIS__COUNT_BLOCKS = 64,       /* of ignis_cross_entropy_count, which leave a count each, and one more number */
    IGNIS__SHORT_ROW = 16           /* elements of a row for a thread, at most, with few rows */
};
