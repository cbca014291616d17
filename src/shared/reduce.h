#pragma once
/*  Params of kernels/reduce.cu: sums along n of arrays [outer, n, inner]. */

enum { IGNIS__SUM_THREADS = 512 }; /* of a block, at most */

typedef struct ignis__sum_sizes {
    double factor; /* of the result */
    long long outer, n, inner;
    long long part_length, parts; /* elements of a part of n; parts */
} ignis__sum_sizes;
IGNIS__ASSERT_SIZE(ignis__sum_sizes, 48);
