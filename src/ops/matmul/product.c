/*  >>ops.matmul.product - what a matrix product is: operands, epilogue, patches, and tiles of the kernels

    The structs are those of kernels/gemm.cuh. The parts: product, gemm_select (choice), gemm_params,
    gemm_launch, cublaslt, autotune, dispatch; matmul, linear, mlp are the operations. Matrices are row-major. */

/*  A product of row-major matrices: out [batch, m, n] = op(a) op(b). */
typedef struct ignis__product {
    int64_t m, n, k, batch;
    int64_t batch_a, batch_b;     /* elements between the matrices of a batch; 0: one matrix for all */
    int transpose_a, transpose_b; /* a is stored [k, m]; b is stored [n, k] */
    int dtype, epilogue;          /* one of cuBLASLt's */
    int alignment;                /* of all addresses, in bytes: 16, 8, 4 or 2 */
    int operands;                 /* the dtype of a and b if it differs from dtype; else 0 */
} ignis__product;

/*  Returns a [m, k] times b, which is [k, n], or [n, k] if transposed. */
static ignis__product ignis__product_of(ignis_dtype dtype, int64_t m, int64_t n, int64_t k, int transpose_b)
{
    ignis__product p = IGNIS__ZERO;
    p.m = m;
    p.n = n;
    p.k = k;
    p.batch = 1;
    p.batch_a = m * k;
    p.batch_b = k * n;
    p.transpose_b = transpose_b;
    p.dtype = (int)dtype;
    return p;
}

/*  An ignis_activation of products only, the second of a gated layer: silu(gate) * product. pre holds the
    gate and after it the products, which are written if `keeps`, and read by a gradient. Its out is [2, m, n]
    too: of the gate and the product. There are no batches, and no other epilogue. */
#define IGNIS__ACTIVATION_GATED 3

/*  An ignis_activation of products only: the result [m, n / 2] is silu of the first half of the columns,
    times the second half. For products that ignis__gemm_pairs takes. */
#define IGNIS__ACTIVATION_PAIRED 4

/*  The epilogue of a product, in this order. A NULL array leaves its step out. Sums need a product without
    batches. */
typedef struct ignis__epilogue {
    double factor;      /* of the product; 0: 1 */
    ignis__array *bias; /* [n], added to each row */
    int activation;     /* an ignis_activation, or one of those above; 0: none */
    bool gradient;      /* the product is multiplied by the derivative of the activation at pre */
    /* Like out: receives the product with its bias; of a gradient, what was kept. Gated: [2, m, n], see
       above. */
    ignis__array *pre;
    bool keeps;                      /* of gated ones that are not a gradient */
    ignis__array *residual;          /* like out, added */
    ignis__array *column_sums;       /* [n]: the sums of the results over m */
    bool accumulate;                 /* the result is added to out */
    ignis__array *row_sums;          /* [m]: the sums of op(a) over k */
    ignis__array *scale_a, *scale_b; /* of operands of 8 bits, f32: [1] or [m], [1] or [n] */
} ignis__epilogue;

/*  The patches of a convolution, as in kernels/gemm.cuh. */
typedef struct ignis__patches {
    ignis__divisor rows, columns, channels, across;
    int height, width, first[2], stride[2], step[2], apart, weight, weight_step[2], weight_channels;
    int64_t weight_row, pixel, out_image, out_row, out_column;
} ignis__patches;

/*  The parameters of the kernels, as in kernels/gemm.cuh. */
typedef struct ignis__gemm {
    ignis__address a, b, out, bias, pre, residual, partial, row_sums, column_sums, scale_a, scale_b;
    int64_t m, n, k, batch, batch_a, batch_b, row_a, row_b, split_k;
    double factor;
    int splits, transpose_a, transpose_b, activation, gradient, scales_a, scales_b, accumulate, keeps, packed_a,
        packed_b, packed_out, box_a, box_b;
    ignis__patches patches;
    /* for the host only */
    /* The operand with patches: 1 is a, 2 is b; 0: a plain product. */
    int patches_of;
    /* Of a product with patches: the k of wgmma; 0: it cannot be used. */
    int64_t wgmma_k;
    int64_t images, weights;     /* of these; and the channels of the weights */
    bool folded;                 /* pairs of pixels are one with twice the channels */
    ignis_dtype dtype, operands; /* of the result; of a and b */
    int rows;                    /* of a wgmma tile; 0: as ignis__gemm_rows finds */
    /* The operand that pairs of blocks of kernels/gemm_hopper.cu share, as below; 0: no pairs. */
    int pairs;
} ignis__gemm;

enum { IGNIS__SHARE_A = 1, IGNIS__SHARE_B };

/*  A kernel: the tile of a block, its threads, blocks of an SM at a time, and nanoseconds: of 64 elements of
    k of a tile for an SM, and for a block at least; between two tiles; before the first. On an H200, of
    16-bit elements, and of f32 in plain CUDA C. */
typedef struct ignis__gemm_tile {
    ignis__builtin builtin;
    int rows, columns;
    unsigned threads;
    int blocks, step, latency, between, before;
} ignis__gemm_tile;

/* clang-format off */
static const ignis__gemm_tile ignis__gemm_tile_sizes[] = {
    {IGNIS__BUILTIN_GEMM_HOPPER, 128, 256, 384, 1, 690, 690, 1000, 800},
    {IGNIS__BUILTIN_GEMM_HOPPER, 128, 192, 384, 1, 525, 525, 100, 1800},
    {IGNIS__BUILTIN_GEMM_HOPPER, 192, 192, 512, 1, 800, 800, 1500, 800}, /* or fewer columns: ignis__gemm_fit_columns */
    {IGNIS__BUILTIN_GEMM_HOPPER, 128, 128, 384, 1, 380, 300, 600, 800},
    {IGNIS__BUILTIN_GEMM_HOPPER, 128, 64, 384, 1, 220, 165, 600, 700}, /* in pairs */
    {IGNIS__BUILTIN_GEMM_HOPPER, 128, 64, 384, 2, 230, 250, 600, 800},
    {IGNIS__BUILTIN_GEMM_HOPPER, 64, 128, 384, 2, 240, 400, 600, 800},
    {IGNIS__BUILTIN_GEMM_MMA, 128, 128, 256, 1, 1000, 1000, 1000, 1500},
    {IGNIS__BUILTIN_GEMM_MMA_SMALL, 64, 64, 128, 3, 280, 490, 1000, 1600},
    {IGNIS__BUILTIN_GEMM, 128, 128, 256, 1, 7000, 7000, 1000, 2000},
    {IGNIS__BUILTIN_GEMM_SMALL, 64, 64, 256, 2, 2400, 2900, 1000, 1000},
    {IGNIS__BUILTIN_GEMM_TINY, 16, 32, 256, 1, 220, 580, 1700, 0},
};
/* clang-format on */

/*  A kernel, and how it is launched for a product. */
typedef struct ignis__gemm_kernel {
    ignis__builtin builtin;
    int rows, columns, summed_rows; /* of a tile; summed_rows of it are one row of column_sums */
    bool sums_rows;                 /* it computes row_sums */
    bool stays;                     /* a block computes one tile after the other */
    bool packs;                     /* operands whose rows are no full packs are copied first */
    bool transposes;                /* operands that are not contiguous along k are transposed first */
    int64_t splits;                 /* of k */
    unsigned threads, shared;
    int blocks;                  /* of an SM at a time */
    char define[IGNIS__DEFINES]; /* of its variant; "": none */
} ignis__gemm_kernel;
