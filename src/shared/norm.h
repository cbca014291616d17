#pragma once
/*  Geometry of the kernels of layer_norm and rms_norm: see kernels/norm.cuh. */

enum {
    IGNIS__NORM_UNALIGNED = 2,         /* instead of packed: rows begin at the same addresses modulo 16 in all arrays */
    IGNIS__NORM_LONG_PACKS = 8,        /* of a long packed row, for a thread */
    IGNIS__NORM_FLIGHT = 4,            /* kernels/norm_unaligned.cuh: packs of an array that a thread has at a time */
    IGNIS__NORM_WARPS = 4,             /* of a block of its kernels named _few or _warp */
    IGNIS__NORM_BLOCK_THREADS = 512,   /* the most of a block of any other kernel of these */
    IGNIS__NORM_AVERAGES_THREADS = 256 /* of a block that computes averages or columns, at most */
};
