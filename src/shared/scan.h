#pragma once
/*  The operators of kernels/scan.cu, its tiles, and its further arrays. */

enum {
    IGNIS__SCAN_SUM,
    IGNIS__SCAN_PRODUCT,
    IGNIS__SCAN_MAX,
    IGNIS__SCAN_MIN,
    IGNIS__SCAN_LOGSUMEXP,
    IGNIS__SCAN_PRODUCT_GRADIENT,
    IGNIS__SCAN_LOGSUMEXP_GRADIENT
};

enum {
    IGNIS__SCAN_THREADS = 256,
    IGNIS__SCAN_BYTES = 64 /* of states of a thread, unless a pack has more */
};

/*  Further arrays of the shape of the argument, or null. Gradients read x and y, the argument and the result of the
    scan. */
typedef struct ignis__scan_arrays {
    IGNIS__POINTER(const T) x, y;
    IGNIS__POINTER(long long) positions;
    long long n, inner;
} ignis__scan_arrays;
IGNIS__ASSERT_SIZE(ignis__scan_arrays, 40);
